"""Actuators, sensors, springs and keyframes of MJCF models against MuJoCo itself."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from mjcf_collection import MJCF_FILES, compile_quietly

import jaxsoa as soa
from jaxsoa import closed_chain as cc, simulate
from jaxsoa.io import mjcf_devices as devices
from jaxsoa.io.mjcf import left_out
from jaxsoa.io.mjcf_constraints import mjcf_equalities

SUITE = [name for name in MJCF_FILES if name.startswith(("dm_control/suite/", "gymnasium/envs/mujoco/assets/"))]
SLOW = ("humanoid", "dog", "quadruped", "stacker", "manipulator", "cheetah", "hopper", "walker", "finger", "ant")

ARM = """
<mujoco><option gravity="0.5 0 -9.81" density="30" viscosity="0.4" wind="0.3 -0.2 0.1"/>
  <worldbody><site name="fixed" pos="0.1 0.2 0.3" euler="10 20 30"/>
    <body name="upper" pos="0 0 1"><joint name="shoulder" axis="0 1 0" stiffness="3" springref="0.2" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0.5 0 0" size="0.05"/>
      <body name="pad" pos="0.2 0 0.1" euler="0 20 0"><geom size="0.07"/><site name="weld" pos="0.01 0.02 0.03"/>
        <body name="whip" pos="0.1 0 0"><joint name="whip" axis="1 0 0"/><geom size="0.04" pos="0 0.1 0"/></body>
      </body>
      <body name="lower" pos="0.5 0 0"><joint name="elbow" axis="0 1 0" armature="0.02"/>
        <joint name="slide" type="slide" axis="1 0 0"/>
        <geom type="capsule" fromto="0 0 0 0.4 0.1 0" size="0.04"/><site name="tip" pos="0.4 0.1 0" euler="5 40 9"/>
        <body name="hand" pos="0.4 0.1 0" gravcomp="0.8"><joint name="wrist" type="ball" stiffness="0.7"/>
          <geom type="box" size="0.03 0.05 0.08"/><site name="palm" pos="0 0 0.1" euler="30 0 10"/></body>
      </body>
    </body>
    <body name="loose" pos="1 1 1"><freejoint name="free"/><geom type="box" size="0.1 0.2 0.3"/>
      <site name="core" pos="0.1 0 0.05"/></body>
  </worldbody>
  <tendon><fixed name="cable" stiffness="5" damping="0.3" springlength="0.1 0.3"><joint joint="shoulder" coef="0.4"/>
    <joint joint="elbow" coef="-0.6"/></fixed>
    <spatial name="rope" stiffness="40" damping="0.6" springlength="0.2 0.5" limited="true" range="0 0.7">
      <site site="fixed"/><site site="weld"/><site site="tip"/><pulley divisor="2"/><site site="tip"/>
      <site site="core"/><pulley divisor="3"/><site site="palm"/><site site="core"/><site site="weld"/>
    </spatial></tendon>
  <actuator>
    <motor name="motor" joint="shoulder" gear="3" ctrlrange="-1 1" ctrllimited="true"/>
    <position name="position" joint="elbow" kp="20" kv="2" gear="2" forcerange="-4 4" forcelimited="true"/>
    <velocity name="velocity" joint="slide" kv="7"/>
    <general name="lag" joint="shoulder" dyntype="filter" dynprm="0.05" gainprm="4"/>
    <general name="exact" joint="elbow" dyntype="filterexact" dynprm="0.03" gainprm="2" actearly="true"/>
    <general name="sum" tendon="cable" dyntype="integrator" gaintype="affine" gainprm="1 2 3" biastype="affine"
      biasprm="0.1 0.2 0.3" actrange="-0.3 0.3" actlimited="true"/>
    <general name="jet" site="palm" gear="1 2 3 0.4 0.5 0.6"/>
    <position name="winch" tendon="rope" gear="-1.5" kp="3" kv="0.2"/>
  </actuator>
  <sensor>
    <jointpos name="p" joint="elbow"/><jointvel name="v" joint="slide"/><ballquat name="b" joint="wrist"/>
    <ballangvel name="bv" joint="wrist"/><tendonpos name="tp" tendon="cable"/><tendonvel name="tv" tendon="cable"/>
    <tendonpos name="rp" tendon="rope"/><tendonvel name="rv" tendon="rope"/>
    <actuatorpos name="wp" actuator="winch"/><actuatorvel name="wv" actuator="winch"/>
    <actuatorpos name="ap" actuator="position"/><actuatorvel name="av" actuator="sum"/>
    <gyro name="g" site="palm"/><velocimeter name="vm" site="palm"/><accelerometer name="acc" site="palm"/>
    <accelerometer name="acc0" site="fixed"/><force name="f" site="tip"/><torque name="t" site="tip"/>
    <force name="fw" site="weld"/><torque name="tw" site="weld"/><force name="fp" site="palm" cutoff="2"/>
    <framepos name="fp0" objtype="site" objname="palm"/><framequat name="fq" objtype="body" objname="hand"/>
    <framexaxis name="fx" objtype="geom" objname="none"/>
    <framepos name="fr" objtype="xbody" objname="lower" reftype="site" refname="weld"/>
    <framequat name="qr" objtype="site" objname="palm" reftype="body" refname="whip"/>
    <framelinvel name="lr" objtype="body" objname="hand" reftype="site" refname="weld"/>
    <frameangvel name="ar" objtype="site" objname="tip" reftype="xbody" refname="loose"/>
    <framelinvel name="l" objtype="site" objname="palm"/><frameangvel name="a" objtype="xbody" objname="loose"/>
    <framelinacc name="la" objtype="site" objname="palm"/><frameangacc name="aa" objtype="body" objname="hand"/>
    <subtreecom name="sc" body="pad"/><subtreelinvel name="sv" body="lower"/><subtreeangmom name="sa" body="upper"/>
    <subtreecom name="all" body="world"/><subtreelinvel name="alls" body="world"/>
    <touch name="touch" site="palm"/>
  </sensor>
  <keyframe><key name="home" qpos="0.1 0.2 0.3 0.4 1 0 0 0 1 2 3 0 1 0 0" ctrl="1 2 3 4 5 6 7 8" time="2"/></keyframe>
