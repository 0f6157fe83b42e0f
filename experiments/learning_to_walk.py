"""A quadruped (solo12) learns to walk a metre from rest: by gradients through contact, and without derivatives.

    pip install -e ".[test]" && python experiments/learning_to_walk.py [--harmonics 3] [--film walk.gif]

Servos follow a trot of thirteen numbers (swing, lift, their offsets and phases for front and hind legs, and the
rhythm), which at first marches on the spot; with `--harmonics` h every joint has a Fourier series of its own besides,
24 h numbers more. What is minimized is the distance from 1.1 m ahead after three seconds,
with what turns, sinks or strays aside. Two ways to the same goal, on the same simulator and the same processor:

- Adam by the reverse-mode derivative of the whole rollout, some 600 steps of contact that sticks, slips and breaks.
- CMA-ES (Hansen 2016, here in forty lines), which sees values only, a population at once.

Printed are the rollouts that each took until the robot had walked a metre, and the time, compilation apart.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from typing import NamedTuple

os.environ.setdefault("JAX_ENABLE_X64", "1")
warnings.simplefilter("ignore")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from contact_benchmark import quadruped  # noqa: E402

import jaxsoa as soa  # noqa: E402

DT, STEPS, GOAL = 5e-3, 600, 1.0
STIFFNESS, DAMPING, ROTOR = 12.0, 0.25, 0.005  # of the servos: N m/rad, N m s/rad, kg m^2
#: Thirteen numbers: swing, lift, offsets of hip and knee, phases of both (rad), for front and hind; rhythm (Hz).
START = np.array([0.0, 0.2, 0.0, 0.0, 0.0, 0.0] * 2 + [2.0])
UNIT = np.array([0.2, 0.2, 0.1, 0.1, 0.5, 0.5] * 2 + [0.4])


class Outcome(NamedTuple):
    """What became of a gait."""

    cost: jax.Array
    way: jax.Array  # m forward, and on its feet


def walker(gradient: str):
    """(robot, scene, outcome of x (13 + 24 h,), its motion q (steps, nq)); x is the gait in units of `UNIT` from
    `START`, then a series for each joint in units of 0.05 rad."""
    robot, scene, standing = quadruped()
    servo = jnp.arange(robot.nv) >= 6
    robot = robot.replace(armature=jnp.where(servo, ROTOR, 0.0))
    scene = scene.replace(gradient=gradient)
    hips, knees = (
        [robot.q_index(f"{leg}_{part}").start for leg in ("FL", "FR", "HL", "HR")] for part in ("HFE", "KFE")
    )
    early = jnp.array([0.0, jnp.pi, jnp.pi, 0.0])  # a trot: diagonal legs together

    def reference(gait, series, t):
        swing, lift, hip, knee, hip_phase, knee_phase = jnp.repeat(gait[:12].reshape(2, 6), 2, axis=0).T
        angle = 2 * jnp.pi * gait[12] * t + early
        begun = jnp.minimum(t / 0.3, 1.0)
        forward = jnp.array([1.0, 1.0, -1.0, -1.0])  # knees of front and hind legs bend to each other
        q = standing.at[jnp.array(hips)].add(begun * (swing * jnp.sin(angle + hip_phase) + hip))
        up = jnp.maximum(jnp.cos(angle + knee_phase), 0)  # the knee bends more while the leg is in the air
        q = q.at[jnp.array(hips)].add(begun * forward * lift * up / 2)
        q = q.at[jnp.array(knees)].add(-begun * forward * (lift * up + knee))
        turns = 2 * jnp.pi * gait[12] * t * (1 + jnp.arange(series.shape[2]))
        own = jnp.sum(series[0] * jnp.sin(turns) + series[1] * jnp.cos(turns), axis=1)
        return q.at[7:].add(begun * own)

    def rolled(x, record):
        gait, series = jnp.asarray(START) + jnp.asarray(UNIT) * x[:13], 0.05 * x[13:].reshape(2, 12, -1)

        def torque(t, q, v):
            return jnp.where(servo, -STIFFNESS * robot.difference(reference(gait, series, t), q) - DAMPING * v, 0.0)

        return soa.rollout(robot, standing, jnp.zeros(robot.nv), torque, DT, steps=STEPS, contact=scene, record=record)

    def outcome(x) -> Outcome:
        q = rolled(x, lambda sample: sample.q[:7])
        w, a, b, c = q[:, :4].T
        upright = 1 - 2 * (a * a + b * b)  # the cosine of its tilt
        heading = 2 * (w * c + a * b)
        sunk = jnp.maximum(0.16 - q[:, 6], 0)
        away = (q[-1, 4] - 1.1) ** 2 + q[-1, 5] ** 2
        cost = away + jnp.mean(5 * (1 - upright) + 0.5 * heading**2 + 50 * sunk**2) + 1e-3 * jnp.sum(x**2)
        return Outcome(cost, jnp.where((upright > 0.8).all() & (q[-1, 6] > 0.1), q[-1, 4], 0.0))

    return robot, scene, outcome, lambda x: rolled(x, None).q


def first(n: int) -> np.ndarray:
    """A hint of a swing: without any, forward and backward are alike."""
    x = np.zeros(n)
    x[[0, 6]] = 0.25
    return x


def by_gradients(outcome, n: int, rate: float, most: int):
    """Adam: yields (x, way, cost) of each iterate."""

    def cost(x):
        found = outcome(x)
        return found.cost, found.way

    step = jax.jit(jax.value_and_grad(cost, has_aux=True)).lower(jnp.zeros(n)).compile()
    yield  # compiled

    x = jnp.asarray(first(n))
    mean = square = jnp.zeros(n)
    for k in range(1, most + 1):
        (value, way), slope = step(x)
        yield np.asarray(x), float(way), float(value), 1
        slope = slope / jnp.maximum(jnp.linalg.norm(slope), 1.0)
        mean, square = 0.8 * mean + 0.2 * slope, 0.95 * square + 0.05 * slope**2
        x = x - rate * (mean / (1 - 0.8**k)) / (jnp.sqrt(square / (1 - 0.95**k)) + 1e-8)


def by_evolution(outcome, n: int, size: float, most: int, seed: int = 0):
    """CMA-ES with its usual constants: yields the best of each generation."""
    population = 4 + int(3 * np.log(n))
    parents = population // 2
    weights = np.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
    weights /= weights.sum()
    mu = 1 / np.sum(weights**2)
    c_sigma, d_sigma = (mu + 2) / (n + mu + 5), 1 + (mu + 2) / (n + mu + 5)
    c_c, c_1 = (4 + mu / n) / (n + 4 + 2 * mu / n), 2 / ((n + 1.3) ** 2 + mu)
    c_mu = min(1 - c_1, 2 * (mu - 2 + 1 / mu) / ((n + 2) ** 2 + mu))
    expected = np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
    # One after another is as fast as a batch on a processor: no gait waits for another's hardest contact.
    evaluate = jax.jit(lambda x: jax.lax.map(outcome, x)).lower(jnp.zeros((population, n))).compile()
    yield

    rng = np.random.default_rng(seed)
    m = first(n)
    C, p_c, p_sigma, sigma = np.eye(n), np.zeros(n), np.zeros(n), size
    for k in range(most):
        values, B = np.linalg.eigh(C)
        D = np.sqrt(np.maximum(values, 1e-14))
        y = rng.normal(size=(population, n)) * D @ B.T
        x = m + sigma * y
        found = evaluate(jnp.asarray(x))
        order = np.argsort(np.nan_to_num(np.asarray(found.cost), nan=np.inf))
        best = int(np.argmax(np.asarray(found.way)))
        yield x[best], float(found.way[best]), float(found.cost[order[0]]), population
        chosen = y[order[:parents]]
        step = weights @ chosen
        m = m + sigma * step
        p_sigma = (1 - c_sigma) * p_sigma + np.sqrt(c_sigma * (2 - c_sigma) * mu) * (step @ B / D) @ B.T
        steady = np.linalg.norm(p_sigma) < (1.4 + 2 / (n + 1)) * expected * np.sqrt(1 - (1 - c_sigma) ** (2 * k + 2))
        p_c = (1 - c_c) * p_c + steady * np.sqrt(c_c * (2 - c_c) * mu) * step
        C = (1 - c_1 - c_mu) * C + c_1 * np.outer(p_c, p_c) + c_mu * (chosen.T * weights) @ chosen
        sigma *= np.exp(c_sigma / d_sigma * (np.linalg.norm(p_sigma) / expected - 1))


def learned(name: str, search, show: bool):
    """Until it walks a metre; (gait, rollouts, seconds, seconds of processors)."""
    begun = time.perf_counter()
    next(search)
    compiled = time.perf_counter() - begun
    begun, cpu, rollouts, furthest = time.perf_counter(), time.process_time(), 0, 0.0
    x, way = None, 0.0
    for x, way, cost, count in search:  # noqa: B007
        rollouts += count
        furthest = max(furthest, way)
        if show:
            print(f"  {rollouts:5d} rollouts: {way:6.3f} m, cost {cost:.4f}", flush=True)
        if way >= GOAL:
            break
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    did = "walked" if way >= GOAL else "did not walk"
    print(f"{name:<12} {did} a metre (best {furthest:.3f} m) after {rollouts} rollouts,")
    print(f"{'':<12} {seconds:.1f} s, {cpu:.1f} s of processors; compiled in {compiled:.1f} s", flush=True)
    return x


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradient", default="relaxed", choices=("exact", "relaxed", "distance"))
    parser.add_argument("--harmonics", type=int, default=0, help="of a Fourier series for every joint")
    parser.add_argument("--rate", type=float, default=0.1, help="of Adam")
    parser.add_argument("--most", type=int, default=100, help="steps of Adam; generations of CMA-ES")
    parser.add_argument("--only", choices=("gradients", "evolution"))
    parser.add_argument("--show", action="store_true", help="every iterate")
    parser.add_argument("--film", help="a GIF of the gait that gradients found")
    options = parser.parse_args()
    robot, scene, outcome, motion = walker(options.gradient)
    n = 13 + 24 * options.harmonics
    if options.only != "evolution":
        gait = learned("gradients", by_gradients(outcome, n, options.rate, options.most), options.show)
        if options.film:
            q = jax.jit(motion)(jnp.asarray(gait))
            soa.viz.film(robot, q, options.film, dt=DT, contact=scene)
    if options.only != "gradients":
        learned("evolution", by_evolution(outcome, n, 0.5, options.most), options.show)
