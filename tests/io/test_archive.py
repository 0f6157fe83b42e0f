"""Models saved as npz and loaded again: every leaf as it was, and nothing but such files accepted (row 34)."""

from __future__ import annotations

import io
import json
import os
import pickle
import tempfile
import tracemalloc
import warnings
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
    ("no-inertia", ARRAYS | {key: np.zeros_like(ARRAYS[key]) for key in ("mass", "inertia", "armature")}, "singular"),
    ("zero-axis", entry("axis", 0.0, 6), "joint 'link 6_joint': the axis .* is zero"),
    ("parallel-axes", ARRAYS | {"axis2": ARRAYS["axis"]}, "zero or parallel"),
    ("friction-velocity", entry("friction_velocity", 0.0), "friction_velocity is 0, but must be positive"),
    ("no-rotation", entry("joint_rotation", 2.0, (3, 0, 0)), "joint 'link 3_joint': the rotation .* not a rotation"),
    ("mirror", entry("base_rotation", -1.0, (2, 2)), "the base: the rotation .* not a rotation"),
    ("frame-rotation", entry("frame_rotation", 0.5, (-1, 0, 0)), "frame 'tip': the rotation .* not a rotation"),
    ("crossed-limits", entry("limits.lower", 9.0, -1), r"lower limit 9 is above the upper limit 2"),
    ("limit-above-all", entry("limits.lower", np.inf, -1), "lower limit inf"),
    ("skew-inertia", entry("inertia", 0.5, (2, 0, 1)), "link 'link 2': the inertia .* not symmetric"),
    ("huge", entry("mass", 1e300, 3), r"too large: 1e\+300 \(link 'link 3'\)"),
    ("huge-together", ARRAYS | {"mass": ARRAYS["mass"] + 1e100, "com": ARRAYS["com"] + 1e100}, "moments of inertia"),
    ("escape", with_topology(link_names=["\x1b[31m", *TOPOLOGY["link_names"][1:]]), "control characters"),
    ("escape-frame", with_topology(frame_names=["\x9b31m", *TOPOLOGY["frame_names"][1:]]), "control characters"),
    ("long-name", with_topology(name="a" * 2000), "more than 1000 characters"),
    ("mimic-huge", with_topology(mimics=[["finger_joint", "link 6_joint", 10**400, 0.0]]), "mimics must be"),
    (
        "mimic-infinite",
        with_header(json.dumps(HEADER).replace("0.5", "1e400").encode()),
        "mimics must be",
    ),
    ("mimic-twice", with_topology(mimics=[["finger_joint", "link 6_joint", 1, 0]] * 2), "one each"),
    ("many-links", with_topology(parents=[-1] * 10_001), "10001 links are more than the limit"),
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
    soa.save(ROBOT, tmp_path / "good")
    with zipfile.ZipFile(tmp_path / "good") as file:
        members = {name: file.read(name) for name in file.namelist()}
    for name, content, message in (
        ("header.npy", b"hello", "no array"),
        ("mass.npy", b"hello", "no array"),
        ("mass.npy", lie.getvalue(), r"mass has shape \(1000000000000000,\)"),
        ("mass.npy", members["mass.npy"][:-8], "not the 80 bytes"),
        ("mass.npy", members["mass.npy"] + b"more", "not the 80 bytes"),
        ("mass.npy", members["mass.npy"].replace(b"(10,)", b"(10, 99999999999999999999)"), "mass has shape"),
    ):
        with zipfile.ZipFile(path, "w") as file:
            for key, value in (members | {name: content}).items():
                file.writestr(key, value)
        with pytest.raises(soa.ModelError, match=message):
            soa.load(path)


@pytest.mark.parametrize("path", ["no/such/file.npz", ".", None, 3, b"bytes"], ids=repr)
def test_row_34_paths_that_are_none(path):
    with pytest.raises(soa.ModelError, match=r"cannot be read|must be a path"):
        soa.load(path)


def test_row_34_large_archives_are_refused_without_unpacking_them(tmp_path: Path):
    """A megabyte that unpacks to a gigabyte, in an array that belongs to a model and in one that does not."""
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for key, array in ARRAYS.items():
            buffer = io.BytesIO()
            np.save(buffer, array)
            if key in ("mass", "header"):
                buffer.write(bytes(2**26))
            file.writestr(f"{key}.npy", buffer.getvalue())
    tracemalloc.start()
    with pytest.raises(soa.ModelError, match="header is damaged"):
        soa.load(path)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="a Unix device")
def test_devices_are_no_models():
    with pytest.raises(soa.ModelError, match="no regular file"):
        soa.load("/dev/zero")


def test_unphysical_inertias_are_a_matter_of_policy_here_too(tmp_path: Path):
    path = tmp_path / "x.npz"
    np.savez(path, **entry("inertia", -1.0, (2, 0, 0)))  # pyright: ignore[reportArgumentType]
    with pytest.warns(soa.ModelWarning, match="positive semidefinite.*'link 2'"):
        soa.load(path)
    with pytest.raises(soa.ModelError, match="positive semidefinite"):
        soa.load(path, validate="strict")
    assert float(soa.load(path, validate="off").inertia[2, 0, 0]) == -1.0


def test_limits_are_those_of_the_type_that_the_model_gets(tmp_path: Path):
    """What double precision can hold and single cannot: refused with x64 off, never an infinity or a zero instead."""
    path = tmp_path / "x.npz"
    for key, value, where, message in (
        ("mass", 1e30, 9, "too large"),
        ("joint_position", 1e25, 0, "too large"),
        ("com", 1e10, 9, "moments of inertia"),
        ("friction_velocity", 1e-60, (), "must be positive"),
    ):
        np.savez(path, **entry(key, value, where))  # pyright: ignore[reportArgumentType]
        if key != "com":
            soa.load(path)
        with jax.enable_x64(False), warnings.catch_warnings(), pytest.raises(soa.ModelError, match=message):
            warnings.simplefilter("ignore")
            soa.load(path)
    light = {key: ARRAYS[key] * 1e-50 for key in ("mass", "inertia", "armature")}
    np.savez(path, **(ARRAYS | light))  # pyright: ignore[reportArgumentType]
    soa.load(path)
    with jax.enable_x64(False), warnings.catch_warnings(), pytest.raises(soa.ModelError, match="singular"):
        warnings.simplefilter("ignore")
        soa.load(path)


def test_row_30_doubles_with_x64_off_are_one_warning(tmp_path: Path):
    path = tmp_path / "x.npz"
    soa.save(ROBOT, path)
    with jax.enable_x64(False), pytest.warns(UserWarning, match="jax_enable_x64 is off") as record:
        assert soa.load(path).dtype == jnp.float32
    assert len(record) == 1
