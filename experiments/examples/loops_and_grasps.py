"""A four-bar linkage swings and keeps its energy; two arms hold a box within the friction of their fingers."""

import jax
import jax.numpy as jnp

import jaxsoa as soa
from jaxsoa import closed_chain as cc

jax.config.update("jax_enable_x64", True)
robot, loops, guess = cc.mechanisms.four_bar()
q, v = jax.jit(cc.close_loops)(robot, loops, guess), jnp.zeros(robot.nv)
motion = jax.jit(lambda q: soa.rollout(robot, q, v, None, 2e-3, steps=500, integrator="rk4", loops=loops))(q)
energy = jax.vmap(lambda q, v: soa.kinetic_energy(robot, q, v) + soa.potential_energy(robot, q))(*motion)
print(f"four-bar: in a second its energy changes by {jnp.ptp(energy):.1e} J")
assert jnp.ptp(energy) < 1e-5

fingers = [cc.SoftFinger((-side, 0, 0), friction=0.8, torsion=0.05) for side in (-1.0, 1.0)]
system, q, pose = cc.mechanisms.two_arm_grasp(fingers)
still = [jnp.zeros(7)] * 2
tau = jax.jit(lambda q: cc.grasp_inverse_dynamics(system, q, still, still, pose, squeeze=40.0).tau)(q)
held = jax.jit(lambda q, tau: cc.grasp_forward_dynamics(system, q, still, tau, pose))(q, tau)
margin = cc.friction_report(system, held.contact_forces, pose).friction_margin.min()
print(f"grasp: the box accelerates by {jnp.abs(held.object_acceleration).max():.1e}, friction to spare: {margin:.2f} N")
assert jnp.abs(held.object_acceleration).max() < 1e-8 and margin > 0
