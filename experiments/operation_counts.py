"""Multiplications and additions that Algorithms 1, 2, 5 and 6 execute, beside the paper's formulas.

    python experiments/operation_counts.py [--links 1 2 5 10 20]

Counted in the jaxpr of one state of a serial chain of revolute joints: element-wise products, quotients and roots of
floating-point numbers count as multiplications, sums and differences as additions, each once per array entry; the body
of a scan counts as often as it runs, a dense product of (m, k) and (k, n) as m k n of each. Selections, copies, sign
changes, sines and cosines are free. The table also shows how much of each count goes into preparing the motion: poses,
velocities, bias accelerations and inertias in world axes. The differences are explained below the table, with the
polynomials that our counts follow exactly.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa
from jaxsoa.linearized.state import moving_state

MULTIPLICATIONS = {"mul", "div", "sqrt", "rsqrt", "integer_pow", "square"}
ADDITIONS = {"add", "sub", "add_any"}

PAPER = {  # (multiplications, additions) as functions of n
    "Algorithm 1": (lambda n: 320 * n - 159, lambda n: 303 * n - 149),
    "Algorithm 2": (lambda n: 21 * n**2 + 333 * n - 132, lambda n: 47 * n**2 / 2 + 605 * n / 2 - 145),
    "Algorithm 5": (lambda n: 259 * n - 129, lambda n: 232 * n - 123),
    "Algorithm 6": (lambda n: 36 * n**2 + 781 * n - 225, lambda n: 33 * n**2 + 773 * n - 255),
}
OURS = {
    "Algorithm 1": lambda r, x: soa.inverse_dynamics_perturbation(r, x, x, x, x, x, x),
    "Algorithm 2": lambda r, x: soa.linearize_inverse_dynamics(r, x, x, x),
    "Algorithm 5": lambda r, x: soa.forward_dynamics_perturbation(r, x, x, x, x, x, x),
    "Algorithm 6": lambda r, x: soa.linearize_forward_dynamics(r, x, x, x),
}
DEGREE = {"Algorithm 1": 1, "Algorithm 2": 2, "Algorithm 5": 1, "Algorithm 6": 3}

EXPLANATION = """
Why ours differ from the paper's:
- Preparation (in brackets) is inside our counts: we start from (q, v) and a model, so joint rotations, the chain of
  poses and the turning of inertias into world axes are counted. The paper's Algorithm 1 starts from link inertias and
  joint axes whose places are known.
- Any axis, any centre of mass, any base: no entry of an axis is taken for zero or one; gravity, damping and armature
  are counted too.
- Every link keeps its own origin, for accuracy in single precision, so each step of a sweep shifts forces, motions and
  inertias by a cross product; at the paper's one inertial point phi is the identity and these shifts are free.
- Algorithm 5: the paper perturbs a motion whose accelerations are known; ours is given torques and runs forward
  dynamics first (a Riccati sweep with its filter, and the outward sweep), then the perturbation through the same P, D
  and G, and the forces of the motion, which the turning axes swing.
- Algorithm 2 evaluates both triangles for all n^2 pairs of degrees and selects (vector units do not branch), where the
  paper's loops visit each pair once: about twice the coefficient of n^2.
- Algorithm 6 ends, up to 64 degrees of freedom, with dense products of n by n matrices: a term in n^3 that costs less
  time than the paper's recursions at these sizes. Larger robots take the O(n^2) sweeps, outside this table.
"""


def count(jaxpr) -> np.ndarray:
    """(multiplications, additions) of a jaxpr."""
    total = np.zeros(2)
    for equation in jaxpr.eqns:
        name, parameters = equation.primitive.name, equation.params
        floating = [v for v in equation.outvars if jnp.issubdtype(v.aval.dtype, jnp.floating)]
        size = sum(int(np.prod(var.aval.shape)) for var in floating)
        if name in MULTIPLICATIONS:
            total[0] += size
        elif name in ADDITIONS:
            total[1] += size
        elif name == "reduce_sum":
            total[1] += int(np.prod(equation.invars[0].aval.shape)) - size if floating else 0
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


def polynomial(links: list[int], values: list[float], degree: int) -> str:
    """The polynomial through the values of the larger chains, if it meets them all."""
    picked = [(n, y) for n, y in zip(links, values, strict=True) if n > 2]  # short chains leave out whole sweeps
    if len(picked) < degree + 2:
        return "too few sizes to tell"
    n, y = np.array(picked).T
    coefficients = np.polyfit(n, y, degree)
    if np.abs(np.polyval(coefficients, n) - y).max() > 0.5:
        return "no polynomial of the expected degree"
    powers = ("", " n", " n^2", " n^3")
    terms = [f"{c:+.4g}{powers[degree - k]}" for k, c in enumerate(coefficients) if abs(c) > 1e-6]
    return " ".join(terms).removeprefix("+")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, nargs="+", default=list(range(1, 21)))
    links = parser.parse_args().links
    chains = {n: (soa.models.chain(n), jnp.zeros(n)) for n in links}
    ready = {n: count(jax.make_jaxpr(lambda r, x: moving_state(r, x, x))(*chains[n]).jaxpr) for n in links}
    print(f"{'':12s} {'n':>3s} {'multiplications':>24s} {'paper':>7s} {'additions':>24s} {'paper':>7s}")
    found = {}
    for name, algorithm in OURS.items():
        rows = []
        for n in links:
            ours = count(jax.make_jaxpr(algorithm)(*chains[n]).jaxpr)
            rows.append(ours)
            columns = (f"{o:13.0f} ({r:.0f} ready)".rjust(24) for o, r in zip(ours, ready[n], strict=True))
            multiplications, additions = (
                f"{column} {formula(n):7.0f}" for column, formula in zip(columns, PAPER[name], strict=True)
            )
            print(f"{name:12s} {n:3d} {multiplications} {additions}", flush=True)
        found[name] = np.array(rows).T
    print("\nOur counts as polynomials (n > 2):")
    for name, counts in found.items():
        for what, values in zip(("multiplications", "additions"), counts, strict=True):
            print(f"  {name}, {what}: {polynomial(links, list(values), DEGREE[name])}")
    print(EXPLANATION)


if __name__ == "__main__":
    main()
