"""Constrained trajectories against SciPy's SLSQP, with multipliers, infeasible problems and warm starts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import jaxsoa as soa
from jaxsoa import optimize
from jaxsoa.optimize import Equality, Inequality, LeastSquares

STEPS, DT = 12, 0.1


def point_problem(**options):
    """A point in a plane with a drag that grows with its speed, driven by forces; state (x, y, x', y')."""

    def step(state, control):
        p, v = state[:2], state[2:]
        v = v + DT * (control - 0.3 * v * jnp.sqrt(1 + v @ v))
        return jnp.concatenate([p + DT * v, v])

    running = LeastSquares(lambda x, u: jnp.sqrt(0.1) * u)
    return optimize.step_problem(step, controls=2, horizon=STEPS, dt=DT, running_cost=running, **options)


START, GOAL = jnp.array([0.0, 0.0, 0.0, 0.0]), jnp.array([1.0, 0.0])
END = Equality(lambda x: jnp.concatenate([x[:2] - GOAL, x[2:]]), "arrive")
OBSTACLE = Inequality(lambda x, u: jnp.atleast_1d(0.3 - jnp.sqrt((x[0] - 0.5) ** 2 + (x[1] + 0.05) ** 2)), "ball")
SLOW = Inequality(lambda x, u: jnp.stack([x[2] - 1.4, -x[2] - 1.4]), "speed")
GUESS = jnp.stack([jnp.linspace(2, -2, STEPS), jnp.linspace(1.5, -1.5, STEPS)], axis=1)


def slsqp(problem, path, final):
    def states(u):
        return optimize.simulate_controls(problem, START, u.reshape(STEPS, 2))

    def cost(u):
        return optimize.total_cost(problem, states(u), u.reshape(STEPS, 2))

    def values(u, kind):
        x = states(u)
        parts = [jax.vmap(c.function)(x[:-1], u.reshape(STEPS, 2)).ravel() for c in path if isinstance(c, kind)]
        parts += [c.function(x[-1]) for c in final if isinstance(c, kind)]
        return jnp.concatenate([*parts, jnp.zeros(0)])

    equal, below = (lambda u: values(u, Equality)), (lambda u: -values(u, Inequality))
    rows = [
        {"type": kind, "fun": jax.jit(f), "jac": jax.jit(jax.jacfwd(f))} for kind, f in (("eq", equal), ("ineq", below))
    ]
    value = jax.jit(jax.value_and_grad(cost))
    found = scipy.optimize.minimize(
        lambda u: tuple(np.asarray(x) for x in value(u)), np.asarray(GUESS).ravel(), jac=True, method="SLSQP",
        constraints=rows, options={"maxiter": 300, "ftol": 1e-13},
    )  # fmt: skip
    assert found.success
    return found


def test_a_detour_round_an_obstacle_equals_scipys():
    problem, path = point_problem(), (OBSTACLE, SLOW)
    found = jax.jit(lambda x, u: optimize.constrained(problem, x, u, path=path, final=END))(START, GUESS)
    assert bool(found.converged) and found.violation < 1e-6
    np.testing.assert_allclose(found.states[-1], [1, 0, 0, 0], atol=1e-6)
    theirs = slsqp(problem, path, (END,))
    np.testing.assert_allclose(found.cost, theirs.fun, rtol=1e-5)
    np.testing.assert_allclose(np.ravel(found.controls), theirs.x, atol=2e-3)  # SLSQP stops by its own tolerance
    # Stationary with the multipliers returned: gradient of cost + y . c vanishes; y >= 0, and zero where inactive.
    y = found.multipliers

    def lagrangian(u):
        x = optimize.simulate_controls(problem, START, u)
        on_path = [jax.vmap(c.function)(x[:-1], u) for c in path]
        total = optimize.total_cost(problem, x, u) + y.final[0] @ END.function(x[-1])
        return total + DT * sum(jnp.sum(a * b) for a, b in zip(y.path, on_path, strict=True))

    gradient = jax.jit(jax.grad(lagrangian))(found.controls)
    np.testing.assert_allclose(gradient, 0, atol=1e-4)
    assert all((np.asarray(a) >= 0).all() for a in y.path) and float(y.path[0].max()) > 1e-2
    clear = np.asarray(jax.vmap(OBSTACLE.function)(found.states[:-1], found.controls)) < -1e-3
    np.testing.assert_allclose(np.asarray(y.path[0])[clear], 0, atol=1e-9)


def test_what_cannot_be_is_reported_with_its_name():
    problem = point_problem(limits=1.0)  # too weak to arrive
    path = (SLOW,)
    solve = jax.jit(lambda x: optimize.constrained(problem, x, path=path, final=END, max_rounds=12, max_iterations=20))
    found = solve(START)
    assert not bool(found.converged) and found.violation > 0.1
    assert np.isfinite(found.controls).all() and np.isfinite(found.cost)
    assert float(found.violations[0]) < 1e-3 < 0.1 < float(found.violations[1])  # it is the end that is missed
    assert (np.abs(found.controls) <= 1).all()
    assert optimize.violated(found, path, END) == {"arrive": float(found.violations[1])}
    again = optimize.violated(found, (END,), (END,), tolerance=-1.0)
    assert list(again) == ["arrive", "arrive (2)"]
    with pytest.raises(ValueError, match="there are 1 constraints"):
        optimize.violated(found, path)


def test_warm_starts_take_fewer_iterations_and_problems_are_batched():
    problem = point_problem()

    def solve(x, guess):
        return optimize.constrained(problem, x, guess, path=(OBSTACLE,), final=END)

    starts = START + jnp.array([[0, 0, 0, 0], [0.02, 0.01, 0, 0], [-0.05, 0.03, 0.1, 0.0]])
    found = jax.jit(jax.vmap(lambda x: solve(x, GUESS)))(starts)
    assert bool(found.converged.all()) and float(found.violation.max()) < 1e-6
    one = jax.tree.map(lambda x: x[0], found)
    again = jax.jit(solve)(starts[1], one)
    assert bool(again.converged) and int(again.iterations) < int(found.iterations[1])
    np.testing.assert_allclose(again.cost, found.cost[1], rtol=1e-6)
    moved = optimize.shifted(one, 2)
    np.testing.assert_array_equal(moved.controls[:-2], one.controls[2:])


@pytest.mark.slow
def test_the_solution_is_differentiated_by_its_parameters():
    def make(p):
        problem = point_problem(limits=(-4.0, 4.0))
        ball = Inequality(lambda x, u: jnp.atleast_1d(p["radius"] - jnp.sqrt((x[0] - 0.5) ** 2 + (x[1] + 0.05) ** 2)))
        arrive = Equality(lambda x: jnp.concatenate([x[:2] - p["goal"], x[2:]]))
        return optimize.Setup(problem, p["start"], (ball,), (arrive,))

    def solve(p):
        found = optimize.optimal_trajectory(make, p, GUESS, tolerance=1e-9, inner_tolerance=1e-14, second_order=True)
        return found.controls, found.cost

    p = {"radius": jnp.array(0.3), "goal": GOAL, "start": START}
    value, h = jax.jit(solve), 1e-3
    derivatives, slope = jax.jit(jax.jacfwd(solve))(p)
    for name, index in (("radius", ()), ("goal", (0,)), ("start", (3,))):
        e = jnp.zeros_like(p[name]).at[index].set(h)
        ends = [value(p | {name: p[name] + sign * e}) for sign in (1, -1)]
        u, cost = jax.tree.map(lambda a, b: (a - b) / (2 * h), *ends)
        # A minimum is known to the square root of rounding: 1e-7 over h, and h squared of the difference itself.
        np.testing.assert_allclose(derivatives[name][(..., *index)], u, atol=2e-4 * (1 + np.abs(u).max()))
        np.testing.assert_allclose(slope[name][index], cost, rtol=1e-4)
    reverse = jax.jit(jax.grad(lambda p: solve(p)[1]))(p)
    np.testing.assert_allclose(reverse["goal"], slope["goal"], rtol=1e-8)


def test_a_free_final_time_equals_scipys():
    """A unit mass from rest to rest over one metre, effort 0.5 u^2 per second and a price of 2 per second."""
    steps = 10

    def step(x, u, p):
        v = x[1] + p[0] / steps * u[0]
        return jnp.stack([x[0] + p[0] / steps * v, v])

    problem = optimize.parametrized_problem(
        step, parameters=1, controls=1, horizon=steps, dt=1 / steps,
        running_cost=LeastSquares(lambda x, u, p: jnp.sqrt(p[0]) * jnp.stack([u[0], 2.0])),
    )  # fmt: skip
    start = optimize.parametrized_start(jnp.zeros(2), jnp.array([2.0]))
    arrive = Equality(lambda x: x.state - jnp.array([1.0, 0.0]))
    positive = Inequality(lambda x: 0.1 - x.parameters)
    guess = jnp.zeros((steps, 2)).at[:, 0].set(jnp.linspace(1, -1, steps))
    solve = jax.jit(lambda x, u: optimize.constrained(problem, x, u, final=(arrive, positive)))
    found = solve(start, guess)

    def end(z):
        x = np.zeros(2)
        for u in z[:-1]:
            v = x[1] + z[-1] / steps * u
            x = np.array([x[0] + z[-1] / steps * v, v])
        return x - [1, 0]

    theirs = scipy.optimize.minimize(
        lambda z: z[-1] / steps * np.sum(0.5 * z[:-1] ** 2 + 2), np.r_[np.linspace(1, -1, steps), 2.0],
        method="SLSQP", constraints={"type": "eq", "fun": end}, options={"ftol": 1e-13, "maxiter": 300},
    )  # fmt: skip
    assert bool(found.converged)
    np.testing.assert_allclose(found.cost, theirs.fun, rtol=1e-6)
    np.testing.assert_allclose(found.states.parameters[-1], theirs.x[-1:], rtol=1e-4)


def test_a_mass_chosen_with_the_trajectory_equals_scipys():
    """A mass pushed against drag over one metre in a second; light is dear, heavy takes force. With DDP's terms."""
    steps, dt = 8, 0.125

    def step(x, u, p):
        v = x[1] + dt * (u[0] - 0.5 * x[1] * jnp.abs(x[1])) / p[0]
        return jnp.stack([x[0] + dt * v, v])

    problem = optimize.parametrized_problem(
        step, parameters=1, controls=1, horizon=steps, dt=dt,
        running_cost=LeastSquares(lambda x, u, p: u), final_cost=lambda x, p: 2 / p[0],
    )  # fmt: skip
    arrive = Equality(lambda x: x.state - jnp.array([1.0, 0.0]))
    positive = Inequality(lambda x: 0.1 - x.parameters)
    start = optimize.parametrized_start(jnp.zeros(2), jnp.array([1.0]))
    guess = jnp.zeros((steps, 2)).at[:, 0].set(jnp.linspace(1, -1, steps))
    solve = jax.jit(lambda x: optimize.constrained(problem, x, guess, final=(arrive, positive), second_order=True))
    found = solve(start)

    def end(z):
        x, v = 0.0, 0.0
        for u in z[:-1]:
            v = v + dt * (u - 0.5 * v * abs(v)) / z[-1]
            x = x + dt * v
        return [x - 1, v]

    theirs = scipy.optimize.minimize(
        lambda z: dt * np.sum(0.5 * z[:-1] ** 2) + 2 / z[-1], np.r_[np.linspace(1, -1, steps), 1.0],
        method="SLSQP", constraints={"type": "eq", "fun": end}, options={"ftol": 1e-14, "maxiter": 300},
    )  # fmt: skip
    assert theirs.success and bool(found.converged)
    np.testing.assert_allclose(found.cost, theirs.fun, rtol=1e-6)
    np.testing.assert_allclose(found.states.parameters[-1], theirs.x[-1:], rtol=1e-4)  # SLSQP's differences


def test_nothing_is_nan_at_the_centre_of_an_obstacle():
    robot = soa.models.pendulum()
    tip = soa.frame_pose(robot, jnp.zeros(1), "tip")[1]
    inside = optimize.clear_of_sphere(robot, "tip", tip, 0.2).function
    value, slope = jax.jit(lambda q: (inside(soa.State(q, q)), jax.jacfwd(lambda q: inside(soa.State(q, q)))(q)))(
        jnp.zeros(1)
    )
    np.testing.assert_allclose(value, [0.2], atol=1e-15)
    assert np.isfinite(slope).all()
    with pytest.raises(ValueError, match=r"world position \(3,\)"):
        optimize.clear_of_sphere(robot, "tip", tip[:2], 0.2)


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, "needs constraints"), ({"path": [lambda x, u: x]}, "Equality or an Inequality"),
     ({"final": Equality(lambda x: x[0])}, "vector of values")],
)  # fmt: skip
def test_what_is_not_a_constraint_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        optimize.constrained(point_problem(), START, **options)
