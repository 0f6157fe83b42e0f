"""The model in code: builder, arrays, names and slices, changed copies, frames through merged joints, random poses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa

INERTIA = np.diag([0.02, 0.03, 0.04])


def turn_z(angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])


def small_robot(**build) -> soa.Multibody:
    """A slide with a ball joint on it, a bracket welded to the ball's link, and a hinge on the bracket."""
    builder = soa.Builder("small", root="ground")
    builder.link("cart", joint="prismatic", axis=(1, 0, 0), mass=2.0, inertia=INERTIA, lower=-0.2, upper=0.6)
    builder.link(
        "ball", parent="cart", joint="spherical", joint_name="hip", position=(0, 0, 0.1), mass=1.0,
        com=(0, 0.1, 0), inertia=INERTIA, damping=(0.1, 0.2, 0.3),
    )  # fmt: skip
    builder.link(
        "bracket", parent="ball", joint="fixed", rotation=turn_z(np.pi / 2), position=(0.5, 0, 0), mass=3.0,
        com=(0.1, 0, 0), inertia=2 * INERTIA,
    )  # fmt: skip
    builder.link(
        "tool", parent="bracket", joint="revolute", position=(0.2, 0, 0), axis=(0, 0, 2), mass=0.5, inertia=INERTIA,
        armature=0.01, friction=0.4, lower=-1, upper=1,
    )  # fmt: skip
    builder.frame("camera", link="bracket", position=(0, 0, 0.3)).frame("marker", position=(1, 2, 3))
    return builder.build(**build)


def test_sizes_and_names():
    robot = small_robot()
    assert (robot.name, robot.nq, robot.nv, robot.n_links) == ("small", 6, 5, 3)
    assert robot.link_names == ("cart", "ball", "tool")
    assert robot.joint_names == ("cart_joint", "hip", "tool_joint")
    assert set(robot.frame_names) == {"ground", "cart", "ball", "bracket", "tool", "camera", "marker"}
    assert robot.q_index("hip") == slice(1, 5) and robot.v_index("hip") == slice(1, 4)
    assert robot.q_index("tool_joint") == slice(5, 6) and robot.v_index("tool_joint") == slice(4, 5)
    np.testing.assert_array_equal(robot.neutral(), [0, 1, 0, 0, 0, 0])
    assert "small" in repr(robot) and "nq=6" in repr(robot)


def test_fixed_joints_are_merged_and_their_frames_kept():
    robot = small_robot()
    # ball (1 kg at (0, .1, 0)) and bracket (3 kg at (.5, .1, 0), turned by a quarter) become one body.
    np.testing.assert_allclose(robot.mass, [2, 4, 0.5])
    np.testing.assert_allclose(robot.com[1], [0.375, 0.1, 0])
    steiner = 1.0 * 0.375**2 + 3.0 * 0.125**2
    expected = np.diag([0.02 + 2 * 0.03, 0.03 + 2 * 0.02 + steiner, 0.04 + 2 * 0.04 + steiner])
    np.testing.assert_allclose(robot.inertia[1], expected, atol=1e-15)
    pose = jax.jit(lambda q: {f: soa.frame_pose(robot, q, f) for f in robot.frame_names})(robot.neutral())
    expected = {
        "ground": (0, 0, 0), "cart": (0, 0, 0), "ball": (0, 0, 0.1), "bracket": (0.5, 0, 0.1),
        "tool": (0.5, 0.2, 0.1), "camera": (0.5, 0, 0.4), "marker": (1, 2, 3),
    }  # fmt: skip
    for frame, position in expected.items():
        np.testing.assert_allclose(pose[frame][1], position, atol=1e-15)
    for frame in ("bracket", "tool", "camera"):
        np.testing.assert_allclose(pose[frame][0], turn_z(np.pi / 2), atol=1e-15)


def test_axes_are_normalized_and_values_are_spread_over_degrees():
    robot = small_robot()
    np.testing.assert_allclose(robot.axis[2], [0, 0, 1])
    np.testing.assert_allclose(robot.damping, [0, 0.1, 0.2, 0.3, 0])
    np.testing.assert_allclose(robot.friction, [0, 0, 0, 0, 0.4])
    np.testing.assert_allclose(robot.armature, [0, 0, 0, 0, 0.01])


