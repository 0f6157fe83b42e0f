"""Pictures show the robot where the kinematics says it is, and files are what their names say."""

from __future__ import annotations

import builtins
import subprocess

import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa.viz import Mesh, Shape, film, picture, primitive_shapes, urdf_shapes
from jaxsoa.viz.meshes import sphere
from jaxsoa.viz.render import Page, body_triangles, fit_camera
from jaxsoa.viz.scene import FORCE_COLOR, Body

RED, BLUE = (200, 0, 0), (0, 0, 200)
PENDULUM = soa.models.pendulum(1)


def colored(pixels: np.ndarray, color: tuple[int, int, int]) -> np.ndarray:
    """Where the hue of the picture is that of `color`: shading changes brightness only."""
    unit = np.array(color) / np.linalg.norm(color)
    size = np.linalg.norm(pixels.astype(float), axis=-1)
    return (pixels @ unit > 0.99 * size) & (size > 20)


def balls(link: int, points: dict[tuple[int, int, int], np.ndarray], radius=0.05) -> list[Shape]:
    return [Shape(link, sphere(radius).moved(np.eye(3), point), color) for color, point in points.items()]


def test_the_nearer_body_hides_the_farther():
    camera = fit_camera(np.array([[-1.0, -1, -1], [1, 1, 1]]), azimuth=0, elevation=0, width=60, height=60)
    near, far = (Body(sphere(0.5).moved(np.eye(3), np.array([x, 0, 0])), c) for x, c in ((0.6, RED), (-0.6, BLUE)))
    for order in ([near, far], [far, near]):
        page = Page(camera)
        page.draw(body_triangles(order, page.camera))
        assert colored(page.image(), RED)[30, 30] and not colored(page.image(), BLUE)[28:32, 28:32].any()


def test_a_link_is_drawn_where_it_is():
    """The ball at the tip of a pendulum lies on the page where the camera sees the tip, seen along y from -y."""
    shapes = balls(0, {RED: np.array([0, 0, -1.0])}) + balls(-1, {BLUE: np.zeros(3)})
    drawn = picture(PENDULUM, [np.pi / 2], shapes=shapes, view=(-90, 0), size=(200, 150)).pixels
    tip, base = (np.argwhere(colored(drawn, color)).mean(axis=0) for color in (RED, BLUE))
    # A positive turn about y swings the rod from -z to -x: to the left of the base, at its height.
    assert tip[1] < base[1] - 50 and abs(tip[0] - base[0]) < 2


def test_ghosts_fade_and_forces_are_red_arrows():
    q = np.linspace(0, 1, 7)[:, None]
    plain = picture(PENDULUM, q, size=(160, 120), ghosts=3).pixels
    alone = picture(PENDULUM, q, size=(160, 120), ghosts=0).pixels
    assert (plain < 250).sum() > (alone < 250).sum() * 1.1
    force = picture(PENDULUM, q[-1], size=(160, 120), forces=[[0, 0, 0, 5, 0, 0]]).pixels
    assert colored(force, FORCE_COLOR).sum() > 20 > colored(alone, FORCE_COLOR).sum()


@pytest.mark.parametrize("robot", [soa.models.random_tree(0, 10), soa.models.cart_pole(), soa.models.dual_arm()])
def test_every_robot_has_shapes(robot):
    shapes = primitive_shapes(robot)
    assert {shape.link for shape in shapes} >= set(range(robot.n_links))
    assert all(np.isfinite(shape.mesh.vertices).all() and len(shape.mesh.faces) for shape in shapes)


