"""Expressions run by sweeps equal their dense twins; sweep counts, spaces, transformations and printing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_oracle import case, close

import jaxsoa as soa
from jaxsoa.algebra.terms import SpaceError

ATOMS = (
    "H H_a phi psi E_phi E_psi S M P D G K L R Upsilon tau_bar Delta_phi Delta_psi Phi Psi armature pi_p phi_tilde "
    "psi_tilde identity link_identity whitening Mass"
).split()
SQUARE = ("phi", "psi", "D", "M", "P", "whitening", "Mass")


def expressions(o, frames):
    """A collection with everything in it: adjoints, inverses, sums, shifts before and after sweeps, several frames."""
    B, I, E = o.B(frames), o.identity, o.link_identity
    W = I - o.H @ o.psi @ o.K
    yield from (getattr(o, name) for name in ATOMS)
    yield from (getattr(o, name).T for name in ATOMS)
    yield from (getattr(o, name).inv for name in SQUARE)
    yield from (o.phi.T.inv, o.psi.T.inv, o.psi.inv.T, W, W.T, W.T @ o.D.inv @ W, B, B.T, o.J(frames), o.J(frames).T)
    yield o.H @ o.phi @ o.M @ o.phi.T @ o.H.T
    yield W @ o.H @ o.phi
    yield o.E_phi @ o.psi @ o.E_psi.T @ o.phi.T
    yield o.E_phi.T @ o.psi.T - 2 * o.psi.T + 0.5 * (o.phi.T @ o.S.T) - o.Delta_phi @ o.phi
    yield o.psi @ (o.K @ o.H + 3 * o.P - o.E_phi @ o.M) + o.phi @ o.E_phi @ o.psi
    yield (o.M @ (o.phi - o.phi.inv) @ o.K).T
    yield o.J(frames) @ o.Mass.inv @ o.J(frames).T
    yield -(E - o.G @ o.H).T / 4
    nv, n = o.joints.size, o.robot.n_links
    Q = o.joint_map("Q", np.cos(np.arange(6 * nv)).reshape(nv, 6))
    yield Q @ o.psi @ o.block("X", np.sin(np.arange(36 * n)).reshape(n, 6, 6)) @ Q.T


@pytest.mark.parametrize("where", ["noisy", "arm"])
def test_sweeps_equal_dense(where):
    c = case(where)
    frames = (c.robot.frame_names[-1], c.robot.frame_names[2], c.robot.frame_names[0])
    ops = list(expressions(c.o, frames))
    xs = [jnp.asarray(c.rng.normal(size=op.shape[1])) for op in ops]
    results = jax.jit(lambda ops, xs: [op @ x for op, x in zip(ops, xs, strict=True)])(ops, xs)
    for op, x, y in zip(ops, xs, results, strict=True):
        assert y.shape == (op.shape[0],)
        close(y, c.dense(op) @ np.asarray(x))


def test_jacobian_and_base_frames():
    c = case("tree")
    base, tip = c.robot.frame_names[0], c.robot.frame_names[-1]
    J = c.o.J((tip, base)).dense()
    close(J[:6], jax.jit(soa.jacobian, static_argnums=2)(c.robot, c.q, tip))
    assert not np.any(J[6:])


def test_columns_dense_and_calls():
    c = case("arm")
    X = c.rng.normal(size=(c.robot.nv, 3))
    close(c.o.Mass.inv @ X, np.linalg.solve(c.dense(c.o.Mass), X))
    close(c.o.Mass(X[:, 0]), c.dense(c.o.Mass) @ X[:, 0])
    close(c.o.Mass @ np.arange(c.robot.nv), c.dense(c.o.Mass) @ np.arange(c.robot.nv))  # integers
    assert c.o.phi.dense().shape == c.o.phi.shape == (42, 42)
    close(c.o.identity.dense(), np.eye(c.robot.nv))
    assert not np.any((c.o.phi - c.o.phi).dense())


def test_unknown_inverses_fall_back_to_dense():
    c, o = case("arm"), case("arm").o
    x = c.rng.normal(size=c.robot.nv)
    odd = o.identity + o.H @ o.phi @ o.G
    close(odd.inv @ x, np.linalg.solve(c.dense(odd), x))
    close(odd.inv.T @ x, np.linalg.solve(c.dense(odd).T, x))


def test_numbers_vectors_and_matrices():
    c, o = case("arm"), case("arm").o
    x = c.rng.normal(size=c.robot.nv)
    close((jnp.asarray(3.0) * o.D) @ x, 3 * c.dense(o.D) @ x)
    close((o.D * jnp.asarray(3.0)).inv @ x, np.linalg.solve(3 * c.dense(o.D), x))
    T = o.vector("T", x)
    close((o.Mass @ T).value, c.dense(o.Mass) @ x)
    close((T.T @ o.Mass @ T).value, [x @ c.dense(o.Mass) @ x])
    A = c.rng.normal(size=(6, 6))
    Q = o.matrix("Q", A, o.tips("tip"))
    close((o.J("tip").T @ Q @ o.J("tip")).dense(), c.dense(o.J("tip").T @ Q @ o.J("tip")))
    close(Q.inv @ np.ones(6), np.linalg.solve(A, np.ones(6)))
    with pytest.raises(SpaceError, match="not a vector"):
        _ = o.Mass.value


# --- sweeps and cost --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["arm", "noisy"])
def test_sweep_counts(where):
    o = case(where).o
    W = o.identity - o.H @ o.psi @ o.K
    J = o.J(o.robot.frame_names[-1])
    counts = (
        (o.phi.T @ o.H.T, 1),  # V = phi* H* v
        (o.Mass, 2),
        (o.H @ o.phi @ o.M @ o.phi.T @ o.H.T, 2),
        (o.Mass.inv, 2),  # after the factors
        (W @ o.H @ o.phi, 2),
        (soa.simplify(W @ o.H @ o.phi), 1),
        (W, 1),
        (W.T @ o.D.inv @ W, 2),
        (o.phi.inv, 0),
        (o.psi.inv.T, 0),
        (o.M @ o.P @ o.G, 0),
        (o.phi @ o.M + o.psi @ o.P, 1),  # the same way, side by side
        (o.phi @ o.M + o.P @ o.psi.T, 2),  # opposite ways
        (o.phi @ o.M @ (o.psi.T + o.phi.T), 2),
        (o.psi @ (o.K @ o.H + o.P), 1),  # shifts fold in
        (o.K.T @ o.psi.T @ o.H.T, 1),
        (J @ o.Mass.inv @ J.T, 4),
        (soa.simplify(J @ o.Mass.inv @ J.T), 0),
    )
    assert [(str(op), op.sweeps) for op, _ in counts] == [(str(op), n) for op, n in counts]


def test_scans_in_the_compiled_program_are_the_sweeps_counted():
    c = case("arm")
    for op in (c.o.Mass, c.o.Mass.inv, c.o.phi.T @ c.o.H.T, c.o.phi.inv):
        jaxpr = str(jax.make_jaxpr(lambda op, x: op @ x)(op, jnp.ones(op.shape[1])))
        assert jaxpr.count(" scan[") == op.sweeps


def test_cost_is_linear():
    costs = {n: soa.operators(soa.models.chain(n), jnp.zeros(n)).Mass.inv.cost for n in (4, 8, 16)}
    assert costs[8] == 2 * costs[4] and costs[16] == 4 * costs[4] and costs[4] > 0


def test_program_size_does_not_grow_with_the_links():
    def size(n):
        robot = soa.models.chain(n)
        f = jax.jit(lambda q, x: soa.operators(robot, q).Mass.inv @ x)
        return f.lower(jnp.zeros(n), jnp.zeros(n)).as_text().count("\n")

    assert size(200) <= size(20) + 5


# --- transformations --------------------------------------------------------------------------------------------------


def test_operators_are_pytrees_through_jit_and_vmap():
    c = case("arm")
    x = c.rng.normal(size=c.robot.nv)
    twice = jax.jit(lambda op: op + op)(c.o.Mass)
    assert isinstance(twice, soa.Operator)
    close(twice @ x, 2 * c.dense(c.o.Mass) @ x)
    qs = jax.vmap(c.robot.random)(jax.random.split(jax.random.key(3), 5))
    X = jnp.asarray(c.rng.normal(size=(5, c.robot.nv)))
    solved = jax.jit(jax.vmap(lambda q, x: soa.operators(c.robot, q).Mass.inv @ x))(qs, X)
    for q, x, y in zip(qs, X, solved, strict=True):
        close(y, np.linalg.solve(np.asarray(soa.mass_matrix(c.robot, q)), x))
    batched = jax.vmap(lambda q: soa.operators(c.robot, q).Mass)(qs)
    close(jax.vmap(lambda op, x: op @ x)(batched, X)[3], soa.mass_matrix(c.robot, qs[3]) @ X[3])


def test_simplify_inside_jit_on_an_argument():
    c = case("arm")
    expression = c.o.whitening @ c.o.H @ c.o.phi
    simple = jax.jit(soa.simplify)(expression)
    assert str(simple) == "H ψ" and simple.sweeps == 1
    x = c.rng.normal(size=simple.shape[1])
    close(simple @ x, c.dense(expression) @ x)


@pytest.mark.slow
def test_gradients_equal_those_of_the_dense_version():
    """With respect to q and to the robot's leaves, through the Riccati sweep and joints of three degrees of freedom."""
    robot = soa.models.random_tree(4, 3, ["revolute", "spherical"], armature=True)
    frame = robot.frame_names[-1]
    q0 = robot.random(jax.random.key(0))
    rng = np.random.default_rng(0)
    x, f = jnp.asarray(rng.normal(size=robot.nv)), jnp.asarray(rng.normal(size=6))

    def by_expression(robot, dq):
        o = soa.operators(robot, robot.integrate(q0, dq))
        J = o.J(frame)
        return x @ (o.Mass @ x) + x @ (o.Mass.inv @ jnp.sin(x)) + f @ (soa.simplify(J @ o.Mass.inv @ J.T) @ f)

    def by_matrices(robot, dq):
        q = robot.integrate(q0, dq)
        M, J = soa.mass_matrix(robot, q), soa.jacobian(robot, q, frame)
        return x @ M @ x + x @ jnp.linalg.solve(M, jnp.sin(x)) + f @ J @ jnp.linalg.solve(M, J.T @ f)

    zero = jnp.zeros(robot.nv)
    (robot_a, q_a), (robot_b, q_b) = (
        jax.jit(jax.grad(g, argnums=(0, 1)))(robot, zero) for g in (by_expression, by_matrices)
    )
    close(q_a, q_b)
    for name in ("mass", "com", "inertia", "joint_position", "joint_rotation", "axis", "armature"):
        symmetric = (lambda m: m + jnp.swapaxes(m, -1, -2)) if name == "inertia" else (lambda m: m)
        close(symmetric(getattr(robot_a, name)), symmetric(getattr(robot_b, name)))
        assert np.any(getattr(robot_b, name))


