"""One step in time with contacts; the equations are in `problem`, its derivatives in `derivative`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.loops import check_loops, check_prescribed
from jaxsoa.contact.derivative import outcome
from jaxsoa.contact.problem import Inputs
from jaxsoa.contact.scene import Pair, Scene
from jaxsoa.eager import compiled
from jaxsoa.kernels import door
from jaxsoa.model.multibody import Multibody


class Step(NamedTuple):
    """The state after a step, and what the contacts did during it (c contacts, in the order of `Scene.pairs`)."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    impulses: Float[Array, "c 3"]  # on the point's body, world axes (N s); the surface's body feels the opposite
    gaps: Float[Array, " c"]  # at the start of the step
    residual: Float[Array, ""]  # how far from solved, as a velocity (m/s)
    iterations: Int[Array, ""]  # of the solver until it was
    limit_impulses: Float[Array, " k"]  # on the limited joints, towards the inside
    loop_impulses: Float[Array, " e"]


def step(
    robot: Multibody,
    scene: Scene,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    dt: float | Array,
    f_ext: Shaped[Array, "n 6"] | None = None,
    loops: Sequence[Constraint] | Constraint = (),
    *,
    prescribed: Any = None,
    warm: Shaped[Array, "c 3"] | None = None,
) -> Step:
    """The state a time dt later under constant torques, contacts of the scene enforced.

    `loops` are closed in the same solve, `recovery` of the scene removes their drift. `prescribed`: a mask, bool (nv,)
    (velocities stay), or a pair (mask, accelerations (nv,)): there the torque is not read and impulses move nothing.
    `warm` are impulses to start from (those of the step before). Differentiable in forward and reverse mode by every
    array of robot, scene, state and inputs. Outside of jit a solver that has not converged warns; inside, look at
    `residual`. Impulses never leave their friction cones, converged or not.

    >>> floor, feet = soa.contact.Plane(height=-2.0), soa.contact.Points("tip", radii=[0.05])  # m
    >>> after = soa.contact.step(robot, soa.contact.Scene(feet, floor, 0.5), q, v, tau, 0.01)
    >>> print(after.q.round(3), after.gaps.round(3))  # rad, m
    [ 0.303 -0.496] [0.015]
    """
    if not isinstance(scene, Scene):
        raise TypeError(f"scene must be a contact.Scene, got {type(scene).__name__}.")
    after = _step(robot, scene, q, v, tau, dt, f_ext, loops, prescribed, warm)
    scene.warn_unsolved(after.residual)
    return after


@compiled(through_door=False)
def _step(robot: Multibody, scene: Scene, q, v, tau, dt, f_ext, loops, prescribed, warm) -> Step:
    q, v, tau, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_f_ext(f_ext)
    loops = check_loops(robot, loops)
    pairs = scene.pairs(robot)
    held, given = _held(robot, prescribed)
    x = Inputs(robot, scene, loops, q, v, tau, jnp.asarray(dt, robot.dtype), f_ext, held, given)
    out = outcome(x, pairs, _start(pairs, warm, robot.dtype))
    residual = jnp.max(out.residual)
    c, k = 3 * len(pairs), scene.limited(robot).size
    impulse = out.impulse[-1]
    return Step(
        door(_moved)(robot, q, x.dt * out.v[0]),
        out.v[-1],
        impulse[:c].reshape(-1, 3),
        out.gaps,
        residual,
        jax.lax.stop_gradient(jnp.max(out.iterations)).astype(int),
        impulse[c : c + k],
        impulse[c + k :],
    )


def _moved(robot: Multibody, q: Array, dq: Array) -> Array:
    return robot.integrate(q, dq)


def _held(robot: Multibody, prescribed: Any) -> tuple[Array | None, Array | None]:
    """(mask as numbers, accelerations) from a mask, a pair or nothing."""
    if prescribed is None:
        return None, None
    mask, a = prescribed if isinstance(prescribed, tuple) else (prescribed, jnp.zeros(robot.nv, robot.dtype))
    mask = check_prescribed(robot, mask)
    assert mask is not None
    return jax.lax.stop_gradient(mask.astype(robot.dtype)), robot.check_v(a, "a").astype(robot.dtype)


def _start(pairs: tuple[Pair, ...], warm, dtype) -> Array | None:
    if warm is None:
        return None
    warm = jnp.asarray(warm, dtype)
    if warm.shape != (len(pairs), 3):
        raise ValueError(f"warm must hold an impulse per contact, ({len(pairs)}, 3); got {warm.shape}.")
    return jax.lax.stop_gradient(warm)
