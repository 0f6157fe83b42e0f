"""The conventional linearized forward model, O(N^3): Algorithms 3 and 4 of the linearization paper (lemma 4.1).

Kept as references for Algorithms 5 and 6: they form the mass matrix and solve with it densely.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.forward import forward_dynamics
from jaxsoa.dynamics.mass import mass_matrix
from jaxsoa.linearized.forward import LinearizedForwardDynamics
from jaxsoa.linearized.inverse import linearize_inverse_dynamics
from jaxsoa.linearized.perturbation import inverse_dynamics_perturbation
from jaxsoa.model.multibody import Multibody


def conventional_perturbation(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    dq: Shaped[Array, " nv"],
    dv: Shaped[Array, " nv"],
    dtau: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
) -> Float[Array, " nv"]:
    """Algorithm 3: solve M da = dtau - (A_D dv + B_D dq), the bracket by Algorithm 1 with da = 0."""
    a = forward_dynamics(robot, q, v, tau, f_ext)
    change = inverse_dynamics_perturbation(robot, q, v, a, dq, dv, jnp.zeros_like(a), f_ext)
    return jax.scipy.linalg.solve(mass_matrix(robot, q), robot.check_v(dtau, "dtau") - change, assume_a="pos")


def conventional_linearization(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
) -> LinearizedForwardDynamics:
    """Algorithm 4: M, A_D, B_D by Algorithm 2, a numerical inverse, and two products."""
    a = forward_dynamics(robot, q, v, tau, f_ext)
    wrt_q, wrt_v, mass = linearize_inverse_dynamics(robot, q, v, a, f_ext)
    inverse = jnp.linalg.inv(mass)
    return LinearizedForwardDynamics(-inverse @ wrt_q, -inverse @ wrt_v, inverse)
