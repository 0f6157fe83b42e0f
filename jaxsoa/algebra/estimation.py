"""The estimation reading of multibody dynamics (JPL 86-48, sections 6 and 9): forces as random states.

    x = phi w,   tau = H x + v,   E w w* = M,   E v v* = armature      (9.1-9.3; the report has no armature)

is a random process that runs from the tips to the base, and the covariance of tau is the mass matrix. Then P is the
covariance of the error of the predicted state, D that of the innovations, G the Kalman gain; I - H psi K is the
whitening filter, and forward dynamics is its Bryson-Frazier smoother with spatial accelerations for co-states. On a
tree "before" means outboard: the branches are independent until they meet.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.algebra.bundle import Bundle, operators
from jaxsoa.algebra.decomposition import blocks_of
from jaxsoa.algebra.spaces import pack, unpack, with_degrees
from jaxsoa.model.multibody import Multibody

TABLE_6_1 = {
    "states": "spatial forces",
    "co-states": "spatial accelerations",
    "measurements": "active moments",
    "transition matrix": "spatial transition matrix",
    "process error covariance": "spatial inertia matrix",
    "measurement error covariance": "armature",
    "known deterministic input": "bias spatial force",
    "state to output map": "projection from state to joint axis",
}
"""Table 6.1 of JPL 86-48; the line on armature is ours."""


class Sample(NamedTuple):
    """One draw of the process, or many along a leading axis."""

    noise: Float[Array, "... n 6"]  # w
    state: Float[Array, "... n 6"]  # x
    measurement: Float[Array, "... nv"]  # tau


class Filtered(NamedTuple):
    """What the Kalman filter says of each link's state from the measurements outboard of it."""

    predicted: Float[Array, "n 6"]  # z-, from strictly outboard measurements (9.4)
    innovation: Float[Array, " nv"]  # e = tau - H z- (9.5)
    updated: Float[Array, "n 6"]  # z+ = z- + G e (9.11)


class Smoothed(NamedTuple):
    state: Float[Array, "n 6"]  # E(x | all measurements), (9.13)-(9.14)
    costate: Float[Array, "n 6"]  # lambda (9.15)-(9.16)


class Covariances(NamedTuple):
    """Blocks per link: of the predicted error (P), the updated error (P+), the co-state and the smoothed error (S)."""

    predicted: Float[Array, "n 6 6"]
    updated: Float[Array, "n 6 6"]
    costate: Float[Array, "n 6 6"]
    smoothed: Float[Array, "n 6 6"]


class RandomModel(eqx.Module):
    """The spatially random model of a robot at a configuration. `bias` (n, 6) is the mean of w, the bias force."""

    operators: Bundle
    bias: Float[Array, "n 6"]

    @property
    def covariance(self):
        """Covariance of the measurements: the mass matrix, as an operator."""
        return self.operators.Mass

    def sample(self, key: Array, count: int | None = None) -> Sample:
        """Draw the process once, or `count` times along a leading axis (9.1-9.3)."""
        if count is not None:
            return jax.vmap(self.sample)(jax.random.split(key, count))
        o = self.operators
        key_w, key_v = jax.random.split(key)
        root = _square_roots(blocks_of(o.M, o))
        n, dtype = o.robot.n_links, root.dtype
        w = self.bias + jnp.einsum("nij,nj->ni", root, jax.random.normal(key_w, (n, 6), dtype))
        x = o.phi(w.ravel())
        deviation = jnp.sqrt(unpack(o.joints, o.state.A))
        tau = o.H(x) + deviation * jax.random.normal(key_v, (o.robot.nv,), dtype)
        return Sample(w, x.reshape(n, 6), tau)

    def whiten(self, tau: Shaped[Array, " nv"]) -> Float[Array, " nv"]:
        """D^-1/2 (I - H psi K) (tau - H phi bias): unit white noise if tau came from this model."""
        e = self.filter(tau).innovation
        o = self.operators
        root = jnp.linalg.cholesky(o.state.blocks("D"))  # per joint
        per_joint = jax.vmap(with_degrees)(pack(o.joints, e))
        white = jax.vmap(lambda L, e: jax.scipy.linalg.solve_triangular(L, e, lower=True))(root, per_joint)
        return unpack(o.joints, white)

    def color(self, white: Shaped[Array, " nv"]) -> Float[Array, " nv"]:
        """(I + H phi K) D^1/2 white (+ the mean): the innovations representation; the reverse of `whiten`."""
        o = self.operators
        root = jnp.linalg.cholesky(o.state.blocks("D"))
        e = unpack(o.joints, jnp.einsum("nij,nj->ni", root, jax.vmap(with_degrees)(pack(o.joints, white))))
        return e + (o.H @ o.phi @ o.K)(e) + self._mean()

    def _mean(self) -> Array:
        o = self.operators
        return (o.H @ o.phi)(self.bias.ravel())

    def filter(self, tau: Shaped[Array, " nv"]) -> Filtered:
        """Predicted states, innovations and updated states, tip to base: z = psi (K tau + bias), e = tau - H z."""
        o = self.operators
        tau = o.robot.check_v(tau, "tau")
        n = o.robot.n_links
        z = (o.psi @ o.K)(tau) + o.psi(self.bias.ravel())
        e = tau - o.H(z)
        return Filtered(z.reshape(n, 6), e, (z + o.G(e)).reshape(n, 6))

    def smooth(self, tau: Shaped[Array, " nv"]) -> Smoothed:
        """Bryson-Frazier: lambda = psi* H* D^-1 e, x = z + P lambda (9.14-9.16, where e+ means D^-1 e)."""
        o = self.operators
        filtered = self.filter(tau)
        n = o.robot.n_links
        costate = (o.psi.T @ o.H.T @ o.D.inv)(filtered.innovation)
        state = filtered.predicted.ravel() + o.P(costate)
        return Smoothed(state.reshape(n, 6), costate.reshape(n, 6))

    def covariances(self) -> Covariances:
        """Error covariances link by link (9.6, 9.10, 9.17-9.21); S = P - P Lambda P."""
        o = self.operators
        P, Y = blocks_of(o.P, o), o.state.field("Upsilon")
        return Covariances(P, blocks_of(o.tau_bar @ o.P, o), Y, P - P @ Y @ P)


def random_model(robot: Multibody, q: Shaped[Array, " nq"], bias: Shaped[Array, "n 6"] | None = None) -> RandomModel:
    """The random process whose covariance is the mass matrix of `robot` at q.

    >>> model = soa.estimation.random_model(robot, q)
    >>> print((model.covariance @ v - soa.mass_times(robot, q, v)).round(9) + 0.0)
    [0. 0.]
    """
    bundle = operators(robot, q)
    mean = jnp.zeros((robot.n_links, 6), bundle.state.G.dtype) if bias is None else robot.convert(bias, "bias")
    if mean.shape != (robot.n_links, 6):
        raise ValueError(f"bias must have shape (n_links, 6) = ({robot.n_links}, 6), got {mean.shape}.")
    return RandomModel(bundle, mean)


def _square_roots(blocks: Array) -> Array:
    """Symmetric roots; a link without inertia about some axis has a singular block."""
    values, vectors = jnp.linalg.eigh(blocks)
    return vectors * jnp.sqrt(jnp.maximum(values, 0))[:, None, :]
