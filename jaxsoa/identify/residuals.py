"""What a model gets wrong: torques of inverse dynamics, or simulated against recorded motion.

A residual is a function (candidate, sample) -> (rows, channels); channels have a noise level each (a joint's torque, a
joint's position), rows are further measurements of the same channels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.dynamics.inverse import inverse_dynamics
from jaxsoa.dynamics.springs import spring_torque
from jaxsoa.eager import compiled
from jaxsoa.identify.data import TorqueData, TrajectoryData
from jaxsoa.identify.parameters import Candidate, Parameters
from jaxsoa.linearized.regressor import inertial_parameters, regressor
from jaxsoa.mesh_axes import scan
from jaxsoa.model.mimics import mimic_map
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate._rollout import rollout

Residual = Callable[[Candidate, Any], Float[Array, "rows channels"]]


class Problem(NamedTuple):
    """Samples (a pytree with a leading axis), the residual of one of them, and how many numbers a channel holds."""

    residual: Residual
    samples: Any
    count: int
    channels: tuple[str, ...]


def _shared(robot: Multibody, x: Any) -> Any:
    """A* x (..., ny) of torques (..., nv): a joint's motor feels the joints that mimic it too, and they have none."""
    return x @ mimic_map(robot).A.astype(x.dtype) if robot.topology.mimics else x


@compiled
def torque_residual(candidate: Candidate, sample: TorqueData) -> Float[Array, "1 ny"]:
    """inverse_dynamics + offset - measured torque; where joints mimic others, A* times that (v = A y').

    >>> candidate = soa.identify.Candidate(robot, jnp.zeros(2))
    >>> sample = soa.identify.TorqueData(q, v, jnp.zeros(2), soa.bias_force(robot, q, v))
    >>> print(soa.identify.torque_residual(candidate, sample).round(9) + 0.0)  # N m
    [[0. 0.]]
    """
    robot = candidate.robot
    offset, tau = robot.convert(candidate.offset, "offset"), robot.convert(sample.tau, "tau")
    if sample.dry is not None:
        offset = offset + robot.friction * robot.convert(sample.dry, "dry")
        robot = robot.replace(friction=jnp.zeros_like(robot.friction))
    return _shared(robot, inverse_dynamics(robot, sample.q, sample.v, sample.a) + offset - tau)[None]


@cache
def _trajectory_residual(integrator: str) -> Residual:
    """One function object per integrator, so that compilations are shared."""
    return partial(trajectory_residual, integrator=integrator)


@cache
def _compressed_residual(gravity: bool) -> Residual:
    return partial(compressed_residual, gravity=gravity)


def trajectory_residual(
    candidate: Candidate,
    segment: TrajectoryData,
    *,
    integrator: str = "semi_implicit_euler",
    loops: Any = (),
    prescribed: Any = None,
) -> Float[Array, "steps two_nv"]:
    """Simulated less recorded motion of one segment, from its recorded start: positions, then velocities.

    >>> candidate, euler = soa.identify.Candidate(robot, jnp.zeros(2)), "semi_implicit_euler"
    >>> swing = soa.rollout(robot, q, v, None, 0.01, steps=5, integrator=euler)
    >>> segment = soa.identify.TrajectoryData(swing.q, swing.v, jnp.zeros((4, 2)), 0.01)
    >>> print(jnp.abs(soa.identify.trajectory_residual(candidate, segment)).max() < 1e-12)  # rad, rad/s
    True
    """
    robot = candidate.robot
    offset, q, v, tau = (robot.convert(x, "the data") for x in (candidate.offset, *segment[:3]))
    options = {"integrator": integrator, "loops": loops, "prescribed": prescribed, "contact": candidate.scene}
    path = rollout(robot, q[0], v[0], tau - offset, segment.dt, **options)
    moved = jax.vmap(robot.difference)(q[1:], path.q)
    return jnp.concatenate([moved, path.v - v[1:]], axis=1)


# --- the same, compressed --------------------------------------------------------------------------------------------


def linear_parameters(candidate: Candidate, gravity: bool) -> Float[Array, " columns"]:
    """What the torques are linear in: inertial parameters, damping, friction, armature, offset; stiffness, if any.

    With `gravity`, its products with masses and first moments come too: torques are bilinear in them.
    """
    robot, offset = candidate.robot, candidate.offset
    pi = inertial_parameters(robot)
    weight = robot.gravity[:, None, None] * pi.reshape(-1, 10)[:, :4]
    own = [pi, weight.reshape(-1)] if gravity else [pi]
    springs = [] if robot.springs is None else [robot.stiffness]
    return jnp.concatenate([*own, robot.damping, robot.friction, robot.armature, offset, *springs])


