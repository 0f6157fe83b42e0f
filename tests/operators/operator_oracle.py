"""Dense NumPy twins of the operators, made by plain loops over links, and an interpreter of expressions on them.

Nothing here uses a sweep: propagations are inverses of I - E, articulated inertias come from a loop with block D.
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa
from jaxsoa.algebra import terms as t
from jaxsoa.dynamics.kinematics import kinematics


def skew(p):
    return np.array([[0, -p[2], p[1]], [p[2], 0, -p[0]], [-p[1], p[0], 0]])


def carry(p):
    """phi(parent, k): [[I, p~], [0, I]]."""
    X = np.eye(6)
    X[:3, 3:] = skew(p)
    return X


class DenseAlgebra:
    def __init__(self, robot, q, prescribed=None):
        topology = robot.topology
        n, parents, slices = topology.n_links, topology.parents, topology.v_slices
        kin = jax.jit(kinematics)(robot, robot.check_q(q))
        axes, R_links, offset = np.asarray(kin.axes), np.asarray(kin.rotation), np.asarray(kin.offset)
        nv, N = topology.nv, 6 * n
        held = np.zeros(nv, bool) if prescribed is None else np.asarray(prescribed)
        self.n, self.parents = n, parents
        H = np.zeros((nv, N))
        E, S, Delta = np.zeros((N, N)), np.zeros((N, N)), np.zeros((N, N))
        M = np.zeros((N, N))
        for k in range(n):
            b = slice(6 * k, 6 * k + 6)
            H[slices[k], b] = axes[slices[k]]
            Delta[b, b] = carry(offset[k])
            if parents[k] >= 0:
                p = slice(6 * parents[k], 6 * parents[k] + 6)
                S[p, b] = np.eye(6)
                E[p, b] = Delta[b, b]
            m, c = float(robot.mass[k]), R_links[k] @ np.asarray(robot.com[k])
            inertia = np.asarray(robot.inertia[k])
            J = R_links[k] @ (inertia + inertia.T) / 2 @ R_links[k].T - m * skew(c) @ skew(c)
            M[b, b] = np.block([[J, m * skew(c)], [-m * skew(c), m * np.eye(3)]])
        H_a, H = H * held[:, None], H * ~held[:, None]
        A = np.diag(np.where(held, 1.0, np.asarray(robot.armature)))
        P, D, G = M.copy(), np.zeros((nv, nv)), np.zeros((N, nv))
        for k in reversed(range(n)):
            b, s = slice(6 * k, 6 * k + 6), slices[k]
            h, Pk = H[s, b], P[b, b]
            D[s, s] = h @ Pk @ h.T + A[s, s]
            G[b, s] = Pk @ h.T @ np.linalg.inv(D[s, s])
            if parents[k] >= 0:
                p = slice(6 * parents[k], 6 * parents[k] + 6)
                X = Delta[b, b]
                P[p, p] += X @ (Pk - G[b, s] @ D[s, s] @ G[b, s].T) @ X.T
        tau = np.eye(N) - G @ H
        E_psi = E @ tau
        phi, psi = np.linalg.inv(np.eye(N) - E), np.linalg.inv(np.eye(N) - E_psi)
        Omega = psi.T @ H.T @ np.linalg.inv(D) @ H @ psi
        full = phi @ M @ phi.T
        self.atoms = {
            "H": H, "H_a": H_a, "phi": phi, "psi": psi, "E_phi": E, "E_psi": E_psi, "S": S, "M": M, "P": P, "D": D,
            "G": G, "K": E @ G, "L": Delta @ G, "tau_bar": tau, "Delta_phi": Delta, "Delta_psi": Delta @ tau,
            "Phi": phi @ S, "Psi": psi @ S, "A": A, "Upsilon": self.block_diagonal(Omega),
            "R": self.block_diagonal(full), "pi_a": np.diag(held * 1.0), "pi_p": np.diag(~held * 1.0),
        }  # fmt: skip

    def block_diagonal(self, X):
        """Only the diagonal 6x6 blocks of a matrix."""
        mask = np.kron(np.eye(self.n), np.ones((6, 6)))
        return X * mask

    def __call__(self, operator) -> np.ndarray:
        return self.dense(operator.term, operator.data)

    def dense(self, term, data) -> np.ndarray:
        match term:
            case t.Atom(name="B"):
                B = np.zeros((6 * self.n, 6 * len(term.extra[0])))
                for j, link in enumerate(term.extra[0]):
                    if link >= 0:
                        B[6 * link : 6 * link + 6, 6 * j : 6 * j + 6] = carry(np.asarray(data[term.slot].arms[j]))
                return B
            case t.Atom(name="vector"):
                return np.asarray(data[term.slot].value)[:, None]
            case t.Atom(name="matrix"):
                return np.asarray(data[term.slot].value)
            case t.Atom(name="number"):
                return float(data[term.slot].value) * np.eye(term.domain.size)
            case t.Atom(name="block"):
                return self._blocks(term, np.asarray(data[term.slot].value))
            case t.Atom():
                return self.atoms[term.name]
            case t.Identity():
                return np.eye(term.space.size)
            case t.Zero():
                return np.zeros((term.codomain.size, term.domain.size))
            case t.Named():
                return self.dense(term.definition, data)
            case t.Product(factors):
                return np.linalg.multi_dot([np.eye(term.codomain.size), *(self.dense(f, data) for f in factors)])
            case t.Sum(parts):
                return sum(c * self.dense(p, data) for c, p in parts)
            case t.Adjoint(inner):
                return self.dense(inner, data).T
            case t.Inverse(inner):
                return np.linalg.inv(self.dense(inner, data))
        raise TypeError(term)

    def _blocks(self, term, value):
        result = np.zeros((term.codomain.size, term.domain.size))
        slices = term.domain.topology.v_slices
        for k in range(self.n):
            rows = slices[k] if term.codomain.kind == "joint" else slice(6 * k, 6 * k + 6)
            height = rows.stop - rows.start
            result[rows, 6 * k : 6 * k + 6] = value[k].reshape(-1, 6)[:height]
        return result


class Case:
    """A robot at a random configuration with its bundle and its dense twin."""

    def __init__(self, robot, prescribed: bool = False, seed: int = 0):
        self.robot = robot
        self.q = robot.random(jax.random.key(seed))
        mask = jnp.asarray(np.random.default_rng(seed).random(robot.nv) < 0.4) if prescribed else None
        self.o = soa.operators(robot, self.q, prescribed=mask)
        self.dense = DenseAlgebra(robot, self.q, mask)
        self.rng = np.random.default_rng(seed)


@cache
def case(name: str) -> Case:
    """tree: mixed joints, branches, no armature; noisy: the same with armature; chain: serial, mixed joints; hybrid:
    prescribed degrees and armature; arm: seven hinges; base: a free base with branches."""
    tree = soa.models.random_tree
    match name:
        case "tree":
            return Case(tree(3, 7))
        case "noisy":
            return Case(tree(1, 7, armature=True))
        case "chain":
            return Case(tree(2, 5, shape="chain"))
        case "hybrid":
            return Case(tree(1, 7, armature=True), prescribed=True)
        case "arm":
            return Case(soa.models.chain(7))
        case "base":
            return Case(tree(5, 6, ["revolute", "prismatic"], floating_base=True))
    raise ValueError(name)


def close(actual, expected, tolerance=1e-10):
    expected = np.asarray(expected)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=0, atol=tolerance * (1 + np.abs(expected).max()))
