"""What reverse mode keeps of a 1,000-step rollout of a 7-link arm, with and without checkpointing.

    python experiments/gradient_memory.py [--steps 1000]

Prints the temporary memory of the compiled gradient (what XLA reserves beside arguments and results) per step, and
the size of one state and torque to compare it with.
"""

from __future__ import annotations

import argparse
import os

os.environ["JAX_ENABLE_X64"] = "1"

import jax
import jax.numpy as jnp

import jaxsoa as soa


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    robot, dt = soa.models.chain(7), 1e-3
    q = v = jnp.zeros(robot.nv)
    torques = jnp.zeros((options.steps, robot.nv))

    def step(state, tau):
        q, v = state
        v = v + dt * soa.forward_dynamics(robot, q, v, tau)
        return (robot.integrate(q, dt * v), v), None

    def loss(torques, body):
        (q_end, v_end), _ = jax.lax.scan(body, (q, v), torques)
        return jnp.sum(q_end**2) + jnp.sum(v_end**2)

    own = (robot.nq + 2 * robot.nv) * 8
    print(f"state and torque of one step: {own} bytes")
    for name, body in (("plain", step), ("jax.checkpoint of the step", jax.checkpoint(step))):
        compiled = jax.jit(jax.grad(lambda t, body=body: loss(t, body))).lower(torques).compile()
        analysis = compiled.memory_analysis()
        if analysis is None:
            print(f"{name}: this backend does not report memory")
            continue
        per_step = analysis.temp_size_in_bytes / options.steps
        print(f"{name}: {per_step:.0f} bytes per step, {per_step / own:.1f} times state and torque")


if __name__ == "__main__":
    main()
