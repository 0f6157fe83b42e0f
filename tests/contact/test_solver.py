"""The solver by itself: hard random problems, judged by the law's own conditions in NumPy."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxsoa import contact

C = 4


def _skew(a):
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


def _problem(seed: int):
    """(normals, friction, G, g): a box thrown on four corners (G of rank six), or a mechanism of scattered masses."""
    rng = np.random.default_rng(seed)
    if seed % 2:
        Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        points = np.array([[x, y, -0.05] for x in (-0.1, 0.1) for y in (-0.1, 0.1)]) @ Q.T
        J = np.concatenate([np.concatenate([-_skew(p), np.eye(3)], axis=1) for p in points])
        compliance = np.diag(np.r_[1 / np.array([0.00417, 0.00417, 0.00667]), 1, 1, 1])
        compliance[:3, :3] = Q @ compliance[:3, :3] @ Q.T
        v = np.r_[5 * rng.normal(size=3), rng.normal(size=2), -1] * 10 ** rng.uniform(-2, 0.5)
        normals, g = np.tile([0.0, 0, 1], (C, 1)), J @ v
        return normals, np.full(C, rng.uniform(0.1, 1.2)), J @ compliance @ J.T, g
    J = rng.normal(size=(3 * C, 9)) * 10 ** rng.uniform(-0.5, 0.5, size=9)
    normals = rng.normal(size=(C, 3))
    normals /= np.linalg.norm(normals, axis=1)[:, None]
    return normals, rng.uniform(0, 1.5, C), J @ J.T, J @ rng.normal(size=9)


def _stack(seed: int):
    """The same of a block of 1 kg on the ground, tossed about with one of 1,000 kg on it: a contact's mass in the
    mean is 1 kg everywhere, that of what both press down on is a thousand times more."""
    rng = np.random.default_rng(seed)
    inverse = [np.diag(np.r_[12 / np.array([0.05, 0.05, 0.08]), 1, 1, 1]) / mass for mass in (1.0, 1000.0)]
    corners = np.array([[x, y, -0.05] for x in (-0.1, 0.1) for y in (-0.1, 0.1)])
    lower, upper = (
        np.concatenate([np.concatenate([-_skew(p), np.eye(3)], axis=1) for p in corners + np.array([0, 0, up])])
        for up in (0, 0.1)
    )
    J = np.block([[lower, np.zeros((12, 6))], [-upper, lower]])
    M_inverse = np.block([[inverse[0], np.zeros((6, 6))], [np.zeros((6, 6)), inverse[1]]])
    v = rng.normal(size=12) * np.tile([0.1] * 3 + [0.5] * 3, 2) * (1, 0.1)[seed % 2]
    v[[5, 11]] -= 0.00981
    return np.tile([0.0, 0, 1], (8, 1)), np.full(8, 0.5), J @ M_inverse @ J.T, J @ v


def _modes(law: str, n, mu, G, g, impulse, rounding: float = 1.0) -> set[str]:
    """What the contacts do, after the law's conditions have been checked."""
    modes = set()
    sigma, impulse = (G @ impulse + g).reshape(-1, 3), impulse.reshape(-1, 3)
    size = max(np.abs(g).max() / np.diag(G).mean(), np.abs(impulse).max(), 1e-3)
    sliding = [np.linalg.norm(s - (s @ d) * d) for s, d in zip(sigma, n, strict=True)]
    for x, s, d, m, slip in zip(impulse, sigma, n, mu, sliding, strict=True):
        pressed, opens = x @ d, s @ d + (m * slip if law == "coulomb" else 0)
        assert np.linalg.norm(x - pressed * d) <= m * pressed + 1e-12 * rounding * size  # in the cone
        assert opens >= m * slip - 1e-8 * rounding  # in the dual cone
        assert abs(x @ s + (opens - s @ d) * pressed) < 1e-7 * rounding * size * max(
            np.abs(g).max(), 1
        )  # perpendicular
        modes.add("breaks" if pressed < 1e-12 * rounding * size else "slides" if slip > 1e-6 * rounding else "sticks")
    return modes


@pytest.mark.parametrize("law", ["coulomb", "convex"])
def test_hard_problems_are_solved_and_the_law_holds(law):
    problems = [np.stack(part) for part in zip(*(_problem(seed) for seed in range(40)), strict=True)]
    run = jax.jit(jax.vmap(lambda n, mu, G, g: contact.solve(contact.Cones(n, mu, law=law), G, g)))
    found = run(*problems)
    assert float(found.residual.max()) < 1e-9
    solved = zip(*problems, np.asarray(found.impulse), strict=True)
    assert set().union(*(_modes(law, *one) for one in solved)) == {"breaks", "slides", "sticks"}


@pytest.mark.slow
@pytest.mark.parametrize("law", ["coulomb", "convex"])
def test_moving_stacks_of_a_thousand_to_one_are_solved(law):
    problems = [np.stack(part) for part in zip(*(_stack(seed) for seed in range(64)), strict=True)]
    one_by_one = lambda x: jax.lax.map(lambda x: contact.solve(contact.Cones(x[0], x[1], law=law), *x[2:]), x)  # noqa: E731
    found = jax.jit(one_by_one)(problems)
    assert float(found.residual.max()) < 1e-9
    solved = zip(*problems, np.asarray(found.impulse), strict=True)
    assert set().union(*(_modes(law, *one) for one in solved)) == {"breaks", "slides", "sticks"}
    found = jax.jit(one_by_one)([x.astype(np.float32) for x in problems])
    # Impulses of 500 N s are known to 3e-5 N s, velocities of 1 kg to that in m/s, and rows sum up some of them.
    assert found.impulse.dtype == np.float32 and float(found.residual.max()) < 1e-3


def test_what_is_not_solved_says_so_and_what_is_free_costs_nothing():
    normals, mu, G, g = _problem(1)
    hasty = contact.solve(contact.Cones(normals, mu), G, g, settings=contact.Settings(1, 1, 0, 0))
    assert float(hasty.residual) > 1e-6
    free = contact.solve(contact.Cones(normals, mu), G, np.tile([0, 0, 1.0], C))
    assert not np.asarray(free.impulse).any() and int(free.iterations) == 0