def test_from_arrays_equals_the_builder():
    rng = np.random.default_rng(0)
    n = 3
    arrays = dict(
        position=rng.normal(size=(n, 3)), axis=np.eye(3), mass=np.ones(n), com=rng.normal(size=(n, 3)),
        inertia=np.stack([INERTIA] * n), axis2=np.roll(np.eye(3), 1, axis=0), pitch=np.array([0, 0.1, 0]),
        rotation=np.stack([turn_z(a) for a in (0.1, 0.2, 0.3)]),
    )  # fmt: skip
    kinds = ("revolute", "helical", "universal")
    robot = soa.from_arrays((-1, 0, 0), kinds, names=("a", "b", "c"), gravity=(0, 0, 1), **arrays)
    builder = soa.Builder()
    for k, (name, parent) in enumerate((("a", None), ("b", "a"), ("c", "a"))):
        builder.link(name, parent=parent, joint=kinds[k], **{key: value[k] for key, value in arrays.items()})
    other = builder.build(gravity=(0, 0, 1))
    assert robot.topology == other.topology and hash(robot.topology) == hash(other.topology)
    jax.tree.map(np.testing.assert_array_equal, robot, other)
    unnamed = soa.from_arrays((-1, 0, 1), "revolute", **arrays)
    assert unnamed.joint_names == ("link0_joint", "link1_joint", "link2_joint")


def test_from_arrays_says_what_is_wrong():
    good = dict(
        position=np.zeros((2, 3)), axis=np.eye(3)[:2], mass=np.ones(2), com=np.zeros((2, 3)),
        inertia=np.stack([INERTIA] * 2),
    )  # fmt: skip
    with pytest.raises(soa.ModelError, match=r"mass must have shape \(2,\) for 2 links, got \(3,\)"):
        soa.from_arrays((-1, 0), "revolute", **{**good, "mass": np.ones(3)})
    with pytest.raises(soa.ModelError, match=r"link 0 .* has parent 1"):
        soa.from_arrays((1, -1), "revolute", **good)
    with pytest.raises(soa.ModelError, match="2 parents need 2 kinds"):
        soa.from_arrays((-1, 0), ["revolute"], **good)


def test_copies_leave_the_original_alone():
    robot = small_robot()
    heavy = robot.replace(mass=2 * robot.mass)
    np.testing.assert_allclose(heavy.mass, 2 * np.asarray(robot.mass))
    np.testing.assert_allclose(robot.mass, [2, 4, 0.5])
    assert heavy.topology is robot.topology
    smooth = robot.frictionless()
    assert not np.any(smooth.damping) and not np.any(smooth.friction)
    np.testing.assert_array_equal(smooth.armature, robot.armature)
    np.testing.assert_array_equal(robot.with_gravity((0, 0, 0)).gravity, np.zeros(3))
    with pytest.raises(TypeError, match="no leaf 'masss'"):
        robot.replace(masss=1)
    with pytest.raises(ValueError, match=r"mass of 'small' has shape \(3,\), got \(2,\)"):
        robot.replace(mass=[1, 2])


def test_base_pose_moves_everything():
    robot = small_robot()
    R, p = turn_z(0.4), jnp.array([1.0, 2, 3])
    moved = robot.with_base(R, p)
    q = robot.random(0)
    poses = jax.jit(lambda robot: (soa.forward_kinematics(robot, q), soa.frame_pose(robot, q, "marker")))
    (before, before_marker), (after, after_marker) = poses(robot), poses(moved)
    np.testing.assert_allclose(after.rotation, R @ before.rotation, atol=1e-14)
    np.testing.assert_allclose(after.position, before.position @ R.T + p, atol=1e-14)
    np.testing.assert_allclose(after_marker[1], R @ before_marker[1] + p, atol=1e-14)


def test_astype_changes_every_leaf_and_every_result():
    robot = small_robot().astype(jnp.float32)
    assert robot.dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(robot)} == {jnp.dtype("float32")}
    assert robot.neutral().dtype == robot.random(0).dtype == jnp.float32


def test_random_configurations_respect_limits_and_are_on_the_manifold():
    robot = small_robot()
    q = np.asarray(jax.jit(jax.vmap(robot.random))(jax.random.split(jax.random.key(0), 500)))
    assert q[:, 0].min() >= -0.2 and q[:, 0].max() <= 0.6 and np.ptp(q[:, 0]) > 0.7
    np.testing.assert_allclose(np.linalg.norm(q[:, 1:5], axis=1), 1, atol=1e-12)
    assert np.abs(q[:, 1:5].mean(axis=0)).max() < 0.1  # uniform on the sphere
    assert q[:, 5].min() >= -1 and q[:, 5].max() <= 1 and np.ptp(q[:, 5]) > 1.9
    np.testing.assert_array_equal(robot.random(3), robot.random(jax.random.key(3)))


