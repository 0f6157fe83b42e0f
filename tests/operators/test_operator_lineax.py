"""Expressions in lineax: solves, transposes, tags."""

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from operator_oracle import case, close

import jaxsoa as soa


def test_conjugate_gradients_on_the_mass_matrix():
    c = case("arm")
    A = c.o.Mass.to_lineax()
    assert lx.is_positive_semidefinite(A) and lx.is_symmetric(A)
    x = jnp.asarray(c.rng.normal(size=7))
    for solver in (lx.CG(rtol=1e-12, atol=1e-12), lx.Cholesky(), lx.AutoLinearSolver(well_posed=True)):
        solution = jax.jit(lambda A, x, solver=solver: lx.linear_solve(A, x, solver).value)(A, x)
        close(solution, np.linalg.solve(c.dense(c.o.Mass), x), 1e-9)  # CG stops at 1e-12 of the residual


def test_preconditioned_by_the_algebra():
    """M^-1 of a nearby configuration preconditions the mass matrix."""
    c = case("arm")
    near = soa.operators(c.robot, c.q + 1e-3).Mass.inv.to_lineax()
    assert lx.is_positive_semidefinite(near)
    x = jnp.asarray(c.rng.normal(size=7))
    plain, helped = (
        lx.linear_solve(c.o.Mass.to_lineax(), x, lx.CG(rtol=1e-8, atol=1e-8), options=options)
        for options in ({}, {"preconditioner": near})
    )
    close(helped.value, np.linalg.solve(c.dense(c.o.Mass), x), 1e-6)
    assert helped.stats["num_steps"] < plain.stats["num_steps"]


def test_transpose_matrix_and_general_solves():
    c = case("arm")
    W = c.o.whitening.to_lineax()
    assert not lx.is_symmetric(W)
    x = jnp.asarray(c.rng.normal(size=7))
    close(W.mv(x), c.dense(c.o.whitening) @ x)
    close(W.T.mv(x), c.dense(c.o.whitening).T @ x)
    close(W.as_matrix(), c.dense(c.o.whitening))
    close(lx.linear_solve(W, x, lx.LU()).value, np.linalg.solve(c.dense(c.o.whitening), x))
    close(lx.materialise(W).as_matrix(), W.as_matrix())
    close(lx.diagonal(W), np.diag(W.as_matrix()))
    close((2 * W @ W.T).mv(x), 2 * c.dense(c.o.whitening) @ c.dense(c.o.whitening).T @ x)  # lineax's own composition


def test_forms_that_are_seen_to_be_positive():
    o = case("arm").o
    J = o.J("tip")
    positive = (
        o.Mass,
        o.Mass.inv,
        o.D,
        J @ o.Mass.inv @ J.T,
        o.H @ o.phi @ o.M @ o.phi.T @ o.H.T,
        J @ J.T,
        o.Mass + o.D,
    )
    assert all(lx.is_positive_semidefinite(op.to_lineax()) for op in positive)
    for op in (o.phi @ o.psi, o.phi, o.Mass - o.D, -o.D):
        assert not lx.is_positive_semidefinite(op.to_lineax())


def test_plain_function():
    c = case("arm")
    x = jnp.asarray(c.rng.normal(size=7))
    cg, _ = jax.scipy.sparse.linalg.cg(c.o.Mass, x, tol=1e-12)
    close(cg, np.linalg.solve(c.dense(c.o.Mass), x), 1e-9)
