"""What many tests need: comparison relative to the size of the whole answer, and random states."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa


def relative_error(actual, expected, floor: float = 1e-3) -> float:
    """Largest deviation over the largest entry of the expected array (at least `floor`, against division by zero)."""
    actual, expected = np.asarray(actual, float), np.asarray(expected, float)
    assert actual.shape == expected.shape, f"shapes {actual.shape} and {expected.shape} differ"
    if not np.isfinite(actual).all():
        return np.inf
    return float(np.abs(actual - expected).max(initial=0.0) / max(np.abs(expected).max(initial=0.0), floor))


def assert_close(actual, expected, tolerance: float = 1e-10, what: str = "") -> None:
    error = relative_error(actual, expected)
    assert error <= tolerance, f"{what}: relative error {error:.2e}, allowed {tolerance:.0e}"


def differences(function, directions, step: float = 2e-4):
    """Derivatives at zero along each direction, of fourth order; the function is traced once."""
    moves = jnp.concatenate([k * step * directions for k in (1, -1, 2, -2)])
    values = jax.lax.map(function, moves)

    def slope(x):
        near, back, far, far_back = jnp.split(x, 4)
        return (8 * (near - back) - (far - far_back)) / (12 * step)

    return jax.tree.map(slope, values)


def random_state(robot: soa.Multibody, seed: int, *, speed: float = 1.0):
    """q, v, a, f_ext: any configuration, unit normal velocities, accelerations and forces."""
    rng = np.random.default_rng(seed)
    q = robot.random(int(rng.integers(2**31)))
    v, a = speed * rng.normal(size=robot.nv), rng.normal(size=robot.nv)
    return q, jnp.asarray(v), jnp.asarray(a), jnp.asarray(rng.normal(size=(robot.n_links, 6)))


def random_states(robot: soa.Multibody, seed: int, count: int):
    """The same, stacked `count` times along a leading axis."""
    states = [random_state(robot, seed + k) for k in range(count)]
    return tuple(jnp.stack(parts) for parts in zip(*states, strict=True))
