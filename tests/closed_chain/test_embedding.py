"""Constraint embedding: the embedded tree moves as the tree with constraint forces does, in fewer coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_chain_cases import slope_at_zero
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc
from jaxsoa.closed_chain.mechanisms import _rod

pytestmark = pytest.mark.slow  # an embedded tree and the constrained one it is compared with are large programs


def four_bar_on_an_arm() -> tuple[soa.Multibody, tuple, list[str], np.ndarray]:
    """Turntable, then a four-bar on it, then an arm on the coupler with two coupled fingers: aggregates in the middle
    and at the end of a tree."""
    builder = soa.Builder("crane")
    builder.link("table", joint="revolute", axis=(0, 0, 1), mass=3.0, inertia=np.eye(3) * 0.1)
    hinge = {"joint": "continuous", "axis": (0, 1, 0)}
    builder.link("crank", parent="table", **hinge, **_rod(0.4))
    builder.link("coupler", parent="crank", position=(0.4, 0, 0), **hinge, **_rod(1.0))
    builder.link("rocker", parent="table", position=(0.9, 0, 0), **hinge, **_rod(0.7))
    builder.link("arm", parent="coupler", position=(0.5, 0.1, 0), joint="revolute", axis=(1, 0, 1), **_rod(0.3, 0.5))
    for name, axis in (("thumb", (0, 1, 0)), ("finger", (0, -1, 0))):
        builder.link(
            name,
            parent="arm",
            position=(0.3, 0, 0),
            joint="prismatic",
            axis=axis,
            mass=0.1,
            com=(0.02, 0, 0),
            inertia=np.eye(3) * 1e-4,
            armature=0.05,
        )
    builder.frame("a", link="coupler", position=(1.0, 0, 0))
    builder.frame("b", link="rocker", position=(0.7, 0, 0))
    loops = (cc.hinge("a", "b", (0, 1, 0)), cc.Coupling("finger_joint", "thumb_joint", 0.7))
    guess = np.array([0.3, -1.0, 0.3, -1.6, 0.4, 0.02, 0.014])
    return builder.build(), loops, ["table_joint", "crank_joint", "arm_joint", "thumb_joint"], guess


CASES = {
    "four-bar": lambda: (*(m := cc.mechanisms.four_bar())[:2], ["left1_joint"], m.q),
    "five-bar": lambda: (*(m := cc.mechanisms.five_bar())[:2], ["left1_joint", "right1_joint"], m.q),
    "crane": four_bar_on_an_arm,
}


@pytest.mark.parametrize("name", ["four-bar", "five-bar", "crane"])
def test_the_embedded_tree_moves_as_the_constrained_one(name):
    robot, loops, independent, guess = CASES[name]()
    embedding = cc.embed(robot, loops, independent, guess)
    rng = np.random.default_rng(0)
    q = jax.jit(lambda y: embedding.expand(y))(embedding.coordinates(guess) + 0.05)
    assert_allclose(cc.loop_errors(robot, loops, q), 0, atol=1e-9)
    rates, tau = rng.normal(size=embedding.nv), rng.normal(size=robot.nv)
    v = jax.jit(cc.embedded_velocity)(embedding, q, rates)
    assert_allclose(cc.loop_jacobian(robot, loops, q) @ v, 0, atol=1e-10)
    expected = jax.jit(cc.loop_forward_dynamics)(robot, loops, q, v, tau).a
    s = jax.jit(cc.embedded_forward_dynamics)(embedding, q, rates, tau)
    assert_allclose(s.a, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
    dense = jax.jit(cc.embedded_forward_dynamics, static_argnames="method")(embedding, q, rates, tau, method="dense")
    assert_allclose(s.rates, dense.rates, rtol=1e-9, atol=1e-9)
    # And back: generalized forces, which are X* tau.
    X = jax.jit(jax.jacobian(lambda r: cc.embedded_velocity(embedding, q, r)))(rates)
    back = jax.jit(cc.embedded_inverse_dynamics)(embedding, q, rates, s.rates)
    assert_allclose(back, X.T @ tau, rtol=1e-8, atol=1e-8)
    M = jax.jit(cc.embedded_mass_matrix)(embedding, q)
    assert_allclose(M, X.T @ soa.mass_matrix(robot, q) @ X, rtol=1e-9, atol=1e-9)


def test_expansion_is_differentiable_to_second_order():
    """The rocker's angle by the crank's: first and second derivative against finite differences and against X."""
    robot, loops, guess = cc.mechanisms.four_bar()
    embedding = cc.embed(robot, loops, ["left1_joint"], guess)
    angle = jax.jit(lambda y: embedding.expand(y[None])[2])
    slope, y = jax.jit(jax.grad(angle)), guess[0]
    first = slope_at_zero(lambda h: angle(y + h), 1e-3)
    assert_allclose(slope(y), first, rtol=1e-8)
    second = slope_at_zero(lambda h: slope(y + h), 1e-3)
    assert_allclose(jax.jit(jax.grad(jax.grad(angle)))(y), second, rtol=1e-7)
    X = cc.embedded_velocity(embedding, embedding.expand(y[None]), jnp.ones(1))
    assert_allclose(X[2], first, rtol=1e-8)


def test_gradients_equal_finite_differences():
    robot, loops, independent, guess = four_bar_on_an_arm()
    embedding = cc.embed(robot, loops, independent, guess)
    y, rates = embedding.coordinates(guess), jnp.array([0.3, -0.5, 0.2, 0.1])
    tau = jnp.linspace(-1, 1, robot.nv)

    def total(y):
        return jnp.sum(cc.embedded_forward_dynamics(embedding, embedding.expand(y), rates, tau).a ** 2)

    f, gradient = jax.jit(total), jax.jit(jax.grad(total))(y)
    for i, e in enumerate(np.eye(4)):
        difference = slope_at_zero(lambda h, e=e: f(y + h * e))
        assert_allclose(gradient[i], difference, rtol=1e-6, atol=1e-6 * float(jnp.abs(gradient).max()))


def test_a_wrong_choice_of_joints_is_refused():
    robot, loops, independent, guess = four_bar_on_an_arm()
    with pytest.raises(soa.ModelError, match="degrees of freedom"):
        cc.embed(robot, loops, [*independent, "coupler_joint"], guess)
    with pytest.raises(soa.ModelError, match="in no loop"):
        cc.embed(robot, loops, independent[:-2] + independent[-1:], guess)
    embedding = cc.embed(robot, loops, independent, guess)
    with pytest.raises(ValueError, match="independent rates"):
        cc.embedded_velocity(embedding, guess, jnp.zeros(7))
