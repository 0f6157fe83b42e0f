"""Random grasps in consistent states, and a dense NumPy solution of (b.1) that shares no code with them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa
from jaxsoa import closed_chain as cc


def rotation(rng: np.random.Generator) -> np.ndarray:
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return Q * np.sign(np.linalg.det(Q))


def unit(rng: np.random.Generator) -> np.ndarray:
    x = rng.normal(size=3)
    return x / np.linalg.norm(x)


def contact(kind: str, rng: np.random.Generator) -> cc.Contact:
    return {
        "rigid": lambda: cc.Rigid(),
        "hinge": lambda: cc.Hinge(unit(rng)),
        "soft": lambda: cc.SoftFinger(unit(rng)),
        "point": lambda: cc.Point(),
        "turns": lambda: cc.Custom(rng.normal(size=(2, 3))),
        "slides": lambda: cc.Custom(rng.normal(size=(2, 6))),
    }[kind]()


def body(rng: np.random.Generator) -> cc.RigidBody:
    axes = rotation(rng)
    return cc.RigidBody(rng.uniform(1, 3), rng.normal(scale=0.1, size=3), axes @ np.diag([0.05, 0.07, 0.09]) @ axes.T)


def skew(a: np.ndarray) -> np.ndarray:
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


def shift(r: np.ndarray) -> np.ndarray:
    """phi*: velocity at a point r away."""
    return np.block([[np.eye(3), np.zeros((3, 3))], [-skew(r), np.eye(3)]])


def arm(seed: int, n: int, joints=("revolute",)) -> soa.Multibody:
    return soa.models.random_tree(seed, n, joints, shape="chain", armature=True, damping=True)


def slope_at_zero(f, h: float = 1e-4) -> np.ndarray:
    """f'(0) by differences of fourth order."""
    near, far = (np.asarray(f(t)) - np.asarray(f(-t)) for t in (h, 2 * h))
    return (8 * near - far) / (12 * h)


class Case:
    """A grasp in a consistent state: positions closed, velocities in agreement with contact rates W."""

    def __init__(self, seed: int, sizes, kinds, *, robots=None, joints=("revolute",)):
        rng = np.random.default_rng(seed)
        self.R, self.p = rotation(rng), rng.normal(size=3)
        self.velocity = rng.normal(size=6)
        arms, self.q, self.v, self.tau, self.rates = [], [], [], [], []
        for i, (n, kind) in enumerate(zip(sizes, kinds, strict=True)):
            robot = robots[i] if robots else arm(1000 * seed + i, n, joints)
            frame, point, held = robot.frame_names[-1], rng.normal(scale=0.3, size=3), contact(kind, rng)
            q = np.asarray(robot.random(jax.random.key(seed + i)))
            # Put the base where the frame's origin meets the contact point.
            base = rotation(rng)
            robot = robot.with_base(base, np.zeros(3))
            tip = np.asarray(frame_pose(robot, q, frame)[1])
            robot = robot.with_base(base, self.p + self.R @ point - tip)
            W = rng.normal(size=held.freedom)
            wanted = shift(self.R @ point) @ self.velocity - W @ world(held.axes, self.R)
            J = np.asarray(jacobian(robot, q, frame))
            v = np.linalg.pinv(J) @ wanted
            v = v + (np.eye(robot.nv) - np.linalg.pinv(J) @ J) @ rng.normal(size=robot.nv)
            arms.append(cc.Arm(robot, frame, point, held))
            self.q.append(jnp.asarray(q))
            self.v.append(jnp.asarray(v))
            self.tau.append(jnp.asarray(rng.normal(size=robot.nv)))
            self.rates.append(jnp.asarray(W))
        self.system = cc.GraspSystem(arms, body(rng))
        self.pose = (jnp.asarray(self.R), jnp.asarray(self.p))

    @property
    def arguments(self):
        return self.system, self.q, self.v, self.tau, self.pose


frame_pose = jax.jit(soa.frame_pose, static_argnums=2)
jacobian = jax.jit(soa.jacobian, static_argnums=2)
jacobian_bias = jax.jit(soa.jacobian_bias, static_argnums=3)
mass_matrix = jax.jit(soa.mass_matrix)
bias_force = jax.jit(soa.bias_force)


def world(axes, R) -> np.ndarray:
    axes = np.asarray(axes)
    return np.concatenate([axes[:, :3] @ R.T, axes[:, 3:] @ R.T], axis=1)


def dense_solution(case: Case, prescribed=None, given=None):
    """(b.1) in NumPy with unknowns (a, alpha, W', lambda): no projectors, contact accelerations explicit.

    `prescribed` (n,) over all joints: there a is `given`, and the row of the torque says so.
    """
    system, R = case.system, case.R
    w = case.velocity[:3]
    mass, com = float(system.body.mass), R @ np.asarray(system.body.com)
    inertia = R @ np.asarray(system.body.inertia) @ R.T
    g = np.asarray(system.gravity)
    # Newton and Euler at the centre of mass, where they are simplest.
    sizes = [arm.robot.nv for arm in system.arms]
    free = [arm.contact.freedom for arm in system.arms]
    n, l, k = sum(sizes), len(sizes), sum(free)
    total = n + 6 + k + 6 * l
    K, right = np.zeros((total, total)), np.zeros(total)
    at_com = shift(com)
    spatial = np.block([[inertia, np.zeros((3, 3))], [np.zeros((3, 3)), mass * np.eye(3)]])
    swing = np.cross(w, np.cross(w, com))
    slot = n + 6
    obj = slice(n, n + 6)
    # Object, about its centre of mass: spatial (at_com alpha + swing) + (w x I w, 0) = sum of forces + weight.
    K[obj, obj] = spatial @ at_com
    right[obj] = -np.concatenate([np.cross(w, inertia @ w), mass * swing]) + np.concatenate([np.zeros(3), mass * g])
    at = 0
    for i, arm in enumerate(system.arms):
        robot, q, v = arm.robot, case.q[i], case.v[i]
        J, bias = np.asarray(jacobian(robot, q, arm.frame)), np.asarray(jacobian_bias(robot, q, v, arm.frame))
        joints, f = slice(at, at + sizes[i]), slice(n + 6 + k + 6 * i, n + 12 + k + 6 * i)
        at += sizes[i]
        W = slice(slot, slot + free[i])
        slot += free[i]
        K[joints, joints] = np.asarray(mass_matrix(robot, q))
        K[joints, f] = J.T
        right[joints] = np.asarray(case.tau[i]) - np.asarray(bias_force(robot, q, v))
        r = R @ np.asarray(arm.point)
        force_at_com = shift(r - com).T
        K[obj, f] = -force_at_com
        # Tip acceleration + H* W' + (H*)' W = object's acceleration at the contact.
        H = world(arm.contact.axes, R)
        slip = np.asarray(case.rates[i]) @ H
        turning = np.concatenate([np.cross(w, slip[:3]), 2 * np.cross(w, slip[3:])])
        K[f, joints], K[f, W], K[f, obj] = J, H.T, -shift(r)
        right[f] = np.concatenate([np.zeros(3), np.cross(w, np.cross(w, r))]) - bias - turning
        K[W, f] = H
    if prescribed is not None:
        for j in np.flatnonzero(prescribed):
            K[j], right[j] = np.eye(total)[j], given[j]
    x = np.linalg.solve(K, right)
    a = np.split(x[:n], np.cumsum(sizes)[:-1])
    rates = np.split(x[n + 6 : n + 6 + k], np.cumsum(free)[:-1])
    return a, x[n + 6 + k :].reshape(l, 6), x[obj], rates
