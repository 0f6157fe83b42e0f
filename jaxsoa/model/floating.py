"""A robot on a floating base as two: the base link on its free joint, and what hangs on it.

Sweeps treat the two apart (see `dynamics.floating_base`): the rest of a humanoid is a robot that only turns, mounted on
a base that moves.
"""

from __future__ import annotations

import dataclasses

import jax

from jaxsoa.model.multibody import Multibody
from jaxsoa.model.topology import Topology


def trunk_and_limbs(robot: Multibody) -> tuple[Multibody, Multibody]:
    """The link that a free joint carries, and everything else as a robot based on that link. Neither has frames."""
    trunk, limbs = robot.topology.trunk, robot.topology.limbs
    return _part(robot, trunk, 0, 0), _part(robot, limbs, trunk.n_links, trunk.nv)


def _part(robot: Multibody, topology: Topology, first_link: int, first_dof: int) -> Multibody:
    """Consecutive links of a robot; a batch may trail its leaves."""
    links = slice(first_link, first_link + topology.n_links)
    dofs = slice(first_dof, first_dof + topology.nv)
    rows: dict[str, slice] = {"frame_rotation": slice(0), "frame_position": slice(0)}
    rows |= {name: dofs for name in ("armature", "damping", "friction", "limits")}
    rows |= {name: links for name in ("joint_rotation", "joint_position", "axis", "axis2", "pitch")}
    rows |= {name: links for name in ("mass", "com", "inertia")}
    leaves = {field.name: getattr(robot, field.name) for field in dataclasses.fields(robot)}
    leaves["springs"] = None  # they are torques by the time that a robot is taken apart
    for name, where in rows.items():
        leaves[name] = jax.tree.map(lambda x, where=where: x[where], leaves[name])
    return Multibody(**{**leaves, "topology": topology})
