"""The papers' algorithms against dense algebra: factors, splits, operational space, innovations, link forces."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close, random_state

import jaxsoa as soa
from jaxsoa.dynamics.forward import accelerations_by_fd2

TREE = soa.models.random_tree(12, 5, kinds=("prismatic", "universal"), armature=True, damping=True)
FRAMES = (TREE.link_names[-1], TREE.link_names[2])
SEEDS = (0, 1)


@pytest.fixture(scope="module", params=SEEDS, ids=lambda s: f"state {s}")
def state(request):
    q, v, a, f_ext = random_state(TREE, request.param)
    tau = jnp.asarray(np.random.default_rng(request.param).normal(size=TREE.nv))
    return q, v, a, f_ext, tau


def test_the_tree_branches_and_has_joints_of_several_degrees():
    parents = TREE.topology.parents
    assert len(set(parents)) < len(parents) and TREE.nv > TREE.n_links
    support = TREE.topology.link_support
    first, second = (TREE.topology.link_number(frame) for frame in FRAMES)
    assert not support[first, second] and not support[second, first]  # on different branches


@jax.jit
def mass_family(q, x):
    factor = soa.inertia_factor(TREE, q)
    return {
        "M": soa.mass_matrix(TREE, q),
        "L": factor.L,
        "D": factor.D,
        "inverse": soa.mass_matrix_inverse(TREE, q),
        "logdet": soa.mass_matrix_logdet(TREE, q),
        "times": soa.mass_times(TREE, q, x),
        "solved": soa.solve_mass_matrix(TREE, q, x),
        "solved columns": soa.solve_mass_matrix(TREE, q, jnp.stack([x, 2 * x], axis=1)),
    }


def test_factors_inverse_and_determinant_of_the_mass_matrix(state):
    """M = L D L* with L = I + H phi K; M^-1 in closed form; log det M from D; products and solutions in O(N)."""
    q, _, x, _, _ = state
    found = {key: np.asarray(value) for key, value in mass_family(q, x).items()}
    M, L, D = found["M"], found["L"], found["D"]
    assert np.linalg.eigvalsh(M).min() > 0
    np.testing.assert_array_equal(np.diag(np.diag(D)), D)
    np.testing.assert_allclose(np.diag(L), 1, atol=1e-14)
    assert np.allclose(L, np.triu(L), atol=1e-14)  # inboard rows, outboard columns
    assert_close(L @ D @ L.T, M, 1e-12, "L D L*")
    assert_close(found["inverse"], np.linalg.inv(M), 1e-10, "closed form of the inverse")
    assert_close(found["logdet"], np.linalg.slogdet(M)[1], 1e-12, "log det")
    assert_close(found["times"], M @ x, 1e-12, "M x")
    assert_close(found["solved"], np.linalg.solve(M, x), 1e-10, "M^-1 x")
    assert_close(found["solved columns"], np.linalg.solve(M, np.stack([x, 2 * x], axis=1)), 1e-10, "M^-1 X")


@jax.jit
def split_family(q, v, tau, f_ext):
    still = TREE.with_gravity(jnp.zeros(3)).frictionless()
    split = soa.acceleration_split(TREE, q, v, tau, f_ext)
    return split, {
        "M": soa.mass_matrix(TREE, q),
        "bias": soa.bias_force(TREE, q, v, f_ext),
        "resting": soa.bias_force(TREE.frictionless(), q, jnp.zeros_like(v)),
        "friction": TREE.damping * v,
        "links": soa.link_velocities(TREE, q, v),
        "poses": soa.forward_kinematics(TREE, q),
        "jacobians": [soa.jacobian(TREE, q, link) for link in TREE.link_names],
        "drifts": [soa.jacobian_bias(still, q, v, link) for link in TREE.link_names],
    }


def skew(a):
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


def link_matrix(k: int, R) -> np.ndarray:
    """6x6 inertia of link k about its origin, world axes."""
    m, c = float(TREE.mass[k]), np.asarray(R) @ np.asarray(TREE.com[k])
    J = R @ np.asarray(TREE.inertia[k]) @ R.T - m * skew(c) @ skew(c)
    return np.block([[J, m * skew(c)], [-m * skew(c), m * np.eye(3)]])


@pytest.mark.slow
def test_three_way_split_of_the_acceleration(state):
    """JPL 86-48 (10.1): torques, bias forces and bias accelerations, each from dense algebra; together FD."""
    q, v, _, f_ext, tau = state
    split, dense = split_family(q, v, tau, f_ext)
    M, v_links = np.asarray(dense["M"]), np.asarray(dense["links"])
    total = np.linalg.solve(M, np.asarray(tau) - np.asarray(dense["bias"]))
    assert_close(sum(np.asarray(part) for part in split), total, 1e-10, "the parts add up to forward dynamics")
    assert_close(split.from_torques, np.linalg.solve(M, tau - dense["friction"]), 1e-10, "torques less friction")
    # With accelerations differentiated in link frames, lambda = (w', v' - w x v): the force that such a zero
    # acceleration needs is M (0, w x v) + b - f_ext and gravity's; what remains of J' v is the bias acceleration.
    forces, accelerations = np.zeros(TREE.nv), np.zeros(TREE.nv)
    for k in range(TREE.n_links):
        R, J = np.asarray(dense["poses"].rotation[k]), np.asarray(dense["jacobians"][k])
        inertia, w = link_matrix(k, R), v_links[k, :3]
        turning = np.concatenate([np.zeros(3), np.cross(w, v_links[k, 3:])])
        W = np.block([[skew(w), np.zeros((3, 3))], [np.zeros((3, 3)), skew(w)]])
        b = W @ inertia @ np.concatenate([w, np.zeros(3)])
        forces += J.T @ (inertia @ turning + b - np.asarray(f_ext[k]))
        accelerations += J.T @ inertia @ (np.asarray(dense["drifts"][k]) - turning)
    forces += np.asarray(dense["resting"])
    assert_close(split.from_bias_forces, -np.linalg.solve(M, forces), 1e-10, "bias forces")
    assert_close(split.from_bias_accelerations, -np.linalg.solve(M, accelerations), 1e-10, "bias accelerations")


@jax.jit
def operational_family(q, force):
    return {
        "M": soa.mass_matrix(TREE, q),
        "J": [soa.jacobian(TREE, q, frame) for frame in FRAMES],
        "one": soa.operational_space_compliance(TREE, q, FRAMES[0]),
        "both": soa.operational_space_compliance(TREE, q, FRAMES),
        "tip": soa.tip_compliance(TREE, q, FRAMES[0]),
        "correction": soa.tip_force_accelerations(TREE, q, FRAMES[0], force),
        "base": soa.operational_space_compliance(TREE, q, "base"),
    }


@pytest.mark.slow
def test_operational_space_and_tip_forces(state):
    q, _, _, f_ext, _ = state
    found = operational_family(q, f_ext[0])
    M, J = np.asarray(found["M"]), np.concatenate([np.asarray(x) for x in found["J"]])
    inverse = np.linalg.inv(M)
    expected = J @ inverse @ J.T
    assert_close(found["one"], expected[:6, :6], 1e-10, "compliance of one frame")
    assert_close(found["both"], expected, 1e-10, "compliance of two frames on different branches")
    assert np.abs(expected[:6, 6:]).max() > 1e-3  # the frames feel each other
    assert_close(found["tip"], expected[:6, :6], 1e-10, "compliance by the single recursion")
    assert_close(found["correction"], -inverse @ J[:6].T @ np.asarray(f_ext[0]), 1e-10, "tip-force accelerations")
    np.testing.assert_array_equal(found["base"], np.zeros((6, 6)))  # the base does not yield


def test_operational_space_inertia_is_the_inverse_of_the_compliance():
    robot = soa.models.puma560()
    q = robot.random(0)
    both = jax.jit(
        lambda q: (soa.operational_space_inertia(robot, q, "tool"), soa.operational_space_compliance(robot, q, "tool"))
    )
    inertia, compliance = both(q)
    assert_close(inertia @ compliance, np.eye(6), 1e-8, "Lambda times compliance")


@jax.jit
def innovations_family(q, v, a, tau):
    a = soa.forward_dynamics(TREE, q, v, tau)
    nu = lambda t: soa.innovations_velocity(TREE, TREE.integrate(q, t * v), v + t * a)  # noqa: E731
    motion = soa.innovations_motion(TREE, q, v, tau)
    # A control that cancels the Coriolis term and brakes: every coordinate by itself, nu' = -3 nu.
    of_velocity = lambda v: soa.innovations_velocity(TREE, q, v)  # noqa: E731
    (braking,) = jax.vjp(of_velocity, v)[1](motion.coriolis - 3 * motion.nu)
    braked = soa.forward_dynamics(TREE, q, v, braking)
    slower = lambda t: soa.innovations_velocity(TREE, TREE.integrate(q, t * v), v + t * braked)  # noqa: E731
    return {
        "braked": jax.jvp(slower, (0.0,), (1.0,))[1],
        "nu": motion.nu,
        "rate": jax.jvp(nu, (0.0,), (1.0,))[1],
        "coriolis": motion.coriolis,
        "epsilon": motion.epsilon,
        "energy": soa.kinetic_energy(TREE, q, v),
        "back": soa.velocity_from_innovations(TREE, q, motion.nu),
        "velocity": soa.innovations_velocity(TREE, q, v),
        "torque": soa.innovations_torque(TREE, q, tau),
    }


@pytest.mark.slow
def test_diagonalized_coordinates(state):
    """Overview, section 6: the kinetic energy is nu.nu/2 and nu' + coriolis = epsilon."""
    q, v, a, _, tau = state
    found = {key: np.asarray(value) for key, value in innovations_family(q, v, a, tau).items()}
    assert_close(found["nu"] @ found["nu"] / 2, found["energy"], 1e-12, "kinetic energy")
    assert_close(found["rate"] + found["coriolis"], found["epsilon"], 1e-10, "equation of motion")
    assert_close(found["braked"], -3 * found["nu"], 1e-10, "decoupled control")
    assert_close(found["back"], v, 1e-11, "and back to v")
    assert_close(found["nu"] @ found["epsilon"], np.asarray(v) @ np.asarray(tau), 1e-11, "power")
    assert_close(found["velocity"], found["nu"], 1e-13)
    assert_close(found["torque"], found["epsilon"], 1e-13)


