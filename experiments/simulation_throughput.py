"""4096 robots, 1,000 steps of semi-implicit Euler, float64: jaxsoa beside Pinocchio, frax and MJX, in one run.

    pip install -e ".[bench]" && python experiments/simulation_throughput.py

A 7-joint arm (frax's iiwa14, or --urdf) from 4096 random states under constant torques, without friction or limits.
Each contender is a process of its own with the settings its library recommends; end states are compared before anything
is timed, then they take turns and the minimum of the repetitions counts. Contenders:

- jaxsoa: `soa.fast_cpu()` and `jax.vmap` of `rollout`; `soa.fast_cpu(devices=cores)` and `sharded_map` of it;
- Pinocchio: per step one C++ loop over the batch (`abaInParallel`, one thread and one per core); positions and
  velocities are moved by NumPy, whose share is printed;
- frax: its dynamics in a `lax.scan` under `jax.vmap`, with the flags of its README (they keep XLA to one thread); the
  same in one process per core, each with its share of the robots (over two devices of one process its first run
  did not end within minutes);
- MJX, where asked for with --only: `mjx.step` likewise, contacts, limits and constraints switched off, over fewer steps
  (--mjx-steps): it takes minutes.

Peers that are not installed are left out, and said so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np

DT, SEED = 1e-3, 0
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
FRAX_FLAGS = "--xla_cpu_multi_thread_eigen=false --xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"
NAMES = {
    "jaxsoa": "jaxsoa, vmap",
    "jaxsoa-devices": f"jaxsoa, {CORES} devices",
    "pinocchio": "Pinocchio C++, 1 thread",
    "pinocchio-threads": f"Pinocchio C++, {CORES} threads",
    "frax": "frax, vmap",
    "frax-processes": f"frax, {CORES} processes",
    "mjx": "MJX, vmap",
}
QUICK = [name for name in NAMES if name != "mjx"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--mjx-steps", type=int, default=50)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--urdf", help="a fixed-base arm with revolute joints; frax's iiwa14 unless given")
    parser.add_argument("--only", nargs="*", choices=list(NAMES), default=QUICK, help="these contenders (all but mjx)")
    parser.add_argument("--worker", choices=list(NAMES), help=argparse.SUPPRESS)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    return parser.parse_args()


def steps_of(name: str, options: argparse.Namespace) -> int:
    return min(options.steps, options.mjx_steps) if name.startswith("mjx") else options.steps


# --- the contenders, each in its own process: (q0, v0, tau) -> a function that runs and returns the end states -------


def start_jaxsoa(name: str, options, q0, v0, tau, steps: int):
    import jaxsoa as soa

    devices = CORES if name.endswith("devices") else None
    soa.fast_cpu(devices=devices)
    import jax
    import jax.numpy as jnp

    robot = soa.load_urdf(options.urdf, validate="off").frictionless()
    robot = robot.replace(armature=jnp.zeros_like(robot.armature))
    keep = {"steps": steps, "record": "final"}
    if devices is None:
        one = jax.vmap(lambda robot, q, v, tau: soa.rollout(robot, q, v, lambda *_: tau, DT, **keep), (None, 0, 0, 0))
        run, arrays = jax.jit(one), tuple(map(jnp.asarray, (q0, v0, tau)))
    else:
        run = soa.simulate.sharded_map(
            lambda robot, q, v, tau: soa.rollout(robot, q, v, lambda *_: tau, DT, **keep),
            chunk=256,  # what `sharded_rollout` takes for an arm: stays in a core's cache
        )
        arrays = soa.simulate.shard_batch((q0, v0, tau))
    return lambda: jax.block_until_ready(run(robot, *arrays))


def start_pinocchio(name: str, options, q0, v0, tau, steps: int):
    import pinocchio as pin

    threads = CORES if name.endswith("threads") else 1
    model = pin.buildModelFromUrdf(options.urdf)
    model.armature[:] = 0
    pool = pin.ModelPool(model, threads)
    torque = np.asfortranarray(tau.T)

    def run():
        q, v = np.asfortranarray(q0.T.copy()), np.asfortranarray(v0.T.copy())
        a = np.zeros_like(v, order="F")
        began, inside = time.perf_counter(), 0.0
        for _ in range(steps):
            start = time.perf_counter()
            pin.abaInParallel(threads, pool, q, v, torque, a)
            inside += time.perf_counter() - start
            v += DT * a
            q += DT * v
        run.remark = f"{100 * (1 - inside / (time.perf_counter() - began)):.1f} % of it outside C++"
        return q.T, v.T

    return run


def batched(one, q0, v0, tau):
    import jax

    arrays, run = [jax.numpy.asarray(x) for x in (q0, v0, tau)], jax.jit(jax.vmap(one))
    return lambda: jax.block_until_ready(run(*arrays))


def start_frax(name: str, options, q0, v0, tau, steps: int):
    import frax
    from jax import lax

    arm = frax.Robot(options.urdf)

    def one(q, v, tau):
        def advance(state, _):
            q, v = state
            v = v + DT * arm.forward_dynamics(q, v, tau, None)
            return (q + DT * v, v), None

        return lax.scan(advance, (q, v), length=steps)[0]

    return batched(one, q0, v0, tau)


def start_mjx(name: str, options, q0, v0, tau, steps: int):
    import mujoco
    from jax import lax
    from mujoco import mjx

    tree = ElementTree.parse(options.urdf)
    for link in tree.iter("link"):  # meshes are neither here nor wanted
        for shape in (*link.findall("visual"), *link.findall("collision")):
            link.remove(shape)
    model = mujoco.MjModel.from_xml_string(ElementTree.tostring(tree.getroot(), encoding="unicode"))
    assert model.nv == q0.shape[1], "MuJoCo sees other joints"
    model.opt.timestep, model.opt.integrator = DT, mujoco.mjtIntegrator.mjINT_EULER
    model.dof_damping[:] = model.dof_armature[:] = model.dof_frictionloss[:] = 0
    off = mujoco.mjtDisableBit
    model.opt.disableflags = off.mjDSBL_CONTACT | off.mjDSBL_LIMIT | off.mjDSBL_CONSTRAINT
    device_model = mjx.put_model(model)
    blank = mjx.make_data(device_model)

    def one(q, v, tau):
        data = blank.replace(qpos=q, qvel=v, qfrc_applied=tau)
        data = lax.scan(lambda d, _: (mjx.step(device_model, d), None), data, length=steps)[0]
        return data.qpos, data.qvel

    return batched(one, q0, v0, tau)


STARTS = {"jaxsoa": start_jaxsoa, "pinocchio": start_pinocchio, "frax": start_frax, "mjx": start_mjx}


def work(options: argparse.Namespace) -> None:
    """A worker: reads `check FILE` and `run`, answers with seconds (and a remark); everything else goes to stderr."""
    answers, sys.stdout = sys.stdout, sys.stderr
    name = options.worker
    rng = np.random.default_rng(SEED)
    joints = int(os.environ["JOINTS"])
    part = slice(*map(int, options.part.split(":")))
    q0, v0, tau = (rng.uniform(-1, 1, (options.batch, joints))[part] for _ in range(3))
    run = STARTS[name.split("-")[0]](name, options, q0, v0, tau, steps_of(name, options))
    for line in sys.stdin:
        began = time.perf_counter()
        q, v = run()
        seconds = time.perf_counter() - began
        if line.startswith("check"):
            np.save(line.split(maxsplit=1)[1].strip(), np.concatenate([np.asarray(q), np.asarray(v)], axis=1))
        print(seconds, getattr(run, "remark", ""), file=answers, flush=True)


# --- the parent ------------------------------------------------------------------------------------------------------


class Worker:
    """A contender in one process, or in several that share the robots."""

    def __init__(self, name: str, options: argparse.Namespace, joints: int, steps: int | None = None):
        self.name, self.steps, self.remark = name, steps or steps_of(name, options), ""
        environment = {**os.environ, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu", "JOINTS": str(joints)}
        environment.pop("XLA_FLAGS", None)  # each contender runs with its own and nothing else
        if name.startswith("frax"):
            environment.update(XLA_FLAGS=FRAX_FLAGS, OPENBLAS_NUM_THREADS="1")
        line = [sys.executable, __file__, "--worker", name, "--batch", options.batch, "--urdf", options.urdf]
        line += ["--steps", self.steps, "--mjx-steps", options.mjx_steps]
        count = CORES if name.endswith("processes") else 1
        edges = [options.batch * k // count for k in range(count + 1)]
        self.words = [tempfile.TemporaryFile("w+") for _ in range(count)]
        self.processes = [
            subprocess.Popen(
                [str(x) for x in (*line, "--part", f"{first}:{last}")],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
            )
            for first, last, words in zip(edges[:-1], edges[1:], self.words, strict=True)
        ]

    def ask(self, request: str) -> float:
        """Seconds of one run, the slowest process counting; RuntimeError with the last words of one that died."""
        for k, process in enumerate(self.processes):
            process.stdin.write(f"{request}{k}\n")
            process.stdin.flush()
        seconds = 0.0
        for process, words in zip(self.processes, self.words, strict=True):
            answer = process.stdout.readline().split(maxsplit=1)
            if not answer:
                process.wait()
                words.seek(0)
                raise RuntimeError((words.read().strip().splitlines() or ["no answer"])[-1])
            seconds = max(seconds, float(answer[0]))
            self.remark = answer[1].strip() if len(answer) > 1 else ""
        return seconds

    def answer(self, file: Path) -> np.ndarray:
        return np.concatenate([np.load(f"{file}{k}.npy") for k in range(len(self.processes))])

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def end_states(name: str, options, joints: int, folder: Path, steps: int | None = None) -> tuple[Worker, np.ndarray]:
    worker, file = Worker(name, options, joints, steps), folder / f"{name}-{steps}-"
    seconds = worker.ask(f"check {file}")
    print(f"{NAMES[name]:26s} first run of {worker.steps} steps, with compilation, {seconds:.1f} s", flush=True)
    return worker, worker.answer(file)


def main() -> None:
    options = parse()
    if options.urdf is None:
        import importlib.util

        found = importlib.util.find_spec("frax")
        if found is None or found.origin is None:
            raise SystemExit("Give a robot with --urdf: the default one comes with frax, which is not there.")
        options.urdf = str(Path(found.origin).parent / "assets" / "iiwa" / "iiwa14.urdf")
    if options.worker:
        return work(options)
    moving = ("revolute", "continuous")
    joints = sum(joint.get("type") in moving for joint in ElementTree.parse(options.urdf).iter("joint"))
    workers: dict[str, Worker] = {}
    references: dict[int, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            steps = steps_of(name, options)
            try:
                worker, answer = end_states(name, options, joints, Path(folder))
            except RuntimeError as error:
                print(f"{NAMES[name]}: left out, {error}")
                continue
            workers[name] = worker
            if steps not in references:  # ours is what the others are compared with
                other, references[steps] = end_states("jaxsoa", options, joints, Path(folder), steps)
                other.stop()
            apart = np.abs(answer - references[steps]).max() / np.abs(references[steps]).max()
            print(f"{'':26s} end states differ from jaxsoa's by {apart:.1e}", flush=True)
            assert apart < 1e-7, f"{name} simulates something else"
        best = dict.fromkeys(workers, np.inf)
        for _ in range(options.repetitions):
            for name, worker in workers.items():
                best[name] = min(best[name], worker.ask("run"))
        for worker in workers.values():
            worker.stop()
    print(f"\n{Path(options.urdf).stem}, {options.batch} robots, {options.steps} steps, {CORES} cores")
    rates = {name: options.batch * workers[name].steps / seconds for name, seconds in best.items()}
    ours = max((rate for name, rate in rates.items() if name.startswith("jaxsoa")), default=np.nan)
    for name, rate in rates.items():
        print(
            f"{NAMES[name]:26s} {rate / 1e6:8.3f} million steps/s, {options.batch * options.steps / rate:7.2f} s,"
            f" jaxsoa's best is {ours / rate:6.2f} times as fast   {workers[name].remark}"
        )


if __name__ == "__main__":
    main()