</mujoco>
""".replace('objtype="geom" objname="none"', 'objtype="camera" objname="eye"').replace(
    '<site name="palm"', '<camera name="eye" pos="0.1 0 0" euler="0 9 0"/><site name="palm"'
)


def quietly(load, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soa.ModelWarning)
        return load(*arguments)


def random_state(model, robot, seed=0):
    """The same random state here and there, forces and accelerations of MuJoCo computed; no contacts, no limits."""
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    rng, data = np.random.default_rng(seed), mujoco.MjData(model)
    mujoco.mj_integratePos(model, data.qpos, rng.normal(size=model.nv), 0.3)
    data.qvel[:] = rng.normal(size=model.nv)
    data.ctrl[:] = rng.uniform(-2, 2, size=len(data.ctrl))
    data.act[:] = rng.uniform(-0.5, 0.5, size=len(data.act))
    mujoco.mj_forward(model, data)
    theirs = soa.convert.MujocoMap(robot, model)
    q = theirs.q_from(np.array(data.qpos))
    v = theirs.v_from(np.array(data.qvel), q)
    return data, theirs, q, v, theirs.a_from(np.array(data.qacc), q, v)


def assert_close(found, expected, name):
    scale = 1 + np.abs(expected).max(initial=0)
    np.testing.assert_allclose(np.asarray(found) / scale, np.asarray(expected) / scale, rtol=0, atol=1e-9, err_msg=name)


def check_actuators(robot, model):
    """Forces of the actuators, torques on the joints, activations after a step."""
    assert devices.unsupported_actuators(model) == []
    motors = quietly(soa.load_mjcf_actuators, robot, model)
    data, theirs, q, v, _ = random_state(model, robot)
    memory = motors.initial(jnp.asarray(q), jnp.asarray(v))
    adr = np.asarray(model.actuator_actadr)
    value = np.zeros(motors.nu)
    value[adr >= 0] = np.array(data.act)[adr[adr >= 0]]
    memory = memory._replace(value=jnp.asarray(value))
    dt, command = model.opt.timestep, jnp.asarray(np.array(data.ctrl))
    run = jax.jit(lambda m, c, q, v, s: (m.forces(c, q, v, s, dt), *m(c, q, v, s, dt)))
    force, torque, after = run(motors, command, jnp.asarray(q), jnp.asarray(v), memory)
    assert_close(force, np.array(data.actuator_force), "actuator_force")
    assert_close(theirs.tau_to(np.asarray(torque), q), np.array(data.qfrc_actuator), "qfrc_actuator")
    mujoco.mj_step(model, data)
    assert_close(np.asarray(after.value)[adr >= 0], np.array(data.act)[adr[adr >= 0]], "act")


def check_sensors(robot, model):
    """Every reading but those that need contact geometry."""
    sensors = quietly(soa.load_mjcf_sensors, robot, model)
    data, _, q, v, a = random_state(model, robot, seed=1)
    strings = None
    if np.any(data.cfrc_ext):  # MuJoCo 4 feels what tendons do to bodies between them
        springs, motors = soa.load_mjcf_springs(robot, model), quietly(soa.load_mjcf_actuators, robot, model)
        pull = -np.array(data.actuator_force)  # a tendon pulls where an actuator shortens it
        strings = springs.on_links(robot, q, v) + motors.tendons.on_links(robot, q, pull)
    readings = jax.jit(lambda s, r, q, v, a, f: s(r, q, v, a, f))(sensors, robot, q, v, a, strings)
    assert len(readings) + len(devices.unsupported_sensors(model)) == model.nsensor
    for name, reading in readings.items():
        expected = data.sensor(name).data
        if len(expected) == 4 and expected @ np.asarray(reading) < 0:
            expected = -expected  # the same rotation
        assert_close(reading, expected, name)


def check_passive(robot, model):
    """Springs, dampers, the medium: MuJoCo's passive forces, with our own damping of joints taken off."""
    everything = quietly(soa.load_mjcf_passive, robot, model)
    forces = [force for force in everything if not isinstance(force, simulate.TendonLimits)]  # constraints in MuJoCo
    data, theirs, q, v, _ = random_state(model, robot, seed=2)
    passive = theirs.tau_from(np.array(data.qfrc_passive), q) + np.asarray(robot.damping) * v
    if hasattr(robot, "stiffness"):
        passive = passive + np.asarray(robot.stiffness * robot.difference(robot.rest, jnp.asarray(q)))
    found = jax.jit(lambda s, r, q, v: sum(force(r, q, v) for force in s))(forces, robot, q, v)
    assert_close(found, passive, "qfrc_passive")
    return [type(force).__name__ for force in everything]


