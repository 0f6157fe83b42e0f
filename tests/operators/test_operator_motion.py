"""Equations of motion typed as in the papers: biases, gravity, the inverse that was written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_oracle import case, close

import jaxsoa as soa


@pytest.mark.parametrize("where", ["arm", "tree"])
def test_inverse_and_forward_dynamics_from_the_letters(where):
    """T = H phi (M phi* (H* x + a + E g) + b), and solved for x by rewriting, with nothing but public names."""
    c = case(where)
    v, a, tau = (jnp.asarray(c.rng.normal(size=c.robot.nv)) for _ in range(3))
    robot = c.robot.frictionless()

    @jax.jit
    def everything(q, v, a, tau):
        o = soa.operators(robot, q, v)
        x, T = o.vector("x", a), o.vector("T", tau)
        torque = o.H @ o.phi @ (o.M @ o.phi.T @ (o.H.T @ x + o.a + o.E @ o.gravity) + o.b)
        derived = soa.simplify(soa.solve_for(x, T, torque).result)
        assert derived.sweeps == 2 and derived.dense_solves == 0
        found = torque.value, derived.value
        return found, (soa.inverse_dynamics(robot, q, v, a), soa.forward_dynamics(robot, q, v, tau))

    found, expected = everything(c.q, v, a, tau)
    for one, other in zip(found, expected, strict=True):
        close(one, other)


def test_the_written_out_mass_matrix_is_recognized():
    """(H phi M phi* H*)^-1 is the innovations inverse, by `.inv` and by `simplify`; dense solves say that they are."""
    robot = soa.models.chain(50)
    o = soa.operators(robot, jnp.zeros(50))
    written = o.H @ o.phi @ o.M @ o.phi.T @ o.H.T
    assert written.inv.cost == o.Mass.inv.cost and written.inv.sweeps == 2 and written.inv.dense_solves == 0
    assert (2 * written).inv.sweeps == 2
    simple = soa.simplify(written.inv)
    assert str(simple) == "(I - H ψ K)* D⁻¹ (I - H ψ K)" and simple.sweeps == 2
    unknown = (written + 2 * o.identity).inv
    assert unknown.dense_solves == 1 and unknown.sweeps == 100
    noisy = case("noisy").o
    bare = noisy.H @ noisy.phi @ noisy.M @ noisy.phi.T @ noisy.H.T
    assert bare.inv.dense_solves == 1  # with armature this is not the mass matrix
    assert (bare + noisy.armature).inv.dense_solves == 0
    x = np.random.default_rng(0).normal(size=noisy.robot.nv)
    close((bare + noisy.armature) @ ((bare + noisy.armature).inv @ x), x)


def test_what_is_missing_is_said():
    c = case("arm")
    with pytest.raises(ValueError, match=r"operators\(robot, q, v\)"):
        _ = c.o.a
    with pytest.raises(TypeError, match="prescribed=mask"):
        soa.operators(c.robot, c.q, jnp.ones(c.robot.nv, bool))
    with pytest.warns(UserWarning, match="several bundles"):
        jax.make_jaxpr(lambda H, phi: soa.simplify(H @ phi).dense())(c.o.H, c.o.phi)
