"""Equality constraints as MuJoCo states them: its errors, its Jacobians, and the exact motion they imply."""

from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc

XML = """
<mujoco>
  <compiler angle="radian"/>
  <option gravity="0 0 -9.81"/>
  <worldbody>
    <body name="a1" pos="0 0 1">
      <joint name="a1j" type="hinge" axis="0 1 0" ref="0.3"/>
      <inertial pos="0.2 0 0" mass="1" diaginertia="0.01 0.02 0.03"/>
      <body name="a2" pos="0.4 0 0">
        <joint name="a2j" type="hinge" axis="1 0 1"/>
        <inertial pos="0.1 0.1 0" mass="0.7" diaginertia="0.01 0.02 0.02"/>
        <body name="a3" pos="0.3 0 0.1">
          <joint name="a3j" type="slide" axis="0 0.6 0.8" ref="0.1"/>
          <inertial pos="0 0 0.1" mass="0.5" diaginertia="0.01 0.01 0.01"/>
        </body>
      </body>
    </body>
    <body name="b1" pos="0.5 0.2 1">
      <joint name="b1j" type="hinge" axis="0 0 1"/>
      <inertial pos="0 0.2 0" mass="1.2" diaginertia="0.02 0.02 0.02"/>
      <body name="b2" pos="0 0.4 0">
        <joint name="b2j" type="hinge" axis="1 0 0"/>
        <inertial pos="0 0.1 0" mass="0.6" diaginertia="0.01 0.01 0.02"/>
      </body>
    </body>
  </worldbody>
  <equality>{}</equality>
</mujoco>
"""
# The reference configuration: qpos0 in MuJoCo, where our bodies are placed at q = 0.
REFERENCE = np.array([0.3, 0.0, 0.1, 0.0, 0.0])


@cache
def robot() -> soa.Multibody:
    """The same bodies; a joint's coordinate is MuJoCo's, less its reference."""
    builder = soa.Builder("two chains", root="world")

    def body(name, parent, position, joint, axis, com, mass, inertia):
        builder.link(
            name, joint=joint, joint_name=f"{name}j", parent=parent, position=position, axis=axis, com=com, mass=mass,
            inertia=np.diag(inertia),
        )  # fmt: skip

    body("a1", None, (0, 0, 1), "continuous", (0, 1, 0), (0.2, 0, 0), 1.0, (0.01, 0.02, 0.03))
    body("a2", "a1", (0.4, 0, 0), "continuous", (1, 0, 1), (0.1, 0.1, 0), 0.7, (0.01, 0.02, 0.02))
    body("a3", "a2", (0.3, 0, 0.1), "prismatic", (0, 0.6, 0.8), (0, 0, 0.1), 0.5, (0.01, 0.01, 0.01))
    body("b1", None, (0.5, 0.2, 1), "continuous", (0, 0, 1), (0, 0.2, 0), 1.2, (0.02, 0.02, 0.02))
    body("b2", "b1", (0, 0.4, 0), "continuous", (1, 0, 0), (0, 0.1, 0), 0.6, (0.01, 0.01, 0.02))
    return builder.build()


TURN = (0.9, 0.1, -0.2, 0.3)
CASES = {
    "connect": ('<connect body1="a3" body2="b2" anchor="0.1 0.2 0.3"/>', ("connect", "a3", "b2", (0.1, 0.2, 0.3))),
    "connect to the world": ('<connect body1="a2" anchor="0.1 0 0"/>', ("connect", "a2", None, (0.1, 0.0, 0.0))),
    "weld": ('<weld body1="a2" body2="b2"/>', ("weld", "a2", "b2")),
    "weld in a pose": (
        '<weld body1="a2" body2="b1" relpose="0.1 0.2 0.3 {} {} {} {}"/>'.format(*TURN),
        ("weld", "a2", "b1", (0.1, 0.2, 0.3, *TURN)),
    ),
    "joint": (
        '<joint joint1="a1j" joint2="b1j" polycoef="0.1 -0.5 0.3 0.2 0.1"/>',
        ("joint", "a1j", "b1j", (0.1, -0.5, 0.3, 0.2, 0.1)),
    ),
    "joint locked": ('<joint joint1="a3j" polycoef="0.05 0 0 0 0"/>', ("joint", "a3j", None, (0.05,))),
}


loop_errors, loop_jacobian = jax.jit(cc.loop_errors), jax.jit(cc.loop_jacobian)
dynamics, close_loops = jax.jit(cc.loop_forward_dynamics), jax.jit(cc.close_loops)
frame_pose = jax.jit(soa.frame_pose, static_argnums=2)


