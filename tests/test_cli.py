"""The command line as a person uses it: what it prints, writes and returns."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from jaxsoa.cli import main
from jaxsoa.drawing import draw_motion

ARM = """<robot name="arm"><link name="base"/><link name="rod"><inertial><mass value="2"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="rod"/></joint></robot>"""


def test_info_shows_the_tree(tmp_path, capsys):
    path = tmp_path / "arm.urdf"
    path.write_text(ARM)
    assert main(["info", str(path)]) == 0
    out = capsys.readouterr().out
    assert "1 moving links" in out and "rod  (continuous hinge, 2.000 kg)" in out


def test_an_error_is_one_line_and_an_exit_code(tmp_path, capsys):
    path = tmp_path / "broken.urdf"
    path.write_text(ARM.replace('value="2"', 'value="-2"'))
    assert main(["info", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "rod" in err and "-2" in err


@pytest.mark.slow
def test_demo_runs_checks_itself_and_writes_a_picture(tmp_path, capsys):
    picture = tmp_path / "demo.svg"
    assert main(["demo", "--batch", "4", "--seconds", "0.1", "--output", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "energy drift" in out and str(picture) in out
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_drawing_refuses_what_cannot_be_drawn(tmp_path):
    with pytest.raises(ValueError, match="NaN"):
        draw_motion(np.full((2, 1, 3), np.nan), [-1], tmp_path / "x.svg", title="x")
