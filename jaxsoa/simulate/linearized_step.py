"""The linearized step of an integrator: x' = A x + B u about a state, in tangent coordinates.

A step is any function `step(robot, q, v, tau, dt) -> (q, v)`. If it takes a keyword `dynamics` and calls that for its
accelerations, the full linearization of each call is computed once by Algorithm 6 and all columns pass through it as
one product of matrices; otherwise each column is one O(N) tangent of whatever the step calls. The matrices of
`semi_implicit_euler` are written down.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.forward import forward_dynamics
from jaxsoa.eager import compiled
from jaxsoa.linearized.forward import linearization, linearize_forward_dynamics
from jaxsoa.model.joints import Joint
from jaxsoa.model.multibody import Multibody
from jaxsoa.protocols import check_takes

Step = Callable[..., tuple[Array, Array]]


class LinearizedStep(NamedTuple):
    """Tangent (dq, dv) after the step: A @ (dq, dv) before it + B @ dtau."""

    A: Float[Array, "two_nv two_nv"]
    B: Float[Array, "two_nv nv"]


def semi_implicit_euler(robot: Multibody, q, v, tau, dt, *, dynamics: Callable = forward_dynamics):
    """v' = v + dt a, then q' = q moved by dt v'."""
    v = v + dt * dynamics(robot, q, v, tau)
    return robot.integrate(q, dt * v), v


def runge_kutta_4(robot: Multibody, q, v, tau, dt, *, dynamics: Callable = forward_dynamics):
    """Classical fourth order, in coordinates that start at q: fourth order for quaternions too."""

    def rates(x, v):
        at = robot.integrate(q, x)

        def moved(t):
            return robot.difference(q, robot.integrate(at, t * v))

        zero = jnp.zeros((), v.dtype)
        return jax.jvp(moved, (zero,), (jnp.ones_like(zero),))[1], dynamics(robot, at, v, tau)

    x = jnp.zeros_like(v)
    x1, v1 = rates(x, v)
    x2, v2 = rates(dt / 2 * x1, v + dt / 2 * v1)
    x3, v3 = rates(dt / 2 * x2, v + dt / 2 * v2)
    x4, v4 = rates(dt * x3, v + dt * v3)
    return robot.integrate(q, dt / 6 * (x1 + 2 * x2 + 2 * x3 + x4)), v + dt / 6 * (v1 + 2 * v2 + 2 * v3 + v4)


@jax.custom_jvp
def dynamics_by_matrices(robot: Multibody, q, v, tau) -> Array:
    """`forward_dynamics` whose tangents go through the full matrices: dear for one tangent, cheap for all of them."""
    return forward_dynamics(robot, q, v, tau)


def _by_matrices_jvp(primals, tangents):
    robot, q, v, tau = primals
    d_robot, d_q, d_v, d_tau = tangents
    a = dynamics_by_matrices(robot, q, v, tau)
    matrices = linearize_forward_dynamics(robot, q, v, tau)
    d_a = jnp.zeros_like(a)
    if not isinstance(d_q, SymbolicZero):
        d_a = d_a + matrices.wrt_q @ jax.jvp(lambda x: robot.difference(q, x), (q,), (d_q,))[1]
    if not isinstance(d_v, SymbolicZero):
        d_a = d_a + matrices.wrt_v @ d_v
    if not isinstance(d_tau, SymbolicZero):
        d_a = d_a + matrices.wrt_tau @ d_tau
    leaves, structure = jax.tree.flatten(robot)
    moved = jax.tree.leaves(d_robot, is_leaf=lambda t: isinstance(t, SymbolicZero))
    varying = [i for i, t in enumerate(moved) if not isinstance(t, SymbolicZero)]
    if varying:

        def of_model(*values):
            full = list(leaves)
            for i, value in zip(varying, values, strict=True):
                full[i] = value
            return forward_dynamics(jax.tree.unflatten(structure, full), q, v, tau)

        d_a = d_a + jax.jvp(of_model, [leaves[i] for i in varying], [moved[i] for i in varying])[1]
    return a, d_a


dynamics_by_matrices.defjvp(_by_matrices_jvp, symbolic_zeros=True)


