"""Identify a real Franka Emika Panda from a log of joint positions and torques, every link physically consistent.

    python experiments/identify_panda.py LOG.npz [--urdf panda.urdf] [--plot panda_residuals.svg]

LOG.npz holds `time` (n,), `q` (n, 7) and `tau` (n, 7) in SI units; the robot is the URDF of the package
`example-robot-data` with its fingers fixed. Positions and torques are filtered at 5 Hz without delay, and half a second
at both ends is dropped, where filtering has to guess. The first two thirds of the record are fitted, the last third is
predicted. Printed are the torque RMS per joint of

- the a-priori model (the URDF),
- ordinary least squares: regressor, viscous and Coulomb friction (the sign of the velocity), offsets; not physical,
- the physical fit: log-Cholesky inertias, viscous and Coulomb friction, offsets, and the direction of gravity (the base
  is never quite level), about the a-priori model as a prior. The sign of the velocity passes the filter of the torques,
  joints are weighted by one over what least squares leaves on the fitted part.

Nothing is chosen on the last third: the delay of the torque log is that with which least squares leaves least on the
fitted part, the strength of the prior that which predicts best there, each quarter from the three others.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import itertools
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
DELAYS = (0.0, 0.002, 0.004, 0.006)  # s
PRIORS = (0.3, 1.0, 3.0)  # a-priori standard deviations of inertias, as a fraction of themselves
TILT = 0.01  # rad, a-priori standard deviation of the base's tilt
QUARTERS, GAP = 4, 20  # of the fitted part, and samples left out (0.2 s) beside the quarter that is predicted
FREE = ("inertial", "damping", "friction", "offset", "gravity_direction")


class Study(NamedTuple):
    """Torque RMS per joint on the part that was not fitted, and the fit itself."""

    prior: np.ndarray
    prior_fitted_part: np.ndarray
    least_squares: np.ndarray
    least_squares_filtered: np.ndarray  # with friction and delay as in the physical fit
    physical: np.ndarray
    fit: identify.Fit
    test: identify.TorqueData
    delay: float
    strength: float
    validation: dict[float, np.ndarray]  # by strength: torque RMS per joint of quarters predicted from the others


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


def validate(prior: soa.Multibody, data: identify.TorqueData, weights: np.ndarray, strength: float) -> np.ndarray:
    """Torque RMS per joint of each quarter of the data, predicted by a fit to the others."""
    index = np.arange(len(data.tau))
    edges = np.linspace(0, len(index), QUARTERS + 1).round()
    squares = []
    for first, last in itertools.pairwise(edges):
        others = data.take((index < first - GAP) | (index >= last + GAP))
        fit = physical_fit(prior, others, weights, strength, progress=False)
        squares.append(fit.rms(data.take((index >= first) & (index < last))) ** 2)
    return np.sqrt(np.mean(squares, axis=0))


def physical_fit(prior, data, weights, strength: float, *, progress: bool) -> identify.Fit:
    about = {"inertial": strength, "gravity_direction": TILT}
    return identify.fit(prior, data, FREE, prior=about, weights=weights, progress=progress)


def study(log: dict[str, np.ndarray], urdf: Path, *, progress: bool = True) -> Study:
    robot = panda_arm(urdf)
    base = soa.base_parameters(robot)

    def prepared(delay: float) -> identify.TorqueData:
        options = {"cutoff": CUTOFF, "delay": delay, "filtered_friction": True}
        return identify.prepare(log["time"], log["q"], log["tau"], **options)

    records = {delay: prepared(delay) for delay in DELAYS}
    data = records[0.0]
    fitted = round(FITTED * len(data.tau))
    regressors = jax.jit(jax.vmap(soa.regressor, in_axes=(None, 0, 0, 0)))(robot, data.q, data.v, data.a)
    Y = np.asarray(regressors)[:, :, base.independent]
    ordinary = least_squares(Y, friction_columns(np.sign(data.v), data.v), data.tau, fitted)

    # The delay of the log: whichever unconstrained fit leaves least, all joints counting alike.
    columns = friction_columns(data.dry, data.v)
    errors = {delay: least_squares(Y, columns, records[delay].tau, fitted) for delay in DELAYS}
    delay = min(errors, key=lambda delay: np.sum(np.log(rms(errors[delay][:fitted]))))
    weights = 1 / rms(errors[delay][:fitted])

    # The published inertias of some links are those of flat plates; rounding them lets the fit move away from there.
    prior = identify.make_physical(robot, floor=0.2)
    train, test = records[delay].part(0, FITTED), records[delay].part(FITTED, 1)
    validation = {strength: validate(prior, train, weights, strength) for strength in PRIORS}
    strength = min(validation, key=lambda strength: np.sum(np.log(validation[strength])))
    fit = physical_fit(prior, train, weights, strength, progress=progress)
    return Study(
        prior=identify.residual_rms(robot, test),
        prior_fitted_part=identify.residual_rms(robot, train),
        least_squares=rms(ordinary[fitted:]),
        least_squares_filtered=rms(errors[delay][fitted:]),
        physical=fit.rms(test),
        fit=fit,
        test=test,
        delay=delay,
        strength=strength,
        validation=validation,
    )


def plot(result: Study, urdf: Path, path: Path) -> None:
    """Residuals of the last third before and after, joint by joint."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    residual = jax.jit(jax.vmap(identify.torque_residual, in_axes=(None, 0)))
    test, fit = result.test, result.fit
    before = np.asarray(residual(identify.Candidate(panda_arm(urdf), np.zeros(7)), test))[:, 0]
    after = np.asarray(residual(identify.Candidate(fit.robot, fit.offset), test))[:, 0]
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
    print(f"torques logged {1e3 * result.delay:.0f} ms late; inertias known a priori to a factor of {result.strength}")
    print("quarters of the fitted part predicted from the others, torque RMS per joint, by that factor:")
    for strength, values in result.validation.items():
        print(f"{strength:63}" + "".join(f"{value:10.4f}" for value in values))
    print(f"torque RMS per joint on the last third, N m{'':20}" + "".join(f"{f'joint {k}':>10}" for k in range(1, 8)))
    for name, values in (
        ("a-priori model (on the fitted two thirds)", result.prior_fitted_part),
        ("a-priori model", result.prior),
        ("ordinary least squares, unphysical", result.least_squares),
        ("the same, its friction filtered and torques in time", result.least_squares_filtered),
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
