"""A Panda draws a circle with its hand: computed forces in operational space, posture damped in the null space."""

import jax
import jax.numpy as jnp
from robot_files import PANDA

import jaxsoa as soa

hand = "panda_hand"
robot = soa.load_urdf(PANDA).lock(["panda_finger_joint1", "panda_finger_joint2"])
q, v = jnp.array([0.0, -0.5, 0.0, -2.0, 0.0, 1.6, 0.8]), jnp.zeros(7)
center = soa.frame_pose(robot, q, hand)[1] - jnp.array([0.0, 0.1, 0.0])
circle = lambda t: center + 0.1 * jnp.stack([0 * t, jnp.cos(2 * t), jnp.sin(2 * t)])  # noqa: E731


def control(time, q, v):
    s = soa.operational_space_dynamics(robot, q, v, hand)
    x, twist = soa.frame_pose(robot, q, hand)[1], s.jacobian @ v
    wanted, rate = jax.jvp(circle, (time,), (jnp.ones_like(time),))
    linear = 400.0 * (wanted - x) + 40.0 * (rate - twist[3:]) - 4.0 * (wanted - center)
    force = s.inertia @ jnp.concatenate([-20.0 * twist[:3], linear]) + s.coriolis + s.gravity
    return s.jacobian.T @ force + (jnp.eye(7) - s.jacobian.T @ s.inverse.T) @ (-2.0 * v)


motion = jax.jit(lambda q, v: soa.rollout(robot, q, v, control, 2e-3, steps=1600))(q, v)
drawn = jax.vmap(lambda q: soa.frame_pose(robot, q, hand)[1])(motion.q)
error = jnp.abs(jnp.linalg.norm(drawn - center, axis=1) - 0.1)[800:].max()
print(f"the second half of the circle is round to {1000 * error:.2f} mm")
assert error < 1e-3
