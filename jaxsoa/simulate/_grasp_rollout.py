"""Arms that carry an object, in time: the closed chain of JPL 88-11, Part II, integrated and kept closed.

The state is that of all arms and of the object, which moves like one more robot on a free joint. After every step the
arms are projected back onto their contacts (`closed_chain.project_grasp`); the object is never moved by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.closed_chain.algebra import is_concrete
from jaxsoa.closed_chain.grasp import GraspSystem, Pose, check_grasp, check_pose, grasp_state
from jaxsoa.closed_chain.grasp_dynamics import grasp_forward_dynamics
from jaxsoa.closed_chain.stabilize import grasp_rotations, project_grasp
from jaxsoa.closed_chain.together import projected_together
from jaxsoa.eager import compiled
from jaxsoa.mesh_axes import scan
from jaxsoa.model.builder import Builder
from jaxsoa.simulate.integrators import Integrator, find_integrator
from jaxsoa.spatial import ops, rotation


class GraspMotion(NamedTuple):
    """State of a grasp: q and v one per arm, the object's pose (R, p) and velocity (6,), world axes."""

    q: tuple[Array, ...]
    v: tuple[Array, ...]
    object_pose: Pose
    object_velocity: Float[Array, "6"]


class _Together:
    """All arms and the object as what an integrator sees of a robot: coordinates that `integrate` moves."""

    def __init__(self, system: GraspSystem):
        # Only its coordinates are used, so its inertia is anything.
        body = Builder("object").link("object", joint="free", mass=1.0, inertia=np.eye(3)).build()
        dtype = system.arms[0].robot.dtype
        self.robots = (*(arm.robot for arm in system.arms), body.astype(dtype))
        self.q_ends = np.cumsum([robot.nq for robot in self.robots])[:-1].tolist()
        self.v_ends = np.cumsum([robot.nv for robot in self.robots])[:-1].tolist()
        groups = [
            SimpleNamespace(joint=g.joint, v_index=g.v_index + start)
            for robot, start in zip(self.robots, (0, *self.v_ends), strict=True)
            for g in robot.topology.groups
        ]
        self.topology = SimpleNamespace(groups=groups)
        self._order = np.argsort(np.concatenate([g.v_index.reshape(-1) for g in groups]))

    def join_dofs(self, parts: Sequence[Array]) -> Array:
        return jnp.concatenate([part.reshape(-1) for part in parts])[self._order]

    def integrate(self, q: Array, dv: Array) -> Array:
        pieces = zip(self.robots, jnp.split(q, self.q_ends), jnp.split(dv, self.v_ends), strict=True)
        return jnp.concatenate([robot.integrate(x, dx) for robot, x, dx in pieces])

    def pack(self, motion: GraspMotion) -> tuple[Array, Array]:
        R, p = motion.object_pose
        w, u = motion.object_velocity[:3], motion.object_velocity[3:]
        own_q = jnp.concatenate([rotation.to_quaternion(R), p])
        own_v = jnp.concatenate([ops.matvec_t(R, w), ops.matvec_t(R, u)])
        return jnp.concatenate([*motion.q, own_q]), jnp.concatenate([*motion.v, own_v])

    def unpack(self, q: Array, v: Array) -> GraspMotion:
        *qs, own_q = jnp.split(q, self.q_ends)
        *vs, own_v = jnp.split(v, self.v_ends)
        R = rotation.from_quaternion(own_q[:4])
        velocity = jnp.concatenate([ops.matvec(R, own_v[:3]), ops.matvec(R, own_v[3:])])
        return GraspMotion(tuple(qs), tuple(vs), (R, own_q[4:]), velocity)


@compiled(through_door=False)
def grasp_step(
    system: GraspSystem,
    motion: GraspMotion,
    tau: Sequence[Array],
    dt: float | Array,
    rotations: Sequence[Array],
    *,
    integrator: str | Integrator = "rk4",
    method: str = "auto",
    prescribed: Any = None,
) -> GraspMotion:
    """The motion (q (nq,), v (nv,) per arm) a time dt later under constant torques, the arms on their contacts.

    `rotations`: how the arms' frames stand on the object (`closed_chain.grasp_rotations` at the start), met up to what
    the contacts leave free. `method` is that of `grasp_forward_dynamics`. `prescribed`: masks (bool (nv,), or None for
    an arm), one per arm, or a pair (masks, accelerations); then arms and object go back onto the contacts together.

    >>> system, q, pose = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> motion = soa.simulate.GraspMotion(q, [jnp.zeros(7)] * 2, pose, jnp.zeros(6))
    >>> held = soa.closed_chain.grasp_rotations(system, q, pose)
    >>> after = jax.jit(soa.simulate.grasp_step)(system, motion, motion.v, 0.01, held)
    >>> print(after.object_pose[1].shape)  # m
    (3,)
    """
    tau, dt = system.check("tau", tau, "check_v"), system.arms[0].robot.check_number(dt)
    q, v = system.check("q", motion.q, "check_q"), system.check("v", motion.v, "check_v")
    object_velocity = system.arms[0].robot.convert(motion.object_velocity, "object_velocity")
    rotations = [system.arms[0].robot.convert(x, "rotations") for x in rotations]
    motion = GraspMotion(q, v, check_pose(system, motion.object_pose), object_velocity)
    together = _Together(system)
    masks, given = prescribed if _is_pair(prescribed) else (prescribed, None)

    def acceleration(q: Array, v: Array) -> Array:
        at = together.unpack(q, v)
        found = grasp_forward_dynamics(
            system,
            at.q,
            at.v,
            tau,
            at.object_pose,
            object_velocity=at.object_velocity,
            a=given,
            prescribed=masks,
            method=method,
        )
        R, (w, u) = at.object_pose[0], (at.object_velocity[:3], at.object_velocity[3:])
        turn, push = found.object_acceleration[:3], found.object_acceleration[3:]
        own = jnp.concatenate([ops.matvec_t(R, turn), ops.matvec_t(R, push - ops.cross(w, u))])
        return jnp.concatenate([*found.a, own])

    robot: Any = together
    after = together.unpack(*find_integrator(integrator)(robot, acceleration, *together.pack(motion), dt))
    if masks is not None:
        return GraspMotion(*projected_together(system, *after, rotations, masks))
    q, v = project_grasp(system, *after, rotations, iterations=1)
    return after._replace(q=q, v=v)


