"""Bad states, names and parameters: shapes, exchanged arguments, integers, precision, NaN, quaternions, names, signs.

The ids are the numbers of the rows in the project's table of bad inputs; files are tested in
io/test_bad_inputs.py and io/test_bad_files.py.
"""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa


@pytest.fixture(scope="module")
def robot():
    """nq = 8, nv = 7, 2 links."""
    builder = soa.Builder("walker")
    builder.link("trunk", joint="free", joint_name="base_joint", mass=1.0, inertia=np.eye(3) * 0.1)
    builder.link("leg", parent="trunk", joint="revolute", joint_name="knee", mass=1.0, inertia=np.eye(3) * 0.1)
    return builder.build()


def call(robot, **changes):
    """forward_dynamics traced, never run: errors must come at trace time."""
    arguments = dict(q=np.zeros(8), v=np.zeros(7), tau=np.zeros(7), f_ext=np.zeros((2, 6)))
    arguments = {key: jnp.asarray(value) for key, value in (arguments | changes).items()}
    return jax.eval_shape(lambda x: soa.forward_dynamics(robot, **x), arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(q=np.zeros(9)), r"q must be .*\(nq,\) = \(8,\).*nq=8, nv=7.*got shape \(9,\)"),
        (dict(v=np.zeros(6)), r"v must be .*\(nv,\) = \(7,\).*nq=8, nv=7.*got shape \(6,\)"),
        (dict(tau=np.zeros(())), r"tau must be .*\(nv,\) = \(7,\).*nq=8, nv=7.*got shape \(\)"),
        (dict(f_ext=np.zeros((2, 3))), r"f_ext must have shape \(n_links, 6\) = \(2, 6\).*got \(2, 3\)"),
        (dict(f_ext=np.zeros((7, 6))), r"f_ext must have shape \(n_links, 6\) = \(2, 6\).*got \(7, 6\)"),
        (dict(q=np.zeros((5, 8))), r"got shape \(5, 8\).*jax.vmap"),
    ],
    ids=lambda x: f"row-27 {next(iter(x))} {np.shape(next(iter(x.values())))}" if isinstance(x, dict) else "",
)
def test_wrong_shapes_are_errors_at_trace_time(robot, changes, message):
    with pytest.raises(ValueError, match=message):
        call(robot, **changes)


@pytest.mark.parametrize("function", [soa.inverse_dynamics, soa.forward_dynamics], ids=["row-27 ID", "row-27 FD"])
def test_every_argument_is_checked(robot, function):
    good = [np.zeros(8), np.zeros(7), np.zeros(7), np.zeros((2, 6))]
    for position in range(4):
        bad = list(good)
        bad[position] = np.zeros(11)
        with pytest.raises(ValueError, match="got"):
            jax.eval_shape(lambda *x: function(robot, *x), *bad)


@pytest.mark.parametrize("which", ["q", "v"], ids=["row-28 q", "row-28 v"])
def test_exchanged_q_and_v_are_named(robot, which):
    changes = dict(q=np.zeros(7)) if which == "q" else dict(v=np.zeros(8))
    with pytest.raises(ValueError, match=r"nq=8, nv=7.*Were q and v exchanged\?"):
        call(robot, **changes)


@pytest.mark.parametrize("dtype", [np.int32, bool], ids=lambda d: f"row-29 {np.dtype(d)}")
@pytest.mark.parametrize("model_dtype", [np.float32, np.float64])
def test_integers_become_the_models_floating_type(robot, dtype, model_dtype):
    robot = robot.astype(model_dtype)
    q = np.array([1, 0, 0, 0, 1, 0, 1, 1], dtype)
    v = np.array([1, 0, 0, 1, 0, 0, 1], dtype)
    assert robot.check_q(q).dtype == robot.check_v(v).dtype == model_dtype
    assert robot.check_f_ext(np.ones((2, 6), dtype)).dtype == model_dtype
    assert robot.integrate(q, v).dtype == model_dtype
    for function in (soa.inverse_dynamics, soa.forward_dynamics):
        assert jax.eval_shape(lambda q, v, f=function: f(robot, q, v, v), q, v).dtype == model_dtype


