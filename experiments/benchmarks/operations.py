"""What each operation takes, and the part of its answer that all coordinates of a base share. No JAX needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ARGUMENTS = {  # of each operation
    "inverse_dynamics": ("q", "v", "a"),
    "forward_dynamics": ("q", "v", "tau"),
    "mass_matrix": ("q",),
    "linearization": ("q", "v", "tau"),
    "perturbation": ("q", "v", "tau", "a"),  # of the accelerations, along (dq, dv, dtau) = (v, a, tau)
    "gradient": ("q", "v", "tau"),
    "rollout": ("q", "v"),
    "scan": ("q", "v"),
}


def joint_part(operation, result, base_q: int, base_v: int, ours: Sequence[str], theirs: Sequence[str]) -> np.ndarray:
    """What concerns joints alone, in the file's order: the same in all coordinates of the base. Batch first.

    Shapes: (batch, n); mass matrix (batch, n, n); linearization (batch, 3, n, n); gradient (batch, 3, n).
    """
    order = np.array([list(theirs).index(name) for name in ours], int)
    q, v = base_q + order, base_v + order
    if operation in ("forward_dynamics", "inverse_dynamics", "perturbation"):
        return result[:, v]
    if operation == "mass_matrix":
        return result[:, v][:, :, v]
    if operation in ("rollout", "scan"):
        return result[:, q]
    # By q there is a column for each entry of q (jacfwd, grad), or for each of v (along tangent vectors).
    n_q = base_q + len(theirs)
    by_q = q if result[0].shape[-1] == n_q else v
    if operation == "gradient":
        return np.stack([x[:, index] for x, index in zip(result, (by_q, v, v), strict=True)], axis=1)
    columns = [x[:, v][:, :, index] for x, index in zip(result, (by_q, v, v), strict=True)]
    return np.stack(columns, axis=1)
