"""The arrays behind a bundle of operators: geometry, inertias, and what the Riccati sweep leaves, link by link.

The Riccati sweep runs over single degrees of freedom, where D is a number. A link's P is that of its outermost degree;
from it follow the link's D = H P H* + armature (r x r) and G = P H* D^-1 (6 x r) without another sweep. Joints with
fewer than r degrees of freedom are padded: rows of H and columns of G with zeros, D with ones on its diagonal.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.algebra.spaces import joint_layout, per_dof_to_links
from jaxsoa.dynamics.articulated import articulated_body
from jaxsoa.dynamics.inverse import composite_bodies
from jaxsoa.dynamics.kinematics import kinematics, link_inertias
from jaxsoa.model.multibody import Multibody
from jaxsoa.model.topology import Topology
from jaxsoa.spatial import pairs
from jaxsoa.spatial.inertia import RigidInertia, SpatialInertia
from jaxsoa.sweeps import gather, scatter


class State(eqx.Module):
    """What the atoms H, phi, M, P, D, G, psi ... of one robot at one configuration read. n links, r padded degrees.

    Axes of r are left out where every joint has one degree of freedom; `blocks` has them in any case.
    """

    topology: Topology = eqx.field(static=True)
    has_armature: bool = eqx.field(static=True)
    offset: Float[Array, "n 3"]
    rotation: Float[Array, "n 3 3"]
    position: Float[Array, "n 3"]
    rigid: RigidInertia  # M
    H: Float[Array, "n *r 6"]
    H_a: Float[Array, "n *r 6"]  # rows of prescribed degrees; zero when there are none
    A: Float[Array, "n *r"]  # armature (one where prescribed)
    prescribed: Float[Array, "n *r"]  # one where prescribed
    inertia: SpatialInertia  # P
    G: Float[Array, "n 6 *r"]
    D: Float[Array, "n *r_r"]
    D_inverse: Float[Array, "n *r_r"]

    def field(self, name: str):
        """Per-link arrays by name; the rarer ones are computed when asked for."""
        if name in ("offset", "rigid", "H", "H_a", "A", "prescribed", "inertia", "G", "D", "D_inverse"):
            return getattr(self, name)
        return _RARE[name](self)

    def blocks(self, name: str) -> Array:
        """`field` with all axes: (n, rows, columns), or (n, r) for diagonal ones."""
        return jax.vmap(lambda x: full_block(name, x))(self.field(name))


def full_block(name: str, x):
    """One link's block with its axes of degrees of freedom, which are left out where there is one."""
    match name:
        case "H" | "H_a" | "value":
            return x[None, :] if x.ndim == 1 else x
        case "G":
            return x[:, None] if x.ndim == 1 else x
        case "D" | "D_inverse":
            return x[None, None] if x.ndim == 0 else x
        case "A" | "A_inverse" | "prescribed" | "free":
            return x[None] if x.ndim == 0 else x
    return x


class Frames(eqx.Module):
    """What B of some frames reads: the vectors from the carrying links' origins to the frames'."""

    arms: Float[Array, "m 3"]


class Blocks(eqx.Module):
    """A block-diagonal operator given by its blocks, (n, rows, columns), padded like the others."""

    value: Float[Array, "n rows columns"]

    def field(self, name: str):
        return self.value


class Number(eqx.Module):
    """A scalar factor, a named vector or a named matrix."""

    value: Array


def build_state(robot: Multibody, q: Array, has_armature: bool, prescribed: Array | None = None) -> State:
    """Kinematics and the Riccati sweep: one sweep outward, one inward."""
    kin = kinematics(robot, q)
    rigid = link_inertias(robot, kin.rotation)
    body = articulated_body(robot, kin, rigid, prescribed)
    topology = robot.topology
    last = np.flatnonzero(topology.dof_is_last)
    P = body.inertia if topology.single_dof else jax.tree.map(lambda x: x[last], body.inertia)
    H_full = per_dof_to_links(topology, kin.axes)
    A = per_dof_to_links(topology, robot.armature.astype(kin.axes.dtype))
    held = jnp.zeros_like(A) if prescribed is None else per_dof_to_links(topology, prescribed.astype(A.dtype))
    if prescribed is None:
        H, H_a = H_full, jnp.zeros_like(H_full)
    else:
        H, H_a = H_full * (1 - held)[..., None], H_full * held[..., None]
        A = A * (1 - held) + held
    if topology.single_dof:
        D, D_inverse, G = body.pivot, 1 / body.pivot, body.gain
    else:
        D, D_inverse, G = _link_factors(topology, P, H, A)
    return State(
        topology, has_armature, kin.offset, kin.rotation, kin.position, rigid, H, H_a, A, held, P, G, D, D_inverse
    )


