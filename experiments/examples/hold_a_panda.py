"""Load a Panda from its URDF file and hold a posture by gravity compensation and a PD law."""

import jax
import jax.numpy as jnp
from robot_files import PANDA

import jaxsoa as soa

robot = soa.load_urdf(PANDA)
print(robot.table())
posture = robot.q_from({"panda_joint2": -0.5, "panda_joint4": -2.0, "panda_joint6": 1.6})
still = jnp.zeros(robot.nv)
gravity = soa.inverse_dynamics(robot, posture, still, still)


def control(time, q, v):
    return gravity + 50.0 * (posture - q) - 5.0 * v


pushed = posture.at[1].add(0.2)
simulate = jax.jit(lambda q: soa.rollout(robot, q, still, control, 1e-3, steps=5000))
motion = simulate(pushed)
error = jnp.abs(motion.q[-1] - posture).max()
print(f"five seconds after a push of 0.2 rad it is {error:.1e} rad from its posture")
assert error < 1e-2
