"""Derivatives of inverse and forward dynamics as linear maps with code of their own for both directions.

The equations of motion tau = ID(q, v, a; model, f_ext), linearized about a motion, are

    dtau = M da + dID,

with dID inverse dynamics differentiated along state, model and external forces at fixed a. Forward dynamics solves
them for da with the factors of M at hand; no derivative enters the Riccati recursion. In reverse mode the transposed
of dID, applied to y, is the gradient of the power of the torques in a virtual motion y (`power_of`): by virtual work
that needs no inward sweep, and its gradient one. Both directions recompute the motion from (q, v, a) instead of
storing it, so that reverse mode keeps little. Higher derivatives are those of the linearized equations in plain JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from jaxsoa.dynamics.articulated import DofTree, Factors, free_only, on_first, solve_with_factors
from jaxsoa.dynamics.kinematics import spatial_rows
from jaxsoa.dynamics.linear_maps import linear_map, linked, tied
from jaxsoa.dynamics.newton_euler import Bodies, moving_bodies, power_of, torque_of
from jaxsoa.kernels import door, is_zero
from jaxsoa.mesh_axes import varying_like
from jaxsoa.model.multibody import Multibody


class Varying(NamedTuple):
    """A pytree (robot, q, v, f_ext), which of its leaves vary, and how: zeros are left out, and cost nothing."""

    state: tuple
    which: tuple[int, ...]
    rates: list[Array]

    @staticmethod
    def of(state: tuple, tangents: tuple) -> Varying:
        leaves = jax.tree.leaves(tangents, is_leaf=is_zero)
        which = tuple(i for i, t in enumerate(leaves) if not is_zero(t))
        # Inside `shard_map`, what is alike on all devices would be transposed into what is not.
        state, rates = varying_like((state, [leaves[i] for i in which]))
        return Varying(state, which, rates)


class _Motion:
    """ID as a function of the varying leaves and a, in two stages: the outward sweep, and the rest."""

    def __init__(self, state: tuple, which: tuple[int, ...]):
        self.leaves, self.structure = jax.tree.flatten(state)
        self.which = which

    @property
    def point(self) -> list[Array]:
        return [self.leaves[i] for i in self.which]

    def state(self, values: list[Array]) -> tuple:
        leaves = list(self.leaves)
        for i, value in zip(self.which, values, strict=True):
            leaves[i] = value
        return jax.tree.unflatten(self.structure, leaves)

    def bodies(self, values: list[Array]) -> Bodies:
        robot, q, v, _ = self.state(values)
        return moving_bodies(robot, q, v)

    def torque(self, bodies: Bodies, values: list[Array], a: Array) -> Array:
        robot, _, v, f_ext = self.state(values)
        return torque_of(robot, bodies, v, a, f_ext)

    def power(self, bodies: Bodies, values: list[Array], a: Array, y: Array) -> Array:
        robot, _, v, f_ext = self.state(values)
        return power_of(robot, bodies, v, a, f_ext, y)


def _torque_rate(which, state, a, rates, d_a):
    """dID + M da in plain JAX."""
    motion = _Motion(state, which)

    def torque(values, a):
        return motion.torque(motion.bodies(values), values, a)

    return jax.jvp(torque, (motion.point, a), (rates, d_a))[1]


def _push(motion: _Motion, a: Array, rates: list[Array], d_a: Array | None) -> tuple[Bodies, Array]:
    """(the outward sweep, dID + M da)."""
    bodies, d_bodies = jax.jvp(motion.bodies, (motion.point,), (rates,))
    if d_a is None:
        return bodies, jax.jvp(lambda b, x: motion.torque(b, x, a), (bodies, motion.point), (d_bodies, rates))[1]
    return bodies, jax.jvp(motion.torque, (bodies, motion.point, a), (d_bodies, rates, d_a))[1]


def _mass_solve(robot: Multibody, bodies: Bodies, factors: tuple[Array, Array], x: Array) -> Array:
    """M^-1 x with the factors (G, 1 / D)."""
    tree = DofTree(spatial_rows(*bodies.axes), on_first(robot, bodies.offset))
    return solve_with_factors(robot, Factors(tree, *factors), x)


def _apply(robot, state, a, tangents, which):
    """dID + M da."""
    rates, d_a = tangents
    return _push(_Motion((robot, *state), which), a, rates, d_a)[1]


def _apply_transposed(robot, state, a, y, which):
    motion = _Motion((robot, *state), which)
    bodies, pull = jax.vjp(motion.bodies, motion.point)
    d_bodies, d_values, d_a = jax.grad(motion.power, argnums=(0, 1, 2))(bodies, motion.point, a, y)
    return jax.tree.map(jnp.add, d_values, pull(d_bodies)[0]), d_a


def _solve(robot, state, a, factors, prescribed, x, which):
    """The unknowns of `perturbed_motion`; what is found has the form of what is given, x."""
    rates, d_given, r = x
    motion = _Motion((robot, *state), which)
    bodies, needed = _push(motion, a, rates, d_given)
    found = _mass_solve(robot, bodies, factors, free_only(r - needed, prescribed))
    if prescribed is None:
        return rates, d_given, found
    still = [jnp.zeros_like(x) for x in rates]
    needed = needed + _push(motion, a, still, free_only(found, prescribed))[1]
    return rates, d_given, jnp.where(prescribed, r + needed, found)


def _solve_transposed(robot, state, a, factors, prescribed, x, which):
    c_rates, c_given, c = x
    motion = _Motion((robot, *state), which)
    bodies, pull = jax.vjp(motion.bodies, motion.point)
    power = jax.grad(motion.power, argnums=(0, 1, 2))
    held = None if prescribed is None else jnp.where(prescribed, c, 0)
    rest = c if held is None else c + power(bodies, motion.point, a, held)[2]
    y = free_only(_mass_solve(robot, bodies, factors, free_only(rest, prescribed)), prescribed)
    if held is not None:
        y = y - held
    d_bodies, d_values, d_a = power(bodies, motion.point, a, y)
    d_values = jax.tree.map(jnp.add, d_values, pull(d_bodies)[0])
    c_rates = [x - d for x, d in zip(c_rates, d_values, strict=True)]
    if held is None or prescribed is None:
        return c_rates, None, y
    return c_rates, c_given - d_a, jnp.where(prescribed, held, y)


@cache
def _through_the_door(function: Callable, which: tuple[int, ...]) -> Callable:
    """A linear map along the leaves numbered `which`, the same object whenever it is asked for."""
    return door(partial(function, which=which))


def perturbed_torque(varying: Varying, a: Array, d_a: Array) -> Array:
    """dtau = M da + dID (linearization paper, section 3), for any tangent of state, model and external forces."""
    which, state = varying.which, varying.state
    forward, reverse = (_through_the_door(f, which) for f in (_apply, _apply_transposed))
    robot, rest = state[0], state[1:]
    return linear_map(
        lambda x: _torque_rate(which, state, a, *x),
        lambda x: forward(robot, rest, a, x),
        lambda y: reverse(robot, rest, a, y),
        (varying.rates, d_a),
        (state, a),
    )


def perturbed_motion(
    varying: Varying, a: Array, factors: tuple[Array, Array], prescribed: Array | None, given: tuple
) -> Array:
    """The free accelerations' perturbations, and the prescribed ones' torques', from dtau = M da + dID.

    `given` holds da where prescribed (zero elsewhere; None if nothing is prescribed) and dtau. With S = 1 on free and
    -1 on prescribed degrees, the unknowns y solve S (M da + dID) + [y where prescribed] = [dtau where free] with
    da = da given + [y where free].
    """
    which, state = varying.which, varying.state

    def matvec(x):
        rates, d_given, y = tied(x, (state, a))
        if prescribed is None:
            needed = _torque_rate(which, state, a, rates, y)
            return *linked((rates, d_given), needed), needed
        needed = _torque_rate(which, state, a, rates, d_given + free_only(y, prescribed))
        return *linked((rates, d_given), needed), jnp.where(prescribed, y - needed, needed)

    forward, reverse = (_through_the_door(f, which) for f in (_solve, _solve_transposed))
    fixed = (state[0], state[1:], a, factors, prescribed)
    d_given, d_tau = given
    rhs = varying_like(linked((varying.rates, d_given, free_only(d_tau, prescribed))), state)
    return lax.custom_linear_solve(matvec, rhs, lambda _, x: forward(*fixed, x), lambda _, x: reverse(*fixed, x))[2]
