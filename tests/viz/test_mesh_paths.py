"""Where mesh files may lie: in the model's folder and packages, whatever their paths say."""

from __future__ import annotations

import gzip
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("trimesh")

import jaxsoa as soa
from jaxsoa.viz import urdf_shapes, visuals

STL = (
    b"solid x\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\nendfacet\n"
    b"endsolid x\n"
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """outside/secret.stl, and a package with a robot in package/urdf and meshes in package/meshes."""
    for folder in ("outside", "work/package/urdf", "work/package/meshes", "work/other/only"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "outside" / "secret.stl").write_bytes(STL)
    (tmp_path / "work" / "package" / "package.xml").write_text("<package/>")
    for folder in ("package/urdf", "package/meshes", "other/only"):
        (tmp_path / "work" / folder / "own.stl").write_bytes(STL)
    (tmp_path / "work/package/urdf/link.stl").symlink_to(tmp_path / "outside" / "secret.stl")
    (tmp_path / "work/package/urdf/linked").symlink_to(tmp_path / "outside")
    (tmp_path / "work/package/urdf/loop.stl").symlink_to("loop.stl")
    (tmp_path / "work/package/urdf/inner.stl").symlink_to("../meshes/own.stl")
    return tmp_path


def shapes_of(place: Path, filename: str):
    path = place / "work" / "package" / "urdf" / "robot.urdf"
    path.write_text(
        '<robot name="r"><link name="a"/><link name="b"><inertial><mass value="1"/>'
        '<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial><visual><geometry>'
        f'<mesh filename="{filename}"/></geometry></visual></link>'
        '<joint name="j" type="continuous"><parent link="a"/><child link="b"/></joint></robot>'
    )
    return urdf_shapes(soa.load_urdf(path), path)


@pytest.mark.parametrize(
    "filename",
    [
        "own.stl",
        "inner.stl",
        "../urdf/own.stl",
        "../meshes/own.stl",
        "package://package/meshes/own.stl",
        "package://package/urdf/../meshes/own.stl",
        "package://renamed/meshes/own.stl",
        "file://{place}/work/package/meshes/own.stl",
        "{place}/work/package/meshes/own.stl",
    ],
)
def test_inside(place: Path, filename: str):
    (shape,) = shapes_of(place, filename.format(place=place))
    assert shape.mesh.vertices.shape == (3, 3)


OUTSIDE = "outside of the folders of this model"


@pytest.mark.parametrize(
    ("filename", "reason"),
    [
        ("../../../outside/secret.stl", OUTSIDE),
        ("{place}/outside/secret.stl", OUTSIDE),
        ("file://{place}/outside/secret.stl", OUTSIDE),
        ("file:///etc/passwd", OUTSIDE),
        ("link.stl", OUTSIDE),
        ("linked/secret.stl", OUTSIDE),
        ("../../other/only/own.stl", OUTSIDE),  # a folder beside, but no package of this name
        ("package://other/only/own.stl", "no such file"),
        ("package://package/../../outside/secret.stl", OUTSIDE),
        ("package://../outside/secret.stl", OUTSIDE),
        ("package:///{place}/outside/secret.stl", OUTSIDE),
        ("package://outside/secret.stl", "no such file"),
        ("loop.stl", "drawn with simple shapes"),
        ("http://example.invalid/own.stl", "only local files"),
        ("none.stl", "no such file"),
        ("a" * 5000 + ".stl", "drawn with simple shapes"),
    ],
)
def test_outside(place: Path, filename: str, reason: str):
    with pytest.warns(UserWarning, match=reason) as record:
        shapes = shapes_of(place, filename.format(place=place))
    assert len(str(record[0].message)) < 1000
    assert all(shape.mesh.vertices.shape != (3, 3) for shape in shapes)


def test_packages_that_are_named_may_be_used(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROS_PACKAGE_PATH", f"{place / 'nowhere'}{os.pathsep}{place / 'work' / 'other'}")
    (shape,) = shapes_of(place, "package://other/only/own.stl")
    assert shape.mesh.vertices.shape == (3, 3)


def test_archives_and_large_files_are_no_meshes(place: Path, monkeypatch: pytest.MonkeyPatch):
    """A few kilobytes that unpack to more than a mesh may have."""
    folder = place / "work" / "package" / "urdf"
    packed = STL * 1000
    with zipfile.ZipFile(folder / "own.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("own.stl", packed)
    (folder / "own.stl.gz").write_bytes(gzip.compress(packed))
    (folder / "own.dae").write_bytes((folder / "own.zip").read_bytes())
    (folder / "bomb.dae").write_text('<!DOCTYPE x [<!ENTITY a "b">]><COLLADA>&a;</COLLADA>')
    for name, reason in (
        ("own.zip", "not one of"), ("own.stl.gz", "not one of"), ("own.dae", "archive"), ("bomb.dae", "entities"),
    ):  # fmt: skip
        with pytest.warns(UserWarning, match=reason):
            shapes_of(place, name)
    monkeypatch.setattr(visuals, "MAX_MESH_BYTES", 100)
    with pytest.warns(UserWarning, match="larger than 100 bytes"):
        shapes_of(place, "own.stl")


def test_materials_are_read_beside_their_mesh_and_nowhere_else(tmp_path):
    model, elsewhere = (tmp_path / name for name in ("model", "elsewhere"))
    triangle = "usemtl red\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 0 1\nf 1/1 2/2 3/3\n"
    colors = []
    for folder in (model, elsewhere):
        folder.mkdir()
        (folder / "red.mtl").write_text("newmtl red\nKd 1.0 0.0 0.0\n")
        (model / "part.obj").write_text(f"mtllib {folder}/red.mtl\n{triangle}")
        ((_, color, _),) = visuals._read_mesh(model / "part.obj", model, np.ones(3))
        colors.append(color)
    assert colors[0] == (255, 0, 0) != colors[1]
