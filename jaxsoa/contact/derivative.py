"""Derivatives of a step with contacts, by the implicit function theorem.

At the solution r(lambda; x) = 0 (the natural map of the law), so dlambda = -(dr/dlambda)^-1 dr/dx. dr/dx is one
tangent of the equations of motion at fixed impulse, so that no derivative of G is formed; dr/dlambda uses the G at
hand. Then dv+ = (the same tangent) + M^-1 J* dlambda. Forward and reverse mode, by any leaf of robot and scene. The
rule is itself made of functions with derivatives, so it can be differentiated again; where a contact sticks, slides,
flies or bounces throughout a neighbourhood, second derivatives are those of the step.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from jaxsoa.contact.blocks import LARGEST, regularized_solve
from jaxsoa.contact.problem import Inputs, Outcome, cones_of, offsets, softened, solved
from jaxsoa.contact.rows import Rows, rows_at
from jaxsoa.contact.scene import Pair, Scene
from jaxsoa.contact.solver import Cones, row_scales
from jaxsoa.dynamics.articulated import Factors
from jaxsoa.dynamics.inverse import inverse_dynamics
from jaxsoa.dynamics.mass import mass_times
from jaxsoa.dynamics.motion import differentiable_solve
from jaxsoa.kernels import door
from jaxsoa.kernels.jax_interface import Tracer


def advance(known: list, tree: Any, pairs: tuple[Pair, ...]):
    """A function of the leaves of `Inputs` that are not `known` (and a start for the solver), with the derivatives of
    the head of this file. What is known at the time of tracing stays so, and is compiled into kernels."""

    def whole(leaves: list) -> Inputs:
        rest = iter(leaves)
        return jax.tree.unflatten(tree, [next(rest) if leaf is None else leaf for leaf in known])

    @jax.custom_jvp
    def stepped(leaves: list, start) -> Outcome:
        return solved(whole(leaves), start, pairs)

    @jax.custom_jvp
    def matrix_of(leaves: list, matrix: Array, factors) -> Array:
        """G + R, which is at hand; what second derivatives need are its first."""
        return matrix

    @matrix_of.defjvp
    def matrix_rate(primals, tangents):
        leaves, matrix, factors = primals

        def dense(leaves):
            x = whole(leaves)
            rows = rows_at(x.robot, x.scene, x.q, pairs, x.loops)
            G = rows.jacobian @ _solve_mass(x, factors, rows.jacobian).T
            return G + softened(x, rows, pairs, jnp.eye(G.shape[0], dtype=G.dtype))

        return matrix, jax.jvp(dense, (leaves,), (tangents[0],))[1]

    def rule(primals, tangents):
        leaves, start = primals
        out = stepped(leaves, start)
        x = whole(leaves)
        rates = tangents[0]
        moving = [i for i, rate in enumerate(rates) if not _is_zero(rate)]
        still = jax.tree.map(jnp.zeros_like, out)
        if not moving:
            return out, still
        impulse = out.impulse
        factors, free = lax.stop_gradient(out.factors), out.free
        G = matrix_of(leaves, lax.stop_gradient(out.matrix), factors)
        accelerations = (out.v - x.v) / x.dt
        c = len(pairs)
        k = x.scene.limited(x.robot).size
        rows_of = Cones(jnp.zeros((c, 3), G.dtype), jnp.zeros(c, G.dtype), k, G.shape[0] - 3 * c - k)
        scale = lax.stop_gradient(row_scales(rows_of, G))  # what is found does not depend on it

        def solve_mass(force):
            return _solve_mass(x, factors, force)

        def at_fixed_impulse(*values):
            full = list(leaves)
            for i, value in zip(moving, values, strict=True):
                full[i] = value
            y = whole(full)
            rows = rows_at(y.robot, y.scene, y.q, pairs, y.loops)
            # M da = d(tau + J* lambda / h - ID(q, v, a)); the bracket itself is zero.
            reference = y.with_given(free if y.scene.bounces else accelerations[0])
            unbalanced = y.tau - inverse_dynamics(y.robot, y.q, y.v, reference, y.f_ext)
            now_free = v_free = unbalanced  # not looked at, unless
            force = unbalanced + impulse @ rows.jacobian / y.dt
            if y.scene.bounces:
                now_free = y.with_given(free) + solve_mass(unbalanced[None])[0]
                v_free = y.v + y.dt * now_free
                force = force - jax.vmap(lambda a: mass_times(y.robot, y.q, a - free))(accelerations)
            v = y.v + y.dt * (jax.vmap(y.with_given)(accelerations) + solve_mass(force))
            sigma = v @ rows.jacobian.T + offsets(y, rows, pairs, v_free)
            sigma = sigma + jax.vmap(lambda f: softened(y, rows, pairs, f))(impulse)
            cones = cones_of(y, rows, pairs)
            kappa = smoothing(y.scene, y.dt, rows, cones, impulse, scale)
            slides = lax.stop_gradient(jax.vmap(cones.sliding)(impulse / scale, scale * sigma).astype(G.dtype))

            def residual(slides, impulse, sigma, kappa):
                return dataclasses.replace(cones, slides=slides).natural_map(impulse / scale, scale * sigma, kappa)

            r = jax.vmap(residual)(slides, impulse, sigma, kappa)
            return (v, r, rows.gaps, now_free), (sigma, rows.jacobian, cones, slides, kappa)

        _, (dv, dr, d_gaps, d_free), (sigma, J, cones, slides, kappa) = jax.jvp(
            at_fixed_impulse, [leaves[i] for i in moving], [rates[i] for i in moving], has_aux=True
        )

        def answered(slides, impulse, sigma, kappa, dr):
            of = dataclasses.replace(cones, slides=slides)
            A = of.natural_jacobian(impulse / scale, scale * sigma, scale[:, None] * G * scale, kappa)
            return -scale * implicit_solve(A, dr, c)

        d_impulse = jax.vmap(answered)(slides, impulse, sigma, kappa, dr)
        dv = dv + solve_mass(d_impulse @ J)
        return out, still._replace(impulse=d_impulse, v=dv, gaps=d_gaps, free=d_free)

    stepped.defjvp(rule, symbolic_zeros=True)
    return stepped


def outcome(x: Inputs, pairs: tuple[Pair, ...], start: Array | None) -> Outcome:
    """What `advance` finds, as a function of those leaves that are traced."""
    leaves, tree = jax.tree.flatten(x)
    traced = any(isinstance(leaf, Tracer) for leaf in leaves)
    known = [leaf if traced and not isinstance(leaf, Tracer) else None for leaf in leaves]
    moving = [leaf for leaf, same in zip(leaves, known, strict=True) if same is None]
    return advance(known, tree, pairs)(moving, start)


def _solve_mass(x: Inputs, factors: Factors, forces: Float[Array, "k nv"]) -> Float[Array, "k nv"]:
    """M^-1 of each row."""
    held = None if x.held is None else x.held > 0
    return jax.vmap(lambda y: differentiable_solve(x.robot, x.q, factors, y, held))(forces)


def implicit_solve(A: Array, b: Array, contacts: int) -> Array:
    """A^-1 b where A may be singular but b is in its range, differentiable by both; as a kernel where A is small."""
    small = A.shape[0] <= LARGEST
    by_kernel = door(partial(regularized_solve, contacts=contacts), constants=(), fallback=regularized_solve)

    def solve(of):
        return lambda _, b: (by_kernel if small else regularized_solve)(of, b)

    return lax.custom_linear_solve(lambda y: A @ y, b, solve(A), solve(A.T))


def _is_zero(tangent) -> bool:
    return isinstance(tangent, SymbolicZero)


def smoothing(
    scene: Scene, dt: Array, rows: Rows, cones: Cones, impulse: Float[Array, "p n"], scale: Array
) -> Float[Array, "p c"] | None:
    """kappa of every contact, in scaled rows, as `Scene.gradient` says; None is zero."""
    if scene.gradient == "exact":
        return None
    size = cones.parts(scale)[0][:, 0]
    contacts = jax.vmap(lambda f: cones.parts(f)[0])(impulse)
    if scene.gradient == "relaxed":
        kappa = jnp.broadcast_to(scene.relaxation.astype(scale.dtype) * size, contacts.shape[:2])
    else:
        carries = jnp.sum(contacts * rows.normals, axis=-1) > 0
        kappa = jnp.where(carries, 0, scene.reach.astype(scale.dtype) / dt * size)
    return jax.lax.stop_gradient(kappa)