def test_files(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    q = np.linspace(0, 1, 11)[:, None]
    still = picture(PENDULUM, q, tmp_path / "a.png", size=(64, 48))
    with pillow.open(tmp_path / "a.png") as image:
        np.testing.assert_array_equal(np.asarray(image), still.pixels)
    picture(PENDULUM, q, tmp_path / "a.webp", size=(64, 48))
    calls = []
    film(PENDULUM, q, tmp_path / "a.gif", dt=0.1, fps=10, size=(64, 48), progress=lambda *x: calls.append(x))
    with pillow.open(tmp_path / "a.gif") as image:
        assert image.size == (64, 48) and image.n_frames == 10
    assert calls[-1] == (10, 10)
    with pytest.raises(ValueError, match="must end in"):
        picture(PENDULUM, q, tmp_path / "a.txt")
    with pytest.raises(ValueError, match="dt"):
        film(PENDULUM, q, tmp_path / "a.gif", dt=0)


def test_mp4(tmp_path):
    """Decoded again: as many frames as the motion has time for, of the size asked, that show what was drawn."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    q = np.linspace(0, np.pi / 2, 21)[:, None]
    shapes = balls(0, {RED: np.array([0, 0, -1.0])}, radius=0.2)
    options = {"shapes": shapes, "view": (-90, 0), "size": (160, 120)}
    film(PENDULUM, q, tmp_path / "a.mp4", dt=0.05, fps=10, **options)
    command = [ffmpeg.get_ffmpeg_exe(), "-i", tmp_path / "a.mp4", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decoded = subprocess.run(command, capture_output=True, check=True)
    about = decoded.stderr.decode()
    assert "h264" in about and "yuv420p" in about and "160x120" in about and " 10 fps" in about
    frames = np.frombuffer(decoded.stdout, np.uint8).reshape(-1, 120, 160, 3)
    assert len(frames) == 10
    # Frame k shows the state 2 k; a whole film has one camera, so a still of that state would be framed differently.
    film(PENDULUM, q, tmp_path / "a.gif", dt=0.05, fps=10, **options)
    with pytest.importorskip("PIL.Image").open(tmp_path / "a.gif") as gif:
        for number, frame in enumerate(frames):
            gif.seek(number)
            drawn = np.asarray(gif.convert("RGB")).astype(float)
            assert np.abs(frame - drawn).mean() < 4  # of 255; the codec and the GIF's palette both lose a little
    # The ball swings from below the base to its left.
    first, last = (np.argwhere(frame[..., 0].astype(int) - frame[..., 1] > 60).mean(axis=0) for frame in frames[::9])
    assert last[0] < first[0] - 20 and last[1] < first[1] - 20
    with pytest.raises(ValueError, match="even"):
        film(PENDULUM, q, tmp_path / "a.mp4", dt=0.05, size=(161, 120))
    with pytest.raises(OSError, match="ffmpeg could not write"):
        film(PENDULUM, q[:2], tmp_path / "no such folder" / "a.mp4", dt=0.05, size=(16, 16))


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        picture(PENDULUM, [np.nan])
    with pytest.raises(ValueError, match="shape"):
        picture(PENDULUM, [0.0, 1.0])
    with pytest.raises(ValueError, match="forces"):
        picture(PENDULUM, [0.0], forces=np.zeros((2, 6)))


def test_a_missing_library_is_named(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.split(".")[0] in ("PIL", "viser", "imageio_ffmpeg"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("importlib.import_module", without)
    monkeypatch.setattr("shutil.which", lambda name: None)
    for call, word in (
        (lambda: film(PENDULUM, [[0.0], [1.0]], tmp_path / "a.gif", dt=1), "pillow"),
        (lambda: film(PENDULUM, [[0.0], [1.0]], tmp_path / "a.mp4", dt=1), "ffmpeg"),
        (lambda: soa.viz.view(PENDULUM), "viser"),
    ):
        with pytest.raises(ImportError, match=word):
            call()


URDF = """<robot name="r"><material name="paint"><color rgba="0 1 0 1"/></material>
<link name="base"><visual><geometry><box size="1 2 3"/></geometry><material name="paint"/></visual></link>
<link name="rod"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
<visual><origin xyz="0 0 1"/><geometry><cylinder radius=".1" length="2"/></geometry></visual></link>
<link name="hand"><visual><geometry><mesh filename="{mesh}" scale="2 2 2"/></geometry></visual></link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="rod"/><origin xyz="0 0 5"/></joint>
<joint name="weld" type="fixed"><parent link="rod"/><child link="hand"/>
<origin xyz="0 0 2" rpy="0 0 1.5707963267948966"/></joint></robot>"""

TRIANGLE = """solid t
facet normal 0 0 1
outer loop
vertex 0 0 0
vertex 1 0 0
vertex 0 1 0
endloop
endfacet
endsolid t
"""


def test_urdf_visuals(tmp_path):
    pytest.importorskip("trimesh")
    folder = tmp_path / "my_robot" / "urdf"
    folder.mkdir(parents=True)
    (tmp_path / "my_robot" / "part.stl").write_text(TRIANGLE)
    path = folder / "r.urdf"
    path.write_text(URDF.format(mesh="package://my_robot/part.stl"))
    box, rod, hand = urdf_shapes(soa.load_urdf(path), path)
    assert (box.link, rod.link, hand.link) == (-1, 0, 0)
    assert box.color == (0, 255, 0)
    np.testing.assert_allclose(np.ptp(box.mesh.vertices, axis=0), [1, 2, 3])
    np.testing.assert_allclose([rod.mesh.vertices[:, 2].min(), rod.mesh.vertices[:, 2].max()], [0, 2], atol=1e-12)
    # Scaled by two, turned a quarter about z, on the end of the rod.
    corners = sorted(hand.mesh.vertices.round(9).tolist())
    np.testing.assert_allclose(corners, [[-2, 0, 2], [0, 0, 2], [0, 2, 2]], atol=1e-9)


@pytest.mark.parametrize("mesh", ["package://nowhere/part.stl", "https://example.org/part.stl", "bad.stl"])
def test_meshes_that_cannot_be_had_become_simple_shapes(mesh, tmp_path):
    (tmp_path / "bad.stl").write_text("no mesh at all")
    path = tmp_path / "r.urdf"
    text = URDF.format(mesh=mesh)
    rod = text.index('<visual><origin xyz="0 0 1"/>')
    # Only the hand, which is part of the moving link, has a visual.
    path.write_text(text[:rod] + text[text.index("</link>", rod) :])
    robot = soa.load_urdf(path)
    with pytest.warns(UserWarning, match="simple shapes"):
        shapes = urdf_shapes(robot, path)
    assert any(shape.link == 0 for shape in shapes)
    assert isinstance(shapes[0].mesh, Mesh)
