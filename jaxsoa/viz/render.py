"""Bodies to an image, in plain NumPy: a pinhole camera, one light, a depth buffer; no plotting library.

A picture is a stack of layers on white, each drawn over those before it: the grid of the ground, the shadow, then
the bodies. Within a layer the nearest triangle wins, pixel by pixel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxsoa.viz.meshes import Mesh
from jaxsoa.viz.scene import Body

GRID_COLOR = np.array([214.0, 219.0, 226.0])
SHADOW_COLOR = np.array([226.0, 229.0, 234.0])
LIGHT = np.array([0.35, -0.5, 0.8]) / np.linalg.norm([0.35, -0.5, 0.8])
SUPERSAMPLING = 2
PIXELS_AT_ONCE = 2_000_000


class Triangles(NamedTuple):
    """Triangles on the page: points (n, 3, 2) in pixels, y downward; depth, brightness (n, 3); colours (n, 3)."""

    points: np.ndarray
    depth: np.ndarray
    brightness: np.ndarray
    color: np.ndarray


@dataclasses.dataclass(frozen=True)
class Camera:
    """Looks at `target` from `distance` away; azimuth and elevation in degrees, z up. The page is width x height."""

    target: np.ndarray
    distance: float
    azimuth: float
    elevation: float
    width: int
    height: int
    zoom: float = 1.0  # focal length over page height

    def axes(self) -> np.ndarray:
        """Rows: right, up, towards the camera."""
        a, e = np.radians([self.azimuth, self.elevation])
        back = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
        right = np.array([-np.sin(a), np.cos(a), 0.0])
        return np.stack([right, np.cross(back, right), back])

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels (..., 2) and distances in front of the camera (...)."""
        seen = (points - self.target) @ self.axes().T
        depth = np.maximum(self.distance - seen[..., 2], 1e-3 * self.distance)
        scale = self.zoom * self.height / depth
        x, y = self.width / 2 + scale * seen[..., 0], self.height / 2 - scale * seen[..., 1]
        return np.stack([x, y], axis=-1), depth


def fit_camera(points: np.ndarray, *, azimuth: float, elevation: float, width: int, height: int) -> Camera:
    """A camera that has all points (n, 3) on the page, with a margin."""
    low, high = points.min(axis=0), points.max(axis=0)
    radius = max(float(np.linalg.norm(high - low)) / 2, 1e-6)
    camera = Camera((low + high) / 2, 6 * radius, azimuth, elevation, width, height)
    # The perspective is weak at six radii, so centring once and scaling once is enough.
    page = np.array([width, height])
    pixels, _ = camera.project(points)
    middle = (pixels.min(axis=0) + pixels.max(axis=0)) / 2 - page / 2
    shift = camera.axes()[:2].T @ (middle * [1, -1]) * camera.distance / height
    camera = dataclasses.replace(camera, target=camera.target + shift)
    half = np.abs(camera.project(points)[0] - page / 2).max(axis=0)
    return dataclasses.replace(camera, zoom=0.9 * float(np.min(page / 2 / np.maximum(half, 1e-9))))


class Page:
    """An image in the making, at `SUPERSAMPLING` times the camera's size; `image` is the finished one."""

    def __init__(self, camera: Camera):
        self.camera = dataclasses.replace(
            camera, width=SUPERSAMPLING * camera.width, height=SUPERSAMPLING * camera.height
        )
        self._pixels = np.full((self.camera.height, self.camera.width, 3), 255.0, np.float32)

    def draw(self, triangles: Triangles, strength: float = 1.0) -> None:
        """One layer, blended in with a strength from 0 (not at all) to 1."""
        color, covered = _rasterize(triangles, self.camera.width, self.camera.height)
        blended = self._pixels[covered] + np.float32(strength) * (color[covered] - self._pixels[covered])
        self._pixels[covered] = blended

    def image(self) -> np.ndarray:
        """(height, width, 3) bytes, each pixel the mean of its samples."""
        height, width = (n // SUPERSAMPLING for n in self._pixels.shape[:2])
        samples = self._pixels.reshape(height, SUPERSAMPLING, width, SUPERSAMPLING, 3)
        return np.clip(np.round(samples.mean(axis=(1, 3))), 0, 255).astype(np.uint8)


def body_triangles(bodies: Sequence[Body], camera: Camera) -> Triangles:
    """The triangles of bodies, lit."""
    parts = []
    for body in bodies:
        corners = body.mesh.vertices[body.mesh.faces]
        normals = _corner_normals(body.mesh, body.smooth)
        lit = normals @ LIGHT
        brightness = 0.6 + 0.45 * np.maximum(lit, 0) + 0.15 * np.minimum(lit, 0)
        points, depth = camera.project(corners)
        color = np.broadcast_to(np.array(body.color, float), (len(corners), 3))
        # Faces turned away are hidden by the others, if the body is closed; meshes of files may not be.
        seen = _area(points) < 0 if body.smooth else np.ones(len(points), bool)
        parts.append(Triangles(points[seen], depth[seen], brightness[seen], color[seen]))
    return Triangles(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _area(points: np.ndarray) -> np.ndarray:
    """Twice the area of triangles (n, 3, 2) on the page; negative when counterclockwise to the eye (y is down)."""
    one, two = points[:, 1] - points[:, 0], points[:, 2] - points[:, 0]
    return one[:, 0] * two[:, 1] - two[:, 0] * one[:, 1]


def _corner_normals(mesh: Mesh, smooth: bool) -> np.ndarray:
    """(faces, 3, 3): the face's normal at each corner, or the mean of the faces that share the vertex."""
    corners = mesh.vertices[mesh.faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    if smooth:
        at_vertices = np.zeros_like(mesh.vertices)
        for k in range(3):
            np.add.at(at_vertices, mesh.faces[:, k], normals)
        each = at_vertices[mesh.faces]
    else:
        each = np.repeat(normals[:, None], 3, axis=1)
    return each / np.maximum(np.linalg.norm(each, axis=-1, keepdims=True), 1e-300)


def shadow_triangles(bodies: Sequence[Body], camera: Camera) -> Triangles:
    """Where the light throws what is above the ground, z = 0, on it."""
    corners = np.concatenate([body.mesh.vertices[body.mesh.faces] for body in bodies])
    corners = corners[(corners[..., 2] >= 0).all(axis=1)]
    flat = corners - corners[..., 2:] / LIGHT[2] * LIGHT
    return _plain(camera.project(flat)[0], SHADOW_COLOR)


def grid_triangles(camera: Camera, low: np.ndarray, high: np.ndarray) -> Triangles:
    """A square grid on the ground, z = 0, under or over a box, as thin strips, 1, 2 or 5 times a power of ten apart."""
    extent = float(max(high[0] - low[0], high[1] - low[1], (high[2] - low[2]) / 2, 1e-9))
    spacing = 10.0 ** np.floor(np.log10(extent / 3))
    spacing *= next(step for step in (1, 2, 5, 10) if extent / (step * spacing) <= 6)
    middle = np.round((low + high)[:2] / 2 / spacing)
    half = int(np.ceil(extent / 2 / spacing)) + 1
    ends = []
    for axis in (0, 1):
        for mark in range(-half, half + 1):
            line = np.zeros((2, 3))
            line[:, axis] = (middle[axis] + mark) * spacing
            line[:, 1 - axis] = (middle[1 - axis] + np.array([-half, half])) * spacing
            ends.append(line)
    # In short pieces, because filling tests every pixel of the box around a triangle, which for a long slanted strip
    # is most of the page.
    pieces = np.linspace(0, 1, 8 * half + 1)[:, None, None]
    cuts = np.array(ends)[:, 0] + pieces * (np.array(ends)[:, 1] - np.array(ends)[:, 0])
    lines = camera.project(np.stack([cuts[:-1], cuts[1:]], axis=2).reshape(-1, 2, 3))[0]
    along = lines[:, 1] - lines[:, 0]
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    across *= 0.5 * SUPERSAMPLING / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-9)
    a, b, c, d = lines[:, 0] - across, lines[:, 1] - across, lines[:, 1] + across, lines[:, 0] + across
    return _plain(np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)]), GRID_COLOR)


