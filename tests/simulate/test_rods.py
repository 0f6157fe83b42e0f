"""Springs on the manifold and elastic rods: against beam theory and conservation of energy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close
from numpy.testing import assert_allclose
from scipy.integrate import simpson, solve_bvp

import jaxsoa as soa
from jaxsoa.dynamics.springs import spring_energy, spring_torque

E, G, DENSITY, RADIUS, LENGTH = 2.0e9, 0.8e9, 1200.0, 0.01, 1.0
BENDING, TWISTING = E * np.pi * RADIUS**4 / 4, G * np.pi * RADIUS**4 / 2


def test_a_cantilever_bends_twists_and_rings_as_beam_theory_says():
    n = 20
    robot = soa.models.rod(LENGTH, n, soa.models.circle(RADIUS), E=E, G=G, density=DENSITY)
    k = np.asarray(robot.stiffness)

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


@pytest.mark.slow
def test_three_frequencies_converge_with_the_square_of_a_segment():
    wanted = np.array([1.87510407, 4.69409113, 7.85475744]) ** 2
    wanted = wanted * np.sqrt(BENDING / (DENSITY * np.pi * RADIUS**2)) / LENGTH**2
    errors = []
    for n in (20, 40):
        robot = soa.models.rod(LENGTH, n, soa.models.circle(RADIUS), E=E, G=G, density=DENSITY)
        M, root = np.asarray(jax.jit(soa.mass_matrix)(robot, robot.neutral())), np.sqrt(np.asarray(robot.stiffness))
        squares = np.sort(np.linalg.eigvalsh(root[:, None] * np.linalg.inv(M) * root))
        errors.append(np.sqrt(squares)[:6:2] / wanted - 1)
    # A section's own turning, which Euler and Bernoulli leave out, is all that remains: (r k / 2)^2 / 2 or so.
    assert_allclose(errors[1], 0, atol=2e-3)
    assert (np.abs(errors[0]) < 1e-2).all() and (np.abs(errors[1]) < np.abs(errors[0])).all()


@pytest.mark.slow
def test_a_rod_keeps_its_energy_and_is_differentiated_by_its_modulus():
    def run(E):
        robot = soa.models.rod(LENGTH, 4, soa.models.circle(RADIUS), E=E, G=G, density=DENSITY)

        def look(sample):
            energy = soa.kinetic_energy(robot, sample.q, sample.v) + soa.potential_energy(robot, sample.q)
            return energy, soa.frame_pose(robot, sample.q, "tip")[1][2]

        v = jnp.zeros(robot.nv)
        options = {"steps": 400, "integrator": "rk4", "record": look}
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
    robot = soa.models.rod(1.0, 2, soa.models.rectangle(0.01, 0.03), E=E, G=G, density=DENSITY)
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


def elastica(load: float) -> tuple[float, float]:
    """Tip (x, drop) / L of a cantilever under a force across it, load = F L^2 / EI: theta'' = -load cos theta."""

    def ends(a, b):
        return np.array([a[0], b[1]])

    def slope(_, y):
        return np.stack([y[1], -load * np.cos(y[0])])

    s = np.linspace(0, 1, 200)
    found = solve_bvp(slope, ends, s, np.stack([s, 1 - s]), tol=1e-9, max_nodes=20000)
    angle = found.sol(np.linspace(0, 1, 2001))[0]
    return simpson(np.cos(angle), dx=1 / 2000), simpson(np.sin(angle), dx=1 / 2000)


@pytest.mark.slow
def test_a_cantilever_under_a_large_force_is_an_elastica():
    """F L^2 / EI = 10, the tip goes down by 0.81 L: converging with the square of the piece's length; and stretched."""
    load = 10.0
    push = jnp.zeros(6).at[5].set(-load * BENDING / LENGTH**2)
    exact = np.array(elastica(load))
    errors = []
    for n in (5, 10):
        robot = soa.models.rod(LENGTH, n, soa.models.circle(RADIUS), E=E, G=G, density=DENSITY)
        robot = robot.with_gravity(jnp.zeros(3))

        def rest(q, robot=robot):
            still = jnp.zeros(robot.nv)
            return soa.inverse_dynamics(robot, q, still, still, soa.external_forces(robot, q, {"tip": push}))

        @jax.jit
        def settled(robot=robot, rest=rest):
            def newton(q, _):
                def along(e):
                    return jax.jvp(lambda d: rest(robot.integrate(q, d)), (jnp.zeros(robot.nv),), (e,))[1]

                r, J = rest(q), jax.lax.map(along, jnp.eye(robot.nv)).T
                dq = -jnp.linalg.solve(J, r)
                return robot.integrate(q, dq * jnp.minimum(1, 0.3 / jnp.max(jnp.abs(dq)))), None

            q = jax.lax.scan(newton, robot.neutral(), None, length=25)[0]
            return rest(q), soa.frame_pose(robot, q, "tip")[1]

        residual, tip = settled()
        assert_allclose(residual, 0, atol=1e-8 * BENDING)
        errors.append(np.abs(np.array([tip[0], -tip[2]]) / LENGTH - exact).max())
    assert errors[1] < 1e-2 and errors[0] / errors[1] > 3


