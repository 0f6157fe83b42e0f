"""Closed forms of contact mechanics: sliding, sticking, rolling, bouncing, stacking, and their derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_cases import G, about_y, ball, block, bottom, simulate

import jaxsoa as soa
from jaxsoa import contact

DT, STEPS = 1e-3, 420


def _stack(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@pytest.fixture(scope="module")
def blocks():
    """One batch of blocks on planes: name to (q, v, residual, impulses) over time."""
    robot, points = block(), contact.Points(["block"] * 4, bottom())
    cases = {}

    def case(name, angle=0.0, speed=1.0, friction=0.5, up=1.0, shift=(0.0, 0.0, 0.0), lift=0.0):
        """A block on a plane that falls at `angle` along x, sliding downhill; `up` = -1 turns the world over."""
        angle = angle if up > 0 else angle + np.pi
        turn, normal, shift = about_y(angle), np.array([np.sin(angle), 0, np.cos(angle)]), np.asarray(shift)
        ground = contact.Plane(normal, float(normal @ shift))
        scene = contact.Scene(points, ground, friction=jnp.asarray(friction))
        q = np.concatenate([turn, shift + (0.05 + lift) * normal])
        v = np.array([0, 0, 0, speed, 0, 0.0])
        gravity = np.array([0, 0, -up * G])
        cases[name] = (robot.replace(gravity=gravity), scene, jnp.asarray(q), jnp.asarray(v))

    case("flat")
    case("down 20", angle=np.deg2rad(20))
    case("sticks", angle=np.deg2rad(26.5), speed=0.0)
    case("slides", angle=np.deg2rad(26.6), speed=0.0)
    case("upside down", up=-1.0)
    case("far away", shift=(1000.0, -1000.0, 700.0))
    case("falls", lift=10.0)
    case("nan")
    robots, scenes, q, v = _stack(cases.values())
    v = v.at[list(cases).index("nan")].set(jnp.nan)
    run = jax.jit(jax.vmap(lambda robot, scene, q, v: simulate(robot, scene, q, v, DT, STEPS)))
    found = jax.tree.map(np.asarray, run(robots, scenes, q, v))
    return {name: tuple(x[i] for x in found) for i, name in enumerate(cases)}


@pytest.mark.parametrize("name", ["flat", "upside down", "far away"])
def test_a_block_stops_where_friction_stops_it(blocks, name):
    q, v, residual, impulses = blocks[name]
    speed = v[:, 3]
    assert np.argmax(np.abs(speed) < 1e-9) * DT == pytest.approx(1 / (0.5 * G), abs=DT)  # 0.20387 s
    far = 1000 if name == "far away" else 0
    way = np.abs(q[-1, 4] - far)
    # Implicit Euler stops short by v0 h / 2.
    assert way + DT / 2 == pytest.approx(1 / (2 * 0.5 * G), rel=2e-4)  # 0.10194 m
    height = {"flat": 0.05, "upside down": -0.05, "far away": 700.05}[name]
    assert np.abs(q[:, 6] - height).max() < 1e-9
    assert residual.max() < 1e-12
    assert np.abs(impulses[:, :, 2].sum(axis=1)) == pytest.approx(G * DT, rel=1e-9)


def test_down_a_slope_it_slides_farther(blocks):
    q, v, residual, _ = blocks["down 20"]
    down = np.array([np.cos(np.deg2rad(20)), 0, -np.sin(np.deg2rad(20))])
    start = 0.05 * np.array([np.sin(np.deg2rad(20)), 0, np.cos(np.deg2rad(20))])
    way = (q[:, 4:] - start) @ down
    slowing = G * (0.5 * np.cos(np.deg2rad(20)) - np.sin(np.deg2rad(20)))
    assert 1 / (2 * slowing) == pytest.approx(0.39873, abs=1e-5)
    time = STEPS * DT  # not yet at rest: the whole way takes 0.797 s
    assert way[-1] + DT / 2 * (1 - (1 - slowing * time)) == pytest.approx(time - slowing * time**2 / 2, rel=1e-9)
    assert v[-1, 3] == pytest.approx(1 - slowing * time, rel=1e-9)
    assert residual.max() < 1e-12


def test_it_sticks_below_the_friction_angle_and_slides_above(blocks):
    q, v, residual, _ = blocks["sticks"]  # 26.5 degrees; the cone is at 26.565
    assert np.abs(q - q[0]).max() < 1e-12
    assert np.abs(v).max() < 1e-12
    assert residual.max() < 1e-12
    _, v, _, _ = blocks["slides"]  # 26.6
    angle = np.deg2rad(26.6)
    assert v[-1, 3] == pytest.approx(G * (np.sin(angle) - 0.5 * np.cos(angle)) * STEPS * DT, rel=1e-6)


def test_free_fall_and_nan_stay_in_their_elements(blocks):
    _, v, residual, impulses = blocks["falls"]
    assert v[-1, 5] == pytest.approx(-G * STEPS * DT, rel=1e-12)
    assert not impulses.any()
    assert not residual.any()
    assert np.isnan(blocks["nan"][0]).any()
    assert all(np.isfinite(x).all() for name, found in blocks.items() if name != "nan" for x in found)


@pytest.fixture(scope="module")
def balls():
    """One batch of balls: name to (q, v, dq/dz0, residual) over time; the tangent is by the height at the start."""
    robot, points = ball(), contact.Points(["ball"], radii=[0.1])
    steps = 2000
    cases = {}

    def case(name, dt, height, velocity, restitution, friction=0.0, gravity=G):
        # A number just above zero keeps the structure of a scene that may bounce.
        scene = contact.Scene(points, contact.Plane(), friction, restitution or 1e-300)
        q = robot.neutral().at[6].set(0.1 + height)
        v = jnp.zeros(6).at[jnp.array([3, 5])].set(jnp.array(velocity))
        cases[name] = (robot.replace(gravity=np.array([0, 0, -gravity])), scene, q, v, jnp.asarray(dt))

    case("rolls", 1e-4, 0.0, (1.0, 0.0), 0.0, friction=0.2)
    case("bounces", 7e-4, 1.0, (0.0, 0.0), 0.5)
    case("weightless", 1e-3, 1.0, (0.0, -1.0), 1.0, gravity=0.0)
    case("elastic", 5e-4, 1.0, (0.0, 0.0), 1.0)
    case("rests", 1e-3, 0.0, (0.0, 0.0), 0.9)

    def run(robot, scene, q, v, dt):
        dq = jnp.zeros_like(q).at[6].set(1)
        return jax.jvp(lambda q: simulate(robot, scene, q, v, dt, steps)[:3], (q,), (dq,))

    one_by_one = jax.jit(lambda cases: jax.lax.map(lambda case: run(*case), cases))  # compiles faster than a batch
    (q, v, residual), (dq, _, _) = jax.tree.map(np.asarray, one_by_one(_stack(cases.values())))
    return {name: (q[i], v[i], dq[i], residual[i]) for i, name in enumerate(cases)}


@pytest.mark.slow
def test_a_sliding_ball_comes_to_roll(balls):
    q, v, _, residual = balls["rolls"]
    speed, spin = np.diff(q[:, 4]) / 1e-4, v[1:, 1]  # v is in the ball's own, turning axes
    rolls = np.argmax(np.abs(speed - spin * 0.1) < 1e-6)
    assert (rolls + 2) * 1e-4 == pytest.approx(2 / (7 * 0.2 * G), abs=2e-4)  # 0.14562 s
    assert speed[rolls] == pytest.approx(5 / 7, rel=2e-4)  # the same
    assert q[rolls, 4] == pytest.approx(12 / (49 * 0.2 * G), rel=2e-3)  # 0.12482 m, first order in the step
    assert residual.max() < 1e-12


def test_a_bouncing_ball_comes_to_rest_in_finite_time(balls):
    q, v, _, residual = balls["bounces"]
    height = q[:, 6] - 0.1
    assert height.min() > -1e-12
    rest = np.argmax((np.abs(v[:, 5]) < 1e-9) & (height < 1e-6)) * 7e-4
    assert rest == pytest.approx(1.35457, rel=2e-2)  # first order: every bounce loses about g h
    inner = np.flatnonzero((height[1:-1] > height[:-2]) & (height[1:-1] >= height[2:])) + 1
    assert height[inner[:3]] == pytest.approx([0.5**2, 0.5**4, 0.5**6], rel=4e-2)
    assert residual.max() < 1e-12
    energy = v[:, 5] ** 2 / 2 + G * height
    assert np.diff(energy).max() < 1e-9
    q, v, _, _ = balls["rests"]
    assert np.abs(v).max() < 1e-12 and np.abs(q[:, 6] - 0.1).max() < 1e-12


def test_derivatives_of_a_bounce_know_the_time_of_impact(balls):
    q, _, dq, _ = balls["weightless"]
    assert q[-1, 6] == pytest.approx(1.1, rel=1e-9)
    assert dq[-1, 6] == pytest.approx(-1, rel=1e-9)
    _, _, dq, _ = balls["elastic"]
    t = np.sqrt(2 / G)
    expected = (G * t / 2) * (1 - t) - G * t * (t / 2) + G * (1 - t) * (t / 2)
    assert expected == pytest.approx(1.42945, abs=1e-5)
    assert dq[-1, 6] == pytest.approx(expected, rel=5e-3)  # first order in the step


@pytest.mark.slow
def test_two_equal_elastic_balls_exchange_their_motion():
    builder = soa.Builder("balls")
    for name in ("a", "b"):
        builder.link(name, joint="prismatic", axis=(1, 0, 0), mass=2.0, inertia=0.01 * np.eye(3))
    robot = builder.build(gravity=(0, 0, 0))
    scene = contact.Scene(contact.Points("a", radii=[0.1]), contact.Ball(0.1, frame="b"), 0.0, restitution=1.0)

    def final(x):
        q, _, residual, _ = simulate(robot, scene, x[:2], x[2:], 0.01, 100)
        return q[-1, 1], residual.max()

    start = jnp.array([0.0, 0.6, 1.0, 0.2])
    (where, residual), rates = jax.jit(lambda x: (final(x), jax.jacfwd(lambda x: final(x)[0])(x)))(start)
    # What b does after is what a did before, the two radii ahead.
    assert float(where) == pytest.approx(1.0 + 0.2, rel=1e-12)
    assert np.asarray(rates) == pytest.approx([1, 0, 1, 0], abs=1e-9)
    assert float(residual) < 1e-12


@pytest.mark.slow
def test_a_sliding_block_floats_under_the_convex_law_and_not_under_coulombs():
    robot, points = block(), contact.Points(["block"] * 4, bottom())
    q, v = robot.neutral().at[6].set(0.05 + DT * 0.5), jnp.zeros(6).at[3].set(1.0)

    @jax.jit
    def after(friction):
        scene = contact.Scene(points, contact.Plane(), friction, law="convex")
        q1, v1, residual, _ = simulate(robot, scene, q, v, DT, 20)
        return contact.gaps(robot, scene, q1[-1]), v1[-1, 3], residual.max()

    gap, speed, residual = after(0.5)
    assert np.asarray(gap) == pytest.approx(DT * 0.5 * float(speed), rel=1e-2)
    assert float(residual) < 1e-12


def test_painleves_rod_still_moves_on():
    """A rod that slides on its tip, friction beyond the paradox: the step at the level of velocities has an answer."""
    inertia = np.diag([1e-3, 1.0 / 3, 1.0 / 3])  # a thin rod of length two along x
    rod = soa.Builder("rod").link(
        "rod", joint="planar", axis=(0, -1, 0), axis2=(1, 0, 0), mass=1.0, inertia=inertia, com=(0, 0, 0)
    )
    robot = rod.build()
    theta = np.arctan(2.0)

    @jax.jit
    def after(friction, speed):
        scene = contact.Scene(contact.Points("rod", [(-1.0, 0, 0)]), contact.Plane(), friction)
        q = jnp.zeros(3)
        touching = lambda q: contact.gaps(robot, scene, q)[0]  # noqa: E731
        q = q.at[2].set(-theta)
        q = q.at[1].add(-touching(q) * jnp.sign(touching(q.at[1].set(1.0)) - touching(q)))
        v = jnp.zeros(3).at[0].set(speed)
        s = contact.step(robot, scene, q, v, jnp.zeros(3), 1e-3)
        return s.q, s.v, s.residual, s.impulses[0], touching(q)

    for friction, speed in [(0.5, 1.0), (1.5, 1.0), (1.5, -1.0), (3.0, 1.0), (3.0, -1.0)]:
        q, v, residual, impulse, gap = (np.asarray(x) for x in after(friction, speed))
        assert abs(gap) < 1e-12
        assert residual < 1e-9
        assert np.isfinite(q).all() and np.isfinite(v).all()
        assert np.hypot(*impulse[:2]) <= friction * impulse[2] + 1e-12


@pytest.mark.slow
def test_a_heavy_block_rests_on_a_light_one():
    size = (0.2, 0.2, 0.1)
    builder = soa.Builder("stack")
    for name, mass in (("light", 1.0), ("heavy", 1000.0)):
        builder.link(name, joint="free", mass=mass, inertia=mass / 12 * np.diag([0.05, 0.05, 0.08]))
    robot = builder.build()
    points = contact.Points(["light"] * 4 + ["heavy"] * 4, np.concatenate([bottom(size)] * 2))
    scene = contact.Scene(points, (contact.Plane(), contact.Plane(height=0.05, frame="light")), 0.5)
    q = robot.neutral().at[6].set(0.05).at[13].set(0.15)
    s = jax.jit(lambda q: contact.step(robot, scene, q, jnp.zeros(12), jnp.zeros(12), DT))(q)
    assert float(s.residual) < 1e-8
    pairs = scene.pairs(robot)
    ground = sum(np.asarray(s.impulses)[i] for i, p in enumerate(pairs) if p.surface == 0)
    between = sum(np.asarray(s.impulses)[i] for i, p in enumerate(pairs) if p.surface == 1)
    assert ground / DT == pytest.approx([0, 0, 1001 * G], rel=1e-8, abs=1e-5)
    assert between / DT == pytest.approx([0, 0, 1000 * G], rel=1e-8, abs=1e-5)
    assert np.abs(s.v).max() < 1e-8