def test_float32():
    robot = soa.models.chain(5).astype(jnp.float32)
    q = jnp.linspace(0.1, 0.5, 5, dtype=jnp.float32)
    y = soa.operators(robot, q).Mass.inv @ jnp.ones(5, jnp.float32)
    assert y.dtype == jnp.float32
    exact = np.linalg.solve(np.asarray(soa.mass_matrix(soa.models.chain(5), jnp.asarray(q, float))), np.ones(5))
    close(y, exact, 1e-4)


# --- spaces and printing ----------------------------------------------------------------------------------------------


def test_spaces_are_checked_when_composed():
    o, other = case("arm").o, case("tree").o
    with pytest.raises(SpaceError, match=r"Cannot compose \(H\) with \(H\).*link space.*joint space"):
        o.H @ o.H
    with pytest.raises(SpaceError, match=r"Cannot add \(H\) and \(φ\).*joint space.*link space"):
        o.H + o.phi
    with pytest.raises(SpaceError, match=r"robot 'chain'.*robot 'random_tree'"):
        o.phi @ other.phi
    with pytest.raises(SpaceError, match="has no inverse"):
        _ = o.H.inv
    with pytest.raises(SpaceError, match=r"acts on link space.*expected a vector \(42,\).*got shape \(7,\)"):
        o.phi @ np.zeros(7)
    with pytest.raises(SpaceError, match=r"Batch with jax.vmap"):
        o.Mass @ np.zeros((5, 7))
    with pytest.raises(SpaceError, match=r"tip space \[tip\]"):
        o.B("tip") @ o.J("base")
    with pytest.raises(TypeError, match="Compose operators with @"):
        o.H * o.phi
    with pytest.raises(TypeError, match="takes a number"):
        o.H * np.ones(3)
    with pytest.raises(ValueError, match="nilpotent"):
        o.S.inv @ np.zeros(42)
    with pytest.raises(KeyError, match="no frame named"):
        o.J("nowhere")
    with pytest.raises(SpaceError, match="must have 7 entries"):
        o.vector("T", np.zeros(3))


