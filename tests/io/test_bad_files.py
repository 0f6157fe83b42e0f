"""Files that cannot be read, or must not be: bytes, encodings, entities, sizes, folders."""

import time
from pathlib import Path

import pytest
from urdf_text import MASSLESS, inertial, joint, link, robot

from jaxsoa.io import _xml, read_urdf, urdf
from jaxsoa.model.description import (
    ModelError,
)


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        pytest.param(b"", ["line 1", "empty"], id="row-22-empty"),
        pytest.param(b"  \n ", ["line 1", "empty"], id="row-22-blank"),
        pytest.param(b"solid cube\nfacet", ["line 1", "malformed"], id="row-22-not-xml"),
        pytest.param(b"\x89PNG\r\n\x00\x00", ["line 1", "malformed"], id="row-22-binary"),
        pytest.param(b'<robot>\n<link name="\xff"/></robot>', ["line 2", "malformed"], id="row-22-bad-bytes"),
        pytest.param(b'<?xml version="1.0" encoding="klingon"?><robot/>', ["encoding"], id="row-22-unknown-encoding"),
        pytest.param(b'<?xml version="1.0" encoding="utf-32"?><robot/>', ["robot.urdf"], id="row-22-other-encoding"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, content: bytes, fragments: list[str]):
    path = tmp_path / "robot.urdf"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        read_urdf(path)
    for fragment in [str(path), *fragments]:
        assert fragment in str(caught.value)


@pytest.mark.parametrize(
    "source", ["no/such/file.urdf", Path("no/such/file.urdf"), "not a file " * 1000, "a\0b", b"<robot/>", None, 3]
)
def test_sources_that_cannot_be_read(source):
    with pytest.raises(ModelError, match=r"cannot be read|must be a path or XML text") as caught:
        read_urdf(source)
    assert len(str(caught.value)) < 500


def test_a_directory_is_not_a_robot(tmp_path: Path):
    with pytest.raises(ModelError, match="cannot be read"):
        read_urdf(tmp_path)


def test_row_24_entities_are_refused_before_expansion():
    """Ten levels of ten would be ten thousand million words."""
    levels = "".join(f'<!ENTITY e{k + 1} "{f"&e{k};" * 10}">' for k in range(10))
    start = time.process_time()
    with pytest.raises(ModelError, match="entities are refused"):
        read_urdf(f'<!DOCTYPE r [<!ENTITY e0 "word">{levels}]><robot name="&e10;"/>')
    assert time.process_time() - start < 1.0


def test_row_26_limits_are_documented_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert (_xml.MAX_BYTES, _xml.MAX_DEPTH, _xml.MAX_ELEMENTS, urdf.MAX_LINKS) == (64 * 2**20, 100, 1_000_000, 10_000)
    assert (urdf.MAX_NAME, urdf.MAX_NUMBER) == (250, 1e30)
    path = tmp_path / "big.urdf"
    path.write_text(robot(link("a")))
    read_urdf(path)
    monkeypatch.setattr(_xml, "MAX_ELEMENTS", 3)
    with pytest.raises(ModelError, match="more than the limit of 3 elements"):
        read_urdf(path)
    monkeypatch.setattr(_xml, "MAX_BYTES", 50)
    for source in (path, path.read_text()):
        with pytest.raises(ModelError, match="larger than the limit of 50 bytes"):
            read_urdf(source)


@pytest.mark.parametrize("what", ["link", "joint"])
def test_row_26_too_many_links_or_joints_end_the_reading(what: str):
    """Not only what follows it: the file is broken after the first one too many, and nobody gets there."""
    text = f"<robot name='r'>{f'<{what}/>' * (urdf.MAX_LINKS + 1)}</broken>"
    with pytest.raises(ModelError, match=f"more {what}s than the limit of 10000"):
        read_urdf(text)


def test_row_26_the_largest_robot_allowed_is_read_quickly():
    """A chain of 10,000 links, half of them massless, so that the mass matrix is examined too."""
    links = [link(f"l{k}", inertial() if k % 2 else MASSLESS) for k in range(urdf.MAX_LINKS)]
    axes = ('<axis xyz="1 0 0"/>', '<axis xyz="0 1 0"/><origin xyz="1 0 0"/>')
    joints = [joint(f"j{k}", f"l{k}", f"l{k + 1}", content=axes[k % 2]) for k in range(urdf.MAX_LINKS - 1)]
    start = time.process_time()
    assert len(read_urdf(robot(*links, *joints)).links) == urdf.MAX_LINKS
    assert time.process_time() - start < 20.0
