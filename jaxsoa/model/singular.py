"""Would the mass matrix be singular? One articulated-body recursion on the host, before any array is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxsoa.model.description import JointDescription, LinkDescription, ModelError, RobotDescription, abbreviated
from jaxsoa.model.joints import JOINT_KINDS, on_host
from jaxsoa.spatial import pairs
from jaxsoa.spatial.inertia import rigid_inertia

#: Below this fraction of what the joint carries, the inertia a joint feels is rounding error.
_SINGULAR_TOLERANCE = 1e-12


def principal_moments(links: Sequence[LinkDescription]) -> np.ndarray:
    """(n_links, 3), ascending; negative where the inertia is not positive semidefinite."""
    return np.linalg.eigvalsh(np.array([link.inertia for link in links], dtype=float))


def check_mass_matrix(
    description: RobotDescription, outward: Sequence[JointDescription], leaders: dict[str, str]
) -> None:
    """Refuse joints that can move without moving any inertia: the mass matrix would be singular everywhere.

    The mass matrix is singular exactly where some D = H P H* of the articulated-body recursion is, so that recursion
    runs once at a generic configuration (a neutral one can be singular by accident, such as a wrist in gimbal lock).
    Joints coupled by mimic share one coordinate: it is enough that one of them moves inertia.
    """
    links = {link.name: link for link in description.links}
    moved = [links[joint.child] for joint in outward if JOINT_KINDS[joint.kind].nv]
    if not moved or (all(link.mass > 0 for link in moved) and (principal_moments(moved) > 0).all()):
        return  # every moving body resists every motion: nothing to find
    coupled = Counter(leaders.values())
    generator = np.random.default_rng(0)
    articulated = dict(zip(links, _spatial_inertias(description.links), strict=True))
    for joint in reversed(outward):
        rotation, position, H = _pose_at_random(joint, generator)
        P = articulated[joint.child]
        if len(H):
            armature = np.broadcast_to(np.asarray(joint.armature, dtype=float), (len(H),))
            D = H @ P @ H.T + np.diag(armature)
            # The largest value that D could take for this P, whatever the direction of the axes.
            angular, linear = np.linalg.norm(H[:, :3], axis=1), np.linalg.norm(H[:, 3:], axis=1)
            scale = np.linalg.norm(P[:3, :3]) * angular**2 + np.linalg.norm(P[3:, 3:]) * linear**2 + armature
            root = np.sqrt(np.where(scale > 0, scale, 1.0))
            if np.abs(np.linalg.eigvalsh(D / np.outer(root, root))).min() > _SINGULAR_TOLERANCE:
                size = np.sqrt(np.abs(np.diag(P)))
                P = P - P @ H.T @ np.linalg.solve(D, H @ P)
                # What cancelled must not pass for inertia further inward.
                P = np.where(np.abs(P) > 1e-13 * np.outer(size, size), P, 0.0)
            else:
                coupled[leaders[joint.name]] -= 1
                if coupled[leaders[joint.name]] == 0:
                    raise ModelError(_singular_message(description, joint, outward))
        X = _velocity_transform(rotation, position)
        articulated[joint.parent] = articulated[joint.parent] + X.T @ P @ X


def _singular_message(
    description: RobotDescription, joint: JointDescription, outward: Sequence[JointDescription]
) -> str:
    beyond = {joint.child}
    for other in outward:
        if other.parent in beyond:
            beyond.add(other.child)
    names = [repr(link.name) for link in description.links if link.name in beyond]
    if all(link.mass == 0 and not np.any(link.inertia) for link in description.links if link.name in beyond):
        fault = f"moves only links without mass and inertia ({abbreviated(names)})"
    else:
        fault = (
            f"can move without moving any inertia (it carries {abbreviated(names)}: mass on the axis only, or another "
            "joint beyond massless links undoes its motion)"
        )
    return (
        f"{description.source}: joint {joint.name!r} {fault}, so the mass matrix would be singular. "
        "Give a link mass and inertia, give the joint an armature, or make it fixed."
    )


def _pose_at_random(
    joint: JointDescription, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The child link's pose in its parent at a random q, and H (nv, 6) in the child's axes there."""
    kind = JOINT_KINDS[joint.kind]
    q = generator.uniform(0.3, 1.2, kind.nq)
    if kind.quaternion is not None:
        q[kind.quaternion] /= np.linalg.norm(q[kind.quaternion])
    turn, shift, H = on_host(kind, joint.axis, joint.axis2, joint.pitch, q)
    rotation = np.asarray(joint.rotation, dtype=float)
    return rotation @ turn, joint.position + rotation @ shift, H


def _velocity_transform(rotation: np.ndarray, position: np.ndarray) -> np.ndarray:
    """(6, 6): spatial velocity at a frame's origin to that at another, placed by `rotation` and `position` in it."""
    E = np.kron(np.eye(2), rotation.T)
    return E @ pairs.phi(position).T


def _spatial_inertias(links: Sequence[LinkDescription]) -> np.ndarray:
    """(n, 6, 6), about the links' origins."""
    mass, com, inertia = (
        np.array([getattr(link, what) for link in links], float) for what in ("mass", "com", "inertia")
    )
    return rigid_inertia(np.eye(3), mass, com, inertia).spatial().matrix()
