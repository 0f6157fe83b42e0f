"""Constraint embedding: loops absorbed into aggregate bodies, so that a tree in minimal coordinates remains.

The links of a loop become one aggregate body of a tree (DARTS road map, unit 11; Jain's constraint embedding). Its
joint rates are those of the independent joints alone, v = X y', and with phi inside the aggregate the hinge map is
H_G = X* H phi, stacked over the aggregate's links. On that tree the sweeps are the ones of any tree, with block rows:

    inward     P = sum of A_c P+_c A_c* + M_G,   D = H_G P H_G*,   G = P H_G* D^-1,   P+ = P - G D G*
               z = sum of A_c z+_c,              e = x - H_G z,                       z+ = z + G e
    outward    l = A* l(parent),                 y = D^-1 e - G* l,                   l+ = l + H_G* y

(compare `articulated.py`). They solve X* M X y = x in O(N): forward dynamics without constraint forces, without drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.aggregates import AggregateBody, aggregate_links
from jaxsoa.closed_chain.algebra import is_concrete, motion_shift, solve_semidefinite
from jaxsoa.closed_chain.close import close_loops
from jaxsoa.closed_chain.constraints import Constraint, Coupling
from jaxsoa.closed_chain.loops import check_loops, loop_rows, loop_rows_at_rest
from jaxsoa.dynamics.articulated import carry_motion
from jaxsoa.dynamics.inverse import inverse_dynamics_raw
from jaxsoa.dynamics.kinematics import kinematics, link_inertias
from jaxsoa.dynamics.mass import dense_mass_matrix
from jaxsoa.dynamics.motion import mass_times
from jaxsoa.eager import compiled
from jaxsoa.model.description import ModelError
from jaxsoa.model.multibody import Multibody
from jaxsoa.sweeps import SweepPlan, gather, scatter


class Embedding(eqx.Module):
    """A robot with loops in minimal coordinates: y holds the coordinates of the independent joints only.

    Made by `embed`. All functions take the full configuration q (closed: `expand(y)` finds it) and independent rates.
    """

    robot: Multibody
    loops: tuple[Constraint, ...]
    independent: tuple[str, ...] = eqx.field(static=True)
    nodes: tuple[AggregateBody, ...] = eqx.field(static=True)
    guess: Float[Array, " nq"]

    @property
    def nv(self) -> int:
        """Number of independent rates."""
        return len(self._columns)

    @property
    def _columns(self) -> np.ndarray:
        return np.array([d for name in self.independent for d in range(self.robot.nv)[self.robot.v_index(name)]], int)

    @property
    def _places(self) -> np.ndarray:
        return np.array([d for name in self.independent for d in range(self.robot.nq)[self.robot.q_index(name)]], int)

    def check_rotations(self, q, name: str) -> None:
        """As that of the robot."""
        self.robot.check_rotations(q, name)

    def coordinates(self, q: Shaped[Array, " nq"]) -> Array:
        """y: the independent joints' coordinates."""
        return self.robot.check_q(q)[self._places]

    def rates(self, v: Shaped[Array, " nv"]) -> Array:
        """y': the independent joints' entries of a velocity or acceleration."""
        return self.robot.check_v(v)[self._columns]

    def expand(self, y: Array, guess: Shaped[Array, " nq"] | None = None) -> Float[Array, " nq"]:
        """The closed configuration with independent coordinates y, on the branch next to `guess`. Differentiable."""
        q = self.robot.check_q(self.guess if guess is None else guess)
        index, y = self._places, jnp.asarray(y)
        if y.shape != index.shape:
            wanted = f"{index.shape}, the coordinates of {list(self.independent)}"
            raise ValueError(f"y must have shape {wanted}; got {y.shape}.")
        return close_loops(self.robot, self.loops, q.at[index].set(y), hold=self.independent)


