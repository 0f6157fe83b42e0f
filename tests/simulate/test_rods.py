"""Springs on the manifold and elastic rods: against beam theory and conservation of energy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa.dynamics.springs import spring_energy, spring_torque

E, G, DENSITY, RADIUS, LENGTH = 2.0e9, 0.8e9, 1200.0, 0.01, 1.0
BENDING, TWISTING = E * np.pi * RADIUS**4 / 4, G * np.pi * RADIUS**4 / 2


def test_a_cantilever_bends_twists_and_rings_as_beam_theory_says():
    n = 20
    rod = soa.models.rod(LENGTH, n, soa.models.circle(RADIUS), E=E, G=G, density=DENSITY)
    robot, k = rod.robot, np.asarray(rod.springs.stiffness)

    J, M = (np.asarray(x) for x in jax.jit(lambda q: (soa.jacobian(robot, q, "tip"), soa.mass_matrix(robot, q)))(
        robot.neutral()
    ))  # fmt: skip
    compliance = J @ (J / k).T  # small displacements of the tip under small forces on it
    assert_allclose(compliance[5, 5], LENGTH**3 / (3 * BENDING) * (1 - 1 / (4 * n**2)), rtol=1e-10)
    assert_allclose(compliance[4, 4], compliance[5, 5], rtol=1e-12)
    assert_allclose(compliance[0, 0], LENGTH / TWISTING, rtol=1e-12)
    root = np.sqrt(k)
    squares = np.sort(np.linalg.eigvalsh(root[:, None] * np.linalg.inv(M) * root))
    frequencies = np.sqrt(squares)[:6:2]  # bending comes in pairs, about y and about z
    wanted = np.array([1.8751, 4.6941, 7.8548]) ** 2 * np.sqrt(BENDING / (DENSITY * np.pi * RADIUS**2)) / LENGTH**2
    assert_allclose(frequencies, wanted, rtol=1e-2)


def test_a_rod_keeps_its_energy_and_is_differentiated_by_its_modulus():
    rod = soa.models.rod(LENGTH, 4, soa.models.circle(RADIUS), E=E, G=G, density=DENSITY)
    robot = rod.robot

    def run(E):
        springs = soa.models.rod(LENGTH, 4, soa.models.circle(RADIUS), E=E, G=G, density=DENSITY).springs

        def look(sample):
            energy = soa.kinetic_energy(robot, sample.q, sample.v) + soa.potential_energy(robot, sample.q)
            return energy + springs.energy(robot, sample.q), soa.frame_pose(robot, sample.q, "tip")[1][2]

        v = jnp.zeros(robot.nv)
        options = {"steps": 400, "integrator": "rk4", "passive": springs, "record": look}
        return soa.rollout(robot, robot.neutral(), v, None, 2.5e-4, **options)

    @jax.jit
    def everything(E):
        h = 1e-5 * E
        ends = jax.lax.map(lambda x: run(x)[1][-1], jnp.stack([E + h, E - h]))
        return run(E), jax.jvp(lambda x: run(x)[1][-1], (E,), (1.0,))[1], (ends[0] - ends[1]) / (2 * h)

    (energy, height), rate, differences = everything(jnp.asarray(E))
    assert float(height[-1]) < -0.01  # it sags
    assert np.ptp(energy) < 1e-6
    assert_allclose(rate, differences, rtol=1e-5)


def test_spring_torques_are_gradients_and_isotropic_balls_are_as_in_mujoco():
    robot = soa.models.rod(1.0, 2, soa.models.rectangle(0.01, 0.03), E=E, G=G, density=DENSITY).robot
    rng = np.random.default_rng(0)
    rest, q = (robot.integrate(robot.neutral(), jnp.asarray(rng.normal(size=6))) for _ in range(2))
    k = jnp.asarray(rng.uniform(1, 2, size=6))

    @jax.jit
    def both(q):
        h = 1e-5
        moved = jnp.concatenate([h * jnp.eye(6), -h * jnp.eye(6)])
        energy = jax.vmap(lambda d: spring_energy(robot, k, rest, robot.integrate(q, d)))(moved)
        same = spring_torque(robot, 3.0 * jnp.ones(6), rest, q)
        zero = spring_torque(robot, k, rest, rest)
        return spring_torque(robot, k, rest, q), -(energy[:6] - energy[6:]) / (2 * h), same, zero

    torque, gradient, same, zero = both(q)
    assert_allclose(torque, gradient, atol=1e-8)
    assert_close(same, -3.0 * robot.difference(rest, q), 1e-12)
    assert_allclose(zero, 0, atol=1e-14)


def test_impossible_rods_are_refused():
    with pytest.raises(soa.ModelError, match="The radius"):
        soa.models.circle(0.0)
    for bad in ({"E": -1.0}, {"density": 0.0}, {"G": np.nan}):
        with pytest.raises(soa.ModelError, match="must be positive"):
            soa.models.rod(1.0, 2, soa.models.circle(0.1), **({"E": E, "G": G, "density": DENSITY} | bad))
