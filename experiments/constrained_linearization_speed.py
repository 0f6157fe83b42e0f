"""Linearized mechanisms, grasps, embedded and hybrid motion: the analytical models beside forward mode.

Microseconds per evaluation of every derivative by q, v and torques: by the `linearize_...` function, by `jax.jacfwd`
of the function that it linearizes (a tangent costs O(N) there, by the derivative rule), and by `jax.jacfwd` of the same
motion written with dense matrices, an inverse and a pseudo-inverse or a least-squares solve. Processor time of all
threads, the lower quartile of interleaved repetitions, one state at a time and a batch of states under `jax.vmap`;
answers are compared before anything is timed.

With `--before`, a checkout of an earlier version, also by `jax.jacfwd` of its functions, in a process of its own that
takes its turn among the repetitions.

    python experiments/constrained_linearization_speed.py [--before DIR] [--batch 64, 1 for none] [--repetitions 15]
        [--only NAME ...] [--without-dense, which takes minutes to compile]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import Array  # noqa: E402

import jaxsoa as soa  # noqa: E402
from jaxsoa import closed_chain as cc  # noqa: E402


class Case(NamedTuple):
    """Three functions of one flat state (n,), each to the same matrix (rows, n), and the state."""

    analytical: Callable[[Array], Array]
    function: Callable[[Array, Array], Array]  # (state, tangent) -> the motion at the moved state
    dense: Callable[[Array, Array], Array]
    state: Array
    tangents: int


def least_forces(M: Array, J: Array, force: Array, bias: Array) -> Array:
    """a of M a = force + J* f, J a + bias = 0 by dense matrices."""
    inverse = jnp.linalg.inv(M)
    free = inverse @ force
    return free - inverse @ J.T @ jnp.linalg.pinv(J @ inverse @ J.T, rtol=1e-10) @ (J @ free + bias)


def loops(mechanism: cc.mechanisms.Mechanism) -> Case:
    """`linearize_loop_forward_dynamics` of a closed mechanism that moves."""
    robot, loop, guess = mechanism
    rng = np.random.default_rng(0)
    nq, nv = robot.nq, robot.nv
    v, tau = rng.normal(size=nv), rng.normal(size=nv)
    q = jax.jit(lambda q: cc.close_loops(robot, loop, q))(guess)
    v = jax.jit(lambda q, v: cc.project_velocity(robot, loop, q, v))(q, v)

    def moved(state, d):
        dq, dv, dtau = jnp.split(d, 3)
        return robot.integrate(state[:nq], dq), state[nq : nq + nv] + dv, state[nq + nv :] + dtau

    def analytical(state):
        found = cc.linearize_loop_forward_dynamics(robot, loop, state[:nq], state[nq : nq + nv], state[nq + nv :])
        return jnp.concatenate([found.wrt_q, found.wrt_v, found.wrt_tau], axis=1)

    def function(state, d):
        return cc.loop_forward_dynamics(robot, loop, *moved(state, d)).a

    def dense(state, d):
        q, v, tau = moved(state, d)
        bias = jax.jvp(lambda t: cc.loop_jacobian(robot, loop, robot.integrate(q, t * v)) @ v, (0.0,), (1.0,))[1]
        force = tau - soa.bias_force(robot, q, v)
        return least_forces(soa.mass_matrix(robot, q), cc.loop_jacobian(robot, loop, q), force, bias)

    return Case(analytical, function, dense, jnp.concatenate([q, v, tau]), 3 * nv)


def grasp(contacts: tuple[cc.Contact, cc.Contact]) -> Case:
    """`linearize_grasp_forward_dynamics` of two arms of seven joints and a box; by the object's pose too."""
    system, q, (R, p) = cc.mechanisms.two_arm_grasp(contacts)
    rng, n = np.random.default_rng(1), 7
    state = jnp.concatenate([*q, *(0.3 * rng.normal(size=2 * n), rng.normal(size=2 * n))])

    def split(state):
        return [tuple(jnp.split(x, 2)) for x in jnp.split(state, 3)]

    def moved(state, d):
        x, y, z = d[-6:-3]
        turn = jax.scipy.linalg.expm(jnp.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]))
        return (*split(state + d[:-6]), (turn @ R, p + d[-3:]))

    def analytical(state):
        found = cc.linearize_grasp_forward_dynamics(system, *split(state), (R, p))
        joints = [found.wrt_q, found.wrt_v, found.wrt_tau, found.wrt_pose]
        body = [found.object_wrt_q, found.object_wrt_v, found.object_wrt_tau, found.object_wrt_pose]
        return jnp.concatenate([jnp.concatenate(joints, axis=1), jnp.concatenate(body, axis=1)])

    def by(method):
        def function(state, d):
            q, v, tau, pose = moved(state, d)
            s = cc.grasp_forward_dynamics(system, q, v, tau, pose, method=method)
            return jnp.concatenate([*s.a, s.object_acceleration])

        return function

    return Case(analytical, by("auto"), by("dense"), state, 6 * n + 6)


