"""`mechanisms.five_bar` in minimal coordinates: joints in closed form, equations of motion dense."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import jaxsoa as soa

CRANKS = ["left1_joint", "right1_joint"]
COLUMNS = jnp.array([0, 2])
SHORT, LONG, APART = 0.5, 0.9, 0.6  # m


def configuration(y):
    """All joints from the cranks: the long bars meet where two circles do, above."""
    a, b = y
    left = jnp.array([SHORT * jnp.cos(a), -SHORT * jnp.sin(a)])
    right = jnp.array([APART + SHORT * jnp.cos(b), -SHORT * jnp.sin(b)])
    across = right - left
    height = jnp.sqrt(LONG**2 / (across @ across) - 0.25)
    tip = (left + right) / 2 + height * jnp.array([-across[1], across[0]])
    one, other = tip - left, tip - right
    return jnp.array([a, jnp.arctan2(-one[1], one[0]) - a, b, jnp.arctan2(-other[1], other[0]) - b])


def velocity(y, rates):
    return jax.jvp(configuration, (y,), (rates,))[1]


def equations(robot, y, rates, tau):
    """X* M X and X* (tau - ID(q, X y', X' y')), X the derivative of the closed form; tau of all joints."""
    X = jax.jacfwd(configuration)(y)
    turned = jax.jvp(lambda y: velocity(y, rates), (y,), (rates,))[1]
    q = configuration(y)
    force = tau - soa.inverse_dynamics(robot, q, X @ rates, turned)
    return X.T @ soa.mass_matrix(robot, q) @ X, X.T @ force


def runge_kutta(accelerations, x, dt):
    """One step of x = (y, y') by `accelerations(y, rates)`."""

    def stage(carry, coefficients):
        slope, total = carry
        y, rates = jnp.split(x + dt * coefficients[0] * slope, 2)
        slope = jnp.concatenate([rates, accelerations(y, rates)])
        return (slope, total + coefficients[1] * slope), None

    nodes = jnp.array([[0, 1 / 6], [1 / 2, 1 / 3], [1 / 2, 1 / 3], [1, 1 / 6]])
    return x + dt * jax.lax.scan(stage, (jnp.zeros(4), jnp.zeros(4)), nodes)[0][1]
