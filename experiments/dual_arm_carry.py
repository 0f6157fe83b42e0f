"""Two arms carry a box along a path between two soft fingertips: simulation, contact forces, friction, a picture.

The box is to fly a figure of eight. At every step the wanted motion of the box (with feedback) becomes joint
accelerations, `grasp_inverse_dynamics` turns those into torques with a squeeze, and `grasp_forward_dynamics` moves the
system: the classical Runge-Kutta method, with projection onto the grasp after every step. Friction is verified
all along.

    python experiments/dual_arm_carry.py [--seconds 4] [--squeeze 40] [--output carry.png] [--animation carry.gif]
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from closed_chain_energy import runge_kutta, turn_rate, turned  # noqa: E402

import jaxsoa as soa  # noqa: E402
from jaxsoa import closed_chain as cc  # noqa: E402


class Trace(NamedTuple):
    """Time series of a simulation."""

    position: jax.Array  # (steps, 3) of the box
    wanted: jax.Array  # (steps, 3)
    forces: jax.Array  # (steps, 2, 6) contact forces on the box
    report: cc.FrictionReport
    error: jax.Array  # (steps,) largest gap between fingertip and box
    arms: tuple[jax.Array, ...]  # (steps, links + 1, 3) per arm, for the picture


def grasp() -> cc.mechanisms.Grasp:
    """Two seven-joint arms with soft fingers pressing on the ends of the box."""
    fingers = [cc.SoftFinger((-side, 0, 0), friction=0.8, torsion=0.05) for side in (-1.0, 1.0)]
    return cc.mechanisms.two_arm_grasp(fingers)


def wanted_path(start, t, seconds):
    """Position, velocity and acceleration on a figure of eight in the y-z plane, at rest at both ends."""

    def at(t):
        s = jnp.clip(t / seconds, 0, 1)
        phase = 2 * jnp.pi * s**3 * (10 - 15 * s + 6 * s**2)  # least jerk
        return start + jnp.array([0.0, 0.05 * jnp.sin(phase), 0.025 * jnp.sin(2 * phase)])

    velocity = jax.jacfwd(at)
    return at(t), velocity(t), jax.jacfwd(velocity)(t)


def rotation_vector(E):
    """Of a small rotation."""
    return jnp.array([E[2, 1] - E[1, 2], E[0, 2] - E[2, 0], E[1, 0] - E[0, 1]]) / 2


def simulate(seconds: float = 4.0, dt: float = 2e-3, squeeze: float = 40.0) -> Trace:
    system, q0, (R0, p0) = grasp()
    still = tuple(jnp.zeros(arm.robot.nv) for arm in system.arms)
    rotations = jax.jit(lambda: cc.grasp_rotations(system, q0, (R0, p0)))()

    def control(q, v, R, p, V, t):
        """Torques that make the box follow the path without turning."""
        at, velocity, acceleration = wanted_path(p0, t, seconds)
        tilt = rotation_vector(R0 @ R.T)
        linear = acceleration + 100 * (at - p) + 20 * (velocity - V[3:])
        alpha = jnp.concatenate([100 * tilt - 20 * V[:3], linear])
        a = []
        for arm, x, u, rest, target in zip(system.arms, q, v, q0, rotations, strict=True):
            J = soa.jacobian(arm.robot, x, arm.frame)
            r, w = R @ arm.point, V[:3]
            tip = alpha.at[3:].add(jnp.cross(alpha[:3], r) + jnp.cross(w, jnp.cross(w, r)))
            # Soft fingers may roll on the box; they are steered back to where they took hold.
            roll = rotation_vector(R @ target @ soa.frame_pose(arm.robot, x, arm.frame)[0].T)
            tip = tip.at[:3].add(100 * roll + 20 * (w - (J @ u)[:3]))
            tip = tip - soa.jacobian_bias(arm.robot, x, u, arm.frame)
            # The seventh joint is spare: it holds the posture.
            idle = 20 * (rest - x) - 10 * u
            inverse = J.T @ jnp.linalg.inv(J @ J.T)
            a.append(idle + inverse @ (tip - J @ idle))
        return cc.grasp_inverse_dynamics(
            system, q, v, a, (R, p), object_acceleration=alpha, object_velocity=V, squeeze=squeeze
        ).tau

    def step(x, t):
        q, v, R, p, V = x
        tau = control(q, v, R, p, V, t)  # held over the step

        def derivative(y):
            q, v, turn, p, V = y
            s = cc.grasp_forward_dynamics(system, q, v, tau, (turned(R, turn), p), object_velocity=V)
            return v, s.a, turn_rate(turn, V[:3]), V[3:], s.object_acceleration

        def move(y, dy):
            q = tuple(arm.robot.integrate(a, b) for arm, a, b in zip(system.arms, y[0], dy[0], strict=True))
            return q, *jax.tree.map(jnp.add, y[1:], dy[1:])

        s = cc.grasp_forward_dynamics(system, q, v, tau, (R, p), object_velocity=V)
        report = cc.friction_report(system, s.contact_forces, (R, p))
        gap = jnp.max(jnp.abs(cc.grasp_state(system, q, v, (R, p), object_velocity=V).position_error))
        drawn = []
        for arm, joints in zip(system.arms, q, strict=True):
            links = soa.forward_kinematics(arm.robot, joints).position
            drawn.append(jnp.concatenate([links, soa.frame_pose(arm.robot, joints, arm.frame)[1][None]]))
        out = Trace(p, wanted_path(p0, t, seconds)[0], s.contact_forces, report, gap, tuple(drawn))
        q, v, turn, p, V = runge_kutta(derivative, move, (q, v, jnp.zeros(3), p, V), dt)
        R = turned(R, turn)
        q, v = cc.project_grasp(system, q, v, (R, p), V, rotations, iterations=1)
        return (q, v, R, p, V), out

    times = jnp.arange(round(seconds / dt)) * dt
    run = jax.jit(lambda x: jax.lax.scan(step, x, times)[1])
    return run((q0, still, R0, p0, jnp.zeros(6)))


def draw(trace: Trace, seconds: float, output: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    t = np.linspace(0, seconds, len(trace.position))
    figure = plt.figure(figsize=(12, 9), layout="constrained")
    scene = figure.add_subplot(2, 2, 1, projection="3d")
    for index in np.linspace(0, len(t) - 1, 5).astype(int):
        for arm, color in zip(trace.arms, ("tab:blue", "tab:orange"), strict=True):
            scene.plot(*np.asarray(arm[index]).T, "o-", color=color, alpha=0.3, markersize=3)
    scene.plot(*np.asarray(trace.position).T, "k", linewidth=2, label="box")
    scene.set(title="two arms carry a box", xlabel="x, m", ylabel="y, m", zlabel="z, m")
    path = figure.add_subplot(2, 2, 2)
    path.plot(trace.wanted[:, 1], trace.wanted[:, 2], "--", label="wanted")
    path.plot(trace.position[:, 1], trace.position[:, 2], label="flown")
    path.set(title="path of the box", xlabel="y, m", ylabel="z, m", aspect="equal")
    path.legend()
    forces = figure.add_subplot(2, 2, 3)
    for k, side in enumerate(("left", "right")):
        forces.plot(t, trace.report.normal_force[:, k], label=f"{side}: pressing")
        forces.plot(t, trace.report.tangential_force[:, k], "--", label=f"{side}: across")
    forces.set(title="contact forces", xlabel="t, s", ylabel="N")
    forces.legend()
    margins = figure.add_subplot(2, 2, 4)
    for k, side in enumerate(("left", "right")):
        margins.plot(t, trace.report.friction_margin[:, k], label=f"{side}: friction, N")
        margins.plot(t, 10 * trace.report.torsion_margin[:, k], "--", label=f"{side}: torsion, 0.1 N m")
    margins.axhline(0, color="red", linewidth=1)
    margins.set(title="friction margins (slip below zero)", xlabel="t, s")
    margins.legend()
    figure.savefig(output, dpi=120)
    plt.close(figure)


def animate(trace: Trace, output: str, frames: int = 60) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.animation import FuncAnimation, PillowWriter

    figure = plt.figure(figsize=(6, 5))
    scene = figure.add_subplot(projection="3d")
    everything = np.concatenate([np.asarray(arm).reshape(-1, 3) for arm in trace.arms])
    low, high = everything.min(axis=0), everything.max(axis=0)

    def show(k):
        scene.clear()
        scene.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
        for arm, color in zip(trace.arms, ("tab:blue", "tab:orange"), strict=True):
            scene.plot(*np.asarray(arm[k]).T, "o-", color=color)
        tips = np.stack([np.asarray(arm[k, -1]) for arm in trace.arms])
        scene.plot(*tips.T, color="black", linewidth=6)
        scene.plot(*np.asarray(trace.position[: k + 1]).T, color="gray", linewidth=1)

    indices = np.linspace(0, len(trace.position) - 1, frames).astype(int)
    FuncAnimation(figure, show, frames=indices).save(output, writer=PillowWriter(fps=15))
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--squeeze", type=float, default=40.0, help="N with which the fingers press")
    parser.add_argument("--output", default="dual_arm_carry.png")
    parser.add_argument("--animation", default=None, help="a .gif to write as well")
    arguments = parser.parse_args()
    trace = simulate(arguments.seconds, squeeze=arguments.squeeze)
    miss = float(jnp.max(jnp.linalg.norm(trace.position - trace.wanted, axis=1)))
    print(f"largest distance from the path   {miss * 1e3:.3f} mm")
    print(f"largest gap at a fingertip       {float(jnp.max(trace.error)):.1e} m")
    print(f"least pressing force             {float(jnp.min(trace.report.normal_force)):.2f} N")
    print(f"least friction margin            {float(jnp.min(trace.report.friction_margin)):.2f} N")
    print(f"least torsion margin             {float(jnp.min(trace.report.torsion_margin)):.3f} N m")
    print(f"contacts hold all along          {bool(jnp.all(trace.report.holds))}")
    try:
        draw(trace, arguments.seconds, arguments.output)
        print(f"picture                          {arguments.output}")
        if arguments.animation:
            animate(trace, arguments.animation)
            print(f"animation                        {arguments.animation}")
    except ModuleNotFoundError:
        print('no picture: matplotlib is missing (pip install "jaxsoa[viz]")')


if __name__ == "__main__":
    main()
