"""A robot whose mimic joints follow their targets: a view with fewer degrees of freedom.

With the constant map v = A y' of `model.mimics`, the dynamics of the independent rates is A* M A y'' = A* (tau - ID),
and A* M A is solved over the tree of aggregate bodies of `embedding.py` in O(N). Given accelerations a of the free
joints, Gauss's principle has the coupled ones: A (A* M A)^-1 A* M a, whatever forces a came from.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.aggregates import AggregateBody, aggregate_links
from jaxsoa.closed_chain.constraints import mimic_couplings
from jaxsoa.closed_chain.embedding import Embedding, solve_embedded
from jaxsoa.dynamics.inverse import center_of_mass, inverse_dynamics, kinetic_energy, potential_energy
from jaxsoa.dynamics.kinematics import frame_pose, jacobian
from jaxsoa.dynamics.mass import mass_matrix, mass_times
from jaxsoa.linearized.forward import LinearizedForwardDynamics
from jaxsoa.linearized.inverse import linearize_inverse_dynamics
from jaxsoa.model.description import ModelError
from jaxsoa.model.mimics import MimicMap, mimic_map
from jaxsoa.model.multibody import Multibody


class CoupledRobot(eqx.Module):
    """The robot in the coordinates of the joints that mimic nobody; y (nq,) and rates (nv,), fewer than the robot's."""

    robot: Multibody

    @property
    def map(self) -> MimicMap:
        """The constant map from independent to all coordinates."""
        return mimic_map(self.robot)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """The independent joints."""
        return self.map.joints

    @property
    def nq(self) -> int:
        """Length of y."""
        return len(self.map.q_columns)

    @property
    def nv(self) -> int:
        """Length of the independent rates."""
        return len(self.map.v_columns)

    def neutral(self) -> Float[Array, " ny"]:
        """Zero for every independent coordinate, the identity for every quaternion."""
        return self.robot.neutral()[self.map.q_columns]

    def expand(self, y: Shaped[Array, " ny"]) -> Float[Array, " nq"]:
        """q of all joints."""
        y = self._check(y, self.nq, "y")
        return self.robot.check_q(jnp.asarray(self.map.B, y.dtype) @ y + jnp.asarray(self.map.b, y.dtype))

    def expand_rates(self, rates: Shaped[Array, " ny"]) -> Float[Array, " nv"]:
        """v = A y' of all joints; accelerations alike."""
        rates = self._check(rates, self.nv, "rates")
        return jnp.asarray(self.map.A, rates.dtype) @ rates

    def reduce_forces(self, tau: Shaped[Array, " nv"]) -> Float[Array, " ny"]:
        """A* tau: what torques on all joints are on the independent ones."""
        tau = self.robot.check_v(tau, "tau")
        return jnp.asarray(self.map.A, tau.dtype).T @ tau

    def coordinates(self, q: Shaped[Array, " nq"]) -> Float[Array, " ny"]:
        """The independent joints' entries of q."""
        return self.robot.check_q(q)[self.map.q_columns]

    def rates(self, v: Shaped[Array, " nv"]) -> Float[Array, " ny"]:
        """The independent joints' entries of v."""
        return self.robot.check_v(v)[self.map.v_columns]

    def integrate(self, y: Shaped[Array, " ny"], step: Shaped[Array, " ny"]) -> Float[Array, " ny"]:
        """y moved by a tangent vector."""
        return self.coordinates(self.robot.integrate(self.expand(y), self.expand_rates(step)))

    def difference(self, start: Shaped[Array, " ny"], end: Shaped[Array, " ny"]) -> Float[Array, " ny"]:
        """The tangent vector that moves `start` to `end`."""
        return self.rates(self.robot.difference(self.expand(start), self.expand(end)))

    def random(self, key: Array) -> Float[Array, " ny"]:
        """A random y within the limits of the independent joints."""
        return self.coordinates(self.robot.random(key))

    def expand_forces(self, tau: Shaped[Array, " ny"]) -> Float[Array, " nv"]:
        """Torques of all joints, of which those that follow have none: what to hand to `rollout`."""
        tau = self._check(tau, self.nv, "tau")
        return jnp.zeros(self.robot.nv, tau.dtype).at[self.map.v_columns].set(tau)

    def frame_pose(self, y: Shaped[Array, " ny"], frame: str) -> tuple[Array, Array]:
        """Rotation and position of a frame."""
        return frame_pose(self.robot, self.expand(y), frame)

    def jacobian(self, y: Shaped[Array, " ny"], frame: str) -> Float[Array, "6 ny"]:
        """J A: what independent rates do to a frame."""
        J = jacobian(self.robot, self.expand(y), frame)
        return J @ jnp.asarray(self.map.A, J.dtype)

    def mass_matrix(self, y: Shaped[Array, " ny"]) -> Float[Array, "ny ny"]:
        """A* M A."""
        M = mass_matrix(self.robot, self.expand(y))
        A = jnp.asarray(self.map.A, M.dtype)
        return A.T @ M @ A

    def inverse_dynamics(
        self, y: Shaped[Array, " ny"], rates: Shaped[Array, " ny"], accelerations: Shaped[Array, " ny"], f_ext=None
    ) -> Float[Array, " ny"]:
        """Torques on the independent joints: A* ID(q, A y', A y'')."""
        full = (self.expand(y), self.expand_rates(rates), self.expand_rates(accelerations))
        return self.reduce_forces(inverse_dynamics(self.robot, *full, f_ext))

    def forward_dynamics(
        self, y: Shaped[Array, " ny"], rates: Shaped[Array, " ny"], tau: Shaped[Array, " ny"], f_ext=None
    ) -> Float[Array, " ny"]:
        """y'' under torques on the independent joints: A* M A y'' = tau - A* ID(q, A y', 0)."""
        rates = self._check(rates, self.nv, "rates")
        force = self._check(tau, self.nv, "tau") - self.inverse_dynamics(y, rates, jnp.zeros_like(rates), f_ext)
        return _solve(self.robot, self.expand(y), force)

    def bias_force(self, y: Shaped[Array, " ny"], rates: Shaped[Array, " ny"]) -> Float[Array, " ny"]:
        """Torques on the independent joints that keep their rates constant."""
        rates = self._check(rates, self.nv, "rates")
        return self.inverse_dynamics(y, rates, jnp.zeros_like(rates))

    def center_of_mass(self, y: Shaped[Array, " ny"]) -> Float[Array, "3"]:
        """World position, of all that moves."""
        return center_of_mass(self.robot, self.expand(y))

    def kinetic_energy(self, y: Shaped[Array, " ny"], rates: Shaped[Array, " ny"]) -> Float[Array, ""]:
        """Of all joints."""
        return kinetic_energy(self.robot, self.expand(y), self.expand_rates(rates))

    def potential_energy(self, y: Shaped[Array, " ny"]) -> Float[Array, ""]:
        """Of all joints."""
        return potential_energy(self.robot, self.expand(y))

    def linearize_forward_dynamics(
        self, y: Shaped[Array, " ny"], rates: Shaped[Array, " ny"], tau: Shaped[Array, " ny"]
    ) -> LinearizedForwardDynamics:
        """Derivatives of y'' by y (tangent), by the rates and by the torques on the independent joints, (ny, ny) each.

        d y'' = (A* M A)^-1 [d tau - A* d ID], with the derivatives of inverse dynamics at the accelerations found.
        """
        full = (self.expand(y), self.expand_rates(rates))
        a = self.expand_rates(self.forward_dynamics(y, rates, tau))
        by = linearize_inverse_dynamics(self.robot, *full, a)
        A = jnp.asarray(self.map.A, a.dtype)
        inverse = jax.vmap(lambda x: _solve(self.robot, full[0], x))(jnp.eye(self.nv, dtype=a.dtype)).T
        by_q, by_v = (-inverse @ (A.T @ x @ A) for x in (by.wrt_q, by.wrt_v))
        return LinearizedForwardDynamics(by_q, by_v, inverse)

    def _check(self, x, size: int, name: str) -> Array:
        x = jnp.asarray(x)
        if x.shape != (size,):
            raise ValueError(
                f"{name} must have shape ({size},) for {self.robot.name!r} with mimic joints coupled; got {x.shape}."
            )
        return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(self.robot.dtype)


