"""Still pictures and films of a robot: PNG with no library but NumPy, other images and GIF by Pillow, MP4 by ffmpeg."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from jaxsoa.contact.scene import Scene
from jaxsoa.model.multibody import Multibody
from jaxsoa.viz._optional import require
from jaxsoa.viz.render import Camera, Page, body_triangles, fit_camera, grid_triangles, shadow_triangles
from jaxsoa.viz.scene import (
    Shapes,
    as_forces,
    as_motion,
    as_shapes,
    bodies_at,
    force_arrows,
    largest_forces,
    poses,
)
from jaxsoa.viz.shapes import robot_size
from jaxsoa.viz.touching import as_contacts

STILLS = (".png", ".jpg", ".webp")
FILMS = (".gif", ".mp4")
Progress = Callable[[int, int], None]


class Picture:
    """An image: `.pixels` (height, width, 3) bytes. A notebook shows it; `save` writes it."""

    def __init__(self, pixels: np.ndarray):
        self.pixels = pixels

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .png (needs no library), .jpg or .webp (Pillow)."""
        suffix = _suffix(path, STILLS)
        if suffix == ".png":
            Path(path).write_bytes(self._repr_png_())
        else:
            require("PIL.Image", f"Writing {suffix}").fromarray(self.pixels).save(path)

    def _repr_png_(self) -> bytes:
        """The picture as a PNG file: signature, header, zlib-packed rows, end."""
        height, width, _ = self.pixels.shape
        # Each row is stored as its difference from the row above (filter 2): smooth shading packs well so.
        above = np.concatenate([np.zeros_like(self.pixels[:1]), self.pixels[:-1]])
        rows = (self.pixels - above).reshape(height, -1)
        packed = zlib.compress(np.concatenate([np.full((height, 1), 2, np.uint8), rows], axis=1).tobytes(), 9)
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        chunks = ((b"IHDR", header), (b"IDAT", packed), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


class _Stage:
    """Everything that stays the same over a motion: shapes, poses, forces, camera, ground."""

    def __init__(self, robot, q, shapes, forces, contact, contact_forces, frames, size, view):
        self.robot, self.frames = robot, frames
        self.q = as_motion(robot, q)
        self.contacts = as_contacts(robot, contact, contact_forces, self.q)
        self.shapes = as_shapes(robot, shapes) + (self.contacts.shapes if self.contacts else ())
        self.forces = as_forces(robot, forces, len(self.q))
        self.where = poses(robot, self.q)
        points = self._extremes()
        self.low, self.high = points.min(axis=0), points.max(axis=0)
        # The grid is the ground, z = 0, wherever the robot is: what falls past it is seen to.
        floor = np.concatenate([points, points * [1, 1, 0]])
        width, height = size
        self.camera: Camera = fit_camera(floor, azimuth=view[0], elevation=view[1], width=width, height=height)

    def _extremes(self) -> np.ndarray:
        """Corners of every shape's box, and the ends of arrows, over the motion (at most fifty of its times)."""
        corners = []
        times = np.unique(np.linspace(0, len(self.q) - 1, 50).astype(int))
        for shape in self.shapes:
            low, high = shape.mesh.vertices.min(axis=0), shape.mesh.vertices.max(axis=0)
            box = np.array(np.meshgrid(*zip(low, high, strict=True))).reshape(3, 8).T
            R, p = self.where.rotation[times, shape.link], self.where.position[times, shape.link]
            corners.append((box @ np.swapaxes(R, -1, -2) + p[:, None]).reshape(-1, 3))
        if self.forces is not None:
            largest, size = largest_forces(self.forces), robot_size(self.robot)
            for time in times:
                arrows = force_arrows(self.forces[time], self.where.position[time], size, largest)
                corners += [(a.start + a.vector)[None] for a in arrows]
        corners += [(a.start + a.vector)[None] for time in times for a in self._contact_arrows(time)]
        return np.concatenate(corners)

    def _contact_arrows(self, time: int):
        return self.contacts.arrows(time, robot_size(self.robot)) if self.contacts else []

    def draw(self, strengths: dict[int, float]) -> np.ndarray:
        """The states of the motion named, one over another, each with its strength; the last one throws a shadow."""
        page = Page(self.camera)
        options = {"forces": self.forces, "frames": self.frames}
        scenes = {
            time: bodies_at(self.robot, self.shapes, self.where, time, arrows=self._contact_arrows(time), **options)
            for time in strengths
        }
        page.draw(grid_triangles(page.camera, self.low, self.high))
        page.draw(shadow_triangles(list(scenes.values())[-1], page.camera))
        for time, bodies in scenes.items():
            page.draw(body_triangles(bodies, page.camera), strengths[time])
        return page.image()


def picture(
    robot: Multibody,
    q=None,
    path: str | os.PathLike[str] | None = None,
    *,
    shapes: Shapes = None,
    forces=None,
    contact: Scene | None = None,
    contact_forces=None,
    frames: bool = False,
    ghosts: int = 5,
    size: tuple[int, int] = (640, 480),
    view: tuple[float, float] = (-60.0, 22.0),
) -> Picture:
    """A still picture: q (nq,) one pose (default: neutral), or (times, nq) a motion, its past as up to `ghosts` ghosts.

    It is written to `path` if one is given (.png needs no library; .jpg and .webp need Pillow), and returned: a
    notebook shows it. `shapes` are those of `primitive_shapes` (default), a URDF path for its visuals, or your own;
    `forces` (n_links, 6) or (times, n_links, 6), as `f_ext`, become arrows; `frames` draws the axes of every link. Of a
    `contact` scene points and surfaces are drawn, and `contact_forces` (c, 3) or (times, c, 3), such as
    `impulses / dt` of its steps, as arrows where bodies touch. `view` is (azimuth, elevation) in degrees.

    >>> shown = soa.viz.picture(robot, q, "pendulum.png")  # a notebook shows what it returns
    >>> from pathlib import Path
    >>> print(Path("pendulum.png").read_bytes()[1:4])
    b'PNG'
    """
    if path is not None:
        _suffix(path, STILLS)
    stage = _Stage(robot, q, shapes, forces, contact, contact_forces, frames, size, view)
    last = len(stage.q) - 1
    past = np.unique(np.linspace(0, last, min(ghosts, last) + 1).astype(int))[:-1] if last else []
    strengths = {int(time): 0.12 + 0.38 * k / len(past) for k, time in enumerate(past)}
    result = Picture(stage.draw({**strengths, last: 1.0}))
    if path is not None:
        result.save(path)
    return result


def film(
    robot: Multibody,
    q,
    path: str | os.PathLike[str],
    *,
    dt: float,
    fps: int = 25,
    speed: float = 1.0,
    shapes: Shapes = None,
    forces=None,
    contact: Scene | None = None,
    contact_forces=None,
    frames: bool = False,
    size: tuple[int, int] = (480, 360),
    view: tuple[float, float] = (-60.0, 22.0),
    progress: Progress | None = None,
) -> None:
    """A film of the motion q (times, nq), states a time `dt` apart, at `speed` times real time.

    `path` ends in .gif (needs Pillow) or .mp4 (needs an `ffmpeg` on the path or the package imageio-ffmpeg, and an
    even width and height). The other options are those of `picture`; `progress` is called with (frames done, frames
    in all).

    >>> soa.viz.film(robot, jnp.stack([q, q + 0.1]), "swing.gif", dt=0.1, size=(120, 90))  # s
    >>> from pathlib import Path
    >>> print(Path("swing.gif").read_bytes()[:3])
    b'GIF'
    """
    suffix = _suffix(path, FILMS)
    if not (dt > 0 and fps > 0 and speed > 0):
        raise ValueError(f"dt, fps and speed must be positive, got {dt}, {fps} and {speed}.")
    if suffix == ".mp4" and any(length % 2 for length in size):
        raise ValueError(f"MP4 needs an even width and height, got {size[0]} x {size[1]}.")
    write = _mp4_writer() if suffix == ".mp4" else _gif_writer()
    stage = _Stage(robot, q, shapes, forces, contact, contact_forces, frames, size, view)
    count = max(1, round((len(stage.q) - 1) * dt / speed * fps))
    times = np.minimum(np.round(np.arange(count) * speed / (fps * dt)).astype(int), len(stage.q) - 1)
    images = []
    for done, time in enumerate(times, start=1):
        images.append(stage.draw({int(time): 1.0}))
        if progress is not None:
            progress(done, count)
    write(images, Path(path), fps)


Writer = Callable[[list[np.ndarray], Path, int], None]


def check_library(path: str | os.PathLike[str]) -> None:
    """Raise ImportError, saying what to install, if what writes a picture or film of this name is missing."""
    suffix = _suffix(path, STILLS + FILMS)
    if suffix in FILMS:
        _mp4_writer() if suffix == ".mp4" else _gif_writer()
    elif suffix != ".png":
        require("PIL.Image", f"Writing {suffix}")


def _gif_writer() -> Writer:
    pillow = require("PIL.Image", "Writing .gif")

    def write(images, path, fps):
        frames = [pillow.fromarray(image) for image in images]
        palette = frames[-1].quantize(128)  # one palette for all frames, so that nothing flickers
        small = [frame.quantize(palette=palette, dither=0) for frame in frames]
        small[0].save(path, save_all=True, append_images=small[1:], duration=round(1000 / fps), loop=0, optimize=True)

    return write


def _mp4_writer() -> Writer:
    encoder = shutil.which("ffmpeg")
    if encoder is None:
        try:
            encoder = require("imageio_ffmpeg", "Writing .mp4").get_ffmpeg_exe()
        except (ImportError, RuntimeError):  # not installed, or installed without a program for this machine
            message = "Writing .mp4 needs ffmpeg, which is not installed: pip install 'jaxsoa[viz]', or write a .gif."
            raise ImportError(message, name="ffmpeg") from None

    def write(images, path, fps):
        height, width, _ = images[0].shape
        command = [encoder, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
        command += ["-s", f"{width}x{height}", "-r", str(fps), "-i", "-", "-an", "-pix_fmt", "yuv420p", str(path)]
        done = subprocess.run(command, input=np.stack(images).tobytes(), capture_output=True, check=False)
        if done.returncode:
            raise OSError(f"ffmpeg could not write {str(path)!r}: {done.stderr.decode(errors='replace').strip()}")

    return write


def _suffix(path: str | os.PathLike[str], allowed: tuple[str, ...]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in allowed:
        raise ValueError(f"{os.fspath(path)!r} must end in one of {', '.join(allowed)}.")
    return suffix
