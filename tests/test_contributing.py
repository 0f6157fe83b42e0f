"""The examples of CONTRIBUTING.md run, and what they define is what the text says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from helpers.markdown import run_python_blocks

import jaxsoa as soa

ROOT = Path(__file__).parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"


def test_every_file_named_exists():
    names = re.findall(
        r"`((?:jaxsoa|tests|experiments|notebooks|\.ci)/[\w./]+)`", CONTRIBUTING.read_text(encoding="utf-8")
    )
    assert len(names) > 10
    missing = [name for name in names if not (ROOT / name).exists()]
    assert not missing


def test_every_name_said_to_be_in_a_file_is_there():
    text = " ".join(CONTRIBUTING.read_text(encoding="utf-8").split())
    places = re.findall(r"`(\w+)` (?:of|in) `(jaxsoa/[\w/]+\.py)`", text)
    assert len(places) >= 2
    missing = [(name, file) for name, file in places if not re.search(rf"\b{name}\b", (ROOT / file).read_text("utf-8"))]
    assert not missing


@pytest.mark.slow
def test_the_examples_run():
    names, count = run_python_blocks(CONTRIBUTING)
    assert count == 3
    # A pin at the end of a slot that points up, the slot along x: q = (0.3, 90 degrees) about z.
    geometry = names["JointGeometry"](np.array([1.0, 0, 0]), np.array([0, 0, 1.0]), 0.0)
    R, p = names["PinInSlot"]().transform(geometry, np.array([0.3, np.pi / 2]))
    np.testing.assert_allclose(p, [0.3, 0, 0], atol=1e-12)
    np.testing.assert_allclose(R, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-12)
    np.testing.assert_allclose(names["subtree_mass"](soa.models.pendulum(3)), [3, 2, 1])
    assert names["identity"].equation == "JPL 88-11 (5.12)"
