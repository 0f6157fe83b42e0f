"""Models saved as npz and loaded again: every leaf as it was, and nothing but such files accepted (row 34)."""

from __future__ import annotations

import io
import json
import os
import pickle
import tempfile
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa.io import archive


def mixed() -> soa.Multibody:
    """Every kind of joint, frames, a mimic, limits, friction, a placed base: something in every field."""
    builder = soa.Builder("sämtlich")
    kinds = [
        "free",
        "spherical",
        "universal",
        "cylindrical",
        "planar",
        "helical",
        "prismatic",
        "revolute",
        "continuous",
    ]
    parent = None
    for k, kind in enumerate(kinds):
        builder.link(
            f"link {k}", joint=kind, parent=parent, position=(0.1, 0.2, k), axis=(0, 0.6, 0.8), axis2=(1, 0, 0),
            pitch=0.3, mass=1 + k, com=(0.1, 0, 0), inertia=np.diag([1, 1.1, 1.2]), armature=0.1, damping=0.2,
            friction=0.3, effort=4.0,
        )  # fmt: skip
        parent = f"link {k}"
    builder.link("finger", parent=parent, joint="prismatic", lower=-1, upper=2, mass=1, mimic=("link 6_joint", -2, 0.5))
    builder.frame("tip", link=parent, position=(0, 0, 1), rotation=np.diag([1.0, -1.0, -1.0]))
    robot = builder.build(gravity=(1, 2, 3))
    return robot.with_base(np.diag([-1.0, -1.0, 1.0]), (4, 5, 6)).replace(friction_velocity=0.5)


ROBOT = mixed()


def same(a: soa.Multibody, b: soa.Multibody) -> bool:
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return a.topology == b.topology and all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in leaves)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32, jnp.float16], ids=str)
def test_every_leaf_comes_back_in_its_own_type(tmp_path: Path, dtype):
    robot = ROBOT.astype(dtype)
    path = tmp_path / "robot"  # the name is taken as it is: no suffix is added
    soa.save(robot, path)
    assert os.listdir(tmp_path) == ["robot"]
    again = soa.load(str(path))
    assert same(again, robot)
    assert again.topology.mimics == (("finger_joint", "link 6_joint", -2.0, 0.5),)
    assert hash(again.topology) == hash(robot.topology)  # so that compiled functions are shared


def test_mixed_types_stay_mixed(tmp_path: Path):
    robot = ROBOT.astype(jnp.float32)
    robot = jax.tree.map(lambda x: x.astype(jnp.float64) if x.shape == () else x, robot)
    soa.save(robot, tmp_path / "x")
    assert same(soa.load(tmp_path / "x"), robot)


def test_what_cannot_be_saved_leaves_no_file(tmp_path: Path):
    path = tmp_path / "x.npz"
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), ROBOT)
    for what, message in (
        (batch, r"has shape \(2, .*one at a time"),
        (ROBOT.astype(jnp.bfloat16), "bfloat16; only float16"),
        ("robot.urdf", "not a str"),
    ):
        with pytest.raises(soa.ModelError, match=message):
            soa.save(what, path)
    with pytest.raises(soa.ModelError, match="traced"):
        jax.jit(lambda mass: soa.save(ROBOT.replace(mass=mass), path))(ROBOT.mass)
    assert not path.exists()


# Files that are refused ------------------------------------------------------------------------------------------


def good() -> dict[str, np.ndarray]:
    """What `save` puts into a file."""
    with tempfile.TemporaryDirectory() as folder:
        soa.save(ROBOT, Path(folder) / "x")
        with np.load(Path(folder) / "x") as file:
            return dict(file)


ARRAYS = good()
HEADER = json.loads(ARRAYS["header"].tobytes())


def with_header(change) -> dict[str, np.ndarray]:
    """The arrays with a header that `change` made of a copy of the good one (or as bytes, as they are)."""
    header = json.loads(json.dumps(HEADER))
    header = change(header) if callable(change) else change
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return ARRAYS | {"header": np.frombuffer(encoded, np.uint8)}


def with_topology(**changes) -> dict[str, np.ndarray]:
    return with_header(lambda header: header | {"topology": header["topology"] | changes})


