"""Do closed chains conserve energy? Four-bar, five-bar, Stewart platform and a two-arm grasp, let go under gravity.

The platform's legs and the grasping arms' joints are sprung (conservative too), so that they swing for ever instead of
falling out of their workspace.

Integrator: the classical Runge-Kutta method of fourth order with a fixed step, then one projection onto the
constraints (positions by Newton, velocities by the kinetic metric). Prints the largest relative drift of the total
energy (against the largest kinetic energy reached) and the largest constraint error.

    python experiments/closed_chain_energy.py [--seconds 10] [--step 1e-3] [four-bar five-bar stewart grasp]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import jaxsoa as soa  # noqa: E402
from jaxsoa import closed_chain as cc  # noqa: E402
from jaxsoa.simulate import INTEGRATORS  # noqa: E402


class Run(NamedTuple):
    """What one simulation found."""

    drift: float  # largest |E(t) - E(0)| over the largest kinetic energy
    position_error: float
    velocity_error: float
    swing: float  # largest kinetic energy, J: that it moved at all
    seconds: float  # time the computation took, without compilation


def runge_kutta(derivative, move, x, dt):
    """One classical step; `move(x, dx)` adds a tangent to a state. A loop over stages compiles the dynamics once."""

    def stage(carry, coefficients):
        slope, total = carry
        node, weight = coefficients
        slope = derivative(move(x, jax.tree.map(lambda k: dt * node * k, slope)))
        return (slope, jax.tree.map(lambda sum, k: sum + weight * k, total, slope)), None

    zero = jax.tree.map(lambda k: jnp.zeros(k.shape, k.dtype), jax.eval_shape(derivative, x))
    coefficients = jnp.array([0, 0.5, 0.5, 1]), jnp.array([1, 2, 2, 1]) / 6
    (_, total), _ = jax.lax.scan(stage, (zero, zero), coefficients)
    return move(x, jax.tree.map(lambda k: dt * k, total))


def _report(step, start, steps: int) -> Run:
    """Simulate; `step` returns the kinetic and potential energy and the errors of position and velocity."""
    simulate = jax.jit(lambda x: jax.lax.scan(step, x, None, length=steps)[1]).lower(start).compile()
    began = time.perf_counter()
    kinetic, potential, position, velocity = jax.block_until_ready(simulate(start))
    took = time.perf_counter() - began
    total, swing = kinetic + potential, jnp.max(kinetic)
    drift = jnp.max(jnp.abs(total - total[0])) / swing
    return Run(*(float(x) for x in (drift, jnp.max(position), jnp.max(velocity), swing)), took)


def mechanism_run(mechanism: cc.mechanisms.Mechanism, seconds: float, dt: float, springs: dict | None = None) -> Run:
    """A tree with loops, from rest in the closed configuration, falling. `springs`: stiffness of sliders, by name."""
    robot, loops, guess = mechanism
    rest = jax.jit(lambda q: cc.close_loops(robot, loops, q))(guess)
    still = jnp.zeros(robot.nv)
    names = list(springs or {})
    at_q = jnp.array([robot.q_index(n).start for n in names], int)
    at_v = jnp.array([robot.v_index(n).start for n in names], int)
    stiffness = jnp.array([(springs or {})[n] for n in names])

    def acceleration(q, v):
        tau = still.at[at_v].set(-stiffness * (q - rest)[at_q])
        return cc.loop_forward_dynamics(robot, loops, q, v, tau).a

    def step(x, _):
        # The library's method, since it knows how to average velocities of a free joint.
        q, v = INTEGRATORS["rk4"](robot, acceleration, *x, dt)
        q, v = cc.project(robot, loops, q, v, iterations=1)
        errors = jnp.abs(cc.loop_errors(robot, loops, q)), jnp.abs(cc.loop_jacobian(robot, loops, q) @ v)
        springs = jnp.sum(stiffness * (q - rest)[at_q] ** 2) / 2
        energies = soa.kinetic_energy(robot, q, v), soa.potential_energy(robot, q) + springs
        return (q, v), (*energies, *(jnp.max(e) for e in errors))

    return _report(step, (rest, still), round(seconds / dt))


def turned(R, w):
    """R turned by the rotation vector w (world axes)."""
    angle = jnp.sqrt(jnp.sum(w * w) + 1e-300)
    K = jnp.cross(jnp.eye(3), w / angle)  # the matrix of w x
    return (jnp.eye(3) + jnp.sin(angle) * K + (1 - jnp.cos(angle)) * K @ K) @ R


def grasp_run(grasp: cc.mechanisms.Grasp, seconds: float, dt: float, stiffness: float = 40.0) -> Run:
    """Arms and the object they hold, from rest, falling. The object's pose and velocity are part of the state."""
    system, q0, (R0, p0) = grasp
    still = tuple(jnp.zeros(arm.robot.nv) for arm in system.arms)
    rotations = jax.jit(lambda: cc.grasp_rotations(system, q0, (R0, p0)))()

    # State: (q, v, turn, p, V), the turn a rotation vector from the step's first orientation.
    def derivative(x, R):
        q, v, turn, p, V = x
        tau = tuple(stiffness * (rest - x) for rest, x in zip(q0, q, strict=True))
        s = cc.grasp_forward_dynamics(system, q, v, tau, (turned(R, turn), p), object_velocity=V)
        return v, s.a, turn_rate(turn, V[:3]), V[3:], s.object_acceleration

    def move(x, dx):
        q = tuple(arm.robot.integrate(a, b) for arm, a, b in zip(system.arms, x[0], dx[0], strict=True))
        return q, *jax.tree.map(jnp.add, x[1:], dx[1:])

    def energies(q, v, R, p, V):
        w, center = V[:3], p + R @ system.body.com
        speed = V[3:] + jnp.cross(w, R @ system.body.com)
        kinetic = (system.body.mass * speed @ speed + w @ R @ system.body.inertia @ R.T @ w) / 2
        kinetic += sum(soa.kinetic_energy(a.robot, x, y) for a, x, y in zip(system.arms, q, v, strict=True))
        potential = -system.body.mass * system.gravity @ center
        potential += sum(soa.potential_energy(a.robot, x) for a, x in zip(system.arms, q, strict=True))
        potential += sum(stiffness * jnp.sum((x - rest) ** 2) / 2 for rest, x in zip(q0, q, strict=True))
        return kinetic, potential

    def step(x, _):
        q, v, R, p, V = x
        start = (q, v, jnp.zeros(3), p, V)
        q, v, turn, p, V = runge_kutta(lambda x: derivative(x, R), move, start, dt)
        R = turned(R, turn)
        q, v = cc.project_grasp(system, q, v, (R, p), V, rotations, iterations=1)
        state = cc.grasp_state(system, q, v, (R, p), object_velocity=V)
        errors = jnp.max(jnp.abs(state.position_error)), jnp.max(jnp.abs(state.velocity_error))
        return (q, v, R, p, V), (*energies(q, v, R, p, V), *errors)

    x = (q0, still, R0, p0, jnp.zeros(6))
    return _report(step, x, round(seconds / dt))