def linear_columns(
    robot: Multibody, sample: TorqueData, gravity: bool, springs: bool = False
) -> Float[Array, "nv columns"]:
    """The matrix that maps `linear_parameters` to torques at one sample."""
    v, a = jnp.asarray(sample.v), jnp.asarray(sample.a)
    dry = jnp.tanh(v / robot.friction_velocity) if sample.dry is None else jnp.asarray(sample.dry)
    own = [v, dry, a, jnp.ones_like(v)]
    if gravity:
        still = jnp.zeros_like(v)
        pull = jax.vmap(lambda g: regressor(robot.with_gravity(g), sample.q, still, still))(jnp.eye(3, dtype=v.dtype))
        pull = pull.reshape(3, robot.nv, robot.n_links, 10)[..., :4].swapaxes(0, 1).reshape(robot.nv, -1)
        inertial = [regressor(robot.with_gravity(jnp.zeros(3)), sample.q, v, a), pull]
    else:
        inertial = [regressor(robot, sample.q, v, a)]
    matrices = [*inertial, *(jnp.diag(x) for x in own)]
    if springs:
        q = jnp.asarray(sample.q)
        matrices.append(-jax.jacfwd(lambda k: spring_torque(robot, k, robot.rest, q))(jnp.zeros_like(v)))
    return jnp.concatenate(matrices, axis=1)


_columns = jax.jit(jax.vmap(linear_columns, in_axes=(None, 0, None, None)), static_argnums=(2, 3))


def compressed_residual(candidate: Candidate, factors: Float[Array, "nv rows columns1"], gravity: bool) -> Array:
    """The residual of all samples at once, rotated: R_j (x, -1) with Q_j R_j the rows of joint j and its torque."""
    x = linear_parameters(candidate, gravity)
    x = jnp.concatenate([x, -jnp.ones(1, x.dtype)])
    return jnp.einsum("jrc,c->rj", factors, x)


def compress(
    robot: Multibody, data: TorqueData, *, gravity: bool = False, springs: bool = False, chunk: int = 2048
) -> np.ndarray:
    """Triangular factors (1, nv, rows, columns + 1) of [W_j, tau_j], joint by joint, over all samples.

    For fits whose free parameters enter the torques linearly (`Parameters.linear`); orthogonal factors change no sum of
    squares, and a fit then costs the same for any number of samples. Chunks are folded in one after another, so memory
    does not grow with the record.
    """
    factors: Any = None
    number = len(data.tau)
    chunk = min(chunk, number)
    for start in range(0, number, chunk):
        # The last chunk is filled with samples counted as zero, so that one compilation serves all.
        index = np.minimum(np.arange(start, start + chunk), number - 1)
        part = data.take(index)
        W = np.concatenate([np.asarray(_columns(robot, part, gravity, springs)), part.tau[:, :, None]], axis=2)
        W = _shared(robot, W.swapaxes(1, 2)).swapaxes(1, 2)
        W = (W * (np.arange(start, start + chunk) < number)[:, None, None]).swapaxes(0, 1)
        W = W if factors is None else np.concatenate([factors, W], axis=1)
        factors = np.linalg.qr(W, mode="r")
    return factors[None]


# --- problems and their sums of squares ------------------------------------------------------------------------------


def problem(
    robot: Multibody,
    data: Any,
    *,
    residual: Residual | None = None,
    integrator: str = "semi_implicit_euler",
    parameters: Parameters | None = None,
    loops: Any = (),
    prescribed: Any = None,
) -> Problem:
    """What there is to fit, by the kind of data; with `residual`, `data` is any pytree with a leading sample axis.

    With `parameters` that enter the torques linearly, the samples are compressed.
    """
    if residual is not None:
        samples = jax.tree.map(jnp.asarray, data)
        size = jax.eval_shape(residual, _unmoved(robot), jax.tree.map(lambda x: x[0], samples)).shape
        number = jax.tree.leaves(samples)[0].shape[0]
        return Problem(residual, samples, number * size[0], tuple(f"channel {k}" for k in range(size[1])))
    joints = tuple(robot.joint_names[k] for k in robot.topology.dof_link)
    closed = bool(loops) or prescribed is not None
    if isinstance(data, TorqueData):
        if parameters is not None and parameters.prior.scene is not None:
            raise ValueError("Torques do not tell of contacts: fit TrajectoryData, or give `residual`.")
        if closed:
            raise ValueError("Torques of a mechanism are shared by its loops: fit TrajectoryData, or give `residual`.")
        _check_samples(robot, data, 1)
        count = len(data.tau)
        if robot.topology.mimics:
            joints = tuple(joints[d] for d in mimic_map(robot).v_columns)
        if parameters is not None and parameters.linear:
            gravity = any(name.startswith("gravity") for name in parameters.blocks)
            springs = robot.springs is not None or "stiffness" in parameters.blocks
            factors = jnp.asarray(compress(robot, data, gravity=gravity, springs=springs))
            return Problem(_compressed_residual(gravity), factors, count, joints)
        return Problem(torque_residual, jax.tree.map(jnp.asarray, data), count, joints)
    if isinstance(data, TrajectoryData):
        _check_samples(robot, data, 2)
        number, steps = data.tau.shape[:2]
        q, v, tau = (jnp.asarray(x) for x in data[:3])
        samples = TrajectoryData(q, v, tau, jnp.full(number, data.dt))
        names = (*(f"{j} q" for j in joints), *(f"{j} v" for j in joints))
        residual = _trajectory_residual(integrator)
        if closed:
            residual = partial(trajectory_residual, integrator=integrator, loops=loops, prescribed=prescribed)
        return Problem(residual, samples, number * steps, names)
    raise TypeError(
        f"data must be TorqueData or TrajectoryData, got {type(data).__name__}; for your own data pass `residual` too."
    )