def test_integers_give_the_same_numbers(robot):
    q, v = np.array([1, 0, 0, 0, 0, 2, 1, 1]), np.array([1, 0, 2, 0, 0, 1, 3])
    f = jax.jit(soa.inverse_dynamics)
    np.testing.assert_array_equal(f(robot, q, v, v), f(robot, *(x.astype(float) for x in (q, v, v))))


X64_OFF = """
import warnings
import jax, jax.numpy as jnp
import jaxsoa as soa
assert not jax.config.jax_enable_x64  # importing the package changes no setting
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    robot = soa.models.pendulum(2)
    assert robot.dtype == jnp.float32 and not caught, [str(w.message) for w in caught]
    double = robot.astype(jnp.float64)
    assert double.dtype == jnp.float32
    assert len(caught) == 1, [str(w.message) for w in caught]
    message = str(caught[0].message)
    assert "float64" in message and "jax_enable_x64" in message, message
    robot.astype(jnp.float32)
    assert len(caught) == 1
print("fine")
"""


def test_float64_with_x64_off_is_one_warning():
    """row-30."""
    environment = {**os.environ, "JAX_ENABLE_X64": "0"}
    run = subprocess.run([sys.executable, "-c", X64_OFF], capture_output=True, text=True, env=environment, timeout=120)
    assert run.returncode == 0, run.stderr
    assert "fine" in run.stdout


@pytest.mark.parametrize(
    "gradient", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["row-31 value", "row-31 gradient"]
)
def test_nan_stays_in_its_own_element_of_a_batch(robot, gradient):
    q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), 4))
    v = jax.random.normal(jax.random.key(1), (4, 7))

    def loss(q, v):
        return jnp.sum(soa.forward_dynamics(robot, q, v, jnp.ones(7)) ** 2)

    f = jax.jit(jax.vmap(jax.value_and_grad(loss, argnums=(0, 1)) if gradient else loss))
    clean = jax.tree.leaves(f(q, v))
    for poisoned in (f(q.at[2, 7].set(jnp.nan), v), f(q, v.at[2, 0].set(jnp.nan)), f(q.at[2, 1].set(jnp.nan), v)):
        for before, after in zip(clean, jax.tree.leaves(poisoned), strict=True):
            others = np.delete(np.asarray(after), 2, axis=0)
            np.testing.assert_array_equal(others, np.delete(np.asarray(before), 2, axis=0))
            assert np.isnan(np.asarray(after)[2]).any()


def test_quaternions_are_normalized(robot):
    """row-32."""
    q = robot.random(0)
    longer = q.at[:4].multiply(3.7)
    np.testing.assert_allclose(robot.normalize(longer), q, rtol=1e-14)
    v, tau = jnp.arange(7.0), jnp.ones(7)
    f = jax.jit(soa.forward_dynamics)
    np.testing.assert_allclose(f(robot, longer, v, tau), f(robot, q, v, tau), rtol=1e-12, atol=1e-13)


def test_zero_quaternions_are_errors_when_concrete_and_nan_inside_jit(robot):
    """row-32."""
    q = robot.neutral().at[0].set(0)
    with pytest.raises(ValueError, match="q holds a quaternion of zeros"):
        robot.check_q(q)
    with pytest.raises(ValueError, match="q1 holds a quaternion of zeros"):
        robot.difference(robot.neutral(), q)
    assert np.isnan(jax.jit(lambda q: robot.normalize(q))(q)[:4]).all()
    assert np.isnan(jax.jit(soa.forward_dynamics)(robot, q, jnp.zeros(7), jnp.zeros(7))).any()


