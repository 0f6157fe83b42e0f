"""Friction cones on cases that a hand can compute."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc


def system(*contacts: cc.Contact) -> cc.GraspSystem:
    robot = soa.models.planar_arm(3)
    return cc.GraspSystem([cc.Arm(robot, "tip", contact=c) for c in contacts], cc.RigidBody(1, (0, 0, 0), np.eye(3)))


IDENTITY = (jnp.eye(3), jnp.zeros(3))


def test_a_point_contact():
    """Pressing with 10 N along x at friction 0.5: 5 N across are on the cone, (3, 4) N too, 5.1 N are outside."""
    grasp = system(*[cc.Point(normal=(1, 0, 0), friction=0.5)] * 4)
    forces = np.zeros((4, 6))
    forces[0, 3:] = 10, 3, 3.9
    forces[1, 3:] = 10, 5.1, 0
    forces[2, 3:] = -1, 0, 0
    forces[3, 3:] = 10, 0, 0
    report = jax.jit(cc.friction_report)(grasp, forces, IDENTITY)
    assert_allclose(report.normal_force, [10, 10, -1, 10])
    assert_allclose(report.tangential_force, [np.hypot(3, 3.9), 5.1, 0, 0])
    assert_allclose(report.friction_margin, [5 - np.hypot(3, 3.9), -0.1, -0.5, 5])
    assert report.presses.tolist() == [True, True, False, True]
    assert report.sticks.tolist() == [True, False, False, True]
    assert report.holds.tolist() == [True, False, False, True]


def test_a_soft_finger_holds_a_moment_about_its_normal():
    """Torsion 0.02 m at 10 N holds 0.2 N m about the normal, either way round."""
    grasp = system(*[cc.SoftFinger((0, 0, 2), friction=1.0, torsion=0.02)] * 3)
    forces = np.zeros((3, 6))
    forces[:, 5] = 10
    forces[:, 2] = 0.19, -0.21, 0.2
    report = cc.friction_report(grasp, forces, IDENTITY)
    assert_allclose(report.torsional_moment, [0.19, 0.21, 0.2])
    assert_allclose(report.torsion_margin, [0.01, -0.01, 0], atol=1e-12)
    assert report.holds.tolist() == [True, False, True]


def test_normals_turn_with_the_object():
    """A quarter turn about z takes the object's x axis to world y."""
    grasp = system(cc.Point(normal=(1, 0, 0), friction=0.3))
    R = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    report = cc.friction_report(grasp, np.array([[0, 0, 0, 1.0, 4.0, 0]]), (R, np.zeros(3)))
    assert_allclose(report.normal_force, [4])
    assert_allclose(report.tangential_force, [1])
    assert_allclose(report.friction_margin, [0.2])


def test_two_sided_contacts_always_hold():
    grasp = system(cc.Rigid(), cc.Hinge((1, 0, 0)), cc.Point())
    report = cc.friction_report(grasp, -100 * np.ones((3, 6)), IDENTITY)
    assert report.holds.all()
    assert np.isinf(report.friction_margin).all()


def test_margins_have_finite_gradients_even_without_tangential_force():
    grasp = system(cc.Point(normal=(1, 0, 0), friction=0.3))

    def margin(f):
        return jnp.sum(cc.friction_report(grasp, f, IDENTITY).friction_margin)

    assert_allclose(jax.grad(margin)(jnp.array([[0, 0, 0, 5.0, 0, 0]])), [[0, 0, 0, 0.3, 0, 0]])


def test_a_box_pressed_between_two_palms_is_lifted_by_friction():
    """2 kg between two palms at 30 N and friction 0.4: each carries 9.81 N of weight, 12 N would be the most."""
    left, right = cc.Point(normal=(1, 0, 0), friction=0.4), cc.Point(normal=(-1, 0, 0), friction=0.4)
    grasp = system(left, right)
    forces = np.array([[0, 0, 0, 30, 0, 9.81], [0, 0, 0, -30, 0, 9.81]])
    report = cc.friction_report(grasp, forces, IDENTITY)
    assert_allclose(report.friction_margin, [12 - 9.81, 12 - 9.81])
    assert report.holds.all()
    assert not cc.friction_report(grasp, forces * [1, 1, 1, 0.8, 1, 1], IDENTITY).holds.any()