def entry(key: str, value, where=()) -> dict[str, np.ndarray]:
    array = ARRAYS[key].copy()
    array[where] = value
    return ARRAYS | {key: array}


TOPOLOGY = HEADER["topology"]
REFUSED = [
    ("no-header", {k: v for k, v in ARRAYS.items() if k != "header"}, "no header"),
    ("other-header", with_header(b"[1, 2"), "not JSON"),
    ("deep-header", with_header(b"[" * 100_000), "not JSON"),
    ("list-header", with_header([1]), "not a saved Multibody"),
    ("other-format", with_header(lambda h: h | {"format": "other"}), "not a saved Multibody"),
    ("newer-version", with_header(lambda h: h | {"version": 2}), "version 2, and this package reads version 1"),
    ("no-version", with_header(lambda h: {k: v for k, v in h.items() if k != "version"}), "version None"),
    ("unknown-header-field", with_header(lambda h: h | {"code": "x"}), "unknown fields"),
    ("unknown-topology-field", with_topology(code="x"), "unknown fields"),
    ("no-topology", with_header(lambda h: h | {"topology": None}), "unknown fields"),
    ("not-a-number", with_header(json.dumps(HEADER).replace("0.5", "NaN").encode()), "not JSON"),
    ("missing-array", {k: v for k, v in ARRAYS.items() if k != "mass"}, "missing mass"),
    ("unknown-array", ARRAYS | {"extra": np.zeros(3)}, "unknown extra"),
    ("both", {k: v for k, v in ARRAYS.items() if k != "com"} | {"x": np.zeros(1)}, "missing com; unknown x"),
    ("shape", ARRAYS | {"mass": np.ones(3)}, r"mass has shape \(3,\); the topology needs \(10,\)"),
    ("integers", ARRAYS | {"mass": np.ones(10, int)}, "mass is int64"),
    ("complex", ARRAYS | {"mass": np.ones(10, complex)}, "mass is complex128"),
    ("text", ARRAYS | {"mass": np.array(["1"] * 10)}, "mass is <U1"),
    ("void", ARRAYS | {"mass": np.zeros(10, "V2")}, "mass is "),
    ("nan", entry("com", np.nan, (0, 0)), "com holds numbers that are not finite"),
    ("infinite", entry("gravity", np.inf, 0), "gravity holds numbers that are not finite"),
    ("nan-limit", entry("limits.lower", np.nan, 0), "limits.lower holds"),
    ("negative-mass", entry("mass", -1.0, 3), "mass holds a negative number"),
    ("negative-armature", entry("armature", -1.0, 3), "armature holds a negative number"),
    ("negative-effort", entry("limits.effort", -1.0, 3), "limits.effort holds a negative number"),
    ("parents-later", with_topology(parents=[1, *TOPOLOGY["parents"][1:]]), "after their parents"),
    ("parents-float", with_topology(parents=[-1.0, *TOPOLOGY["parents"][1:]]), "parents must be a list of int"),
    ("parents-bool", with_topology(parents=[True, *TOPOLOGY["parents"][1:]]), "parents must be a list of int"),
    ("parents-text", with_topology(parents="abc"), "parents must be a list of int"),
    ("no-links", with_topology(parents=[]), "at least one"),
    ("kinds", with_topology(kinds=["ball", *TOPOLOGY["kinds"][1:]]), "unknown joint kinds ball"),
    ("fixed", with_topology(kinds=["fixed", *TOPOLOGY["kinds"][1:]]), "unknown joint kinds fixed"),
    ("names", with_topology(link_names=["a"] * 10), "link_names are not all different"),
    ("few-names", with_topology(joint_names=["a"]), "need 10 kinds"),
    ("name", with_topology(name=3), "name of the robot"),
    ("frames", with_topology(frame_links=[99] * len(TOPOLOGY["frame_links"])), "every frame needs a link"),
    ("few-frames", with_topology(frame_links=[]), "every frame needs a link"),
    ("mimic", with_topology(mimics=[["finger_joint", "nobody", 1.0, 0.0]]), "mimics must be"),
    ("mimic-of-a-ball", with_topology(mimics=[["finger_joint", "link 1_joint", 1.0, 0.0]]), "mimics must be"),
    ("mimic-shape", with_topology(mimics=["finger_joint"]), "mimics must be"),
]


