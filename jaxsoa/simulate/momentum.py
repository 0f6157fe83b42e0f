"""Steps that conserve the momentum of a free-flying robot to rounding, whatever integrator makes them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.dynamics.inverse import center_of_mass, momentum
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.integrators import Integrator, State, find_integrator


def with_momentum(robot: Multibody, q: Array, v: Array, target: Float[Array, "6"]) -> Float[Array, " nv"]:
    """The velocity nearest to v, in kinetic energy, with the given spatial momentum (`soa.momentum`) at q.

    With h = A v the momentum, the M-orthogonal projection is v + M^-1 A* (A M^-1 A*)^-1 (target - h). The range of
    M^-1 A* are the motions of the robot with its joints locked, so only the velocity of the free base changes.

    >>> body = soa.models.random_tree(0, 3, floating_base=True)
    >>> v = soa.simulate.with_momentum(body, body.neutral(), jnp.ones(body.nv), jnp.zeros(6))  # kg m^2/s, kg m/s
    >>> print(jnp.abs(soa.momentum(body, body.neutral(), v)).max() < 1e-12)
    True
    """
    _require_free_base(robot)
    q, v, target = robot.check_q(q), robot.check_v(v), robot.convert(target, "target")
    base = jnp.eye(6, robot.nv, dtype=v.dtype)
    locked = jax.vmap(lambda unit: momentum(robot, q, unit))(base).T
    return v.at[:6].add(jnp.linalg.solve(locked, target - momentum(robot, q, v)))


def conserving_momentum(integrator: str | Integrator = "rk4") -> Integrator:
    """An integrator whose steps obey the balance of momentum of a robot on a free base under gravity alone, exactly.

    Each step of the given integrator is corrected in two ways that leave its order of accuracy as it is:

    - the robot is shifted as a whole so that its centre of mass is where it must be, c + dt (p + p') / 2m;
    - `with_momentum` gives it the linear momentum p' = p + m g dt and, about its centre of mass, the angular momentum
      it had.

    So without gravity the spatial momentum about the world's origin stays too. Torques between the links may be
    anything; torques on the base or external forces would be undone, so do not use it with them.

    >>> body = soa.models.random_tree(0, 2, floating_base=True).with_gravity(jnp.zeros(3))
    >>> start, integrator = soa.State(body.neutral(), jnp.ones(body.nv)), soa.simulate.conserving_momentum("leapfrog")
    >>> end = soa.step(body, *start, jnp.zeros(body.nv), 0.1, integrator=integrator)
    >>> print(jnp.abs(soa.momentum(body, *end) - soa.momentum(body, *start)).max() < 1e-12)
    True
    """
    plain = find_integrator(integrator)

    def conserving(robot: Multibody, acceleration, q: Array, v: Array, dt) -> State:
        _require_free_base(robot)
        before, center, mass = momentum(robot, q, v), center_of_mass(robot, q), jnp.sum(robot.mass)
        spin = before[:3] - jnp.cross(center, before[3:])
        linear = before[3:] + dt * mass * robot.gravity
        arrived = center + dt * (before[3:] + linear) / (2 * mass)
        after = State(*plain(robot, acceleration, q, v, dt))
        shift = arrived - center_of_mass(robot, after.q)
        joint_axes = robot.base_rotation @ robot.joint_rotation[0]  # a free joint's position is given in its own frame
        moved = after.q.at[robot.joint_of(0).position].add(joint_axes.T @ shift)
        target = jnp.concatenate([spin + jnp.cross(arrived, linear), linear])
        return State(moved, with_momentum(robot, moved, after.v, target))

    return conserving


def _require_free_base(robot: Multibody) -> None:
    if robot.joint_of(0).position is None or sum(parent < 0 for parent in robot.topology.parents) != 1:
        raise ValueError(
            f"Momentum is conserved by robots that fly freely: the first joint of {robot.name!r} must be a free joint "
            f"that carries all other links (load it with floating_base=True)."
        )
