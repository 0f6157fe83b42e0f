"""4096 robots, 1,000 steps of semi-implicit Euler, float64: jaxsoa beside Pinocchio, frax and MJX, in one run.

    pip install -e ".[bench]" mujoco-mjx && python experiments/simulation_throughput.py

A 7-joint arm (frax's iiwa14, or --urdf) from 4096 random states under constant torques, without friction or limits. End
states are compared before anything is timed; repetitions are interleaved and the minimum is taken. Contenders:

- jaxsoa: `jax.vmap` of `rollout` on one device, and `sharded_rollout` over one virtual CPU device per core;
- Pinocchio: per step one C++ call for the whole batch (`abaInParallel`), positions and velocities moved by NumPy;
- frax and MJX: their dynamics in a `lax.scan`, vmapped, and spread over the same virtual devices as jaxsoa. MJX is
  timed over fewer steps (--mjx-steps), because it takes long. Contacts, limits and constraints of MJX are switched off.

Peers that are not installed are left out, and said so.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
import xml.etree.ElementTree as ElementTree

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--batch", type=int, default=4096)
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--mjx-steps", type=int, default=50)
parser.add_argument("--repetitions", type=int, default=3)
parser.add_argument("--devices", type=int, default=os.cpu_count(), help="virtual CPU devices of the sharded runs")
parser.add_argument("--urdf", help="a fixed-base arm with revolute joints; frax's iiwa14 unless given")
parser.add_argument("--without", nargs="*", default=[], help="peers to leave out: pinocchio, frax, mjx")
options = parser.parse_args()
flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={options.devices}"
os.environ.update(XLA_FLAGS=flags, JAX_ENABLE_X64="1")
warnings.simplefilter("ignore")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

import jaxsoa as soa  # noqa: E402
from jaxsoa import simulate  # noqa: E402

DT, SEED = 1e-3, 0


def find(peer: str, load):
    """The peer's module, or None with a line that says why."""
    if peer in options.without:
        print(f"{peer}: left out as asked")
        return None
    try:
        return load()
    except Exception as error:  # a peer may be missing, or not fit the versions installed
        print(f"{peer}: left out, {type(error).__name__}: {error}")
        return None


def load_frax():
    import frax

    return frax


def load_pinocchio():
    import pinocchio

    pinocchio.ModelPool  # noqa: B018  # only builds with OpenMP have it
    return pinocchio


def load_mjx():
    import mujoco
    from mujoco import mjx

    return mujoco, mjx


frax, pin, mujoco_and_mjx = find("frax", load_frax), find("pinocchio", load_pinocchio), find("mjx", load_mjx)
urdf = options.urdf
if urdf is None:
    if frax is None:
        raise SystemExit("Give a robot with --urdf: the default one comes with frax, which is not there.")
    urdf = os.path.join(os.path.dirname(frax.__file__), "assets", "iiwa", "iiwa14.urdf")
robot = soa.load_urdf(urdf, validate="off").frictionless()
rng = np.random.default_rng(SEED)
q0, v0, tau = (rng.uniform(-1, 1, (options.batch, robot.nv)) for _ in range(3))


def by_acceleration(acceleration, steps):
    """A rollout of one robot for any library that has forward dynamics."""

    def one(_, q, v, tau):
        def advance(state, _):
            q, v = state
            v = v + DT * acceleration(q, v, tau)
            return (q + DT * v, v), None

        return lax.scan(advance, (q, v), length=steps)[0]

    return one


def jax_contenders(name: str, one, steps: int, shared=None, ways=("vmap", "sharded"), chunk=None) -> dict:
    """{name: (run, steps)}; `one(shared, q, v, tau)` simulates one robot."""
    vmapped = jax.jit(jax.vmap(one, in_axes=(None, 0, 0, 0)))
    spread = simulate.sharded_map(one, chunk=chunk)
    arrays = tuple(map(jnp.asarray, (q0, v0, tau)))
    placed = simulate.shard_batch(arrays) if options.batch % jax.device_count() == 0 else arrays
    runs = {
        "vmap": lambda: jax.block_until_ready(vmapped(shared, *arrays)),
        "sharded": lambda: jax.block_until_ready(spread(shared, *placed)),
    }
    labels = {"vmap": f"{name}, vmap", "sharded": f"{name}, {jax.device_count()} devices"}
    return {labels[way]: (runs[way], steps) for way in ways}


