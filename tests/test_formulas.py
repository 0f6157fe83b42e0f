"""Printed formulas compute what the functions do."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxsoa as soa


def computed(formulas: soa.Symbolic, **values) -> np.ndarray:
    """The elements by Python's own arithmetic."""
    names = {name: getattr(math, name) for name in ("sin", "cos", "sqrt")} | values
    for name, text in formulas.shared:
        names[name] = eval(text, {}, names)
    return np.array([[eval(x, {}, names) for x in row] for row in formulas.elements])


def test_the_mass_matrix_and_its_inverse_as_formulas():
    """With the masses as symbols, at other masses and in another configuration."""
    robot = soa.models.planar_arm(2)
    formulas = soa.symbolic(soa.mass_matrix, robot, symbols=["mass"])
    assert "mass[1]" in str(formulas) and "cos(q[1])" in str(formulas)
    q, mass = np.array([0.4, -1.1]), np.array([3.0, 0.7])
    M = np.asarray(jax.jit(soa.mass_matrix)(robot.replace(mass=jnp.asarray(mass)), q))
    assert_allclose(computed(formulas, q=q, mass=mass), M, rtol=1e-13)
    inverse = soa.symbolic(soa.mass_matrix_inverse, robot, symbols=["mass"])
    assert_allclose(computed(inverse, q=q, mass=mass), np.linalg.inv(M), rtol=1e-12)


def test_what_cannot_be_printed_is_refused():
    robot = soa.models.planar_arm(2)
    with pytest.raises(ValueError, match="letters of 'q' and 'v'"):
        soa.symbolic(soa.mass_matrix, robot, "x")
    with pytest.raises(ValueError, match="one array"):
        soa.symbolic(soa.forward_kinematics, robot)
