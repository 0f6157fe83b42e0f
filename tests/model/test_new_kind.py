"""What others ask of a joint kind they ask its class: in the order of v, and of a kind that they have never seen."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa.model.joints import JOINT_KINDS, Joint, JointGeometry, on_host
from jaxsoa.spatial import ops, rotation
from jaxsoa.viz.shapes import primitive_shapes


class PinInSlot(Joint):
    """Slides along `axis` and turns about `axis2`, both fixed in the joint frame."""

    name, nq, nv, coordinates, reads_axis2 = "pin_in_slot", 2, 2, ("displacement", "angle"), True

    def pose(self, geometry, q):
        return rotation.from_axis_angle(geometry.axis2, q[1]), ops.scale(q[0], geometry.axis)

    def axes(self, geometry, q):
        turn = rotation.from_axis_angle(geometry.axis2, q[1])
        return (None, ops.matvec_t(turn, geometry.axis)), (geometry.axis2, None)


@pytest.mark.parametrize("kind", JOINT_KINDS)
def test_on_the_host_and_in_jax_a_joint_is_the_same(kind):
    joint, rng = JOINT_KINDS[kind], np.random.default_rng(1)
    axis, axis2 = np.linalg.qr(rng.normal(size=(3, 3)))[0][:2]
    q = rng.uniform(0.3, 1.2, joint.nq)
    if joint.quaternion is not None:
        q[joint.quaternion] /= np.linalg.norm(q[joint.quaternion])
    R, p, H = on_host(joint, axis, axis2, 0.3, q)
    assert R.dtype == p.dtype == H.dtype == np.float64 and H.shape == (joint.nv, 6)
    geometry = JointGeometry(jnp.asarray(axis), jnp.asarray(axis2), jnp.asarray(0.3))
    np.testing.assert_allclose(R, joint.transform(geometry, jnp.asarray(q))[0], atol=1e-14)
    np.testing.assert_allclose(p, joint.transform(geometry, jnp.asarray(q))[1], atol=1e-14)
    if joint.nv:
        np.testing.assert_allclose(H, joint.subspace(geometry, jnp.asarray(q)), atol=1e-14)
    # The axes that the class says it reads are those that move it.
    moved = [on_host(joint, *pair, 0.3, q) for pair in ((axis2, axis2), (axis, axis))]
    differs = [any(not np.allclose(a, b) for a, b in zip(x, (R, p, H), strict=True)) for x in moved]
    if kind != "planar":  # which projects axis2 on its plane: the two must not be parallel
        assert differs == [joint.reads_axis, joint.reads_axis2]


def point_on_a_plane(armature) -> soa.Multibody:
    builder = soa.Builder("point")
    return builder.link("point", joint="planar", axis=(0, 0, 1), axis2=(1, 0, 0), mass=1.0, armature=armature).build()


def test_the_armature_of_a_planar_joint_is_in_the_order_of_its_velocities():
    """(x, y, angle): a point resists sliding, and only armature its turning."""
    with pytest.raises(soa.ModelError, match="without moving any inertia"):
        point_on_a_plane((0.1, 0, 0))
    robot = point_on_a_plane((0, 0, 0.1))
    np.testing.assert_allclose(soa.mass_matrix(robot, robot.neutral()), np.diag([1, 1, 0.1]), atol=1e-14)


def test_a_new_kind_needs_its_class_alone(monkeypatch):
    """With a point mass, whose mass matrix is looked at; validated, moved, drawn and saved like any other."""
    monkeypatch.setitem(JOINT_KINDS, "pin_in_slot", PinInSlot())
    slot = {"joint": "pin_in_slot", "axis": (2, 0, 0), "axis2": (0, 0, 3)}
    robot = soa.Builder("pin").link("bob", mass=2.0, com=(0, -0.5, 0), **slot).build()
    q, v = jnp.array([0.1, 0.4]), jnp.array([0.3, -0.2])
    # A pendulum whose pivot slides along x: M by hand, about the pivot, with the bob at 0.5 below it.
    lever = 2.0 * 0.5 * np.cos(0.4)
    np.testing.assert_allclose(soa.mass_matrix(robot, q), [[2, lever], [lever, 0.5]], atol=1e-14)
    acceleration = soa.forward_dynamics(robot, q, v, jnp.zeros(2))
    np.testing.assert_allclose(soa.inverse_dynamics(robot, q, v, acceleration), 0, atol=1e-13)
    assert len(primitive_shapes(robot)) > 2
    with pytest.raises(soa.ModelError, match="parallel"):
        soa.Builder("pin").link("bob", mass=2.0, **(slot | {"axis2": (1, 0, 0)})).build()
    with pytest.raises(soa.ModelError, match="without moving any inertia"):
        soa.Builder("pin").link("bob", mass=2.0, **slot).build()  # a point on the axis that it turns about
    # It is drawn, beside others.
    tree = soa.models.random_tree(1, 3, kinds=["pin_in_slot", "revolute"])
    assert "pin_in_slot" in tree.topology.kinds
    q, v, tau = tree.random(0), jnp.ones(tree.nv), jnp.ones(tree.nv)
    acceleration = soa.forward_dynamics(tree, q, v, tau)
    np.testing.assert_allclose(soa.inverse_dynamics(tree, q, v, acceleration), tau, atol=1e-10)
