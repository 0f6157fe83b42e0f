"""Actuators and sensors built in code: servos against their formulas, delays, noise, what is refused."""

from __future__ import annotations

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import simulate

ROBOT = soa.models.planar_arm(2)
FIRST, SECOND = ROBOT.joint_names


def servos():
    return simulate.actuator_set(
        ROBOT,
        [
            simulate.pid_servo(FIRST, kp=30.0, ki=5.0, kd=4.0, name="pid"),
            simulate.velocity_servo(SECOND, kv=2.0, gear=3.0, name="speed", force_range=(-1.0, 1.0)),
            simulate.motor(SECOND, name="lag", dynamics="filterexact", time_constant=0.05),
        ],
    )


def test_servos_in_a_rollout_follow_their_formulas():
    motors, dt = servos(), 0.01
    command = motors.command({"pid": 0.4, "speed": 0.2, "lag": 0.3})
    commands = jnp.tile(command, (30, 1))
    q0, v0 = jnp.array([0.1, 0.2]), jnp.array([0.0, 0.1])

    def record(sample):
        return sample.q, sample.v, sample.tau

    run = jax.jit(lambda q, v: soa.rollout(ROBOT, q, v, commands, dt, actuators=motors, record=record))
    q, v, tau = (np.asarray(x) for x in run(q0, v0))
    before_q, before_v = np.vstack([q0, q[:-1]]), np.vstack([v0, v[:-1]])
    integral = dt * np.concatenate([[0], np.cumsum(0.4 - before_q[:-1, 0])])
    pid = 30 * (0.4 - before_q[:, 0]) + 5 * integral - 4 * before_v[:, 0]
    lag = 0.3 * (1 - np.exp(-np.arange(30) * dt / 0.05))
    speed = np.clip(2 * (0.2 - 3 * before_v[:, 1]), -1, 1)
    np.testing.assert_allclose(tau, np.stack([pid, 3 * speed + lag], axis=1), atol=1e-12)
    assert (np.abs(speed) == 1).any() or np.abs(speed).max() < 1


def test_a_delay_is_what_was_said_before_and_has_a_derivative():
    commands = jnp.sin(jnp.arange(12.0))[:, None]

    def last(time):
        delay = simulate.Delay(time, history=5, size=1)

        def say(memory, command):
            late, memory = delay(command, jnp.zeros(1), jnp.zeros(1), memory, 0.1)
            return memory, late

        return jax.lax.scan(say, delay.initial(jnp.zeros(1), jnp.zeros(1)), commands)[1][:, 0]

    np.testing.assert_allclose(last(0.25)[4:], (np.sin(np.arange(2, 10)) + np.sin(np.arange(1, 9))) / 2, atol=1e-14)
    assert float(last(0.3)[0]) == 0
    slope = jax.jit(jax.jacfwd(last))(0.25)[6]
    np.testing.assert_allclose(slope, (np.sin(3.0) - np.sin(4.0)) / 0.1, rtol=1e-10)
    with pytest.raises(ValueError, match="history of 5 steps"):
        last(0.6)
    assert np.isnan(jax.jit(last)(0.6)).all()


def test_an_inertial_unit_reads_gravity_and_its_noise_has_the_density_given():
    robot = soa.models.pendulum()
    at = simulate.mount(robot, robot.link_names[0])
    unit = simulate.sensor_set([simulate.Accelerometer("acc", at), simulate.Gyro("gyro", at)])
    readings = jax.jit(lambda q, v: unit(robot, q, v))(jnp.array([0.3]), jnp.array([0.7]))
    np.testing.assert_allclose(jnp.linalg.norm(readings["acc"]), 9.81, rtol=1e-12)  # the link's origin is at rest
    np.testing.assert_allclose(jnp.linalg.norm(readings["gyro"]), 0.7, rtol=1e-12)
    noise = simulate.InertialNoise(density=0.01, bias=0.2, bias_time=3.0)

    def advance(bias, key):
        reading, after = noise(key, jnp.zeros(3), bias, 0.01)
        return after, (reading - bias, after)

    first = noise.initial(jax.random.key(1), jnp.zeros(3))
    keys = jax.random.split(jax.random.key(0), 20000)
    _, (white, bias) = jax.jit(lambda: jax.lax.scan(advance, first, keys))()
    np.testing.assert_allclose(jnp.std(white), 0.1, rtol=0.02)  # density / sqrt(dt), of 60000 samples
    np.testing.assert_allclose(jnp.std(bias), 0.2, rtol=0.3)  # 67 correlation times long
    steps = np.diff(np.asarray(bias), axis=0)
    np.testing.assert_allclose(steps.std(), 0.2 * np.sqrt(2 * 0.01 / 3), rtol=0.02)