def embed(
    robot: Multibody, loops: Sequence[Constraint], independent: Sequence[str], q: Shaped[Array, " nq"] | None = None
) -> Embedding:
    """Absorb the loops of a robot into aggregate bodies, with the named joints as minimal coordinates.

    The independent joints must fix all others (as many of them as the closed mechanism has degrees of freedom). q, a
    closed configuration or a guess, tells the branch that `expand` starts from. Raises ModelError where the count of
    independent joints cannot be right at q.

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    >>> embedding = soa.closed_chain.embed(robot, loops, ["left1_joint"], q)
    >>> print(embedding.independent)
    ('left1_joint',)
    """
    loops = check_loops(robot, loops)
    q = robot.neutral() if q is None else robot.check_q(q)
    independent = tuple(independent)
    chosen = {d for name in independent for d in range(robot.nv)[robot.v_index(name)]}
    topology, aggregates = robot.topology, aggregate_links(robot, loops)
    alone = set(range(robot.n_links)).difference(*(links for links, _ in aggregates))
    found = [*aggregates, *(({k}, []) for k in alone)]
    nodes = []
    for links, numbers in sorted(found, key=lambda g: min(g[0])):
        ordered = tuple(sorted(links))
        dofs = tuple(d for k in ordered for d in range(robot.nv)[topology.v_slices[k]])
        if not numbers and not set(dofs) <= chosen:
            joint = repr(topology.joint_names[ordered[0]])
            raise ModelError(f"Joint {joint} is in no loop, so it must be among the independent joints.")
        (parent,) = {topology.parents[k] for k in ordered} - links
        nodes.append(AggregateBody(ordered, dofs, tuple(d for d in dofs if d in chosen), tuple(numbers), parent))
    embedding = Embedding(robot, loops, independent, tuple(nodes), q)
    _check_count(embedding, q)
    return embedding


def _check_count(embedding: Embedding, q: Array) -> None:
    if not is_concrete(embedding, q):
        return
    robot = embedding.robot

    @jax.jit
    def closed_jacobian(robot, loops, q):
        q = close_loops(robot, loops, q, hold=embedding.independent)
        return loop_rows_at_rest(robot, loops, q).jacobian

    J = np.asarray(closed_jacobian(robot, embedding.loops, q))
    freedom = robot.nv - np.linalg.matrix_rank(J, tol=1e-8)
    dependent = np.setdiff1d(np.arange(robot.nv), embedding._columns)
    fixed = np.linalg.matrix_rank(J[:, dependent], tol=1e-8) == len(dependent) if len(dependent) else True
    if len(embedding._columns) != freedom or not fixed:
        raise ModelError(
            f"The closed mechanism has {freedom} degrees of freedom here, and the independent joints "
            f"{list(embedding.independent)} have {len(embedding._columns)} and {'fix' if fixed else 'do not fix'} the "
            "others; choose as many joints, and such that they fix all others."
        )


class EmbeddedMotion(NamedTuple):
    """How all joints follow the independent ones: v = X y', a = X y'' + bias."""

    X: Float[Array, "nv ny"]
    bias: Float[Array, " nv"]


def embedded_motion(embedding: Embedding, q: Array, rates: Array | None = None) -> EmbeddedMotion:
    """X and X' y', aggregate by aggregate: small solves with the loops' rows on their own dependent joints."""
    robot, columns = embedding.robot, embedding._columns
    place = {int(d): i for i, d in enumerate(columns)}
    dtype = q.dtype
    X = jnp.zeros((robot.nv, len(columns)), dtype).at[columns, np.arange(len(columns))].set(1)

    rows = loop_rows_at_rest(robot, embedding.loops, q) if embedding.loops else None
    where = _row_numbers(embedding.loops)
    factored = []
    for node in embedding.nodes:
        if not node.loops or len(node.independent) == len(node.dofs):
            continue
        assert rows is not None
        mine = np.concatenate([where[k] for k in node.loops])
        own = np.array([d for d in node.dofs if d not in node.independent])
        J_d = rows.jacobian[np.ix_(mine, own)]
        factored.append((mine, own, J_d))
        free = np.array(node.independent, int)
        if len(free):
            block = solve_semidefinite(J_d.T @ J_d, -J_d.T @ rows.jacobian[np.ix_(mine, free)])
            at = np.ix_(own, np.array([place[int(d)] for d in free]))
            X = X.at[at].set(block, unique_indices=True)
    bias = jnp.zeros(robot.nv, dtype)
    if rates is not None and embedding.loops:
        moving = loop_rows(robot, embedding.loops, q, X @ rates)
        for mine, own, J_d in factored:
            found = solve_semidefinite(J_d.T @ J_d, -J_d.T @ moving.bias[mine])
            bias = bias.at[own].set(found, unique_indices=True)
    return EmbeddedMotion(X, bias)