def soa_contenders(steps: int, ways=("vmap", "sharded")) -> dict:
    def one(robot, q, v, tau):
        return soa.rollout(robot, q, v, lambda *_: tau, DT, steps=steps, record="final")

    return jax_contenders("jaxsoa", one, steps, robot, ways, chunk=256)


def pinocchio_contenders() -> dict:
    model = pin.buildModelFromUrdf(urdf)
    model.armature[:] = 0
    pool = pin.ModelPool(model, options.devices)
    torque = np.asfortranarray(tau.T)

    def run(threads):
        q, v = np.asfortranarray(q0.T.copy()), np.asfortranarray(v0.T.copy())
        a = np.zeros_like(v, order="F")
        for _ in range(options.steps):
            pin.abaInParallel(threads, pool, q, v, torque, a)
            v += DT * a
            q += DT * v
        return q.T, v.T

    counts = sorted({1, options.devices})
    return {f"Pinocchio C++, {n} threads": (lambda n=n: run(n), options.steps) for n in counts}


def mjx_contenders() -> dict:
    mujoco, mjx = mujoco_and_mjx
    tree = ElementTree.parse(urdf)
    for link in tree.iter("link"):  # meshes are neither here nor wanted
        for shape in (*link.findall("visual"), *link.findall("collision")):
            link.remove(shape)
    model = mujoco.MjModel.from_xml_string(ElementTree.tostring(tree.getroot(), encoding="unicode"))
    assert model.nv == robot.nv, "MuJoCo sees other joints"
    model.opt.timestep, model.opt.integrator = DT, mujoco.mjtIntegrator.mjINT_EULER
    off = mujoco.mjtDisableBit
    model.opt.disableflags = off.mjDSBL_CONTACT | off.mjDSBL_LIMIT | off.mjDSBL_CONSTRAINT
    device_model, blank = mjx.put_model(model), mjx.make_data(model)

    def one(shared, q, v, tau):
        device_model, blank = shared
        data = blank.replace(qpos=q, qvel=v, qfrc_applied=tau)
        data = lax.scan(lambda d, _: (mjx.step(device_model, d), None), data, length=options.mjx_steps)[0]
        return data.qpos, data.qvel

    return jax_contenders("MJX", one, options.mjx_steps, (device_model, blank), ("sharded",))


contenders = soa_contenders(options.steps)
if pin is not None:
    contenders |= pinocchio_contenders()
if frax is not None:
    arm = frax.Robot(urdf)
    forward = by_acceleration(lambda q, v, tau: arm.forward_dynamics(q, v, tau, None), options.steps)
    contenders |= jax_contenders("frax", forward, options.steps)
if mujoco_and_mjx is not None:
    contenders |= find("mjx", mjx_contenders) or {}

references: dict = {}
for name, (run, steps) in list(contenders.items()):
    began = time.perf_counter()
    answer = np.concatenate([np.asarray(x) for x in run()], axis=1)
    if steps not in references:
        own = next(iter(soa_contenders(steps, ("vmap",)).values()))[0]
        references[steps] = answer if name.startswith("jaxsoa") else np.concatenate([*map(np.asarray, own())], axis=1)
    error = np.abs(answer - references[steps]).max() / np.abs(references[steps]).max()
    took = time.perf_counter() - began
    print(f"{name:26s} end states after {steps} steps differ by {error:.1e} (first call {took:.1f} s)", flush=True)
    assert error < 1e-7, f"{name} simulates something else"

best = {name: np.inf for name in contenders}
for _ in range(options.repetitions):
    for name, (run, _) in contenders.items():
        start = time.perf_counter()
        run()
        best[name] = min(best[name], time.perf_counter() - start)

print(f"\n{robot.name}, {options.batch} robots, {options.steps} steps, {os.cpu_count()} cores, jax {jax.__version__}")
rates = {name: options.batch * contenders[name][1] / seconds for name, seconds in best.items()}
fastest_soa = max(rate for name, rate in rates.items() if name.startswith("jaxsoa"))
for name, rate in rates.items():
    seconds = options.batch * options.steps / rate
    print(f"{name:26s} {rate / 1e6:8.3f} million steps/s, {seconds:7.2f} s, jaxsoa {fastest_soa / rate:6.2f} x as fast")
