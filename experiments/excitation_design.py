"""Design a trajectory that excites the Panda's dynamics, and compare it with random ones within the same limits.

    python experiments/excitation_design.py [--urdf panda.urdf] [--iterations 300] [--plot excitation.svg]

Prints the condition number of the base regressor of random Fourier trajectories and of the designed one, and how much
smaller the standard deviations of the base parameters become for the same torque noise and the same recording time.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from identify_panda import find_urdf, panda_arm  # noqa: E402

import jaxsoa as soa  # noqa: E402
from jaxsoa import identify  # noqa: E402

PERIOD, HARMONICS = 10.0, 5
ACCELERATION = 10.0  # rad/s^2


def plot(trajectory: identify.FourierTrajectory, history: np.ndarray, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    time = np.linspace(0, PERIOD, 500)
    motion = trajectory(jnp.asarray(time))
    figure, axes = plt.subplots(1, 3, figsize=(14, 4))
    axes[0].semilogy(history)
    axes[0].set(xlabel="iteration", ylabel="condition number", title="design")
    for axis, x, label in ((axes[1], motion.q, "position, rad"), (axes[2], motion.v, "velocity, rad/s")):
        axis.plot(time, x)
        axis.set(xlabel="s", ylabel=label)
    axes[2].legend([f"joint {k}" for k in range(1, 8)], fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    print(f"picture: {path.resolve()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urdf", type=Path, help="the Panda's URDF (default: that of example-robot-data)")
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--random", type=int, default=20, help="random trajectories to compare with")
    parser.add_argument("--plot", type=Path, help="where a picture goes (needs matplotlib)")
    options = parser.parse_args()
    robot = panda_arm(options.urdf or find_urdf())
    base = soa.base_parameters(robot)
    common = {"period": PERIOD, "harmonics": HARMONICS, "acceleration": ACCELERATION, "base": base}
    designed = identify.design(robot, iterations=options.iterations, **common)
    times = jnp.linspace(0, PERIOD, 200, endpoint=False)

    @jax.jit
    def information(motion):
        Y = jax.vmap(soa.regressor, in_axes=(None, 0, 0, 0))(robot, *motion)[:, :, base.independent]
        return jnp.einsum("tip,tis->ps", Y, Y)

    def evaluated(trajectory):
        matrix = np.asarray(information(trajectory(times)))
        values = np.linalg.eigvalsh(matrix)
        return np.sqrt(values[-1] / values[0]), np.sqrt(np.diag(np.linalg.inv(matrix)))

    common.pop("base")
    seeds = range(1, options.random + 1)
    randoms = [evaluated(identify.random_trajectory(robot, seed=k, **common)) for k in seeds]
    conditions, deviations = (np.array(x) for x in zip(*randoms, strict=True))
    condition, deviation = evaluated(designed.trajectory)
    print(f"{base.rank} base parameters, {PERIOD:.0f} s, {HARMONICS} harmonics, limits of the URDF")
    low, middle, high = np.quantile(conditions, [0, 0.5, 1])
    print(f"condition number of {options.random} random trajectories: {low:.0f} to {high:.0f}, median {middle:.0f}")
    print(f"condition number of the designed one:        {condition:.0f}")
    gain = np.median(deviations, axis=0) / deviation
    print(f"standard deviations are smaller by a factor of {np.median(gain):.1f} (median), {gain.max():.0f} at most")
    if options.plot:
        plot(designed.trajectory, designed.history, options.plot)


if __name__ == "__main__":
    main()
