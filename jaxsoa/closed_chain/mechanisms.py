"""Ready closed chains, as `jaxsoa.models` are ready trees: linkages, a parallel robot, a two-arm grasp.

A mechanism is its tree, what closes the tree's loops, and a configuration near a closed one (`close_loops` does the
rest).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.closed_chain.constraints import Constraint, ball, hinge
from jaxsoa.closed_chain.contacts import Contact, Rigid
from jaxsoa.closed_chain.grasp import Arm, GraspSystem, RigidBody
from jaxsoa.dynamics.kinematics import frame_pose
from jaxsoa.model.builder import Builder
from jaxsoa.model.multibody import Multibody
from jaxsoa.models import chain


class Mechanism(NamedTuple):
    robot: Multibody
    loops: tuple[Constraint, ...]
    q: Array  # near a closed configuration


def _rod(length: float, mass: float = 1.0) -> dict:
    """A uniform rod along x."""
    across = mass * length**2 / 12
    return {"mass": mass, "com": (length / 2, 0, 0), "inertia": np.diag([1e-3, across, across])}


def linkage(left: Sequence[float], right: Sequence[float], ground: float, q, name: str = "linkage") -> Mechanism:
    """Two planar chains of 1 kg rods in the x-z plane (hinges about y), `ground` apart, their tips hinged together.

    Links are left1, left2, ..., right1, ...; joints the same with `_joint`; the cut is between `left_tip`, `right_tip`.

    >>> parallelogram = soa.closed_chain.mechanisms.linkage([0.5, 1.0], [0.5], 1.0, [-1.0, 1.0, -1.0])  # m, rad
    >>> print(parallelogram.robot.joint_names)
    ('left1_joint', 'left2_joint', 'right1_joint')
    """
    builder = Builder(name)
    for side, lengths, x in (("left", left, 0.0), ("right", right, ground)):
        parent, place = None, (x, 0.0, 0.0)
        for k, length in enumerate(lengths, start=1):
            link = f"{side}{k}"
            builder.link(link, joint="continuous", parent=parent, position=place, axis=(0, 1, 0), **_rod(length))
            parent, place = link, (length, 0.0, 0.0)
        builder.frame(f"{side}_tip", link=parent, position=place)
    return Mechanism(builder.build(), (hinge("left_tip", "right_tip", (0, 1, 0)),), jnp.asarray(q, float))


def four_bar() -> Mechanism:
    """Crank 0.4 m, coupler 1.0, rocker 0.7, ground 0.9 (Grashof): the crank `left1_joint` turns for ever.

    In space its hinge has five constraints of which two are independent.

    >>> mechanism = soa.closed_chain.mechanisms.four_bar()
    >>> print(mechanism.robot.nv, len(mechanism.loops))  # three hinges and what closes them: one degree of freedom
    3 1
    """
    return linkage([0.4, 1.0], [0.7], 0.9, [-1.0, 0.3, -1.6], "four_bar")


def five_bar() -> Mechanism:
    """Two arms of 0.5 and 0.9 m, 0.6 m apart: two degrees of freedom, driven at `left1_joint` and `right1_joint`.

    >>> robot, loops, q = soa.closed_chain.mechanisms.five_bar()
    >>> print(robot.joint_names)
    ('left1_joint', 'left2_joint', 'right1_joint', 'right2_joint')
    """
    return linkage([0.5, 0.9], [0.5, 0.9], 0.6, [-2.2, 1.4, -0.9, -1.4], "five_bar")


def stewart() -> Mechanism:
    """A Stewart platform: a plate on a free joint, six legs (universal joint, slider `leg0`..., ball).

    >>> robot, loops, q = soa.closed_chain.mechanisms.stewart()
    >>> print(robot.nv, len(loops))  # 6 of the plate and 3 for each leg
    24 6
    """
    builder = Builder("stewart")
    builder.link("platform", joint="free", mass=5.0, inertia=np.diag([0.2, 0.2, 0.4]))
    loops, angles = [], []
    height = 1.0
    for k in range(6):
        low = 2 * np.pi / 3 * (k // 2) + (0.25 if k % 2 else -0.25)
        high = 2 * np.pi / 3 * ((k + 1) // 2) - np.pi / 3 + (-0.25 if k % 2 else 0.25)
        foot = np.array([np.cos(low), np.sin(low), 0.0])
        top = 0.5 * np.array([np.cos(high), np.sin(high), 0.0])
        leg = top - foot + np.array([0, 0, height])
        reach = np.linalg.norm(leg)
        # Universal joint: first about x, then about y, takes z to the leg's direction.
        first = -np.arctan2(leg[1], leg[2])
        angles += [first, np.arcsin(leg[0] / reach), reach - 0.9]
        builder.link(
            f"cylinder{k}",
            joint="universal",
            position=foot,
            axis=(1, 0, 0),
            axis2=(0, 1, 0),
            mass=0.5,
            com=(0, 0, 0.25),
            inertia=np.diag([0.01, 0.01, 0.002]),
        )
        builder.link(
            f"piston{k}",
            joint="prismatic",
            joint_name=f"leg{k}",
            parent=f"cylinder{k}",
            position=(0, 0, 0.6),
            axis=(0, 0, 1),
            mass=0.3,
            com=(0, 0, 0.2),
            inertia=np.diag([0.005, 0.005, 0.001]),
        )
        builder.frame(f"head{k}", link=f"piston{k}", position=(0, 0, 0.3))
        builder.frame(f"socket{k}", link="platform", position=top)
        loops.append(ball(f"socket{k}", f"head{k}"))
    q = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, height, *angles]
    return Mechanism(builder.build(), tuple(loops), jnp.asarray(q))


class Grasp(NamedTuple):
    system: GraspSystem
    q: tuple[Array, ...]
    pose: tuple[Array, Array]


def two_arm_grasp(contacts: Sequence[Contact] | None = None, *, joints: int = 7) -> Grasp:
    """Two equal arms (`models.chain`) that hold a 2 kg box, 0.4 m long, by its ends; closed at the q given.

    >>> system, q, (R, p) = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> print(len(system.arms), p)  # arms, and where the box is, m
    2 [0.  0.  0.5]
    """
    contacts = (Rigid(), Rigid()) if contacts is None else tuple(contacts)
    body = RigidBody(2.0, (0.0, 0.0, 0.0), np.diag([0.02, 0.05, 0.05]))
    pose = (jnp.eye(3), jnp.array([0.0, 0.0, 0.5]))
    # Far from every singularity: the least singular value of the Jacobian is 0.36 with seven joints.
    q = jnp.asarray(np.resize([-0.1, -1.2, -1.3, -1.1, 0.1, 1.3, 0.9], joints))
    arms = []
    for side, contact in zip((-1.0, 1.0), contacts, strict=True):
        base = jnp.diag(jnp.array([-side, -side, 1.0]))
        point = jnp.array([0.2 * side, 0.0, 0.0])
        robot = chain(joints).with_base(base, jnp.zeros(3))
        _, tip = frame_pose(robot, q, "tip")
        arms.append(Arm(robot.with_base(base, pose[1] + point - tip), "tip", point, contact))
    return Grasp(GraspSystem(arms, body), (q, q), pose)
