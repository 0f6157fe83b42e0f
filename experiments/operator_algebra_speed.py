"""Speed of the operator algebra: `Mass.inv @ x` against the hand-written solve, growth with N, compile time.

Run: python experiments/operator_algebra_speed.py [--batch 4096] [--links 7] [--largest 4096]
Figures are minima over interleaved repetitions, one process, float64.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)

import jaxsoa as soa  # noqa: E402


def through_the_algebra(robot, q, x):
    return soa.operators(robot, q).Mass.inv @ x


def by_hand(robot, q, x):
    return soa.solve_mass_matrix(robot, q, x)


def _states(robot, batch: int):
    keys = jax.random.split(jax.random.key(0), batch)
    q = jax.vmap(robot.random)(keys)
    x = jax.random.normal(jax.random.key(1), (batch, robot.nv))
    return q, x


def _minimum(functions: dict, arguments: tuple, repetitions: int) -> dict[str, float]:
    """Best time of each function, interleaved so that a busy machine disturbs all alike."""
    for f in functions.values():
        jax.block_until_ready(f(*arguments))
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repetitions):
        for name, f in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(f(*arguments))
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def compare(links: int, batch: int, repetitions: int) -> None:
    robot = soa.models.chain(links)
    q, x = _states(robot, batch)
    functions = {
        name: jax.jit(jax.vmap(f, in_axes=(None, 0, 0)))
        for name, f in (("algebra", through_the_algebra), ("by hand", by_hand))
    }
    best = _minimum(functions, (robot, q, x), repetitions)
    error = jnp.max(jnp.abs(functions["algebra"](robot, q, x) - functions["by hand"](robot, q, x)))
    print(f"Mass.inv @ x, chain of {links}, batch {batch}, float64")
    for name, seconds in best.items():
        print(f"  {name:8s} {seconds / batch * 1e6:8.3f} us per state")
    print(f"  ratio    {best['algebra'] / best['by hand']:8.3f}   largest difference {error:.1e}")


def growth(largest: int, repetitions: int) -> None:
    print("growth with the number of links (one state; Mass @ x and Mass.inv @ x with the factors at hand)")
    print("      N   compile s    Mass us   Mass.inv us   us per link   cost per link")
    n = 16
    while n <= largest:
        robot = soa.models.chain(n)
        q = 0.3 * jnp.sin(jnp.arange(n) * 1.0)
        bundle = soa.operators(robot, q)
        x = jnp.ones(n)

        apply = jax.jit(lambda op, x: op @ x)
        start = time.perf_counter()
        apply.lower(bundle.Mass.inv, x).compile()
        compiled = time.perf_counter() - start
        mass = _minimum({"": apply}, (bundle.Mass, x), repetitions)[""]
        inverse = _minimum({"": apply}, (bundle.Mass.inv, x), repetitions)[""]
        cost = bundle.Mass.inv.cost / n
        print(
            f"  {n:5d}   {compiled:9.2f}  {mass * 1e6:9.1f}   {inverse * 1e6:11.1f}   "
            f"{inverse / n * 1e6:11.3f}   {cost:13.1f}"
        )
        n *= 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--links", type=int, default=7)
    parser.add_argument("--largest", type=int, default=4096)
    parser.add_argument("--repetitions", type=int, default=20)
    args = parser.parse_args()
    compare(args.links, args.batch, args.repetitions)
    growth(args.largest, args.repetitions)


if __name__ == "__main__":
    main()