def embedded(mechanism: cc.mechanisms.Mechanism, independent: list[str]) -> Case:
    """`linearize_embedded_dynamics` in minimal coordinates."""
    robot, loop, guess = mechanism
    embedding = cc.embed(robot, loop, independent, guess)
    nq, ny = robot.nq, embedding.nv
    rng = np.random.default_rng(2)
    q = jax.jit(lambda q: cc.close_loops(robot, loop, q))(guess)

    def analytical(state):
        found = cc.linearize_embedded_dynamics(embedding, state[:nq], state[nq : nq + ny], state[nq + ny :])
        return jnp.concatenate([found.wrt_y, found.wrt_rates, found.wrt_tau], axis=1)

    def by(method):
        def function(state, d):
            q, rates, tau = state[:nq], state[nq : nq + ny] + d[ny : 2 * ny], state[nq + ny :] + d[2 * ny :]
            q = embedding.expand(embedding.coordinates(q) + d[:ny], q)
            return cc.embedded_forward_dynamics(embedding, q, rates, tau, method=method).rates

        return function

    state = jnp.concatenate([q, rng.normal(size=ny), rng.normal(size=robot.nv)])
    return Case(analytical, by("aggregate"), by("dense"), state, 2 * ny + robot.nv)


def hybrid(robot: soa.Multibody) -> Case:
    """`linearize_hybrid_dynamics`: every third degree of freedom prescribed; accelerations and torques."""
    nq, nv = robot.nq, robot.nv
    mask = jnp.arange(nv) % 3 == 0
    rng = np.random.default_rng(3)
    q = robot.integrate(robot.neutral(), 0.4 * rng.normal(size=nv))
    v, a, tau = rng.normal(size=(3, nv))

    def split(state):
        return (state[:nq], *jnp.split(state[nq:], 3))

    def analytical(state):
        return jnp.concatenate(
            [jnp.concatenate(x, axis=1) for x in soa.linearize_hybrid_dynamics(robot, *split(state), mask)]
        )

    def moved(state, d):
        q, v, a, tau = split(state)
        dq, dv, da, dtau = jnp.split(d, 4)
        return robot.integrate(q, dq), v + dv, a + da, tau + dtau

    def function(state, d):
        return jnp.concatenate(soa.hybrid_dynamics(robot, *moved(state, d), mask))

    def dense(state, d):
        q, v, a, tau = moved(state, d)
        M, bias = soa.mass_matrix(robot, q), soa.bias_force(robot, q, v)
        given = jnp.where(mask, a, 0)
        both = ~mask[:, None] & ~mask
        solved = jnp.linalg.solve(jnp.where(both, M, jnp.eye(nv)), jnp.where(mask, 0, tau - bias - M @ given))
        a = given + solved
        return jnp.concatenate([a, jnp.where(mask, M @ a + bias, tau)])

    return Case(analytical, function, dense, jnp.concatenate([q, v, a, tau]), 4 * nv)


CASES: dict[str, Callable[[], Case]] = {
    "loop, four-bar": lambda: loops(cc.mechanisms.four_bar()),
    "loop, Stewart platform": lambda: loops(cc.mechanisms.stewart()),
    "grasp, rigid": lambda: grasp((cc.Rigid(), cc.Rigid())),
    "grasp, soft finger and point": lambda: grasp((cc.SoftFinger((1, 0, 0)), cc.Point())),
    "embedded, five-bar": lambda: embedded(cc.mechanisms.five_bar(), ["left1_joint", "right1_joint"]),
    "hybrid, floating tree of 24 joints": lambda: hybrid(
        soa.models.random_tree(5, 24, ("revolute",), floating_base=True)
    ),
}


