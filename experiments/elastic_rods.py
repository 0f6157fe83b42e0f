"""Elastic rods against beam theory, MuJoCo's cable and Exudyn's ANCF beams, and how long they take to compile.

Four tables: (1) a cantilever under a force across its tip, F L^2 / EI = 0.1 and 10, against the elastica, and its first
three bending frequencies against Euler and Bernoulli, for more and more segments; (2) the accelerations of a bent chain
of MuJoCo's own pieces (its cable plugin bends at their ends, without the half pieces that make `models.rod` converge
with the square), which share springs and inertias, and the tip of a falling cable; (3) the same falls and static
deflections by Exudyn; (4) processor time to compile a simulation and its derivative by E for 10 and for 1,000 segments,
each in a fresh process without caches, interleaved.

    pip install exudyn "mujoco<3.5"     # later wheels of MuJoCo have no cable plugin; what is missing is left out
    python experiments/elastic_rods.py [--repetitions 3] [--only beam mujoco exudyn compile]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from scipy.integrate import simpson, solve_bvp  # noqa: E402

import jaxsoa as soa  # noqa: E402

E, G, DENSITY, RADIUS, LENGTH = 2.0e7, 1.0e7, 1200.0, 0.01, 1.0  # rubber; E = 2 G makes ball springs isotropic
AREA = np.pi * RADIUS**2
EI, GJ = E * AREA * RADIUS**2 / 4, G * AREA * RADIUS**2 / 2
DT, FALL = 2e-4, 0.25  # s


def rod(segments: int, E=E) -> soa.Multibody:
    return soa.models.rod(LENGTH, segments, soa.models.circle(RADIUS), E=E, G=G, density=DENSITY)


# --- beam theory ------------------------------------------------------------------------------------------------------


def elastica(load: float) -> np.ndarray:
    """(x, drop) of the tip over L, load = F L^2 / EI: theta'' = -load cos theta."""

    def ends(a, b):
        return np.array([a[0], b[1]])

    def slope(_, y):
        return np.stack([y[1], -load * np.cos(y[0])])

    s = np.linspace(0, 1, 200)
    found = solve_bvp(slope, ends, s, np.stack([s, 1 - s]), tol=1e-10, max_nodes=40000)
    angle = found.sol(np.linspace(0, 1, 4001))[0]
    return np.array([simpson(np.cos(angle), dx=1 / 4000), simpson(np.sin(angle), dx=1 / 4000)])


def settled(segments: int, load: float) -> np.ndarray:
    """(x, drop) of the tip over L at rest under the force, by Newton's method with limited steps."""
    robot = rod(segments).with_gravity(jnp.zeros(3))
    push = jnp.zeros(6).at[5].set(-load * EI / LENGTH**2)
    still = jnp.zeros(robot.nv)

    def unmet(q):
        return soa.inverse_dynamics(robot, q, still, still, soa.external_forces(robot, q, {"tip": push}))

    @jax.jit
    def solve(q):
        def newton(q, _):
            J = jax.jacfwd(lambda d: unmet(robot.integrate(q, d)))(still)
            dq = -jnp.linalg.solve(J, unmet(q))
            return robot.integrate(q, dq * jnp.minimum(1, 0.3 / jnp.max(jnp.abs(dq)))), None

        q = jax.lax.scan(newton, q, None, length=30)[0]
        return jnp.abs(unmet(q)).max(), soa.frame_pose(robot, q, "tip")[1]

    residual, tip = solve(robot.neutral())
    assert residual < 1e-8 * EI, residual
    return np.array([tip[0], -tip[2]]) / LENGTH


def frequencies(segments: int) -> np.ndarray:
    """First three bending frequencies, rad/s."""
    robot = rod(segments)
    M = np.asarray(jax.jit(soa.mass_matrix)(robot, robot.neutral()))
    root = np.sqrt(np.asarray(robot.stiffness))
    return np.sqrt(np.sort(np.linalg.eigvalsh(root[:, None] * np.linalg.inv(M) * root))[:6:2])


def beam() -> None:
    exact = {load: elastica(load) for load in (0.1, 10.0)}
    rings = np.array([1.8751041, 4.6940911, 7.8547574]) ** 2 * np.sqrt(EI / (DENSITY * AREA)) / LENGTH**2
    print("Relative errors:  F L^2/EI = 0.1        F L^2/EI = 10         three frequencies")
    for segments in (5, 10, 20, 40):
        tips = [np.abs(settled(segments, load) - exact[load]).max() / exact[load][1] for load in exact]
        rung = np.abs(frequencies(segments) / rings - 1)
        print(f"{segments:4d} segments   {tips[0]:18.1e} {tips[1]:20.1e}       " + " ".join(f"{x:.1e}" for x in rung))


