"""`operators(robot, q, v)`: the letters of the algebra for one robot at one configuration (and velocity)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Shaped

from jaxsoa.algebra import terms
from jaxsoa.algebra.expression import Operator
from jaxsoa.algebra.spaces import UNIT, Space, joint_space, link_space, per_dof_to_links, tip_space
from jaxsoa.algebra.state import Blocks, Frames, Number, State, build_state
from jaxsoa.algebra.terms import Atom, Identity, Named, Term
from jaxsoa.dynamics.inverse import bias_forces
from jaxsoa.dynamics.kinematics import moving_kinematics
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops, pairs


class Biases(NamedTuple):
    """What a velocity adds to the equations of motion."""

    acceleration: Float[Array, "n 6"]  # a(k): H*' v and the centripetal terms
    force: Float[Array, "n 6"]  # b(k): gyroscopic


class Bundle(eqx.Module):
    """Operators that share one set of arrays. Numbering is base to tip, so causal operators are upper triangular here.

    H joint map; phi rigid propagation tip to base; M link inertias; P, D, G, K, tau_bar, psi what the Riccati sweep
    leaves; E_phi, E_psi, S the shifts to the parent; Delta_phi, Delta_psi, L, Phi, Psi as in JPL 88-11, appendix A.
    With `prescribed`, H, D, G, K and psi are those of the free degrees of freedom, H_a has the prescribed rows.
    """

    robot: Multibody
    state: State
    biases: Biases | None = None

    def _atom(self, name: str, codomain: Space, domain: Space) -> Operator:
        return Operator(Atom(name, 0, codomain, domain), (self.state,))

    @property
    def joints(self) -> Space:
        """The space of joint vectors, size nv."""
        return joint_space(self.robot.topology)

    @property
    def links(self) -> Space:
        """The space of stacked spatial vectors, six per link."""
        return link_space(self.robot.topology)

    def tips(self, frames: str | Sequence[str]) -> Space:
        """The space of spatial vectors of some frames, six each."""
        return tip_space(self.robot.topology, _names(frames))

    def _links(self, name: str) -> Operator:
        return self._atom(name, self.links, self.links)

    def _joints(self, name: str) -> Operator:
        return self._atom(name, self.joints, self.joints)

    # --- what the model gives ----------------------------------------------------------------------------------

    @property
    def H(self) -> Operator:
        """Joint map, block diagonal, r x 6 per joint: joint torques T = H f (JPL 88-11, 3.5)."""
        return self._atom("H", self.joints, self.links)

    @property
    def phi(self) -> Operator:
        """Rigid propagation of forces, tip to base: (I - E_phi)^-1 (JPL 88-11, 3.4)."""
        return self._links("phi")

    @property
    def E_phi(self) -> Operator:
        """phi(parent, k) from each link to its parent (overview, section 4)."""
        return self._links("E_phi")

    @property
    def S(self) -> Operator:
        """The shift: identity blocks from each link to its parent (JPL 88-11, 5.2)."""
        return self._links("S")

    @property
    def Delta_phi(self) -> Operator:
        """Block diagonal of phi(parent, k) (JPL 88-11, a.4)."""
        return self._links("Delta_phi")

    @property
    def M(self) -> Operator:
        """Link inertias, block diagonal (JPL 88-11, 3.6)."""
        return self._links("M")

    @property
    def R(self) -> Operator:
        """Composite-body inertias, block diagonal (linearization 3.7)."""
        return self._links("R")

    @property
    def armature(self) -> Operator:
        """Rotor inertias, diagonal: the measurement noise of the Kalman filter (one where motion is prescribed)."""
        return self._joints("A")

    # --- what the Riccati sweep leaves -------------------------------------------------------------------------

    @property
    def P(self) -> Operator:
        """Articulated-body inertias: P = E_phi (P - G D G*) E_phi* + M (JPL 88-11, 4.5)."""
        return self._links("P")

    @property
    def D(self) -> Operator:
        """H P H* + armature, r x r per joint (JPL 88-11, 4.6)."""
        return self._joints("D")

    @property
    def G(self) -> Operator:
        """Kalman gain P H* D^-1 (JPL 88-11, 5.12)."""
        return self._atom("G", self.links, self.joints)

    @property
    def K(self) -> Operator:
        """Shifted gain E_phi G (overview, section 4)."""
        return self._atom("K", self.links, self.joints)

    @property
    def L(self) -> Operator:
        """Delta_phi G (JPL 88-11, a.12); K = S L."""
        return self._atom("L", self.links, self.joints)

    @property
    def tau_bar(self) -> Operator:
        """I - G H."""
        return self._links("tau_bar")

    @property
    def psi(self) -> Operator:
        """Articulated propagation: (I - E_psi)^-1 (JPL 88-11, 5.1)."""
        return self._links("psi")

    @property
    def E_psi(self) -> Operator:
        """E_phi (I - G H) (overview, 4.3)."""
        return self._links("E_psi")

    @property
    def Delta_psi(self) -> Operator:
        """Block diagonal of psi(parent, k) (JPL 88-11, a.5)."""
        return self._links("Delta_psi")

    @property
    def Phi(self) -> Operator:
        """phi S, strictly causal (JPL 88-11, 4.9)."""
        return self._links("Phi")

    @property
    def Psi(self) -> Operator:
        """psi S, strictly causal (JPL 88-11, 4.10)."""
        return self._links("Psi")

    @property
    def Upsilon(self) -> Operator:
        """Block diagonal of psi* H* D^-1 H psi, by one outward recursion (linearization 4.19)."""
        return self._links("Upsilon")

    @property
    def phi_tilde(self) -> Operator:
        """phi - I (JPL 88-11, a.3)."""
        return self._named("phi_tilde", self.phi - self.link_identity)

    @property
    def psi_tilde(self) -> Operator:
        """psi - I (JPL 88-11, 5.11)."""
        return self._named("psi_tilde", self.psi - self.link_identity)

    # --- hybrid dynamics ---------------------------------------------------------------------------------------

    @property
    def H_a(self) -> Operator:
        """Rows of the joint map whose motion is prescribed, zero elsewhere (DARTS 7)."""
        return self._atom("H_a", self.joints, self.links)

    @property
    def pi_a(self) -> Operator:
        """Projection on the prescribed degrees of freedom."""
        return self._joints("pi_a")

    @property
    def pi_p(self) -> Operator:
        """Projection on the free degrees of freedom."""
        return self._joints("pi_p")

    # --- motion and gravity ------------------------------------------------------------------------------------

    def _biases(self) -> Biases:
        if self.biases is None:
            raise ValueError("The bias vectors need a velocity: make the bundle by operators(robot, q, v).")
        return self.biases

    @property
    def a(self) -> Operator:
        """Bias accelerations of the links, a vector of link space: alpha = phi* (H* v' + a + E g) (JPL 88-11, 3.10)."""
        return self.vector("a", self._biases().acceleration, "link")

    @property
    def b(self) -> Operator:
        """Gyroscopic forces on the links, a vector of link space: T = H phi (M alpha + b) (JPL 88-11, 3.10)."""
        return self.vector("b", self._biases().force, "link")

    @property
    def base(self) -> Space:
        """The space of the base's spatial accelerations."""
        return tip_space(self.robot.topology, ("base",))

    @property
    def E(self) -> Operator:
        """What the base hands to the links on it, phi*(base, k): a -> a + E g (JPL 88-11, 3.8 and 3.21)."""
        roots = np.array([parent < 0 for parent in self.robot.topology.parents])
        blocks = jnp.swapaxes(pairs.phi(self.state.offset), 1, 2)
        return self.matrix("E", jnp.where(roots[:, None, None], blocks, 0).reshape(-1, 6), self.links, self.base)

    @property
    def gravity(self) -> Operator:
        """g = (0, -gravity): the acceleration of the base that acts like gravity, a vector of the base's space."""
        up = -self.robot.gravity
        return self.vector("g", jnp.concatenate([jnp.zeros_like(up), up]), self.base)

    # --- composites --------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Operator:
        """The identity of joint space."""
        return Operator(Identity(self.joints), (self.state,))

    @property
    def link_identity(self) -> Operator:
        """The identity of link space."""
        return Operator(Identity(self.links), (self.state,))

    @property
    def whitening(self) -> Operator:
        """I - H psi K: the Kalman filter as a whitening filter (overview, 4.5). Its inverse is I + H phi K."""
        return Operator(whitening(self.H.term), (self.state,))

    @property
    def Mass(self) -> Operator:
        """The mass matrix H phi M phi* H* (+ armature). Its inverse is (I - H psi K)* D^-1 (I - H psi K)."""
        return Operator(mass(self.H.term, self.state.has_armature), (self.state,))

    def B(self, frames: str | Sequence[str]) -> Operator:
        """Forces at frames as forces on links (JPL 88-11, 3.7); tip space has six numbers per frame."""
        names = _names(frames)
        topology = self.robot.topology
        arms, links = [], []
        for name in names:
            number = topology.frame_number(name)
            link = topology.frame_links[number]
            R = self.robot.base_rotation if link < 0 else self.state.rotation[link]
            arms.append(ops.matvec(R, self.robot.frame_position[number]))
            links.append(link)
        atom = Atom("B", 0, self.links, self.tips(names), (tuple(links),))
        return Operator(atom, (Frames(jnp.stack(arms)),))

    def J(self, frames: str | Sequence[str]) -> Operator:
        """Jacobian of frames: B* phi* H* (JPL 88-11, 3.13)."""
        return self._named("J", self.B(frames).T @ self.phi.T @ self.H.T)

    def vector(self, name: str, x: Shaped[Array, " n"], space: str | Space = "joint") -> Operator:
        """A vector under a name: the operator that multiplies it by a number. `.value` of an expression is a vector."""
        where = {"joint": self.joints, "link": self.links}[space] if isinstance(space, str) else space
        x = jnp.ravel(jnp.asarray(x))
        if x.shape != (where.size,):
            raise terms.SpaceError(f"Vector {name} of {where} must have {where.size} entries, got {x.shape[0]}.")
        return Operator(Atom("vector", 0, where, UNIT, (name,)), (Number(x),))

    def matrix(
        self,
        name: str,
        x: Shaped[Array, "m n"],
        codomain: Space,
        domain: Space | None = None,
        *,
        symmetric: bool = False,
    ) -> Operator:
        """A dense matrix under a name, to stand in expressions beside the structured operators."""
        domain = codomain if domain is None else domain
        x = jnp.asarray(x)
        if x.shape != (codomain.size, domain.size):
            raise terms.SpaceError(f"Matrix {name} must map {domain} to {codomain}, got shape {x.shape}.")
        return Operator(Atom("matrix", 0, codomain, domain, (name, symmetric)), (Number(x),))

    def block(self, name: str, blocks: Shaped[Array, "n 6 6"], *, symmetric: bool = False) -> Operator:
        """A block-diagonal operator of link space under a name, from one 6x6 block per link."""
        blocks = jnp.asarray(blocks)
        if blocks.shape != (self.robot.n_links, 6, 6):
            raise terms.SpaceError(f"Blocks of {name} must be ({self.robot.n_links}, 6, 6), got {blocks.shape}.")
        return Operator(Atom("block", 0, self.links, self.links, (name, symmetric)), (Blocks(blocks),))

    def joint_map(self, name: str, rows: Shaped[Array, "nv 6"]) -> Operator:
        """An operator shaped like H under a name, from one row per degree of freedom (such as a derivative of H)."""
        rows = jnp.asarray(rows)
        if rows.shape != (self.robot.nv, 6):
            raise terms.SpaceError(f"Rows of {name} must be ({self.robot.nv}, 6), got {rows.shape}.")
        atom = Atom("block", 0, self.joints, self.links, (name, False))
        return Operator(atom, (Blocks(per_dof_to_links(self.robot.topology, rows)),))

    @staticmethod
    def _named(symbol: str, operator: Operator) -> Operator:
        return Operator(Named(symbol, operator.term), operator.data)


def whitening(H: Term) -> Named:
    """I - H psi K, made from the atom H of the same bundle."""
    a = _siblings(H)
    eye = Identity(H.codomain)
    forward = terms.add((1.0, eye), (1.0, terms.product(H, a["phi"], a["K"])))
    return Named("W", terms.add((1.0, eye), (-1.0, terms.product(H, a["psi"], a["K"]))), forward, opaque=False)


def mass(H: Term, has_armature: bool) -> Named:
    a = _siblings(H)
    core = terms.product(H, a["phi"], a["M"], terms.adjoint(a["phi"]), terms.adjoint(H))
    definition = terms.add((1.0, core), (1.0, a["A"])) if has_armature else core
    W = whitening(H)
    return Named("Mass", definition, terms.product(terms.adjoint(W), terms.inverse(a["D"]), W), symmetric=True)


def _siblings(H: Term) -> dict[str, Atom]:
    assert isinstance(H, Atom)
    joints, links = H.codomain, H.domain
    shapes = {"phi": (links, links), "psi": (links, links), "M": (links, links), "K": (links, joints)}
    shapes |= {"A": (joints, joints), "D": (joints, joints)}
    return {name: Atom(name, H.slot, *spaces) for name, spaces in shapes.items()}


def _names(frames: str | Sequence[str]) -> tuple[str, ...]:
    return (frames,) if isinstance(frames, str) else tuple(frames)


def operators(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"] | None = None,
    *,
    prescribed: Shaped[Array, " nv"] | None = None,
) -> Bundle:
    """The spatial operators of a robot at a configuration; the Riccati sweep runs once and is shared by all of them.

    With a velocity v also its biases: `.a` and `.b` as vectors of the algebra. `prescribed` (bool, nv) makes the bundle
    of hybrid dynamics, where the motion of those degrees is given. A few rules of rewriting hold only without armature;
    a traced armature (a robot that is an argument of jit) counts as some.

    Units: rad, rad/s.

    >>> o = soa.operators(robot, q)
    >>> Mass = o.H @ o.phi @ o.M @ o.phi.T @ o.H.T + o.armature
    >>> print((Mass @ v).round(3), soa.mass_times(robot, q, v).round(3))
    [1.172 0.376] [1.172 0.376]
    """
    q = robot.check_q(q)
    if v is not None and jnp.asarray(v).dtype == jnp.bool_:
        raise TypeError("The third argument of operators is a velocity; masks go by name: prescribed=mask.")
    v = None if v is None else robot.check_v(v)
    traced = isinstance(robot.armature, Tracer)
    has_armature = prescribed is not None or traced or bool(np.any(np.asarray(robot.armature)))
    if prescribed is not None:
        prescribed = jnp.asarray(prescribed)
        if prescribed.shape != (robot.nv,) or prescribed.dtype != jnp.bool_:
            raise ValueError(
                f"prescribed must be bool of shape (nv,) = ({robot.nv},), got {prescribed.dtype} {prescribed.shape}."
            )
    return Bundle(robot, *_build(robot, q, v, has_armature, prescribed))


@partial(jax.jit, static_argnums=3, inline=True)
def _build(robot: Multibody, q: Array, v: Array | None, has_armature: bool, prescribed: Array | None) -> tuple:
    state = build_state(robot, q, has_armature, prescribed)
    if v is None:
        return state, None
    _, velocities = moving_kinematics(robot, q, v)
    return state, Biases(velocities.bias, bias_forces(state.rigid, velocities.angular, None))
