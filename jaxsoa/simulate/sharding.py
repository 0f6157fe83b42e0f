"""Batches over many devices and hosts: each device simulates its own part, and nothing is exchanged but sums.

A batch axis is split over a `jax.sharding.Mesh` by `shard_map`: what runs on each device is the same `jax.vmap` as on
one, so the compiler has no chance to move data between devices. The mesh may span processes: call
`jax.distributed.initialize(...)` before anything else of JAX, pass the whole batch on every process, and collect
results with `to_host`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate._rollout import rollout

AXIS = "batch"

CACHE = 16_384
"""Bytes of one vector of joint rates of the robots that a CPU simulates at a time, so that all they need stays near."""


def device_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """All devices of all processes (or those given) in one row, along the axis "batch".

    >>> print(soa.simulate.device_mesh().size >= 1)
    True
    """
    return Mesh(np.asarray(jax.devices() if devices is None else devices), (AXIS,))


def shard_batch(tree: PyTree, mesh: Mesh | None = None) -> PyTree:
    """Arrays with a leading batch axis, laid out over the mesh; every process passes the whole batch.

    The batch must be a multiple of the number of devices.

    >>> print(soa.simulate.shard_batch(jnp.stack([q, -q])).shape)
    (2, 2)
    """
    mesh = device_mesh() if mesh is None else mesh
    return jax.tree.map(lambda x: _place(x, NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]))), tree)


def to_host(tree: PyTree) -> PyTree:
    """Sharded results as NumPy arrays, whole on every process.

    >>> print(type(soa.simulate.to_host(q)).__name__)
    ndarray
    """
    from jax.experimental import multihost_utils

    def fetch(x):
        if isinstance(x, jax.Array) and not x.is_fully_addressable and not x.is_fully_replicated:
            return np.asarray(multihost_utils.process_allgather(x, tiled=True))
        return np.asarray(x)

    return jax.tree.map(fetch, tree)


def sharded_map(function: Callable, *, mesh: Mesh | None = None, chunk: int | None = None) -> Callable:
    """`g(shared, *batched)`: `function(shared, *element)` for every element of the batch, over the mesh's devices.

    `shared` (any pytree) is the same for all, `batched` pytrees have a leading batch axis of any length (it is padded
    to a multiple of the number of devices by repeating its last element, and cut again). Each device takes `chunk`
    elements at a time (all at once for None): small chunks stay in a CPU's cache. Differentiable; gradients by
    `shared` are summed over the devices.

    >>> torques = soa.simulate.sharded_map(lambda robot, q: soa.bias_force(robot, q, jnp.zeros(2)))
    >>> print(torques(robot, jnp.stack([q, -q])).round(2))  # N m, a row for each state
    [[ 3.37 -0.97]
     [-3.37  0.97]]
    """
    mesh = device_mesh() if mesh is None else mesh
    axis = mesh.axis_names[0]
    split, whole = PartitionSpec(axis), PartitionSpec()

    def local(shared, batched):
        def one(element):
            return function(shared, *element)

        size = jax.tree.leaves(batched)[0].shape[0]
        if chunk is None or chunk >= size:
            return jax.vmap(one)(batched)
        return jax.lax.map(one, batched, batch_size=chunk)

    spread = jax.shard_map(local, mesh=mesh, in_specs=(whole, split), out_specs=split, check_vma=False)
    compiled = jax.jit(spread)

    def run(shared: PyTree, *batched: PyTree) -> PyTree:
        size = batch_size(batched)
        batched = _padded(batched, size, mesh.size)
        result = compiled(_everywhere(shared, mesh), shard_batch(batched, mesh))
        return jax.tree.map(lambda x: x[:size], result) if size % mesh.size else result

    return run


def sharded_value_and_grad(loss: Callable, *, mesh: Mesh | None = None, chunk: int | None = None) -> Callable:
    """`g(shared, *batched) -> (mean loss, its gradient by shared)`, for `loss(shared, *element) -> scalar`.

    Each device differentiates the mean over its own part, in chunks, and one sum over the devices joins them: memory
    and communication do not grow with the batch. The gradient has the structure of `shared`, whose leaves must all be
    floating point (partition other things out, with `equinox.partition`); it is the same on every device.

    >>> loss = soa.simulate.sharded_value_and_grad(soa.potential_energy)
    >>> energy, slope = loss(robot, jnp.stack([q, -q]))
    >>> print(slope.mass.round(3))  # J/kg
    [ -4.686 -14.179]
    """
    mesh = device_mesh() if mesh is None else mesh
    axis = mesh.axis_names[0]
    split, whole = PartitionSpec(axis), PartitionSpec()

    def local(shared, batched, weight):
        def weighted(shared, batched, weight):
            return jnp.sum(weight * jax.vmap(lambda element: loss(shared, *element))(batched))

        part = jax.value_and_grad(weighted)
        size = chunk_length(weight.shape[0], chunk)
        xs = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), (batched, weight))
        zero = jax.eval_shape(part, shared, *jax.tree.map(lambda x: x[0], xs))
        total = jax.tree.map(lambda z: jnp.zeros(z.shape, z.dtype), zero)
        total, _ = lax.scan(lambda total, x: (jax.tree.map(jnp.add, total, part(shared, *x)), None), total, xs)
        return jax.tree.map(lambda x: lax.psum(x, axis), total)

    spread = jax.shard_map(local, mesh=mesh, in_specs=(whole, split, split), out_specs=whole, check_vma=False)
    compiled = jax.jit(spread)

    def run(shared: PyTree, *batched: PyTree) -> tuple[Array, PyTree]:
        size = batch_size(batched)
        batched = _padded(batched, size, mesh.size)
        padded = jax.tree.leaves(batched)[0].shape[0]
        weight = (np.arange(padded) < size) / size
        return compiled(_everywhere(shared, mesh), *shard_batch((batched, weight), mesh))

    return run


def chunk_length(size: int, chunk: int | None) -> int:
    """The longest divisor of `size` that is no longer than `chunk`."""
    if chunk is None or chunk >= size:
        return size
    return max(n for n in range(1, chunk + 1) if size % n == 0)


def sharded_rollout(
    robot: Multibody,
    q: Array,
    v: Array,
    control: Array | Callable | None,
    dt: float | Array,
    *,
    mesh: Mesh | None = None,
    chunk: int | Literal["auto"] | None = "auto",
    **options: Any,
) -> Any:
    """`rollout` of a batch over all devices: q (batch, nq), v (batch, nv), torques (batch, steps, nv).

    The robot is one for all, or a batch of robots (every leaf with a leading batch axis). `control` may also be a
    function of one state, as in `rollout`, which takes all further `options`. The result has a leading batch axis and
    stays distributed; `simulate.to_host` collects it. To call it again and again, wrap the call in one `jax.jit` (a
    call on its own compiles every time). `mesh`: all devices unless given. `chunk`: how many robots a
    device simulates at a time ("auto": on CPUs as many as fit in the cache, else all).

    Units: rad, rad/s, N m, s.

    >>> starts = jnp.stack([q, q + 0.1])
    >>> motion = soa.sharded_rollout(robot, starts, jnp.zeros((2, 2)), None, 0.01, steps=10)
    >>> print(motion.q.shape)
    (2, 10, 2)
    """
    robots_differ = robot.mass.ndim == 2
    torques = control if control is not None and not callable(control) else None
    mesh = device_mesh() if mesh is None else mesh
    if chunk == "auto":
        chunk = CACHE // (robot.nv * robot.dtype.itemsize) if jax.default_backend() == "cpu" else None

    def one(shared, element):
        own, q, v, tau = element
        one_robot = own if robots_differ else shared
        return rollout(one_robot, q, v, control if torques is None else tau, dt, **options)

    shared, own = (None, robot) if robots_differ else (robot, None)
    return sharded_map(one, mesh=mesh, chunk=chunk)(shared, (own, q, v, torques))


def batch_size(batched: PyTree) -> int:
    """The common length of the leading axes; the message names the shapes that differ."""
    shapes = [np.shape(x) for x in jax.tree.leaves(batched)]
    sizes = {shape[0] if shape else 0 for shape in shapes}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"Batched arguments need the same leading batch axis, of length one or more; got {shapes}.")
    return sizes.pop()


def _padded(batched: PyTree, size: int, multiple: int) -> PyTree:
    """The batch, its last element repeated up to a multiple."""
    extra = -size % multiple
    if not extra:
        return batched

    def pad(x):
        if isinstance(x, jax.Array):
            return jnp.concatenate([x, jnp.repeat(x[-1:], extra, axis=0)])
        return np.concatenate([x, np.repeat(np.asarray(x)[-1:], extra, axis=0)])

    return jax.tree.map(pad, batched)


def _everywhere(tree: PyTree, mesh: Mesh) -> PyTree:
    return jax.tree.map(lambda x: _place(x, NamedSharding(mesh, PartitionSpec())), tree)


def _place(x, sharding: NamedSharding) -> Array:
    if isinstance(x, Tracer):
        return x  # where it lives is decided outside
    if isinstance(x, jax.Array) and (x.sharding == sharding or not x.is_fully_addressable):
        return x
    if sharding.is_fully_addressable:
        return jax.device_put(x, sharding)
    host = np.asarray(x)  # each process cuts its own part out of the whole
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
