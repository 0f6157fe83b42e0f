"""Contact in pictures and in the browser: points, surfaces and arrows are where the scene says."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from viz.test_pictures import colored

import jaxsoa as soa
from jaxsoa import contact
from jaxsoa.viz import picture
from jaxsoa.viz.scene import FORCE_COLOR
from jaxsoa.viz.touching import GROUND_COLOR, POINT_COLOR, as_contacts, scene_shapes

PENDULUM = soa.models.pendulum(1)  # hangs from a hinge at the origin, 1 m long
FLOOR = contact.Scene(contact.Points("tip", radii=[0.1]), contact.Plane(height=-1.1), 0.5)


def test_arrows_start_where_bodies_touch():
    q = np.array([[0.0], [np.pi / 2]])
    forces = np.array([[[0, 0, 4.0]], [[0, 0, 0.0]]])
    found = as_contacts(PENDULUM, FLOOR, forces, q)
    assert found is not None
    assert found.positions[:, 0] == pytest.approx(np.array([[0, 0, -1.1], [-1, 0, -0.1]]), abs=1e-9)
    (arrow,) = found.arrows(0, 1.0)
    assert arrow.start == pytest.approx([0, 0, -1.1], abs=1e-9)
    assert arrow.vector == pytest.approx([0, 0, 0.35])
    assert found.arrows(1, 1.0) == []
    moved = PENDULUM.replace(base_position=np.array([5.0, 6.0, 7.0]))
    lifted = as_contacts(moved, FLOOR, None, q[:1])
    assert lifted is not None and lifted.arrows(0, 1.0) == []
    assert lifted.positions[0, 0] == pytest.approx([5, 6, 5.9], abs=1e-9)


def test_points_surfaces_and_forces_are_seen():
    options = {"size": (320, 240), "view": (-90, 10)}
    plain = picture(PENDULUM, [0.0], **options).pixels
    drawn = picture(PENDULUM, [0.0], contact=FLOOR, contact_forces=[[9.0, 0, 9.0]], **options).pixels
    for color in (POINT_COLOR, FORCE_COLOR):
        assert colored(drawn, color).sum() > 20 > colored(plain, color).sum()
    assert colored(drawn, GROUND_COLOR).sum() > colored(plain, GROUND_COLOR).sum() + 500


def test_every_surface_has_its_shape():
    """In the world, as seen from a base that stands elsewhere, and on a link."""
    R = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    robot = PENDULUM.replace(base_rotation=R, base_position=np.array([1.0, 2.0, 3.0]))
    surfaces = (
        contact.Plane(),  # the grid, drawn already
        contact.Plane((0, 0, 1), 0.5),
        contact.HeightField(np.arange(6.0).reshape(2, 3), 0.5, (4, 5)),
        contact.Ball(0.2, (1, 2, 4)),
        contact.Capsule((0, 0, 0), (1, 0, 0), 0.1),
        contact.Box((2, 4, 6), (1, 1, 1)),
        contact.Ball(0.3, frame="tip"),
    )
    points = contact.Points(["tip", "tip"], [(0, 0, 0), (0, 0, 0.1)], [0.02, 0.02], [(0, 0, 0), (0, 0, 0.2)])
    with pytest.raises(ValueError, match="Capsules against a HeightField"):
        contact.Scene(points, surfaces)
    scene = contact.Scene(contact.Points("tip"), surfaces)
    shapes = scene_shapes(robot, scene)
    assert [shape.link for shape in shapes] == [0, -1, -1, -1, -1, -1, 0]
    low_high = []
    for shape in shapes[1:-1]:
        world = shape.mesh.vertices @ R.T + [1, 2, 3]
        low_high.append((world.min(axis=0), world.max(axis=0)))
    plane, field, ball, capsule, box = low_high
    assert plane[0][2] == plane[1][2] == pytest.approx(0.5)
    assert np.array(field) == pytest.approx(np.array([[4, 5, 0], [4.5, 6, 5]]))
    assert np.array(ball) == pytest.approx(np.array([[0.8, 1.8, 3.8], [1.2, 2.2, 4.2]]), abs=1e-2)
    assert np.array(capsule) == pytest.approx(np.array([[-0.1, -0.1, -0.1], [1.1, 0.1, 0.1]]), abs=1e-2)
    assert np.array(box) == pytest.approx(np.array([[0, -1, -2], [2, 3, 4]]))
    tip = np.asarray(robot.frame_position)[robot.topology.frame_number("tip")]
    assert shapes[-1].mesh.vertices.mean(axis=0) == pytest.approx(tip, abs=1e-2)
    two = scene_shapes(robot, contact.Scene(points, contact.Plane()))
    assert np.ptp(two[1].mesh.vertices[:, 2]) == pytest.approx(0.1 + 0.04, abs=1e-3)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="need the scene"):
        picture(PENDULUM, [0.0], contact_forces=[[0, 0, 1.0]])
    with pytest.raises(ValueError, match=r"\(1, 3\) or \(1, 1, 3\)"):
        picture(PENDULUM, [0.0], contact=FLOOR, contact_forces=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="NaN"):
        picture(PENDULUM, [0.0], contact=FLOOR, contact_forces=[[0, 0, np.nan]])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_viewer_has_them_too(monkeypatch):
    pytest.importorskip("viser")
    drawn = []
    q = np.array([[0.0], [np.pi / 2]])
    with soa.viz.view(
        PENDULUM, q, contact=FLOOR, contact_forces=jnp.array([[0, 0, 4.0]]), verbose=False, port=8340
    ) as viewer:
        colors = {tuple(shape.color) for shape in viewer._shapes}
        assert {POINT_COLOR, GROUND_COLOR} <= colors
        add = viewer.server.scene.add_arrows

        def noted(name, points, *rest, **more):
            drawn.append(np.array(points))
            return add(name, points, *rest, **more)

        monkeypatch.setattr(viewer.server.scene, "add_arrows", noted)
        viewer.show(1)
    assert drawn[-1][0, 0] == pytest.approx([-1, 0, -0.1], abs=1e-6)
