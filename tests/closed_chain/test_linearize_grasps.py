"""Linearized grasps and embedded mechanisms, against tangents of dense solutions that share no code with them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_chain_cases import Case, jacobian, mass_matrix, shift
from helpers.compare import assert_close, differences

import jaxsoa as soa
from jaxsoa import closed_chain as cc
from jaxsoa.spatial import rotation


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "kinds"), [((6, 7), ("rigid", "soft")), ((3, 3, 3), ("point", "hinge", "slides"))])
def test_a_grasp(sizes, kinds):
    """Tall and short arms, redundant and free contacts: along one direction of everything, by (2.11) solved densely."""
    c = Case(0, sizes, kinds)
    system, n = c.system, sum(sizes)
    q, v, tau = (tuple(map(jnp.asarray, x)) for x in (c.q, c.v, c.tau))
    ends = np.cumsum(sizes)[:-1].tolist()
    rng = np.random.default_rng(1)
    directions = [jnp.asarray(rng.normal(size=k)) for k in (n, n, n, 6, 6)]

    @jax.jit
    def both(q, v, tau, R, p, V, directions):
        def dense(t):
            dq, dv, dtau, pose, dV = (t * d for d in directions)
            moved = [a + d for a, d in zip(q, jnp.split(dq, ends), strict=True)]
            faster = [a + d for a, d in zip(v, jnp.split(dv, ends), strict=True)]
            harder = [a + d for a, d in zip(tau, jnp.split(dtau, ends), strict=True)]
            turned = rotation.from_quaternion(rotation.exponential(pose[:3])) @ R, p + pose[3:]
            s = cc.grasp_forward_dynamics(system, moved, faster, harder, turned, object_velocity=V + dV, method="dense")
            return jnp.concatenate(s.a), s.object_acceleration, s.contact_forces

        found = cc.linearize_grasp_forward_dynamics(system, q, v, tau, (R, p), object_velocity=V)
        central = differences(lambda t: dense(t[0]), jnp.ones((1, 1)))
        return found, jax.jvp(dense, (0.0,), (1.0,))[1], [x[0] for x in central]

    found, expected, central = both(q, v, tau, jnp.asarray(c.R), jnp.asarray(c.p), jnp.asarray(c.velocity), directions)
    for k, name in enumerate(("joints", "object", "forces")):
        matrices = found[5 * k : 5 * k + 5]
        along = sum(np.asarray(m) @ np.asarray(d) for m, d in zip(matrices, directions, strict=True))
        assert_close(along, expected[k], 1e-8, name)
        assert_close(along, central[k], 1e-8, f"{name}, differences")


@pytest.mark.slow
def test_a_grasp_with_prescribed_joints():
    """Along one direction of everything, prescribed accelerations too, against tangents of the hybrid dynamics."""
    c = Case(3, (6, 7), ("rigid", "soft"))
    rng = np.random.default_rng(0)
    q, v, tau = (tuple(map(jnp.asarray, x)) for x in (c.q, c.v, c.tau))
    a, directions = (tuple(jnp.asarray(rng.normal(size=k)) for k in sizes) for sizes in ((6, 7), (13, 13, 13, 13)))
    masks = [jnp.asarray(rng.random(6) < 0.5), None]

    @jax.jit
    def both(q, v, tau, a, directions):
        def moved(t):
            return [[x + d for x, d in zip(xs, jnp.split(t * d, [6]), strict=True)] for xs, d in
                    zip((q, v, tau, a), directions, strict=True)]  # fmt: skip

        def function(t):
            q, v, tau, a = moved(t)
            s = cc.grasp_forward_dynamics(c.system, q, v, tau, c.pose, a=a, prescribed=masks)
            return jnp.concatenate(s.a), s.object_acceleration, s.contact_forces

        found = cc.linearize_grasp_forward_dynamics(c.system, q, v, tau, c.pose, a=a, prescribed=masks)
        central = [x[0] for x in differences(lambda t: function(t[0]), jnp.ones((1, 1)))]
        return found, jax.jvp(function, (0.0,), (1.0,))[1], central

    found, tangents, central = both(q, v, tau, a, directions)
    for k, name in enumerate(("joints", "object", "forces")):
        matrices = (*found[5 * k : 5 * k + 3], found[15 + k])
        along = sum(np.asarray(m) @ np.asarray(d) for m, d in zip(matrices, directions, strict=True))
        assert_close(along, tangents[k], 1e-9, name)
        assert_close(along, central[k], 1e-8, f"{name}, differences")
    assert np.abs(found.wrt_a).max() > 0.1 and np.abs(np.asarray(found.wrt_tau)[:6][np.asarray(masks[0])]).max() == 0


def test_the_compliance_of_contacts_equals_its_dense_form():
    """J M^-1 J* + A M(C)^-1 A*, (3.1), the object's mass matrix written about its origin."""
    c = Case(1, (3, 4), ("point", "soft"))
    body = c.system.body
    com = shift(c.R @ np.asarray(body.com))
    inertia = c.R @ np.asarray(body.inertia) @ c.R.T
    nothing = np.zeros((3, 3))
    mass = com.T @ np.block([[inertia, nothing], [nothing, float(body.mass) * np.eye(3)]]) @ com
    A = np.concatenate([shift(c.R @ np.asarray(arm.point)) for arm in c.system.arms])
    expected = A @ np.linalg.solve(mass, A.T)
    for i, (arm, q) in enumerate(zip(c.system.arms, c.q, strict=True)):
        J = np.asarray(jacobian(arm.robot, q, arm.frame))
        own = slice(6 * i, 6 * i + 6)
        expected[own, own] += J @ np.linalg.solve(np.asarray(mass_matrix(arm.robot, q)), J.T)
    assert_close(jax.jit(cc.grasp_compliance)(c.system, c.q, c.pose), expected, 1e-11, "Omega")


