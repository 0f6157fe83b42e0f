"""Lemmas 3.1, 3.2, 4.2 to 4.9 of the linearization paper as dense matrices, on a serial chain of revolute joints.

As in the paper everything is referred to one inertial point, where phi is the identity between any two links, and
links are numbered tip to base. S[X] is the cross product with forces and S*[X] minus that of motions; the ring
quantities are M-ring = (M-dot - Q[M V]) / 2 and what is built from it. Gravity is an acceleration of the base.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest
from helpers.compare import assert_close, random_states

import jaxsoa as soa

N = 5


def skew(x):
    return np.array([[0, -x[2], x[1]], [x[2], 0, -x[0]], [-x[1], x[0], 0]])


def cross_motion(x):
    return np.block([[skew(x[:3]), np.zeros((3, 3))], [skew(x[3:]), skew(x[:3])]])


def cross_force(x):
    return -cross_motion(x).T


def blocks(parts):
    """Block-diagonal matrix."""
    rows, columns = sum(p.shape[0] for p in parts), sum(p.shape[1] for p in parts)
    out = np.zeros((rows, columns))
    r = c = 0
    for p in parts:
        out[r : r + p.shape[0], c : c + p.shape[1]] = p
        r, c = r + p.shape[0], c + p.shape[1]
    return out


class Operators:
    """All operators of the paper, dense, from link poses alone."""

    def __init__(self, robot, q, v, a):
        pose = jax.jit(soa.forward_kinematics)(robot, q)
        R, p = (np.asarray(x)[::-1] for x in pose)  # tip to base
        axes, mass, com, inertia = (np.asarray(x)[::-1] for x in (robot.axis, robot.mass, robot.com, robot.inertia))
        v, a = np.asarray(v)[::-1], np.asarray(a)[::-1]
        E = np.eye(6 * N, k=-6)
        self.phi = phi = np.linalg.inv(np.eye(6 * N) - E)
        self.E = E
        M, H = [], []
        for k in range(N):
            c = p[k] + R[k] @ com[k]
            J = R[k] @ inertia[k] @ R[k].T - mass[k] * skew(c) @ skew(c)
            M.append(np.block([[J, mass[k] * skew(c)], [-mass[k] * skew(c), mass[k] * np.eye(3)]]))
            w = R[k] @ axes[k] / np.linalg.norm(axes[k])
            H.append(np.concatenate([w, np.cross(p[k], w)]))
        self.H = blocks([h[None] for h in H])
        self.M = blocks(M)
        V = (phi.T @ self.H.T @ v).reshape(N, 6)
        H1 = [cross_motion(V[k]) @ H[k] for k in range(N)]  # (2.13)
        self.H1 = blocks([h[None] for h in H1]).T  # H-dot*
        base = np.tile(np.concatenate([np.zeros(3), -np.asarray(robot.gravity)]), N)
        alpha = (phi.T @ (self.H.T @ a + self.H1 @ v) + base).reshape(N, 6)
        H2 = [cross_motion(alpha[k]) @ H[k] + cross_motion(V[k]) @ H1[k] for k in range(N)]
        self.H2 = blocks([h[None] for h in H2]).T  # H-double-dot*
        ring = []
        for k in range(N):
            momentum = M[k] @ V[k]
            dot = cross_force(V[k]) @ M[k] - M[k] @ cross_motion(V[k])  # (2.6)
            Q = np.stack([-cross_force(e) @ momentum for e in np.eye(6)], axis=1)  # Q[X] Y = -S[Y] X
            ring.append((dot - Q) / 2)  # (2.8)
        self.ring = blocks(ring)
        f = phi @ (self.M @ alpha.ravel() + self.ring @ V.ravel())  # (2.9); M-ring V is M-dot V
        self.torque = (self.H @ f)[::-1]
        self.Hf = blocks([(cross_force(H[k]) @ f.reshape(N, 6)[k])[:, None] for k in range(N)])

    def riccati(self):
        """P, D, G, K, psi, tau-bar (4.3), and the ring versions (4.12)."""
        H, M, ring, E = self.H, self.M, self.ring, self.E
        P, ringP, G, ringG, D = [], [], [], [], []
        previous = previous_ring = np.zeros((6, 6))
        for k in range(N):
            s = slice(6 * k, 6 * k + 6)
            h = H[k : k + 1, s].T
            P.append(previous + M[s, s])
            ringP.append(previous_ring + ring[s, s])
            D.append(h.T @ P[-1] @ h)
            G.append(P[-1] @ h / D[-1])
            ringG.append(ringP[-1].T @ h / D[-1])
            bar = np.eye(6) - G[-1] @ h.T
            previous, previous_ring = bar @ P[-1], bar @ ringP[-1]
        self.P, self.ringP, self.G, self.ringG, self.D = map(blocks, (P, ringP, G, ringG, D))
        self.bar = np.eye(6 * N) - self.G @ H
        self.K, self.ringK = E @ self.G, E @ self.ringG
        self.psi = np.linalg.inv(np.eye(6 * N) - E @ self.bar)
        self.left = np.eye(N) - H @ self.psi @ self.K
        return self


@pytest.fixture(scope="module")
def setting():
    robot = soa.models.chain(N)
    q, v, a, _ = (x[0] for x in random_states(robot, 21, 1))
    tau = jax.jit(soa.inverse_dynamics)(robot, q, v, a)
    inverse = jax.jit(soa.linearize_inverse_dynamics)(robot, q, v, a)
    forward = jax.jit(soa.linearize_forward_dynamics)(robot, q, v, tau)
    turn = [np.asarray(x)[::-1, ::-1] for x in (*inverse, *forward)]
    ops = Operators(robot, q, v, a)
    assert_close(ops.torque, tau, 1e-12, "equations of motion (2.16)")
    # A_C and B_C are defined with a minus sign (lemma 4.1).
    return ops, dict(B_D=turn[0], A_D=turn[1], M=turn[2], B_C=-turn[3], A_C=-turn[4], inverse=turn[5])


def check(expected, **matrices):
    for name, matrix in matrices.items():
        assert_close(matrix, expected[name], 1e-10, name)


def test_lemma_3_1(setting):
    o, expected = setting
    H, phi, M, ring, H1, H2 = o.H, o.phi, o.M, o.ring, o.H1, o.H2
    check(
        expected,
        M=H @ phi @ M @ phi.T @ H.T,
        A_D=2 * H @ phi @ (M @ phi.T @ H1 + ring @ phi.T @ H.T),
        B_D=H @ phi @ (o.Hf + 2 * ring @ phi.T @ H1 + M @ phi.T @ H2),
    )


def test_lemma_3_2(setting):
    """Triangular parts, with the composites R and R-ring of (3.7)."""
    o, expected = setting
    H, phi, H1, H2 = o.H, o.phi, o.H1, o.H2

    def sums(x):
        return blocks([sum(x[6 * j : 6 * j + 6, 6 * j : 6 * j + 6] for j in range(k + 1)) for k in range(N)])

    R, ring, upper = sums(o.M), sums(o.ring), phi.T - np.eye(6 * N)
    check(
        expected,
        M=H @ (phi @ R + R @ upper) @ H.T,
        A_D=2 * H @ phi @ (R @ H1 + ring @ H.T) + 2 * H @ (R @ upper @ H1 + ring @ upper @ H.T),
        B_D=H @ phi @ (o.Hf + 2 * ring @ H1 + R @ H2) + H @ (2 * ring @ upper @ H1 + R @ upper @ H2),
    )


def test_lemmas_4_2_to_4_5(setting):
    o, expected = setting
    o.riccati()
    H, phi, psi, K, D, left = o.H, o.phi, o.psi, o.K, o.D, o.left
    factor = np.eye(N) + H @ phi @ K
    check(expected, M=factor @ D @ factor.T, inverse=left.T @ np.linalg.inv(D) @ left)
    assert_close(left @ factor, np.eye(N), 1e-10, "lemma 4.3")
    assert_close(left @ H @ phi, H @ psi, 1e-10, "lemma 4.5, first")
    right = left.T @ np.linalg.inv(D) @ H @ psi @ o.P + K.T @ psi.T
    assert_close(expected["inverse"] @ H @ phi @ o.M @ phi.T, right, 1e-10, "lemma 4.5, second")


def test_lemma_4_6(setting):
    o, expected = setting
    o.riccati()
    H, phi, psi, K, H1, H2 = o.H, o.phi, o.psi, o.K, o.H1, o.H2
    front = o.left.T @ np.linalg.inv(o.D) @ H @ psi
    check(
        expected,
        A_C=2 * front @ (o.ring @ phi.T @ H.T + o.P @ H1) + 2 * K.T @ psi.T @ H1,
        B_C=front @ (o.Hf + 2 * o.ring @ phi.T @ H1 + o.P @ H2) + K.T @ psi.T @ H2,
    )


def ys(o):
    return 2 * (o.P @ o.H1 + o.ringP @ o.H.T), 2 * o.ringP @ o.H1 + o.P @ o.H2 + o.Hf  # (4.14)


def test_lemma_4_7(setting):
    """G-ring is (P-ring)* H* D^-1: the star is lost in the paper's (4.12), and P-ring is not symmetric."""
    o, expected = setting
    o.riccati()
    H, phi, psi, K, ringK = o.H, o.phi, o.psi, o.K, o.ringK
    Y_A, Y_B = ys(o)
    inverse = np.linalg.inv(o.D)
    check(
        expected,
        A_C=o.left.T @ (inverse @ H @ psi @ Y_A + 2 * ringK.T @ phi.T @ H.T) + 2 * K.T @ psi.T @ o.H1,
        B_C=o.left.T @ (inverse @ H @ psi @ Y_B + 2 * ringK.T @ phi.T @ o.H1) + K.T @ psi.T @ o.H2,
    )


