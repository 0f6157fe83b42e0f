"""What a grasp's forward dynamics costs: against the number of joints per arm, and against the number of arms.

Prints microseconds per evaluation (the least of several, interleaved repeats), the time per joint or per arm, which
settles where the cost is linear, and the fitted exponent of growth. Omega as a whole (rccfd2) grows with the cube of
the arms, the rank-six form with their number.

    python experiments/closed_chain_cost.py [--quick]
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import jaxsoa as soa  # noqa: E402
from jaxsoa import closed_chain as cc  # noqa: E402


def system(n_arms: int, joints: int):
    """Equal arms around an object, each placed so that its tip is at its contact point."""
    rng = np.random.default_rng(0)
    robot = soa.models.chain(joints, length=2.0 / joints)
    q = jnp.asarray(rng.uniform(-0.5, 0.5, joints))
    _, tip = jax.jit(lambda q: soa.frame_pose(robot, q, "tip"))(q)
    arms = []
    for k in range(n_arms):
        angle = 2 * np.pi * k / n_arms
        turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
        point = turn @ np.array([-0.3, 0.0, 0.0])
        arms.append(cc.Arm(robot.with_base(turn, point - turn @ np.asarray(tip)), "tip", point))
    body = cc.RigidBody(2.0, (0, 0, 0), 0.1 * np.eye(3))
    state = [q] * n_arms, [jnp.zeros(joints)] * n_arms, [jnp.ones(joints)] * n_arms
    return cc.GraspSystem(arms, body), *state, (jnp.eye(3), jnp.zeros(3))


def measure(cases: dict, repeats: int = 15, calls: int = 5) -> dict[object, float]:
    """Least time per call of every case, repeats interleaved so that a busy moment hits all alike."""
    best = dict.fromkeys(cases, np.inf)
    for f, arguments in cases.values():
        jax.block_until_ready(f(*arguments))
    for _ in range(repeats):
        for name, (f, arguments) in cases.items():
            began = time.perf_counter()
            for _ in range(calls):
                out = f(*arguments)
            jax.block_until_ready(out)
            best[name] = min(best[name], (time.perf_counter() - began) / calls)
    return best


def exponent(sizes, times) -> float:
    """Slope of log time over log size, fitted to the upper half of the sizes, where the fixed cost is small."""
    upper = slice(len(sizes) // 2 - 1, None)
    return float(np.polyfit(np.log(sizes[upper]), np.log(times[upper]), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    quick = parser.parse_args().quick

    def case(method: str, arms: int, joints: int):
        # The system is an argument: as a constant of the program XLA would spend minutes on folding it.
        return jax.jit(partial(cc.grasp_forward_dynamics, method=method)), system(arms, joints)

    lengths = (8, 32, 128) if quick else (8, 32, 128, 512)
    times = list(measure({n: case("auto", 2, n) for n in lengths}).values())
    print("two arms, method auto")
    print(f"{'joints per arm':>14} {'us':>9} {'us per joint':>13}")
    for n, t in zip(lengths, times, strict=True):
        print(f"{n:>14} {t * 1e6:>9.1f} {t * 1e6 / (2 * n):>13.2f}")
    print(f"time grows with the joints to the power {exponent(lengths, times):.2f}\n", flush=True)

    counts = (2, 8, 16) if quick else (2, 8, 32, 64)
    by_method = {}
    for name in ("rank6", "rccfd2"):
        by_method[name] = list(measure({l: case(name, l, 7) for l in counts}).values())
    print("seven joints per arm: the rank-six form against Omega as a whole (rccfd2)")
    print(f"{'arms':>5} {'rank6, us':>10} {'us per arm':>11} {'rccfd2, us':>11} {'us per arm':>11}")
    for l, fast, whole in zip(counts, *by_method.values(), strict=True):
        print(f"{l:>5} {fast * 1e6:>10.1f} {fast * 1e6 / l:>11.2f} {whole * 1e6:>11.1f} {whole * 1e6 / l:>11.2f}")
    fits = ", ".join(f"{name} {exponent(counts, times):.2f}" for name, times in by_method.items())
    print(f"time grows with the arms to the power: {fits}")


if __name__ == "__main__":
    main()