@pytest.mark.parametrize(
    ("lookup", "message"),
    [
        (lambda r: r.q_index("kne"), "no joint named 'kne'. Did you mean 'knee'"),
        (lambda r: r.v_index("base"), "no joint named 'base'. Did you mean 'base_joint'"),
        (lambda r: soa.jacobian(r, r.neutral(), "truck"), "no frame named 'truck'. Did you mean 'trunk'"),
        (lambda r: soa.frame_pose(r, r.neutral(), "zzz"), "no frame named 'zzz'. It has .*trunk, leg"),
        (lambda r: soa.jacobian_bias(r, r.neutral(), jnp.zeros(7), "legg"), "Did you mean 'leg'"),
        (lambda r: soa.operational_space_compliance(r, r.neutral(), ["leg", "arm"]), "no frame named 'arm'"),
        (lambda r: r.topology.link_number("leg2"), "no link named 'leg2'. Did you mean 'leg'"),
        (lambda r: soa.prescribed_mask(r, ["kneee"]), "Did you mean 'knee'"),
    ],
    ids=["row-33 q_index", "row-33 v_index", "row-33 jacobian", "row-33 frame_pose", "row-33 jacobian_bias",
         "row-33 compliance", "row-33 link", "row-33 mask"],
)  # fmt: skip
def test_unknown_names_are_key_errors_with_close_matches(robot, lookup, message):
    with pytest.raises(KeyError, match=message):
        lookup(robot)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(gravity=np.zeros(2)), r"gravity.*\(3,\).*\(2,\)"),
        (dict(gravity=np.array([0, 0, np.nan])), "gravity"),
        (dict(damping=np.zeros(3)), r"damping.*\(7,\).*\(3,\)"),
        (dict(damping=-np.ones(7)), "damping.*negative"),
        (dict(armature=np.zeros(1)), r"armature.*\(7,\).*\(1,\)"),
        (dict(armature=np.array([0, 0, 0, 0, 0, 0, -1e-3])), "armature.*negative.*knee"),
        (dict(friction=-np.ones(7)), "friction.*negative"),
        (dict(mass=np.array([1.0, -1.0])), "mass.*negative.*leg"),
    ],
    ids=lambda x: f"row-35 {next(iter(x))}" if isinstance(x, dict) else "",
)
def test_parameters_of_wrong_shape_or_sign_are_errors(robot, change, message):
    with pytest.raises(ValueError, match=message):
        robot.replace(**change)


@pytest.mark.parametrize("change", [dict(damping=-1.0), dict(armature=-1.0), dict(friction=-0.1), dict(damping=(1, 2))],
                         ids=lambda x: f"row-35 builder {next(iter(x.items()))}")  # fmt: skip
def test_the_builder_refuses_them_too(change):
    builder = soa.Builder().link("a", joint="revolute", mass=1.0, inertia=np.eye(3), **change)
    with pytest.raises(soa.ModelError, match=next(iter(change))):
        builder.build()


@pytest.mark.parametrize("gravity", [(0, 0), (0, 0, np.inf), 9.81], ids=lambda g: f"row-35 builder gravity {g}")
def test_the_builder_refuses_bad_gravity(gravity):
    builder = soa.Builder().link("a", joint="revolute", mass=1.0, inertia=np.eye(3))
    with pytest.raises(soa.ModelError, match="ravity"):
        builder.build(gravity=gravity)


def test_signs_are_not_checked_inside_jit(robot):
    """row-35: values inside jit never raise; an optimizer may pass through a negative damping."""
    f = jax.jit(lambda damping: robot.replace(damping=damping).damping)
    np.testing.assert_array_equal(f(-np.ones(7)), -np.ones(7))


def test_unknown_methods_list_the_known_ones(robot):
    for function in (soa.forward_dynamics, soa.inverse_dynamics):
        with pytest.raises(ValueError, match="Unknown method 'x'"):
            function(robot, robot.neutral(), jnp.zeros(7), jnp.zeros(7), method="x")
    with pytest.raises(ValueError, match="prescribed must be bool"):
        soa.hybrid_dynamics(robot, robot.neutral(), *[jnp.zeros(7)] * 4)
