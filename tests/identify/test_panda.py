"""A real arm. The measurements are not part of the project: give their path in JAXSOA_PANDA_DATA."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.example_robots import EXAMPLE_ROBOTS

from jaxsoa import identify

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "identify_panda.py"
LOG = os.environ.get("JAXSOA_PANDA_DATA", "")
needs_urdf = pytest.mark.skipif("panda.urdf" not in EXAMPLE_ROBOTS, reason="example-robot-data is not installed")


def _experiment():
    spec = importlib.util.spec_from_file_location("identify_panda", EXPERIMENT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_urdf
def test_the_arm_has_seven_joints_and_all_of_the_mass():
    arm = _experiment().panda_arm(EXAMPLE_ROBOTS["panda.urdf"])
    assert arm.nv == 7 and arm.n_links == 7
    assert abs(float(arm.mass[-1]) - (0.735522 + 0.73 + 2 * 0.015)) < 1e-9  # link 7 carries hand and fingers


@pytest.mark.slow
@needs_urdf
@pytest.mark.skipif(not LOG, reason="JAXSOA_PANDA_DATA does not name a log")
def test_no_worse_than_least_squares_and_physical():
    with np.load(LOG) as log:
        log = {name: log[name] for name in ("time", "q", "tau")}
    result = _experiment().study(log, EXAMPLE_ROBOTS["panda.urdf"], progress=False)
    assert (result.physical <= [0.12, 0.12, 0.10, 0.15, 0.08, 0.06, 0.06]).all(), result.physical
    assert (result.physical <= result.least_squares).all(), result.least_squares
    assert (result.prior > 5 * result.physical).all()
    robot = result.fit.robot
    assert np.asarray(robot.mass).min() > 0
    assert np.linalg.eigvalsh(identify.link_pseudo_inertias(robot))[:, 0].min() > 0