def _is_pair(prescribed: Any) -> bool:
    """Whether it is (masks, accelerations): a pair of sequences, where masks alone are arrays or None."""
    return isinstance(prescribed, tuple) and len(prescribed) == 2 and isinstance(prescribed[0], list | tuple)


def grasp_rollout(
    system: GraspSystem,
    q: Sequence[Array],
    v: Sequence[Array],
    object_pose: Pose,
    control: Sequence[Array] | Callable[[Array, GraspMotion], Sequence[Array]] | None,
    dt: float | Array,
    *,
    steps: int | None = None,
    object_velocity: Float[Array, "6"] | None = None,
    integrator: str | Integrator = "rk4",
    method: str = "auto",
    record: Callable[[GraspMotion], Any] | None = None,
    checkpoint: bool = True,
    prescribed: Any = None,
) -> Any:
    """Simulate arms that carry an object. Returns the `GraspMotion` after each step, every array (steps, ...).

    `control`: torques (steps, nv) per arm, a function `(time, motion) -> torques per arm`, or None. The object's
    velocity follows from the arms' unless given (give it where contacts leave the object free to turn). `record`: a
    function of a `GraspMotion` whose results are returned instead. A start that is not closed raises (outside jit).
    `prescribed`: as in `grasp_step`, held throughout, or a function `(time, motion)` that gives it, held in a step.

    >>> system, q, pose = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> still = [jnp.zeros(7)] * 2  # rad/s
    >>> fall = jax.jit(lambda q: soa.simulate.grasp_rollout(system, q, still, pose, None, 0.01, steps=2))
    >>> print(fall(q).object_pose[1].shape)  # m
    (2, 3)
    """
    q, v = system.check("q", q, "check_q"), system.check("v", v, "check_v")
    pose = check_pose(system, object_pose)
    if is_concrete(system, q, pose):
        with jax.ensure_compile_time_eval():  # constants inside a jitted function may be looked at too
            check_grasp(system, q, pose, tolerance=1e-4)
    torques = None
    if control is not None and not callable(control):
        torques = tuple(jnp.asarray(x) for x in control)
        sizes = {x.shape[0] for x in torques}
        shapes = [(x.shape[1:], (arm.robot.nv,)) for x, arm in zip(torques, system.arms, strict=True)]
        if len(sizes | ({steps} - {None})) != 1 or any(found != wanted for found, wanted in shapes):
            raise ValueError(f"control must hold one array (steps, nv) per arm, got {[x.shape for x in torques]}.")
        steps = sizes.pop()
    if steps is None:
        raise ValueError("grasp_rollout needs `steps` when control is a function or None.")
    rotations = grasp_rotations(system, q, pose)
    if object_velocity is None:
        object_velocity = grasp_state(system, q, v, pose).object_velocity
    start = GraspMotion(q, v, pose, jnp.asarray(object_velocity))
    dtype = jnp.result_type(*jax.tree.leaves(start), system.body.mass)
    start = jax.tree.map(lambda x: x.astype(dtype), start)

    def advance(motion: GraspMotion, x):
        number, tau = x
        if callable(control):
            tau = control(number * dt, motion)
        elif tau is None:
            tau = tuple(jnp.zeros_like(x) for x in motion.v)
        held = prescribed(number * dt, motion) if callable(prescribed) else prescribed
        options = {"integrator": integrator, "method": method, "prescribed": held}
        after = grasp_step(system, motion, tau, dt, rotations, **options)
        return jax.tree.map(lambda x: x.astype(dtype), after), None

    if checkpoint:
        advance = jax.checkpoint(advance, prevent_cse=False)

    def recorded(motion, x):
        motion, _ = advance(motion, x)
        return motion, motion if record is None else record(motion)

    return scan(recorded, start, (jnp.arange(steps), torques))[1]
