"""State arguments: `--q`, `--v`, `--tau`, `--seed` and `--float32`, shared by the commands that need a state."""

from __future__ import annotations

import argparse

from jaxsoa.model.multibody import Multibody


def configure(parser: argparse.ArgumentParser, *, tau: str | None) -> None:
    """Add the options; with `tau` None only those of a configuration."""
    how = "comma-separated numbers, or joint=value pairs, joint=a,b,c where it has several (the others zero)"
    parser.add_argument("--q", default="neutral", help=f"configuration: neutral (default), random, {how}")
    if tau is not None:
        parser.add_argument("--v", default="zero", help=f"velocity: zero (default), random, {how}")
        parser.add_argument(
            "--tau", default=tau, help=f"torques: zero, hold (what stays at rest), {how} (default: {tau})"
        )
    parser.add_argument("--seed", type=int, default=0, help="for random states (default 0)")
    parser.add_argument("--float32", action="store_true", help="single precision (default: double)")


def use_precision(options: argparse.Namespace) -> None:
    """Before any array exists."""
    import jax

    jax.config.update("jax_enable_x64", not options.float32)


def check_seed(options: argparse.Namespace) -> None:
    if not 0 <= options.seed < 2**63:
        raise ValueError("--seed must be from 0 to 2^63 - 1.")


def configuration(robot: Multibody, options: argparse.Namespace):
    """q (nq,) as the options say, quaternions normalized."""
    import jax

    check_seed(options)
    if options.q == "random":
        return robot.normalize(robot.random(jax.random.split(jax.random.key(options.seed))[0]))
    return robot.normalize(_vector(robot, options.q, robot.neutral(), "q", robot.q_index))


def state(robot: Multibody, options: argparse.Namespace):
    """q (nq,), v (nv,) and tau (nv,) as the options say."""
    import jax
    import jax.numpy as jnp

    import jaxsoa as soa

    q = configuration(robot, options)
    zero = jnp.zeros(robot.nv, robot.dtype)
    if options.v == "random":
        v = jax.random.normal(jax.random.split(jax.random.key(options.seed))[1], (robot.nv,), robot.dtype)
    else:
        v = _vector(robot, options.v, zero, "v", robot.v_index)
    if options.tau == "hold":
        tau = jax.jit(soa.inverse_dynamics)(robot, q, v, zero)
    else:
        tau = _vector(robot, options.tau, zero, "tau", robot.v_index)
    return q, v, tau


def _by_joint(words: list[str]) -> list[tuple[str, list[float]]]:
    """(joint, its numbers) from words such as "base=1", "0", "0", "elbow=2": what has no name goes on with the last."""
    found: list[tuple[str, list[float]]] = []
    for word in words:
        joint, named, value = word.rpartition("=")
        if named:
            found.append((joint.strip(), []))
        elif not found:
            raise _NotANumber(f"{word!r} stands before the first name of a joint.")
        found[-1][1].append(_number(value))
    return found


def _vector(robot: Multibody, text: str, default, name: str, index):
    import jax.numpy as jnp
    import numpy as np

    if text in ("neutral", "zero"):
        return default
    values = np.array(default, float)
    words = [word.strip() for word in text.split(",")]
    try:
        if any("=" in word for word in words):
            for joint, own in _by_joint(words):
                where = index(joint)
                if len(own) != where.stop - where.start:
                    entries = f"{where.stop - where.start} entries in {name}"
                    raise ValueError(f"--{name}: joint {joint!r} has {entries}, got {len(own)}.")
                values[where] = own
        else:
            numbers = [_number(word) for word in words]
            if len(numbers) != len(values):
                raise ValueError(f"--{name} needs {len(values)} numbers for robot {robot.name!r}, got {len(numbers)}.")
            values[:] = numbers
    except _NotANumber as error:
        raise ValueError(f"--{name}: {error}") from None
    return jnp.asarray(values, robot.dtype)


class _NotANumber(Exception):
    pass


def _number(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise _NotANumber(f"{word!r} is not a finite number.")
    return value