def _row_numbers(loops: tuple[Constraint, ...]) -> list[np.ndarray]:
    """Which rows of `loop_rows` belong to which constraint: six per cut first, then one per coupling."""
    cuts = sum(not isinstance(loop, Coupling) for loop in loops)
    at_cut, at_coupling, numbers = 0, 6 * cuts, []
    for loop in loops:
        if isinstance(loop, Coupling):
            numbers.append(np.array([at_coupling]))
            at_coupling += 1
        else:
            numbers.append(np.arange(at_cut, at_cut + 6))
            at_cut += 6
    return numbers


# --- the embedded tree's sweeps -----------------------------------------------------------------------------------


class _Aggregates(NamedTuple):
    """Stacked over nodes, padded to the largest: b links, k independent rates."""

    carry: Float[Array, "nodes 6b 6"]  # A*: motion of the parent link, carried to the node's links
    hinge: Float[Array, "nodes k 6b"]  # H_G
    inertia: Float[Array, "nodes 6b 6b"]  # M_G
    armature: Float[Array, "nodes k k"]  # X* armature X, and one on the diagonal of padding
    parent_slot: Float[Array, "nodes b"]  # one at the parent link's place within the parent node


def _aggregates(embedding: Embedding, q: Array, X: Array) -> _Aggregates:
    robot, nodes, topology = embedding.robot, embedding.nodes, embedding.robot.topology
    kin = kinematics(robot, q)
    bodies = link_inertias(robot, kin.rotation).spatial().matrix()
    b, k = max(len(n.links) for n in nodes), max(1, *(len(n.independent) for n in nodes))
    column = {int(d): i for i, d in enumerate(embedding._columns)}
    slot_of = {link: s for n in nodes for s, link in enumerate(n.links)}
    parts = []
    for node in nodes:
        links, dofs = np.array(node.links), np.array(node.dofs)
        origin = kin.position[node.parent_link] if node.parent_link >= 0 else jnp.zeros(3, q.dtype)
        carry = jnp.zeros((b, 6, 6), q.dtype).at[: len(links)].set(jax.vmap(motion_shift)(kin.position[links] - origin))
        # Unit rate of every joint inside, seen at every link inside: phi* H*.
        support = topology.link_support[np.ix_(links, topology.dof_link[dofs])]
        at = kin.position[topology.dof_link[dofs]]

        def seen(p, at=at, dofs=dofs):
            return jax.vmap(carry_motion)(p - at, kin.axes[dofs])

        motions = jnp.where(support[..., None], jax.vmap(seen)(kin.position[links]), 0)  # (links, dofs, 6)
        mine = np.array([column[d] for d in node.independent], int)
        X_node = X[np.ix_(dofs, mine)] if len(mine) else jnp.zeros((len(dofs), 0), q.dtype)
        moved = jnp.einsum("ldc,dy->ylc", motions, X_node)
        hinge = jnp.zeros((k, b, 6), q.dtype).at[: len(mine), : len(links)].set(moved)
        own = np.arange(len(links))
        inertia = jnp.zeros((b, 6, b, 6), q.dtype).at[own, :, own, :].set(bodies[links])
        pad = np.diag((np.arange(k) >= len(mine)).astype(float))
        own = X_node.T @ (robot.armature[dofs][:, None] * X_node)
        armature = jnp.asarray(pad, q.dtype).at[: len(mine), : len(mine)].add(own)
        parent = np.zeros(b, q.dtype)
        if node.parent_link >= 0:
            parent[slot_of[node.parent_link]] = 1
        parts.append(
            (carry.reshape(6 * b, 6), hinge.reshape(k, 6 * b), inertia.reshape(6 * b, 6 * b), armature, parent)
        )
    return _Aggregates(*(jnp.stack(column) for column in zip(*parts, strict=True)))