def test_printing():
    o = case("arm").o
    W = o.identity - o.H @ o.psi @ o.K
    assert str(W.T @ o.D.inv @ W) == "(I - H ψ K)* D⁻¹ (I - H ψ K)"
    assert str(o.H @ o.phi @ o.M @ o.phi.T @ o.H.T) == "H φ M φ* H*"
    assert str(o.Mass.inv) == "𝓜⁻¹"
    assert str(2 * o.phi - 0.5 * (o.psi @ o.E_psi)) == "2 φ - 0.5 ψ E_ψ"
    assert str((o.psi.T.inv, o.tau_bar)[0]) == "ψ⁻*"
    assert str(-(o.D + o.armature).inv) == "-(D + A)⁻¹"
    assert (W.T @ o.D.inv).latex() == r"\left(I - H\,\psi\,K\right)^{*}\,D^{-1}"
    assert o.phi._repr_latex_() == r"$\phi$"
    assert "joint space of robot 'chain' (7)" in repr(o.Mass)


def test_tidying():
    o = case("arm").o
    assert o.H.T.T.term == o.H.term and o.phi.inv.inv.term == o.phi.term and o.D.T.term == o.D.term
    assert (o.H @ o.phi).T.term == (o.phi.T @ o.H.T).term
    assert (o.phi + o.phi - 2 * o.phi).term.__class__.__name__ == "Zero"
    assert (o.link_identity @ o.phi @ o.link_identity).term == o.phi.term
    assert (o.phi @ o.psi).inv.term == (o.psi.inv @ o.phi.inv).term
    assert len((o.H @ o.phi @ o.M).data) == 1, "one bundle is one set of arrays"
    assert eqx.tree_equal(jax.tree.leaves(o.Mass), jax.tree.leaves(o.state))
