"""The linearized step of an integrator: x' = A x + B u about a state, in tangent coordinates.

A step is any function `step(robot, q, v, tau, dt) -> (q, v)`. If it takes a keyword `dynamics` and calls that for its
accelerations, the full linearization of each call is computed once by Algorithm 6 and all columns pass through it as
one product of matrices; otherwise each column is one O(N) tangent of whatever the step calls. The matrices of
`semi_implicit_euler` are written down.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.forward import forward_dynamics
from jaxsoa.eager import compiled
from jaxsoa.linearized.forward import linearization, linearize_forward_dynamics
from jaxsoa.model.joints import Joint
from jaxsoa.model.mimics import check_mimics, follow_mimics
from jaxsoa.model.multibody import Multibody
from jaxsoa.protocols import check_takes
from jaxsoa.simulate import schemes

Step = Callable[..., tuple[Array, Array]]


class LinearizedStep(NamedTuple):
    """Tangent (dq, dv) after the step: A @ (dq, dv) before it + B @ dtau."""

    A: Float[Array, "two_nv two_nv"]
    B: Float[Array, "two_nv nv"]


def semi_implicit_euler(robot: Multibody, q, v, tau, dt, *, dynamics: Callable = forward_dynamics) -> tuple:
    """v' = v + dt a, then q' = q moved by dt v'."""
    return tuple(schemes.semi_implicit_euler(robot, lambda q, v: dynamics(robot, q, v, tau), q, v, dt))


def runge_kutta_4(robot: Multibody, q, v, tau, dt, *, dynamics: Callable = forward_dynamics) -> tuple:
    """Classical fourth order, in coordinates that start at q: fourth order for quaternions too."""
    return tuple(schemes.runge_kutta_4(robot, lambda q, v: dynamics(robot, q, v, tau), q, v, dt))


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
    return _with_positions(robot, q, v + dt * a, dt, velocity)


def _with_positions(robot: Multibody, q, v_next, dt, velocity: Float[Array, "nv three_nv"]) -> LinearizedStep:
    """The step whose velocity is v_next, with these derivatives by dq, dv and dtau, and q moved by dt times it."""
    nv = robot.nv
    before = np.eye(nv, 3 * nv)  # dq by dq, dv, dtau
    rows = []
    for group in robot.topology.groups:
        place, new, old = group.v_index, velocity[group.v_index], before[group.v_index].astype(velocity.dtype)
        if group.joint.nq == group.joint.nv:  # coordinates that add
            moved = old + dt * new
        else:
            J_q, J_v = _moved_coordinates(group.joint, q[group.q_index], v_next[place], dt)
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


def integrator_of(step: Step) -> Any:
    """The integrator that a step is made of; None for one of its own."""
    names: dict[Step, str] = {semi_implicit_euler: "semi_implicit_euler", runge_kutta_4: "rk4"}
    return names.get(step, getattr(step, "integrator", None))


def named_step(integrator: Any) -> Step:
    """The whole step that an integrator makes."""
    from jaxsoa.simulate import integrators  # which builds on this module's neighbours

    return integrators.as_step(integrator)


def constrained_step(step: Step, loops: Any, prescribed: Any) -> Step:
    """The step of `soa.step` with loops and prescribed joints, by the integrator that `step` is."""
    from jaxsoa.simulate import integrators  # which builds on this module's neighbours

    integrator = integrator_of(step)
    if integrator is None:
        raise ValueError("Loops and prescribed joints need an integrator, not a step of its own.")

    def advance(robot: Multibody, q, v, tau, dt):
        options = {"integrator": integrator, "loops": loops, "prescribed": prescribed, "mimics": "free"}
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
    integrator: str | schemes.Integrator = "semi_implicit_euler",
    step: Step | None = None,
    contact: Any = None,
    loops: Any = (),
    prescribed: Any = None,
    mimics: Literal["coupled", "free"] = "coupled",
) -> LinearizedStep:
    """A (2 nv, 2 nv) and B (2 nv, nv) of one integrator step, in tangent coordinates (dq, dv) before and after.

    `integrator` is as in `soa.step`; `step(robot, q, v, tau, dt) -> (q, v)` takes its place where a whole step is one's
    own. With `contact` (a `contact.Scene`) it is the step that enforces those contacts, and neither is looked at. With
    `loops` and `prescribed` (a mask, or a pair of mask and accelerations) it is that of `soa.step`, which ends on the
    loops: A then takes a state to the nearest closed one, so its rank is that of the mechanism. So it is where mimic
    joints follow (`mimics`, as in `soa.step`; a `step` of your own does what it does).

    Units: of the state, per unit of the state and per N m.

    >>> A, B = soa.linearize_step(robot, q, v, tau, 0.01)[:2]
    >>> print(A.shape, B.shape)
    (4, 4) (4, 2)
    """
    q, v, tau, dt = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_number(dt)
    if step is not None and integrator != "semi_implicit_euler":
        raise ValueError("Give linearize_step an integrator or a step of your own, not both.")
    whole = named_step(integrator) if step is None else step
    if check_mimics(mimics) == "coupled" and robot.topology.mimics and integrator_of(whole) is not None:
        from jaxsoa.simulate.mimics import with_mimics  # which builds on this module

        q, v = follow_mimics(robot, q, v)
        coupled, loops, contact = with_mimics(robot, integrator_of(whole), loops, prescribed, contact)
        whole = named_step(coupled)
    if contact is not None:
        if not loops and prescribed is None and hasattr(contact, "linearized"):
            found = contact.linearized(robot, q, v, tau, dt)
            if found is not None:
                return _with_positions(robot, q, found.v, dt, found.columns)
        whole = contact.advance
    check_step(whole)
    if loops or prescribed is not None:
        whole = constrained_step(whole, loops, prescribed)
    if whole is semi_implicit_euler:
        return _euler_matrices(robot, q, v, tau, dt)
    takes_dynamics = "dynamics" in inspect.signature(whole).parameters
    advance = (lambda *x: whole(*x, dynamics=dynamics_by_matrices)) if takes_dynamics else whole
    arrived = advance(robot, q, v, tau, dt)[0]

    def moved(dx, dtau):
        dq, dv = dx[: robot.nv], dx[robot.nv :]
        q_next, v_next = advance(robot, robot.integrate(q, dq), v + dv, tau + dtau, dt)
        return jnp.concatenate([robot.difference(arrived, q_next), v_next])

    zero = jnp.zeros_like(v)
    return LinearizedStep(*jax.jacfwd(moved, argnums=(0, 1))(jnp.concatenate([zero, zero]), zero))
