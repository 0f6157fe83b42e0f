"""Surfaces: signed distances and normals; points from collision shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import contact


@pytest.mark.parametrize(
    "surface, points, distances",
    [
        (contact.Plane((0, 0, 2.0), 0.5), [(3, 4, 2.0), (0, 0, 0)], [1.5, -0.5]),
        (contact.Ball(0.5, (1, 0, 0)), [(1, 0, 2), (1, 0, 0.25), (1, 0, 0)], [1.5, -0.25, -0.5]),
        (contact.Capsule((0, 0, 0), (2, 0, 0), 0.5), [(1, 0, 2), (4, 0, 0), (-1, 0, 0)], [1.5, 1.5, 0.5]),
        (contact.Box((2, 2, 2)), [(0, 0, 3), (2, 2, 0), (0, 0.9, 0)], [2, np.sqrt(2), -0.1]),
        (contact.HeightField([[0, 0], [1, 1]], 1.0), [(0.5, 0.5, 1.5), (0.5, 0, 0.5)], [np.sqrt(0.5), 0.0]),
        (contact.HeightField([[0, 0], [1, 1]], 1.0), [(5.0, 9.0, 3.0)], [2.0]),
    ],
    ids=["plane", "ball", "capsule", "box", "slope", "beyond the grid"],
)
def test_distances_and_their_slopes(surface, points, distances):
    """The normal is the slope of the distance, of length one."""
    points = jnp.asarray(points, float)
    found, normals = jax.jit(jax.vmap(surface.distance))(points)
    assert np.asarray(found) == pytest.approx(distances, abs=1e-12)
    assert np.linalg.norm(normals, axis=1) == pytest.approx(1, rel=1e-12)
    slopes = jax.jit(jax.vmap(jax.grad(lambda p: surface.distance(p)[0])))(points)
    assert np.isfinite(slopes).all()
    regular = np.linalg.norm(slopes, axis=1) > 0.5  # at a ball's very centre there is no slope
    assert np.asarray(slopes)[regular] == pytest.approx(np.asarray(normals)[regular], abs=1e-12)


URDF = """<robot name="r"><link name="base"><inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><origin xyz="0 0 1" rpy="0 0 1.5707963267948966"/><geometry><box size="2 4 6"/></geometry></collision>
<collision><geometry><cylinder radius="0.5" length="2"/></geometry></collision></link>
<joint name="j" type="revolute"><parent link="base"/><child link="foot"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
<link name="foot"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><origin xyz="0 0 -0.3"/><geometry><sphere radius="0.02"/></geometry></collision>
<collision><geometry><mesh filename="a.stl"/></geometry></collision></link></robot>"""


def test_points_of_a_urdf():
    robot = soa.load_urdf(URDF, floating_base=True)
    points = contact.points_of(robot, URDF, frames="base")
    assert len(points) == 8 + 16
    assert np.abs(points.positions[:8]).max(axis=0) == pytest.approx([2, 1, 4])  # turned about z, lifted by one
    assert np.hypot(*points.positions[8:, :2].T) == pytest.approx(0.5)
    with pytest.raises(soa.ModelError, match="is a mesh, from which no contact points are taken"):
        contact.points_of(robot, URDF)
    spheres = contact.points_of(
        robot, URDF.replace('<mesh filename="a.stl"/>', '<sphere radius="0.1"/>'), frames=["foot"]
    )
    assert np.asarray(spheres.radii) == pytest.approx([0.02, 0.1])
    assert np.asarray(spheres.positions[0]) == pytest.approx([0, 0, -0.3])
    with pytest.raises(KeyError, match="foo"):
        contact.points_of(robot, URDF, frames="foo")


def test_points_of_an_mjcf():
    xml = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body name="b"><freejoint/>
    <geom type="capsule" size="0.1 0.3" pos="0 0 0.5"/><geom type="sphere" size="0.2" contype="0" conaffinity="0"/>
    <geom type="box" size="0.1 0.2 0.3"/></body></worldbody></mujoco>"""
    with pytest.warns(soa.ModelWarning):
        robot = soa.load_mjcf(xml)
    points = contact.points_of(robot, xml)
    assert len(points) == 2 + 8
    assert np.asarray(points.positions[:2]) == pytest.approx(np.array([[0, 0, 0.2], [0, 0, 0.8]]))
    assert np.asarray(points.radii[:2]) == pytest.approx(0.1)


@pytest.mark.parametrize("surface", [contact.Capsule((0, 0, 0), (1, 0, 0), 0.1), contact.Ball(0.3, (0.2, 0, 0.1))])
def test_the_nearest_points_of_segments(surface):
    """Against a fine grid along the segment; parallel segments touch in the middle of where they face each other."""
    rng = np.random.default_rng(0)
    starts, ends = rng.normal(size=(2, 100, 3))
    part = jax.jit(jax.vmap(surface.nearest))(starts, ends)
    at = starts + np.asarray(part)[:, None] * (ends - starts)
    grid = np.linspace(0, 1, 1001)[:, None, None]
    distances = jax.jit(jax.vmap(jax.vmap(lambda p: surface.distance(p)[0])))
    found, all_of_them = distances(at[None])[0], distances(starts + grid * (ends - starts))
    assert (np.asarray(found) <= np.asarray(all_of_them).min(axis=0) + 1e-12).all()
    slope = jax.jit(jax.jacfwd(lambda a, b: surface.nearest(a, b)))
    assert np.isfinite(jax.jit(jax.vmap(slope))(starts, ends)).all()
    if isinstance(surface, contact.Capsule):
        s = jnp.array([0.5, 0.0, 0.3]), jnp.array([2.5, 0.0, 0.3])
        assert float(jax.jit(lambda *s: surface.nearest(*s))(*s)) == pytest.approx(0.125)  # the middle of x = 0.5 to 1
        assert np.isfinite(slope(*s)).all()


def test_capsules_touch_planes_balls_and_capsules_and_no_boxes():
    points = contact.Points("b", radii=[0.1], ends=[(1.0, 0, 0)])
    with pytest.raises(ValueError, match="Capsules against a Box are not supported: describe the capsule by spheres"):
        contact.Scene(points, contact.Box((1, 1, 1)))
    with pytest.raises(ValueError, match=r"ends must have shape \(1, 3\)"):
        contact.Points("b", ends=[(1.0, 0)])
    robot = soa.Builder("b").link("b", joint="free", mass=1.0, inertia=np.eye(3)).build()
    q = robot.neutral().at[6].set(1.0)
    surfaces = (
        contact.Plane((1, 0, 1)),
        contact.Ball(0.5, (0.3, 0, 0)),
        contact.Capsule((0.3, -1, 0), (0.3, 1, 0), 0.2),
    )
    gaps = jax.jit(lambda q: contact.gaps(robot, contact.Scene(points, surfaces), q))(q)
    assert np.asarray(gaps) == pytest.approx([np.sqrt(0.5) - 0.1, 0.4, 0.7])
