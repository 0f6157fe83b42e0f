"""Run by test_sharding.py in a process of its own: everything sharded against plain vmap, on the devices there are."""

from __future__ import annotations

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import jaxsoa as soa  # noqa: E402
from jaxsoa import contact, simulate  # noqa: E402

BATCH, STEPS, DT = 11, 5, 0.01  # eleven robots: no multiple of eight devices


def close(actual, expected, tolerance=1e-12):
    actual, expected = simulate.to_host(actual), simulate.to_host(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), actual, expected)


def check(devices: int) -> None:
    assert jax.device_count() == devices, jax.devices()
    robot = soa.models.pendulum(2)
    rng = np.random.default_rng(0)
    q, v = rng.normal(size=(BATCH, 2)), rng.normal(size=(BATCH, 2))
    torques = rng.normal(size=(BATCH, STEPS, 2))
    robots = jax.vmap(lambda s: robot.replace(mass=robot.mass * s))(jnp.linspace(0.5, 2.0, BATCH))

    # One robot and a batch of robots; torques given, and none; chunks on each device.
    plain = jax.jit(jax.vmap(lambda r, q, v, tau: soa.rollout(r, q, v, tau, DT)))(robots, q, v, torques)
    spread = soa.sharded_rollout(robots, q, v, torques, DT)
    assert spread.q.shape == (BATCH, STEPS, 2)
    close(spread, plain)
    falling = jax.jit(jax.vmap(lambda q, v: soa.rollout(robot, q, v, None, DT, steps=STEPS, record="final")))(q, v)
    last = soa.sharded_rollout(robot, q[:8], v[:8], None, DT, steps=STEPS, record="final", chunk=1)
    close(last, jax.tree.map(lambda x: x[:8], falling))
    assert len(last.q.sharding.device_set) == devices  # it did run on all of them

    # Gradients by what is shared (summed over devices) and by what each robot has of its own, two ways: through the
    # sharded rollout, and by each device on its own part; and both against differences.
    def cost(mass, q, v):
        last = soa.rollout(robot.replace(mass=mass), q, v, None, DT, steps=STEPS, record="final")
        return jnp.sum(last.q**2)

    def mean(mass, q):
        last = soa.sharded_rollout(robot.replace(mass=mass), q, v, None, DT, steps=STEPS, record="final")
        return jnp.mean(jnp.sum(last.q**2, axis=1))

    through, by_start = jax.jit(jax.grad(mean, argnums=(0, 1)))(robot.mass, jnp.asarray(q))
    value, inside = simulate.sharded_value_and_grad(cost, chunk=1)(robot.mass, q, v)
    close((value, inside), (jnp.mean(jnp.sum(falling.q**2, axis=1)), through))
    compiled, h = jax.jit(mean), 1e-5
    along = rng.normal(size=2), rng.normal(size=(BATCH, 2))
    ahead, behind = (compiled(robot.mass + s * along[0], q + s * along[1]) for s in (h, -h))
    slope = np.vdot(through, along[0]) + np.vdot(by_start, along[1])
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * h), rtol=1e-7)

    # Down to the ground: the open loops of the contact solver on each device.
    scene = contact.Scene(contact.Points("tip"), contact.Plane(height=-1.5), 0.4)
    hanging = 0.3 * q

    def touching(q, v):
        return soa.rollout(robot, q, v, None, DT, steps=STEPS, contact=scene, record="final")

    close(
        soa.sharded_rollout(robot, hanging, v, None, DT, steps=STEPS, contact=scene, record="final"),
        jax.jit(jax.vmap(touching))(hanging, v),
        1e-9,
    )
    print(f"{devices} devices: all equal")


if __name__ == "__main__":
    import sys

    check(int(sys.argv[1]))
