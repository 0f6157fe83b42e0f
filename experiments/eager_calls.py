"""Calls outside of `jax.jit`, as one types them: what the first and the third call of each function take.

    python experiments/eager_calls.py [robot.urdf]      # puma560 if no file is given

The first call traces and compiles; what follows should take little longer than its arithmetic.
"""

from __future__ import annotations

import sys
import time

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import jaxsoa as soa  # noqa: E402


def calls(robot: soa.Multibody) -> dict:
    rng = np.random.default_rng(0)
    q = robot.random(0)
    v, a, tau = (jnp.asarray(rng.normal(size=robot.nv)) for _ in range(3))
    frame = robot.frame_names[-1]
    mask = jnp.arange(robot.nv) < 2
    torques = jnp.zeros((100, robot.nv))
    return {
        "forward_dynamics": lambda: soa.forward_dynamics(robot, q, v, tau),
        "inverse_dynamics": lambda: soa.inverse_dynamics(robot, q, v, a),
        "hybrid_dynamics": lambda: soa.hybrid_dynamics(robot, q, v, a, tau, mask),
        "mass_matrix": lambda: soa.mass_matrix(robot, q),
        "mass_matrix_inverse": lambda: soa.mass_matrix_inverse(robot, q),
        "mass_matrix_logdet": lambda: soa.mass_matrix_logdet(robot, q),
        "solve_mass_matrix": lambda: soa.solve_mass_matrix(robot, q, v),
        "mass_times": lambda: soa.mass_times(robot, q, v),
        "inertia_factor": lambda: soa.inertia_factor(robot, q),
        "bias_force": lambda: soa.bias_force(robot, q, v),
        "forward_kinematics": lambda: soa.forward_kinematics(robot, q),
        "frame_pose": lambda: soa.frame_pose(robot, q, frame),
        "jacobian": lambda: soa.jacobian(robot, q, frame),
        "jacobian_bias": lambda: soa.jacobian_bias(robot, q, v, frame),
        "link_velocities": lambda: soa.link_velocities(robot, q, v),
        "link_accelerations": lambda: soa.link_accelerations(robot, q, v, a),
        "link_forces": lambda: soa.link_forces(robot, q, v, a),
        "kinetic_energy": lambda: soa.kinetic_energy(robot, q, v),
        "potential_energy": lambda: soa.potential_energy(robot, q),
        "momentum": lambda: soa.momentum(robot, q, v),
        "center_of_mass": lambda: soa.center_of_mass(robot, q),
        "coriolis_times": lambda: soa.coriolis_times(robot, q, v, a),
        "coriolis_matrix": lambda: soa.coriolis_matrix(robot, q, v),
        "operational_space_inertia": lambda: soa.operational_space_inertia(robot, q, frame),
        "operational_space_compliance": lambda: soa.operational_space_compliance(robot, q, frame),
        "operational_space_dynamics": lambda: soa.operational_space_dynamics(robot, q, v, frame),
        "regressor": lambda: soa.regressor(robot, q, v, a),
        "linearize_inverse_dynamics": lambda: soa.linearize_inverse_dynamics(robot, q, v, a),
        "linearize_forward_dynamics": lambda: soa.linearize_forward_dynamics(robot, q, v, tau),
        "linearize_hybrid_dynamics": lambda: soa.linearize_hybrid_dynamics(robot, q, v, a, tau, mask),
        "linearize_step": lambda: soa.linearize_step(robot, q, v, tau, 1e-3),
        "integrate": lambda: robot.integrate(q, v),
        "difference": lambda: robot.difference(q, q),
        "step": lambda: soa.step(robot, q, v, tau, 1e-3),
        "rollout, 100 steps": lambda: soa.rollout(robot, q, v, torques, 1e-3),
        "rollout, 100 steps, controller": lambda: soa.rollout(robot, q, v, brake, 1e-3, steps=100),
    }


def brake(time, q, v):
    return -v


def seconds(call) -> float:
    begun = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begun


def main() -> None:
    robot = soa.load_urdf(sys.argv[1]) if len(sys.argv) > 1 else soa.models.puma560()
    print(f"{robot!r}, float64; milliseconds")
    print(f"{'':34}{'first':>10}{'third':>10}")
    chosen = sys.argv[2:]
    for name, call in calls(robot).items():
        if chosen and name not in chosen:
            continue
        first, _, *rest = (seconds(call) for _ in range(6))
        print(f"{name:34}{1e3 * first:10.1f}{1e3 * min(rest):10.3f}", flush=True)


if __name__ == "__main__":
    main()
