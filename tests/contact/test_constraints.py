"""Mimic joints, joint limits and prescribed joints in one solve with contacts, and bodies that touch bodies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_cases import G

import jaxsoa as soa
from jaxsoa import contact

DT = 2e-3


def _link(name: str, mass: float) -> str:
    return f"""<link name="{name}"><inertial><mass value="{mass}"/>
    <inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>"""


def _slider(name: str, parent: str, axis: str, lower: float = -100, extra: str = "") -> str:
    return f"""<joint name="to_{name}" type="prismatic"><parent link="{parent}"/><child link="{name}"/>
    <axis xyz="{axis}"/><limit lower="{lower}" upper="100" effort="1" velocity="1"/>{extra}</joint>"""


MASSES = {"a": 1.0, "b": 2.0, "c": 3.0, "belt": 50.0, "carrier": 1e-3, "parcel": 0.5}
URDF = f"""<robot name="sliders"><link name="world"/>{"".join(_link(*item) for item in MASSES.items())}
{_slider("a", "world", "0 0 1")}{_slider("b", "world", "0 0 1", extra='<mimic joint="to_a" multiplier="2"/>')}
{_slider("c", "world", "0 0 1", lower=0.0)}{_slider("belt", "world", "1 0 0")}{_slider("carrier", "world", "1 0 0")}
{_slider("parcel", "carrier", "0 0 1")}</robot>"""


@pytest.mark.slow
def test_mimics_limits_and_a_belt_of_prescribed_motion():
    """One body stands for two, one lies on its joint's limit, one is taken along by a moving belt."""
    with pytest.warns(soa.ModelWarning, match="mimic"):
        robot = soa.load_urdf(URDF)
    at = {name: robot.v_index(f"to_{name}").start for name in MASSES}
    points = contact.Points(["a", "parcel"], [(5, 0, 0), (0, 0, 0)])
    surfaces = (contact.Box((1, 1, 1), (5, 0, -0.5)), contact.Box((8, 1, 1), (0, 0, -0.5), frame="belt"))
    scene = contact.Scene(points, surfaces, 0.4, limits=["to_c"])
    q, v = robot.neutral(), jnp.zeros(robot.nv).at[at["belt"]].set(0.5)
    held = jnp.zeros(robot.nv, bool).at[at["belt"]].set(True)
    tau = jnp.zeros(robot.nv)

    @jax.jit
    def run(q, v):
        def one(state, _):
            loops = soa.closed_chain.mimic_couplings(robot)
            s = contact.step(robot, scene, *state, tau, DT, loops=loops, prescribed=held)
            return (s.q, s.v), (s.v, s.residual)

        (q_end, v_end), (vs, residuals) = jax.lax.scan(one, (q, v), length=100)
        same = soa.rollout(robot, q, v, None, DT, steps=100, contact=scene, prescribed=held, record="final")

        def pushed(a):
            return contact.step(
                robot, scene, q_end, v_end, tau, DT, loops=soa.closed_chain.mimic_couplings(robot), prescribed=(held, a)
            )

        s, ds = jax.jvp(pushed, (jnp.zeros(robot.nv),), (jnp.full(robot.nv, 1.0),))
        return vs, residuals, q_end, same, s, ds.v

    vs, residuals, q_end, same, s, dv = run(q, v)
    assert float(residuals.max()) < 1e-11
    assert np.asarray(same.q) == pytest.approx(np.asarray(q_end), abs=1e-9)  # rollout couples mimics by itself
    by_name = {name: np.asarray(vs)[:, i] for name, i in at.items()}
    for name in "abc":
        assert np.abs(by_name[name]).max() < 1e-12
    assert by_name["belt"] == pytest.approx(0.5, rel=1e-12)
    # Friction of the parcel moves the carrier too.
    pace = 0.4 * G * MASSES["parcel"] / (MASSES["parcel"] + MASSES["carrier"])
    slides = int(0.5 / (pace * DT)) - 1
    assert by_name["carrier"][:slides] == pytest.approx(pace * DT * np.arange(1, slides + 1), rel=1e-9)
    assert by_name["carrier"][slides + 2 :] == pytest.approx(0.5, rel=1e-9)
    pairs = [(p.point, p.surface) for p in scene.pairs(robot)]
    on_ground = np.asarray(s.impulses)[pairs.index((0, 0))]
    assert on_ground / DT == pytest.approx([0, 0, (MASSES["a"] + 2 * MASSES["b"]) * G], rel=1e-9, abs=1e-9)
    assert np.asarray(s.limit_impulses) / DT == pytest.approx([MASSES["c"] * G], rel=1e-9)
    assert np.abs(s.loop_impulses).max() / DT == pytest.approx(MASSES["b"] * G, rel=1e-9)
    # The belt speeds up by the acceleration given, and the parcel that sticks to it with it; the others do not move.
    expected = np.zeros(robot.nv)
    expected[[at["belt"], at["carrier"]]] = DT
    assert np.asarray(dv) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_a_gripper_holds_a_block_by_friction_or_lets_it_slip():
    """Two spheres press a free box from both sides with 10 N each: friction carries 2 mu 10 N of its weight."""
    builder = soa.Builder("gripper")
    for name in ("left", "right"):
        builder.link(name, joint="prismatic", axis=(0, 1, 0), mass=0.2, inertia=1e-4 * np.eye(3))
    builder.link("block", joint="free", mass=1.0, inertia=1e-3 * np.eye(3))
    robot = builder.build()
    points = contact.Points(["left", "right"], [(0, -0.07, 0), (0, 0.07, 0)], [0.02, 0.02])
    q = robot.neutral()
    tau = jnp.zeros(robot.nv).at[0].set(10.0).at[1].set(-10.0)

    @jax.jit
    def run(friction):
        scene = contact.Scene(points, contact.Box((0.1, 0.1, 0.1), frame="block"), friction)

        def one(state, _):
            s = contact.step(robot, scene, *state, tau, DT)
            return (s.q, s.v), (s.v, s.impulses, s.residual)

        return jax.lax.scan(one, (q, jnp.zeros(robot.nv)), length=25)[1]

    v, impulses, residual = (np.asarray(x) for x in run(0.6))
    assert residual.max() < 1e-11
    assert np.abs(v).max() < 1e-11
    assert impulses[-1].sum(axis=0) / DT == pytest.approx([0, 0, -G], abs=1e-8)
    assert impulses[-1, :, 1] / DT == pytest.approx([-10, 10], rel=1e-9)
    v, impulses, residual = (np.asarray(x) for x in run(0.3))
    assert residual.max() < 1e-11
    assert v[:, 7] == pytest.approx(-(G - 0.3 * 20) * DT * np.arange(1, 26), rel=1e-6)  # falls with what is left


