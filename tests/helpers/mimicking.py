"""An arm of one joint, two fingers that mimic it through a chain of mimics, and a free pendulum between."""

from __future__ import annotations

import warnings

import numpy as np

import jaxsoa as soa

INERTIA = (
    '<inertial><origin xyz="0.1 0.02 -0.03"/><mass value="1.5"/>'
    '<inertia ixx=".02" iyy=".03" izz=".025" ixy="0" ixz="0" iyz="0"/></inertial>'
)

#: What the mimics say: q = A y + B, with y the angles of shoulder and swing.
A = np.array([[1, 0], [-0.5, 0], [1, 0], [0, 1.0]])
B = np.array([0, 0.2, -0.4 + 0.1, 0])


def gripper_text() -> str:
    """The URDF: joints shoulder, left, right, swing."""
    names = ("base", "arm", "left", "right", "swing")
    text = "".join(f'<link name="{n}">{INERTIA if n != "base" else ""}</link>' for n in names)
    joints = [
        ("shoulder", "base", "arm", ""),
        ("left", "arm", "left", '<mimic joint="shoulder" multiplier="-0.5" offset="0.2"/>'),
        ("right", "arm", "right", '<mimic joint="left" multiplier="-2" offset="0.1"/>'),
        ("swing", "right", "swing", ""),
    ]
    for name, parent, child, mimic in joints:
        text += (
            f'<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{child}"/><axis xyz="0 1 0"/>'
            f'<origin xyz="0.2 0.1 0.05"/><limit lower="-3" upper="3" effort="9" velocity="9"/>'
            f'<dynamics damping="0.1"/>{mimic}</joint>'
        )
    return f'<robot name="gripper">{text}</robot>'


def gripper() -> soa.Multibody:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soa.ModelWarning)
        return soa.load_urdf(gripper_text())
