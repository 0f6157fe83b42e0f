"""Numbers by name as vectors, and back: what learning code and logs exchange with a simulation.

observation = Observation(("shoulder", "gyro"), (1, 3))
x = observation.vector({"shoulder": q, "gyro": w})        # (4,), in the order of the names
observation.by_name(x)["gyro"]                            # (3,)
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.actuators import Actuators
from jaxsoa.simulate.sensors import Sensors


class NamedVector(eqx.Module):
    """Names and how many numbers each has; the vector holds them one after another."""

    names: tuple[str, ...] = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, names: Sequence[str], sizes: Sequence[int] | None = None):
        self.names = tuple(names)
        self.sizes = (1,) * len(self.names) if sizes is None else tuple(int(size) for size in sizes)
        if (
            len(self.sizes) != len(self.names)
            or len(set(self.names)) < len(self.names)
            or min(self.sizes, default=1) < 1
        ):
            raise ValueError(f"Names must differ and have a size each, got {self.names} and {self.sizes}.")

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(self.sizes)

    def place(self, name: str) -> slice:
        """Where the numbers of a name stand."""
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=3, cutoff=0.4) or self.names[:20]
            raise KeyError(f"There is nothing named {name!r} here. Is it {' or '.join(map(repr, near))}?")
        k = self.names.index(name)
        start = sum(self.sizes[:k])
        return slice(start, start + self.sizes[k])

    def vector(self, values: Mapping[str, Any], default: Any = None) -> Float[Array, " n"]:
        """The vector of values by name; every name must be given, unless there is a `default` (n,) or number."""
        for name in values:
            self.place(name)
        missing = [name for name in self.names if name not in values]
        if missing and default is None:
            raise ValueError(f"There is no value for {', '.join(map(repr, missing[:10]))}.")
        parts = []
        for name, size in zip(self.names, self.sizes, strict=True):
            if name in missing:
                parts.append(jnp.broadcast_to(jnp.asarray(default, float), (self.size,))[self.place(name)])
                continue
            value = jnp.asarray(values[name])
            if value.shape != (size,) and not (size == 1 and value.shape == ()):
                raise ValueError(f"{name!r} has {size} numbers, got shape {value.shape}.")
            parts.append(value.reshape(size))
        return jnp.concatenate([jnp.zeros(0), *parts])

    def by_name(self, x: Shaped[Array, " n"]) -> dict[str, Array]:
        """The numbers of a vector by name, (size,) each."""
        if jnp.shape(x) != (self.size,):
            raise ValueError(f"The vector must have shape ({self.size},), got {jnp.shape(x)}. Batch with jax.vmap.")
        return {name: jnp.asarray(x)[self.place(name)] for name in self.names}


class Observation(NamedVector):
    """What is observed, as a vector; made by `observation(robot, sensors)` from a set of sensors."""


class Command(NamedVector):
    """What is commanded, as a vector; made by `commands(actuators)`, or of a robot's joints by `commands(robot)`."""


def observation(robot: Multibody, sensors: Sensors) -> Observation:
    """The names and sizes of what these sensors read of this robot: `observation.vector(sensors(robot, q, v, a))`.

    >>> sensors = soa.simulate.sensor_set([soa.simulate.Gyro("gyro", soa.simulate.mount(robot, "tip"))])
    >>> print(soa.simulate.observation(robot, sensors).names)
    ('gyro',)
    """
    v = jax.ShapeDtypeStruct((robot.nv,), robot.dtype)
    readings = jax.eval_shape(lambda v: sensors(robot, robot.neutral(), v, v), v)
    return Observation(sensors.names, tuple(int(np.prod(readings[name].shape)) for name in sensors.names))


def commands(of: Actuators | Multibody) -> Command:
    """The names and sizes of commands: one number per actuator, or the torques of each joint of a robot.

    >>> print(soa.simulate.commands(robot).names)
    ('joint1', 'joint2')
    """
    if isinstance(of, Actuators):
        return Command(of.names, (1,) * of.nu)
    places = [of.v_index(name) for name in of.joint_names]
    return Command(of.joint_names, tuple(place.stop - place.start for place in places))
