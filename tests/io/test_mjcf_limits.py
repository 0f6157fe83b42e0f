"""MJCF files that would end the process, or keep MuJoCo's compiler busy for minutes: refused before it sees them."""

from __future__ import annotations

import struct
import time
import warnings
from pathlib import Path

import pytest

pytest.importorskip("mujoco")

import jaxsoa as soa
from jaxsoa.io import mjcf_limits

BODY = '<body name="b"><joint/><geom size=".1"/></body>'


def model(more: str = "", body: str = BODY) -> str:
    return f"<mujoco>{more}<worldbody>{body}</worldbody></mujoco>"


def asset(content: str) -> str:
    return model(f"<asset>{content}</asset>")


REPLICATED = '<replicate count="{}" offset="1 0 0">{}</replicate>'
HOSTILE = [
    ("texture", asset('<texture name="t" type="2d" builtin="flat" width="60000" height="60000"/>'), "pixels"),
    ("cube", asset('<texture name="t" type="cube" builtin="flat" width="20000" height="20000"/>'), "pixels"),
    ("textures", asset('<texture type="2d" builtin="flat" width="8000" height="8000"/>' * 2), "pixels"),
    ("float", asset('<texture name="t" type="2d" builtin="flat" width="6e4" height=" 6e4"/>'), "pixels"),
    ("height-field", asset('<hfield name="h" nrow="100000" ncol="100000" size="1 1 1 1"/>'), "points of height"),
    ("replicate", model(body=REPLICATED.format(100_000_000, BODY)), "elements"),
    ("replicate-nested", model(body=REPLICATED.format(100, REPLICATED.format(100, BODY))), "bodies"),
    ("replicate-geoms", model(body=BODY + REPLICATED.format(100_000, '<geom size=".1"/>')), "elements"),
    ("keys", model('<size nkey="2000000000"/>'), "size nkey"),
    ("user-data", model('<size nuserdata="2000000000"/>'), "size nuserdata"),
    ("user-data-of-bodies", model('<size nuser_body="2000000000"/>'), "size nuser_body"),
    ("numeric", model('<custom><numeric name="a" size="2000000000"/></custom>'), "numeric size"),
    ("sensor", model('<sensor><user dim="2000000000"/></sensor>'), "user dim"),
    ("mesh", asset('<mesh name="m" builtin="supertorus" params="20000 .3 1 1"/>'), "mesh params"),
    ("flex", model(body=BODY + '<flexcomp name="f" type="grid" count="2000 2000 2000"/>'), "bodies"),
    ("many-bodies", model(body=BODY * 4001), "4001 bodies"),
    ("device", asset('<mesh name="m" file="/dev/zero"/>'), "no regular file"),
]


@pytest.mark.parametrize(("text", "reason"), [pytest.param(*case[1:], id=case[0]) for case in HOSTILE])
def test_refused_at_once(text: str, reason: str, tmp_path: Path):
    path = tmp_path / "model.xml"
    path.write_text(text)
    for source in (text, path):
        start = time.process_time()
        with pytest.raises(soa.ModelError, match=reason):
            soa.load_mjcf(source)
        assert time.process_time() - start < 5.0


def test_included_files_count(tmp_path: Path):
    path = tmp_path / "model.xml"
    hostile = HOSTILE[0][1].replace("mujoco>", "mujocoinclude>").replace(f"<worldbody>{BODY}</worldbody>", "")
    path.write_text(model('<include file="parts/a.xml"/>'))
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.xml").write_text('<mujocoinclude><include file="b.xml"/></mujocoinclude>')
    (tmp_path / "parts" / "b.xml").write_text(hostile)
    with pytest.raises(soa.ModelError, match="pixels"):
        soa.load_mjcf(path)
    (tmp_path / "parts" / "b.xml").write_text('<mujocoinclude><include file="a.xml"/></mujocoinclude>')
    with pytest.raises(soa.ModelError, match=r"without end|more than 500 files"):
        soa.load_mjcf(path)
    text = model('<include file="a.xml"/>')
    with pytest.raises(soa.ModelError, match="pixels"):
        soa.load_mjcf(text, assets={"a.xml": hostile.encode()})
    with pytest.raises(soa.ModelError, match="cannot be read"):
        soa.load_mjcf(text)
    with pytest.raises(soa.ModelError, match=r"malformed"):  # and not what the file at that path holds
        soa.load_mjcf(text, assets={"a.xml": b"/etc/hostname"})


def test_pictures_and_height_fields_that_are_larger_inside(tmp_path: Path):
    picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 60000, 60000) + b"\x08\x02\0\0\0" + bytes(20)
    (tmp_path / "t.png").write_bytes(picture)
    (tmp_path / "h.bin").write_bytes(struct.pack("<ii", 100_000, 100_000))
    for content, reason in (
        ('<texture name="t" type="2d" file="t.png"/>', "pixels"),
        ('<hfield name="h" file="h.bin" size="1 1 1 1"/>', "points"),
    ):
        (tmp_path / "model.xml").write_text(asset(content))
        with pytest.raises(soa.ModelError, match=reason):
            soa.load_mjcf(tmp_path / "model.xml")
    with pytest.raises(soa.ModelError, match="pixels"):
        soa.load_mjcf(asset('<texture name="t" type="2d" file="t.png"/>'), assets={"t.png": picture})


def test_ordinary_sizes_are_loaded_and_limits_are_documented():
    assert (mjcf_limits.MAX_BODIES, mjcf_limits.MAX_PIXELS, mjcf_limits.MAX_POINTS) == (4000, 2**26, 2**24)
    ordinary = (
        '<size nkey="3" nuserdata="10" nuser_body="2" njmax="20000" nconmax="20000"/>'
        '<asset><texture name="t" type="2d" builtin="checker" width="512" height="512" rgb1="1 1 1" rgb2="0 0 0"/>'
        '<hfield name="h" nrow="50" ncol="50" size="1 1 1 1"/></asset>'
        '<custom><numeric name="a" size="20" data="1"/></custom>'
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soa.ModelWarning)
        robot = soa.load_mjcf(model(ordinary, REPLICATED.format(12, BODY)))
    assert robot.n_links == 12


def test_numbers_beyond_the_type_are_refused_when_loaded():
    import jax

    far = model(body='<body pos="1e30 0 0"><joint/><geom size=".1"/></body>')
    with jax.enable_x64(False), pytest.raises(soa.ModelError, match=r"too large"):
        soa.load_mjcf(far)
    for position in ("1e308 0 0", "1e200 0 0"):
        with pytest.raises(soa.ModelError, match="too large"):
            soa.load_mjcf(far.replace("1e30 0 0", position))
