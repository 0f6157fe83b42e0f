"""Identify a real Franka Emika Panda from a log of joint positions and torques, every link physically consistent.

    python experiments/identify_panda.py LOG.npz [--urdf panda.urdf] [--plot panda_residuals.svg]

LOG.npz holds `time` (n,), `q` (n, 7) and `tau` (n, 7) in SI units; the robot is the URDF of the package
`example-robot-data` with its fingers fixed. Positions and torques are filtered at 5 Hz without delay, and half a second
at both ends is dropped, where filtering has to guess. The first two thirds of the record are fitted, the last third is
predicted. Printed are the torque RMS per joint of

- the a-priori model (the URDF),
- ordinary least squares: regressor, viscous and Coulomb friction (the sign of the velocity), offsets; not physical,
- the physical fit: log-Cholesky inertias, viscous and smooth Coulomb friction, offsets, and the direction of gravity
  (the base is never quite level), about the a-priori model as a prior.

The width of the smooth friction and the delay of the torque log are chosen on the fitted part, by least squares.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import time
from pathlib import Path
from typing import NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402

import jaxsoa as soa  # noqa: E402
from jaxsoa import identify  # noqa: E402
from jaxsoa.io.urdf import read_urdf  # noqa: E402
from jaxsoa.model.assemble import assemble  # noqa: E402

CUTOFF = 5.0  # Hz
FITTED = 2 / 3
WIDTHS = (0.03, 0.05, 0.07, 0.1)  # rad/s
DELAYS = (0.0, 0.002, 0.004)  # s
# A-priori standard deviations: inertias by about their own size; of the first link's hardly anything shows in torques.
PRIOR = {"inertial": np.array([0.3, 1, 1, 1, 1, 1, 1]), "gravity_direction": 0.01}
FREE = ("inertial", "damping", "friction", "offset", "gravity_direction")


class Study(NamedTuple):
    """Torque RMS per joint on the part that was not fitted, and the fit itself."""

    prior: np.ndarray
    prior_fitted_part: np.ndarray
    least_squares: np.ndarray
    physical: np.ndarray
    fit: identify.Fit
    test: identify.TorqueData
    width: float
    delay: float


def find_urdf() -> Path:
    for file in importlib.metadata.files("example-robot-data") or []:
        if file.name == "panda.urdf":
            return Path(str(file.locate()))
    raise FileNotFoundError("panda.urdf is not in example-robot-data; give its path with --urdf.")


def panda_arm(urdf: Path) -> soa.Multibody:
    """The seven joints of the arm; the fingers are welded to the hand."""
    robot = read_urdf(urdf)
    joints = [
        dataclasses.replace(joint, kind="fixed", mimic=None) if "finger" in joint.name else joint
        for joint in robot.joints
    ]
    return assemble(dataclasses.replace(robot, joints=tuple(joints)))


def friction_columns(dry: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Viscous friction, dry friction and offset of every joint: (samples, nv, 3 nv)."""
    return np.concatenate([x[:, :, None] * np.eye(v.shape[1]) for x in (v, dry, np.ones_like(v))], axis=2)


def least_squares(Y: np.ndarray, columns: np.ndarray, tau: np.ndarray, fitted: int) -> np.ndarray:
    """Residuals (samples, nv) of ordinary least squares on the first `fitted` samples."""
    W = np.concatenate([Y, columns], axis=2)
    solution = np.linalg.lstsq(W[:fitted].reshape(-1, W.shape[2]), tau[:fitted].ravel(), rcond=1e-10)[0]
    return tau - W @ solution


def rms(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(x**2, axis=0))


def study(log: dict[str, np.ndarray], urdf: Path, *, progress: bool = True) -> Study:
    robot = panda_arm(urdf)
    base = soa.base_parameters(robot)

    def prepared(delay: float) -> identify.TorqueData:
        return identify.prepare(log["time"], log["q"], log["tau"], cutoff=CUTOFF, delay=delay)

    data = prepared(0.0)
    fitted = round(FITTED * len(data.tau))
    regressors = jax.jit(jax.vmap(soa.regressor, in_axes=(None, 0, 0, 0)))(robot, data.q, data.v, data.a)
    Y = np.asarray(regressors)[:, :, base.independent]
    ordinary = least_squares(Y, friction_columns(np.sign(data.v), data.v), data.tau, fitted)

    # Width of friction and delay of the log: whichever unconstrained fit leaves least, all joints counting alike.
    errors = {}
    torques = {delay: prepared(delay).tau for delay in DELAYS}
    for width in WIDTHS:
        columns = friction_columns(np.tanh(data.v / width), data.v)
        for delay in DELAYS:
            left = rms(least_squares(Y, columns, torques[delay], fitted)[:fitted])
            errors[width, delay] = float(np.sum(np.log(left)))
    width, delay = min(errors, key=errors.__getitem__)

    # The published inertias of some links are those of flat plates; rounding them lets the fit move away from there.
    prior = identify.make_physical(robot, floor=0.2).replace(friction_velocity=width)
    data = prepared(delay)
    train, test = data.part(0, FITTED), data.part(FITTED, 1)
    # What is left are errors of the model, not independent noise: weights half-way between equal ones and 1 / RMS.
    weights = 1 / np.sqrt(rms(ordinary[:fitted]) * rms(ordinary[:fitted]).mean())
    fit = identify.fit(prior, train, FREE, prior=PRIOR, weights=weights, progress=progress)
    return Study(
        prior=identify.residual_rms(robot, test),
        prior_fitted_part=identify.residual_rms(robot, train),
        least_squares=rms(ordinary[fitted:]),
        physical=fit.rms(test),
        fit=fit,
        test=test,
        width=width,
        delay=delay,
    )


