"""4,096 arms, each of other masses, simulated at once; each keeps its own energy."""

import time

import jax
import jax.numpy as jnp

import jaxsoa as soa

robot, number = soa.models.puma560(), 4096
keys = jax.random.split(jax.random.key(0), 2)
scales = jax.random.uniform(keys[0], (number, robot.n_links), minval=0.8, maxval=1.2)
starts = jax.vmap(robot.random)(jax.random.split(keys[1], number))


@jax.jit
@jax.vmap
def fall(scale, q):
    arm = robot.replace(mass=robot.mass * scale, inertia=robot.inertia * scale[:, None, None])
    end = soa.rollout(arm, q, jnp.zeros(arm.nv), None, 1e-3, steps=200, integrator="rk4", record="final")
    energies = [soa.kinetic_energy(arm, *s) + soa.potential_energy(arm, s[0]) for s in ((q, jnp.zeros(arm.nv)), end)]
    return end.q, energies[1] - energies[0]


q, change = jax.block_until_ready(fall(scales, starts))
began = time.perf_counter()
jax.block_until_ready(fall(scales, starts))
print(f"{number * 200 / (time.perf_counter() - began):,.0f} steps/s; energy changes by {jnp.abs(change).max():.1e} J")
assert jnp.abs(change).max() < 0.05 and jnp.std(q, axis=0).min() > 0
