"""jaxsoa as installed; `--devices n` shares a batch out over n CPU devices by `jax.shard_map`.

`--latency`: with `soa.low_latency_cpu()`, for one evaluation at a time.
"""

from __future__ import annotations

import argparse

from worker import serve


def start():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=None)
    parser.add_argument("--latency", action="store_true")
    options = parser.parse_args()
    devices = options.devices

    import jaxsoa as soa

    if options.latency:  # before JAX has computed anything
        soa.low_latency_cpu()
    elif devices is not None:
        soa.fast_cpu(devices=devices)

    import importlib.metadata

    import jax
    import jax.numpy as jnp
    from cases import ROLLOUT_DT, ROLLOUT_STEPS
    from jax.sharding import NamedSharding, PartitionSpec
    from jax_contender import Dynamics, JaxContender

    def load(urdf: str, floating: bool) -> Dynamics:
        robot = soa.load_urdf(urdf, floating_base=floating, validate="off").frictionless()
        robot = robot.replace(armature=jnp.zeros_like(robot.armature))
        if not jax.config.jax_enable_x64:
            robot = robot.astype(jnp.float32)

        def rollout(q, v):
            last = soa.rollout(robot, q, v, None, ROLLOUT_DT, steps=ROLLOUT_STEPS, record="final")
            return last.q

        return Dynamics(
            family="body",
            joints=[name for name in robot.joint_names if name != "floating_base"],
            forward=lambda q, v, tau: soa.forward_dynamics(robot, q, v, tau),
            inverse=lambda q, v, a: soa.inverse_dynamics(robot, q, v, a),
            mass=lambda q: soa.mass_matrix(robot, q),
            linearize=lambda q, v, tau: tuple(soa.linearize_forward_dynamics(robot, q, v, tau)),
            rollout=rollout,
        )

    try:
        version = importlib.metadata.version("jaxsoa")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        version = "source tree"
    if options.latency:
        return JaxContender(version, "soa.low_latency_cpu()", load, most=1)
    if devices is None:
        return JaxContender(version, "as installed", load)
    mesh = jax.make_mesh((devices,), ("batch",))
    along = PartitionSpec("batch")

    def wrap(function):
        return jax.shard_map(jax.vmap(function), mesh=mesh, in_specs=along, out_specs=along, check_vma=False)

    def place(x):
        return jax.device_put(x, NamedSharding(mesh, along))

    return JaxContender(version, f"soa.fast_cpu(devices={devices}), jax.shard_map", load, wrap, place, devices)


if __name__ == "__main__":
    serve(start)
