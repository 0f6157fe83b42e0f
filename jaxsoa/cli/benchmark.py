"""The states are random; repetitions are interleaved and the fastest counts. Where Pinocchio is installed it computes
the same states beside, on one thread: forward and inverse dynamics in its C++ loop over the batch, the derivatives
called state by state from Python. All answers are compared first, and the exit code is 1 if they differ.

examples:
  jaxsoa benchmark
  jaxsoa benchmark robot.urdf --floating-base --batch 4096
  jaxsoa benchmark chain:64 --float32
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxsoa.cli import robots, states
from jaxsoa.simulate.progress import ProgressBar

HELP = "time forward dynamics, inverse dynamics and linearization of a batch of states"
MAX_BATCH = 1_000_000
TOLERANCE = {"float64": 1e-8, "float32": 1e-2}


def configure(parser: argparse.ArgumentParser) -> None:
    robots.configure(parser, default="puma560")
    parser.add_argument("--batch", type=int, default=1024, help="states at once (default 1024)")
    parser.add_argument("--repetitions", type=int, default=20, help="default 20")
    parser.add_argument("--seed", type=int, default=0, help="of the random states (default 0)")
    parser.add_argument("--float32", action="store_true", help="single precision (default: double)")


def run(options: argparse.Namespace) -> int:
    if not (1 <= options.batch <= MAX_BATCH and 1 <= options.repetitions <= MAX_BATCH):
        raise ValueError(f"--batch and --repetitions must be from 1 to {MAX_BATCH}.")
    states.check_seed(options)
    states.use_precision(options)
    import jax

    robot = robots.load(options).frictionless()
    arrays = _states(robot, options.batch, options.seed)
    ours, compile_times = _compile(robot, arrays)
    theirs = _pinocchio(robot, robots.urdf_path(options), options, arrays)
    worst = _compare(ours, theirs)
    best = {**dict.fromkeys(ours, np.inf), **{f"{name}, Pinocchio": np.inf for name in theirs}}
    runs = {**ours, **{f"{name}, Pinocchio": call.run for name, call in theirs.items()}}
    bar = ProgressBar(options.repetitions, "timing")
    for number in range(options.repetitions):
        for name, function in runs.items():
            began = time.perf_counter()
            jax.block_until_ready(function())
            best[name] = min(best[name], time.perf_counter() - began)
        bar.update(number + 1)

    precision = "float32" if options.float32 else "float64"
    print(f"{robot.name}: nv {robot.nv}, batch {options.batch}, {precision}; a function closes over the model")
    print(f"jaxsoa on {os.cpu_count()} cores, Pinocchio on one, its derivatives state by state from Python")
    print(f"{'microseconds per state':32s} {'jaxsoa':>10s} {'Pinocchio':>10s} {'compiled in':>12s}")
    for name in ours:
        other = best.get(f"{name}, Pinocchio")
        column = "-" if other is None else f"{1e6 * other / options.batch:.2f}"
        mine = f"{1e6 * best[name] / options.batch:.2f}"
        print(f"{name:32s} {mine:>10s} {column:>10s} {compile_times[name]:>10.1f} s")
    if theirs:
        print(f"largest relative difference from Pinocchio: {worst:.1e}")
    return 0 if worst < TOLERANCE[precision] else 1


def _states(robot, batch: int, seed: int):
    import jax

    keys = jax.random.split(jax.random.key(seed), 3)
    q = jax.vmap(robot.random)(jax.random.split(keys[0], batch))
    v, tau = (jax.random.normal(key, (batch, robot.nv), robot.dtype) for key in keys[1:])
    return q, v, tau


def _compile(robot, arrays) -> tuple[dict[str, Callable], dict[str, float]]:
    import jax

    import jaxsoa as soa

    functions = {
        "forward dynamics": soa.forward_dynamics,
        "inverse dynamics": soa.inverse_dynamics,
        "linearized forward dynamics": soa.linearize_forward_dynamics,
    }
    calls, seconds = {}, {}
    for name, function in functions.items():
        began = time.perf_counter()
        # Closed over, the robot's numbers are compiled into the kernel: how the library is meant to be used.
        batched = jax.jit(jax.vmap(lambda q, v, x, function=function: function(robot, q, v, x)))
        compiled = batched.lower(*arrays).compile()
        seconds[name] = time.perf_counter() - began
        calls[name] = lambda compiled=compiled: compiled(*arrays)
    return calls, seconds


def _pinocchio(robot, urdf: Path | None, options: argparse.Namespace, arrays) -> dict[str, _Call]:
    """The same three computations by Pinocchio, in its own coordinates; answers back in ours. Empty without it."""
    try:
        import pinocchio as pin
    except ImportError:
        print("Pinocchio is not installed (pip install pin): no comparison")
        return {}
    import jaxsoa as soa

    try:
        model = _pinocchio_model(pin, robot, urdf, options.floating_base)
        theirs = soa.convert.PinocchioMap(robot, model)
    except (ValueError, OSError) as error:
        print(f"Pinocchio cannot have this robot: {error}")
        return {}
    return _pinocchio_calls(pin, model, theirs, robot, arrays)


class _Call(NamedTuple):
    """What is timed, and its answer in our coordinates, to compare."""

    run: Callable
    answer: Callable


def _pinocchio_calls(pin, model, theirs, robot, arrays) -> dict[str, _Call]:
    import jax

    q, v, tau = (np.asarray(x, float) for x in arrays)
    # URDF has no armature, and Pinocchio must solve the same problem; damping and friction were taken away.
    model.armature = np.asarray(theirs.v_to(np.asarray(robot.armature, float), np.asarray(robot.neutral(), float)))
    their_q, their_v = jax.vmap(theirs.q_to)(q), jax.vmap(theirs.v_to)(v, q)
    their_tau, their_a = jax.vmap(theirs.tau_to)(tau, q), jax.vmap(theirs.a_to)(tau, q, v)
    their_q, their_v, their_tau, their_a = (
        np.asfortranarray(np.asarray(x, float).T) for x in (their_q, their_v, their_tau, their_a)
    )
    pool, data = pin.ModelPool(model, 1), model.createData()
    out = np.zeros((model.nv, len(q)), order="F")

    def forward():
        pin.abaInParallel(1, pool, their_q, their_v, their_tau, out)

    def inverse():
        pin.rneaInParallel(1, pool, their_q, their_v, their_a, out)

    def linearized():
        for state in zip(their_q.T, their_v.T, their_tau.T, strict=True):
            pin.computeABADerivatives(model, data, *state)

    def accelerations():
        forward()
        return jax.vmap(theirs.a_from)(out.T.copy(), q, v)

    def torques():
        inverse()
        return jax.vmap(theirs.tau_from)(out.T.copy(), q)

    def compliance():
        """The inverse mass matrix of the last state, from the upper triangle that Pinocchio fills."""
        upper = np.array(pin.computeABADerivatives(model, data, their_q[:, -1], their_v[:, -1], their_tau[:, -1])[2])
        back = np.linalg.inv(np.asarray(theirs.velocity_matrix(q[-1])))
        return back @ (np.triu(upper) + np.triu(upper, 1).T) @ back.T

    return {
        "forward dynamics": _Call(forward, accelerations),
        "inverse dynamics": _Call(inverse, torques),
        "linearized forward dynamics": _Call(linearized, compliance),
    }


def _pinocchio_model(pin, robot, urdf: Path | None, floating_base: bool):
    root = (pin.JointModelFreeFlyer(),) if floating_base else ()
    if urdf is not None:
        return pin.buildModelFromUrdf(str(urdf), *root)
    from jaxsoa.io.urdf_export import save_urdf

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "robot.urdf"
        save_urdf(robot, path, validate="off")
        return pin.buildModelFromUrdf(str(path))


def _compare(ours: dict[str, Callable], theirs: dict[str, _Call]) -> float:
    """The largest difference, relative to the largest entry of each answer."""
    worst = 0.0
    for name, call in theirs.items():
        expected, actual = np.asarray(call.answer(), float), ours[name]()
        actual = np.asarray(actual.wrt_tau[-1] if hasattr(actual, "wrt_tau") else actual, float)
        worst = max(worst, float(np.abs(actual - expected).max() / np.abs(expected).max()))
    return worst
