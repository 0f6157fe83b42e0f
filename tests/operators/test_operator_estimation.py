"""The estimation reading: filter, smoother and covariances against conditioning of the joint Gaussian; sampling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_oracle import case, close

import jaxsoa as soa


@pytest.fixture(scope="module", params=["noisy", "tree"])
def setting(request):
    """A model with a bias, one measurement, and the dense joint Gaussian of states and measurements."""
    c = case(request.param)
    bias = c.rng.normal(size=(c.robot.n_links, 6))
    model = soa.estimation.RandomModel(c.o, jnp.asarray(bias))
    tau = c.rng.normal(size=c.robot.nv)
    a = c.dense.atoms
    cov_x = a["phi"] @ a["M"] @ a["phi"].T
    cov_x_tau = cov_x @ a["H"].T
    cov_tau = a["H"] @ cov_x @ a["H"].T + a["A"]
    mean_x = a["phi"] @ bias.ravel()
    return c, model, tau, (cov_x, cov_x_tau, cov_tau, mean_x)


def test_smoother_is_the_conditional_mean(setting):
    c, model, tau, (_, cov_x_tau, cov_tau, mean_x) = setting
    expected = mean_x + cov_x_tau @ np.linalg.solve(cov_tau, tau - c.dense.atoms["H"] @ mean_x)
    close(jax.jit(lambda m, tau: m.smooth(tau))(model, tau).state.ravel(), expected)


def test_costate_of_the_smoother_is_the_spatial_acceleration(setting):
    """Table 6.1: phi* H* times the joint acceleration."""
    c, model, tau, (*_, mean_x) = setting
    a = c.dense.atoms
    theta = np.linalg.solve(c.dense(c.o.Mass), tau - a["H"] @ mean_x)
    close(jax.jit(lambda m, tau: m.smooth(tau))(model, tau).costate.ravel(), a["phi"].T @ a["H"].T @ theta)


def test_filter_conditions_on_what_is_outboard(setting):
    c, model, tau, (_, cov_x_tau, cov_tau, mean_x) = setting
    filtered = jax.jit(lambda m, tau: m.filter(tau))(model, tau)
    topology = c.robot.topology
    support = topology.link_support[:, :]  # [i, k]: k is i or inboard of it
    error = tau - c.dense.atoms["H"] @ mean_x
    for k in range(c.robot.n_links):
        block = slice(6 * k, 6 * k + 6)
        for strict, estimate in ((True, filtered.predicted[k]), (False, filtered.updated[k])):
            seen = [i for i in range(c.robot.n_links) if support[i, k] and not (strict and i == k)]
            dofs = np.flatnonzero(np.isin(topology.dof_link, seen))
            gain = (
                cov_x_tau[block][:, dofs] @ np.linalg.inv(cov_tau[np.ix_(dofs, dofs)])
                if len(dofs)
                else np.zeros((6, 0))
            )
            close(estimate, mean_x[block] + gain @ error[dofs])
    close(filtered.innovation, c.dense(c.o.whitening) @ error)


def test_covariances(setting):
    c, model, _, (cov_x, cov_x_tau, cov_tau, _) = setting
    found = model.covariances()
    posterior = cov_x - cov_x_tau @ np.linalg.solve(cov_tau, cov_x_tau.T)
    omega = c.dense.atoms["Upsilon"]
    for k in range(c.robot.n_links):
        block = slice(6 * k, 6 * k + 6)
        close(found.predicted[k], c.dense.atoms["P"][block, block])
        close(found.updated[k], (c.dense.atoms["tau_bar"] @ c.dense.atoms["P"])[block, block])
        close(found.costate[k], omega[block, block])
        close(found.smoothed[k], posterior[block, block])


def test_whitening_and_coloring(setting):
    """Whitening maps the covariance of tau to the identity; coloring undoes it."""
    c, model, tau, (*_, cov_tau, _) = setting
    whiten = jax.jit(lambda m, tau: m.whiten(tau))
    zero = np.asarray(whiten(model, np.zeros(c.robot.nv)))
    W = np.stack([np.asarray(whiten(model, e)) - zero for e in np.eye(c.robot.nv)], axis=1)
    close(W @ cov_tau @ W.T, np.eye(c.robot.nv))
    close(jax.jit(lambda m, w: m.color(w))(model, whiten(model, tau)), tau)


def test_sampling_reproduces_the_mass_matrix(setting):
    c, model, _, (cov_x, _, cov_tau, mean_x) = setting
    count = 20_000
    sample = jax.jit(lambda m, key: m.sample(key, count))(model, jax.random.key(0))
    tau = np.asarray(sample.measurement) - c.dense.atoms["H"] @ mean_x
    scale = np.sqrt(np.diag(cov_tau))
    # The standard error of a correlation is at most sqrt(2 / count) = 0.01; over all entries five of them suffice.
    error = np.abs((tau.T @ tau / count - cov_tau) / np.outer(scale, scale))
    assert error.max() < 0.05
    x = np.asarray(sample.state).reshape(count, -1) - mean_x
    error = np.abs(x.T @ x / count - cov_x) / np.sqrt(np.outer(np.diag(cov_x), np.diag(cov_x)))
    assert error.max() < 0.05


def test_model_from_a_robot():
    robot = soa.models.puma560()
    q = jnp.linspace(0.1, 0.6, 6)
    model = soa.estimation.random_model(robot, q)
    close(model.covariance.dense(), soa.mass_matrix(robot, q))
    with pytest.raises(ValueError, match=r"bias must have shape \(n_links, 6\)"):
        soa.estimation.random_model(robot, q, np.zeros(6))
    assert len(soa.estimation.TABLE_6_1) == 8