def _plain(points: np.ndarray, color: np.ndarray) -> Triangles:
    ones = np.ones(points.shape[:2])
    return Triangles(points, ones, ones, np.broadcast_to(color, (len(points), 3)))


def _rasterize(triangles: Triangles, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Colours (height, width, 3) and which pixels are covered: the nearest triangle at each pixel's centre."""
    points = triangles.points
    low = np.clip(np.floor(points.min(axis=1)).astype(int), 0, [width, height])
    high = np.clip(np.ceil(points.max(axis=1)).astype(int), 0, [width, height])
    extent = np.maximum(high - low, 0)
    counts = extent[:, 0] * extent[:, 1]
    nearest = np.full(width * height, np.inf, np.float32)
    color = np.zeros((width * height, 3), np.float32)
    chunk = np.cumsum(counts) // PIXELS_AT_ONCE
    for number in np.unique(chunk):
        rows = np.flatnonzero((chunk == number) & (counts > 0))
        if len(rows):
            _fill(triangles, rows, low[rows], extent[rows], counts[rows], width, nearest, color)
    return color.reshape(height, width, 3), np.isfinite(nearest).reshape(height, width)


def _fill(triangles, rows, low, extent, counts, width, nearest, color) -> None:
    """Test every pixel of the box around each triangle at once; keep what lies inside and in front."""
    own = np.repeat(np.arange(len(rows)), counts)
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    x = low[own, 0] + place % extent[own, 0]
    y = low[own, 1] + place // extent[own, 0]
    corners = triangles.points[rows]
    (ax, ay), (bx, by), (cx, cy) = (corners[:, k].T for k in range(3))
    area = _area(corners)
    scale = np.where(area == 0, np.nan, 1 / np.where(area == 0, 1.0, area))  # NaN is inside nothing
    # Barycentric coordinates are linear in the pixel: u = u0 + ux x + uy y.
    ux, uy, vx, vy = (by - cy) * scale, (cx - bx) * scale, (cy - ay) * scale, (ax - cx) * scale
    u0, v0 = (bx * cy - cx * by) * scale, (cx * ay - ax * cy) * scale
    px, py = x + 0.5, y + 0.5
    u, v = u0[own] + ux[own] * px + uy[own] * py, v0[own] + vx[own] * px + vy[own] * py
    w = 1 - u - v
    inside = (u >= 0) & (v >= 0) & (w >= 0)
    own, pixel = own[inside], (y * width + x)[inside]
    weights = np.stack([u[inside], v[inside], w[inside]], axis=1)
    depth = np.sum(weights * triangles.depth[rows][own], axis=1).astype(np.float32)
    front = depth < nearest[pixel]
    own, pixel, weights, depth = own[front], pixel[front], weights[front], depth[front]
    order = np.argsort(-depth, kind="stable")  # of repeated pixels the last one written stays: the nearest
    own, pixel, weights = own[order], pixel[order], weights[order]
    nearest[pixel] = depth[order]
    brightness = np.sum(weights * triangles.brightness[rows][own], axis=1)
    color[pixel] = np.minimum(brightness[:, None] * triangles.color[rows][own], 255)
