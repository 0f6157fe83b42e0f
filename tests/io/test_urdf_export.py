"""Robots written as URDF: read back they are the same, by us and by others; what URDF cannot say is said."""

from __future__ import annotations

import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers.compare import assert_close, random_state, relative_error
from helpers.example_robots import EXAMPLE_ROBOTS
from mjcf_collection import plant
from numpy.testing import assert_allclose, assert_array_equal

import jaxsoa as soa
from jaxsoa.io import read_urdf
from jaxsoa.io.urdf_export import urdf_text


def load(source, **options) -> soa.Multibody:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soa.ModelWarning)
        return soa.load_urdf(source, validate="off", **options)


def load_silently(source) -> soa.Multibody:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return soa.load_urdf(source)


def assert_same_robot(again: soa.Multibody, robot: soa.Multibody) -> None:
    """The same tree, names, coordinates, limits and frames, and leaves that differ by rounding at most."""
    assert again.name == robot.name
    assert again.link_names == robot.link_names
    assert again.joint_names == robot.joint_names
    assert again.topology.parents == robot.topology.parents
    assert set(again.frame_names) == set(robot.frame_names)
    assert again.topology.mimics == robot.topology.mimics
    hinges = [kind if kind != "revolute" else "continuous" for kind in robot.topology.kinds]
    assert [kind if kind != "revolute" else "continuous" for kind in again.topology.kinds] == hinges
    for leaf in ("mass", "com", "joint_position", "damping", "friction", "base_position"):
        assert_array_equal(getattr(again, leaf), getattr(robot, leaf), err_msg=leaf)
    for leaf in ("lower", "upper", "velocity", "effort"):
        assert_array_equal(getattr(again.limits, leaf), getattr(robot.limits, leaf), err_msg=leaf)
    assert_allclose(again.inertia, robot.inertia, rtol=1e-15, atol=1e-18)
    for leaf in ("joint_rotation", "axis"):
        assert_allclose(getattr(again, leaf), getattr(robot, leaf), atol=2e-15, err_msg=leaf)
    order = [again.topology.frame_number(name) for name in robot.frame_names]
    assert tuple(again.topology.frame_links[k] for k in order) == robot.topology.frame_links
    assert_allclose(np.asarray(again.frame_rotation)[order], robot.frame_rotation, atol=2e-15)
    assert_allclose(np.asarray(again.frame_position)[order], robot.frame_position, atol=1e-15)


RIGID = ("ur3.urdf", "alex_psyonic_hands.urdf", "romeo.urdf", "romeo_laas_small.urdf")
FLYING = ("quadrotor_base.urdf", "iris_simple.urdf")


@pytest.mark.skipif(not EXAMPLE_ROBOTS, reason="example-robot-data is not installed")
def test_every_example_robot_comes_back():
    count = 0
    for name, path in EXAMPLE_ROBOTS.items():
        if name in RIGID:
            continue  # refused by the reader, for reasons of their own
        robot = load(path, floating_base=name in FLYING or count % 2 == 0)
        again = load(urdf_text(robot))
        assert_same_robot(again, robot)
        count += 1
    assert count >= 65


