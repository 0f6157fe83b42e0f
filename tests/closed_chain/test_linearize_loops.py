"""Linearized mechanisms: against forward mode of the plain dense equations, and against central differences."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close, differences
from jax.flatten_util import ravel_pytree
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc


def dense(robot, loops, q, v, tau, a=None, prescribed=None):
    """The equations written down: dense matrices, a pseudo-inverse, no sweep with factors. Independent rows only."""
    M, C = soa.mass_matrix(robot, q), soa.bias_force(robot, q, v)
    J = cc.loop_jacobian(robot, loops, q)
    bias = jax.jvp(lambda t: cc.loop_jacobian(robot, loops, robot.integrate(q, t * v)) @ v, (0.0,), (1.0,))[1]
    # Zero rows and redundant ones: the minimum-norm solution by the eigenvalues of a regular matrix.
    free = jnp.ones(robot.nv) if prescribed is None else 1.0 - prescribed
    a = jnp.zeros(robot.nv) if a is None else a * (1 - free)
    Z = jnp.diag(free) @ jnp.linalg.inv(M * jnp.outer(free, free) + jnp.diag(1 - free)) @ jnp.diag(free)
    a_free = a + Z @ (tau - C - M @ a)
    f = -jnp.linalg.pinv(J @ Z @ J.T, rtol=1e-10, hermitian=False) @ (J @ a_free + bias)
    return a_free + Z @ J.T @ f, f


def floating_tree():
    """A free body with two limbs whose tips are hinged together, and a branch with a locked slider and a coupling."""
    b = soa.Builder("floating tree")
    part = {"mass": 0.7, "com": (0.1, 0.02, -0.03), "inertia": np.diag([0.02, 0.03, 0.025])}
    b.link("trunk", joint="free", mass=3.0, inertia=np.diag([0.2, 0.3, 0.4]))
    for side, y in (("left", 0.2), ("right", -0.2)):
        b.link(f"{side}1", joint="spherical", parent="trunk", position=(0, y, 0), **part)
        b.link(f"{side}2", joint="revolute", parent=f"{side}1", position=(0.3, 0, 0), axis=(0, 0, 1), **part)
        b.frame(f"{side}_tip", link=f"{side}2", position=(0.25, 0, 0))
    b.link("tail1", joint="prismatic", parent="trunk", position=(-0.2, 0, 0), axis=(1, 0, 0), **part)
    b.link("tail2", joint="revolute", parent="tail1", position=(-0.2, 0, 0), axis=(0, 1, 0), **part)
    robot = b.build()
    loops = (cc.hinge("left_tip", "right_tip", (0, 1, 0)), cc.Coupling("tail2_joint", "tail1_joint", 2.0, 0.1, (0.3,)))
    return robot, cc.holding(robot, robot.neutral(), loops[:1]) + loops[1:]


def state(robot, loops, seed, prescribed=None):
    rng = np.random.default_rng(seed)
    q = robot.integrate(robot.neutral(), 0.3 * rng.normal(size=robot.nv))
    v, tau, a = (jnp.asarray(rng.normal(size=robot.nv)) for _ in range(3))
    return cc.project(robot, loops, q, v, iterations=6, prescribed=prescribed), tau, a


def check(robot, loops, q, v, tau, a=None, prescribed=None):
    """All matrices against central differences of the function, its own tangents, and those of the dense equations."""
    nv = robot.nv
    given = jnp.zeros(nv) if a is None else a

    def function(x):
        dq, dv, dtau, da = jnp.split(x, 4)
        s = cc.loop_forward_dynamics(
            robot, loops, robot.integrate(q, dq), v + dv, tau + dtau, a=given + da, prescribed=prescribed
        )
        return s.a, s.forces, s.torques, s.tau

    def written(x):
        dq, dv, dtau, da = jnp.split(x, 4)
        return dense(robot, loops, robot.integrate(q, dq), v + dv, tau + dtau, given + da, prescribed)[0]

    @jax.jit
    def everything():
        zero = jnp.zeros(4 * nv)
        of = jax.lax.map(lambda e: jax.jvp(function, (zero,), (e,))[1], jnp.eye(4 * nv))
        central = differences(function, jnp.eye(4 * nv))
        by_dense = jax.lax.map(lambda e: jax.jvp(written, (zero,), (e,))[1], jnp.eye(4 * nv))
        found = cc.linearize_loop_forward_dynamics(robot, loops, q, v, tau, a=given, prescribed=prescribed)
        return found, of, central, by_dense

    found, of, central, by_dense = everything()
    for k in range(4):  # accelerations, forces, torques of couplings, torques
        matrices = np.concatenate([np.asarray(found[4 * k + n]) for n in range(4)], axis=-1)
        assert_close(np.moveaxis(np.asarray(of[k]), 0, -1), matrices, 1e-9, f"tangents {k}")
        assert_close(np.moveaxis(np.asarray(central[k]), 0, -1), matrices, 1e-8, f"differences {k}")
        if k == 0:
            assert_close(np.asarray(by_dense).T, matrices, 1e-8, "dense equations")


@pytest.mark.slow
def test_four_bar_with_redundant_constraints():
    """Five constraints of which two are independent: least forces, moving and at rest."""
    robot, loops, q = cc.mechanisms.four_bar()
    q = jax.jit(partial(cc.close_loops, robot, loops))(q)
    v = jax.jit(partial(cc.project_velocity, robot, loops))(q, jnp.array([1.0, 0.5, -0.3]))
    check(robot, loops, q, v, jnp.array([0.5, -1.0, 2.0]))


@pytest.mark.slow
def test_floating_tree_with_loops_and_prescribed_joints():
    robot, loops = floating_tree()
    prescribed = soa.prescribed_mask(robot, ["tail1_joint", "left2_joint"])
    (q, v), tau, a = jax.jit(lambda: state(robot, loops, 0, prescribed))()
    check(robot, loops, q, v, tau, a, prescribed)


@pytest.mark.slow
def test_stewart_platform():
    robot, loops, q = cc.mechanisms.stewart()
    rng = np.random.default_rng(0)
    q = robot.integrate(q, 0.05 * rng.normal(size=robot.nv))
    q, v = jax.jit(lambda q, v: cc.project(robot, loops, q, v, iterations=6))(q, rng.normal(size=robot.nv))
    check(robot, loops, q, v, jnp.asarray(rng.normal(size=robot.nv)))


@pytest.mark.slow
def test_gradients_by_model_loop_and_state():
    """Reverse mode along many leaves at once, at rest, against differences."""
    robot, loops, q = cc.mechanisms.four_bar()
    q = jax.jit(partial(cc.close_loops, robot, loops))(q)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(3, 7)))
    flat, unflatten = ravel_pytree((robot, loops, q, jnp.zeros(3), jnp.array([0.5, -1.0, 2.0])))

    def loss(x):
        robot, loops, q, v, tau = unflatten(x)
        s = cc.loop_forward_dynamics(robot, loops, q, v, tau)
        return jnp.sum(weights[:, 0] * s.a) + jnp.sum(weights[0, 1:] * s.forces[0])

    rng = np.random.default_rng(1)
    # Limits are infinite and act on nothing; axes stay as they are, or the mechanism is no longer planar (the rank
    # changes, and least forces have no derivative).
    along = jnp.asarray(rng.normal(size=flat.shape)) * jnp.isfinite(flat)
    planar = [jnp.zeros_like(x) for x in jax.tree.leaves(unflatten(flat))]
    keep = {"mass", "com", "armature", "damping"}
    names = [str(path[1]) if len(path) > 1 else "" for path, _ in jax.tree.leaves_with_path(unflatten(flat))]
    for i, name in enumerate(names):
        if any(k in name for k in keep) or i >= len(names) - 3:
            planar[i] = jnp.ones_like(jax.tree.leaves(unflatten(flat))[i])
    mask = jnp.concatenate([x.reshape(-1) for x in planar])
    along = jnp.where(mask > 0, along, 0)
    # A centre of mass leaves the plane without harm: the least forces stay least.

    @jax.jit
    def compare(x):
        clean = jnp.where(jnp.isfinite(x), x, 0)

        def of(t):
            return loss(jnp.where(jnp.isfinite(x), clean + t * along, x))

        h = 1e-4
        low, high = jax.lax.map(of, jnp.array([-h, h]))
        return jax.grad(of)(0.0), (high - low) / (2 * h)

    first, differences = compare(flat)
    assert_allclose(first, differences, rtol=1e-6)
    assert abs(float(first)) > 0.1


@pytest.mark.slow
def test_hybrid_linearization_is_the_derivative_of_hybrid_dynamics():
    robot, _ = floating_tree()
    prescribed = soa.prescribed_mask(robot, ["trunk_joint", "tail1_joint"])
    rng = np.random.default_rng(2)
    q = robot.integrate(robot.neutral(), 0.3 * rng.normal(size=robot.nv))
    v, a, tau = (jnp.asarray(rng.normal(size=robot.nv)) for _ in range(3))

    @jax.jit
    def compare(q, v, a, tau):
        def function(dq, v, a, tau):
            return soa.hybrid_dynamics(robot, robot.integrate(q, dq), v, a, tau, prescribed)

        def written(dq, v, a, tau):
            """Dense: the free rows of M a + C = tau solved for, the others read."""
            at = robot.integrate(q, dq)
            M, C = soa.mass_matrix(robot, at), soa.bias_force(robot, at, v)
            free = ~prescribed
            given = jnp.where(prescribed, a, 0)
            block = jnp.where(free[:, None] & free, M, jnp.eye(robot.nv))
            a = given + jnp.linalg.solve(block, jnp.where(free, tau - C - M @ given, 0))
            return a, jnp.where(prescribed, M @ a + C, tau)

        still = (jnp.zeros_like(v), v, a, tau)
        found = soa.linearize_hybrid_dynamics(robot, q, v, a, tau, prescribed)
        tangents, dense = (jax.jacfwd(f, argnums=(0, 1, 2, 3))(*still) for f in (function, written))
        one = jnp.eye(robot.nv)
        moved = [differences(lambda d, k=k: function(*still[:k], still[k] + d, *still[k + 1 :]), one) for k in range(4)]
        return found, tangents, dense, [[x[i].T for x in moved] for i in range(2)]

    found, *others = compare(q, v, a, tau)
    for other, tolerance in zip(others, (1e-9, 1e-9, 1e-8), strict=True):
        for result, matrices in zip(found, other, strict=True):
            for matrix, expected in zip(result, matrices, strict=True):
                assert_close(matrix, expected, tolerance)


@pytest.mark.slow
def test_gradients_by_axes_of_a_loop_and_by_springs():
    """By a hinge's free axis, its pose and point, by stiffness and rest position, at rest, against differences."""
    robot, loops = floating_tree()
    robot = robot.replace(stiffness=jnp.linspace(0.5, 2.0, robot.nv))
    rng = np.random.default_rng(3)
    tau, turn = jnp.asarray(rng.normal(size=robot.nv)), jnp.asarray(0.2 * rng.normal(size=robot.nv))
    hinge, coupling = loops
    assert isinstance(hinge, cc.Loop)
    leaves = (hinge.free, hinge.rotation, hinge.point_a, robot.stiffness, jnp.zeros(robot.nv), robot.mass)
    along = tuple(jnp.asarray(rng.normal(size=x.shape)) for x in leaves)
    q, v = robot.neutral(), jnp.zeros(robot.nv)

    def loss(free, rotation, point, stiffness, moved, mass):
        changed = robot.replace(stiffness=stiffness, rest=robot.integrate(robot.rest, turn + moved), mass=mass)
        held = eqx.tree_at(lambda x: (x.free, x.rotation, x.point_a), hinge, (free, rotation, point))
        s = cc.loop_forward_dynamics(changed, (held, coupling), q, v, tau, stabilization=(3.0, 4.0))
        return jnp.sum(jnp.arange(1.0, robot.nv + 1) * s.a) + jnp.sum(s.forces)

    @jax.jit
    def compare(leaves):
        def of(t):
            return loss(*(x + t * d for x, d in zip(leaves, along, strict=True)))

        h = 1e-5
        high, low = jax.lax.map(of, jnp.array([h, -h]))
        gradients = jax.grad(loss, argnums=tuple(range(6)))(*leaves)
        return gradients, (high - low) / (2 * h)

    gradients, differences = compare(leaves)
    assert all(np.isfinite(x).all() and np.abs(x).max() > 1e-6 for x in gradients)
    assert_close(sum(float(jnp.sum(g * d)) for g, d in zip(gradients, along, strict=True)), differences, 1e-6)


@pytest.mark.slow
def test_gradients_at_straight_arms_and_at_rest_are_finite():
    """A five-bar stretched along one line, where force along it moves nothing to first order."""
    robot, loops, _ = cc.mechanisms.five_bar()
    q, still = jnp.array([0.0, 0.0, jnp.pi, 0.0]), jnp.zeros(4)
    loops = cc.holding(robot, q, loops)

    @jax.jit
    def both(q, v, tau):
        def loss(robot, loops, q, v, tau):
            s = cc.loop_forward_dynamics(robot, loops, q, v, tau)
            return jnp.sum(s.a) + jnp.sum(s.forces)

        found = cc.linearize_loop_forward_dynamics(robot, loops, q, v, tau)
        return jax.grad(loss, argnums=(0, 1, 2, 3, 4))(robot, loops, q, v, tau), found

    for x in jax.tree.leaves(both(q, still, still)):
        assert np.isfinite(x).all()
