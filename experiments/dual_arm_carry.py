"""Two arms carry a box along a path between two soft fingertips: simulation, contact forces, friction, a picture.

The box is to fly a figure of eight. At every step the wanted motion of the box (with feedback) becomes joint
accelerations, `grasp_inverse_dynamics` turns those into torques with a squeeze, and `grasp_forward_dynamics` moves the
system: the classical Runge-Kutta method, with projection onto the grasp after every step. Friction is verified
all along.

    python experiments/dual_arm_carry.py [--seconds 4] [--squeeze 40] [--output carry.png] [--animation carry.gif]

Writes dual_arm_carry.png into the current folder unless told otherwise, and says where.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from closed_chain_energy import runge_kutta, turn_rate, turned  # noqa: E402

import jaxsoa as soa  # noqa: E402
from jaxsoa import closed_chain as cc  # noqa: E402
from jaxsoa.simulate.progress import ProgressBar  # noqa: E402


class Trace(NamedTuple):
    """Time series of a simulation."""

    position: jax.Array  # (steps, 3) of the box
    rotation: jax.Array  # (steps, 3, 3)
    wanted: jax.Array  # (steps, 3)
    forces: jax.Array  # (steps, 2, 6) contact forces on the box
    report: cc.FrictionReport
    error: jax.Array  # (steps,) largest gap between fingertip and box
    arms: tuple[jax.Array, ...]  # (steps, links + 1, 3) per arm, for the picture


FRICTION, TORSION = 0.8, 0.05  # greatest force across, and moment (m) about the normal, per pressing force


def grasp() -> cc.mechanisms.Grasp:
    """Two seven-joint arms with soft fingers pressing on the ends of the box."""
    fingers = [cc.SoftFinger((-side, 0, 0), friction=FRICTION, torsion=TORSION) for side in (-1.0, 1.0)]
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
        out = Trace(p, R, wanted_path(p0, t, seconds)[0], s.contact_forces, report, gap, tuple(drawn))
        q, v, turn, p, V = runge_kutta(derivative, move, (q, v, jnp.zeros(3), p, V), dt)
        R = turned(R, turn)
        q, v = cc.project_grasp(system, q, v, (R, p), V, rotations, iterations=1)
        return (q, v, R, p, V), out

    state, chunk = (q0, still, R0, p0, jnp.zeros(6)), 50
    times = jnp.arange(-(-round(seconds / dt) // chunk) * chunk).reshape(-1, chunk) * dt
    advance = jax.jit(lambda x, times: jax.lax.scan(step, x, times))
    bar, traces = ProgressBar(times.size, "simulating"), []
    for part in times:
        state, trace = advance(state, part)
        traces.append(jax.block_until_ready(trace))
        bar.update(len(traces) * chunk)
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *traces)


# --- pictures -----------------------------------------------------------------------------------------------------

COLORS = ("tab:blue", "tab:orange")
HALF_SIZE = np.array([0.2, 0.08, 0.08])  # of the box; the fingers press on its ends


def box_edges(R: np.ndarray, p: np.ndarray) -> list[np.ndarray]:
    """The twelve edges, each (2, 3)."""
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    pairs = [(i, j) for i in range(8) for j in range(i) if np.abs(corners[i] - corners[j]).sum() == 2]
    world = p + (corners * HALF_SIZE) @ R.T
    return [world[list(pair)] for pair in pairs]


def draw_moment(scene, trace: Trace, k: int, strength: float = 1.0) -> None:
    """Both arms and the box at step k."""
    for arm, color in zip(trace.arms, COLORS, strict=True):
        scene.plot(*np.asarray(arm[k]).T, "o-", color=color, alpha=strength, markersize=4, linewidth=2.5)
    for edge in box_edges(np.asarray(trace.rotation[k]), np.asarray(trace.position[k])):
        scene.plot(*edge.T, color="black", alpha=strength, linewidth=1.2)


def set_view(scene, trace: Trace) -> None:
    """Equal scales, seen a little from above, so that the path (across the line between the arms) shows."""
    from matplotlib.ticker import MaxNLocator

    points = np.concatenate([np.asarray(arm).reshape(-1, 3) for arm in trace.arms])
    low, high = points.min(axis=0) - 0.05, points.max(axis=0) + 0.05
    scene.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    scene.set_box_aspect(high - low, zoom=1.15)
    scene.view_init(elev=15, azim=-35)
    scene.set(xlabel="x, m", ylabel="y, m", zlabel="z, m")
    for axis in (scene.xaxis, scene.yaxis, scene.zaxis):
        axis.set_major_locator(MaxNLocator(4))


def draw(trace: Trace, seconds: float, output: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    t = np.linspace(0, seconds, len(trace.position))
    figure = plt.figure(figsize=(12, 9), layout="constrained")
    scene = figure.add_subplot(2, 2, 1, projection="3d")
    for share, strength in ((0.3, 0.25), (0.7, 0.25), (0.0, 1.0)):
        draw_moment(scene, trace, int(share * (len(t) - 1)), strength)
    scene.plot(*np.asarray(trace.position).T, color="tab:red", linewidth=2)
    set_view(scene, trace)
    scene.set_title("two arms carry a box along the red path")
    path = figure.add_subplot(2, 2, 2)
    path.plot(trace.wanted[:, 1], trace.wanted[:, 2], color="gray", linewidth=5, alpha=0.4, label="wanted")
    path.plot(trace.position[:, 1], trace.position[:, 2], color="tab:red", label="flown")
    path.set(title="path of the box", xlabel="y, m", ylabel="z, m", aspect="equal")
    path.legend()
    forces, margins = figure.add_subplot(2, 2, 3), figure.add_subplot(2, 2, 4)
    report = trace.report
    for k, (side, color) in enumerate(zip(("left", "right"), COLORS, strict=True)):
        look = {"color": color, "linewidth": (5, 1.5)[k], "alpha": (0.4, 1)[k]}  # by symmetry the two nearly coincide
        forces.plot(t, report.normal_force[:, k], **look, label=f"{side}: pressing")
        forces.plot(t, report.tangential_force[:, k], "--", **look, label=f"{side}: across")
        # Shares of what friction could hold, so that force and moment compare.
        most = report.normal_force[:, k]
        margins.plot(t, report.friction_margin[:, k] / (FRICTION * most), **look, label=f"{side}: grip")
        margins.plot(t, report.torsion_margin[:, k] / (TORSION * most), "--", **look, label=f"{side}: twist")
    forces.set(title="contact forces", xlabel="t, s", ylabel="N", ylim=(0, None))
    forces.legend()
    margins.axhline(0, color="red", linewidth=1)
    margins.set(title="friction held in reserve (slips at zero)", xlabel="t, s", ylim=(-0.05, 1.05))
    margins.legend()
    figure.savefig(output, dpi=110)
    plt.close(figure)


def animate(trace: Trace, seconds: float, output: str, frames: int = 60) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.animation import FuncAnimation, PillowWriter

    figure = plt.figure(figsize=(6.4, 4.8), layout="constrained")
    scene = figure.add_subplot(projection="3d")
    bar = ProgressBar(frames, "drawing")

    def show(number):
        k = round(number / (frames - 1) * (len(trace.position) - 1))
        scene.clear()
        draw_moment(scene, trace, k)
        scene.plot(*np.asarray(trace.position[: k + 1]).T, color="tab:red", linewidth=2)
        set_view(scene, trace)
        scene.set_title(f"t = {seconds * k / len(trace.position):.1f} s")
        bar.update(number + 1)

    film = FuncAnimation(figure, show, frames=frames, init_func=lambda: None)
    film.save(output, writer=PillowWriter(fps=round(frames / seconds)))
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
        print(f"picture written to               {Path(arguments.output).resolve()}")
        if arguments.animation:
            animate(trace, arguments.seconds, arguments.animation)
            print(f"animation written to             {Path(arguments.animation).resolve()}")
    except ModuleNotFoundError:
        print('no picture: matplotlib is missing (pip install "jaxsoa[viz]")')


if __name__ == "__main__":
    main()