def _unmoved(robot: Multibody) -> Candidate:
    return Candidate(robot, jnp.zeros(robot.nv, robot.dtype))


def _check_samples(robot: Multibody, data: TorqueData | TrajectoryData, batch: int) -> None:
    for name, x in zip(data._fields, data, strict=True):
        if name == "dt" or x is None:
            continue
        x = np.asarray(x)
        size = robot.nq if name == "q" else robot.nv
        if x.ndim != batch + 1 or x.shape[-1] != size or len(x) != len(data.tau) or not len(x):
            raise ValueError(
                f"{name} of the data must have {batch + 1} axes, the first as long as tau's ({len(data.tau)}) and the "
                f"last {size} for robot {robot.name!r}, got shape {x.shape}."
            )
        if not np.isfinite(x).all():
            raise ValueError(f"{name} of the data holds NaN or infinity.")


def in_chunks(function: Callable[[Any], Any], samples: Any, chunk: int) -> Any:
    """Sum over samples of a function's pytree of arrays, `chunk` samples at a time (a scan over the data)."""
    number = jax.tree.leaves(samples)[0].shape[0]
    chunk = min(chunk, number)
    parts = -(-number // chunk)
    # The last chunk is filled with repetitions that count as zero: one compilation of the function serves all.
    index = np.minimum(np.arange(parts * chunk), number - 1)
    counts = (np.arange(parts * chunk) < number).reshape(parts, chunk)
    padded = jax.tree.map(lambda x: x[index].reshape(parts, chunk, *x.shape[1:]), samples)
    shapes = jax.eval_shape(function, jax.tree.map(lambda x: x[0], samples))
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def add(total, part):
        values, count = jax.vmap(function)(part[0]), part[1]
        pick = [count.reshape(-1, *(1,) * (x.ndim - 1)) for x in jax.tree.leaves(values)]
        kept = [jnp.sum(jnp.where(c, x, 0), axis=0) for c, x in zip(pick, jax.tree.leaves(values), strict=True)]
        return jax.tree.map(jnp.add, total, jax.tree.unflatten(jax.tree.structure(values), kept)), None

    return scan(add, zero, (padded, jnp.asarray(counts)))[0]


@partial(jax.jit, static_argnames=("residual", "chunk"))
def _squares(candidate: Candidate, samples: Any, residual: Residual, chunk: int) -> Array:
    return in_chunks(lambda s: jnp.sum(residual(candidate, s) ** 2, axis=0), samples, chunk)


def rms(candidate: Candidate, what: Problem, chunk: int = 512) -> np.ndarray:
    """Root mean square of the residual, channel by channel."""
    return np.sqrt(np.asarray(_squares(candidate, what.samples, what.residual, chunk)) / what.count)


def residual_rms(
    robot: Multibody,
    data: Any,
    offset: Array | None = None,
    *,
    residual: Residual | None = None,
    integrator: str = "semi_implicit_euler",
    loops: Any = (),
    prescribed: Any = None,
    contact: Any = None,
) -> np.ndarray:
    """How well a model explains data it may never have seen: RMS (nv,) of the torques, or (2 nv,) of positions, then
    velocities (of a mechanism with `loops` and `prescribed` joints, or a robot that touches what a scene holds).

    >>> motion = [jnp.stack([x, -x]) for x in (q, v, q)]
    >>> measured = jax.vmap(lambda *x: soa.inverse_dynamics(robot, *x))(*motion)
    >>> print(soa.identify.residual_rms(robot, soa.identify.TorqueData(*motion, measured)).round(9))  # N m
    [0. 0.]
    """
    candidate = _unmoved(robot) if offset is None else Candidate(robot, robot.check_v(offset, "offset"))
    candidate = candidate._replace(scene=contact)
    options = {"residual": residual, "integrator": integrator, "loops": loops, "prescribed": prescribed}
    return rms(candidate, problem(robot, data, **options))