def test_a_ball_on_a_paddle_gives_and_takes_momentum():
    """An elastic ball on a free paddle, no gravity: momentum and energy of the pair stay, speeds are exchanged."""
    builder = soa.Builder("play")
    builder.link("paddle", joint="prismatic", axis=(0, 0, 1), mass=3.0, inertia=np.eye(3))
    builder.link("ball", joint="prismatic", axis=(0, 0, 1), mass=1.0, inertia=np.eye(3))
    robot = builder.build(gravity=(0, 0, 0))
    scene = contact.Scene(contact.Points("ball", radii=[0.1]), contact.Plane(frame="paddle"), 0.0, restitution=1.0)
    step = jax.jit(lambda q, v: contact.step(robot, scene, q, v, jnp.zeros(2), 0.01))
    s = step(jnp.array([0.0, 0.105]), jnp.array([0.5, -0.5]))
    assert float(s.residual) < 1e-12
    # Of the centre of mass twice, less their own.
    assert np.asarray(s.v) == pytest.approx([2 * 0.25 - 0.5, 2 * 0.25 + 0.5], rel=1e-12, abs=1e-12)
    meets = 0.005 / 1.0
    assert np.asarray(s.q) == pytest.approx([0.5 * meets, 0.105 - 0.5 * meets + (0.01 - meets) * 1.0], abs=1e-12)
    assert np.asarray(s.impulses[0]) == pytest.approx([0, 0, 1.5], abs=1e-12)