@jax.jit
def newton_family(q, v, a, f_ext, tau):
    fd2_a, fd2_links = accelerations_by_fd2(TREE, q, v, tau, f_ext)
    return {
        "composite": soa.inverse_dynamics(TREE, q, v, a, f_ext, method="composite"),
        "newton-euler": soa.inverse_dynamics(TREE, q, v, a, f_ext),
        "forces": soa.link_forces(TREE, q, v, a, f_ext),
        "accelerations": soa.link_accelerations(TREE, q, v, a),
        "velocities": soa.link_velocities(TREE, q, v),
        "poses": soa.forward_kinematics(TREE, q),
        "fd2 links": fd2_links,
        "fd2 expected": soa.link_accelerations(TREE, q, v, fd2_a),
        "fd2 a": fd2_a,
        "fd": soa.forward_dynamics(TREE, q, v, tau, f_ext),
        "momentum rate": jax.jvp(
            lambda t: soa.link_velocities(TREE, TREE.integrate(q, t * v), v + t * a), (0.0,), (1.0,)
        )[1],
    }


def test_composite_bodies_link_forces_and_fd2(state):
    q, v, a, f_ext, tau = state
    found = newton_family(q, v, a, f_ext, tau)
    assert_close(found["composite"], found["newton-euler"], 1e-11, "composite-body inverse dynamics")
    assert_close(found["fd2 a"], found["fd"], 1e-10, "FD2")
    assert_close(found["fd2 links"], found["fd2 expected"], 1e-10, "link accelerations of FD2")
    assert_close(found["accelerations"], found["momentum rate"], 1e-11, "link accelerations are rates of velocities")
    # Newton and Euler for each link about its own centre of mass, from what the neighbours exert.
    forces, v_links, alpha = (np.asarray(found[key]) for key in ("forces", "velocities", "accelerations"))
    position = np.asarray(found["poses"].position)
    for k in range(TREE.n_links):
        R = np.asarray(found["poses"].rotation[k])
        c, m, J = R @ np.asarray(TREE.com[k]), float(TREE.mass[k]), R @ np.asarray(TREE.inertia[k]) @ R.T
        force, moment = forces[k, 3:] + f_ext[k, 3:], forces[k, :3] + f_ext[k, :3]  # about the link's origin
        for child in np.flatnonzero(np.array(TREE.topology.parents) == k):
            force = force - forces[child, 3:]
            moment = moment - forces[child, :3] - np.cross(position[child] - position[k], forces[child, 3:])
        w, w_dot = v_links[k, :3], alpha[k, :3]
        com_acceleration = alpha[k, 3:] + np.cross(w_dot, c) + np.cross(w, np.cross(w, c))
        assert_close(force + m * np.asarray(TREE.gravity), m * com_acceleration, 1e-10, "Newton")
        about_com = moment - np.cross(c, force)
        assert_close(about_com, J @ w_dot + np.cross(w, J @ w), 1e-10, "Euler")
