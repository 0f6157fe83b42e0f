"""Saved models (npz) and MJCF files, mutated: a whole model or a `ModelError`, always."""

from __future__ import annotations

import io
import json
import random
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import fuzz_urdf
import jax
import numpy as np

import jaxsoa as soa

NUMBERS = [0.0, -0.0, -1.0, 1e-320, 1e-160, 1e20, 1e160, 1e308, np.inf, -np.inf, np.nan, 1e-9, 7.0]
JSON = [None, True, -1, 0, 10**30, 1e308, "", "a", "\x1b[2J", "x" * 3000, [], [[]], {}, "fixed", "free", -1.5]

MJCF = b"""<mujoco model="m"><compiler angle="radian"/><option gravity="0 0 -9.81"/>
<default><joint damping="0.1" armature="0.01"/></default>
<asset><texture name="t" type="2d" builtin="flat" width="32" height="32"/>
<hfield name="h" nrow="4" ncol="4" size="1 1 1 1"/></asset><size nuserdata="2" nkey="1"/>
<worldbody><body name="a" pos="0 0 1"><freejoint name="f"/><geom type="sphere" size=".1" mass="1"/>
<body name="b" pos="0.1 0 0" euler="0.1 0.2 0.3"><joint name="j" axis="0 1 0" range="-1 1"/>
<joint name="k" type="slide" axis="0 0 1"/><inertial mass="1" pos="0 0 .1" diaginertia="1 1 1"/>
<site name="s" pos="0 0 .1"/></body></body>
<replicate count="2" offset="1 0 0"><body name="c"><joint name="l" type="ball"/><geom size=".1 .2" type="capsule"/>
</body></replicate></worldbody>
<actuator><motor name="m" joint="j" gear="2"/></actuator><sensor><jointpos joint="j"/></sensor></mujoco>"""


def saved_members() -> dict[str, bytes]:
    """What an archive of a model with many kinds of joints holds."""
    kinds = ["free", "spherical", "universal", "planar", "helical", "prismatic", "revolute"]
    builder, parent = soa.Builder("saved"), None
    for k, kind in enumerate(kinds):
        builder.link(f"l{k}", joint=kind, parent=parent, axis2=(1, 0, 0), mass=1 + k, inertia=np.eye(3), pitch=0.1)
        parent = f"l{k}"
    builder.link("f", joint="prismatic", parent=parent, mass=1, lower=-1, upper=1, mimic=("l5_joint", 2.0, 0.0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.npz"
        soa.save(builder.build(), path)
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


@np.errstate(all="ignore")
def mutated_archive(members: dict[str, bytes], chance: random.Random) -> bytes:
    """An archive whose numbers, shapes, header or bytes are changed in a place or two."""
    members, broken = dict(members), set()
    for _ in range(chance.choice((1, 1, 2))):
        name = chance.choice(sorted(members))
        match chance.randrange(5):
            case 0 if name not in ("header.npy", *broken):
                array = np.load(io.BytesIO(members[name])).astype(float)
                array.flat[chance.randrange(max(array.size, 1)) if array.size else slice(0)] = chance.choice(NUMBERS)
                members[name] = _npy(array.astype(chance.choice(("<f8", "<f8", "<f4", "<f2", ">f8"))))
            case 1 if name not in ("header.npy", *broken):
                array = np.load(io.BytesIO(members[name]))
                members[name] = _npy(chance.choice((array[None], array.T, array.astype(int), array.ravel()[:1])))
            case 2 | 3 if "header.npy" not in broken:
                header = json.loads(np.load(io.BytesIO(members["header.npy"])).tobytes())
                place: Any = header["topology"] if isinstance(header.get("topology"), dict) else header
                key = chance.choice(sorted(place))
                if isinstance(place[key], list) and place[key] and chance.random() < 0.7:
                    place, key = place[key], chance.randrange(len(place[key]))
                place[key] = chance.choice(JSON)
                members["header.npy"] = _npy(np.frombuffer(json.dumps(header).encode(), np.uint8))
            case _:
                members[name] = fuzz_urdf.flip_bytes(members[name], chance)
                broken.add(name)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    content = buffer.getvalue()
    change = chance.choice((None, None, None, fuzz_urdf.flip_bytes, fuzz_urdf.truncate, fuzz_urdf.delete_slice))
    return content if change is None else change(content, chance)


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def mutated_mjcf(content: bytes, chance: random.Random) -> bytes:
    """An MJCF file with a number, an attribute, an element or some bytes changed."""
    for _ in range(chance.choice((1, 1, 2))):
        content = chance.choice([*fuzz_urdf.MUTATIONS, _mjcf_number, _mjcf_number, _mjcf_number])(content, chance)
    return content


@fuzz_urdf.on_tree
def _mjcf_number(root: Any, chance: random.Random) -> None:
    element = chance.choice([e for e in root.iter() if e.attrib] or [root])
    if element.attrib:
        key = chance.choice(sorted(element.attrib))
        words = element.attrib[key].split() or [""]
        words[chance.randrange(len(words))] = chance.choice([*fuzz_urdf.NUMBERS, "100000", "2000000000", "-5", "1e20"])
        element.attrib[key] = " ".join(words)


def read(load: Any, content: bytes, path: Path) -> bool:
    """Whether it was loaded; anything but a whole model with finite numbers and a `ModelError` raises."""
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", soa.ModelWarning)
        try:
            robot = load(path)
        except soa.ModelError as error:
            assert len(str(error)) <= 2000 and str(error).replace("\n", " ").isprintable()
            return False
    for leaf in jax.tree.leaves(robot.replace(limits=jax.tree.map(np.zeros_like, robot.limits))):
        assert np.isfinite(leaf).all()
    assert all(name.isprintable() for name in (robot.name, *robot.joint_names, *robot.frame_names))
    return True


def fuzz_archives(files: int, seed: int, folder: Path) -> int:
    """How many of so many mutated archives were loaded."""
    members = saved_members()
    return sum(
        read(soa.load, mutated_archive(members, random.Random(f"npz {seed}/{k}")), folder / "x.npz")
        for k in range(files)
    )


def fuzz_mjcf(files: int, seed: int, folder: Path) -> int:
    """How many of so many mutated MJCF files were loaded."""
    return sum(
        read(soa.load_mjcf, mutated_mjcf(MJCF, random.Random(f"mjcf {seed}/{k}")), folder / "x.xml")
        for k in range(files)
    )
