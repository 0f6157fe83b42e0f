"""Every URDF file of example-robot-data loads into a robot that moves, or is refused for a reason that is true."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers.example_robots import EXAMPLE_ROBOTS

import jaxsoa as soa

REFUSED = {
    "ur3.urdf": "has no <link>",  # an empty <robot>
    "alex_psyonic_hands.urdf": "joint 'Left_index_q2' mimics 'index_q1', which does not exist",
    "romeo.urdf": "moves only links without mass and inertia",  # massless fingers
    "romeo_laas_small.urdf": "joint 'r_gripper_joint' moves only links without mass and inertia",
}
# Drones: without joints of their own they move only with a floating base.
RIGID = {"quadrotor_base.urdf": "has no movable joint", "iris_simple.urdf": "has no movable joint"}


@pytest.mark.skipif(not EXAMPLE_ROBOTS, reason="example-robot-data is not installed")
def test_all_files_load_or_are_refused_with_a_correct_reason(capsys):
    loaded, refused, warned = {}, {}, []
    for name, path in EXAMPLE_ROBOTS.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", soa.ModelWarning)
            try:
                loaded[name] = soa.load_urdf(path)
            except soa.ModelError as error:
                refused[name] = str(error)
        warned += [name] if any(issubclass(w.category, soa.ModelWarning) for w in caught) else []
    with capsys.disabled():
        print(f"\n{len(EXAMPLE_ROBOTS)} URDF files: {len(loaded)} load, {len(warned)} of them or of the refused with a")
        print(f"warning, {len(refused)} are refused:")
        for name, reason in refused.items():
            print(f"  {name}: {reason.replace(str(EXAMPLE_ROBOTS[name].parent), '...')}")
    assert len(loaded) + len(refused) == len(EXAMPLE_ROBOTS) >= 69
    expected = REFUSED | RIGID
    assert refused.keys() == expected.keys()
    for name, reason in refused.items():
        assert expected[name] in reason
        assert name in reason
    for name, robot in loaded.items():
        assert robot.nv >= 1, name
        assert set(robot.link_names) <= set(robot.frame_names), name
        for leaf in ("mass", "com", "inertia", "joint_rotation", "joint_position", "axis"):
            assert np.isfinite(getattr(robot, leaf)).all(), (name, leaf)


@pytest.mark.skipif(not EXAMPLE_ROBOTS, reason="example-robot-data is not installed")
def test_all_files_load_with_a_floating_base_too():
    for name, path in EXAMPLE_ROBOTS.items():
        if name in REFUSED:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", soa.ModelWarning)
            floating = soa.load_urdf(path, floating_base=True, validate="off")
            joints, nq, nv = (), 0, 0
            if name not in RIGID:
                fixed = soa.load_urdf(path, validate="off")
                joints, nq, nv = fixed.joint_names, fixed.nq, fixed.nv
        assert floating.joint_names == ("floating_base", *joints), name
        assert (floating.nq, floating.nv) == (nq + 7, nv + 6), name
