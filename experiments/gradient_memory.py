"""What reverse mode keeps of a 1,000-step rollout of a 7-link arm, and what keeping less costs in time.

    python experiments/gradient_memory.py [--steps 1000]

`soa.rollout` with its three ways to checkpoint. Prints, per step, the temporary memory of the compiled gradient (what
XLA reserves beside arguments and results), how many times the state and torques of one step that is, and the time of
one gradient.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ["JAX_ENABLE_X64"] = "1"

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    robot, steps = soa.models.chain(7), options.steps
    start = jnp.zeros(robot.nv)
    torques = jnp.zeros((steps, robot.nv))

    def gradient(checkpoint):
        def loss(torques):
            end = soa.rollout(robot, start, start, torques, 1e-3, record="final", checkpoint=checkpoint)
            return jnp.sum(end.q**2) + jnp.sum(end.v**2)

        return jax.grad(loss)

    own = (robot.nq + 2 * robot.nv) * 8
    print(f"{steps} steps of {robot.name}, float64; state and torques of one step: {own} bytes")
    print(f"{'checkpoint':>10s} {'bytes a step':>13s} {'times state and torques':>24s} {'ms':>7s}")
    for checkpoint in (False, True, "segments"):
        compiled = jax.jit(gradient(checkpoint)).lower(torques).compile()
        analysis = compiled.memory_analysis()
        temporary = np.nan if analysis is None else analysis.temp_size_in_bytes / steps  # not every backend tells
        best = np.inf
        for _ in range(options.repetitions):
            begin = time.perf_counter()
            compiled(torques).block_until_ready()
            best = min(best, time.perf_counter() - begin)
        print(f"{checkpoint!s:>10s} {temporary:13.0f} {temporary / own:24.1f} {1e3 * best:7.0f}", flush=True)


if __name__ == "__main__":
    main()
