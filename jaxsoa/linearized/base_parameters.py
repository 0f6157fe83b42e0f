"""Base parameters: which inertial parameters, and which combinations of them, the torques depend on at all.

Many columns of the regressor vanish or are linear combinations of others, whatever the motion. Stacked over enough
random motions its rank is the number of base parameters; an independent choice of columns carries the dependent ones,
so that tau = Y[:, independent] @ (grouping @ pi).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxsoa.linearized.regressor import PARAMETERS, regressor
from jaxsoa.model.multibody import Multibody


class BaseParameters(NamedTuple):
    """`rank` numbers grouping @ pi determine all torques; `independent` are the columns of Y that stand for them."""

    rank: int
    independent: np.ndarray  # (rank,) columns of the regressor
    grouping: np.ndarray  # (rank, 10 n_links)
    unidentifiable: np.ndarray  # columns that vanish: parameters without any effect
    singular_values: np.ndarray

    def describe(self, robot: Multibody, digits: int = 4) -> list[str]:
        """One line per base parameter, for people."""
        names = [f"{p}({link})" for link in robot.link_names for p in PARAMETERS]
        lines = []
        for row in self.grouping:
            terms = [(row[k], names[k]) for k in np.flatnonzero(np.abs(row) > 10.0**-digits)]
            terms.sort(key=lambda term: term[0] != 1)
            line = " ".join(f"{c:+.{digits}g}*{name}" for c, name in terms)
            lines.append(line.replace("+1*", "+").replace("-1*", "-"))
        return [line.removeprefix("+") for line in lines]


def base_parameters(
    robot: Multibody, *, motions: int | None = None, seed: int = 0, tolerance: float = 1e-8
) -> BaseParameters:
    """Rank and grouping of the inertial parameters, from the regressor at random motions (runs on the host).

    `motions` random states (default: enough for four times as many rows as columns); a singular value, or what is
    left of a column, below `tolerance` relative to the largest counts as zero. Needs double precision.

    >>> base = soa.base_parameters(robot)
    >>> print(base.rank)  # of the 20 parameters of two links, so many can be told from torques
    6
    """
    columns = 10 * robot.n_links
    motions = -(-4 * columns // robot.nv) if motions is None else motions
    keys = jax.random.split(jax.random.key(seed), motions)
    v, a = jax.random.normal(jax.random.key(seed + 1), (2, motions, robot.nv), robot.dtype)
    Y = jax.jit(jax.vmap(regressor, in_axes=(None, 0, 0, 0)))(robot, jax.vmap(robot.random)(keys), v, a)
    W = np.asarray(Y, np.float64).reshape(-1, columns)
    norms = np.linalg.norm(W, axis=0)
    vanishing = norms <= tolerance * norms.max()
    scaled = W / np.where(vanishing, 1, norms)
    singular_values = np.linalg.svd(scaled[:, ~vanishing], compute_uv=False)
    rank = int(np.sum(singular_values > tolerance * singular_values[0]))
    # First come, first kept: a column whose remainder after the columns before it vanishes depends on them.
    independent: list[int] = []
    Q = np.zeros((len(W), 0))
    for k in np.flatnonzero(~vanishing):
        rest = scaled[:, k] - Q @ (Q.T @ scaled[:, k])
        rest -= Q @ (Q.T @ rest)
        size = np.linalg.norm(rest)
        if size > np.sqrt(tolerance) and len(independent) < rank:
            independent.append(int(k))
            Q = np.column_stack([Q, rest / size])
    grouping = np.linalg.lstsq(W[:, independent], W, rcond=None)[0]
    grouping[np.abs(grouping) < np.sqrt(tolerance) * 1e-2] = 0
    return BaseParameters(rank, np.array(independent), grouping, np.flatnonzero(vanishing), singular_values)
