"""A step with contacts: its parts, beside MuJoCo and MJX, its derivatives, and how long a gradient takes to compile.

    pip install -e ".[bench]" mujoco-mjx && python experiments/contact_benchmark.py [--batch 1024] [--repetitions 10]

- The quadruped (solo12, float64) stands on four feet and is pushed at random. A step beside the least it must compute:
  forward dynamics and the matrix J M^-1 J* of its feet.
- The same robot, feet as spheres on a plane, in MuJoCo (as many threads as there are processors) and MJX (in float64,
  as all of this): `--steps` steps of each from the same states without torques, contacts being all that is simulated
  beyond the dynamics. Their options are their defaults, but for the time step.
- A and B of a step of a humanoid (talos, 38 degrees of freedom, four corners of each foot) beside the step.
- Compilation of the gradient of a 100-step rollout.

Repetitions are interleaved, the least time of each is taken. MuJoCo 4.0.0 is not used: its Newton solver is wrong.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("JAX_ENABLE_X64", "1")
warnings.simplefilter("ignore")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import jaxsoa as soa  # noqa: E402
from jaxsoa import contact  # noqa: E402

DT = 2e-3
FEET = ("FL_FOOT", "FR_FOOT", "HL_FOOT", "HR_FOOT")
RADIUS = 0.01
PARTS = ("parts", "mujoco", "mjx", "derivatives", "compile")


def robot_file(name: str) -> Path:
    files = importlib.metadata.files("example-robot-data") or []
    return next(Path(str(file.locate())) for file in files if file.name == name)


def quadruped():
    """(robot, scene, standing configuration)."""
    robot = soa.load_urdf(robot_file("solo12.urdf"), floating_base=True, validate="off").frictionless()
    scene = contact.Scene(contact.Points(FEET, radii=[RADIUS] * 4), contact.Plane(), 0.6)
    q = robot.neutral()
    for leg in ("FL", "FR", "HL", "HR"):
        bend = 0.8 if leg[0] == "F" else -0.8
        q = q.at[robot.q_index(f"{leg}_HFE")].set(bend).at[robot.q_index(f"{leg}_KFE")].set(-2 * bend)
    return robot, scene, q.at[6].add(-jnp.min(contact.gaps(robot, scene, q)))


def humanoid():
    robot = soa.load_urdf(robot_file("talos_reduced.urdf"), floating_base=True, validate="off").frictionless()
    corners = [(x, y, 0.0) for x in (-0.1, 0.1) for y in (-0.06, 0.06)]
    points = contact.Points(["left_sole_link"] * 4 + ["right_sole_link"] * 4, corners * 2)
    scene = contact.Scene(points, contact.Plane(), 0.6)
    q = robot.neutral()
    return robot, scene, q.at[6].add(-jnp.min(contact.gaps(robot, scene, q)) - 1e-4)


def states(robot, q, batch: int):
    v = 0.2 * jax.random.normal(jax.random.key(0), (batch, robot.nv))
    return jnp.tile(q, (batch, 1)), v, 0.5 * jax.random.normal(jax.random.key(1), (batch, robot.nv))


def least_times(contenders: dict, repetitions: int) -> dict[str, float]:
    """Seconds of one call of each, interleaved; compiled before."""
    for call in contenders.values():
        call()
    best = dict.fromkeys(contenders, np.inf)
    for _ in range(repetitions):
        for name, call in contenders.items():
            begun = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - begun)
    return best


def on_batch(function, *arguments):
    compiled = jax.jit(jax.vmap(function))
    return lambda: jax.block_until_ready(compiled(*arguments))


def parts(batch: int, repetitions: int) -> None:
    robot, scene, q = quadruped()
    x = states(robot, q, batch)

    def least(q, v, tau):
        from jaxsoa.contact.rows import contact_jacobian, delassus, touching
        from jaxsoa.dynamics.kinematics import kinematics
        from jaxsoa.dynamics.motion import solve_motion

        pairs, kin = scene.pairs(robot), kinematics(robot, q)
        J = contact_jacobian(robot, kin, touching(robot, scene, kin, pairs).positions, pairs)
        a, _, factors = solve_motion(robot, q, v, tau, tau, None, None)
        return a, delassus(robot, factors, J.reshape(-1, robot.nv))

    from jaxsoa.kernels import door

    least_by_kernel = door(least, constants=())
    found = least_times(
        {
            "forward dynamics": on_batch(lambda *x: soa.forward_dynamics(robot, *x), *x),
            "forward dynamics and Delassus matrix": on_batch(least_by_kernel, *x),
            "step": on_batch(lambda *x: contact.step(robot, scene, *x, DT), *x),
        },
        repetitions,
    )
    for name, seconds in found.items():
        print(f"{name:<40}{1e6 * seconds / batch:8.2f} us")
    ratio = found["step"] / found["forward dynamics and Delassus matrix"]
    print(f"step / (forward dynamics and Delassus matrix) = {ratio:.1f}\n")


def mujoco_model(robot, q):
    """The quadruped with spheres at its feet and a plane, and its state (qpos)."""
    import mujoco
    from defusedxml import ElementTree

    root = ElementTree.fromstring(robot_file("solo12.urdf").read_text())
    extension = root.makeelement("mujoco", {})
    options = dict(fusestatic="false", balanceinertia="false", discardvisual="true", strippath="true")
    extension.append(extension.makeelement("compiler", options))
    root.append(extension)
    for link in root.findall("link"):
        for tag in ("visual", "collision"):
            for element in link.findall(tag):
                link.remove(element)
    spec = mujoco.MjSpec.from_string(ElementTree.tostring(root, encoding="unicode"))
    spec.body("base_link").add_freejoint()
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5, 5, 1], friction=[0.6, 0.005, 0.0001])
    for foot in FEET:
        spec.body(foot).add_geom(
            type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[RADIUS, 0, 0], mass=0.0, friction=[0.6, 0.005, 0.0001], condim=3
        )
    for geom in spec.geoms:  # feet touch the ground alone
        plane = geom.type == mujoco.mjtGeom.mjGEOM_PLANE
        geom.contype, geom.conaffinity = (1, 0) if plane else (0, 1)
    model = spec.compile()
    model.opt.timestep = DT
    model.dof_damping[:], model.dof_frictionloss[:], model.jnt_limited[:] = 0, 0, 0
    qpos = np.array(model.qpos0)
    qpos[:3], qpos[3:7] = np.asarray(q)[4:7], np.asarray(q)[:4]
    for i in range(model.njnt):
        if model.jnt_type[i] != mujoco.mjtJoint.mjJNT_FREE:
            qpos[model.jnt_qposadr[i]] = float(np.asarray(q)[robot.q_index(model.joint(i).name)][0])
    return model, qpos


def beside_mujoco(batch: int, repetitions: int, steps: int, with_mjx: bool) -> None:
    try:
        import mujoco
        import mujoco.rollout
    except ImportError:
        return print("MuJoCo is not installed.\n")
    robot, scene, q = quadruped()
    qs, vs, _ = states(robot, q, batch)
    tau = jnp.zeros(robot.nv)

    def simulated(q, v):
        advance = lambda x, _: (contact.step(robot, scene, *x, tau, DT)[:2], None)  # noqa: E731
        return jax.lax.scan(advance, (q, v), length=steps)[0]

    contenders = {"jaxsoa, float64": on_batch(simulated, qs, vs)}
    model, qpos = mujoco_model(robot, q)
    if mujoco.__version__ == "4.0.0":
        print("MuJoCo 4.0.0 has a wrong Newton solver: its time alone can be looked at.")
    assert model.nv == robot.nv and abs(model.body_mass.sum() - float(robot.mass.sum())) < 1e-9
    threads = len(os.sched_getaffinity(0))
    data = [mujoco.MjData(model) for _ in range(threads)]
    start = np.zeros((batch, mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
    start[:, 1 : 1 + model.nq] = qpos
    start[:, 1 + model.nq : 1 + model.nq + model.nv] = np.asarray(vs)
    with mujoco.rollout.Rollout(nthread=threads) as pool:
        contenders["MuJoCo, all threads"] = lambda: pool.rollout(model, data, start, nstep=steps)
        if with_mjx:
            mjx_step(contenders, model, qpos, vs, steps)
        found = least_times(contenders, repetitions)
        mujoco.mj_resetData(model, data[0])
        data[0].qpos[:] = qpos
        mujoco.mj_forward(model, data[0])
        print(f"MuJoCo {mujoco.__version__}: {data[0].ncon} contacts at the start")
    for name, seconds in found.items():
        ours = found["jaxsoa, float64"]
        print(f"{name:<40}{1e6 * seconds / batch / steps:8.2f} us a step   {seconds / ours:6.2f} x ours")
    print()


def mjx_step(contenders: dict, model, qpos, vs, steps: int) -> None:
    try:
        from mujoco import mjx
    except ImportError:
        return print("MJX is not installed.")
    device = mjx.put_model(model)
    blank = mjx.make_data(device)

    def simulated(v):
        data = blank.replace(qpos=jnp.asarray(qpos, blank.qpos.dtype), qvel=v.astype(blank.qvel.dtype))
        return jax.lax.scan(lambda d, _: (mjx.step(device, d), None), data, length=steps)[0].qpos

    contenders[f"MJX, {blank.qpos.dtype}"] = on_batch(simulated, vs)


def derivatives(batch: int, repetitions: int) -> None:
    for what, make in (("quadruped", quadruped), ("humanoid", humanoid)):
        robot, scene, q = make()
        x = states(robot, q, batch)
        contenders = {
            "step": on_batch(lambda *x, r=robot, s=scene: contact.step(r, s, *x, DT)[:2], *x),
            "A and B": on_batch(lambda *x, r=robot, s=scene: soa.linearize_step(r, *x, DT, contact=s)[:2], *x),
        }
        found = least_times(contenders, repetitions)
        ratio = found["A and B"] / found["step"]
        print(f"{what} ({robot.nv} degrees of freedom, {len(scene.points)} contacts, batch {batch}):", end=" ")
        print(", ".join(f"{name} {1e6 * s / batch:.1f} us" for name, s in found.items()), f"= {ratio:.1f} steps")
    print()


def compilation() -> None:
    robot, scene, q = quadruped()
    scene = scene.replace(gradient="relaxed")

    def cost(torques, q, v):
        last = soa.rollout(robot, q, v, torques, DT, contact=scene, record="final")
        return jnp.sum(last.q[4:] ** 2) + jnp.sum(last.v**2)

    torques, v = jnp.zeros((100, robot.nv)), jnp.zeros(robot.nv)
    begun, cpu = time.perf_counter(), time.process_time()
    run = jax.jit(jax.value_and_grad(cost)).lower(torques, q, v).compile()
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    assert np.isfinite(np.asarray(run(torques, q, v)[1])).all()
    print(f"gradient of a 100-step rollout: compiled in {seconds:.1f} s ({cpu:.1f} s of processors)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", nargs="*", choices=PARTS)
    options = parser.parse_args()
    wanted = options.only or PARTS
    if "parts" in wanted:
        parts(options.batch, options.repetitions)
    if "mujoco" in wanted or "mjx" in wanted:
        beside_mujoco(options.batch, options.repetitions, options.steps, "mjx" in wanted)
    if "derivatives" in wanted:
        derivatives(max(options.batch // 8, 1), options.repetitions)
    if "compile" in wanted:
        compilation()
