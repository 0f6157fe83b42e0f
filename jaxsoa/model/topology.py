"""The static side of a model: which link hangs on which, by what kind of joint, under what name.

Everything here is hashable, computed once, and shared by all copies of a model, so that `jax.jit` compares two models
by identity in the common case.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from jaxsoa.model.joints import JOINT_KINDS, Joint
from jaxsoa.sweep_plan import SweepPlan


@dataclasses.dataclass(frozen=True)
class JointGroup:
    """All joints of one kind, so that each kind is evaluated once, vectorized."""

    joint: Joint
    links: np.ndarray  # (n,)
    q_index: np.ndarray  # (n, nq)
    v_index: np.ndarray  # (n, nv)


class Topology:
    """Tree, joint kinds and names. Links are numbered base to tip, parents before children."""

    def __init__(
        self,
        name: str,
        parents: Sequence[int],
        kinds: Sequence[str],
        link_names: Sequence[str],
        joint_names: Sequence[str],
        frame_names: Sequence[str],
        frame_links: Sequence[int],
        mimics: Sequence[tuple[str, str, float, float]] = (),
    ):
        self.name = name
        self.parents = tuple(int(p) for p in parents)
        self.kinds = tuple(kinds)
        self.link_names = tuple(link_names)
        self.joint_names = tuple(joint_names)
        self.frame_names = tuple(frame_names)
        self.frame_links = tuple(int(k) for k in frame_links)
        self.mimics = tuple(mimics)  # (joint, target joint, multiplier, offset)
        self._key = (
            self.name,
            self.parents,
            self.kinds,
            self.link_names,
            self.joint_names,
            self.frame_names,
            self.frame_links,
            self.mimics,
        )
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Topology) and self._hash == other._hash and self._key == other._key)

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, {self.n_links} links)"

    @property
    def n_links(self) -> int:
        return len(self.parents)

    @cached_property
    def joints(self) -> tuple[Joint, ...]:
        return tuple(JOINT_KINDS[kind] for kind in self.kinds)

    @cached_property
    def q_slices(self) -> tuple[slice, ...]:
        ends = np.cumsum([0, *(joint.nq for joint in self.joints)]).tolist()
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends))

    @cached_property
    def v_slices(self) -> tuple[slice, ...]:
        ends = np.cumsum([0, *(joint.nv for joint in self.joints)]).tolist()
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends))

    @property
    def nq(self) -> int:
        return self.q_slices[-1].stop if self.n_links else 0

    @property
    def nv(self) -> int:
        return self.v_slices[-1].stop if self.n_links else 0

    @cached_property
    def groups(self) -> tuple[JointGroup, ...]:
        """Joints by kind; kinds that move alike, as continuous joints like revolute ones, share a group."""
        members: dict[str, list[int]] = {}
        for link, joint in enumerate(self.joints):
            members.setdefault(joint.motion, []).append(link)
        groups = []
        for kind, links in members.items():
            q_index = np.array([np.arange(self.q_slices[k].start, self.q_slices[k].stop) for k in links])
            v_index = np.array([np.arange(self.v_slices[k].start, self.v_slices[k].stop) for k in links])
            groups.append(JointGroup(JOINT_KINDS[kind], np.array(links), q_index, v_index))
        return tuple(groups)

    @cached_property
    def link_order(self) -> np.ndarray:
        """Where each link stands in the concatenation of the groups."""
        return np.argsort(np.concatenate([group.links for group in self.groups]))

    @cached_property
    def dof_order(self) -> np.ndarray:
        """Where each entry of v stands in the concatenation of the groups."""
        return np.argsort(np.concatenate([group.v_index.ravel() for group in self.groups]))

    @cached_property
    def single_dof(self) -> bool:
        """Whether every joint has one degree of freedom, so that links and degrees of freedom are the same list."""
        return all(joint.nv == 1 for joint in self.joints)

    @cached_property
    def angular_only(self) -> bool:
        """Whether no joint moves its child's origin, so that the linear half of H is zero."""
        return all(joint.angular_only for joint in self.joints)

    # --- the tree of links -------------------------------------------------------------------------------------

    @cached_property
    def link_plan(self) -> SweepPlan:
        return SweepPlan(self.parents)

    @cached_property
    def link_support(self) -> np.ndarray:
        """(n_links, n_links) bool: [k, j] is true where link j is link k or one of its ancestors."""
        support = np.eye(self.n_links, dtype=bool)
        for link, parent in enumerate(self.parents):
            if parent >= 0:
                support[link] |= support[parent]
        return support

    # --- the tree of single degrees of freedom -----------------------------------------------------------------
    # A joint with r degrees of freedom is a chain of r one-degree joints with massless links of no length between
    # them: the measurement updates of a Kalman filter can be done one scalar at a time. So the Riccati sweep only ever
    # divides by numbers, and its D is diagonal (the pivots of the block D), whatever the joints are.

    @cached_property
    def dof_link(self) -> np.ndarray:
        """(nv,) the link that each degree of freedom moves."""
        return np.repeat(np.arange(self.n_links), [joint.nv for joint in self.joints])

    @cached_property
    def dof_is_first(self) -> np.ndarray:
        """(nv,) true for the innermost degree of freedom of a joint."""
        first = np.zeros(self.nv, bool)
        first[[s.start for s in self.v_slices]] = True
        return first

    @cached_property
    def dof_is_last(self) -> np.ndarray:
        """(nv,) true for the outermost one, which carries the link's mass."""
        last = np.zeros(self.nv, bool)
        last[[s.stop - 1 for s in self.v_slices]] = True
        return last

    @cached_property
    def dof_parents(self) -> tuple[int, ...]:
        parents = []
        for link, s in enumerate(self.v_slices):
            parent = self.parents[link]
            parents.append(-1 if parent < 0 else self.v_slices[parent].stop - 1)
            parents.extend(range(s.start, s.stop - 1))
        return tuple(parents)

    @cached_property
    def dof_plan(self) -> SweepPlan:
        return self.link_plan if self.single_dof else SweepPlan(self.dof_parents)

    @cached_property
    def dof_support(self) -> np.ndarray:
        """(nv, nv) bool: [i, j] is true where degree j moves the link of degree i (includes the same joint)."""
        return self.link_support[np.ix_(self.dof_link, self.dof_link)]

    # --- names -------------------------------------------------------------------------------------------------

    def joint_number(self, name: str) -> int:
        return _find(name, self.joint_names, "joint", self.name)

    def link_number(self, name: str) -> int:
        return _find(name, self.link_names, "link", self.name)

    def frame_number(self, name: str) -> int:
        return _find(name, self.frame_names, "frame", self.name)


def _find(name: str, names: Sequence[str], what: str, robot: str) -> int:
    try:
        return names.index(name)
    except ValueError:
        close = difflib.get_close_matches(str(name), names, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(map(repr, close))}?" if close else f"It has {', '.join(names[:20])}."
        raise KeyError(f"Robot {robot!r} has no {what} named {name!r}. {hint}") from None
