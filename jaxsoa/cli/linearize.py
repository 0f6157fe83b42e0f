"""d/dt (dq, dv) = A (dq, dv) + B dtau, in tangent coordinates (nv each); with --dt, of one step in time instead.
By default the torques are those that hold the robot where it is, so that --v zero is an equilibrium.

examples:
  jaxsoa linearize cart_pole -o model.npz
  jaxsoa linearize robot.urdf --q "elbow=1.2" -o model.csv
  jaxsoa linearize pendulum:2 --q 3.14159265,0 --dt 0.01
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from jaxsoa.cli import robots, states, tables

HELP = "linearize a robot's motion about a state: A, B and eigenvalues"


def configure(parser: argparse.ArgumentParser) -> None:
    robots.configure(parser)
    states.configure(parser, tau="hold")
    parser.add_argument("--dt", type=float, help="linearize one step of semi-implicit Euler of this length")
    parser.add_argument(
        "-o", "--output", type=Path, help="model.npz (A, B, the state, eigenvalues) or model.csv ([A B])"
    )
    tables.configure(parser)


def run(options: argparse.Namespace) -> int:
    import jax

    import jaxsoa as soa

    tables.check_output(options.output, force=options.force)
    if options.dt is not None and not 0 < options.dt < float("inf"):
        raise ValueError(f"--dt must be positive, got {options.dt}.")
    states.use_precision(options)
    robot = robots.load(options)
    q, v, tau = states.state(robot, options)
    if options.dt is None:
        A, B = jax.jit(continuous_model)(robot, q, v, tau)
    else:
        A, B = jax.jit(soa.linearize_step, static_argnums=4)(robot, q, v, tau, options.dt)
    A, B = np.asarray(A), np.asarray(B)
    if not (np.isfinite(A).all() and np.isfinite(B).all()):
        print("the linearization is not finite: the mass matrix is singular at this state")
        return 1
    values = np.linalg.eigvals(A)
    values = values[np.lexsort((np.imag(values), -np.real(values)))]
    _print(robot, A, B, values, options.dt)
    if options.output is not None:
        _write(options.output, robot, A, B, {"q": q, "v": v, "tau": tau, "eigenvalues": values})
        print(f"written: {options.output.resolve()}")
    return 0


def continuous_model(robot, q, v, tau):
    """A (2 nv, 2 nv) and B (2 nv, nv) with d/dt (dq, dv) = A (dq, dv) + B dtau along the motion through (q, v).

    The lower rows are the linearized forward model; the upper ones are (0, I) where coordinates add, and for
    quaternions also hold how a body velocity turns the tangent space.
    """
    import jax
    import jax.numpy as jnp

    import jaxsoa as soa

    linear = soa.linearize_forward_dynamics(robot, q, v, tau)
    zero = jnp.zeros_like(v)

    def tangent_rate(dq, dv):
        """d/dt of the way from the motion through (q, v) to that through (q moved by dq, v + dv)."""

        def apart(t):
            return robot.difference(robot.integrate(q, t * v), robot.integrate(robot.integrate(q, dq), t * (v + dv)))

        now = jnp.zeros((), v.dtype)
        return jax.jvp(apart, (now,), (jnp.ones_like(now),))[1]

    upper = jax.jacfwd(tangent_rate, argnums=(0, 1))(zero, zero)
    A = jnp.block([[upper[0], upper[1]], [linear.wrt_q, linear.wrt_v]])
    return A, jnp.concatenate([jnp.zeros_like(linear.wrt_tau), linear.wrt_tau])


def _print(robot, A: np.ndarray, B: np.ndarray, values: np.ndarray, dt: float | None) -> None:
    kind = "continuous time" if dt is None else f"one step of {dt:g} s"
    print(f"{robot.name}: A {A.shape[0]} x {A.shape[1]}, B {B.shape[0]} x {B.shape[1]}, {kind}")
    # Where eigenvalues coincide (a chain of integrators), rounding moves them by the square root of its size.
    tolerance = 1e-6 if dt is None else 1e-7
    growing = np.real(values) > tolerance if dt is None else np.abs(values) > 1 + tolerance
    print(f"eigenvalues ({int(growing.sum())} of {len(values)} growing):")
    for value, grows in zip(values, growing, strict=True):
        if value.imag < 0:
            continue  # the other of a pair
        rate = value if dt is None else np.log(value + 0j) / dt if abs(value) > 0 else -np.inf
        number = f"{value.real:+.6g}" if value.imag == 0 else f"{value.real:+.6g} ± {value.imag:.6g} i"
        notes = [f"{abs(np.imag(rate)) / (2 * np.pi):.4g} Hz"] if value.imag != 0 else []
        notes += [f"doubles every {np.log(2) / np.real(rate):.4g} s"] if grows else []
        print(f"  {number:32s} {', '.join(notes)}".rstrip())


def _write(path: Path, robot, A: np.ndarray, B: np.ndarray, more: dict) -> None:
    if path.suffix.lower() == ".npz":
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in more.items()}
        tables.write_npz(path, A=A, B=B, joint_names=np.array(robot.joint_names), **arrays)
        return
    _, names = tables.coordinate_names(robot)
    plain = [name.removeprefix("v.") for name in names]
    header = [f"{letter}.{name}" for letter in ("dq", "dv", "dtau") for name in plain]
    tables.write_csv(path, dict(zip(header, np.concatenate([A, B], axis=1).T, strict=True)))
