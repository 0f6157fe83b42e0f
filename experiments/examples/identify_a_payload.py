"""What does the arm carry? Mass and centre of mass of a payload from the torques of one motion, with noise."""

import jax
import jax.numpy as jnp

import jaxsoa as soa
from jaxsoa import identify

jax.config.update("jax_enable_x64", True)
robot = soa.models.puma560()
hand = robot.link_names[-1]
loaded = robot.with_payload(hand, mass=1.5, com=(0.0, 0.02, 0.1), inertia=0.002 * jnp.eye(3))
motion = identify.random_trajectory(robot, acceleration=20.0, seed=1)
q, v, a = motion(jnp.linspace(0, 10, 500))
tau = jax.vmap(lambda *x: soa.inverse_dynamics(loaded, *x))(q, v, a)
tau = tau + 0.05 * jax.random.normal(jax.random.key(0), tau.shape)

# From the arm without a load, whose last link has 0.09 kg.
result = identify.fit(robot, identify.TorqueData(q, v, a, tau), free={"inertial": [hand]}, progress=False)
mass = result.estimate(lambda candidate: candidate.robot.mass[-1] - robot.mass[-1])
print(f"payload: {float(mass.value):.4f} +- {float(mass.std):.4f} kg; it is 1.5 kg")
assert result.converged and abs(mass.value - 1.5) < 4 * mass.std
