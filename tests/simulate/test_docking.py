"""A free-flying arm: joints driven, then released in flight, then docked to a free body, in one robot."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc

DT, RELEASED, DOCKED, END = 2e-3, 0.2, 0.4, 0.6
TARGET_MASS, TARGET_COM, TARGET_INERTIA = 3.0, (0.05, -0.02, 0.03), np.diag([0.2, 0.25, 0.3])


def satellite(builder: soa.Builder) -> soa.Builder:
    """20 kg with an arm of three hinges, frame `hand`."""
    builder.link("satellite", joint="free", joint_name="floating_base", mass=20.0, inertia=np.diag([1.0, 1.3, 1.6]))
    parent, place = "satellite", (0.4, 0.0, 0.1)
    rod = {"mass": 2.0, "com": (0.2, 0, 0.01), "inertia": np.diag([2e-3, 0.03, 0.03])}
    for k, axis in enumerate([(0, 0, 1), (0, 1, 0), (1, 0, 1)], start=1):
        builder.link(f"arm{k}", joint="revolute", parent=parent, position=place, axis=axis, **rod)
        parent, place = f"arm{k}", (0.4, 0.0, 0.0)
    return builder.frame("hand", link=parent, position=place)


@pytest.mark.slow
def test_a_free_flyer_is_released_and_docks():
    """Momentum lasts throughout, energy while nothing is driven or caught; docked, it is the arm with a payload."""
    builder = satellite(soa.Builder("docking"))
    builder.link("target", joint="free", mass=TARGET_MASS, com=TARGET_COM, inertia=TARGET_INERTIA)
    robot = builder.build(gravity=(0, 0, 0))
    alone = satellite(soa.Builder("alone")).build(gravity=(0, 0, 0))
    arm = soa.prescribed_mask(robot, ["arm1_joint", "arm2_joint", "arm3_joint"])
    given = jnp.zeros(robot.nv).at[jnp.flatnonzero(arm)].set(jnp.array([4.0, -6.0, 8.0]))
    q, rng = robot.neutral(), np.random.default_rng(0)
    at = robot.q_index("target_joint").start
    q = q.at[at + 4 : at + 7].set(jnp.array([1.9, 0.2, 0.3]))
    v = jnp.where(arm, 0.0, jnp.asarray(0.2 * rng.normal(size=robot.nv)))

    def conserved(q, v):
        return soa.momentum(robot, q, v), soa.kinetic_energy(robot, q, v)

    def flown(q, v, seconds, **options):
        return soa.rollout(robot, q, v, None, DT, steps=round(seconds / DT), integrator="rk4", **options)

    @jax.jit
    def run(q, v):
        before = conserved(q, v)
        flying = flown(q, v, DOCKED, prescribed=lambda t, q, v: (arm & (t < RELEASED - DT / 2), given))
        met = jax.tree.map(lambda x: x[-1], flying)
        weld = cc.holding(robot, met.q, (cc.weld("hand", "target"),))
        caught = cc.project_velocity(robot, weld, *met)
        docked = flown(met.q, caught, END - DOCKED, loops=weld)
        J, M = cc.loop_jacobian(robot, weld, met.q), soa.mass_matrix(robot, met.q)
        (held,) = weld
        assert isinstance(held, cc.Loop)
        R, p = held.rotation, held.position
        n_q, n_v = alone.nq, alone.nv
        com, turned = R @ jnp.array(TARGET_COM) + p, R @ TARGET_INERTIA @ R.T
        heavy = alone.with_payload("hand", TARGET_MASS, com, turned)
        as_one = soa.rollout(
            heavy, met.q[:n_q], caught[:n_v], None, DT, steps=round((END - DOCKED) / DT), integrator="rk4"
        )
        errors = jax.vmap(lambda q: cc.loop_errors(robot, weld, q))(docked.q)
        histories = [jax.vmap(conserved)(*x) for x in (flying, docked)]
        return before, flying, (met, caught, J, M), docked, as_one, errors, histories

    before, flying, (met, caught, J, M), docked, as_one, errors, histories = run(q, v)
    released = round(RELEASED / DT)
    t = DT * np.arange(1, released + 1)[:, None]
    assert_allclose(flying.q[:released, 7:10], given[arm] * t**2 / 2, atol=1e-12)  # as driven
    assert np.abs(flying.v[-1][arm] - flying.v[released][arm]).max() > 1e-2  # and then not
    # Runge-Kutta's own error: momentum is not quadratic in coordinates that turn.
    for momentum, _ in histories:
        assert_allclose(momentum, np.broadcast_to(before[0], momentum.shape), atol=1e-9 * np.abs(before[0]).max())
    free, held = histories[0][1][released:], histories[1][1]
    assert np.ptp(free) < 1e-9 * free[0] and np.ptp(held) < 1e-9 * held[0]
    # Caught without rebound: what is lost is the energy of the relative motion, by dense algebra.
    J, M, slip = np.asarray(J), np.asarray(M), np.asarray(J @ met.v)
    lost = slip @ np.linalg.solve(J @ np.linalg.solve(M, J.T), slip) / 2
    assert lost > 0.05 * free[-1]
    start = float(soa.kinetic_energy(robot, met.q, caught))
    assert_allclose(start, free[-1] - lost, rtol=1e-10)
    assert np.abs(errors).max() < 1e-12
    assert_close(docked.q[:, : alone.nq], as_one.q, 1e-8, "docked, beside the tree with a payload")
    assert_close(docked.v[:, : alone.nv], as_one.v, 1e-8, "its velocities")