def plot(result: Study, urdf: Path, path: Path) -> None:
    """Residuals of the last third before and after, joint by joint."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    torque = jax.jit(jax.vmap(soa.inverse_dynamics, in_axes=(None, 0, 0, 0)))
    test, robot = result.test, result.fit.robot
    before = np.asarray(torque(panda_arm(urdf), test.q, test.v, test.a)) - test.tau
    after = np.asarray(torque(robot, test.q, test.v, test.a) + result.fit.offset) - test.tau
    seconds = np.arange(len(before)) / 100
    figure, axes = plt.subplots(7, 2, figsize=(11, 13), sharex=True)
    for joint in range(7):
        left, right = axes[joint]
        left.plot(seconds, test.tau[:, joint], color="0.7", lw=3, label="measured")
        left.plot(seconds, (test.tau + after)[:, joint], color="C3", lw=1, label="fitted model")
        left.set_ylabel(f"joint {joint + 1}\nN m")
        right.plot(seconds, before[:, joint], color="0.6", lw=1, label="error of the URDF")
        right.plot(seconds, after[:, joint], color="C3", lw=1, label="error of the fitted model")
    for column in axes.T:
        column[0].legend(loc="upper right", fontsize=8)
        column[-1].set_xlabel("seconds of the part that was not fitted")
    axes[0, 0].set_title("torques")
    axes[0, 1].set_title("errors")
    figure.tight_layout()
    figure.savefig(path)
    print(f"picture: {path.resolve()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="npz file with time, q and tau")
    parser.add_argument("--urdf", type=Path, help="the Panda's URDF (default: that of example-robot-data)")
    parser.add_argument("--plot", type=Path, help="where a picture of the residuals goes (needs matplotlib)")
    options = parser.parse_args()
    urdf = options.urdf or find_urdf()
    began = time.perf_counter()
    with np.load(options.log) as log:
        result = study({name: log[name] for name in ("time", "q", "tau")}, urdf)
    print(f"smooth friction within {result.width} rad/s, torques logged {1e3 * result.delay:.0f} ms late")
    print(f"torque RMS per joint on the last third, N m{'':20}" + "".join(f"{f'joint {k}':>10}" for k in range(1, 8)))
    for name, values in (
        ("a-priori model (on the fitted two thirds)", result.prior_fitted_part),
        ("a-priori model", result.prior),
        ("ordinary least squares, unphysical", result.least_squares),
        ("physical fit", result.physical),
    ):
        print(f"{name:63}" + "".join(f"{value:10.4f}" for value in values))
    fit = result.fit
    margin = np.asarray(identify.consistency(fit.robot))
    eigenvalues = np.linalg.eigvalsh(identify.link_pseudo_inertias(fit.robot))
    print("smallest eigenvalue of each pseudo-inertia ", "  ".join(f"{x:.2e}" for x in eigenvalues[:, 0]))
    mass, friction = fit.leaf("mass"), fit.leaf("friction")
    print("mass, kg            ", "  ".join(f"{m:.2f}±{s:.2f}" for m, s in zip(mass.value, mass.std, strict=True)))
    pairs = zip(friction.value, friction.std, strict=True)
    print("dry friction, N m   ", "  ".join(f"{m:.3f}±{s:.3f}" for m, s in pairs))
    tilt = np.degrees(np.arccos(-fit.robot.gravity[2] / np.linalg.norm(fit.robot.gravity)))
    print(f"gravity tilted by {tilt:.2f} degrees; {fit.iterations} iterations, converged: {fit.converged}")
    good = bool((result.physical <= result.least_squares).all() and (margin > 0).all())
    print(f"no worse than least squares on every joint, every link physical: {good}")
    print(f"all in {time.perf_counter() - began:.1f} s")
    if options.plot:
        plot(result, urdf, options.plot)


if __name__ == "__main__":
    main()