def coupled(robot: Multibody) -> CoupledRobot:
    """A view of the robot in which mimic joints follow their targets; without any, the robot itself.

    >>> print(soa.closed_chain.coupled(robot).nv)  # as many as before, since no joint here mimics another
    2
    """
    if not isinstance(robot, Multibody):
        raise ModelError(f"Only a Multibody can be coupled, not a {type(robot).__name__}.")
    return CoupledRobot(robot)


def coupled_accelerations(robot: Multibody, q: Array, a: Array) -> Float[Array, " nv"]:
    """What accelerations a (nv,) of the free joints become when mimic joints follow: Gauss's least constraint."""
    A = jnp.asarray(mimic_map(robot).A, a.dtype)
    return A @ _solve(robot, q, A.T @ mass_times(robot, q, a))


def coupled_momentum(robot: Multibody, q: Array, v: Array) -> Float[Array, " nv"]:
    """A* M v, the momenta of the independent joints, at their places in v; zero for joints that follow."""
    to = mimic_map(robot)
    momenta = jnp.asarray(to.A, v.dtype).T @ mass_times(robot, q, v)
    return jnp.zeros_like(v).at[to.v_columns].set(momenta)


def coupled_velocity(robot: Multibody, q: Array, momentum: Array) -> Float[Array, " nv"]:
    """The velocities A y' of a momentum as `coupled_momentum` gives it: A (A* M A)^-1 times its independent entries."""
    to = mimic_map(robot)
    return jnp.asarray(to.A, momentum.dtype) @ _solve(robot, q, momentum[to.v_columns])


def _solve(robot: Multibody, q: Array, x: Float[Array, " ny"]) -> Float[Array, " ny"]:
    """(A* M A)^-1 x; derivatives are those of the linear system, so they do not enter the Riccati sweep."""
    A = jnp.asarray(mimic_map(robot).A, x.dtype)
    fixed = lax.stop_gradient((_embedding(robot), q, A))
    return lax.custom_linear_solve(
        lambda y: A.T @ mass_times(robot, q, A @ y), x, lambda _, b: solve_embedded(*fixed, b), symmetric=True
    )


def _embedding(robot: Multibody) -> Embedding:
    """The aggregate bodies that mimics make; their count is right by construction, so nothing is solved to check it."""
    topology, joints = robot.topology, mimic_map(robot).joints
    couplings = mimic_couplings(robot)
    chosen = {d for name in joints for d in range(robot.nv)[robot.v_index(name)]}
    found = aggregate_links(robot, couplings)
    inside = set().union(*(links for links, _ in found)) if found else set()
    found += [({k}, []) for k in range(robot.n_links) if k not in inside]
    nodes = []
    for links, numbers in sorted(found, key=lambda group: min(group[0])):
        ordered = tuple(sorted(links))
        dofs = tuple(int(d) for k in ordered for d in np.arange(robot.nv)[topology.v_slices[k]])
        (parent,) = {topology.parents[k] for k in ordered} - links
        nodes.append(AggregateBody(ordered, dofs, tuple(d for d in dofs if d in chosen), tuple(numbers), parent))
    return Embedding(robot, couplings, joints, tuple(nodes), robot.neutral())