class InMujoco:
    """MuJoCo's view of an equality constraint at a configuration (given as the deviation from the reference)."""

    def __init__(self, equality: str):
        self.model = mujoco.MjModel.from_xml_string(XML.format(equality))
        self.data = mujoco.MjData(self.model)

    def move_to(self, q) -> None:
        self.data.qpos[:] = REFERENCE + np.asarray(q)
        mujoco.mj_forward(self.model, self.data)
        self.error, self.jacobian = np.array(self.data.efc_pos), np.array(self.data.efc_J).reshape(-1, 5)

    def exact_motion(self, tau) -> np.ndarray:
        """From rest: J a = 0 with MuJoCo's mass matrix, bias and Jacobian."""
        M, J = np.zeros((5, 5)), self.jacobian
        try:
            mujoco.mj_fullM(self.model, self.data, M)  # the order of arguments changed with MuJoCo 3.4
        except TypeError:
            mujoco.mj_fullM(self.model, M, self.data.qM)
        free, Y = np.linalg.solve(M, tau - self.data.qfrc_bias), np.linalg.solve(M, J.T)
        return free - Y @ np.linalg.pinv(J @ Y, rcond=1e-10) @ (J @ free)


def ours_in_world(record, q, error) -> np.ndarray:
    """Errors of position as MuJoCo measures them: first less second, world axes."""
    return -np.asarray(frame_pose(robot(), q, record[1])[0]) @ np.asarray(error)[3:]


@cache
def errors_of_all_cases() -> tuple[np.ndarray, dict[str, jax.Array]]:
    """A configuration, and the errors of every case there: one program, which shares the kinematics."""
    loops = {name: cc.equality_constraints(robot(), [record]) for name, (_, record) in CASES.items()}
    q = np.random.default_rng(3).uniform(-0.7, 0.7, 5)
    return q, jax.jit(lambda q: {name: cc.loop_errors(robot(), loop, q) for name, loop in loops.items()})(q)


@pytest.mark.parametrize("name", CASES)
def test_errors_are_those_of_mujoco(name):
    """Of positions; turns are measured otherwise there, by quaternions."""
    xml, record = CASES[name]
    q, errors = errors_of_all_cases()
    twin, error = InMujoco(xml), errors[name]
    twin.move_to(q)
    if record[0] == "joint":
        assert_allclose(error, twin.error, atol=1e-12)
    else:
        assert_allclose(ours_in_world(record, q, error), twin.error[:3], atol=1e-12)


@pytest.mark.parametrize(
    ("names", "rank"), [(("connect", "joint"), 4), (("weld",), 4)], ids=["connect and joint", "weld"]
)
def test_motion_is_that_of_mujoco(names, rank):
    """From rest, where the constraints are met. The weld's chains have four joints in all, so it locks them."""
    loops = cc.equality_constraints(robot(), [CASES[name][1] for name in names])
    twin = InMujoco("".join(CASES[name][0] for name in names))
    q = np.zeros(5)  # the reference, which every weld without a pose meets
    if names != ("weld",):
        q = np.asarray(close_loops(robot(), loops, np.linspace(-0.3, 0.4, 5)))
    assert_allclose(loop_errors(robot(), loops, q), 0, atol=1e-10)
    twin.move_to(q)
    assert_allclose(twin.error, 0, atol=1e-10)
    tau = np.linspace(-1, 2, 5)
    s = dynamics(robot(), loops, q, np.zeros(5), tau)
    expected = twin.exact_motion(tau)
    assert_allclose(s.a, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    assert int(s.rank) == rank == np.linalg.matrix_rank(twin.jacobian, tol=1e-8)


def test_polynomials_are_in_deviations_from_the_reference():
    """The same coupling when q is MuJoCo's qpos, which does not vanish at the reference."""
    xml, record = CASES["joint"]
    loops = cc.equality_constraints(robot(), [record], reference=REFERENCE)
    twin, q = InMujoco(xml), np.linspace(-0.5, 0.7, 5)
    twin.move_to(q)
    assert_allclose(loop_errors(robot(), loops, REFERENCE + q), twin.error, atol=1e-12)
    assert_allclose(loop_jacobian(robot(), loops, REFERENCE + q), twin.jacobian, atol=1e-12)


def test_frames_that_coincide_and_default_polynomials():
    records = [("connect", "a3", "b2", None), cc.Equality("joint", "a1j", "b2j")]
    loop, coupling = cc.equality_constraints(robot(), records)
    assert_allclose([loop.point_a, loop.point_b], 0)
    assert_allclose(coupling.coefficients, [0, 1])
    assert cc.equality_constraints(robot(), []) == ()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (("tendon", "a", "b"), "unknown kind"),
        (("connect", "a3", "b2", (0.0, 0.0)), "3 finite numbers"),
        (("weld", "a3", "b2", (0.0,) * 7), "quaternion"),
        (("joint", "a1j", "b1j", (np.nan,)), "finite"),
    ],
)
def test_bad_equalities_are_refused(record, message):
    with pytest.raises(soa.ModelError, match=message):
        cc.equality_constraints(robot(), [record])
    with pytest.raises(KeyError, match="a3"):
        cc.equality_constraints(robot(), [("weld", "a33", "b2")])


def test_a_floating_joint_cannot_be_coupled():
    floating = soa.models.random_tree(1, 3, ("revolute",), floating_base=True)
    with pytest.raises(soa.ModelError, match="one degree of freedom"):
        cc.equality_constraints(floating, [("joint", "floating_base", None)], reference=jnp.asarray(floating.neutral()))
