"""Poses of a Panda's hand that can be reached, and the joint angles that reach them, a hundred at once."""

import jax
import jax.numpy as jnp
from robot_files import PANDA

import jaxsoa as soa

hand = "panda_hand"
robot = soa.load_urdf(PANDA).lock(["panda_finger_joint1", "panda_finger_joint2"])
middle = (robot.limits.lower + robot.limits.upper) / 2
secret = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), 100))
poses = jax.vmap(lambda q: soa.frame_pose(robot, q, hand))(secret)

found = jax.jit(jax.vmap(lambda pose: soa.inverse_kinematics(robot, middle, hand, pose)))(poses)
R, p = jax.vmap(lambda q: soa.frame_pose(robot, q, hand))(found.q)
error = jnp.linalg.norm(p - poses[1], axis=1)[found.success].max()
inside = ((found.q >= robot.limits.lower - 1e-6) & (found.q <= robot.limits.upper + 1e-6)).all()
print(f"{int(found.success.sum())} of 100 reached, to {1000 * error:.1e} mm, all inside the limits: {bool(inside)}")
assert found.success.sum() >= 95 and error < 1e-3 and inside
