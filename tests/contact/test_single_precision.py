"""The rows of `test_table` in float32: each with its own bound, from what rounding leaves.

Single precision knows a height of 0.05 m to 4e-9 and one of 700 m to 6e-5; a velocity follows a gap over a step of
1 ms, so that it is known a thousand times less well than the gap.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_cases import DT, STEPS, G, block, bottom, simulate, sliding_blocks, thrown_balls
from helpers.example_robots import EXAMPLE_ROBOTS

import jaxsoa as soa
from jaxsoa import contact

F32 = jnp.float32


@pytest.fixture(scope="module")
def blocks():
    return sliding_blocks(F32)


@pytest.fixture(scope="module")
def balls():
    return thrown_balls(F32)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, height, way_error, height_error, weight_error",
    [
        ("flat", 0.05, 1e-4, 1e-7, 1e-5),
        ("upside down", -0.05, 1e-4, 1e-7, 1e-5),
        # A kilometre away positions are multiples of 6e-5 m: the block stands on its corners by turns.
        ("far away", 700.05, 5e-3, 3e-4, None),
    ],
)
def test_a_block_stops_where_friction_stops_it(blocks, name, height, way_error, height_error, weight_error):
    q, v, residual, impulses = blocks[name]
    way = np.abs(q[-1, 4] - (1000 if name == "far away" else 0))
    assert way + DT / 2 == pytest.approx(1 / (2 * 0.5 * G), abs=way_error)
    assert np.abs(q[:, 6] - height).max() < height_error
    assert np.abs(v[-1, 3]) < (1e-6 if weight_error else 0.05)
    weight = np.abs(impulses[:, :, 2].sum(axis=1))
    if weight_error:
        assert weight == pytest.approx(G * DT, rel=weight_error)
    else:
        assert weight.mean() == pytest.approx(G * DT, rel=2e-2)
    assert residual.max() < 1e-4


@pytest.mark.slow
def test_slopes_free_fall_and_nan(blocks):
    q, v, residual, _ = blocks["down 20"]
    slowing = G * (0.5 * np.cos(np.deg2rad(20)) - np.sin(np.deg2rad(20)))
    assert v[-1, 3] == pytest.approx(1 - slowing * STEPS * DT, rel=1e-4)
    assert residual.max() < 1e-4
    q, v, _, _ = blocks["sticks"]
    assert np.abs(q - q[0]).max() < 1e-6
    assert np.abs(v).max() < 1e-4  # 4e-9 m in a step, on an arm of 0.1 m
    angle = np.deg2rad(26.6)  # the difference of two nearly equal forces, 1,000 times smaller than each
    pull = G * (np.sin(angle) - 0.5 * np.cos(angle)) * STEPS * DT
    assert blocks["slides"][1][-1, 3] == pytest.approx(pull, rel=2e-2)
    assert blocks["falls"][1][-1, 5] == pytest.approx(-G * STEPS * DT, rel=1e-5)
    assert np.isnan(blocks["nan"][0]).any()
    assert all(np.isfinite(x).all() for name, found in blocks.items() if name != "nan" for x in found)


@pytest.mark.slow
def test_rolling_bouncing_and_their_derivatives(balls):
    q, v, _, residual = balls["rolls"]
    spin = v[:, 1]
    assert spin[-1] * 0.1 == pytest.approx(5 / 7, rel=1e-3)
    assert np.linalg.norm(v[-1, 3:]) == pytest.approx(5 / 7, rel=1e-3)
    assert residual.max() < 1e-4
    q, v, _, _ = balls["bounces"]
    height = q[:, 6] - np.float32(0.1)
    assert height.min() > -1e-6
    inner = np.flatnonzero((height[1:-1] > height[:-2]) & (height[1:-1] >= height[2:])) + 1
    tops = inner[height[inner] > 0.01]  # below, rounding makes tops of its own
    assert height[tops[:3]] == pytest.approx([0.5**2, 0.5**4, 0.5**6], rel=4e-2)
    q, _, dq, _ = balls["weightless"]
    assert q[-1, 6] == pytest.approx(1.1, abs=2e-4)  # 2,000 additions
    assert dq[-1, 6] == pytest.approx(-1, rel=1e-4)
    assert balls["elastic"][2][-1, 6] == pytest.approx(1.42945, rel=1e-2)
    assert np.abs(balls["rests"][1]).max() < 1e-5


@pytest.mark.slow
def test_two_balls_exchange_their_motion_and_painleves_rod_moves_on():
    builder = soa.Builder("balls")
    for name in ("a", "b"):
        builder.link(name, joint="prismatic", axis=(1, 0, 0), mass=2.0, inertia=0.01 * np.eye(3))
    robot = builder.build(gravity=(0, 0, 0)).astype(F32)
    scene = contact.Scene(contact.Points("a", radii=[0.1]), contact.Ball(0.1, frame="b"), 0.0, restitution=1.0)

    def final(x):
        return simulate(robot, scene, x[:2], x[2:], F32(0.01), 100)[0][-1, 1]

    x = jnp.array([0.0, 0.6, 1.0, 0.2], F32)
    where, rates = jax.jit(lambda x: (final(x), jax.jacfwd(final)(x)))(x)
    assert where.dtype == rates.dtype == F32
    assert float(where) == pytest.approx(1.2, abs=1e-5)  # a hundred additions
    assert np.asarray(rates) == pytest.approx([1, 0, 1, 0], abs=1e-4)

    rod = soa.Builder("rod").link(
        "rod", joint="planar", axis=(0, -1, 0), axis2=(1, 0, 0), mass=1.0, inertia=np.diag([1e-3, 1 / 3, 1 / 3])
    )
    robot, theta = rod.build().astype(F32), np.arctan(2.0)
    scene = contact.Scene(contact.Points("rod", [(-1.0, 0, 0)]), contact.Plane(height=-np.sin(theta)), 1.5)

    def after(speed, friction):
        q, v = jnp.array([0, 0, theta], F32), jnp.array([speed, -0.1, 0], F32)
        return contact.step(robot, scene.replace(friction=friction), q, v, jnp.zeros(3, F32), 1e-3)

    assert abs(float(contact.gaps(robot, scene, jnp.array([0, 0, theta], F32))[0])) < 1e-6
    pressed = []
    for speed, friction in ((1.0, 1.5), (-1.0, 1.5), (1.0, 3.0), (-1.0, 3.0)):
        s = jax.jit(after)(F32(speed), F32(friction))
        assert float(s.residual) < 1e-4
        assert np.isfinite(s.v).all()
        assert np.hypot(*s.impulses[0, :2]) <= friction * float(s.impulses[0, 2]) + 1e-6
        pressed.append(float(s.impulses[0, 2]))
    assert max(pressed) > 1e-3


@pytest.mark.slow
def test_a_quadruped_stands():
    """Two seconds; single precision knows its height to 1e-8 m, a velocity to that over a step."""
    robot = soa.load_urdf(EXAMPLE_ROBOTS["solo12.urdf"], floating_base=True, validate="off").frictionless().astype(F32)
    feet = ("FL_FOOT", "FR_FOOT", "HL_FOOT", "HR_FOOT")
    scene = contact.Scene(contact.Points(feet), contact.Plane(), 0.6)
    q0 = robot.neutral()
    for leg in ("FL", "FR", "HL", "HR"):
        bend = 0.8 if leg[0] == "F" else -0.8
        q0 = q0.at[robot.q_index(f"{leg}_HFE")].set(bend).at[robot.q_index(f"{leg}_KFE")].set(-2 * bend)
    q0 = q0.at[6].add(-jnp.min(contact.gaps(robot, scene, q0)))

    def one(state, _):
        q, v = state
        tau = jnp.where(jnp.arange(robot.nv) < 6, 0, -20 * robot.difference(q0, q) - 0.3 * v)
        s = contact.step(robot, scene, q, v, tau, 5e-3)
        return (s.q, s.v), (s.q, s.v, s.impulses.sum(axis=0), s.residual)

    q, v, impulse, residual = (
        np.asarray(x) for x in jax.jit(lambda q: jax.lax.scan(one, (q, 0 * q[:-1]), length=800)[1])(q0)
    )
    assert q.dtype == F32
    assert np.abs(q[400:] - q[400]).max() < 2e-4
    assert np.abs(v[400:]).max() < 1e-2
    weight = float(jnp.sum(robot.mass)) * G
    assert impulse[400:].mean(axis=0) / 5e-3 == pytest.approx([0, 0, weight], abs=1e-3 * weight)
    assert residual.max() < 1e-3


@pytest.mark.slow
def test_a_stack_stands_and_a_convex_block_floats():
    """A block on another, a thousand times heavier; and the gap of the convex law."""
    builder = soa.Builder("stack")
    for name, mass in (("light", 1.0), ("heavy", 1000.0)):
        builder.link(name, joint="free", mass=mass, inertia=mass / 12 * np.diag([0.05, 0.05, 0.08]))
    robot = builder.build().astype(F32)
    points = contact.Points(["light"] * 4 + ["heavy"] * 4, np.concatenate([bottom()] * 2))
    scene = contact.Scene(points, (contact.Plane(), contact.Plane(height=0.05, frame="light")), 0.5)
    q = robot.neutral().at[6].set(0.05).at[13].set(0.15)
    zero = jnp.zeros(12, F32)
    s = jax.jit(lambda q: contact.step(robot, scene, q, zero, zero, DT))(q)
    assert s.q.dtype == s.impulses.dtype == F32
    assert float(s.residual) < 1e-4
    ground = sum(np.asarray(s.impulses)[i] for i, p in enumerate(scene.pairs(robot)) if p.surface == 0)
    assert ground / DT == pytest.approx([0, 0, 1001 * G], rel=1e-3, abs=1.0)

    robot = block().astype(F32)
    scene = contact.Scene(contact.Points(["block"] * 4, bottom()), contact.Plane(), 0.5, law="convex")
    q, v = robot.neutral().at[6].set(0.05 + DT * 0.5), jnp.zeros(6, F32).at[3].set(1.0)
    q1, v1, residual, _ = jax.jit(lambda q, v: simulate(robot, scene, q, v, DT, 20))(q, v)
    assert np.asarray(contact.gaps(robot, scene, q1[-1])) == pytest.approx(DT * 0.5 * float(v1[-1, 3]), rel=2e-2)
    assert float(residual.max()) < 1e-4
