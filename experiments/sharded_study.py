"""One study, three ways: one process, eight virtual CPU devices, two processes joined by `jax.distributed`.

    python experiments/sharded_study.py                                 all three, compared; one killed and resumed
    python experiments/sharded_study.py run --folder out                one process, one device
    python experiments/sharded_study.py run --folder out --devices 8    eight virtual devices
    python experiments/sharded_study.py run --folder out --processes 2  two processes, talking over the loopback

The study: arms with different link masses, centres of mass, dampings and starts swing down against their joint limits;
for each the final state, its energy and the gradient of a cost of the final state by the masses, and for each chunk the
gradient of the mean cost (summed over devices and processes). Killed at any moment, the same command goes on.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("compare", "run"), default="compare")
    parser.add_argument("--folder", type=Path, help="where the results go (compare: a temporary one)")
    parser.add_argument("--robots", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--links", type=int, default=4)
    parser.add_argument("--chunk", type=int, default=32)
    parser.add_argument("--no-gradient", action="store_true", help="leave the gradients out (compiles faster)")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait before each chunk but the first")
    parser.add_argument("--devices", type=int, default=1, help="virtual CPU devices of each process")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, help="which of the processes this is; without it, all are started here")
    parser.add_argument("--coordinator", help="host:port of process 0")
    return parser.parse_args()


def study(options: argparse.Namespace) -> None:
    """This process's part of the study."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={options.devices}"
    os.environ["XLA_FLAGS"] = flags  # JAX reads it when it is first used
    import jax

    jax.config.update("jax_enable_x64", True)
    if options.processes > 1:  # before anything else of JAX; on CPUs the processes talk by gloo
        jax.distributed.initialize(options.coordinator, options.processes, options.process)
    import jax.numpy as jnp

    import jaxsoa as soa
    from jaxsoa import simulate

    mesh = simulate.device_mesh()
    if jax.process_index() == 0:
        print(f"{mesh.size} devices, {jax.process_count()} processes", file=sys.stderr, flush=True)

    plain = soa.models.chain(options.links)
    bound = jnp.full(plain.nv, 1.5)
    robot = plain.replace(limits=soa.Limits(-bound, bound, plain.limits.velocity, plain.limits.effort))
    stops = simulate.JointLimits(stiffness=200.0, damping=2.0, width=0.05)

    def draw(index):
        """Robot and start number `index`: they depend on nothing else, neither chunk nor device."""
        keys = jax.random.split(jax.random.fold_in(jax.random.key(7), index), 5)
        mass = robot.mass * jax.random.uniform(keys[0], robot.mass.shape, minval=0.5, maxval=2.0)
        com = robot.com * jax.random.uniform(keys[1], (robot.n_links, 1), minval=0.8, maxval=1.2)
        damping = jax.random.uniform(keys[2], (robot.nv,), maxval=0.1)
        start = jax.random.uniform(keys[3], (robot.nq,), minval=-1, maxval=1), jax.random.normal(keys[4], (robot.nv,))
        return robot.replace(mass=mass, com=com, damping=damping), start

    def simulated(scale, index):
        one, (q, v) = draw(index)
        one = one.replace(mass=one.mass * scale)
        last = soa.rollout(one, q, v, None, 2e-3, steps=options.steps, passive=stops, record="final")
        return jnp.sum(last.q**2) + 0.01 * jnp.sum(last.v**2), (one, last)

    def one_robot(scale, index):
        if options.no_gradient:
            (value, (one, last)), gradient = simulated(scale, index), jnp.zeros_like(scale)
        else:
            (value, (one, last)), gradient = jax.value_and_grad(simulated, has_aux=True)(scale, index)
        energy = soa.kinetic_energy(one, *last) + soa.potential_energy(one, last.q) + stops.energy(one, last.q)
        return {"q": last.q, "v": last.v, "energy": energy, "cost": value, "gradient": gradient}

    each = simulate.sharded_map(one_robot, mesh=mesh)
    mean = jax.jit(lambda x: jnp.mean(x, axis=0, keepdims=True))  # a sum over devices and processes
    scale = jnp.ones(robot.n_links)

    def compute(indices):
        time.sleep(options.pause if indices[0] else 0)
        results = each(scale, indices)
        means = {f"mean_{name}": mean(results[name]) for name in ("cost", "gradient")}
        return {"index": indices, **results, **means}

    settings = {"robot": robot.name, "links": options.links, "steps": options.steps, "dt": 2e-3}
    settings["gradient"] = not options.no_gradient
    result = simulate.run_study(compute, options.robots, options.folder, chunk=options.chunk, settings=settings)
    if jax.process_index() == 0:
        print(f"results in {result}", file=sys.stderr, flush=True)


def command_line(options: argparse.Namespace, folder: Path, *more: str) -> list[str]:
    same = [f"--{name}={getattr(options, name)}" for name in ("robots", "steps", "links", "chunk")]
    same += ["--no-gradient"] if options.no_gradient else []
    return [sys.executable, __file__, "run", "--folder", str(folder), *same, *more]


def start_processes(options: argparse.Namespace) -> int:
    """All processes of a study on this machine, joined over the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    more = [f"--devices={options.devices}", f"--processes={options.processes}", f"--coordinator={address}"]
    more.append(f"--pause={options.pause}")
    lines = [command_line(options, options.folder, *more, f"--process={k}") for k in range(options.processes)]
    running = [subprocess.Popen(line) for line in lines]
    try:
        while any(process.poll() is None for process in running):
            if any(process.poll() for process in running):  # one failed: the others would wait for it
                break
            time.sleep(0.05)
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
    return max(abs(process.wait()) for process in running)


def compare(options: argparse.Namespace) -> None:
    """Run the study all three ways, and once killed and resumed; print what differs."""
    import numpy as np

    base = options.folder or Path(tempfile.mkdtemp(prefix="sharded_study_"))
    ways = {"one": (), "eight_devices": ("--devices=8",), "two_processes": ("--processes=2",)}
    for name, more in ways.items():
        began = time.monotonic()
        subprocess.run(command_line(options, base / name, *more), check=True)
        print(f"{name}: {time.monotonic() - began:.1f} s")
    reference = dict(np.load(base / "one" / "result.npz"))
    for name in ways:
        other = dict(np.load(base / name / "result.npz"))
        worst = max(np.abs(other[k] - x).max() / max(1.0, np.abs(x).max()) for k, x in reference.items())
        print(f"{name}: largest relative difference from one process {worst:.1e}")
        assert worst < 1e-12

    killed = base / "killed"
    process = subprocess.Popen(command_line(options, killed, "--pause=0.2"))
    while not list(killed.glob("chunk_*.npz")):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    print(f"killed with {len(list(killed.glob('chunk_*.npz')))} chunks saved, exit status {process.returncode}")
    subprocess.run(command_line(options, killed), check=True)
    same = (killed / "result.npz").read_bytes() == (base / "one" / "result.npz").read_bytes()
    print(f"resumed: the file is {'byte for byte that' if same else 'NOT that'} of the unbroken run")
    assert same


def main() -> int:
    options = parse()
    if options.command == "compare":
        compare(options)
    elif options.folder is None:
        sys.exit("run needs --folder")
    elif options.processes > 1 and options.process is None:
        return start_processes(options)
    else:
        study(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
