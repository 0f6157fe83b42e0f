"""How soon there is an answer: `import jaxsoa`, calls outside of `jax.jit`, a function from an exported file.

    python experiments/first_answers.py [--only import calls exported] [--robot robot.urdf] [--functions NAME ...]

`import` is beyond `import jax`, in fresh interpreters, and in processor time too, for busy
machines. `calls`, as one types them: the first of a function traces and compiles, the third should take little longer
than its arithmetic. `exported` (needs the extra "export"): from the start of the work, JAX imported, to the first
accelerations, each way in a process of its own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import jaxsoa as soa  # noqa: E402

PARTS = ("import", "calls", "exported")
IMPORT = """
import time
def now(): return time.perf_counter(), time.process_time()
before = now(); import jax, jax.numpy
middle = now(); import jaxsoa
after = now()
print(*(b - a for a, b in zip(before + middle, middle + after)))
"""
SETUP = """
import time, jax, jax.export, numpy as np
jax.config.update("jax_enable_x64", True)
cache = {cache!r}
if cache:
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.numpy.zeros(1).block_until_ready()
state = np.zeros(6), np.zeros(6), np.ones(6)
start = time.perf_counter()
"""
TRACED = """
import jaxsoa as soa
robot = soa.models.puma560()
a = jax.jit(lambda q, v, tau: soa.forward_dynamics(robot, q, v, tau))(*state).block_until_ready()
"""
LOADED = """
from pathlib import Path
program = jax.export.deserialize(bytearray(Path({path!r}).read_bytes()))
a = jax.jit(program.call)(*state).block_until_ready()
"""
REPORT = """
print(time.perf_counter() - start)
"""


def printed(script: str) -> list[float]:
    """The numbers that a fresh interpreter prints."""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return [float(word) for word in out.split()]


def imports(repetitions: int = 9) -> None:
    runs = [printed(IMPORT) for _ in range(repetitions + 1)][1:]  # the first one warms the disk cache
    names = ("import jax, wall", "import jax, processor", "import jaxsoa, wall", "import jaxsoa, processor")
    for name, seconds in zip(names, zip(*runs, strict=True), strict=True):
        print(f"{name:26s} {min(seconds):.2f} s at least, {statistics.median(seconds):.2f} s the median of {len(runs)}")


def exported() -> None:
    def seconds(work: str, cache: str = "", path: str = "") -> float:
        return printed((SETUP + work + REPORT).format(cache=cache, path=path))[0]

    with tempfile.TemporaryDirectory() as folder:
        path, cache = str(Path(folder) / "forward.bin"), str(Path(folder) / "cache")
        begin = time.perf_counter()
        soa.export_function(path, soa.forward_dynamics, soa.models.puma560())
        print(f"exported in {time.perf_counter() - begin:.2f} s, {Path(path).stat().st_size / 1024:.0f} kB")
        print(f"imported, traced and compiled     {seconds(TRACED):6.2f} s to the first answer")
        print(f"loaded from the file, compiled    {seconds(LOADED, path=path):6.2f} s")
        seconds(LOADED, cache=cache, path=path)
        print(f"loaded from the file, warm cache  {seconds(LOADED, cache=cache, path=path):6.2f} s")


def calls(robot: soa.Multibody) -> dict:
    rng = np.random.default_rng(0)
    q = robot.random(0)
    v, a, tau = (jnp.asarray(rng.normal(size=robot.nv)) for _ in range(3))
    frame = robot.frame_names[-1]
    mask = jnp.arange(robot.nv) < 2
    torques = jnp.zeros((100, robot.nv))
    bar, loops, closed = soa.closed_chain.mechanisms.four_bar()
    still, push = jnp.zeros(bar.nv), jnp.ones(bar.nv)
    system, held, pose = soa.closed_chain.mechanisms.two_arm_grasp()
    rest = [jnp.zeros_like(x) for x in held]
    scene = soa.contact.Scene(soa.contact.Points(frame, radii=[0.05]), soa.contact.Plane(height=-2.0), 0.5)
    place = soa.frame_pose(robot, q, frame)
    return {
        "forward_dynamics": lambda: soa.forward_dynamics(robot, q, v, tau),
        "inverse_dynamics": lambda: soa.inverse_dynamics(robot, q, v, a),
        "hybrid_dynamics": lambda: soa.hybrid_dynamics(robot, q, v, a, tau, mask),
        "mass_matrix": lambda: soa.mass_matrix(robot, q),
        "mass_matrix_inverse": lambda: soa.mass_matrix_inverse(robot, q),
        "mass_matrix_logdet": lambda: soa.mass_matrix_logdet(robot, q),
        "solve_mass_matrix": lambda: soa.solve_mass_matrix(robot, q, v),
        "mass_times": lambda: soa.mass_times(robot, q, v),
        "inertia_factor": lambda: soa.inertia_factor(robot, q),
        "bias_force": lambda: soa.bias_force(robot, q, v),
        "forward_kinematics": lambda: soa.forward_kinematics(robot, q),
        "frame_pose": lambda: soa.frame_pose(robot, q, frame),
        "jacobian": lambda: soa.jacobian(robot, q, frame),
        "jacobian_bias": lambda: soa.jacobian_bias(robot, q, v, frame),
        "link_velocities": lambda: soa.link_velocities(robot, q, v),
        "link_accelerations": lambda: soa.link_accelerations(robot, q, v, a),
        "link_forces": lambda: soa.link_forces(robot, q, v, a),
        "kinetic_energy": lambda: soa.kinetic_energy(robot, q, v),
        "potential_energy": lambda: soa.potential_energy(robot, q),
        "momentum": lambda: soa.momentum(robot, q, v),
        "center_of_mass": lambda: soa.center_of_mass(robot, q),
        "coriolis_times": lambda: soa.coriolis_times(robot, q, v, a),
        "coriolis_matrix": lambda: soa.coriolis_matrix(robot, q, v),
        "operational_space_inertia": lambda: soa.operational_space_inertia(robot, q, frame),
        "operational_space_compliance": lambda: soa.operational_space_compliance(robot, q, frame),
        "operational_space_dynamics": lambda: soa.operational_space_dynamics(robot, q, v, frame),
        "regressor": lambda: soa.regressor(robot, q, v, a),
        "linearize_inverse_dynamics": lambda: soa.linearize_inverse_dynamics(robot, q, v, a),
        "linearize_forward_dynamics": lambda: soa.linearize_forward_dynamics(robot, q, v, tau),
        "linearize_hybrid_dynamics": lambda: soa.linearize_hybrid_dynamics(robot, q, v, a, tau, mask),
        "linearize_step": lambda: soa.linearize_step(robot, q, v, tau, 1e-3),
        "loop_forward_dynamics": lambda: soa.closed_chain.loop_forward_dynamics(bar, loops, closed, still, push),
        "close_loops": lambda: soa.closed_chain.close_loops(bar, loops, closed),
        "grasp_forward_dynamics": lambda: soa.closed_chain.grasp_forward_dynamics(system, held, rest, rest, pose),
        "contact.step": lambda: soa.contact.step(robot, scene, q, v, tau, 1e-3),
        "inverse_kinematics": lambda: soa.inverse_kinematics(robot, q + 0.1, frame, place),
        "integrate": lambda: robot.integrate(q, v),
        "difference": lambda: robot.difference(q, q),
        "step": lambda: soa.step(robot, q, v, tau, 1e-3),
        "rollout, 100 steps": lambda: soa.rollout(robot, q, v, torques, 1e-3),
        "rollout, 100 steps, controller": lambda: soa.rollout(robot, q, v, brake, 1e-3, steps=100),
    }


def brake(time, q, v):
    return -v


def seconds_of(call) -> float:
    begun = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begun


def time_calls(robot: soa.Multibody, chosen: list[str]) -> None:
    print(f"{robot!r}, float64; milliseconds")
    print(f"{'':34}{'first':>10}{'third':>10}")
    for name, call in calls(robot).items():
        if not chosen or name in chosen:
            first, _, *rest = (seconds_of(call) for _ in range(6))
            print(f"{name:34}{1e3 * first:10.1f}{1e3 * min(rest):10.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="which of the three")
    parser.add_argument("--robot", type=Path, help="a URDF file for `calls` (default: puma560)")
    parser.add_argument("--functions", nargs="*", default=[], help="which `calls`")
    options = parser.parse_args()
    if "import" in options.only:
        imports()
    if "calls" in options.only:
        time_calls(soa.load_urdf(options.robot) if options.robot else soa.models.puma560(), options.functions)
    if "exported" in options.only:
        exported()


if __name__ == "__main__":
    main()