@pytest.mark.slow
@pytest.mark.skipif(not EXAMPLE_ROBOTS, reason="example-robot-data is not installed")
def test_the_dynamics_of_example_robots_come_back():
    """Inverse and forward dynamics before and after, of forty robots in one forest (compiled once)."""
    before, after = {}, {}
    for name, path in sorted(EXAMPLE_ROBOTS.items()):
        if name not in (*RIGID, *FLYING) and len(before) < 40:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", soa.ModelWarning)
                before[name] = read_urdf(path, validate="off")
                after[name] = read_urdf(urdf_text(load(path)), validate="off")
    robot, again = plant(before), plant(after)
    assert (robot.joint_names, robot.topology.parents) == (again.joint_names, again.topology.parents)
    # The same leaves in the same topology, so that nothing is compiled twice.
    leaves = ("joint_rotation", "joint_position", "axis", "mass", "com", "inertia", "damping", "friction")
    again = robot.replace(**{leaf: getattr(again, leaf) for leaf in leaves})
    rng = np.random.default_rng(0)
    q, v, a, tau = rng.uniform(-1, 1, (4, robot.nv))

    @jax.jit
    def dynamics(robot):
        return soa.inverse_dynamics(robot, q, v, a), soa.forward_dynamics(robot, q, v, tau)

    (torque, motion), (torque_again, motion_again) = dynamics(robot), dynamics(again)
    errors = {}
    for name in before:
        own = [k for k, joint in enumerate(robot.joint_names) if joint.startswith(f"{name}|")]
        assert_close(np.asarray(torque_again)[own], np.asarray(torque)[own], 1e-12, f"{name}: inverse dynamics")
        errors[name] = relative_error(np.asarray(motion_again)[own], np.asarray(motion)[own])
    # Some (icub: inertias that no body has) have a nearly singular mass matrix, which magnifies rounding.
    assert max(errors.values()) < 1e-9, errors
    assert sum(error < 1e-12 for error in errors.values()) >= 35, errors


def all_that_urdf_can_say() -> soa.Multibody:
    builder = soa.Builder("several")
    rng = np.random.default_rng(0)
    parent = None
    kinds = ["free", "revolute", "prismatic", "continuous", "planar", "universal", "cylindrical", "planar"]
    for k, kind in enumerate(kinds):
        turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        axis = rng.normal(size=3)
        axis2 = np.cross(axis, rng.normal(size=3))
        builder.link(
            f"l{k}", joint=kind, parent=parent, rotation=turn * np.linalg.det(turn), position=rng.normal(size=3),
            axis=axis, axis2=axis2 if kind == "universal" or k == 7 else [1, 0, 0],
            mass=1 + k, com=rng.normal(size=3), inertia=np.diag([1, 1.1, 1.2]) + 0.1, damping=0.1 * k, friction=0.2,
        )  # fmt: skip
        parent = f"l{k}"
    builder.frame("tip", link=parent, position=(0, 0, 1), rotation=np.diag([1.0, -1.0, -1.0]))
    robot = builder.build()
    return robot.with_base(np.array([[0, -1.0, 0], [1, 0, 0], [0, 0, 1]]), (1.0, 2.0, 3.0))


@jax.jit
def motion(robot, q, v, tau):
    return soa.forward_dynamics(robot, q, v, tau), soa.frame_pose(robot, q, "tip"), soa.jacobian(robot, q, "tip")


def test_the_same_dynamics_whatever_the_joints(tmp_path: Path):
    robot = all_that_urdf_can_say()
    path = tmp_path / "robot.urdf"
    soa.save_urdf(robot, path)
    again = load_silently(path)
    # Universal, cylindrical and the second planar joint are chains now; q, v and their order are the same.
    assert (again.n_links, again.nq, again.nv) == (robot.n_links + 1 + 1 + 2, robot.nq, robot.nv)
    q, v, tau, _ = random_state(robot, 3)
    for actual, expected in zip(
        jax.tree.leaves(motion(again, q, v, tau)), jax.tree.leaves(motion(robot, q, v, tau)), strict=True
    ):
        assert_close(actual, expected, 1e-12)


def two(kind: str = "revolute", **options) -> soa.Multibody:
    builder = soa.Builder("two")
    builder.link("a", joint="continuous", mass=1, inertia=np.eye(3))
    builder.link("b", parent="a", joint=kind, mass=1, inertia=np.eye(3), **options)
    return builder.build()


@pytest.mark.parametrize(("lower", "upper"), [(-np.inf, np.inf), (-1.0, np.inf), (-np.inf, 2.0), (0.1, 0.2)])
@pytest.mark.parametrize("kind", ["revolute", "prismatic"])
def test_limits_come_back_infinite_ones_too(kind: str, lower: float, upper: float):
    robot = two(kind, lower=lower, upper=upper, effort=5.0)
    again = load_silently(urdf_text(robot))
    assert_same_robot(again, robot)
    assert again.topology.kinds[1] == ("continuous" if kind == "revolute" and np.isinf([lower, upper]).all() else kind)


