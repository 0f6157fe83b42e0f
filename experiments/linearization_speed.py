"""The linearized forward model of an arm and a humanoid, batch of 4096, float64, and its ratio to other ways.

    pip install -e ".[bench]" && python experiments/linearization_speed.py [--robot iiwa|g1] [--flags recommended|none]

Contenders, all on the same states, answers compared before anything is timed: `soa.linearize_forward_dynamics`;
`jax.jacfwd` of frax's forward dynamics; `jax.jacfwd` of our own articulated-body sweeps with their derivative rule
taken away; `jax.jacfwd` of our forward dynamics with it; Pinocchio's computeABADerivatives on one thread. Repetitions
are interleaved and the minimum is taken. The reverse-mode gradient of forward dynamics is timed beside a forward pass.
XLA reads its flags once a process, so frax runs in a process of its own with the flags it recommends, and ours with
what `soa.fast_cpu()` asks for (`--flags none`: both with XLA's defaults). The humanoid's Jacobians by jacfwd want
gigabytes for a whole batch, so they get an eighth of it. frax moves a floating base by six plain joints: its humanoid
is timed at states of its own, and its answers are not compared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

FRAX_FLAGS = "--xla_cpu_multi_thread_eigen=false --xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--robot", choices=("iiwa", "g1"), default="iiwa", help="7-joint arm, or 29-joint humanoid")
parser.add_argument("--batch", type=int, default=4096)
parser.add_argument("--repetitions", type=int, default=10)
parser.add_argument("--no-frax", action="store_true", help="leave out frax, which compiles slowly for a humanoid")
parser.add_argument("--flags", choices=("recommended", "none"), default="recommended", help="for XLA")
parser.add_argument("--frax", action="store_true", help=argparse.SUPPRESS)  # the process in which frax runs
options = parser.parse_args()
os.environ["JAX_ENABLE_X64"] = "1"

import warnings  # noqa: E402

warnings.simplefilter("ignore")

import jaxsoa as soa  # noqa: E402

if options.flags == "recommended" and not options.frax:
    soa.fast_cpu()

import frax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pinocchio as pin  # noqa: E402

from jaxsoa.dynamics.motion import _sweeps  # noqa: E402  (the sweeps under the derivative rule)

assets = os.path.join(os.path.dirname(frax.__file__), "assets")
floating = options.robot == "g1"
urdf = os.path.join(assets, *(("unitree_g1", "g1_29dof_rev_1_0.urdf") if floating else ("iiwa", "iiwa14.urdf")))
robot = soa.load_urdf(urdf, floating_base=floating, validate="off").frictionless()
robot = robot.replace(armature=jnp.zeros(robot.nv))
batch, nv = options.batch, robot.nv
q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), batch))
v, tau = jax.random.normal(jax.random.key(1), (2, batch, nv))


def jacobians(dynamics):
    """Matrices by jacfwd in tangent coordinates."""

    def matrices(q, v, tau):
        def at(dq, v, tau):
            return dynamics(robot.integrate(q, dq) if floating else q + dq, v, tau)

        return jax.jacfwd(at, argnums=(0, 1, 2))(jnp.zeros_like(v), v, tau)

    return matrices


def ours(q, v, tau):
    return soa.linearize_forward_dynamics(robot, q, v, tau)


def through_the_sweeps(q, v, tau):
    return _sweeps(robot, q, v, jnp.zeros_like(tau), tau, None, None, False)[0]


def ruled(q, v, tau):
    return soa.forward_dynamics(robot, q, v, tau)


def by_frax():
    """(name, function): the Jacobians of frax's forward dynamics."""
    if not floating:
        frax_robot = frax.Robot(urdf)
        return "jacfwd of frax", jacobians(lambda q, v, tau: frax_robot.forward_dynamics(q, v, tau, None))
    frax_robot = frax.Robot(os.path.join(assets, "unitree_g1", "floating_g1_29dof_rev_1_0.urdf"))

    def matrices(q, v, tau):
        return jax.jacfwd(lambda q, v, t: frax_robot.forward_dynamics(q, v, t, None), argnums=(0, 1, 2))(v, v, tau)

    return "jacfwd of frax (own states)", matrices


contenders = {
    "linearize_forward_dynamics": ours,
    "jacfwd of our sweeps, rule taken away": jacobians(through_the_sweeps),
    "jacfwd of our forward dynamics": jacobians(ruled),
}