def test_a_wrench_sensor_reads_what_newton_says():
    """Of the first joint: the rate of the robot's momentum about the base, less gravity and what pushes outside."""
    robot = soa.models.random_tree(3, 4, kinds=["revolute"], shape="chain").frictionless()
    q, v, a = (jnp.asarray(x) for x in np.random.default_rng(0).normal(size=(3, robot.nv)))
    push = jnp.array([0.3, -0.2, 0.5, 2.0, -1.0, 4.0])
    frame = robot.frame_names[-1]
    base = simulate.mount(robot, robot.frame_names[0])
    assert base.link == -1
    sensors = simulate.sensor_set([simulate.JointWrench("root", robot.joint_names[0], base)])

    def centers(q):
        poses = soa.forward_kinematics(robot, q)
        return poses.rotation, poses.position + jnp.einsum("kij,kj->ki", poses.rotation, robot.com)

    def momentum(q, v):
        (R, c), (_, u) = jax.jvp(centers, (q,), (v,))
        w = soa.link_velocities(robot, q, v)[:, :3]
        spin = jnp.einsum("kij,kjl,kml,km->ki", R, robot.inertia, R, w)
        p = robot.mass[:, None] * u
        return jnp.concatenate([jnp.sum(spin + jnp.cross(c - robot.base_position, p), axis=0), jnp.sum(p, axis=0)])

    @jax.jit
    def both(q, v, a):
        reading = sensors(robot, q, v, a, soa.external_forces(robot, q, {frame: push}))["root"]
        rate = jax.jvp(momentum, (q, v), (v, a))[1]
        weight = robot.mass[:, None] * robot.gravity
        moment = jnp.sum(jnp.cross(centers(q)[1] - robot.base_position, weight), axis=0)
        arm = soa.frame_pose(robot, q, frame)[1] - robot.base_position
        outside = push + jnp.concatenate([jnp.cross(arm, push[3:]), jnp.zeros(3)])
        return reading, rate - jnp.concatenate([moment, jnp.sum(weight, axis=0)]) - outside

    reading, expected = both(q, v, a)
    R = np.asarray(robot.base_rotation)
    np.testing.assert_allclose(reading, np.r_[R.T @ expected[:3], R.T @ expected[3:]], rtol=1e-10)


def test_observations_and_commands_by_name():
    robot = soa.models.random_tree(2, 3, kinds=["spherical", "revolute"], shape="chain")
    first, *_, last = robot.joint_names
    at = simulate.mount(robot, robot.link_names[-1])
    sensors = simulate.sensor_set(
        [simulate.JointPosition("ball", first), simulate.Gyro("gyro", at), simulate.JointVelocity("speed", last)]
    )
    seen = simulate.observation(robot, sensors)
    assert seen.names == ("ball", "gyro", "speed") and seen.sizes[:2] == (4, 3) and seen.size == sum(seen.sizes)
    q, v = robot.neutral(), jnp.linspace(0.1, 1.0, robot.nv)
    x = jax.jit(lambda q, v: seen.vector(sensors(robot, q, v)))(q, v)
    np.testing.assert_array_equal(x[seen.place("ball")], q[robot.q_index(first)])
    np.testing.assert_array_equal(seen.by_name(x)["speed"], v[robot.v_index(last)])
    torques = simulate.commands(robot)
    tau = torques.vector({first: (1, 2, 3)}, default=0.0)
    np.testing.assert_array_equal(tau[robot.v_index(first)], [1, 2, 3])
    assert tau.shape == (robot.nv,) and float(jnp.abs(tau).sum()) == 6
    motors = servos()
    said = {"pid": 0.4, "speed": 0.2, "lag": 0.3}
    np.testing.assert_array_equal(simulate.commands(motors).vector(said), motors.command(said))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: simulate.actuator_set(ROBOT, [simulate.motor("jont")]), "no joint named 'jont'"),
        (lambda: simulate.actuator_set(ROBOT, [simulate.motor(FIRST), simulate.motor(FIRST)]), "Two actuators"),
        (lambda: simulate.actuator_set(ROBOT, [simulate.motor(FIRST, dynamics="slow")]), "dynamics is one of"),
        (lambda: servos().command({"pod": 1.0}), "no actuator named 'pod'"),
        (lambda: simulate.FrameSensor("s", "speed", simulate.mount(ROBOT, ROBOT.link_names[0])), "got 'speed'"),
        (lambda: simulate.sensor_set([simulate.JointPosition("s", FIRST)] * 2), "Two sensors"),
        (lambda: simulate.commands(servos()).vector({"pod": 1.0}), "nothing named 'pod'.*'pid'"),
        (lambda: simulate.commands(servos()).vector({"pid": 1.0}), "no value for 'speed', 'lag'"),
        (lambda: simulate.commands(servos()).vector({"pid": jnp.zeros(2)}, 0.0), "'pid' has 1 numbers"),
        (lambda: simulate.commands(servos()).by_name(jnp.zeros(2)), "Batch with jax.vmap"),
        (lambda: simulate.Observation(("a", "a")), "Names must differ"),
        (lambda: soa.rollout(ROBOT, [0, 0], [0, 0], jnp.zeros((4, 2)), 0.1, actuators=servos()), r"\(None, 3\)"),
    ],
)
def test_what_cannot_be_built_says_why(make, words):
    with pytest.raises((ValueError, KeyError), match=words):
        make()


@pytest.mark.slow
def test_a_servo_too_stiff_for_the_step_is_told():
    """A held force -kv v multiplies v by 1 - kv dt / I each step: beyond kv = 2 I / dt it grows, changing its sign."""
    robot, dt = soa.models.pendulum(1).frictionless(), 0.01
    inertia = float(soa.mass_matrix(robot, jnp.zeros(1))[0, 0])
    ends = []
    for share in (0.9, 1.1):
        servo = simulate.velocity_servo("joint1", kv=share * 2 * inertia / dt, name="wheel")
        told = pytest.warns(UserWarning, match="'wheel' .*trembles at a step of 0.01 s") if share > 1 else nullcontext()
        with told:
            path = soa.rollout(
                robot,
                jnp.zeros(1),
                jnp.ones(1),
                jnp.zeros((20, 1)),
                dt,
                actuators=simulate.actuator_set(robot, [servo]),
            )
        ends.append(np.abs(path.v[-1, 0]))
    assert ends[0] < 0.1 and ends[1] > 10