def _link_factors(topology: Topology, P: SpatialInertia, H: Array, A: Array) -> tuple[Array, Array, Array]:
    """D, D^-1 and G of joints with several degrees of freedom, from the links' P."""
    u = jax.vmap(jax.vmap(lambda P, h: jnp.concatenate(P.times(h[:3], h[3:])), in_axes=(None, 0)))(P, H)  # rows of H P
    _, mask = joint_layout(topology)
    diagonal = A + jnp.asarray(~mask, A.dtype)
    D = _times(H, jnp.swapaxes(u, -1, -2)) + diagonal[..., None] * jnp.eye(mask.shape[1], dtype=A.dtype)
    D_inverse = _inverse_by_groups(topology, D)
    return D, D_inverse, _times(jnp.swapaxes(u, -1, -2), D_inverse)


def _times(a: Array, b: Array) -> Array:
    """Block products by broadcasting, so that XLA fuses them over a batch."""
    return jnp.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2)


def _inverse_by_groups(topology: Topology, D: Array) -> Array:
    """Inverse of padded blocks; joints of one degree of freedom only divide."""
    if D.shape[-1] == 1:
        return 1 / D
    result = jnp.zeros_like(D) + jnp.eye(D.shape[-1], dtype=D.dtype)
    for r in sorted({joint.nv for joint in topology.joints}):
        links = np.flatnonzero([joint.nv == r for joint in topology.joints])
        block = D[links, :r, :r]
        result = result.at[links, :r, :r].set(1 / block if r == 1 else jnp.linalg.inv(block))
    return result


# --- fields that only some expressions need --------------------------------------------------------------------------


def upsilon(state: State) -> Float[Array, "n 6 6"]:
    """Y(k) = psi*(p, k) Y(p) psi(p, k) + H*(k) D^-1(k) H(k), base to tip (overview, application 2; linearization 4.19).

    The operational-space compliance at each link's origin, by one outward sweep.
    """
    H, psi = state.blocks("H"), steps(state, "psi")
    return outboard_blocks(state, jnp.swapaxes(H, 1, 2) @ state.blocks("D_inverse") @ H, psi, psi)


def composite(state: State) -> Float[Array, "n 6 6"]:
    """R(k): inertia of all that is outboard of joint k, frozen: R = E_phi R E_phi* + M (linearization 3.7)."""
    R = composite_bodies(state.topology, state.rigid, state.offset)
    return (R if isinstance(R, SpatialInertia) else R.spatial()).matrix()


Propagation = Literal["phi", "psi"]


def steps(state: State, kind: Propagation) -> Float[Array, "n 6 6"]:
    """phi(p, k) or psi(p, k) of every link."""
    rigid = pairs.phi(state.offset)
    if kind == "phi":
        return rigid
    GH = jnp.einsum("nir,nrj->nij", state.blocks("G"), state.blocks("H"))
    return jnp.einsum("nij,njk->nik", rigid, jnp.eye(6, dtype=rigid.dtype) - GH)


def inboard_blocks(state: State, X: Array, left: Propagation, right: Propagation) -> Float[Array, "n 6 6"]:
    """S of l X r* = S + l~ S + S r~*: S = E_l S E_r* + X, tip to base (JPL 88-11, lemma A.1)."""

    def step(children, x):
        X, l, r = x
        S = children + X
        return l @ S @ r.T, S

    zero = jnp.zeros((6, 6), X.dtype)
    return gather(state.topology.link_plan, step, zero, (X, steps(state, left), steps(state, right)))[1]


def outboard_blocks(state: State, X: Array, left: Array, right: Array) -> Float[Array, "n 6 6"]:
    """S = l* S(p) r + X, base to tip, for the steps l and r (n, 6, 6) of two propagations."""

    def step(parent, x):
        X, l, r = x
        S = l.T @ parent @ r + X
        return S, S

    return scatter(state.topology.link_plan, step, jnp.zeros((6, 6), X.dtype), (X, left, right))


def _inverses(matrices: Array) -> Array:
    return jnp.linalg.inv(matrices)


_RARE = {
    "Upsilon": upsilon,
    "R": composite,
    "M_inverse": lambda s: _inverses(jax.vmap(lambda m: m.spatial().matrix())(s.rigid)),
    "P_inverse": lambda s: _inverses(jax.vmap(SpatialInertia.matrix)(s.inertia)),
    "R_inverse": lambda s: _inverses(composite(s)),
    "Upsilon_inverse": lambda s: _inverses(upsilon(s)),
    "A_inverse": lambda s: 1 / jnp.where(joint_layout(s.topology)[1].reshape(s.A.shape), s.A, 1),
    "free": lambda s: 1 - s.prescribed,
}