def test_lemmas_4_8_and_4_9(setting):
    """The decomposition behind Algorithm 6; J is built from H* (G-ring)*, the transpose of the printed G-ring H."""
    o, expected = setting
    o.riccati()
    H, phi, psi, K, E, inverse = o.H, o.phi, o.psi, o.K, o.E, np.linalg.inv(o.D)
    E_psi = E @ o.bar
    upsilon, J = np.zeros((6 * N, 6 * N)), np.zeros((6 * N, 6 * N))
    ring_turn = H.T @ o.ringG.T
    for _ in range(N):  # base to tip, one link a round
        upsilon = E_psi.T @ upsilon @ E_psi + H.T @ inverse @ H
        J = blocks([(ring_turn + E_psi.T @ J @ E)[6 * k : 6 * k + 6, 6 * k : 6 * k + 6] for k in range(N)])
    strict = psi - np.eye(6 * N)
    whole = psi.T @ H.T @ inverse @ H @ psi
    assert_close(upsilon + strict.T @ upsilon + upsilon @ strict, whole, 1e-10, "lemma 4.8")
    plus = E.T @ upsilon @ E
    L = inverse + o.G.T @ plus @ o.G
    U = inverse @ H - o.G.T @ plus @ o.bar
    assert_close(L @ H - o.G.T @ plus, U, 1e-10, "the two forms of U")
    Y_A, Y_B = ys(o)
    Q = 2 * (o.ringK.T - K.T @ J)
    E_A, E_B = 2 * o.H1 - upsilon @ Y_A + 2 * J @ H.T, o.H2 - upsilon @ Y_B + 2 * J @ o.H1
    check(
        expected,
        inverse=L - K.T @ psi.T @ U.T - U @ psi @ K,
        A_C=U @ psi @ Y_A + K.T @ psi.T @ E_A + Q @ phi.T @ H.T,
        B_C=U @ psi @ Y_B + K.T @ psi.T @ E_B + Q @ phi.T @ o.H1,
    )
