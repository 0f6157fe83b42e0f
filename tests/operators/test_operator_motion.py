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
    unknown = (written - o.D).inv
    assert unknown.dense_solves == 1 and unknown.sweeps == 100
    noisy = case("noisy").o
    bare = noisy.H @ noisy.phi @ noisy.M @ noisy.phi.T @ noisy.H.T
    assert str(bare.inv) == "(H φ M φ* H*)⁻¹"  # with armature this is not the mass matrix: a sweep of its own
    assert bare.inv.dense_solves == 0
    assert (bare + noisy.armature).inv.dense_solves == 0
    x = np.random.default_rng(0).normal(size=noisy.robot.nv)
    for one in (bare, bare + noisy.armature):
        close(one @ (one.inv @ x), x)


@pytest.mark.parametrize("where", ["arm", "tree", "noisy"])
def test_what_else_a_riccati_sweep_inverts(where):
    """J* J, damped, weighted and of several frames, and M + k I, with blocks of their own, against dense inverses."""
    c, o = case(where), case(where).o
    frames = c.robot.frame_names[-3:]
    J, Jd = o.J(frames), c.dense(o.J(frames))
    other, Od = o.J(c.robot.frame_names[1]), c.dense(o.J(c.robot.frame_names[1]))
    x = c.rng.normal(size=c.robot.nv)
    k = 0.3
    one = np.eye(c.robot.nv)
    sums = {
        "damped least squares": (J.T @ J + k * o.identity, Jd.T @ Jd + k * one),
        "weighted": (2 * (J.T @ J) + other.T @ other + k * o.identity, 2 * Jd.T @ Jd + Od.T @ Od + k * one),
        "regularized": (o.Mass + k * o.identity, c.dense(o.Mass) + k * one),
        "noise alone": (J.T @ J + o.H @ o.phi @ o.M @ o.phi.T @ o.H.T, Jd.T @ Jd + c.dense(o.Mass - o.armature)),
    }
    for name, (operator, matrix) in sums.items():
        inverse = operator.inv
        assert inverse.dense_solves == 0 and inverse.sweeps == 2, name
        close(inverse @ x, np.linalg.solve(matrix, x))
        close(inverse @ (operator @ x), x)
    derivation = soa.derive(sums["damped least squares"][0].inv @ J.T)
    assert derivation.result.dense_solves == 0
    close(derivation.result.dense(), np.linalg.solve(Jd.T @ Jd + k * one, Jd.T))


def test_the_normal_equations_of_a_jacobian_are_solved_by_sweeps():
    """(J* J)^-1 of an arm of six joints; under jit and differentiated it is still the inverse."""
    robot = soa.models.puma560()
    q = jnp.array([0.3, -0.8, 0.5, 0.7, -0.4, 0.2])
    tool = robot.frame_names[-1]
    x = jnp.linspace(-1.0, 1.0, 6)

    @jax.jit
    def both(q):
        def by_sweeps(q):
            J = soa.operators(robot, q).J(tool)
            return (J.T @ J).inv @ x

        def dense(q):
            J = soa.jacobian(robot, q, tool)
            return jnp.linalg.solve(J.T @ J, x)

        return [(f(q), jax.jvp(f, (q,), (x,))[1]) for f in (by_sweeps, dense)]

    for one, other in zip(*both(q), strict=True):
        close(one, other, 1e-8)  # of a matrix whose condition number is squared
    J = soa.operators(robot, q).J(tool)
    inverse = (J.T @ J).inv
    assert str(inverse) == "(J* J)⁻¹" and inverse.sweeps == 2 and inverse.dense_solves == 0


def test_what_is_missing_is_said():
    c = case("arm")
    with pytest.raises(ValueError, match=r"operators\(robot, q, v\)"):
        _ = c.o.a
    with pytest.raises(TypeError, match="prescribed=mask"):
        soa.operators(c.robot, c.q, jnp.ones(c.robot.nv, bool))
    with pytest.warns(UserWarning, match="several bundles"):
        jax.make_jaxpr(lambda H, phi: soa.simplify(H @ phi).dense())(c.o.H, c.o.phi)