def test_everything_in_one_arm():
    model = mujoco.MjModel.from_xml_string(ARM)
    robot = quietly(soa.load_mjcf, model)
    limits = soa.load_mjcf_passive(robot, model)[-1]
    assert isinstance(limits, simulate.TendonLimits) and limits.tendons.names == ("rope",)
    np.testing.assert_array_equal(limits.range, [[0, 0.7]])
    check_actuators(robot, model)
    check_sensors(robot, model)
    assert check_passive(robot, model) == ["Springs", "Fluid", "GravityCompensation"]
    assert devices.unsupported_sensors(model) == ["touch: touch"]
    with pytest.warns(soa.ModelWarning, match="sensors without a counterpart here: touch: touch"):
        soa.load_mjcf_sensors(robot, model)
    home = soa.load_mjcf_keyframes(robot, model)["home"]
    assert home.time == 2
    np.testing.assert_array_equal(home.q[robot.q_index("free")], [0, 1, 0, 0, 1, 2, 3])
    np.testing.assert_array_equal(home.command, [1, 2, 3, 4, 5, 6, 7, 8])


SWITCHES = """
<mujoco><option density="30" viscosity="0.4" {options}><flag {flags}/></option><worldbody>
  <site name="w" pos="0 0 1"/><body gravcomp="0.5"><joint name="a" axis="0 1 0" stiffness="3" damping="2"/>
    <geom type="box" size="0.1 0.05 0.2" pos="0.3 0 0"/><site name="s" pos="0.3 0 0"/></body></worldbody>
  <tendon><spatial name="r" stiffness="40" damping="3" springlength="0.2"><site site="w"/><site site="s"/></spatial>
  </tendon><actuator><motor name="m" joint="a" ctrlrange="-1 1" ctrllimited="true"/>
  <motor name="n" joint="a" group="2"/></actuator></mujoco>
"""


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        ('spring="disable"', ["Springs", "Fluid", "GravityCompensation"]),
        ('damper="disable"', ["Springs", "Fluid", "GravityCompensation"]),
        ('spring="disable" damper="disable"', ["Springs"]),
    ],
)
def test_passive_forces_that_the_file_switches_off(flags, kinds):
    model = mujoco.MjModel.from_xml_string(SWITCHES.format(flags=flags, options=""))
    assert check_passive(quietly(soa.load_mjcf, model), model) == kinds


