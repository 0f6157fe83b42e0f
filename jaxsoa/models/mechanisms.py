"""Textbook mechanisms, and a robot with two hands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxsoa.model.assemble import assemble
from jaxsoa.model.description import FrameDescription, JointDescription, LinkDescription, RobotDescription
from jaxsoa.model.multibody import Multibody
from jaxsoa.models._parts import (
    BASE as _BASE,
    X as _X,
    Y as _Y,
    Z as _Z,
    require_links as _require_links,
    rod as _rod,
    rotation_about_x as _rotation_about_x,
)

_Column = Sequence[float] | np.ndarray


def pendulum(n: int = 1, *, length: float = 1.0, mass: float = 1.0) -> Multibody:
    """n equal uniform rods on hinges about y, swinging in the x-z plane; at q = 0 they hang straight down.

    `length` and `mass` are those of one rod. The frame `tip` is at the end of the last one.

    >>> print(soa.frame_pose(soa.models.pendulum(2), jnp.zeros(2), "tip")[1])  # hanging, m
    [ 0.  0. -2.]
    """
    return assemble(_describe_pendulum(n, length, mass))


def _describe_pendulum(n: int, length: float, mass: float) -> RobotDescription:
    return _describe_serial_rods("pendulum", n, -length * _Z, mass, axis=_Y)


def planar_arm(n: int = 3, *, length: float = 0.5, mass: float = 1.0) -> Multibody:
    """n equal uniform rods on hinges about z, in the horizontal plane where gravity does no work; along x at q = 0.

    `length` and `mass` are those of one rod. The frame `tip` is at the end of the last one.

    >>> print(soa.frame_pose(soa.models.planar_arm(3), jnp.zeros(3), "tip")[1])  # m
    [1.5 0.  0. ]
    """
    return assemble(_describe_planar_arm(n, length, mass))


def _describe_planar_arm(n: int, length: float, mass: float) -> RobotDescription:
    return _describe_serial_rods("planar_arm", n, length * _X, mass, axis=_Z)


def chain(n: int, *, length: float = 0.3, mass: float = 1.0) -> Multibody:
    """n equal rods in space: each hinge is turned by +90 or -90 degrees against the one before it and set off from it.

    Neighbouring axes are skew (they neither meet nor are parallel), so no term of the dynamics vanishes by symmetry.
    `length` and `mass` are those of one rod. The frame `tip` is at the end of the last one.

    >>> print(soa.models.chain(3).link_names)
    ('link1', 'link2', 'link3')
    """
    return assemble(_describe_chain(n, length, mass))


def _describe_chain(n: int, length: float, mass: float) -> RobotDescription:
    offset = np.array([1.0, 0.0, 0.2]) * length  # along the rod, and a little along its hinge
    quarter_turns = (_rotation_about_x(np.pi / 2), _rotation_about_x(-np.pi / 2))
    return _describe_serial_rods("chain", n, offset, mass, axis=_Z, turn=lambda k: quarter_turns[k % 2])


def _describe_serial_rods(
    name: str,
    n: int,
    rod: np.ndarray,
    mass: float,
    *,
    axis: np.ndarray,
    turn: Callable[[int], np.ndarray] = lambda k: np.eye(3),
) -> RobotDescription:
    """n copies of a rod from its hinge to `rod`; `turn(k)` orients hinge k (1, 2, ...) in the link before it."""
    _require_links(name, n)
    links, joints = [_BASE], []
    for k in range(1, n + 1):
        links.append(_rod(f"link{k}", rod, mass))
        joints.append(
            JointDescription(
                f"joint{k}",
                "continuous",
                links[k - 1].name,
                links[k].name,
                rotation=np.eye(3) if k == 1 else turn(k),
                position=np.zeros(3) if k == 1 else rod,
                axis=axis,
            )
        )
    tip = FrameDescription("tip", links[-1].name, position=rod)
    return RobotDescription(name, tuple(links), tuple(joints), (tip,), source=f"jaxsoa.models.{name}")


def cart_pole() -> Multibody:
    """A cart sliding along x with a pole hinged on it about y; q = (cart position, pole angle), q = 0 is upright.

    Masses and lengths of A. G. Barto, R. S. Sutton and C. W. Anderson, "Neuronlike adaptive elements that can solve
    difficult learning control problems", IEEE Trans. SMC 13(5), 1983: cart 1.0 kg, pole 0.1 kg and 1 m long.
    `joint1` moves the cart (`link1`), `joint2` the pole (`link2`); the frame `tip` is at the end of the pole.

    >>> print(soa.models.cart_pole().joint_names)
    ('joint1', 'joint2')
    """
    return assemble(_describe_cart_pole())


def _describe_cart_pole() -> RobotDescription:
    cart = LinkDescription("link1", mass=1.0, inertia=np.eye(3) * 0.01)  # it never turns, so any inertia will do
    pole = _rod("link2", _Z, 0.1)
    slide = JointDescription("joint1", "prismatic", "base", "link1", axis=_X)
    hinge = JointDescription("joint2", "continuous", "link1", "link2", axis=_Y)
    tip = FrameDescription("tip", "link2", position=_Z)
    return RobotDescription("cart_pole", (_BASE, cart, pole), (slide, hinge), (tip,), source="jaxsoa.models.cart_pole")


def dual_arm() -> Multibody:
    """A torso that turns about z (`torso_yaw`) and carries two equal seven-joint arms, hanging down at q = 0.

    Joints are `left_shoulder_pitch` ... `left_wrist_roll` and the same for `right_`, links the same without the
    motion (`left_shoulder_pitch_link`); the frames `left_hand` and `right_hand` are where they hold things. The
    proportions are those of a small humanoid, the numbers are invented.

    >>> print(soa.models.dual_arm().nv)
    15
    """
    return assemble(_describe_dual_arm())


def _describe_dual_arm() -> RobotDescription:
    # name, axis, length to the next joint (m), mass (kg)
    segments = (
        ("shoulder_pitch", _Y, 0.06, 2.0),
        ("shoulder_roll", _X, 0.10, 2.5),
        ("shoulder_yaw", _Z, 0.20, 2.5),
        ("elbow_pitch", _Y, 0.12, 2.0),
        ("forearm_yaw", _Z, 0.15, 1.5),
        ("wrist_pitch", _Y, 0.06, 0.8),
        ("wrist_roll", _X, 0.10, 0.6),
    )
    links = [_BASE, _rod("torso", 0.6 * _Z, 20.0, radius=0.12)]
    joints = [JointDescription("torso_yaw", "revolute", "base", "torso", axis=_Z, lower=-2.8, upper=2.8)]
    frames = []
    for side, sign in (("left", 1.0), ("right", -1.0)):
        parent, position = "torso", np.array([0.0, 0.2 * sign, 0.55])
        for name, axis, length, mass in segments:
            link = _rod(f"{side}_{name}_link", -length * _Z, mass, radius=0.04)
            joint = JointDescription(
                f"{side}_{name}", "revolute", parent, link.name, position=position, axis=axis, lower=-2.8, upper=2.8
            )
            links.append(link)
            joints.append(joint)
            parent, position = link.name, -length * _Z
        frames.append(FrameDescription(f"{side}_hand", parent, position=position))
    return RobotDescription("dual_arm", tuple(links), tuple(joints), tuple(frames), source="jaxsoa.models.dual_arm")
