"""The algebra: the mass matrix, its inverse and a simplification as mathematics, checked against the functions."""

import jax
import jax.numpy as jnp

import jaxsoa as soa

jax.config.update("jax_enable_x64", True)
robot = soa.models.puma560()
q = robot.random(jax.random.key(0))
op = soa.operators(robot, q)
Mass = op.H @ op.phi @ op.M @ op.phi.T @ op.H.T + op.armature  # of the geared motors
x = jnp.arange(1.0, 7.0)

print(Mass, "in", Mass.sweeps, "sweeps; its inverse:", soa.simplify(Mass.inv))
error = jnp.abs(Mass @ x - soa.mass_matrix(robot, q) @ x).max()
inverse_error = jnp.abs(soa.simplify(Mass.inv) @ x - jnp.linalg.solve(soa.mass_matrix(robot, q), x)).max()
print(f"differs from soa.mass_matrix by {error:.1e}, its inverse by {inverse_error:.1e}")
assert error < 1e-12 and inverse_error < 1e-9