def test_actuators_that_the_file_switches_off():
    model = mujoco.MjModel.from_xml_string(SWITCHES.format(flags='clampctrl="disable"', options=""))
    robot = quietly(soa.load_mjcf, model)
    check_actuators(robot, model)  # commands are not clipped
    for flags, options, names in (
        ('actuation="disable"', "", ()),
        ('actuation="enable"', 'actuatorgroupdisable="2"', ("m",)),
    ):
        text = SWITCHES.format(flags=flags, options=options)
        with pytest.warns(soa.ModelWarning, match="n: switched off by an option"):
            assert soa.load_mjcf_actuators(robot, text).names == names


def test_devices_without_a_counterpart_are_named():
    body = '<body name="b"><joint name="j"/><geom size="0.1" pos="0 0 1"/><site name="s"/></body>'
    rest = (
        '<actuator><motor name="turn" joint="j"/><muscle name="flexor" joint="j" lengthrange="0.1 1"/></actuator>'
        '<sensor><rangefinder name="eye" site="s"/><jointpos name="angle" joint="j"/></sensor>'
    )
    xml = f"<mujoco><worldbody>{body}</worldbody>{rest}</mujoco>"
    robot = quietly(soa.load_mjcf, xml)
    with pytest.warns(soa.ModelWarning, match="actuators without a counterpart here: flexor: dynamics muscle"):
        assert soa.load_mjcf_actuators(robot, xml).names == ("turn",)
    with pytest.warns(soa.ModelWarning, match="sensors without a counterpart here: eye: rangefinder"):
        assert soa.load_mjcf_sensors(robot, xml)(robot, robot.neutral(), np.zeros(1)).keys() == {"angle"}


def slow_where_large(names):
    return [pytest.param(n, marks=pytest.mark.slow) if any(word in n for word in SLOW) else n for n in names]


@pytest.mark.parametrize("name", slow_where_large(SUITE))
def test_models_of_the_suites(name):
    model = compile_quietly(MJCF_FILES[name])
    if model.njnt == 0:
        pytest.skip("a file to be included in others")
    robot = quietly(soa.load_mjcf, model)
    if len(model.actuator_trntype):
        check_actuators(robot, model)
    if model.nsensor > len(devices.unsupported_sensors(model)):
        check_sensors(robot, model)
    if model.opt.density > 0:
        assert "Fluid" in check_passive(robot, model)
    assert {line.split(": ")[1] for line in devices.unsupported_sensors(model)} <= {"touch", "rangefinder"}


TENDONS = """
<mujoco><worldbody><body><joint name="a" ref="0.2"/><geom size="0.1"/>
    <body pos="1 0 0"><joint name="b" axis="0 1 0"/><geom size="0.1"/>
    <body pos="1 0 0"><joint name="c" type="slide"/><geom size="0.1"/></body></body></body></worldbody>
  <tendon><fixed name="three"><joint joint="a" coef="0.3"/><joint joint="b" coef="-0.5"/><joint joint="c" coef="2"/>
    </fixed><fixed name="two"><joint joint="a" coef="1"/><joint joint="b" coef="0.7"/></fixed></tendon>
  <equality><tendon tendon1="three"/><tendon tendon1="three" tendon2="two" polycoef="0.1 0.6"/>
    <tendon tendon1="two" polycoef="0.2 1"/></equality>
</mujoco>
"""


