"""Forward dynamics of a 7-joint arm, batch of 4096, float64: jaxsoa beside frax and Pinocchio, in one run.

    pip install -e ".[bench]" && python experiments/forward_dynamics_speed.py

Every contender computes the same states; answers are compared before anything is timed. Repetitions are interleaved
and the minimum is taken, because machines are noisy. Both JAX libraries run with the XLA flags they recommend: those of
frax's README and `soa.fast_cpu()`; `--default-flags` leaves XLA alone.
"""

from __future__ import annotations

import argparse
import os
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--batch", type=int, default=4096)
parser.add_argument("--repetitions", type=int, default=30)
parser.add_argument("--default-flags", action="store_true", help="no XLA flags at all")
options = parser.parse_args()
if not options.default_flags:
    os.environ["XLA_FLAGS"] = (
        os.environ.get("XLA_FLAGS", "")
        + " --xla_cpu_multi_thread_eigen=false --xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"
    )
os.environ["JAX_ENABLE_X64"] = "1"

import warnings  # noqa: E402

warnings.simplefilter("ignore")

import jaxsoa as soa  # noqa: E402

if not options.default_flags:
    soa.fast_cpu()

import frax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pinocchio as pin  # noqa: E402

urdf = os.path.join(os.path.dirname(frax.__file__), "assets", "iiwa", "iiwa14.urdf")
robot = soa.load_urdf(urdf, validate="off").frictionless()
rng = np.random.default_rng(0)
batch = options.batch
q, v, tau = (rng.uniform(-1, 1, (batch, robot.nv)) for _ in range(3))

pin_model = pin.buildModelFromUrdf(urdf)
pin_model.armature[:] = 0
pin_data = pin_model.createData()
reference = np.array([pin.aba(pin_model, pin_data, *state) for state in zip(q, v, tau, strict=True)])

frax_robot = frax.Robot(urdf)


def frax_forward(q, v, tau):
    return frax_robot.forward_dynamics(q, v, tau, None)


frax_batched = jax.jit(jax.vmap(frax_forward))
soa_batched = jax.jit(jax.vmap(soa.forward_dynamics, in_axes=(None, 0, 0, 0)))
arrays = tuple(map(jnp.asarray, (q, v, tau)))


def pinocchio_loop() -> np.ndarray:
    return np.array([pin.aba(pin_model, pin_data, *state) for state in zip(q, v, tau, strict=True)])


contenders = {
    "jaxsoa": lambda: soa_batched(robot, *arrays).block_until_ready(),
    "frax": lambda: frax_batched(*arrays).block_until_ready(),
}
single = tuple(x[0] for x in arrays)
soa_single, frax_single = jax.jit(soa.forward_dynamics), jax.jit(frax_forward)
soa_closed = jax.jit(lambda q, v, tau: soa.forward_dynamics(robot, q, v, tau))
singles = {
    "jaxsoa, robot an argument": lambda: soa_single(robot, *single).block_until_ready(),
    "jaxsoa, robot closed over": lambda: soa_closed(*single).block_until_ready(),
    "frax": lambda: frax_single(*single).block_until_ready(),
}
try:  # Pinocchio's own C++ loop over a pool of threads
    pool = pin.ModelPool(pin_model, 2)
    columns = [np.asfortranarray(x.T) for x in (q, v, tau)]
    out = np.zeros((robot.nv, batch), order="F")
    contenders["Pinocchio C++, 1 thread"] = lambda: pin.abaInParallel(1, pool, *columns, out)
    contenders["Pinocchio C++, 2 threads"] = lambda: pin.abaInParallel(2, pool, *columns, out)
except AttributeError:
    print("This Pinocchio has no ModelPool; its C++ loop is skipped.")

for name, run in contenders.items():
    answer = run()
    answer = out.T if name.startswith("Pinocchio") else np.asarray(answer)
    error = np.abs(answer - reference).max() / np.abs(reference).max()
    print(f"{name:26s} relative difference from Pinocchio's aba {error:.1e}")
    assert error < 1e-8

best = {name: np.inf for name in contenders}
best_single = {name: np.inf for name in singles}
for _ in range(options.repetitions):
    for name, run in contenders.items():
        start = time.perf_counter()
        run()
        best[name] = min(best[name], time.perf_counter() - start)
    for name, run in singles.items():
        start = time.perf_counter()
        for _ in range(20):
            run()
        best_single[name] = min(best_single[name], (time.perf_counter() - start) / 20)

print(f"\nForward dynamics, {robot.name}, batch {batch}, float64, {os.cpu_count()} cores, jax {jax.__version__}")
for name, seconds in best.items():
    print(f"{name:26s} {seconds / batch * 1e6:8.2f} us per state   {seconds / best['jaxsoa']:6.2f} x jaxsoa's time")
for name, seconds in best_single.items():
    print(f"{name:26s} {seconds * 1e6:8.1f} us, one evaluation on its own (dispatch included)")
