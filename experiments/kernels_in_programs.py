"""Public functions inside a jitted batch: through kernels, and as JAX compiles the same function, in one run.

    python experiments/kernels_in_programs.py [ROBOT] [--floating] [--batch 4096] [--repetitions 7]

ROBOT is a URDF file; without one, a PUMA 560 and a random tree of 24 joints on a floating base. Least processor time of
all threads, the two forms in turn.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp

import jaxsoa as soa

FUNCTIONS = {
    "forward_kinematics": lambda f, r, q, v, w: f(r, q),
    "jacobian": lambda f, r, q, v, w: f(r, q, r.frame_names[-1]),
    "center_of_mass": lambda f, r, q, v, w: f(r, q),
    "kinetic_energy": lambda f, r, q, v, w: f(r, q, v),
    "momentum": lambda f, r, q, v, w: f(r, q, v),
    "mass_times": lambda f, r, q, v, w: f(r, q, w),
    "solve_mass_matrix": lambda f, r, q, v, w: f(r, q, w),
    "mass_matrix_inverse": lambda f, r, q, v, w: f(r, q),
    "inertia_factor": lambda f, r, q, v, w: f(r, q),
    "coriolis_times": lambda f, r, q, v, w: f(r, q, v, w),
    "coriolis_matrix": lambda f, r, q, v, w: f(r, q, v),
    "regressor": lambda f, r, q, v, w: f(r, q, v, w),
    "operational_space_compliance": lambda f, r, q, v, w: f(r, q, r.frame_names[-1]),
}


def compare(robot: soa.Multibody, batch: int, repetitions: int) -> None:
    print(f"\n{robot.name}, {robot.nv} degrees of freedom, batch {batch}: us a state\n")
    print("| function | kernel | XLA | ratio | largest difference, relative |\n| --- | --- | --- | --- | --- |")
    q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), batch))
    v, w = jax.random.normal(jax.random.key(1), (2, batch, robot.nv))
    for name, call in FUNCTIONS.items():
        function = getattr(soa, name)
        forms = [
            jax.jit(jax.vmap(lambda q, v, w, f=f, call=call: call(f, robot, q, v, w)))
            for f in (function, function.__wrapped__)
        ]
        answers = [jax.tree.leaves(jax.block_until_ready(form(q, v, w))) for form in forms]
        least = [float("inf")] * 2
        for _ in range(repetitions):
            for k, form in enumerate(forms):
                begun = time.process_time()
                jax.block_until_ready(form(q, v, w))
                least[k] = min(least[k], time.process_time() - begun)
        error = max(
            float(jnp.max(jnp.abs(x - y)) / jnp.maximum(jnp.max(jnp.abs(y)), 1e-300))
            for x, y in zip(*answers, strict=True)
        )
        kernel, xla = (1e6 * seconds / batch for seconds in least)
        print(f"| {name} | {kernel:.3g} | {xla:.3g} | {xla / kernel:.0f} | {error:.0e} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("robot", nargs="?")
    parser.add_argument("--floating", action="store_true")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    robots = (
        [soa.load_urdf(options.robot, floating_base=options.floating)]
        if options.robot
        else [soa.models.puma560(), soa.models.random_tree(1, 24, ["revolute"], floating_base=True)]
    )
    for robot in robots:
        compare(robot, options.batch, options.repetitions)
