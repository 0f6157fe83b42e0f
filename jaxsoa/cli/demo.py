"""A batch of PUMA 560 arms falls freely: simulated in parallel, its energy watched, its analytical linearization
compared with the automatic one, and its motion drawn. Takes less than a minute; exits with 1 if a check fails.

examples:
  jaxsoa demo
  jaxsoa demo --batch 1024 --seconds 2 --output demo.gif
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from jaxsoa.cli import tables
from jaxsoa.simulate.progress import ProgressBar
from jaxsoa.viz.pictures import FILMS, STILLS, check_library

HELP = "simulate and check a built-in arm, and draw it"
DT, CHUNK = 1e-3, 50
MAX_BATCH, MAX_SECONDS = 1_000_000, 1000.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=int, default=256, help="robots simulated at once (default 256)")
    parser.add_argument("--seconds", type=float, default=1.0, help="simulated time (default 1)")
    parser.add_argument(
        "-o", "--output", type=Path, help="picture (.png) or film (.gif, .mp4); by default jaxsoa-demo.png, each time"
    )
    tables.configure(parser)


def run(options: argparse.Namespace) -> int:
    if not (1 <= options.batch <= MAX_BATCH and 0 < options.seconds <= MAX_SECONDS):
        raise ValueError(f"--batch must be from 1 to {MAX_BATCH}, and --seconds positive and at most {MAX_SECONDS:g}.")
    own = Path("jaxsoa-demo.png")
    force = options.force or (options.output is None and not own.is_symlink())  # its own picture of the last time
    options.output = options.output or own
    tables.check_output(options.output, STILLS + FILMS, force=force)
    check_library(options.output)
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    import jaxsoa as soa

    began = time.perf_counter()
    robot = soa.models.puma560()
    print(f"{robot.name}: {robot.n_links} links; jax {jax.__version__} on {jax.devices()[0].platform}")
    q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), options.batch))
    q = q.at[0].set(jnp.asarray([0.3, 1.9, -0.6, 0.2, 0.5, 0.1]))  # the one that is drawn: upper arm raised
    v = jnp.zeros((options.batch, robot.nv))
    chunks = max(1, round(options.seconds / DT / CHUNK))

    @jax.jit
    def advance(q, v):
        states = jax.vmap(lambda q, v: soa.rollout(robot, q, v, None, DT, steps=CHUNK, integrator="rk4"))(q, v)
        return states.q[:, -1], states.v[:, -1], states.q[0, 9::10]

    energy = jax.jit(jax.vmap(lambda q, v: soa.kinetic_energy(robot, q, v) + soa.potential_energy(robot, q)))
    before, drawn = energy(q, v), [q[:1]]
    start = time.perf_counter()
    compiled = advance.lower(q, v).compile()
    compile_time, start = time.perf_counter() - start, time.perf_counter()
    bar = ProgressBar(chunks, f"simulating {options.batch} arms")
    for number in range(chunks):
        q, v, seen = compiled(q, v)
        drawn.append(seen)
        jax.block_until_ready(q)
        bar.update(number + 1)
    run_time = time.perf_counter() - start
    drift = float(jnp.max(jnp.abs(energy(q, v) - before)) / jnp.max(jnp.abs(before)))

    state = (q[0], v[0], jnp.ones(robot.nv))
    analytical = jax.jit(soa.linearize_forward_dynamics)(robot, *state)
    automatic = jax.jit(jax.jacfwd(lambda dq: soa.forward_dynamics(robot, robot.integrate(state[0], dq), *state[1:])))
    exact = automatic(jnp.zeros(robot.nv))
    error = float(jnp.max(jnp.abs(analytical.wrt_q - exact)) / jnp.max(jnp.abs(exact)))

    steps = options.batch * chunks * CHUNK
    print(f"compiled in {compile_time:.1f} s; {steps} Runge-Kutta steps of single arms in {run_time:.2f} s")
    evaluation = 1e6 * run_time / (4 * steps)
    print(f"that is {steps / run_time:,.0f} per second, of four evaluations of the dynamics at {evaluation:.2f} us,")
    print("on all cores, with states written out; `jaxsoa benchmark` times evaluations alone, in batches of 1024")
    print(f"energy drift over {chunks * CHUNK * DT:g} s without torques: {drift:.1e} of the energy")
    print(f"analytical against automatic linearization: relative difference {error:.1e}")
    motion = np.asarray(jnp.concatenate(drawn))
    with tables.written_at_once(options.output) as partial:
        if partial.suffix in STILLS:
            soa.viz.picture(robot, motion, partial)
        else:
            soa.viz.film(robot, motion, partial, dt=10 * DT)
    print(f"picture: {options.output.resolve()}")
    print(f"all in {time.perf_counter() - began:.1f} s")
    return 0 if error < 1e-8 and drift < 1e-3 else 1
