"""Order of accuracy, energy drift and momentum of every integrator, measured.

    python experiments/integrator_accuracy.py [--seconds 20] [--picture experiments/pictures/integrators.svg]

Order: a free-flying arm (free, spherical and revolute joints: nothing commutes) for 0.2 s in ever smaller steps,
against Runge-Kutta 4 with far smaller ones. Energy: a PUMA 560 falling without friction; and a double pendulum for a
minute at 1 ms, with the time a step takes (ratios mean something on an idle machine only). Momentum: the free-flying
arm without gravity, its joint torques arbitrary; the integrators as they are, and under `conserving_momentum`.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

os.environ["JAX_ENABLE_X64"] = "1"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxsoa as soa
from jaxsoa import simulate

COUNTS = (8, 16, 32, 64, 128)
SPAN = 0.2


def runner(integrator):
    """(robot, q, v, tau, dt, steps) -> final state; compiled once for all numbers of steps."""

    def run(robot, q, v, tau, dt, steps):
        def advance(_, state):
            return simulate.State(*soa.step(robot, *state, tau, dt, integrator=integrator))

        return lax.fori_loop(0, steps, advance, simulate.State(q, v))

    return jax.jit(run)


def measure_orders(robot, runners) -> dict:
    """Errors of each integrator at the numbers of steps COUNTS, and the slope of the last two halvings."""
    q, v, tau = robot.random(jax.random.key(0)), jnp.linspace(-1.0, 1.5, robot.nv), jnp.zeros(robot.nv)
    exact = runners["rk4"](robot, q, v, tau, SPAN / 2048, 2048)
    results = {}
    for name, run in runners.items():
        ends = [run(robot, q, v, tau, SPAN / n, n) for n in COUNTS]
        apart = [jnp.concatenate([robot.difference(exact.q, end.q), end.v - exact.v]) for end in ends]
        errors = np.array([float(jnp.linalg.norm(x)) for x in apart])
        results[name] = errors, np.log2(errors[-3] / errors[-1]) / 2
    return results


def measure_energy(seconds: float, dt: float) -> tuple[np.ndarray, dict]:
    """Energy over time, relative to the kinetic energy that the fall can give, for each integrator."""
    robot = soa.models.puma560()
    q, v = jnp.array([0.3, 0.2, -0.4, 0.1, 0.5, 0.2]), jnp.zeros(robot.nv)
    steps = round(seconds / dt)
    every = max(1, steps // 400)
    steps -= steps % every

    def energy(s):
        kinetic = soa.kinetic_energy(robot, s.q, s.v)
        return kinetic + soa.potential_energy(robot, s.q), kinetic

    def record(integrator):
        options = {"steps": steps, "integrator": integrator, "record": energy, "every": every, "progress": True}
        return jax.jit(lambda q, v: soa.rollout(robot, q, v, None, dt, **options))(q, v)

    start = float(soa.potential_energy(robot, q))
    times = dt * every * np.arange(1, steps // every + 1)
    results = {}
    for name in simulate.INTEGRATORS:
        total, kinetic = record(name)
        results[name] = np.asarray(total - start) / float(kinetic.max())
    return times, results


def measure_double_pendulum(seconds: float = 60.0, dt: float = 1e-3) -> dict:
    """Largest energy error, mean of the last fifth less mean of the first fifth, and microseconds a step.

    Relative to what the fall can give. Energy must neither drift nor, with an accurate method, oscillate.
    """
    robot = soa.models.pendulum(2).frictionless()
    q, v = jnp.array([2.0, 0.5]), jnp.zeros(2)
    steps, every = round(seconds / dt), 100
    first, lowest = (float(soa.potential_energy(robot, x)) for x in (q, jnp.zeros(2)))
    results = {}
    for name in simulate.INTEGRATORS:

        def energy(s):
            return soa.kinetic_energy(robot, s.q, s.v) + soa.potential_energy(robot, s.q)

        options = {"steps": steps, "integrator": name, "record": energy, "every": every}
        run = jax.jit(lambda q, v, options=options: soa.rollout(robot, q, v, None, dt, **options))
        error = (np.asarray(run(q, v)) - first) / abs(first - lowest)
        begin = time.perf_counter()
        run(q, v).block_until_ready()
        fifth = len(error) // 5
        drift = error[-fifth:].mean() - error[:fifth].mean()
        results[name] = np.abs(error).max(), drift, 1e6 * (time.perf_counter() - begin) / steps
    return results


def measure_momentum(robot, runners, steps: int = 200) -> dict:
    """Largest change of momentum over 0.2 s, relative to its size."""
    robot = robot.with_gravity(jnp.zeros(3))
    q, v = robot.random(jax.random.key(0)), jnp.linspace(-1.0, 1.5, robot.nv)
    tau = jnp.linspace(2.0, -2.0, robot.nv).at[:6].set(0)  # torques between links only: they change no momentum
    momentum = jax.jit(soa.momentum)
    before = momentum(robot, q, v)
    ends = {name: run(robot, q, v, tau, SPAN / steps, steps) for name, run in runners.items()}
    changes = {name: momentum(robot, *end) - before for name, end in ends.items()}
    return {name: float(jnp.abs(change).max() / jnp.abs(before).max()) for name, change in changes.items()}


def draw(path: Path, orders: dict, times: np.ndarray, energies: dict) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    plt.rcParams["svg.hashsalt"] = "jaxsoa"  # the same figures give the same file
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    for name, (errors, order) in orders.items():
        left.loglog(SPAN / np.array(COUNTS), errors, "o-", label=f"{name}: order {order:.2f}")
    left.set(xlabel="step (s)", ylabel="error of the state after 0.2 s", title="free-flying arm")
    for name, energy in energies.items():
        right.semilogy(times, np.maximum(np.abs(energy), 1e-17), label=name)
    right.set(xlabel="time (s)", ylabel="energy error / largest kinetic energy", title="PUMA 560 falling")
    left.xaxis.set_minor_formatter(NullFormatter())
    left.legend(loc="lower right")
    right.legend(loc=(0.03, 0.4))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated time of the energy test")
    parser.add_argument("--dt", type=float, default=1e-3, help="step of the energy test")
    parser.add_argument("--picture", type=Path, help="draw both to this file (needs matplotlib)")
    options = parser.parse_args()

    arm = soa.models.random_tree(3, 3, kinds=["spherical", "revolute"], shape="chain", floating_base=True)
    runners = {name: runner(name) for name in simulate.INTEGRATORS}
    orders = measure_orders(arm, runners)
    for name, (errors, order) in orders.items():
        print(f"{name:36s} order {order:5.2f}   errors {' '.join(f'{e:.1e}' for e in errors)}")
    for base in ("semi_implicit_euler", "rk4"):
        runners[f"conserving_momentum({base!r})"] = runner(simulate.conserving_momentum(base))
    for name, change in measure_momentum(arm, runners).items():
        print(f"{name:36s} relative change of momentum in 200 steps of 1 ms {change:.1e}")
    for name, (largest, drift, cost) in measure_double_pendulum().items():
        print(f"{name:36s} double pendulum, 60 s: energy error {largest:.1e}, drift {drift:+.1e}, {cost:.1f} us a step")
    times, energies = measure_energy(options.seconds, options.dt)
    for name, energy in energies.items():
        half = len(energy) // 2
        early, late = np.abs(energy[:half]).max(), np.abs(energy[half:]).max()
        print(f"{name:36s} energy error, first / second half of {times[-1]:g} s: {early:.1e} / {late:.1e}")
    if options.picture:
        draw(options.picture, orders, times, energies)
        print(f"picture: {options.picture}")


if __name__ == "__main__":
    main()