# --- falling ----------------------------------------------------------------------------------------------------------


def falls(robot: soa.Multibody, frame: str = "tip") -> np.ndarray:
    """Place of the tip after the fall."""
    options = {"steps": round(FALL / DT), "integrator": "rk4", "record": "final"}
    still = jnp.zeros(robot.nv)
    options = {"steps": round(FALL / DT), "integrator": "rk4", "record": "final"}
    still = jnp.zeros(robot.nv)
    end = jax.jit(lambda robot: soa.rollout(robot, robot.neutral(), still, None, DT, **options))(robot)
    return np.asarray(soa.frame_pose(robot, end.q, frame)[1])


def pieces(segments: int) -> soa.Multibody:
    """MuJoCo's cable: whole cylinders, the first one fixed, balls where they meet."""
    h = LENGTH / segments
    mass = DENSITY * AREA * h
    across = mass * (RADIUS**2 / 4 + h**2 / 12)
    body = {"mass": mass, "com": (h / 2, 0, 0), "inertia": np.diag([mass * RADIUS**2 / 2, across, across])}
    builder = soa.Builder("cable")
    for k in range(1, segments):
        parent = None if k == 1 else f"piece{k - 1}"
        builder.link(f"piece{k}", joint="spherical", parent=parent, position=(h, 0, 0),
                     stiffness=(GJ / h, EI / h, EI / h), **body)  # fmt: skip
    builder.frame("tip", link=f"piece{segments - 1}", position=(h, 0, 0))
    return builder.build()


def mujoco_cable() -> None:
    try:
        import mujoco
    except ImportError as reason:
        return print(f"MuJoCo left out: {reason}")
    segments = 20
    try:
        model = mujoco.MjModel.from_xml_string(CABLE.format(segments + 1, LENGTH, G, E, RADIUS, DENSITY, DT))
    except ValueError as reason:
        return print(f"MuJoCo {mujoco.__version__} left out: {reason}")
    data, robot = mujoco.MjData(model), pieces(segments)
    assert model.nv == robot.nv, (model.nv, robot.nv)
    rng = np.random.default_rng(0)
    q = robot.integrate(robot.neutral(), 0.3 * rng.normal(size=robot.nv))
    v = rng.normal(size=robot.nv)
    data.qpos[:], data.qvel[:] = q, v  # balls: quaternions w first and velocities in the child's axes, as here
    mujoco.mj_forward(model, data)
    ours = np.asarray(jax.jit(soa.forward_dynamics)(robot, q, v, jnp.zeros(robot.nv)))
    apart = np.abs(data.qacc - ours).max() / np.abs(ours).max()
    print(f"MuJoCo {mujoco.__version__}: accelerations of a bent cable, {segments} pieces, differ by {apart:.1e}")
    mujoco.mj_resetData(model, data)
    for _ in range(round(FALL / DT)):
        mujoco.mj_step(model, data)
    mujoco.mj_kinematics(model, data)
    last = model.body("B_last").id
    tip = data.xpos[last] + data.xmat[last].reshape(3, 3) @ np.array([LENGTH / segments, 0, 0])
    same = falls(robot)
    print(f"after {FALL} s of falling: MuJoCo {tip[[0, 2]]}")
    print(f"    the same pieces {same[[0, 2]]}, {np.linalg.norm(tip - same):.1e} m apart")
    for n in (20, 40):
        print(f"    models.rod of {n} segments {falls(rod(n))[[0, 2]]}")


CABLE = """
<mujoco><extension><plugin plugin="mujoco.elasticity.cable"/></extension>
<option timestep="{6}" integrator="RK4"><flag contact="disable"/></option>
<worldbody><composite type="cable" curve="s" count="{0} 1 1" size="{1}" offset="0 0 0" initial="none">
<plugin plugin="mujoco.elasticity.cable"><config key="twist" value="{2}"/><config key="bend" value="{3}"/></plugin>
<joint kind="main" damping="0" armature="0"/><geom type="cylinder" size="{4}" density="{5}"/>
</composite></worldbody></mujoco>
"""


