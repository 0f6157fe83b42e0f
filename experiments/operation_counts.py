"""Multiplications and additions that Algorithms 1, 2, 5 and 6 execute, beside the paper's formulas.

    python experiments/operation_counts.py [--links 1 2 5 10 20]

Counted in the jaxpr of one state of a serial chain of revolute joints: element-wise products, quotients and roots count
as multiplications, sums and differences as additions, each once per array entry; the body of a scan counts as often
as it runs, and a dense product of (m, k) and (k, n) as m k n of each. Selections, copies and sign changes are free.

Why ours differ. We start from the model, so joint trigonometry, poses, the rotation of inertias into world axes and
gravity are inside; the paper starts from quantities already in one frame. We allow any axis and any centre of mass
where the paper exploits structure (H of unit axes). Algorithms 1 and 5 keep every link at its own origin, for accuracy
in single precision, so each sweep pays for shifts that the paper's single inertial point does not have. Algorithms 2
and 6 compute all N^2 pairs of degrees and select, where the paper's loops visit each pair once; and the last products
of Algorithm 6 are dense, N^3 with a small constant, which is faster than the recursion for robots of usual size.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa

MULTIPLICATIONS = {"mul", "div", "sqrt", "rsqrt", "integer_pow", "square"}
ADDITIONS = {"add", "sub", "add_any"}

PAPER = {  # (multiplications, additions) as functions of n
    "Algorithm 1": (lambda n: 320 * n - 159, lambda n: 303 * n - 149),
    "Algorithm 2": (lambda n: 21 * n**2 + 333 * n - 132, lambda n: 47 * n**2 / 2 + 605 * n / 2 - 145),
    "Algorithm 5": (lambda n: 259 * n - 129, lambda n: 232 * n - 123),
    "Algorithm 6": (lambda n: 36 * n**2 + 781 * n - 225, lambda n: 33 * n**2 + 773 * n - 255),
}


def count(jaxpr) -> np.ndarray:
    """(multiplications, additions) of a jaxpr."""
    total = np.zeros(2)
    for equation in jaxpr.eqns:
        name, parameters = equation.primitive.name, equation.params
        size = sum(int(np.prod(var.aval.shape)) for var in equation.outvars)
        if name in MULTIPLICATIONS:
            total[0] += size
        elif name in ADDITIONS:
            total[1] += size
        elif name == "reduce_sum":
            total[1] += int(np.prod(equation.invars[0].aval.shape)) - size
        elif name == "dot_general":
            (contracting, _), _ = parameters["dimension_numbers"]
            total += size * int(np.prod([equation.invars[0].aval.shape[i] for i in contracting]))
        elif name == "triangular_solve":
            n = equation.invars[0].aval.shape[-1]
            total += size * (n - 1) / 2
        else:
            times = parameters.get("length", 1) if name == "scan" else 1
            for value in parameters.values():
                inner = getattr(value, "jaxpr", value)
                if hasattr(inner, "eqns"):
                    total += times * count(inner)
                    break
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, nargs="+", default=list(range(1, 21)))
    options = parser.parse_args()
    print(f"{'':12s} {'n':>3s} {'mult, ours':>11s} {'paper':>8s} {'add, ours':>11s} {'paper':>8s}")
    for name in PAPER:
        for n in options.links:
            robot = soa.models.chain(n)
            x = jnp.zeros(n, robot.dtype)
            call = {
                "Algorithm 1": lambda r, x: soa.inverse_dynamics_perturbation(r, x, x, x, x, x, x),
                "Algorithm 2": lambda r, x: soa.linearize_inverse_dynamics(r, x, x, x),
                "Algorithm 5": lambda r, x: soa.forward_dynamics_perturbation(r, x, x, x, x, x, x),
                "Algorithm 6": lambda r, x: soa.linearize_forward_dynamics(r, x, x, x),
            }[name]
            ours = count(jax.make_jaxpr(call)(robot, x).jaxpr)
            paper = [formula(n) for formula in PAPER[name]]
            print(f"{name:12s} {n:3d} {ours[0]:11.0f} {paper[0]:8.0f} {ours[1]:11.0f} {paper[1]:8.0f}")


if __name__ == "__main__":
    main()
