"""The ready-made robots: well-formed, physical, and equal to what was published about them."""

import jax
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import models
from jaxsoa.model.joints import JOINT_KINDS
from jaxsoa.models import mechanisms, published, random_trees

QUARTER = np.pi / 2

DESCRIPTIONS = {
    "pendulum": mechanisms._describe_pendulum(3, 1.0, 1.0),
    "chain": mechanisms._describe_chain(5, 0.3, 1.0),
    "planar_arm": mechanisms._describe_planar_arm(3, 0.5, 1.0),
    "cart_pole": mechanisms._describe_cart_pole(),
    "puma560": published._describe_puma560(),
    "puma560 with friction": published._describe_puma560(friction=True),
    "stanford_arm": published._describe_stanford_arm(),
    "dual_arm": mechanisms._describe_dual_arm(),
    "random tree": random_trees._describe_random_tree(0, 30, armature=True, damping=True, friction=True),
    "random chain": random_trees._describe_random_tree(1, 12, shape="chain"),
    "random star": random_trees._describe_random_tree(2, 12, shape="star"),
}


@pytest.fixture(params=DESCRIPTIONS.values(), ids=DESCRIPTIONS.keys())
def description(request):
    return request.param


def test_names_are_unique_and_parents_come_before_children(description):
    links = [link.name for link in description.links]
    joints = [joint.name for joint in description.joints]
    frames = [frame.name for frame in description.frames]
    assert len({*links, *frames}) == len(links) + len(frames)
    assert len(set(joints)) == len(joints)
    assert {frame.link for frame in description.frames} <= set(links)
    # Every link but the root hangs on exactly one joint, and the joints come in the order of the links they move.
    assert [joint.child for joint in description.joints] == links[1:]
    for joint in description.joints:
        assert links.index(joint.parent) < links.index(joint.child)