@pytest.mark.slow
def test_a_five_bar_in_minimal_coordinates():
    """Against tangents of the dense form through `expand`, along every coordinate."""
    robot, loops, guess = cc.mechanisms.five_bar()
    robot = robot.replace(stiffness=jnp.array([1.0, 2.0, 0.5, 3.0]))
    embedding = cc.embed(robot, loops, ["left1_joint", "right1_joint"], guess)
    rng = np.random.default_rng(0)
    rates, tau, d_tau = jnp.asarray(rng.normal(size=2)), jnp.asarray(rng.normal(size=4)), rng.normal(size=4)

    @jax.jit
    def both(rates, tau, d_tau):
        q = embedding.expand(embedding.coordinates(embedding.guess))

        def dense(x):
            at = embedding.expand(embedding.coordinates(q) + x[:2], q)
            harder = tau + x[4] * d_tau
            return cc.embedded_forward_dynamics(embedding, at, rates + x[2:4], harder, method="dense").rates

        expected = jax.lax.map(lambda e: jax.jvp(dense, (jnp.zeros(5),), (e,))[1], jnp.eye(5))
        return cc.linearize_embedded_dynamics(embedding, q, rates, tau), expected.T, differences(dense, jnp.eye(5)).T

    found, *both_ways = both(rates, tau, d_tau)
    for expected in both_ways:
        assert_close(np.concatenate([found.wrt_y, found.wrt_rates], axis=1), expected[:, :4], 1e-8)
        assert_close(np.asarray(found.wrt_tau) @ d_tau, expected[:, 4], 1e-9)


@pytest.mark.slow
def test_a_grasp_at_a_singularity_at_rest_has_finite_derivatives():
    """Two straight planar arms at rest: by every leaf and input in reverse mode; by torques, which keep the rank, as
    the dense solution has them."""
    robot = soa.models.planar_arm(3)
    other = robot.with_base(np.diag([-1.0, -1.0, 1.0]), np.array([3.0, 0, 0]))
    body = cc.RigidBody(1.0, (0, 0, 0), 0.1 * np.eye(3))
    system = cc.GraspSystem([cc.Arm(robot, "tip"), cc.Arm(other, "tip")], body)
    still = (jnp.zeros(3), jnp.zeros(3))
    tau, push = (jnp.array([0.0, 1.0, 0.0]), jnp.array([0.5, 0.0, -0.3])), jnp.linspace(-1.0, 1.0, 6)
    pose = (jnp.eye(3), jnp.array([1.5, 0, 0]))

    def motion(system, q, v, tau, method):
        s = cc.grasp_forward_dynamics(system, q, v, tau, pose, method=method)
        return jnp.concatenate([*s.a, s.object_acceleration, s.contact_forces.ravel()])

    @jax.jit
    def everything(system, q, v, tau):
        gradients = jax.grad(lambda *x: jnp.sum(motion(*x, "auto")), argnums=(0, 1, 2, 3))(system, q, v, tau)
        found = cc.linearize_grasp_forward_dynamics(system, q, v, tau, pose)
        harder = tuple(jnp.split(push, 2))
        dense = jax.jvp(lambda tau: motion(system, q, v, tau, "dense"), (tau,), (harder,))[1]
        return gradients, found, dense

    gradients, found, dense = everything(system, still, still, tau)
    for x in jax.tree.leaves((gradients, found)):
        assert np.isfinite(x).all()
    by_tau = np.concatenate([found.wrt_tau, found.object_wrt_tau, np.reshape(found.forces_wrt_tau, (12, 6))])
    assert_close(by_tau @ push, dense, 1e-9)
