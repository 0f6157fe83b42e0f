"""The letters of a grasp: RCCFD1, 2 and 3 derived from the closed form, their values against dense NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_chain_cases import Case, dense_solution
from helpers.compare import assert_close

import jaxsoa as soa
from jaxsoa import closed_chain as cc

OMEGA = "(B* ψ* H* D⁻¹ H ψ B + A M_C⁻¹ A*)⁻¹"


def letters(c: Case) -> cc.GraspOperators:
    return cc.grasp_operators(c.system, c.q, c.v, c.tau, c.pose, object_velocity=jnp.asarray(c.velocity))


@pytest.mark.slow
def test_the_recursive_algorithms_are_derived():
    """From (3.6): tip forces and accelerations as (6.11), (6.18) and (6.22) compute them, with the same values."""
    c = Case(0, (6, 7), ("rigid", "rigid"))
    a, forces, _, _ = dense_solution(c)
    a, f = np.concatenate(a), forces.reshape(-1)
    g = letters(c)
    o, J = g.bundle, g.J
    Minv, T = o.Mass.inv, g.torque
    force = g.bundle.vector("f", jnp.asarray(f), J.codomain)

    def last(expression, value):
        found = soa.derive(expression).steps[-1].expression
        assert_close(found.value, value, 1e-9, str(found))
        return str(found)

    # RCCFD1 (6.11): free accelerations, forces, corrections.
    free = np.asarray((Minv @ T).value)
    assert last(Minv @ T, free) == "(I - H ψ K)* D⁻¹ (I - H ψ K) T'"
    assert last(-(Minv @ J.T @ force), a - free) == "-(I - H ψ K)* D⁻¹ H ψ B f"
    # RCCFD2 (6.18): forces straight from the filter, then one filter for torques and forces together.
    filtered = "(B* ψ* H* D⁻¹ (I - H ψ K) T' - a'(C))"
    assert last(g.Omega.inv @ (J @ Minv @ T - g.bias), f) == f"{OMEGA} {filtered}"
    assert last(Minv @ (T - J.T @ force), a) == "(I - H ψ K)* D⁻¹ (T' - H ψ (K T' + B f))"
    # RCCFD3 (6.22): responses to torques and to a'(C) apart; their sum is the motion.
    by_torque = (Minv - Minv @ J.T @ g.Omega.inv @ J @ Minv) @ T
    by_bias = Minv @ J.T @ g.Omega.inv @ g.bias
    one, other = np.asarray(by_torque.value), np.asarray(by_bias.value)
    assert_close(one + other, a, 1e-9)
    corrected = f"(I - H ψ B {OMEGA} B* ψ* H* D⁻¹) (I - H ψ K) T'"
    assert last(by_torque, one) == f"(I - H ψ K)* D⁻¹ {corrected}"
    assert last(by_bias, other) == f"(I - H ψ K)* D⁻¹ H ψ B {OMEGA} a'(C)"


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "kinds"), [((7, 6, 7), ("point", "hinge", "soft")), ((7, 7), ("soft", "slides"))])
def test_contacts_with_freedom_in_letters(sizes, kinds):
    """f = N (N Omega N + I - N)^-1 N (J M^-1 T' - a'(C)), under jit, and the object's acceleration from it."""
    c = Case(2, sizes, kinds)
    a, forces, _, _ = dense_solution(c)

    @jax.jit
    def solve(q, v, tau):
        g = cc.grasp_operators(c.system, q, v, tau, c.pose, object_velocity=jnp.asarray(c.velocity))
        Minv, N = g.bundle.Mass.inv, g.held
        one = g.bundle.matrix("I", jnp.eye(N.shape[0]), N.codomain, symmetric=True)
        held = N @ g.Omega @ N + one - N
        f = N @ held.inv @ N @ (g.J @ Minv @ g.torque - g.bias)
        return soa.simplify(f).value, soa.simplify(Minv @ (g.torque - g.J.T @ f)).value

    f, x = solve(tuple(c.q), tuple(c.v), tuple(c.tau))
    assert_close(f, forces.reshape(-1), 1e-9, "forces")
    assert_close(x, np.concatenate(a), 1e-9, "accelerations")