def test_pinocchio_reads_what_we_write():
    """Its reader insists on finite limits, with effort and velocity."""
    pin = pytest.importorskip("pinocchio")
    for robot in (two("prismatic"), two("revolute", lower=-1.0), two("planar"), two("free"), soa.models.puma560()):
        model = pin.buildModelFromXML(urdf_text(robot, validate="off"))
        assert model.nv == robot.nv
        total = sum(inertia.mass for inertia in model.inertias)
        assert_allclose(total, float(np.sum(robot.mass)), rtol=1e-14)


@pytest.mark.parametrize("pitch", [np.pi / 2, -np.pi / 2, np.pi / 2 - 1e-9, np.pi / 2 - 1e-5, 0.0, np.pi])
def test_rotations_at_and_near_gimbal_lock(pitch: float):
    c, s = np.cos(pitch), np.sin(pitch)
    for roll in (0.0, 0.7, -2.0):
        cr, sr = np.cos(roll), np.sin(roll)
        turn = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]) @ np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
        robot = two(rotation=turn)
        assert_allclose(load_silently(urdf_text(robot)).joint_rotation[1], turn, atol=1e-15)


def test_single_precision_is_written_exactly():
    robot = soa.models.puma560().astype(np.float32)
    again = load(urdf_text(robot, validate="off")).astype(np.float32)
    assert_array_equal(again.mass, robot.mass)
    upper = np.triu_indices(3)
    assert_allclose(again.inertia[:, *upper], robot.inertia[:, *upper], atol=1e-30)


def test_names_are_escaped():
    builder = soa.Builder('<&">')
    builder.link('l <&"> ü', joint="continuous", joint_name="j'\"&", mass=1, inertia=np.eye(3))
    again = load_silently(urdf_text(builder.build()))
    assert (again.name, again.link_names, again.joint_names) == ('<&">', ('l <&"> ü',), ("j'\"&",))


def test_what_is_lost_follows_the_policy(tmp_path: Path):
    robot = two(armature=0.1, friction=0.1).with_gravity((0, 0, -1.62)).replace(friction_velocity=1.0)
    fragments = ["gravity [0.0, 0.0, -1.62]", "armature of joints b_joint", "friction velocity 1.0"]
    with pytest.warns(soa.ModelWarning) as record:
        soa.save_urdf(robot, tmp_path / "x")
    assert len(record) == 1
    assert record[0].filename == __file__
    with pytest.raises(soa.ModelError) as caught:
        soa.save_urdf(robot, tmp_path / "y", validate="strict")
    for fragment in fragments:
        assert fragment in str(record[0].message)
        assert fragment in str(caught.value)
    assert not (tmp_path / "y").exists()
    soa.save_urdf(robot, tmp_path / "z", validate="off")
    with pytest.raises(ValueError, match="'lenient'"):
        soa.save_urdf(robot, tmp_path / "y", validate="lenient")


def test_what_urdf_cannot_say():
    with pytest.raises(soa.ModelError, match="'b_joint' of robot 'two' is spherical, which URDF cannot say"):
        urdf_text(two("spherical"))
    with pytest.raises(soa.ModelError, match="is helical"):
        urdf_text(two("helical", pitch=0.1))
    with pytest.raises(soa.ModelError, match="damping or friction that differs"):
        urdf_text(two("free", damping=(1, 2, 3, 4, 5, 6)))
    batch = jax.tree.map(lambda x: np.stack([x, x]), two())
    with pytest.raises(soa.ModelError, match="one at a time"):
        urdf_text(batch)
    builder = soa.Builder("bad").link("a\x01b", joint="continuous", mass=1, inertia=np.eye(3))
    with pytest.raises(soa.ModelError, match="holds control characters"):
        urdf_text(builder.build())
