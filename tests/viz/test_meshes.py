"""Meshes are closed, turned outward, and have the volume of what they are called."""

from __future__ import annotations

import numpy as np
import pytest

from jaxsoa.viz import meshes


def volume(mesh: meshes.Mesh) -> float:
    """By the divergence theorem: positive when faces look outward."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    return float(np.sum(a * np.cross(b, c)) / 6)


def polygon_factor(segments: int) -> float:
    """Area of a regular polygon over that of its circle."""
    return segments / (2 * np.pi) * np.sin(2 * np.pi / segments)


START, END = np.array([0.3, -0.2, 0.5]), np.array([-0.1, 0.6, 0.9])
LENGTH = float(np.linalg.norm(END - START))


@pytest.mark.parametrize(
    ("mesh", "expected", "tolerance"),
    [
        (meshes.box((0.2, 0.3, 0.5)), 0.03, 1e-12),
        (meshes.cylinder(0.1, 0.4, 24), np.pi * 0.004 * polygon_factor(24), 1e-12),
        (meshes.sphere(0.2, 60), 4 / 3 * np.pi * 0.008, 0.02),
        (meshes.capsule(START, END, 0.05, 60), np.pi * 0.0025 * LENGTH + 4 / 3 * np.pi * 0.05**3, 0.02),
    ],
)
def test_volume(mesh, expected, tolerance):
    assert volume(mesh) == pytest.approx(expected, rel=tolerance)


def test_an_arrow_runs_from_start_to_end():
    arrow = meshes.arrow(START, END - START, 0.01)
    along = (arrow.vertices - START) @ (END - START) / LENGTH
    assert along.min() == pytest.approx(0, abs=1e-12) and along.max() == pytest.approx(LENGTH)
    np.testing.assert_allclose(arrow.vertices[np.argmax(along)], END, atol=1e-12)
    assert volume(arrow) > 0


@pytest.mark.parametrize("direction", [(0, 0, 1), (0, 0, -2), (1, 0, 0), (0.3, -0.4, 0.1)])
def test_along_is_a_rotation_that_takes_z_there(direction):
    R = meshes.along(np.array(direction))
    np.testing.assert_allclose(R.T @ R, np.eye(3), atol=1e-14)
    assert np.linalg.det(R) == pytest.approx(1)
    np.testing.assert_allclose(R[:, 2], np.array(direction) / np.linalg.norm(direction), atol=1e-14)


def test_joined_meshes_keep_their_volumes():
    parts = [meshes.box((1, 1, 1)), meshes.box((2, 1, 1)).moved(np.eye(3), np.array([5.0, 0, 0]))]
    assert volume(meshes.join(parts)) == pytest.approx(3)
