"""Random trees, for tests and for the curious."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.model.assemble import assemble
from jaxsoa.model.description import JointDescription, LinkDescription, RobotDescription
from jaxsoa.model.joints import JOINT_KINDS
from jaxsoa.model.multibody import Multibody
from jaxsoa.models._parts import (
    require_links as _require_links,
)

_Column = Sequence[float] | np.ndarray


TreeShape = Literal["random", "chain", "star"]


def random_tree(
    key: Any,
    n: int,
    kinds: Sequence[str] | None = None,
    *,
    shape: TreeShape = "random",
    floating_base: bool = False,
    armature: bool = False,
    damping: bool = False,
    friction: bool = False,
) -> Multibody:
    """A random tree of n moving links: random topology, joints, placements and physical inertias.

    - `key`: a JAX random key or an integer; the same key gives the same robot.
    - `kinds`: the joint kinds to draw from (default: every kind that moves). Each of them occurs when n is at least
      their number, and none much more often than another.
    - `shape`: "random" hangs each link on the base or any earlier link, "chain" on the last one, "star" on the base.
    - `floating_base`: the base is itself a moving link, on a free joint; it is one of the n.
    - `armature`, `damping`, `friction`: whether the joints have random positive ones.

    Runs on the host: it cannot be traced, since the topology it draws is static.

    >>> print(soa.models.random_tree(0, 5, floating_base=True).joint_names[0])
    floating_base
    """
    _require_links("random_tree", n)
    description = _describe_random_tree(
        key, n - floating_base, kinds, shape=shape, armature=armature, damping=damping, friction=friction
    )
    return assemble(description, floating_base=floating_base)


def _describe_random_tree(
    key: Any,
    n: int,
    kinds: Sequence[str] | None = None,
    *,
    shape: TreeShape = "random",
    armature: bool = False,
    damping: bool = False,
    friction: bool = False,
) -> RobotDescription:
    moving = {name: joint for name, joint in JOINT_KINDS.items() if joint.nv > 0}
    kinds = tuple(moving) if kinds is None else tuple(kinds)
    unknown = [kind for kind in kinds if kind not in moving]
    if unknown or not kinds:
        raise ValueError(f"random_tree: kinds must be some of {', '.join(moving)}; got {list(kinds)}.")
    if shape not in ("random", "chain", "star"):
        raise ValueError(f'random_tree: shape must be "random", "chain" or "star"; got {shape!r}.')

    rng = _host_generator(key)
    # Whole rounds of all kinds, cut to n after shuffling each round: every kind occurs as soon as there is room.
    rounds = -(-n // len(kinds))
    drawn = [kind for _ in range(rounds) for kind in rng.permutation(kinds)][:n]

    links, joints = [_random_link(rng, "base")], []
    for k, kind in enumerate(drawn, start=1):
        parent = {"random": int(rng.integers(k)), "chain": k - 1, "star": 0}[shape]
        axes = _random_rotation(rng)
        joint = moving[kind]
        joints.append(
            JointDescription(
                f"joint{k}",
                str(kind),
                links[parent].name,
                f"link{k}",
                rotation=_random_rotation(rng),
                position=rng.normal(scale=0.3, size=3),
                axis=axes[0],
                axis2=axes[1],
                pitch=float(rng.uniform(0.05, 0.3)) if joint.reads_pitch else 0.0,
                armature=rng.uniform(0.01, 0.2, joint.nv).tolist() if armature else 0.0,
                damping=rng.uniform(0.01, 0.5, joint.nv).tolist() if damping else 0.0,
                friction=rng.uniform(0.01, 0.5, joint.nv).tolist() if friction else 0.0,
            )
        )
        links.append(_random_link(rng, f"link{k}"))
    return RobotDescription("random_tree", tuple(links), tuple(joints), source="jaxsoa.models.random_tree")


def _host_generator(key: Any) -> np.random.Generator:
    """A NumPy generator seeded by an integer or by the bits of a JAX key (of the new or the old style)."""
    if isinstance(key, int | np.integer):
        return np.random.default_rng(int(key))
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    return np.random.default_rng(np.asarray(key).ravel().tolist())


def _random_rotation(rng: np.random.Generator) -> np.ndarray:
    orthogonal = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return orthogonal * np.sign(np.linalg.det(orthogonal))


def _random_link(rng: np.random.Generator, name: str) -> LinkDescription:
    """A solid body of random mass, extent and orientation.

    Drawing the second moments of the mass distribution, not the inertia, is what makes every draw physical.
    """
    mass = float(rng.uniform(0.5, 2.0))
    axes = _random_rotation(rng)
    second_moments = mass * axes @ np.diag(rng.uniform(0.05, 0.25, 3) ** 2) @ axes.T
    inertia = np.trace(second_moments) * np.eye(3) - second_moments
    return LinkDescription(name, mass, rng.normal(scale=0.15, size=3), inertia)
