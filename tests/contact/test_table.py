"""Closed forms of contact mechanics: sliding, sticking, rolling, bouncing, stacking, and their derivatives; at home,
upside down and a kilometre from the origin."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_cases import DT, PLACES, STEPS, G, block, bottom, simulate, sliding_blocks, thrown_balls

import jaxsoa as soa
from jaxsoa import contact


@pytest.fixture(scope="module")
def blocks():
    return sliding_blocks(jnp.float64)


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


#: What positions a kilometre away are rounded to (m), and velocities over a step (m/s).
AWAY = {"": (0.0, 0.0), ", upside down": (0.0, 0.0), ", far away": (1e-10, 1e-8)}


@pytest.mark.parametrize("where", AWAY)
def test_down_a_slope_it_slides_farther(blocks, where):
    q, v, residual, _ = blocks["down 20" + where]
    sign = -1 if "upside" in where else 1
    down = sign * np.array([np.cos(np.deg2rad(20)), 0, -np.sin(np.deg2rad(20))])
    start = sign * 0.05 * np.array([np.sin(np.deg2rad(20)), 0, np.cos(np.deg2rad(20))])
    start = start + (np.array(PLACES["far away"].shift) if "far" in where else 0)
    way = (q[:, 4:] - start) @ down
    slowing = G * (0.5 * np.cos(np.deg2rad(20)) - np.sin(np.deg2rad(20)))
    assert 1 / (2 * slowing) == pytest.approx(0.39873, abs=1e-5)
    time = STEPS * DT  # not yet at rest: the whole way takes 0.797 s
    assert way[-1] + DT / 2 * (1 - (1 - slowing * time)) == pytest.approx(time - slowing * time**2 / 2, rel=1e-9)
    assert v[-1, 3] == pytest.approx(1 - slowing * time, rel=1e-9)
    assert residual.max() < 1e-12


@pytest.mark.parametrize("where", AWAY)
def test_it_sticks_below_the_friction_angle_and_slides_above(blocks, where):
    length, speed = AWAY[where]
    q, v, residual, _ = blocks["sticks" + where]  # 26.5 degrees; the cone is at 26.565
    assert np.abs(q - q[0]).max() < 1e-12 + length
    assert np.abs(v).max() < 1e-12 + speed
    assert residual.max() < 1e-12
    _, v, _, _ = blocks["slides" + where]  # 26.6
    angle = np.deg2rad(26.6)
    pull = G * (np.sin(angle) - 0.5 * np.cos(angle)) * STEPS * DT
    assert v[-1, 3] == pytest.approx(pull, rel=1e-6, abs=speed)


def test_free_fall_and_nan_stay_in_their_elements(blocks):
    _, v, residual, impulses = blocks["falls"]
    assert v[-1, 5] == pytest.approx(-G * STEPS * DT, rel=1e-12)
    assert not impulses.any()
    assert not residual.any()
    assert np.isnan(blocks["nan"][0]).any()
    assert all(np.isfinite(x).all() for name, found in blocks.items() if name != "nan" for x in found)


ELSEWHERE = ["home", *(pytest.param(name, marks=pytest.mark.slow) for name in PLACES if name != "home")]
everywhere = pytest.mark.parametrize("place", ELSEWHERE)


@pytest.fixture(scope="module", params=ELSEWHERE)
def balls(request):
    place = PLACES[request.param]
    return thrown_balls(jnp.float64, place=place), place.rounding


@pytest.mark.slow
def test_a_sliding_ball_comes_to_roll(balls):
    (q, v, _, residual), rounding = balls[0]["rolls"], balls[1]
    speed, spin = np.diff(q[:, 4]) / 1e-4, v[1:, 1]  # v is in the ball's own, turning axes
    rolls = np.argmax(np.abs(speed - spin * 0.1) < 1e-6)
    assert (rolls + 2) * 1e-4 == pytest.approx(2 / (7 * 0.2 * G), abs=2e-4)  # 0.14562 s
    assert speed[rolls] == pytest.approx(5 / 7, rel=2e-4)  # the same
    assert q[rolls, 4] == pytest.approx(12 / (49 * 0.2 * G), rel=2e-3)  # 0.12482 m, first order in the step
    assert residual.max() < 1e-12 * rounding


def test_a_bouncing_ball_comes_to_rest_in_finite_time(balls):
    balls, rounding = balls
    q, v, _, residual = balls["bounces"]
    height = q[:, 6] - 0.1
    assert height.min() > -1e-12 * rounding
    rest = np.argmax((np.abs(v[:, 5]) < 1e-9 * rounding) & (height < 1e-6)) * 7e-4
    assert rest == pytest.approx(1.35457, rel=2e-2)  # first order: every bounce loses about g h
    inner = np.flatnonzero((height[1:-1] > height[:-2]) & (height[1:-1] >= height[2:])) + 1
    assert height[inner[:3]] == pytest.approx([0.5**2, 0.5**4, 0.5**6], rel=4e-2)
    assert residual.max() < 1e-12
    energy = v[:, 5] ** 2 / 2 + G * height
    assert np.diff(energy).max() < 1e-9 * rounding
    q, v, _, _ = balls["rests"]
    assert np.abs(v).max() < 1e-12 * rounding and np.abs(q[:, 6] - 0.1).max() < 1e-12 * rounding


def test_derivatives_of_a_bounce_know_the_time_of_impact(balls):
    balls, _ = balls
    q, _, dq, _ = balls["weightless"]
    assert q[-1, 6] == pytest.approx(1.1, rel=1e-9)
    assert dq[-1, 6] == pytest.approx(-1, rel=1e-9)
    _, _, dq, _ = balls["elastic"]
    t = np.sqrt(2 / G)
    expected = (G * t / 2) * (1 - t) - G * t * (t / 2) + G * (1 - t) * (t / 2)
    assert expected == pytest.approx(1.42945, abs=1e-5)
    assert dq[-1, 6] == pytest.approx(expected, rel=5e-3)  # first order in the step


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_two_equal_elastic_balls_exchange_their_motion(place):
    builder = soa.Builder("balls")
    for name in ("a", "b"):
        builder.link(name, joint="prismatic", axis=(1, 0, 0), mass=2.0, inertia=0.01 * np.eye(3))
    robot = PLACES[place].moved(builder.build(gravity=(0, 0, 0)))
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
@pytest.mark.parametrize("place", PLACES)
def test_a_sliding_block_floats_under_the_convex_law_and_not_under_coulombs(place):
    place = PLACES[place]
    robot, points = place.moved(block()), contact.Points(["block"] * 4, bottom())
    q, v = robot.neutral().at[6].set(0.05 + DT * 0.5), jnp.zeros(6).at[3].set(1.0)

    @jax.jit
    def after(friction):
        scene = contact.Scene(points, place.plane(), friction, law="convex")
        q1, v1, residual, _ = simulate(robot, scene, q, v, DT, 20)
        return contact.gaps(robot, scene, q1[-1]), v1[-1, 3], residual.max()

    gap, speed, residual = after(0.5)
    assert np.asarray(gap) == pytest.approx(DT * 0.5 * float(speed), rel=1e-2)
    assert float(residual) < 1e-12


@everywhere
def test_painleves_rod_still_moves_on(place):
    """A rod that slides on its tip, friction beyond the paradox: the step at the level of velocities has an answer."""
    inertia = np.diag([1e-3, 1.0 / 3, 1.0 / 3])  # a thin rod of length two along x
    rod = soa.Builder("rod").link(
        "rod", joint="planar", axis=(0, -1, 0), axis2=(1, 0, 0), mass=1.0, inertia=inertia, com=(0, 0, 0)
    )
    place = PLACES[place]
    robot = place.moved(rod.build())
    theta = np.arctan(2.0)

    @jax.jit
    def after(friction, speed):
        scene = contact.Scene(contact.Points("rod", [(-1.0, 0, 0)]), place.plane(), friction)
        q = jnp.zeros(3)
        touching = lambda q: contact.gaps(robot, scene, q)[0]  # noqa: E731
        q = q.at[2].set(-theta)
        q = q.at[1].add(-touching(q) * jnp.sign(touching(q.at[1].set(1.0)) - touching(q)))
        v = jnp.zeros(3).at[0].set(speed)
        s = contact.step(robot, scene, q, v, jnp.zeros(3), 1e-3)
        return s.q, s.v, s.residual, s.impulses[0], touching(q)

    for friction, speed in [(0.5, 1.0), (1.5, 1.0), (1.5, -1.0), (3.0, 1.0), (3.0, -1.0)]:
        q, v, residual, impulse, gap = (np.asarray(x) for x in after(friction, speed))
        assert abs(gap) < 1e-12 * place.rounding
        assert residual < 1e-9
        assert np.isfinite(q).all() and np.isfinite(v).all()
        normal = impulse @ place.rotation[:, 2]
        assert np.hypot(*impulse[:2]) <= friction * normal + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_heavy_block_rests_on_a_light_one(place):
    place = PLACES[place]
    size = (0.2, 0.2, 0.1)
    builder = soa.Builder("stack")
    for name, mass in (("light", 1.0), ("heavy", 1000.0)):
        builder.link(name, joint="free", mass=mass, inertia=mass / 12 * np.diag([0.05, 0.05, 0.08]))
    robot = place.moved(builder.build())
    points = contact.Points(["light"] * 4 + ["heavy"] * 4, np.concatenate([bottom(size)] * 2))
    scene = contact.Scene(points, (place.plane(), contact.Plane(height=0.05, frame="light")), 0.5)
    q = robot.neutral().at[6].set(0.05).at[13].set(0.15)
    s = jax.jit(lambda q: contact.step(robot, scene, q, jnp.zeros(12), jnp.zeros(12), DT))(q)
    assert float(s.residual) < 1e-8
    pairs = scene.pairs(robot)
    ground = sum(np.asarray(s.impulses)[i] for i, p in enumerate(pairs) if p.surface == 0)
    between = sum(np.asarray(s.impulses)[i] for i, p in enumerate(pairs) if p.surface == 1)
    up, rounding = place.rotation[:, 2], place.rounding
    assert ground / DT == pytest.approx(1001 * G * up, rel=1e-8, abs=1e-5 * rounding)
    assert between / DT == pytest.approx(1000 * G * up, rel=1e-8, abs=1e-5 * rounding)
    assert np.abs(s.v).max() < 1e-8