def test_frames_are_right_handed_and_axes_are_unit_vectors(description):
    for placed in (*description.joints, *description.frames):
        np.testing.assert_allclose(placed.rotation @ placed.rotation.T, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(np.linalg.det(placed.rotation), 1.0)
        assert placed.position.shape == (3,)
    for joint in description.joints:
        np.testing.assert_allclose(np.linalg.norm(joint.axis), 1.0)
        np.testing.assert_allclose(np.linalg.norm(joint.axis2), 1.0)
        if joint.kind in ("universal", "planar"):
            assert abs(joint.axis @ joint.axis2) < 1e-12


def test_joint_values_have_one_entry_per_degree_of_freedom_and_the_right_sign(description):
    for joint in description.joints:
        for value in (joint.armature, joint.damping, joint.friction):
            assert np.shape(value) in ((), (JOINT_KINDS[joint.kind].nv,))
            assert np.all(np.asarray(value) >= 0.0)
        assert np.all(np.asarray(joint.lower) < np.asarray(joint.upper))


def test_moving_links_are_physical_bodies(description):
    for link in description.links[1:]:
        assert link.mass > 0.0
        np.testing.assert_allclose(link.inertia, link.inertia.T, atol=1e-15)
        smallest, middle, largest = np.linalg.eigvalsh(link.inertia)
        assert smallest > 0.0
        # The published inertia of the PUMA's third link misses the triangle inequality; it is kept as measured.
        if (description.name, link.name) != ("puma560", "link3"):
            assert largest <= (smallest + middle) * (1 + 1e-9)


def gravity_load(robot, q):
    zero = np.zeros(robot.nv)
    return soa.inverse_dynamics(robot, np.asarray(q), zero, zero)


@pytest.mark.parametrize(
    ("pose", "load"),
    [
        ((0, np.pi / 4, np.pi, 0, np.pi / 4, 0), (0, 31.6399, 6.0351, 0, 0.0283, 0)),  # qn, nominal
        ((0, 0, 0, 0, 0, 0), (0, 37.4837, 0.2489, 0, 0, 0)),  # qz, the zero angles
        ((0, 0, -np.pi / 2, 0, 0, 0), (0, 46.0069, 8.7722, 0, 0.0283, 0)),  # qs, stretched
        ((0, np.pi / 2, -np.pi / 2, 0, 0, 0), (0, -0.7752, 0.2489, 0, 0, 0)),  # qr, ready
    ],
    ids=["qn", "qz", "qs", "qr"],
)
def test_puma560_gravity_load_is_the_published_one(pose, load):
    """The values are those of `p560.gravload` in P. Corke, "Robotics, Vision and Control"."""
    np.testing.assert_allclose(gravity_load(models.puma560(), np.array(pose, float)), load, atol=1e-4)


def test_puma560_gravity_constants_of_armstrong():
    """g1 = -37.2 N m turns with the upper arm, g2 = -8.44 N m with the forearm; three digits are published."""
    robot = models.puma560()
    # The load on the shoulder is g1 cos(q2) + g3 sin(q2) + (terms of the forearm's direction, q2 + q3 only); turning
    # the upper arm alone by half a turn changes the sign of the first part and keeps the rest.
    ahead = gravity_load(robot, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    back = gravity_load(robot, [0.0, np.pi, -np.pi, 0.0, 0.0, 0.0])
    np.testing.assert_allclose((ahead[1] - back[1]) / 2, 37.2, atol=0.05)
    # The forearm's part, on the elbow: half the difference between both horizontal directions. With a straight wrist
    # the hand (g5 = -0.0282 N m) turns with it. The toolbox's link 4 has its centre of mass 19 mm on the other side.
    forward = gravity_load(robot, [0.0, 0.0, -QUARTER, 0.0, 0.0, 0.0])
    backward = gravity_load(robot, [0.0, 0.0, QUARTER, 0.0, 0.0, 0.0])
    moved_mass = 2 * 0.82 * 0.019 * 9.81
    np.testing.assert_allclose((forward[2] - backward[2]) / 2, 8.44 + 0.0282 + moved_mass, atol=0.005)


def test_puma560_mass_matrix_is_the_published_one():
    """`p560.inertia(qn)` of the Robotics Toolbox; the motors' share is in it."""
    published = np.diag([3.6594, 4.4137, 0.9378, 0.1925, 0.1713, 0.1941])
    for row, column, value in (
        (0, 1, -0.4044),
        (0, 2, 0.1006),
        (0, 3, -0.0025),
        (1, 2, 0.3509),
        (1, 4, 0.0024),
        (2, 4, 0.0015),
    ):
        published[row, column] = published[column, row] = value
    qn = np.array([0.0, np.pi / 4, np.pi, 0.0, np.pi / 4, 0.0])
    np.testing.assert_allclose(soa.mass_matrix(models.puma560(), qn), published, atol=1e-4)


def test_puma560_friction_only_adds_friction():
    plain, rough = published._describe_puma560(), published._describe_puma560(friction=True)
    # Joint 1: 1.48e-3 N m s at the motor, 0.395 and 0.435 N m, seen through a gear of 62.6111.
    np.testing.assert_allclose(rough.joints[0].damping, 1.48e-3 * 62.6111**2)
    np.testing.assert_allclose(rough.joints[0].friction, 0.415 * 62.6111)
    assert all(joint.damping == joint.friction == 0.0 for joint in plain.joints)
    assert [j.armature for j in plain.joints] == [j.armature for j in rough.joints]


def test_stanford_arm_slides_at_its_third_joint():
    description = published._describe_stanford_arm()
    assert [joint.kind for joint in description.joints] == ["revolute", "revolute", "prismatic", *["revolute"] * 3]
    robot = models.stanford_arm()
    pose = np.array([0.0, QUARTER, 0.5, 0.0, 0.0, 0.0])
    further = pose + np.array([0.0, 0.0, 0.25, 0.0, 0.0, 0.0])
    (_, near), (_, far) = soa.frame_pose(robot, pose, "tool"), soa.frame_pose(robot, further, "tool")
    # The boom points along x when the shoulder is turned by a quarter; base and shoulder offsets are 0.412 and 0.154.
    np.testing.assert_allclose(near, [0.5 + 0.263, 0.154, 0.412], atol=1e-6)
    np.testing.assert_allclose(far - near, [0.25, 0.0, 0.0], atol=1e-6)


@pytest.mark.parametrize(
    ("joint", "pose", "inertia"),
    [
        (1, (0.0, 0.0, 0.43, 0.0, 0.0, 0.0), 1.417),
        (1, (0.0, QUARTER, 1.1176, 0.0, 0.0, 0.0), 6.176),
        (2, (0.0, 0.0, 0.43, QUARTER, -QUARTER, 0.0), 3.590),
        (2, (0.0, QUARTER, 1.1176, 0.0, 0.0, 0.0), 6.950),
        (3, (0.0, 0.0, 0.43, 0.0, 0.0, 0.0), 7.257),
        (4, (0.0, 0.0, 0.43, 0.0, 0.0, 0.0), 0.108),
        (4, (0.0, 0.0, 0.43, 0.0, QUARTER, 0.0), 0.123),
        (5, (0.0, 0.0, 0.43, 0.0, 0.0, 0.0), 0.114),
    ],
)
def test_stanford_arm_inertias_are_the_published_ones(joint, pose, inertia):
    mass_matrix = soa.mass_matrix(models.stanford_arm(), np.array(pose))
    np.testing.assert_allclose(mass_matrix[joint - 1, joint - 1], inertia, rtol=0.01)


def test_pendulum_hangs_and_cart_pole_stands_in_equilibrium():
    np.testing.assert_allclose(gravity_load(models.pendulum(3), np.zeros(3)), 0.0, atol=1e-6)
    np.testing.assert_allclose(gravity_load(models.cart_pole(), np.zeros(2)), 0.0, atol=1e-6)
    # Held level, a rod of 1 kg and 1 m weighs on its hinge with half its length; a standing pole falls away from 0.
    np.testing.assert_allclose(abs(gravity_load(models.pendulum(), [QUARTER])), [9.81 / 2], rtol=1e-5)
    assert gravity_load(models.pendulum(), [0.1])[0] > 0.0 > gravity_load(models.cart_pole(), [0.0, 0.1])[1]


def test_planar_arm_feels_no_gravity():
    np.testing.assert_allclose(gravity_load(models.planar_arm(3), [0.3, -0.5, 0.7]), 0.0, atol=1e-6)


def test_dual_arm_is_symmetric():
    robot = models.dual_arm()
    assert robot.nv == robot.nq == 15
    q = np.zeros(15)
    (_, left), (_, right) = soa.frame_pose(robot, q, "left_hand"), soa.frame_pose(robot, q, "right_hand")
    np.testing.assert_allclose(left * np.array([1.0, -1.0, 1.0]), right, atol=1e-6)


@pytest.mark.parametrize("n", [1, 9, 20])
def test_random_tree_has_as_many_links_as_asked_for(n):
    assert models.random_tree(3, n).n_links == n
    floating = models.random_tree(3, n, floating_base=True)
    assert floating.n_links == n
    assert floating.joint_names[0] == "floating_base"


def test_random_tree_holds_every_kind():
    for seed in range(5):
        kinds = [joint.kind for joint in random_trees._describe_random_tree(seed, 9).joints]
        assert sorted(kinds) == sorted(name for name, kind in JOINT_KINDS.items() if kind.nv > 0)
    few = random_trees._describe_random_tree(0, 8, kinds=("revolute", "spherical"))
    assert {joint.kind for joint in few.joints} == {"revolute", "spherical"}


def test_random_tree_is_reproducible():
    def values(key):
        tree = random_trees._describe_random_tree(key, 6, armature=True)
        return np.concatenate([np.ravel(joint.position) for joint in tree.joints] + [link.com for link in tree.links])

    for key in (7, jax.random.key(7), jax.random.PRNGKey(7)):
        np.testing.assert_array_equal(values(key), values(key))
    np.testing.assert_array_equal(values(jax.random.key(7)), values(jax.random.PRNGKey(7)))
    assert not np.array_equal(values(7), values(8))
    assert not np.array_equal(values(jax.random.key(7)), values(jax.random.key(8)))


def test_random_tree_shapes():
    def parents(shape):
        return [joint.parent for joint in random_trees._describe_random_tree(0, 12, shape=shape).joints]

    assert parents("chain") == ["base", *[f"link{k}" for k in range(1, 12)]]
    assert parents("star") == ["base"] * 12
    assert 1 < len(set(parents("random"))) < 12


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="at least 1; got 0"):
        models.pendulum(0)
    with pytest.raises(ValueError, match="at least 1; got 0"):
        models.random_tree(0, 0)
    with pytest.raises(ValueError, match="ball"):
        models.random_tree(0, 3, kinds=("revolute", "ball"))
    with pytest.raises(ValueError, match="ring"):
        models.random_tree(0, 3, shape="ring")  # pyright: ignore[reportArgumentType]