@pytest.mark.parametrize(("arrays", "message"), [pytest.param(*case[1:], id=f"row-34 {case[0]}") for case in REFUSED])
def test_files_that_are_no_saved_model(tmp_path: Path, arrays, message: str):
    path = tmp_path / "x.npz"
    np.savez(path, **arrays)
    with pytest.raises(soa.ModelError, match=message) as caught:
        soa.load(path)
    assert str(path) in str(caught.value)


class Bomb:
    """What must never happen while a file is read."""

    fired = False

    def __reduce__(self):
        return (Bomb.fire, ())

    @staticmethod
    def fire():
        Bomb.fired = True
        return 0.0


@pytest.mark.parametrize("key", ["mass", "header", "extra"], ids=lambda key: f"row-34 {key}")
def test_pickles_are_refused_and_never_run(tmp_path: Path, key: str):
    path = tmp_path / "x.npz"
    np.savez(path, allow_pickle=True, **(ARRAYS | {key: np.array([Bomb()] * 10, dtype=object)}))
    with np.load(path, allow_pickle=True) as file:
        file[key]
    assert Bomb.fired  # the bomb is a bomb
    Bomb.fired = False
    with pytest.raises(soa.ModelError, match=r"pickles.*refused"):
        soa.load(path)
    assert not Bomb.fired


def test_row_34_a_plain_pickle_is_refused(tmp_path: Path):
    Bomb.fired = False
    path = tmp_path / "x.npz"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(soa.ModelError, match="no npz file"):
        soa.load(path)
    assert not Bomb.fired


def saved_bytes(tmp_path: Path) -> bytes:
    path = tmp_path / "good.npz"
    soa.save(ROBOT, path)
    return path.read_bytes()


def test_row_34_damaged_files_are_refused_or_whole(tmp_path: Path):
    """Bytes changed here and there, and cut anywhere: an error, or (in parts that mean nothing) the same model."""
    content, path = saved_bytes(tmp_path), tmp_path / "x.npz"
    whole = 0
    for position in range(0, len(content), max(1, len(content) // 120)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        try:
            again = soa.load(path)
        except soa.ModelError:
            continue
        whole += 1
        assert same(again, ROBOT)
    assert whole < 60
    for length in range(0, len(content) - 1, max(1, len(content) // 40)):
        path.write_bytes(content[:length])
        with pytest.raises(soa.ModelError, match="damaged"):
            soa.load(path)


def test_row_34_files_that_unpack_to_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert archive.MAX_BYTES == 2**30
    monkeypatch.setattr(archive, "MAX_BYTES", 2**22)
    path = tmp_path / "x.npz"
    np.savez_compressed(path, mass=np.zeros(2**20))
    assert path.stat().st_size < 2**14
    with pytest.raises(soa.ModelError, match="more than the limit of 4194304 bytes"):
        soa.load(path)


def test_row_34_members_that_are_no_arrays_or_lie_about_their_size(tmp_path: Path):
    path = tmp_path / "x.npz"
    lie = io.BytesIO()
    np.lib.format.write_array_header_1_0(lie, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)})
    for name, content, message in (("header", b"hello", "no array"), ("mass.npy", lie.getvalue(), "damaged")):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr(name, content)
        with pytest.raises(soa.ModelError, match=message):
            soa.load(path)


@pytest.mark.parametrize("path", ["no/such/file.npz", ".", None, 3, b"bytes"], ids=repr)
def test_row_34_paths_that_are_none(path):
    with pytest.raises(soa.ModelError, match=r"cannot be read|must be a path"):
        soa.load(path)


def test_row_30_doubles_with_x64_off_are_one_warning(tmp_path: Path):
    path = tmp_path / "x.npz"
    soa.save(ROBOT, path)
    with jax.enable_x64(False), pytest.warns(UserWarning, match="jax_enable_x64 is off") as record:
        assert soa.load(path).dtype == jnp.float32
    assert len(record) == 1
