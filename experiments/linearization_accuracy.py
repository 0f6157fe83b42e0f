"""Relative errors of the linearized models against Pinocchio, in double and single precision, robot by robot.

    pip install -e ".[test]" && python experiments/linearization_accuracy.py [--robots panda.urdf solo12.urdf]

For each robot of the package example-robot-data, at random states (rounded to single precision, so that all sides see
the same numbers): `linearize_inverse_dynamics` against computeRNEADerivatives and `linearize_forward_dynamics` against
computeABADerivatives, three matrices each. An error is the largest deviation in a matrix over its largest entry, and
the table shows the worst of three matrices and all states. Forward models solve with the mass matrix, so their errors
grow with its condition number, which stands beside them: rounding (6e-8 in single precision) times the condition
number is what any method can be asked for.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# Much is compiled here and little is run.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
os.environ["JAX_ENABLE_X64"] = "1"
# The bridge to Pinocchio lives with the tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "linearized"))

import jax
import jax.numpy as jnp
import numpy as np
from helpers.compare import random_states, relative_error
from helpers.example_robots import EXAMPLE_ROBOTS
from helpers.pinocchio_bridge import PinocchioTwin
from linearized_oracle import pinocchio_matrices, twin_without_armature

import jaxsoa as soa

FLOATING = {  # file: does its base float?
    "double_pendulum.urdf": False,
    "ur5_robot.urdf": False,
    "kinova.urdf": False,
    "panda.urdf": False,
    "z1.urdf": False,
    "baxter.urdf": False,
    "solo12.urdf": True,
    "a1.urdf": True,
    "go2.urdf": True,
    "hyq_no_sensors.urdf": True,
    "simple_humanoid.urdf": True,
    "talos_reduced.urdf": True,
}


def errors(twin: PinocchioTwin, dtype, states) -> tuple[float, float]:
    """(inverse model, forward model): the worst relative error of three matrices over all states."""

    def both(robot, q, v, a, tau):
        return soa.linearize_inverse_dynamics(robot, q, v, a), soa.linearize_forward_dynamics(robot, q, v, tau)

    cast = [x.astype(dtype) for x in states]
    models = jax.jit(jax.vmap(both, in_axes=(None, 0, 0, 0, 0)))(twin.robot.astype(dtype), *cast)
    worst = [0.0, 0.0]
    for k, state in enumerate(zip(*(np.asarray(x) for x in states), strict=True)):
        expected = pinocchio_matrices(twin, *state)
        for which, matrices in enumerate(models):
            for x, y in zip(matrices, expected[3 * which : 3 * which + 3], strict=True):
                worst[which] = max(worst[which], relative_error(x[k], y))
    return worst[0], worst[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", nargs="+", choices=list(FLOATING), default=list(FLOATING), metavar="FILE")
    parser.add_argument("--states", type=int, default=8)
    options = parser.parse_args()
    print(f"{'':22s} {'':8s} {'':>3s} {'condition':>9s} {'float64':^17s} {'float32':^17s}")
    names = ("inverse", "forward")
    print(f"{'robot':22s} {'base':8s} {'nv':>3s} {'of M':>9s}", *(f"{name:>8s}" for name in names * 2), flush=True)
    for file in options.robots:
        floating = FLOATING[file]
        twin = twin_without_armature(EXAMPLE_ROBOTS[file], floating_base=floating)
        robot = twin.robot
        q, v, a, _ = random_states(robot, 11, options.states)
        q, v, a = (x.astype(jnp.float32).astype(jnp.float64) for x in (q, v, a))
        states = [jax.vmap(robot.normalize)(q), v, a, 10 * a]
        mass = [pinocchio_matrices(twin, *(np.asarray(x[k]) for x in states))[2] for k in range(len(q))]
        condition = max(np.linalg.cond(M) for M in mass)
        figures = [*errors(twin, jnp.float64, states), *errors(twin, jnp.float32, states)]
        base = "floating" if floating else "fixed"
        print(f"{file:22s} {base:8s} {robot.nv:3d} {condition:9.0e}", *(f"{x:8.0e}" for x in figures), flush=True)


if __name__ == "__main__":
    main()
