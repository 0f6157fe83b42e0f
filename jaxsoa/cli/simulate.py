"""The motion goes to .npz (time, q, v, energy, joint names) or .csv (a column each); a picture to .png, .gif or .mp4.

examples:
  jaxsoa simulate puma560 --q random --seconds 2 -o motion.npz --picture motion.gif
  jaxsoa simulate robot.urdf --q "shoulder=0.5,elbow=-1" --tau hold -o motion.csv
  jaxsoa simulate pendulum:3 --q 1,0,0 --dt 0.002 --integrator implicit_midpoint -o motion.npz
  jaxsoa simulate quadruped.urdf --floating-base --q "floating_base=1,0,0,0,0,0,0.5" --ground 0.8 -o motion.npz
  jaxsoa view pendulum:3 --trajectory motion.npz
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from jaxsoa.cli import robots, states, tables
from jaxsoa.model.mimics import follow_mimics
from jaxsoa.simulate.integrators import INTEGRATORS
from jaxsoa.simulate.joint_limits import JointLimits
from jaxsoa.simulate.progress import ProgressBar
from jaxsoa.viz.pictures import FILMS, STILLS, check_library

HELP = "simulate a robot under constant torques and keep the motion"
CHUNKS = 50
#: Documented limit, of the motion in memory.
MAX_BYTES = 4 * 2**30


def configure(parser: argparse.ArgumentParser) -> None:
    robots.configure(parser)
    states.configure(parser, tau="zero")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float, default=1.0, help="simulated time (default 1)")
    length.add_argument("--steps", type=int, help="number of steps, instead of --seconds")
    parser.add_argument("--dt", type=float, default=1e-3, help="step in seconds (default 0.001)")
    parser.add_argument(
        "--integrator", choices=sorted(INTEGRATORS), help="default rk4, on the ground semi_implicit_euler"
    )
    parser.add_argument(
        "--ground",
        type=float,
        nargs="?",
        const=0.8,
        metavar="FRICTION",
        help="a plane z = 0 that the collision shapes of the robot's file touch, with this friction (default 0.8)",
    )
    parser.add_argument("--touching", metavar="LINKS", help="only the shapes of these links, names with commas between")
    parser.add_argument(
        "--mimics",
        default="coupled",
        choices=("coupled", "free"),
        help="mimic joints follow (default) or swing free",
    )
    parser.add_argument(
        "--limits",
        default="stops",
        choices=("stops", "ignored"),
        help="joint limits act as stiff, damped stops (default) or not at all",
    )
    parser.add_argument("-o", "--output", type=Path, help="motion.npz or motion.csv")
    parser.add_argument("--picture", type=Path, help="motion.png (ghosts of the past), motion.gif or motion.mp4")
    tables.configure(parser)


def run(options: argparse.Namespace) -> int:
    tables.check_output(options.output, force=options.force)
    tables.check_output(options.picture, STILLS + FILMS, force=options.force)
    if options.picture is not None:
        check_library(options.picture)  # now, not after the simulation
    if not 0 < options.dt < float("inf"):
        raise ValueError(f"--dt must be positive, got {options.dt}.")
    steps = _steps(options)
    states.use_precision(options)
    robot = robots.load(options)
    if 8 * steps * (robot.nq + robot.nv + 2) > MAX_BYTES:
        raise ValueError(f"{steps} steps of {robot.name!r} are more than the {MAX_BYTES} bytes that a motion may take.")
    scene = _scene(robot, options)
    options.integrator = options.integrator or ("rk4" if scene is None else "semi_implicit_euler")
    q, v, tau = states.state(robot, options)
    if options.mimics == "coupled":
        q, v = follow_mimics(robot, q, v)
    choices = {"integrator": options.integrator, "mimics": options.mimics, "contact": scene}
    choices["passive"] = _stops(robot, options)
    motion, seconds = _simulate(robot, q, v, tau, options.dt, steps, choices)
    return _report(robot, motion, seconds, options, scene)


def _steps(options: argparse.Namespace) -> int:
    steps = options.seconds / options.dt if options.steps is None else options.steps
    what = "--seconds" if options.steps is None else "--steps"
    if not 0.5 < steps:
        raise ValueError(f"The simulation must have at least one step: {what} is too small, or no number.")
    if not steps < MAX_BYTES:
        raise ValueError(f"The simulation must have an end: {what} of {getattr(options, what[2:])} is too much.")
    return round(steps)


def _scene(robot, options: argparse.Namespace):
    """The ground, if there is one."""
    if options.ground is None:
        return None
    if not Path(options.robot).is_file():
        raise ValueError(f"--ground needs the collision shapes of a URDF or MJCF file; {options.robot} is not a file.")
    from jaxsoa import contact

    links = None if options.touching is None else [name.strip() for name in options.touching.split(",")]
    return contact.Scene(contact.points_of(robot, options.robot, links), contact.Plane(), options.ground)


def _stops(robot, options: argparse.Namespace) -> tuple:
    """The joint limits as passive forces, where there are any."""
    limited = np.isfinite(robot.limits.lower).any() or np.isfinite(robot.limits.upper).any()
    return (JointLimits().for_step(robot, options.dt),) if options.limits == "stops" and limited else ()


def _simulate(robot, q, v, tau, dt: float, steps: int, choices: dict) -> tuple[dict[str, np.ndarray], float]:
    """Times, states and energies, the start included; and the seconds it took after compilation."""
    import jax
    import jax.numpy as jnp

    import jaxsoa as soa

    chunk = -(-steps // CHUNKS)
    torques = jnp.broadcast_to(tau, (chunk, robot.nv))

    @jax.jit
    def advance(q, v):
        states = soa.rollout(robot, q, v, torques, dt, **choices)
        energy = jax.vmap(lambda q, v: soa.kinetic_energy(robot, q, v) + soa.potential_energy(robot, q))
        return states.q, states.v, energy(states.q, states.v)

    energy = jax.jit(lambda q, v: soa.kinetic_energy(robot, q, v) + soa.potential_energy(robot, q))
    compiled = advance.lower(q, v).compile()
    parts = [(q[None], v[None], energy(q, v)[None])]
    count = -(-steps // chunk)
    bar = ProgressBar(count, f"simulating {steps} steps")
    began = time.perf_counter()
    for number in range(count):
        last = parts[-1]
        parts.append(compiled(last[0][-1], last[1][-1]))
        jax.block_until_ready(parts[-1])
        bar.update(number + 1)
    spent = time.perf_counter() - began
    # The last chunk may go past the end.
    q, v, e = (np.concatenate([np.asarray(part[k]) for part in parts])[: steps + 1] for k in range(3))
    return {"time": np.arange(steps + 1) * dt, "q": q, "v": v, "energy": e}, spent


def _report(robot, motion: dict[str, np.ndarray], seconds: float, options: argparse.Namespace, scene) -> int:
    q, v, energy = motion["q"], motion["v"], motion["energy"]
    steps = len(q) - 1
    finite = np.isfinite(q).all(axis=1) & np.isfinite(v).all(axis=1)
    print(f"{robot.name}: {steps} steps of {options.dt:g} s ({options.integrator}) in {seconds:.2f} s")
    if options.output is not None:
        if options.output.suffix.lower() == ".npz":
            names = {"joint_names": np.array(robot.joint_names), "robot": np.array(options.robot)}
            tables.write_npz(options.output, **motion, **names)
        else:
            q_names, v_names = tables.coordinate_names(robot)
            columns = {"time": motion["time"], **dict(zip(q_names, q.T, strict=True))}
            tables.write_csv(options.output, {**columns, **dict(zip(v_names, v.T, strict=True)), "energy": energy})
        print(f"motion: {options.output.resolve()}")
    if not finite.all():
        when = motion["time"][int(np.argmin(finite))]
        print(f"the motion diverged at {when:g} s: try a smaller --dt or another --integrator")
        return 1
    change = float(energy[-1] - energy[0])
    print(f"energy: {energy[0]:.6g} J at first, {energy[-1]:.6g} J at last (change {change:+.2e} J)")
    print(f"q at last: {np.array2string(q[-1], precision=4, suppress_small=True, max_line_width=100)}")
    beyond = _beyond_limits(robot, q)
    if beyond and options.limits == "stops":
        print(f"at their limits, or past them by what the stops give: {', '.join(beyond)}")
    elif beyond:
        print(f"beyond their limits, which were not enforced: {', '.join(beyond)}")
    if options.picture is not None:
        with robots.plain_warnings(), tables.written_at_once(options.picture) as partial:
            _draw(robot, q, partial, options, scene)
        print(f"picture: {options.picture.resolve()}")
    return 0


def _beyond_limits(robot, q: np.ndarray) -> list[str]:
    """Joints of one coordinate that leave their range at some time."""
    lower, upper = (np.asarray(x) for x in (robot.limits.lower, robot.limits.upper))
    names = []
    for joint in robot.joint_names:
        where, dof = robot.q_index(joint), robot.v_index(joint)
        if where.stop - where.start == dof.stop - dof.start == 1:
            x = q[:, where]
            if (x < lower[dof]).any() or (x > upper[dof]).any():
                names.append(joint)
    return names


def _draw(robot, q: np.ndarray, path: Path, options: argparse.Namespace, scene) -> None:
    from jaxsoa import viz

    shapes = robots.urdf_path(options)
    if path.suffix.lower() in STILLS:
        viz.picture(robot, q, path, shapes=shapes, contact=scene)
        return
    bar: list[ProgressBar] = []

    def progress(done: int, total: int) -> None:
        if not bar:
            bar.append(ProgressBar(total, "drawing frames"))
        bar[0].update(done)

    viz.film(robot, q, path, dt=options.dt, shapes=shapes, contact=scene, progress=progress)