def _euler_matrices(robot: Multibody, q, v, tau, dt) -> LinearizedStep:
    """Of `semi_implicit_euler`: dv' = dv + dt da and dq' = J_q dq + J_v dv', the latter joint by joint."""
    nv = robot.nv
    matrices, a = linearization(robot, q, v, tau, None)
    by_q, by_v, by_tau = (dt * x for x in matrices)
    one = jnp.eye(nv, dtype=by_q.dtype)
    velocity = jnp.concatenate([by_q, one + by_v, by_tau], axis=1)  # dv' by dq, dv, dtau
    before = np.eye(nv, 3 * nv)  # dq by dq, dv, dtau
    rows = []
    for group in robot.topology.groups:
        place, new, old = group.v_index, velocity[group.v_index], before[group.v_index].astype(one.dtype)
        if group.joint.nq == group.joint.nv:  # coordinates that add
            moved = old + dt * new
        else:
            J_q, J_v = _moved_coordinates(group.joint, q[group.q_index], (v + dt * a)[place], dt)
            # Products as sums of a few terms: blocks are too small for a library.
            moved = sum(
                J_q[:, :, k, None] * old[:, None, k] + J_v[:, :, k, None] * new[:, None, k]
                for k in range(group.joint.nv)
            )
        rows.append(moved)
    both = jnp.concatenate([robot.join_dofs(rows), velocity])
    return LinearizedStep(both[:, : 2 * nv], both[:, 2 * nv :])


def _moved_coordinates(joint: Joint, q, v, dt) -> tuple[Array, Array]:
    """Of joints of one kind, q (k, nq) and v (k, nv): derivatives (k, nv, nv) of q moved by dt v, along tangents of q
    and by v, seen from where it arrives."""

    def of_one(q, v):
        arrived = joint.integrate(q, dt * v)

        def moved(dq, dv):
            return joint.difference(arrived, joint.integrate(joint.integrate(q, dq), dt * (v + dv)))

        still = jnp.zeros_like(v)
        return jax.jacfwd(moved, argnums=(0, 1))(still, still)

    return jax.vmap(of_one)(q, v)


def check_step(step: Any) -> None:
    check_takes(step, "step", "(robot, q, v, tau, dt) -> (q, v)")


def constrained_step(step: Step, loops: Any, prescribed: Any) -> Step:
    """The step of `soa.step` with loops and prescribed joints, by the integrator that `step` is."""
    from jaxsoa.simulate import integrators  # which builds on this module's neighbours

    names = {semi_implicit_euler: "semi_implicit_euler", runge_kutta_4: "rk4"}
    integrator = names.get(step, getattr(step, "integrator", None))
    if integrator is None:
        raise ValueError("Loops and prescribed joints need an integrator, not a step of its own.")

    def advance(robot: Multibody, q, v, tau, dt):
        options = {"integrator": integrator, "loops": loops, "prescribed": prescribed}
        return integrators.step(robot, q, v, tau, dt, **options)

    return advance


@compiled(not_with=("contact", "loops", "prescribed"))
def linearize_step(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    dt: float | Array,
    *,
    step: Step = semi_implicit_euler,
    contact: Any = None,
    loops: Any = (),
    prescribed: Any = None,
) -> LinearizedStep:
    """A (2 nv, 2 nv) and B (2 nv, nv) of one integrator step, in tangent coordinates (dq, dv) before and after.

    With `contact` (a `contact.Scene`) it is the step that enforces those contacts, and `step` is not looked at. With
    `loops` and `prescribed` (a mask, or a pair of mask and accelerations) it is that of `soa.step`, which ends on the
    loops: A then takes a state to the nearest closed one, so its rank is that of the mechanism.

    Units: of the state, per unit of the state and per N m.

    >>> A, B = soa.linearize_step(robot, q, v, tau, 0.01)[:2]
    >>> print(A.shape, B.shape)
    (4, 4) (4, 2)
    """
    q, v, tau, dt = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_number(dt)
    if contact is not None:
        step = contact.advance
    check_step(step)
    if loops or prescribed is not None:
        step = constrained_step(step, loops, prescribed)
    if step is semi_implicit_euler:
        return _euler_matrices(robot, q, v, tau, dt)
    takes_dynamics = "dynamics" in inspect.signature(step).parameters
    advance = (lambda *x: step(*x, dynamics=dynamics_by_matrices)) if takes_dynamics else step
    arrived = jax.lax.stop_gradient(advance(robot, q, v, tau, dt)[0])

    def moved(dx, dtau):
        dq, dv = dx[: robot.nv], dx[robot.nv :]
        q_next, v_next = advance(robot, robot.integrate(q, dq), v + dv, tau + dtau, dt)
        return jnp.concatenate([robot.difference(arrived, q_next), v_next])

    zero = jnp.zeros_like(v)
    return LinearizedStep(*jax.jacfwd(moved, argnums=(0, 1))(jnp.concatenate([zero, zero]), zero))
