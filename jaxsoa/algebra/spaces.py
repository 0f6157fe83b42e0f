"""The spaces that operators act between, and the layout of their vectors.

A vector of *joint* space has nv entries, of *link* space 6 per link (angular first), of *tip* space 6 per frame. Inside
an evaluation a joint vector is laid out per link as (n_links, r), r the most degrees of freedom of any joint, padded
with zeros: so a sweep can slice every space link by link. Where r = 1 the axis is left out, because under `jax.vmap` an
axis of length one costs transpositions; `with_degrees` puts it back for one link.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.model.topology import Topology

SpaceKind = Literal["joint", "link", "tip", "other"]


@dataclasses.dataclass(frozen=True)
class Space:
    """What an operator maps from or to. Spaces are equal when kind, robot structure and labels are."""

    kind: SpaceKind
    size: int
    topology: Topology | None = None
    labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "other":
            return f"space {self.labels[0]!r} ({self.size})"
        name = "" if self.topology is None else f" of robot {self.topology.name!r}"
        frames = f" [{', '.join(self.labels)}]" if self.labels else ""
        return f"{self.kind} space{frames}{name} ({self.size})"

    @property
    def per_link(self) -> bool:
        """Whether its vectors are laid out link by link, so that sweeps can carry them."""
        return self.kind in ("joint", "link")


def joint_space(topology: Topology) -> Space:
    return Space("joint", topology.nv, topology)


def link_space(topology: Topology) -> Space:
    return Space("link", 6 * topology.n_links, topology)


def tip_space(topology: Topology, frames: tuple[str, ...]) -> Space:
    return Space("tip", 6 * len(frames), topology, frames)


UNIT = Space("other", 1, None, ("numbers",))
"""The numbers: a vector x is the operator from here that multiplies x by a number."""


@cache
def joint_layout(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """(index (n, r) into v, mask (n, r)); padding points at 0 and is masked."""
    width = max(joint.nv for joint in topology.joints)
    index = np.zeros((topology.n_links, width), int)
    mask = np.zeros((topology.n_links, width), bool)
    for link, s in enumerate(topology.v_slices):
        index[link, : s.stop - s.start] = np.arange(s.start, s.stop)
        mask[link, : s.stop - s.start] = True
    return index, mask


@cache
def _joint_positions(topology: Topology) -> np.ndarray:
    """(nv,) where each entry of v stands in the flattened (n, r) layout."""
    _, mask = joint_layout(topology)
    return np.flatnonzero(mask.ravel())


def per_dof_to_links(topology: Topology, x: Array) -> Array:
    """(nv, ...) to (n, r, ...), zeros on padding; as it is, (n, ...), where every joint has one degree of freedom."""
    if topology.single_dof:
        return x
    index, mask = joint_layout(topology)
    return jnp.where(mask.reshape(*mask.shape, *(1,) * (x.ndim - 1)), x[index], 0)


def compact(space: Space) -> bool:
    """Whether the space's vectors are laid out without the axis of degrees of freedom."""
    return space.kind == "joint" and space.topology is not None and space.topology.single_dof


def with_degrees(x: Array) -> Array:
    """One link's part of a vector, as a vector in any case."""
    return x[None] if x.ndim == 0 else x


def pack(space: Space, x: Array) -> Array:
    """A flat vector in the layout that evaluation works on."""
    if space.kind == "joint":
        assert space.topology is not None
        return per_dof_to_links(space.topology, x)
    return x.reshape(-1, 6) if space.kind in ("link", "tip") else x


def unpack(space: Space, x: Array) -> Array:
    """The reverse of `pack`."""
    if space.kind == "joint":
        assert space.topology is not None
        flat = x.reshape(-1)
        return flat if space.topology.single_dof else flat[_joint_positions(space.topology)]
    return x.reshape(-1)