def turn_rate(turn, w):
    """Rate of a rotation vector at angular velocity w: its series, exact enough within one step."""
    cross = jnp.cross(turn, w)
    return w - cross / 2 + jnp.cross(turn, cross) / 12


LEG_SPRINGS = {f"leg{k}": 300.0 + 50 * k for k in range(6)}  # N/m, unequal so that the platform also tilts


class Experiment(NamedTuple):
    run: Callable[[float, float], Run]  # seconds, step
    step: float  # s, small enough for the fastest part of the motion


RUNS = {
    "four-bar": Experiment(lambda t, dt: mechanism_run(cc.mechanisms.four_bar(), t, dt), 2e-3),
    # Its arms whip through stretched positions.
    "five-bar": Experiment(lambda t, dt: mechanism_run(cc.mechanisms.five_bar(), t, dt), 1e-3),
    "stewart": Experiment(lambda t, dt: mechanism_run(cc.mechanisms.stewart(), t, dt, LEG_SPRINGS), 2e-3),
    "grasp": Experiment(lambda t, dt: grasp_run(cc.mechanisms.two_arm_grasp(), t, dt), 2e-3),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(RUNS), help=f"some of {', '.join(RUNS)}")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--step", type=float, default=None, help="s; default: 1 or 2 ms, by mechanism")
    arguments = parser.parse_args()
    print(f"Runge-Kutta 4, {arguments.seconds:g} s, projection after every step")
    print(
        f"{'mechanism':<10} {'step, ms':>8} {'energy drift':>13} {'position':>10} {'velocity':>10} {'swing, J':>9} "
        f"{'took, s':>8}"
    )
    for name in arguments.names:
        step = arguments.step or RUNS[name].step
        run = RUNS[name].run(arguments.seconds, step)
        print(
            f"{name:<10} {step * 1e3:>8g} {run.drift:>13.2e} {run.position_error:>10.1e} {run.velocity_error:>10.1e} "
            f"{run.swing:>9.2f} {run.seconds:>8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
