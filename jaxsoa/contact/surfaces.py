"""What points touch: planes, height fields, and simple bodies. Everything numeric is a leaf.

A surface answers one question, `distance(point) -> (signed distance, outward unit normal)`, in its own frame: the
world's, or that of the robot's frame it is fixed to.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.closed_chain.algebra import is_concrete
from jaxsoa.contact.cone import norm
from jaxsoa.spatial import ops


def numbers(name: str, value, shape: tuple[int, ...] | None = None) -> Array:
    """An array of floats, finite where it can be looked at; anything else raises under the name given."""
    value = jnp.asarray(value)
    value = value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)
    if shape is not None and value.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {value.shape}.")
    if is_concrete(value) and not np.isfinite(value).all():
        raise ValueError(f"{name} must be finite, got {np.asarray(value).tolist()}.")
    return value


def _positive(name: str, value, shape: tuple[int, ...] = ()) -> Array:
    value = numbers(name, value, shape)
    if is_concrete(value) and not (np.asarray(value) > 0).all():
        raise ValueError(f"{name} must be positive, got {np.asarray(value).tolist()}.")
    return value


class Surface(eqx.Module):
    """Base of all surfaces. `frame` names the robot's frame that carries it; None is the world."""

    frame: eqx.AbstractVar[str | None]

    def distance(self, point: Float[Array, "3"]) -> tuple[Float[Array, ""], Float[Array, "3"]]:
        """Signed distance of a point, positive outside, and the unit normal there, away from the surface."""
        raise NotImplementedError

    def nearest(self, start: Float[Array, "3"], end: Float[Array, "3"]) -> Float[Array, ""]:
        """The part of the way from start to end where a segment is nearest to the surface."""
        raise NotImplementedError


class Plane(Surface):
    """The half space below {p : normal . p = height} is solid; `normal` of any length, `height` a distance."""

    normal: Float[Array, "3"]
    height: Float[Array, ""]
    frame: str | None = eqx.field(static=True, default=None)

    def __init__(self, normal=(0.0, 0.0, 1.0), height=0.0, frame: str | None = None):
        self.normal = numbers("The normal of a plane", normal, (3,))
        if is_concrete(self.normal) and not np.asarray(self.normal).any():
            raise ValueError("The normal of a plane must not be zero.")
        self.height, self.frame = numbers("The height of a plane", height, ()), frame

    def distance(self, point):
        """n . p - height."""
        n = self.normal / jnp.sqrt(ops.dot(self.normal, self.normal))
        n = n.astype(point.dtype)
        return ops.dot(n, point) - self.height.astype(point.dtype), n

    def nearest(self, start, end):
        """One end or the other; the middle where both are as near."""
        down = ops.dot(self.normal.astype(start.dtype), start - end)
        return jnp.where(down > 0, 1.0, jnp.where(down < 0, 0.0, 0.5)).astype(start.dtype)


class HeightField(Surface):
    """Terrain z = f(x, y), bilinear between `heights` (nx, ny) on a grid of `spacing` from `origin` (x, y).

    The distance is that to the tangent plane above or below the point: exact on planes, right to first order in the
    gap elsewhere. Beyond the grid its edge goes on. The normal jumps from cell to cell, as that of any bilinear patch.
    """

    heights: Float[Array, "nx ny"]
    spacing: Float[Array, ""]
    origin: Float[Array, "2"]
    frame: str | None = eqx.field(static=True, default=None)

    def __init__(self, heights, spacing=1.0, origin=(0.0, 0.0), frame: str | None = None):
        self.heights = numbers("The heights of a height field", heights)
        if self.heights.ndim != 2 or min(self.heights.shape) < 2:
            raise ValueError(f"heights must be a grid of at least 2 x 2 numbers, got shape {self.heights.shape}.")
        self.spacing = _positive("The spacing of a height field", spacing)
        self.origin, self.frame = numbers("The origin of a height field", origin, (2,)), frame

    def distance(self, point):
        """(z - f) n_z at the point's x and y."""
        f, f_x, f_y = self._height_and_slope(point[:2])
        n = jnp.stack([-f_x, -f_y, jnp.ones_like(f)])
        n = n / jnp.sqrt(ops.dot(n, n))
        return (point[2] - f) * n[2], n

    def _height_and_slope(self, xy: Array) -> tuple[Array, Array, Array]:
        nx, ny = self.heights.shape
        heights, spacing = self.heights.astype(xy.dtype), self.spacing.astype(xy.dtype)
        at = (xy - self.origin.astype(xy.dtype)) / spacing
        last = jnp.asarray([nx - 1, ny - 1], xy.dtype)
        inside = jnp.clip(at, 0, last)
        within = ((at >= 0) & (at <= last)).astype(xy.dtype)
        cell = jnp.clip(jnp.floor(jnp.where(jnp.isfinite(inside), inside, 0)), 0, last - 1)
        i, j = cell[0].astype(int), cell[1].astype(int)
        s, t = inside[0] - cell[0], inside[1] - cell[1]
        a, b, c, d = heights[i, j], heights[i + 1, j], heights[i, j + 1], heights[i + 1, j + 1]
        f = a + s * (b - a) + t * (c - a) + s * t * (a + d - b - c)
        f_x = ((b - a) + t * (a + d - b - c)) / spacing * within[0]
        f_y = ((c - a) + s * (a + d - b - c)) / spacing * within[1]
        return f, f_x, f_y


