"""The `jaxsoa` command."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from jaxsoa.model.description import ModelError

EXAMPLES = """examples:
  jaxsoa demo                     simulate and check a built-in arm, and draw it
  jaxsoa info robot.urdf          the tree, joints, masses and warnings of a robot file
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="jaxsoa",
        description="Differentiable multibody dynamics by the spatial operator algebra.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--traceback", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="simulate and check a built-in arm, and draw it")
    demo.add_argument("--batch", type=int, default=256, help="robots simulated at once (default 256)")
    demo.add_argument("--seconds", type=float, default=1.0, help="simulated time (default 1)")
    demo.add_argument("--output", type=Path, default=Path("jaxsoa-demo.svg"), help="where the picture goes")
    info = commands.add_parser("info", help="describe a URDF file")
    info.add_argument("urdf", type=Path)
    info.add_argument("--floating-base", action="store_true")
    options = parser.parse_args(arguments)
    try:
        return {"demo": _demo, "info": _info}[options.command](options)
    except (ModelError, OSError, ValueError) as error:
        if options.traceback:
            raise
        print(f"jaxsoa: {error}", file=sys.stderr)
        return 2


def _info(options: argparse.Namespace) -> int:
    import warnings

    from jaxsoa.io.load import load_urdf

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        robot = load_urdf(options.urdf, floating_base=options.floating_base)
    print(f"{robot.name}: {robot.n_links} moving links, nq {robot.nq}, nv {robot.nv}, mass {robot.mass.sum():.3f} kg")
    children: dict[int, list[int]] = {}
    for link, parent in enumerate(robot.topology.parents):
        children.setdefault(parent, []).append(link)
    stack = [(link, "") for link in reversed(children[-1])]
    while stack:
        link, indent = stack.pop()
        kind, mass = robot.topology.kinds[link], float(robot.mass[link])
        print(f"{indent}+- {robot.link_names[link]}  ({kind} {robot.joint_names[link]}, {mass:.3f} kg)")
        stack.extend((child, indent + "   ") for child in reversed(children.get(link, [])))
    for warning in caught:
        print(f"warning: {warning.message}")
    return 0


def _demo(options: argparse.Namespace) -> int:
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    import numpy as np

    import jaxsoa as soa
    from jaxsoa.drawing import draw_motion

    if options.batch < 1 or options.seconds <= 0:
        raise ValueError("--batch must be at least 1 and --seconds positive.")
    began = time.perf_counter()
    robot = soa.models.puma560()
    print(f"{robot.name}: {robot.n_links} links; jax {jax.__version__} on {jax.devices()[0].platform}")
    keys = jax.random.split(jax.random.key(0), options.batch)
    q = jax.vmap(robot.random)(keys)
    v = jnp.zeros((options.batch, robot.nv))
    dt, chunk = 1e-3, 50
    chunks = max(1, round(options.seconds / dt / chunk))

    @jax.jit
    def advance(q, v):
        last = jax.vmap(lambda q, v: soa.rollout(robot, q, v, None, dt, steps=chunk, integrator="rk4"))(q, v)
        return last.q[:, -1], last.v[:, -1]

    energy = jax.jit(jax.vmap(lambda q, v: soa.kinetic_energy(robot, q, v) + soa.potential_energy(robot, q)))
    before, frames = energy(q, v), [q[0]]
    start = time.perf_counter()
    compiled = advance.lower(q, v).compile()
    compile_time, start = time.perf_counter() - start, time.perf_counter()
    for number in range(chunks):
        q, v = compiled(q, v)
        frames.append(q[0])
        _progress(number + 1, chunks, f"simulating {options.batch} arms")
    jax.block_until_ready(q)
    run_time = time.perf_counter() - start
    drift = float(jnp.max(jnp.abs(energy(q, v) - before)))

    scale = float(jnp.max(jnp.abs(before)))
    state = (q[0], v[0], jnp.ones(robot.nv))
    analytical = jax.jit(soa.linearize_forward_dynamics)(robot, *state)
    automatic = jax.jit(jax.jacfwd(lambda dq: soa.forward_dynamics(robot, robot.integrate(state[0], dq), *state[1:])))
    exact = automatic(jnp.zeros(robot.nv))
    error = float(jnp.max(jnp.abs(analytical.wrt_q - exact)) / jnp.max(jnp.abs(exact)))

    poses = jax.jit(jax.vmap(lambda q: soa.forward_kinematics(robot, q).position))(jnp.stack(frames))
    draw_motion(np.asarray(poses), robot.topology.parents, options.output, title=f"{robot.name} falling freely")
    steps = options.batch * chunks * chunk
    rate = steps / run_time
    print(f"compiled in {compile_time:.1f} s; {steps} Runge-Kutta steps in {run_time:.2f} s, {rate:,.0f} per second")
    print(f"energy drift over {chunks * chunk * dt:g} s without torques: {drift / scale:.1e} of the energy")
    print(f"analytical against automatic linearization: relative difference {error:.1e}")
    print(f"picture: {options.output.resolve()}")
    print(f"all in {time.perf_counter() - began:.1f} s")
    return 0 if error < 1e-8 and drift / scale < 1e-3 else 1


def _progress(done: int, total: int, what: str) -> None:
    """A bar on a terminal; silent elsewhere."""
    if sys.stderr.isatty():
        filled = round(30 * done / total)
        end = "\n" if done == total else ""
        print(f"\r{what} [{'#' * filled}{'.' * (30 - filled)}] {done}/{total}", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
