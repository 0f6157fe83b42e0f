"""States in the coordinates of each family of libraries, in NumPy.

| family | q of the base | v of the base |
| --- | --- | --- |
| `body` (jaxsoa) | quaternion w x y z, position | angular, linear; body axes |
| `pinocchio` | position, quaternion x y z w | linear, angular; body axes |
| `mujoco` (MJX, Brax, frax) | position, quaternion w x y z | linear in world axes, angular in body axes |
| `mixed` (adam, JaxSim) | position, quaternion w x y z | linear, angular; world axes |

Accelerations are the time derivatives of the components of v.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FAMILIES = ("body", "pinocchio", "mujoco", "mixed")


def arrange(
    states: dict[str, np.ndarray], family: str, floating: bool, ours: Sequence[str], theirs: Sequence[str]
) -> dict[str, np.ndarray]:
    """q, v, a and tau (batch, ...) in a family's coordinates, with the joints in the order of the names `theirs`."""
    order = [list(ours).index(name) for name in theirs]
    joints = {key: states[key][:, order] for key in ("q", "v", "a", "tau")}
    if not floating:
        return joints
    base = _base(states, family)
    return {key: np.concatenate([base[key], joints[key]], axis=1) for key in joints}


def _base(states: dict[str, np.ndarray], family: str) -> dict[str, np.ndarray]:
    quaternion, position = states["quaternion"], states["position"]
    w, v, dw, dv = (states[key] for key in ("angular", "linear", "angular_rate", "linear_rate"))
    tau = np.zeros((len(w), 6))
    if family == "body":
        pairs = (quaternion, position), (w, v), (dw, dv)
    elif family == "pinocchio":
        pairs = (position, np.roll(quaternion, -1, axis=1)), (v, w), (dv, dw)
    else:
        R = rotation(quaternion)
        world_v = np.einsum("bij,bj->bi", R, v)
        world_dv = np.einsum("bij,bj->bi", R, dv + np.cross(w, v))  # d/dt (R v) = R (dv + w x v)
        if family == "mixed":
            w, dw = np.einsum("bij,bj->bi", R, w), np.einsum("bij,bj->bi", R, dw)  # R w x w vanishes
        pairs = (position, quaternion), (world_v, w), (world_dv, dw)
    q, v, a = (np.concatenate(pair, axis=1) for pair in pairs)
    return {"q": q, "v": v, "a": a, "tau": tau}


def rotation(quaternion: np.ndarray) -> np.ndarray:
    """Matrices (batch, 3, 3) of unit quaternions w, x, y, z."""
    w, x, y, z = quaternion.T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0)