def forward_mode(function: Callable, still: Array) -> Callable[[Array], Array]:
    return lambda state: jax.jacfwd(lambda d: function(state, d))(still)


def sample(f: Callable, argument: Array, calls: int) -> float:
    """Seconds of processor time of a call."""
    began = time.process_time()
    for _ in range(calls):
        out = f(argument)
    jax.block_until_ready(out)
    return (time.process_time() - began) / calls


def sampler(f: Callable, argument: Array) -> Callable[[], float]:
    """Calls are gathered until a sample takes some milliseconds."""
    jax.block_until_ready(f(argument))
    calls = max(1, int(5e-3 / sample(f, argument, 1)))
    return lambda: sample(f, argument, calls)


def typical(samplers: dict[str, Callable[[], float]], repetitions: int) -> dict[str, float]:
    """Microseconds, the lower quartile of interleaved samples.

    Not the least: on a busy machine the clock of processor time now and then leaves a part out.
    """
    samples = [{name: once() for name, once in samplers.items()} for _ in range(repetitions)]
    return {name: 1e6 * float(np.quantile([x[name] for x in samples], 0.25)) for name in samplers}


class Before:
    """Forward mode through the functions of an earlier version, which waits for its turn."""

    def __init__(self, folder: str, name: str, batch: int):
        command = [sys.executable, __file__, "--forward", "--batch", str(batch), "--only", name]
        self.process = subprocess.Popen(
            command,
            text=True,
            env=os.environ | {"PYTHONPATH": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.ask("ready")

    def ask(self, word: str) -> str:
        assert self.process.stdin and self.process.stdout
        print(word, file=self.process.stdin, flush=True)
        return self.process.stdout.readline()

    def __call__(self) -> float:
        return float(self.ask("sample"))

    def close(self) -> None:
        self.process.communicate()


def serve(name: str, batch: int) -> None:
    """Forward mode alone: a sample for every line that is read."""
    case = CASES[name]()
    f = forward_mode(case.function, jnp.zeros(case.tangents))
    once = sampler(*of_states(f, case.state, batch))
    for _ in sys.stdin:
        print(once(), flush=True)


def of_states(f: Callable, state: Array, states: int) -> tuple[Callable, Array]:
    return (jax.jit(f), state) if states == 1 else (jax.jit(jax.vmap(f)), jnp.tile(state, (states, 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES), metavar="NAME")
    parser.add_argument("--before", help="a folder with the package of an earlier version")
    parser.add_argument("--without-dense", action="store_true")
    parser.add_argument("--forward", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.forward:
        return serve(options.only[0], options.batch)
    print(
        f"{'':36}{'states':>7}{'analytical':>12}{'jacfwd':>10}{'dense':>10}{'before':>10}   us a state, times as long"
    )
    for name in options.only:
        case = CASES[name]()
        still = jnp.zeros(case.tangents)
        of_one = {"analytical": case.analytical, "jacfwd": forward_mode(case.function, still)}
        if not options.without_dense:
            of_one["dense"] = forward_mode(case.dense, still)
        for states in (1, options.batch) if options.batch > 1 else (1,):
            programs = {k: of_states(f, case.state, states) for k, f in of_one.items()}
            answers = {k: np.asarray(f(argument)) for k, (f, argument) in programs.items()}
            for k, x in answers.items():
                np.testing.assert_allclose(
                    x, answers["analytical"], atol=1e-7 * np.abs(answers["analytical"]).max(), err_msg=k
                )
            samplers: dict[str, Callable[[], float]] = {k: sampler(*program) for k, program in programs.items()}
            before = Before(options.before, name, states) if options.before else None
            found = typical(samplers | ({"before": before} if before else {}), options.repetitions)
            if before:
                before.close()
            t = {k: found[k] / states if k in found else np.nan for k in ("analytical", "jacfwd", "dense", "before")}
            columns = "".join(f"{x:>{w}.1f}" for x, w in zip(t.values(), (12, 10, 10, 10), strict=True))
            ratios = " ".join(f"{x / t['analytical']:.1f}" for x in list(t.values())[1:])
            print(f"{name:36}{states:>7}{columns}   {ratios}", flush=True)


if __name__ == "__main__":
    main()
