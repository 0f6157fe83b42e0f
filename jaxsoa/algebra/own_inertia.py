"""Inverses of H phi X phi* H* + noise for any block-diagonal X: the Riccati sweep with X in the place of the inertias.

The innovations factorization (JPL 88-11, 4.11-4.16) asks of M only that it is block-diagonal, symmetric and such that
every pivot D is positive. So it also inverts J* J = H phi (B B*) phi* H* (overview, section 2), a mass matrix whose
bodies have the "inertia" B B* where a frame is and none elsewhere, and J* J + k I, the matrix of damped least squares,
and M + k I: O(N), where the dense way is O(N^3).
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.algebra import terms as t
from jaxsoa.algebra.bundle import whitening
from jaxsoa.algebra.spaces import joint_layout
from jaxsoa.algebra.state import Frames, State
from jaxsoa.algebra.terms import Atom, Named, Term
from jaxsoa.algebra.words import Words, expand
from jaxsoa.spatial import pairs
from jaxsoa.spatial.inertia import SpatialInertia
from jaxsoa.sweeps import gather


def factored(term: Term, data: tuple) -> tuple[Named, State] | None:
    """The term as a symbol with an inverse by sweeps over a state of its own (slot len(data)), if it is of the form."""
    words = expand(written_out(term))
    slot = _common_slot(words, data)
    if slot is None:
        return None
    state = data[slot]
    blocks, noise = [], []
    for word, weight in words.weights.items():
        if weight < 0:
            return None  # pivots would not be positive
        if word == ():
            noise.append((weight, None))
        elif len(word) == 1 and _is(word[0], "A"):
            noise.append((weight, "A"))
        elif len(word) >= 4 and _ends(word):
            middle = word[2:-2]
            if middle and not (len(middle) == 1 and _is(middle[0], "M")) and not _frames(middle):
                return None
            slots = tuple(atom.slot for letter in middle[:1] for atom in t.atoms(letter))
            blocks.append((weight, slots[0] if slots else None, middle[0] if middle else None))
        else:
            return None
    if not blocks:
        return None
    H = Atom("H", len(data), words.codomain, _links(words))
    W = whitening(H)
    D = Atom("D", len(data), words.codomain, words.codomain)
    inverse = t.product(t.adjoint(W), t.inverse(D), W)
    kinds = tuple((weight, None if letter is None else _plain(letter)) for weight, _, letter in blocks)
    used = tuple(data[s] if letter is not None and not _is(letter, "M") else None for _, s, letter in blocks)
    own = _swept(state, used, kinds, tuple(noise))
    return Named("", term, inverse, symmetric=True, opaque=False), own


def written_out(term: Term) -> Term:
    """Jacobians and the mass matrix under their names as what they stand for."""
    if isinstance(term, Named) and term.symbol != "W":
        return written_out(term.definition)
    return t.rebuild(term, written_out)


def _is(letter: Term, name: str) -> bool:
    return isinstance(letter, Atom) and letter.name == name


def _plain(letter: Term) -> Atom:
    """The atom without its slot, so that equal programs are found again."""
    assert isinstance(letter, Atom)
    return dataclasses.replace(letter, slot=0)


def _links(words: Words):
    return next(word[0].domain for word in words.weights if word and _is(word[0], "H"))


def _frames(middle: tuple[Term, ...]) -> bool:
    return len(middle) == 2 and _is(middle[0], "B") and middle[1] == t.adjoint(middle[0])


def _ends(word: tuple[Term, ...]) -> bool:
    """H phi ... phi* H*."""
    return (
        _is(word[0], "H") and _is(word[1], "phi") and word[-2] == t.adjoint(word[1]) and word[-1] == t.adjoint(word[0])
    )


def _common_slot(words: Words, data: tuple) -> int | None:
    """Of the one bundle whose H, phi, M and armature occur."""
    slots = {atom.slot for word in words.weights for x in word for atom in t.atoms(x) if atom.name != "B"}
    slot = slots.pop() if len(slots) == 1 else None
    return slot if slot is not None and isinstance(data[slot], State) else None


@partial(jax.jit, static_argnums=(2, 3), inline=True)
def _swept(state: State, used: tuple[Frames | None, ...], kinds: tuple, noise: tuple) -> State:
    """P, D and G for the sum of weighted blocks and of weighted identities and armatures."""
    X = jnp.zeros((state.topology.n_links, 6, 6), state.G.dtype)
    for (weight, letter), frames in zip(kinds, used, strict=True):
        X = X + weight * _blocks(state, letter, frames)
    A = jnp.zeros_like(state.A)
    mask = jnp.asarray(joint_layout(state.topology)[1].reshape(state.A.shape), state.A.dtype)
    for weight, name in noise:
        A = A + weight * (mask if name is None else state.A * mask)
    full = A if A.ndim == 2 else A[:, None]
    padding = 1 - (mask if mask.ndim == 2 else mask[:, None])

    def inward(children, x):
        X, H, noise, phi = x
        P = children + X
        PH = P @ H.T
        D = H @ PH + jnp.diag(noise)
        inverse = 1 / D if D.shape == (1, 1) else jnp.linalg.inv(D)
        G = PH @ inverse
        rest = P - G @ PH.T
        return phi @ ((rest + rest.T) / 2) @ phi.T, (P, G, D, inverse)

    xs = (X, state.blocks("H"), full + padding, pairs.phi(state.offset))
    _, (P, G, D, inverse) = gather(state.topology.link_plan, inward, jnp.zeros_like(X[0]), xs)
    if state.topology.single_dof:
        G, D, inverse = G[..., 0], D[..., 0, 0], inverse[..., 0, 0]
    return dataclasses.replace(
        state,
        has_armature=bool(noise),
        rigid=SpatialInertia.from_matrix(X),
        A=A,
        inertia=SpatialInertia.from_matrix(P),
        G=G,
        D=D,
        D_inverse=inverse,
    )


def _blocks(state: State, letter: Atom | None, frames: Frames | None) -> Array:
    n = state.topology.n_links
    if letter is None:
        return jnp.broadcast_to(jnp.eye(6, dtype=state.G.dtype), (n, 6, 6))
    if letter.name == "M":
        bodies = state.rigid
        return jax.vmap(lambda m: (m if isinstance(m, SpatialInertia) else m.spatial()).matrix())(bodies)
    assert frames is not None
    carried = pairs.phi(frames.arms)  # phi(link, frame)
    links = np.array(letter.extra[0], int)
    moving = links >= 0
    products = carried @ jnp.swapaxes(carried, 1, 2)
    return jnp.zeros((n, 6, 6), carried.dtype).at[links[moving]].add(products[moving])