def _node_plan(embedding: Embedding) -> SweepPlan:
    node_of = {link: i for i, n in enumerate(embedding.nodes) for link in n.links}
    return SweepPlan([-1 if n.parent_link < 0 else node_of[n.parent_link] for n in embedding.nodes])


def _padded(embedding: Embedding) -> tuple[np.ndarray, np.ndarray]:
    """Where each node's independent rates stand among all, (nodes, k), and which entries are real."""
    column = {int(d): i for i, d in enumerate(embedding._columns)}
    k = max(1, *(len(n.independent) for n in embedding.nodes))
    index, real = np.zeros((len(embedding.nodes), k), int), np.zeros((len(embedding.nodes), k), bool)
    for i, node in enumerate(embedding.nodes):
        for j, d in enumerate(node.independent):
            index[i, j], real[i, j] = column[d], True
    return index, real


def solve_embedded(embedding: Embedding, q: Array, X: Array, x: Float[Array, " ny"]) -> Float[Array, " ny"]:
    """(X* M X)^-1 x by one inward and one outward sweep over the tree of aggregate bodies."""
    tree, plan = _aggregates(embedding, q, X), _node_plan(embedding)
    index, real = _padded(embedding)
    torque = jnp.where(real, x[index], 0)
    size = tree.inertia.shape[-1]

    def inward(children, node):
        P, z = children
        carry, hinge, inertia, armature, slot, x = node
        P = P + inertia
        PH = P @ hinge.T
        D = hinge @ PH + armature
        e = x - hinge @ z
        G, nu = jnp.split(solve_semidefinite(D, jnp.concatenate([PH.T, e[:, None]], axis=1)).T, [size])
        up, z_up = carry.T @ (P - G @ D @ G.T) @ carry, carry.T @ (z + G @ e)
        # The parent may itself be an aggregate: only the link that carries this node feels it.
        placed = jnp.einsum("a,ij,b->aibj", slot, up, slot).reshape(size, size)
        return (placed, jnp.outer(slot, z_up).reshape(size)), (G, nu[0])

    zero = (jnp.zeros((size, size), x.dtype), jnp.zeros(size, x.dtype))
    inputs = (tree.carry, tree.hinge, tree.inertia, tree.armature, tree.parent_slot, torque)
    _, (G, nu) = gather(plan, inward, zero, inputs)

    def outward(parent, node):
        carry, hinge, slot, G, nu = node
        l = carry @ (slot @ parent.reshape(-1, 6))
        y = nu - G.T @ l
        return l + hinge.T @ y, y

    y = scatter(plan, outward, jnp.zeros(size, x.dtype), (tree.carry, tree.hinge, tree.parent_slot, G, nu))
    return jnp.zeros_like(x).at[index[real]].set(y[real])


# --- dynamics in minimal coordinates ------------------------------------------------------------------------------


def checked_rates(embedding: Embedding, rates, name: str) -> Array:
    rates = jnp.asarray(rates)
    if rates.shape != (embedding.nv,):
        raise ValueError(f"{name} must have shape ({embedding.nv},), the independent rates; got {rates.shape}.")
    return embedding.robot.convert(rates, name)


@compiled(through_door=False)
def embedded_velocity(embedding: Embedding, q: Shaped[Array, " nq"], rates: Array) -> Float[Array, " nv"]:
    """v = X y': velocities of all joints.

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    >>> q = soa.closed_chain.close_loops(robot, loops, q)
    >>> embedding = soa.closed_chain.embed(robot, loops, ["left1_joint"], q)
    >>> print(soa.closed_chain.embedded_velocity(embedding, q, jnp.ones(1)).round(3))  # rad/s
    [ 1.    -1.145  0.405]
    """
    return embedded_motion(embedding, embedding.robot.check_q(q)).X @ checked_rates(embedding, rates, "rates")