def test_integrate_and_difference_of_all_kinds_together():
    robot = soa.models.random_tree(4, 10)  # every kind, shuffled: the joining of groups is what is tested
    assert len(set(robot.topology.kinds)) >= 9
    v = 0.5 * jax.random.normal(jax.random.key(1), (robot.nv,))

    @jax.jit
    def there_and_back(q, v):
        moved = robot.integrate(q, v)
        return moved, robot.difference(q, moved)

    q = robot.random(2)
    moved, back = there_and_back(q, v)
    np.testing.assert_allclose(back, v, atol=1e-13)
    for joint, kind in zip(robot.joint_names, robot.topology.joints, strict=True):
        one = kind.integrate(q[robot.q_index(joint)], v[robot.v_index(joint)])
        np.testing.assert_allclose(moved[robot.q_index(joint)], one, atol=1e-14)


def test_floating_base_of_a_file():
    body = '<inertial><mass value="2"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
    xml = f"""<robot name="two"><link name="trunk">{body}</link><link name="arm">{body}</link>
      <joint name="j" type="continuous"><parent link="trunk"/><child link="arm"/></joint></robot>"""
    fixed, floating = soa.load_urdf(xml), soa.load_urdf(xml, floating_base=True)
    assert (fixed.nq, fixed.nv, fixed.joint_names) == (1, 1, ("j",))
    assert (floating.nq, floating.nv, floating.joint_names) == (8, 7, ("floating_base", "j"))
    assert floating.link_names == ("trunk", "arm") and floating.topology.kinds[0] == "free"
    assert "trunk" in fixed.frame_names and "trunk" in floating.frame_names


def test_floating_base_beside_a_fixed_joint_of_that_name():
    """Many quadruped files weld their trunk to a massless base by a fixed joint called floating_base."""
    body = '<inertial><mass value="2"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
    xml = f"""<robot name="dog"><link name="base"/><link name="trunk">{body}</link><link name="leg">{body}</link>
      <joint name="floating_base" type="fixed"><parent link="base"/><child link="trunk"/></joint>
      <joint name="hip" type="continuous"><parent link="trunk"/><child link="leg"/></joint></robot>"""
    robot = soa.load_urdf(xml, floating_base=True)
    assert robot.joint_names == ("floating_base", "hip") and robot.nv == 7


def test_moving_links_follow_the_files_order():
    body = '<inertial><mass value="2"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
    links = "".join(f'<link name="{name}">{body}</link>' for name in "abcd")
    joint = '<joint name="{0}{1}" type="continuous"><parent link="{0}"/><child link="{1}"/></joint>'
    joints = joint.format("c", "d") + joint.format("a", "b") + joint.format("a", "c")
    robot = soa.load_urdf(f'<robot name="r">{links}{joints}</robot>')
    assert robot.joint_names == ("ab", "ac", "cd")  # as in the file, but each after the joint that carries it
    assert robot.topology.parents == (-1, -1, 1)


def test_a_model_is_a_pytree_with_static_topology():
    robot = small_robot()
    leaves, structure = jax.tree.flatten(robot)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert jax.tree.unflatten(structure, leaves).topology is robot.topology
    traces = []

    @jax.jit
    def total(robot):
        traces.append(1)
        return jnp.sum(robot.mass)

    assert float(total(robot)) == 6.5 and float(total(robot.replace(mass=[1, 1, 1]))) == 3
    assert float(total(small_robot())) == 6.5  # an equal topology made anew
    assert len(traces) == 1


def test_models_do_not_change_with_the_arrays_they_were_made_of():
    """JAX uses NumPy's memory where it is, if that begins at a multiple of 64 bytes."""
    memory = np.zeros(32)
    given = memory[-memory.ctypes.data % 64 // 8 :][:3]
    given[:] = 1.0, 2.0, 3.0
    robot = soa.models.pendulum(3).replace(mass=given)
    body = soa.closed_chain.RigidBody(1.0, given, np.eye(3))
    builder = soa.Builder("one").link("body", joint="revolute", mass=1.0, com=given, inertia=np.eye(3))
    loop = soa.closed_chain.Loop("body", "body", free=memory[-memory.ctypes.data % 64 // 8 :][:6].reshape(1, 6))
    given[:] = 9.0
    for leaf in (robot.mass, body.com, builder.build().com[0], loop.free[0, :3]):
        np.testing.assert_array_equal(leaf, [1.0, 2.0, 3.0])
