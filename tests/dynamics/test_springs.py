"""Springs as leaves of the model: in every kind of dynamics, in every kind of joint, in files, in identification."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close
from numpy.testing import assert_allclose

import jaxsoa as soa


def sprung_tree(whole=True):
    """A ball, a hinge with armature, a universal joint and a slider (or the first two), sprung, at rest elsewhere."""
    builder = soa.Builder("sprung")
    body = {"mass": 1.0, "com": (0.1, 0.0, -0.2), "inertia": np.diag([0.02, 0.03, 0.04])}
    builder.link("hip", joint="spherical", stiffness=(3.0, 2.0, 1.0), rest=(0.9, 0.1, -0.3, 0.2), **body)
    builder.link(
        "knee", parent="hip", joint="revolute", position=(0, 0, -0.4), axis=(0, 1, 0), stiffness=4.0, rest=0.3,
        armature=0.1, **body,
    )  # fmt: skip
    if not whole:
        return builder.build()
    builder.link("wrist", parent="knee", joint="universal", position=(0.3, 0, 0), stiffness=(1.0, 0.0), **body)
    builder.link("toe", parent="hip", joint="prismatic", position=(0, 0.3, 0), axis=(1, 0, 1), stiffness=9.0, **body)
    return builder.build()


@pytest.mark.slow
def test_springs_in_every_dynamics():
    """Against the gradient of their energy, the balance of energy, automatic differentiation and differences."""
    robot, rng = sprung_tree(whole=False), np.random.default_rng(0)
    nv = robot.nv
    q = robot.integrate(robot.neutral(), jnp.asarray(rng.normal(size=nv)))
    v, tau = (jnp.asarray(rng.normal(size=nv)) for _ in range(2))
    prescribed = jnp.arange(nv) % 3 == 0

    @jax.jit
    def everything(robot, q, v, tau):
        bare, zero = robot.with_springs(None), jnp.zeros(nv)
        methods = ("articulated", "fd4")
        a = [soa.forward_dynamics(robot, q, v, tau, method=m) for m in methods]
        back = [soa.inverse_dynamics(robot, q, v, a[0], method=m) for m in ("newton-euler", "composite")]

        def stored(dq):
            at = robot.integrate(q, dq)
            return soa.potential_energy(robot, at) - soa.potential_energy(bare, at)

        pull = soa.inverse_dynamics(bare, q, v, a[0]) - soa.inverse_dynamics(robot, q, v, a[0])

        def energy(t):
            at = robot.integrate(q, t * v)
            return soa.kinetic_energy(robot, at, v + t * a[0]) + soa.potential_energy(robot, at)

        power = jax.jvp(energy, (0.0,), (1.0,))[1] - v @ tau
        hybrid = soa.hybrid_dynamics(robot, q, v, a[0], tau, prescribed)
        first = soa.linearize_forward_dynamics(robot, q, v, tau)
        inverse = soa.linearize_inverse_dynamics(robot, q, v, a[0])

        def along(function):  # a tangent of q
            return jax.jvp(lambda d: function(robot.integrate(q, d)), (zero,), (v,))[1]

        plain = along(lambda q: soa.forward_dynamics(robot, q, v, tau))
        plain_inverse = along(lambda q: soa.inverse_dynamics(robot, q, v, a[0]))
        mixed = soa.linearize_hybrid_dynamics(robot, q, v, a[0], tau, prescribed)
        plain_mixed = along(lambda q: soa.hybrid_dynamics(robot, q, v, a[0], tau, prescribed))
        pushed = soa.forward_dynamics_perturbation(robot, q, v, tau, v, zero, zero)
        needed = soa.inverse_dynamics_perturbation(robot, q, v, a[0], v, zero, zero)
        return {
            "methods": (jnp.stack(a[1:]), jnp.broadcast_to(a[0], (len(a) - 1, nv))),
            "inverse": (jnp.stack(back), jnp.broadcast_to(tau, (2, nv))),
            "gradient of energy": (pull, -jax.grad(stored)(zero)),
            "power": (power, 0 * power),
            "hybrid": (jnp.stack(hybrid), jnp.stack([a[0], tau])),
            "linearized forward": (first.wrt_q @ v, plain),
            "linearized inverse": (inverse.wrt_q @ v, plain_inverse),
            "linearized hybrid": (jnp.stack([x.wrt_q @ v for x in mixed]), jnp.stack(plain_mixed)),
            "perturbations": (jnp.stack([pushed, needed]), jnp.stack([plain, plain_inverse])),
        }

    for name, (found, expected) in everything(robot, q, v, tau).items():
        assert_allclose(found, expected, atol=1e-10 * max(1.0, float(jnp.abs(expected).max())), err_msg=name)


@pytest.mark.slow
def test_gradients_by_stiffness_and_rest_and_no_nan_at_rest():
    builder = soa.Builder("ball").link("ball", joint="spherical", stiffness=(3.0, 2.0, 1.0), rest=(0.9, 0.1, -0.3, 0.2),
                                       mass=1.0, inertia=np.diag([0.1, 0.2, 0.3]))  # fmt: skip
    robot, rng = builder.build(), np.random.default_rng(1)
    v, c, d_k, d_rest = (jnp.asarray(rng.normal(size=3)) for _ in range(4))

    def torque(robot, q):
        return c @ soa.inverse_dynamics(robot, q, v, v)

    @jax.jit
    def slopes(q):
        def answer(t):
            return torque(
                robot.replace(stiffness=robot.stiffness + t * d_k, rest=robot.integrate(robot.rest, t * d_rest)), q
            )

        h = 1e-5
        at_rest = jax.grad(torque, argnums=(0, 1))(robot, robot.rest)
        return jax.grad(answer)(0.0), (answer(h) - answer(-h)) / (2 * h), at_rest

    slope, differences, at_rest = slopes(robot.integrate(robot.rest, 0.3 * v))
    assert_allclose(slope, differences, rtol=1e-7)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(at_rest))


def test_springs_in_files_edits_and_checks(tmp_path):
    robot = sprung_tree()
    soa.save(robot, tmp_path / "robot.npz")
    again = soa.load(tmp_path / "robot.npz")
    assert_close(again.stiffness, robot.stiffness, 0)
    assert_close(again.rest, robot.rest, 0)

    plain = soa.models.pendulum(1)
    assert plain.springs is None and plain.frictionless().springs is None
    assert_allclose(plain.stiffness, 0)
    both = soa.merge([robot, plain], ["toe"], prefixes=["", "arm/"])
    assert_allclose(both.stiffness, [*robot.stiffness, 0])
    assert_allclose(both.rest, [*robot.rest, 0])
    assert soa.merge([plain, plain], ["a/tip"], prefixes=["a/", "b/"]).springs is None
    locked = both.lock(["knee_joint"])
    kept = [k for k in range(both.nv) if k != both.v_index("knee_joint").start]
    assert_allclose(locked.stiffness, both.stiffness[np.array(kept)])
    assert locked.rest.shape == (locked.nq,)

    with pytest.raises(soa.ModelError, match=r"stiffness of 'sprung' is negative at 3.*'knee_joint'"):
        robot.replace(stiffness=robot.stiffness.at[3].set(-1.0))
    with pytest.raises(soa.ModelError, match="stiffness"):
        soa.Builder("r").link("l", joint="revolute", mass=1.0, inertia=np.eye(3), stiffness=-1.0).build()
    with pytest.raises(soa.ModelError, match="rest position of joint 'l_joint'"):
        body = {"mass": 1.0, "inertia": np.eye(3), "stiffness": 1.0}
        soa.Builder("r").link("l", joint="revolute", rest=(1.0, 2.0), **body).build()


def test_zero_stiffness_changes_nothing():
    """A model whose springs are zero moves as one without; one without traces to the very same program as ever."""
    robot = soa.models.planar_arm(3)
    q, v, tau = (jnp.asarray(np.random.default_rng(2).normal(size=3)) for _ in range(3))
    slack = robot.replace(stiffness=jnp.zeros(3))
    assert slack.springs is not None
    found = jax.jit(soa.forward_dynamics)(slack, q, v, tau)
    assert_allclose(found, jax.jit(soa.forward_dynamics)(robot, q, v, tau), rtol=1e-14)
    assert len(jax.tree.leaves(robot)) == len(jax.tree.leaves(slack)) - 2


def test_stiffness_and_rest_are_identified():
    robot = soa.models.planar_arm(2)
    truth = robot.replace(stiffness=jnp.array([3.0, 0.5]), rest=jnp.array([0.2, -0.4]))
    rng = np.random.default_rng(3)
    q, v, a = (rng.normal(size=(40, 2)) for _ in range(3))
    tau = np.asarray(jax.jit(jax.vmap(lambda *x: soa.inverse_dynamics(truth, *x)))(q, v, a))
    data = soa.identify.TorqueData(q, v, a, tau)
    guess = robot.replace(stiffness=jnp.ones(2))
    found = soa.identify.fit(guess, data, free=("stiffness", "rest")).robot
    assert_allclose(found.stiffness, truth.stiffness, rtol=1e-6)
    assert_allclose(found.rest, truth.rest, atol=1e-6)
    known = guess.replace(rest=truth.rest)
    assert_allclose(soa.identify.fit(known, data, free="stiffness").robot.stiffness, truth.stiffness, rtol=1e-6)