def test_a_rod_of_traced_numbers_is_the_rod_of_those_numbers():
    numbers = (LENGTH, RADIUS, E, G, DENSITY, 1e-3)

    def build(length, radius, E, G, density, damping):
        section = soa.models.circle(radius)
        return soa.models.rod(length, 3, section, E=E, G=G, density=density, damping=damping, axial=True)

    for one, other in zip(jax.tree.leaves(jax.jit(build)(*numbers)), jax.tree.leaves(build(*numbers)), strict=True):
        assert_allclose(one, other, rtol=1e-13, atol=1e-20)
    sides, h = jnp.array([0.01, 0.03]), 1e-6
    section = jax.jit(lambda sides: jnp.stack(soa.models.rectangle(*sides)))
    assert_allclose(section(sides), soa.models.rectangle(0.01, 0.03), rtol=1e-13)
    ends = [soa.models.rectangle(0.01 + d, 0.03) for d in (h, -h)]
    slope = (np.array(ends[0]) - np.array(ends[1])) / (2 * h)
    assert_allclose(jax.jacfwd(section)(sides)[:, 0], slope, rtol=1e-7)
    robot = build(*numbers)
    slides = np.array([robot.v_index(f"rod_slide{k}_joint").start for k in (1, 2, 3)])
    assert_allclose(1 / robot.stiffness[slides], LENGTH / 3 / (E * np.pi * RADIUS**2))  # L / EA altogether
    assert_allclose(robot.base_mass + robot.mass.sum(), DENSITY * np.pi * RADIUS**2 * LENGTH)


def test_a_rod_between_other_links():
    builder = soa.Builder("whip").link("hand", joint="revolute", axis=(0, 1, 0), mass=1.0, inertia=np.eye(3))
    section = soa.models.rectangle(0.01, 0.02)
    builder.rod("whip", parent="hand", position=(0.1, 0, 0), length=1.0, segments=3, section=section, E=E, G=G,
                density=DENSITY)  # fmt: skip
    builder.link("bob", joint="revolute", parent="whip3", position=(1 / 6, 0, 0), mass=0.2, com=(0.1, 0, 0))
    robot = builder.build()
    assert robot.link_names == ("hand", "whip1", "whip2", "whip3", "bob")
    assert_allclose(soa.frame_pose(robot, robot.neutral(), "whip_tip")[1], [1.1, 0, 0], atol=1e-15)
    assert_allclose(robot.mass.sum(), 1.2 + DENSITY * 0.01 * 0.02)
    bending = robot.stiffness[robot.v_index("whip2_joint")][1:]
    assert_allclose(bending, np.array([0.01 * 0.02**3, 0.02 * 0.01**3]) * E / 4)


def test_impossible_rods_are_refused():
    with pytest.raises(soa.ModelError, match="The radius"):
        soa.models.circle(0.0)
    with pytest.raises(soa.ModelError, match="The height"):
        soa.models.rectangle(0.01, 0.0)
    with pytest.raises(soa.ModelError, match="area of a rod must be positive"):
        soa.models.rod(1.0, 2, soa.models.Section(0.0, 1.0, 1.0, 1.0), E=E, G=G, density=DENSITY)
    for bad in ({"E": -1.0}, {"density": 0.0}, {"G": np.nan}):
        with pytest.raises(soa.ModelError, match="must be positive"):
            soa.models.rod(1.0, 2, soa.models.circle(0.1), **({"E": E, "G": G, "density": DENSITY} | bad))


def equations(jaxpr) -> int:
    """How many primitives a program has, those of its loops' bodies counted once."""
    inner = [x for eqn in jaxpr.eqns for x in jax.tree.leaves(list(eqn.params.values()), is_leaf=is_jaxpr)]
    return len(jaxpr.eqns) + sum(equations(getattr(x, "jaxpr", x)) for x in inner if is_jaxpr(x))


def is_jaxpr(x) -> bool:
    return hasattr(getattr(x, "jaxpr", x), "eqns")


def cable(E, segments: int) -> soa.Multibody:
    """100 m of a rope, so soft that 0.05 ms are short beside the twisting of a thousandth of it."""
    return soa.models.rod(100.0, segments, soa.models.circle(RADIUS), E=E, G=0.4 * E, density=DENSITY)


def sagged(E, segments: int, bent, steps: int = 3):
    """Height of the tip after some steps from a bent start, dt = 0.05 ms."""
    robot = cable(E, segments)
    q = robot.integrate(robot.neutral(), bent)
    end = soa.rollout(robot, q, jnp.zeros(robot.nv), None, 5e-5, steps=steps, integrator="rk4", record="final")
    return soa.frame_pose(robot, end.q, "tip")[1][2]


def test_the_program_of_a_rod_does_not_grow_with_its_segments():
    """Simulation and its derivative by E: as many equations for a thousand segments as for a hundred."""

    def size(n):
        bent = jnp.zeros(3 * n)
        return equations(jax.make_jaxpr(lambda E: jax.jvp(lambda E: sagged(E, n, bent), (E,), (E,)))(E).jaxpr)

    few, many = size(100), size(1000)
    assert few == many > 500


@pytest.mark.slow
def test_a_thousand_segments_are_simulated_and_differentiated_by_their_modulus():
    n, rng = 1000, np.random.default_rng(0)
    bent = jnp.asarray(1e-2 * rng.normal(size=3 * n))

    @jax.jit
    def everything(E):
        h = 1e-3 * E
        high, low = jax.lax.map(lambda E: sagged(E, n, bent), jnp.stack([E + h, E - h]))
        return jax.value_and_grad(lambda E: sagged(E, n, bent))(E), (high - low) / (2 * h)

    (height, slope), differences = everything(E)
    assert np.isfinite(height) and abs(float(slope)) > 0
    # Rounding of the height, some 50 m, over the step of the difference.
    assert_allclose(slope, differences, rtol=1e-4)