def loss(q, v, tau):
    return jnp.sum(soa.forward_dynamics(robot, q, v, tau) ** 2)


if options.frax:
    contenders = dict([by_frax()])
timed = contenders if options.frax else {
    **contenders,
    "forward dynamics": ruled,
    "reverse-mode gradient of forward dynamics": jax.grad(loss, argnums=(0, 1, 2)),
}
compiled, inputs = {}, {}
for name, function in timed.items():
    start = time.perf_counter()
    some = batch // 8 if floating and name.startswith("jacfwd") else batch
    inputs[name] = q[:some], v[:some], tau[:some]
    compiled[name] = jax.jit(jax.vmap(function)).lower(*inputs[name]).compile()
    print(f"compiled in {time.perf_counter() - start:6.1f} s  {name}", file=sys.stderr, flush=True)

model = pin.buildModelFromUrdf(urdf, *((pin.JointModelFreeFlyer(),) if floating else ()))
model.armature[:] = 0
data = model.createData()
order = np.array([3, 4, 5, 0, 1, 2, *range(6, nv)]) if floating else np.arange(nv)  # ours in Pinocchio's order
pin_q = np.asarray(q)
if floating:
    pin_q = np.concatenate([pin_q[:, 4:7], pin_q[:, 1:4], pin_q[:, :1], pin_q[:, 7:]], axis=1)
pin_v, pin_tau = np.empty((batch, nv)), np.empty((batch, nv))
pin_v[:, order], pin_tau[:, order] = np.asarray(v), np.asarray(tau)

answers = {name: compiled[name](*inputs[name]) for name in contenders if "own states" not in name}
for name, matrices in answers.items():
    worst = 0.0
    for k in range(0, len(inputs[name][0]), max(1, batch // 64)):
        reference = [np.array(x) for x in pin.computeABADerivatives(model, data, pin_q[k], pin_v[k], pin_tau[k])]
        reference[2] = np.triu(reference[2]) + np.triu(reference[2], 1).T
        for x, y in zip(matrices, reference, strict=True):
            y = y[np.ix_(order, order)]
            worst = max(worst, float(np.abs(np.asarray(x[k]) - y).max() / np.abs(y).max()))
    print(f"relative difference from Pinocchio {worst:.1e}  {name}", file=sys.stderr)
    assert worst < 1e-8


def measure(name: str) -> float:
    """Seconds per state of one evaluation of the batch."""
    start = time.perf_counter()
    jax.block_until_ready(compiled[name](*inputs[name]))
    return (time.perf_counter() - start) / len(inputs[name][0])


def measure_pinocchio() -> float:
    start = time.perf_counter()
    for state in zip(pin_q, pin_v, pin_tau, strict=True):
        pin.computeABADerivatives(model, data, *state)
    return (time.perf_counter() - start) / batch


if options.frax:  # answer each line with a measurement, until there are no more
    (name,) = compiled
    measure(name)
    print(name, flush=True)
    for _ in sys.stdin:
        print(measure(name), flush=True)
    sys.exit()

measurements = {name: lambda name=name: measure(name) for name in compiled}
measurements["Pinocchio computeABADerivatives, 1 thread"] = measure_pinocchio
if not options.no_frax:
    environment = {**os.environ, "XLA_FLAGS": FRAX_FLAGS if options.flags == "recommended" else ""}
    command = [sys.executable, __file__, *sys.argv[1:], "--frax"]
    peer = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask() -> float:
        print(file=peer.stdin, flush=True)
        return float(peer.stdout.readline())

    measurements[peer.stdout.readline().strip()] = ask  # it says its name when it is ready

best = dict.fromkeys(measurements, np.inf)
for _ in range(options.repetitions):
    for name, run in measurements.items():
        best[name] = min(best[name], run())

print(f"\n{robot.name}: {robot.n_links} links, {nv} degrees of freedom, batch {batch}, float64")
print(f"{'':48s} us per state   ratio to linearize_forward_dynamics")
fast = best["linearize_forward_dynamics"]
for name, seconds in best.items():
    print(f"{name:48s} {1e6 * seconds:12.2f} {seconds / fast:8.2f}")
ratio = best["reverse-mode gradient of forward dynamics"] / best["forward dynamics"]
print(f"one reverse-mode gradient costs {ratio:.2f} forward evaluations")
