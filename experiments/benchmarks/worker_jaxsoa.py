"""jaxsoa as installed; `--devices n` shares a batch out over n CPU devices by `jax.shard_map`.

`--fast`: with `soa.fast_cpu()`, which keeps freed memory. `--latency`: with `soa.low_latency_cpu()`, for one evaluation
at a time. `--form`: forward dynamics by sweeps of logarithmic depth ("parallel") or by the operator expression
M^-1 (tau - bias), linearization by `jax.jacfwd`. `--way`: the robot as an argument of `jit`, without `jit`, or an
addition of the same arguments ("empty").
"""

from __future__ import annotations

import argparse

from contenders import FORMS, WAYS
from worker import serve


def start():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=None)
    parser.add_argument("--latency", action="store_true")
    parser.add_argument("--form", choices=FORMS)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--fast", action="store_true")
    options = parser.parse_args()
    devices = options.devices

    import jaxsoa as soa

    if options.latency:  # before JAX has computed anything
        soa.low_latency_cpu()
    elif devices is not None:
        soa.fast_cpu(devices=devices)
    elif options.fast:
        soa.fast_cpu()

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
        return of(robot)

    def of(robot) -> Dynamics:
        def forward(q, v, tau):
            if options.form == "operators":
                return soa.operators(robot, q).Mass.inv @ (tau - soa.bias_force(robot, q, v))
            method = "parallel" if options.form == "parallel" else "articulated"
            return soa.forward_dynamics(robot, q, v, tau, method=method)

        def linearize(q, v, tau):
            return tuple(soa.linearize_forward_dynamics(robot, q, v, tau))

        def perturb(q, v, tau, a):
            return soa.forward_dynamics_perturbation(robot, q, v, tau, v, a, tau)

        def rollout(q, v):
            last = soa.rollout(robot, q, v, None, ROLLOUT_DT, steps=ROLLOUT_STEPS, record="final")
            return last.q

        def step(q, v):
            after = soa.step(robot, q, v, jnp.zeros(robot.nv, v.dtype), ROLLOUT_DT)
            return after.q, after.v

        return Dynamics(
            family="body",
            joints=[name for name in robot.joint_names if name != "floating_base"],
            forward=forward,
            inverse=lambda q, v, a: soa.inverse_dynamics(robot, q, v, a),
            mass=lambda q: soa.mass_matrix(robot, q),
            linearize=None if options.form == "jacfwd" else linearize,
            perturb=perturb,
            rollout=rollout,
            step=step,
            model=robot,
            of=of,
        )

    try:
        version = importlib.metadata.version("jaxsoa")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        version = "source tree"
    if options.latency:
        return JaxContender(version, "soa.low_latency_cpu()", load, most=1)
    if devices is None:
        settings = "soa.fast_cpu()" if options.fast else options.form or options.way or "as installed"
        return JaxContender(version, settings, load, way=options.way)
    mesh = jax.make_mesh((devices,), ("batch",))
    along = PartitionSpec("batch")

    def wrap(function):
        return jax.shard_map(jax.vmap(function), mesh=mesh, in_specs=along, out_specs=along, check_vma=False)

    def place(x):
        return jax.device_put(x, NamedSharding(mesh, along))

    return JaxContender(version, f"soa.fast_cpu(devices={devices}), jax.shard_map", load, wrap, place, devices)


if __name__ == "__main__":
    serve(start)