def test_equalities_of_tendons_are_mujocos():
    model = mujoco.MjModel.from_xml_string(TENDONS)
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    robot = quietly(soa.load_mjcf, model)
    loops = soa.load_mjcf_constraints(robot, model)
    data = mujoco.MjData(model)
    data.qpos[:] = q = np.array([0.5, -0.3, 0.7])
    mujoco.mj_forward(model, data)
    J, errors = (
        np.asarray(x)
        for x in jax.jit(lambda q: (cc.loop_jacobian(robot, loops, q), cc.loop_errors(robot, loops, q)))(q)
    )
    theirs = np.array(data.efc_J).reshape(3, 3)
    scale = np.abs(theirs).max(axis=1)  # a coupling has the largest coefficient 1
    scale *= np.sign(theirs[np.arange(3), np.abs(theirs).argmax(axis=1)])
    np.testing.assert_allclose(J, theirs / scale[:, None], atol=1e-14)
    np.testing.assert_allclose(errors, np.array(data.efc_pos)[:3] / scale, atol=1e-14)


def test_the_string_of_ball_in_cup_holds_the_ball():
    """MuJoCo's lengths and arms, and a ball that falls until the string is taut; there it hangs."""
    name = "dm_control/suite/ball_in_cup.xml"
    if name not in MJCF_FILES:
        pytest.skip("dm_control is not installed")
    model = compile_quietly(MJCF_FILES[name])
    robot, data = quietly(soa.load_mjcf, model), mujoco.MjData(model)
    (string,) = (x for x in soa.load_mjcf_passive(robot, model) if isinstance(x, simulate.TendonLimits))
    data.qpos[:] = q = np.array([0.1, -0.05, 0.2, 0.3])
    mujoco.mj_forward(model, data)
    length, moment = string.tendons(robot, jnp.asarray(q))
    np.testing.assert_allclose(length, data.ten_length, rtol=1e-14)
    dense = np.zeros((1, model.nv))
    dense[0, model.ten_J_colind] = np.ravel(data.ten_J)[: model.nv]
    np.testing.assert_allclose(moment, dense, atol=1e-14)

    def fall(q, v):
        return soa.rollout(
            robot, q, v, None, 0.002, steps=2000, passive=[string], record=lambda s: (s.q, s.v), every=20
        )

    q, v = jax.jit(fall)(jnp.zeros(4), jnp.zeros(4))
    lengths = jax.jit(jax.vmap(lambda q: string.tendons(robot, q)[0][0]))(q)
    ready = string.for_step(robot, 0.002)
    # It hangs where the string's force is its weight, within the width over which it sets in: k x^2 / 2w = m g.
    weight = float(robot.mass[robot.topology.joint_number("ball_z")]) * 9.81
    stretch = np.sqrt(2 * float(ready.width) * weight / float(ready.stiffness[0]))
    assert stretch < ready.width
    np.testing.assert_allclose(lengths[-1], 0.3 + stretch, rtol=1e-4)
    assert float(lengths.max()) < 0.35 and float(jnp.abs(v[-1, 3])) < 1e-3


def test_nothing_of_the_suites_is_lost_but_geometry():
    """What none of the readers reads, in all models: contacts and what senses them."""
    ignored, actuated, sensed = {}, [], []
    for name in SUITE:
        model = compile_quietly(MJCF_FILES[name])
        if model.njnt:
            actuated += [name] * (len(model.actuator_trntype) > len(devices.unsupported_actuators(model)))
            sensed += [name] * (model.nsensor > len(devices.unsupported_sensors(model)))
            mjcf_equalities(model, name)  # raises where one has no counterpart
            left = [line for line in left_out(model) if ", which load_mjcf" not in line]
            ignored[name] = [*left, *devices.unsupported_actuators(model), *devices.unsupported_sensors(model)]
    geometry = ("contacts of geoms", "contact pairs", ": touch", ": rangefinder")
    lost = {name: [line for line in lines if not any(x in line for x in geometry)] for name, lines in ignored.items()}
    assert len(ignored) > 20 and not any(lost.values()), lost
    # How many `test_models_of_the_suites` compares with MuJoCo.
    assert len(actuated) >= 20 and len(sensed) >= 10, (actuated, sensed)