def exudyn_beam() -> None:
    try:
        import exudyn as exu
        import exudyn.itemInterface as items
        from exudyn.beams import GenerateStraightLineANCFCable2D
    except ImportError as reason:
        return print(f"Exudyn left out: {reason}")

    warnings.simplefilter("ignore", DeprecationWarning)

    def system(elements: int, weight: float, force: float):
        mbs = exu.SystemContainer().AddSystem()
        template = items.ObjectANCFCable2D(
            physicsMassPerLength=DENSITY * AREA, physicsBendingStiffness=EI, physicsAxialStiffness=E * AREA
        )
        made = GenerateStraightLineANCFCable2D(
            mbs, positionOfNode0=[0, 0, 0], positionOfNode1=[LENGTH, 0, 0], numberOfElements=elements,
            cableTemplate=template, massProportionalLoad=[0, -weight, 0], fixedConstraintsNode0=[1, 1, 0, 1],
            fixedConstraintsNode1=[0, 0, 0, 0],
        )  # fmt: skip
        last = made[0][-1]
        if force:
            marker = mbs.AddMarker(items.MarkerNodePosition(nodeNumber=last))
            mbs.AddLoad(items.Force(markerNumber=marker, loadVector=[0, -force, 0]))
        mbs.Assemble()
        return mbs, lambda: np.array(mbs.GetNodeOutput(last, exu.OutputVariableType.Position))[:2]

    settings = exu.SimulationSettings()
    settings.solution.file.write = False
    settings.staticSolver.numberOfLoadSteps = 50
    settings.timeIntegration.numberOfSteps, settings.timeIntegration.endTime = round(FALL / DT), FALL
    settings.timeIntegration.newton.relativeTolerance = 1e-8
    settings.staticSolver.newton.relativeTolerance = 1e-6  # rounding of stretching against bending
    for load in (0.1, 10.0):
        mbs, tip = system(40, 0.0, load * EI / LENGTH**2)
        mbs.SolveStatic(settings)
        x, y = tip() / LENGTH
        print(f"F L^2/EI = {load}: Exudyn {x:.5f} {-y:.5f}, models.rod of 40 segments", *settled(40, load).round(5),
              "elastica", *elastica(load).round(5))  # fmt: skip
    for elements in (20, 40):
        mbs, tip = system(elements, 9.81, 0.0)
        mbs.SolveDynamic(settings)
        print(f"after {FALL} s of falling: Exudyn, {elements} elements", tip())
    for segments in (20, 40):
        print(f"    models.rod of {segments} segments", falls(rod(segments))[[0, 2]])


# --- compile times ----------------------------------------------------------------------------------------------------


def compile_once(segments: int) -> None:
    """Seconds to compile ten steps, and their derivative by E, of a rope of so many segments."""

    def height(E):
        robot = soa.models.rod(100.0, segments, soa.models.circle(RADIUS), E=E, G=G, density=DENSITY)
        still = jnp.zeros(robot.nv)
        end = soa.rollout(robot, robot.neutral(), still, None, 5e-5, steps=10, integrator="rk4", record="final")
        return soa.frame_pose(robot, end.q, "tip")[1][2]

    for function in (height, jax.value_and_grad(height)):
        began = time.process_time()
        compiled = jax.jit(function).lower(E).compile()
        print(time.process_time() - began, end=" ")
        assert np.isfinite(jax.tree.leaves(compiled(E))).all()


def compile_times(repetitions: int) -> None:
    sizes, best = (10, 1000), {}
    clean = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"} | {"JAXSOA_KERNEL_CACHE": "0"}
    for _ in range(repetitions):
        for n in sizes:
            command = [sys.executable, __file__, "--segments", str(n)]
            ran = subprocess.run(command, capture_output=True, text=True, env=clean, check=True)
            times = np.array(ran.stdout.split(), float)
            best[n] = np.minimum(best.get(n, np.inf), times)
    print("seconds of processor time to compile ten steps, and with the derivative by E:")
    for n in sizes:
        print(f"{n:5d} segments  " + "  ".join(f"{x:.2f}" for x in best[n]))
    print("ratios         " + "  ".join(f"{x:.2f}" for x in best[1000] / best[10]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3)
    tables = {"beam": beam, "mujoco": mujoco_cable, "exudyn": exudyn_beam, "compile": None}
    parser.add_argument("--only", nargs="*", default=list(tables), choices=list(tables))
    parser.add_argument("--segments", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.segments is not None:
        return compile_once(options.segments)
    for name in options.only:
        table = tables[name]
        compile_times(options.repetitions) if table is None else table()
        print(flush=True)


if __name__ == "__main__":
    main()