class Ball(Surface):
    """A solid ball; fixed to a frame it is a body's sphere, which other bodies' points touch."""

    radius: Float[Array, ""]
    center: Float[Array, "3"]
    frame: str | None = eqx.field(static=True, default=None)

    def __init__(self, radius, center=(0.0, 0.0, 0.0), frame: str | None = None):
        self.radius = _positive("The radius of a ball", radius)
        self.center, self.frame = numbers("The center of a ball", center, (3,)), frame

    def distance(self, point):
        """|p - center| - radius."""
        return _from(point, self.center.astype(point.dtype), self.radius.astype(point.dtype))

    def nearest(self, start, end):
        """The foot of the centre."""
        return _foot(self.center.astype(start.dtype), start, end)


class Capsule(Surface):
    """All that is within `radius` of the segment from `start` to `end`."""

    start: Float[Array, "3"]
    end: Float[Array, "3"]
    radius: Float[Array, ""]
    frame: str | None = eqx.field(static=True, default=None)

    def __init__(self, start, end, radius, frame: str | None = None):
        self.start = numbers("The start of a capsule", start, (3,))
        self.end = numbers("The end of a capsule", end, (3,))
        self.radius, self.frame = _positive("The radius of a capsule", radius), frame

    def distance(self, point):
        """The distance from the segment's nearest point, less the radius."""
        start, end = self.start.astype(point.dtype), self.end.astype(point.dtype)
        return _from(point, start + _foot(point, start, end) * (end - start), self.radius.astype(point.dtype))

    def nearest(self, start, end):
        """Of two segments (Ericson, Real-Time Collision Detection, 5.1.9): in the middle of where they are parallel."""
        a, b = self.start.astype(start.dtype), self.end.astype(start.dtype)
        u, w = end - start, b - a
        uu, ww, uw = ops.dot(u, u), ops.dot(w, w), ops.dot(u, w)
        apart = start - a
        square = uu * ww - uw * uw  # of the sine between them
        crosses = square > 1e-12 * uu * ww
        s = jnp.clip((uw * ops.dot(w, apart) - ww * ops.dot(u, apart)) / jnp.where(crosses, square, 1), 0, 1)
        first, last = _foot(a, start, end), _foot(b, start, end)
        s = jnp.where(crosses, s, (first + last) / 2)
        t = _foot(start + s * u, a, b)
        return _foot(a + t * w, start, end)


class Box(Surface):
    """A solid box with edges along the axes of its frame, `size` (3,) from face to face, about `center`."""

    size: Float[Array, "3"]
    center: Float[Array, "3"]
    frame: str | None = eqx.field(static=True, default=None)

    def __init__(self, size, center=(0.0, 0.0, 0.0), frame: str | None = None):
        self.size = _positive("The size of a box", size, (3,))
        self.center, self.frame = numbers("The center of a box", center, (3,)), frame

    def distance(self, point):
        """Outside: to the nearest point of the box; inside: minus the way to the nearest face."""
        half, x = self.size.astype(point.dtype) / 2, point - self.center.astype(point.dtype)
        nearest = jnp.clip(x, -half, half)
        apart = x - nearest
        far = norm(apart)
        depth = half - jnp.abs(x)
        face = jnp.argmin(depth)
        inward = jnp.zeros_like(x).at[face].set(jnp.where(x[face] < 0, -1, 1))
        outside = far > 0
        n = jnp.where(outside, apart / jnp.where(outside, far, 1), inward)
        return jnp.where(outside, far, -depth[face]), n


def _foot(point: Array, start: Array, end: Array) -> Array:
    """The part of the way from start to end where a segment is nearest to a point; zero where it has no length."""
    along = end - start
    square = ops.dot(along, along)
    return jnp.clip(ops.dot(point - start, along) / jnp.where(square > 0, square, 1), 0, 1)


def _from(point: Array, center: Array, radius: Array) -> tuple[Array, Array]:
    """Distance from a ball; at its very centre the normal is z, so that nothing is NaN."""
    apart = point - center
    far = norm(apart)
    up = jnp.zeros_like(apart).at[2].set(1)
    return far - radius, jnp.where(far > 0, apart / jnp.where(far > 0, far, 1), up)
