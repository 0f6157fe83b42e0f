"""MuJoCo-style equality constraints, as plain data, into loops and couplings.

    connect   two points coincide                   -> `ball`
    weld      two bodies keep their relative pose   -> `weld`
    joint     one joint is a polynomial of another  -> `Coupling`

MuJoCo states most of them relative to the model's reference configuration (qpos0): the second point of a `connect` is
where the anchor is found there, a `weld` without a pose holds the one found there, and the polynomial of a `joint` is
in the deviations from it. MuJoCo's constraints are soft (solref, solimp); these are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from jaxsoa.closed_chain.constraints import Constraint, Coupling, Loop, Relative, ball, weld
from jaxsoa.closed_chain.loops import relative_poses
from jaxsoa.model.description import ModelError
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import rotation


class Equality(NamedTuple):
    """One equality constraint as a file states it; hashable, so that it may be static data of a model.

    kind      first, second                             data
    connect   frames; second None: the base ("world")   anchor (3,) in the first frame's axes; None: origins coincide
    weld      frames; second None: the base ("world")   relpose (7,): position and quaternion (w, x, y, z) of the second
                                                        frame seen from the first; None: the reference's
    joint     joints; second None: lock the first       polycoef (up to 5,): y - y0 = c0 + c1 (x - x0) + ...;
                                                        None: (0, 1)
    """

    kind: str
    first: str
    second: str | None = None
    data: tuple[float, ...] | None = None

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"Equality constraint {self.kind!r} of {self.first!r} and {self.second or 'the base'!r}"

    def numbers(self, sizes: Sequence[int]) -> np.ndarray:
        """`data` as an array of one of the given sizes."""
        data = np.asarray(self.data, float)
        if data.ndim != 1 or len(data) not in sizes or not np.isfinite(data).all():
            wanted = " or ".join(map(str, sizes))
            raise ModelError(f"{self.label}: its data must be {wanted} finite numbers, got {self.data}.")
        return data


def equality_constraints(
    robot: Multibody, equalities: Sequence[Equality | tuple], *, reference: Shaped[Array, " nq"] | None = None
) -> tuple[Constraint, ...]:
    """The loops and couplings that equality constraints ask for, in their order.

    `reference` is the configuration that they are relative to (default `robot.neutral()`): q for MuJoCo's qpos0.
    Hand the result to `loop_forward_dynamics`, `close_loops`, `project`, `embed`.

    >>> (ball,) = soa.closed_chain.equality_constraints(robot, [soa.closed_chain.Equality("connect", "base", "link2")])
    >>> print(ball.frame_b)
    link2
    """
    records = [Equality(*record) for record in equalities]  # pyright: ignore[reportArgumentType]
    q = robot.neutral() if reference is None else robot.check_q(reference)
    for record in records:
        if record.kind not in ("connect", "weld", "joint"):
            raise ModelError(f"{record.label}: unknown kind; there are connect, weld and joint.")
    pairs = tuple(weld(r.first, _frame(robot, r.second)) for r in records if r.kind != "joint")
    found = iter(jax.jit(relative_poses)(robot, q, pairs))
    return tuple(
        _coupling(robot, r, np.asarray(q)) if r.kind == "joint" else _loop(robot, r, next(found)) for r in records
    )


def _frame(robot: Multibody, name: str | None) -> str:
    return robot.frame_names[0] if name is None else name


def _loop(robot: Multibody, record: Equality, at_reference: Relative) -> Loop:
    second = _frame(robot, record.second)
    R, p = np.asarray(at_reference.rotation), np.asarray(at_reference.position)
    if record.kind == "connect":
        if record.data is None:
            return ball(record.first, second)
        anchor = record.numbers((3,))
        return ball(record.first, second, point_a=anchor, point_b=R.T @ (anchor - p))
    if record.data is not None:
        pose = record.numbers((7,))
        if not pose[3:].any():
            raise ModelError(f"{record.label}: the quaternion of its relative pose is zero.")
        p, R = pose[:3], rotation.from_quaternion(jnp.asarray(pose[3:] / np.linalg.norm(pose[3:])))
    return weld(record.first, second, rotation=R, position=p)


def _coupling(robot: Multibody, record: Equality, q: np.ndarray) -> Coupling:
    y0 = q[robot.q_index(record.first)]
    x0 = q[robot.q_index(record.second or record.first)]
    if len(y0) != 1 or len(x0) != 1:
        raise ModelError(f"{record.label}: both joints must have one degree of freedom.")
    coefficients = np.array([0.0, 1.0]) if record.data is None else record.numbers((1, 2, 3, 4, 5))
    # From powers of x - x0 to powers of x.
    shifted = np.polynomial.Polynomial(coefficients)(np.polynomial.Polynomial([-x0[0], 1.0])).coef
    offset, ratio, *higher = *shifted, *np.zeros(max(0, 2 - len(shifted)))
    if record.second is None:
        return Coupling(record.first, None, offset=y0[0] + coefficients[0])
    while higher and higher[-1] == 0:
        higher.pop()
    return Coupling(record.first, record.second, ratio, y0[0] + offset, higher)