@compiled(through_door=False)
def embedded_mass_matrix(embedding: Embedding, q: Shaped[Array, " nq"]) -> Float[Array, "ny ny"]:
    """X* M X: the mass matrix of the independent coordinates, whose rates y' move all joints by v = X y'.

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    >>> q = soa.closed_chain.close_loops(robot, loops, q)
    >>> embedding = soa.closed_chain.embed(robot, loops, ["left1_joint"], q)
    >>> print(soa.closed_chain.embedded_mass_matrix(embedding, q).round(3))  # kg m^2
    [[0.197]]
    """
    q = embedding.robot.check_q(q)
    X = embedded_motion(embedding, q).X
    return X.T @ dense_mass_matrix(embedding.robot, q) @ X


@compiled(through_door=False)
def embedded_inverse_dynamics(
    embedding: Embedding, q: Shaped[Array, " nq"], rates: Array, accelerations: Array, f_ext: Array | None = None
) -> Float[Array, " ny"]:
    """Generalized forces on the independent coordinates: X* ID(q, X y', X y'' + bias), two sweeps.

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    >>> q = soa.closed_chain.close_loops(robot, loops, q)
    >>> embedding = soa.closed_chain.embed(robot, loops, ["left1_joint"], q)
    >>> print(soa.closed_chain.embedded_inverse_dynamics(embedding, q, jnp.zeros(1), jnp.zeros(1)).round(3))  # N m
    [-3.787]
    """
    robot = embedding.robot
    q, rates = robot.check_q(q), checked_rates(embedding, rates, "rates")
    motion = embedded_motion(embedding, q, rates)
    a = motion.X @ checked_rates(embedding, accelerations, "accelerations") + motion.bias
    return motion.X.T @ inverse_dynamics_raw(robot, q, motion.X @ rates, a, robot.check_f_ext(f_ext))


class EmbeddedAcceleration(NamedTuple):
    """What forward dynamics in independent coordinates y gives."""

    rates: Float[Array, " ny"]  # y''
    a: Float[Array, " nv"]  # of all joints


@compiled(through_door=False)
def embedded_forward_dynamics(
    embedding: Embedding,
    q: Shaped[Array, " nq"],
    rates: Array,
    tau: Shaped[Array, " nv"],
    f_ext: Array | None = None,
    *,
    method: str = "aggregate",
) -> EmbeddedAcceleration:
    """Accelerations in minimal coordinates from torques on all joints: X* M X y'' = X* (tau - ID(q, v, bias)).

    "aggregate" solves by the sweeps above in O(N), "dense" by Cholesky. Derivatives are those of the linear system, so
    they do not enter the Riccati sweep.

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    >>> q = soa.closed_chain.close_loops(robot, loops, q)
    >>> embedding = soa.closed_chain.embed(robot, loops, ["left1_joint"], q)
    >>> found = jax.jit(soa.closed_chain.embedded_forward_dynamics)(embedding, q, jnp.zeros(1), jnp.zeros(3))
    >>> print(found.rates.round(3))  # from rest, rad/s^2
    [19.23]
    """
    if method not in ("aggregate", "dense"):
        raise ValueError(f'Unknown method {method!r} of embedded_forward_dynamics; choose "aggregate" or "dense".')
    robot = embedding.robot
    q, rates, tau = robot.check_q(q), checked_rates(embedding, rates, "rates"), robot.check_v(tau, "tau")
    motion = embedded_motion(embedding, q, rates)
    X = motion.X
    x = X.T @ (tau - inverse_dynamics_raw(robot, q, X @ rates, motion.bias, robot.check_f_ext(f_ext)))
    if method == "dense":
        y = jax.scipy.linalg.solve(X.T @ dense_mass_matrix(robot, q) @ X, x, assume_a="pos")
    else:
        fixed = lax.stop_gradient((embedding, q, X))
        y = lax.custom_linear_solve(
            lambda y: X.T @ mass_times(robot, q, X @ y), x, lambda _, b: solve_embedded(*fixed, b), symmetric=True
        )
    return EmbeddedAcceleration(y, X @ y + motion.bias)
