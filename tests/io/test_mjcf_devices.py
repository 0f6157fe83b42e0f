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
from jaxsoa.io import mjcf_devices as devices

SUITE = [name for name in MJCF_FILES if name.startswith(("dm_control/suite/", "gymnasium/envs/mujoco/assets/"))]
SLOW = ("humanoid", "dog", "quadruped", "stacker", "manipulator", "cheetah", "hopper", "walker", "finger", "ant")

ARM = """
<mujoco><option gravity="0.5 0 -9.81"/>
  <worldbody><site name="fixed" pos="0.1 0.2 0.3" euler="10 20 30"/>
    <body name="upper" pos="0 0 1"><joint name="shoulder" axis="0 1 0" stiffness="3" springref="0.2" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0.5 0 0" size="0.05"/>
      <body name="pad" pos="0.2 0 0.1" euler="0 20 0"><geom size="0.07"/><site name="weld" pos="0.01 0.02 0.03"/>
        <body name="whip" pos="0.1 0 0"><joint name="whip" axis="1 0 0"/><geom size="0.04" pos="0 0.1 0"/></body>
      </body>
      <body name="lower" pos="0.5 0 0"><joint name="elbow" axis="0 1 0" armature="0.02"/>
        <joint name="slide" type="slide" axis="1 0 0"/>
        <geom type="capsule" fromto="0 0 0 0.4 0.1 0" size="0.04"/><site name="tip" pos="0.4 0.1 0" euler="5 40 9"/>
        <body name="hand" pos="0.4 0.1 0"><joint name="wrist" type="ball" stiffness="0.7"/>
          <geom type="box" size="0.03 0.05 0.08"/><site name="palm" pos="0 0 0.1" euler="30 0 10"/></body>
      </body>
    </body>
    <body name="loose" pos="1 1 1"><freejoint name="free"/><geom type="box" size="0.1 0.2 0.3"/></body>
  </worldbody>
  <tendon><fixed name="cable" stiffness="5" damping="0.3" springlength="0.1 0.3"><joint joint="shoulder" coef="0.4"/>
    <joint joint="elbow" coef="-0.6"/></fixed></tendon>
  <actuator>
    <motor name="motor" joint="shoulder" gear="3" ctrlrange="-1 1" ctrllimited="true"/>
    <position name="position" joint="elbow" kp="20" kv="2" gear="2" forcerange="-4 4" forcelimited="true"/>
    <velocity name="velocity" joint="slide" kv="7"/>
    <general name="lag" joint="shoulder" dyntype="filter" dynprm="0.05" gainprm="4"/>
    <general name="exact" joint="elbow" dyntype="filterexact" dynprm="0.03" gainprm="2" actearly="true"/>
    <general name="sum" tendon="cable" dyntype="integrator" gaintype="affine" gainprm="1 2 3" biastype="affine"
      biasprm="0.1 0.2 0.3" actrange="-0.3 0.3" actlimited="true"/>
    <general name="jet" site="palm" gear="1 2 3 0.4 0.5 0.6"/>
  </actuator>
  <sensor>
    <jointpos name="p" joint="elbow"/><jointvel name="v" joint="slide"/><ballquat name="b" joint="wrist"/>
    <ballangvel name="bv" joint="wrist"/><tendonpos name="tp" tendon="cable"/><tendonvel name="tv" tendon="cable"/>
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
  <keyframe><key name="home" qpos="0.1 0.2 0.3 0.4 1 0 0 0 1 2 3 0 1 0 0" ctrl="1 2 3 4 5 6 7" time="2"/></keyframe>
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
    model.opt.density = model.opt.viscosity = 0
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
    readings = jax.jit(lambda s, r, q, v, a: s(r, q, v, a))(sensors, robot, q, v, a)
    assert len(readings) + len(devices.unsupported_sensors(model)) == model.nsensor
    for name, reading in readings.items():
        expected = data.sensor(name).data
        if len(expected) == 4 and expected @ np.asarray(reading) < 0:
            expected = -expected  # the same rotation
        assert_close(reading, expected, name)


def check_springs(robot, model):
    """Springs and dampers: MuJoCo's passive forces, with our own damping of joints taken off."""
    springs = quietly(soa.load_mjcf_springs, robot, model)
    data, theirs, q, v, _ = random_state(model, robot, seed=2)
    passive = theirs.tau_from(np.array(data.qfrc_passive), q) + np.asarray(robot.damping) * v
    if hasattr(robot, "stiffness"):
        passive = passive + np.asarray(robot.stiffness * robot.difference(robot.rest, jnp.asarray(q)))
    assert_close(jax.jit(lambda s, r, q, v: s(r, q, v))(springs, robot, q, v), passive, "qfrc_passive")


def test_everything_in_one_arm():
    model = mujoco.MjModel.from_xml_string(ARM)
    robot = quietly(soa.load_mjcf, model)
    check_actuators(robot, model)
    check_sensors(robot, model)
    check_springs(robot, model)
    assert devices.unsupported_sensors(model) == ["touch: touch"]
    with pytest.warns(soa.ModelWarning, match="sensors without a counterpart here: touch: touch"):
        soa.load_mjcf_sensors(robot, model)
    home = soa.load_mjcf_keyframes(robot, model)["home"]
    assert home.time == 2
    np.testing.assert_array_equal(home.q[robot.q_index("free")], [0, 1, 0, 0, 1, 2, 3])
    np.testing.assert_array_equal(home.command, [1, 2, 3, 4, 5, 6, 7])


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
    assert {line.split(": ")[1] for line in devices.unsupported_sensors(model)} <= {"touch", "rangefinder"}
