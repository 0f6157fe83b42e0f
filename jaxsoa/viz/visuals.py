"""The `<visual>` elements of a URDF file as shapes: boxes, cylinders, spheres, and meshes whose files are found.

Mesh files are read by trimesh (extra `viz`), from the local disk only. A link whose meshes cannot be had is drawn
with the primitive shapes of `shapes.primitive_shapes`, and one warning names what was missing.
"""

from __future__ import annotations

import io
import os
import warnings
import zipfile
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from jaxsoa.io._xml import read_xml
from jaxsoa.io.urdf import _drop_namespace, _length, _origin, _vector
from jaxsoa.model.description import ModelError, abbreviated, plain
from jaxsoa.model.multibody import Multibody
from jaxsoa.viz.meshes import Mesh, box, cylinder, sphere
from jaxsoa.viz.shapes import BASE_COLOR, Color, Shape, primitive_shapes

#: Documented limit, of a mesh file and of what it refers to.
MAX_MESH_BYTES = 64 * 2**20
#: What is read: formats that cannot be archives, which unpack to more than they seem.
FORMATS = (".stl", ".obj", ".dae", ".ply", ".off", ".glb", ".gltf")


def urdf_shapes(robot: Multibody, source: str | os.PathLike[str]) -> tuple[Shape, ...]:
    """Shapes of the robot from the URDF file (or XML text) it was loaded from.

    Mesh files must lie in the folder of the file, in the package that holds it (the nearest folder above with a
    package.xml), or in one of `ROS_PACKAGE_PATH`, whatever their paths say; others are refused, behind links too.
    `package://name/rest` is looked for as `rest` in the packages of that name, and in those that hold the file. Links
    without `<visual>` stay invisible, unless the whole file has none.

    >>> soa.save_urdf(robot, "pendulum.urdf")
    >>> print(len(soa.viz.urdf_shapes(robot, "pendulum.urdf")) > 2)
    True
    """
    root, file = read_xml(source)
    _drop_namespace(root, file)
    folder = Path(file).resolve().parent if Path(file).exists() else Path.cwd()
    materials = {m.get("name", ""): _material(m, {}) for m in root.findall("material")}
    shapes: list[Shape] = []
    missing: list[str] = []
    undrawn: set[int] = set()
    for element in root.findall("link"):
        name = element.get("name", "")
        if name not in robot.frame_names:
            raise ModelError(f"{file}: robot {robot.name!r} has no link {name!r}; was it loaded from this file?")
        number = robot.frame_names.index(name)
        link = robot.topology.frame_links[number]
        link_R, link_p = (np.asarray(x[number], float) for x in (robot.frame_rotation, robot.frame_position))
        for visual in element.findall("visual"):
            R, p = _origin(visual, f"{file}: link {name!r}")
            color = _material(visual.find("material"), materials)
            try:
                meshes = _geometry(visual, folder, f"{file}: link {name!r}")
            except _CannotRead as fault:
                missing.append(str(fault))
                undrawn.add(link)
                continue
            for mesh, own_color, smooth in meshes:
                placed = mesh.moved(R, p).moved(link_R, link_p)
                shapes.append(Shape(link, placed, color or own_color or BASE_COLOR, smooth))
    if missing:
        message = f"{file}: drawn with simple shapes instead of {abbreviated(sorted(set(missing)), 3)}."
        warnings.warn(plain(message), UserWarning, stacklevel=2)
    if not shapes:
        return primitive_shapes(robot)
    drawn = {shape.link for shape in shapes}
    return (*shapes, *(shape for shape in primitive_shapes(robot) if shape.link in undrawn - drawn))


class _CannotRead(Exception):
    pass


def _geometry(visual: Element, folder: Path, where: str) -> list[tuple[Mesh, Color | None, bool]]:
    geometry = visual.find("geometry")
    body = None if geometry is None or not len(geometry) else geometry[0]
    if body is None:
        raise _CannotRead(f"an empty <geometry> ({where})")
    match body.tag:
        case "box":
            return [(box(_vector(body, "size", np.ones(3), where)), None, True)]
        case "sphere":
            return [(sphere(_length(body, "radius", where)), None, True)]
        case "cylinder":
            return [(cylinder(_length(body, "radius", where), _length(body, "length", where)), None, True)]
        case "mesh":
            path, root = find_mesh(body.get("filename", ""), folder)
            return _read_mesh(path, root, _vector(body, "scale", np.ones(3), where))
    raise _CannotRead(f"<{body.tag}> ({where})")


def mesh_roots(folder: Path) -> list[Path]:
    """Where the mesh files of a URDF file in `folder` may lie."""
    folder = folder.resolve()
    packages = [above for above in (folder, *folder.parents) if (above / "package.xml").is_file()]
    given = [Path(entry).resolve() for entry in os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep) if entry]
    return [folder, *packages[:1], *given]


def find_mesh(name: str, folder: Path) -> tuple[Path, Path]:
    """The file that a URDF `filename` means, for a URDF file in `folder`, and the root that it lies in."""
    shown, roots, folder = name[:200], mesh_roots(folder), folder.resolve()
    if "://" not in name:
        candidates = [folder / name]
    elif name.startswith("file://"):
        candidates = [Path(name.removeprefix("file://"))]
    elif name.startswith("package://"):
        package, _, rest = name.removeprefix("package://").partition("/")
        around = [above / package for root in roots for above in (root, root.parent)]
        around = [place for place in around if (place / "package.xml").is_file()]
        around += [above for above in (folder, *folder.parents) if above.name == package]
        roots = [*roots, *(place.resolve() for place in around if package not in ("", ".", ".."))]
        candidates = [root / way for root in roots for way in (rest, f"{package}/{rest}")]
    else:
        raise _CannotRead(f"{shown} (only local files are read)")
    outside = False
    for candidate in candidates:
        try:
            real = candidate.resolve()
            root = next((root for root in roots if real.is_relative_to(root)), None)
            if root is not None and real.is_file():
                return real, root
        except (OSError, ValueError, RuntimeError):  # names that no file can have, links that lead to themselves
            continue
        outside |= root is None
    raise _CannotRead(f"{shown} ({'outside of the folders of this model' if outside else 'no such file'})")


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_MESH_BYTES + 1)
    if len(content) > MAX_MESH_BYTES:
        raise _CannotRead(f"{path.name} (larger than {MAX_MESH_BYTES} bytes)")
    return content


def _read_mesh(path: Path, root: Path, scale: np.ndarray) -> list[tuple[Mesh, Color | None, bool]]:
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise _CannotRead(f"{path.name} (not one of {', '.join(FORMATS)})")
    content = _bytes_of(path)
    if zipfile.is_zipfile(io.BytesIO(content)):
        raise _CannotRead(f"{path.name} (an archive)")
    try:
        import trimesh
        from trimesh.resolvers import Resolver
    except ImportError:
        raise _CannotRead(f"{path.name} (meshes need trimesh: pip install 'jaxsoa[viz]')") from None

    class Beside(Resolver):
        """Materials and textures that a mesh file refers to: from the same root only."""

        def __init__(self):
            pass

        def get(self, name: str) -> bytes:
            real = (path.parent / name.strip()).resolve()
            if not real.is_relative_to(root) or not real.is_file():
                raise FileNotFoundError(name)
            return _bytes_of(real)

        def keys(self):
            return []

        def namespaced(self, namespace: str):
            return self

        def write(self, name: str, data: bytes):
            raise PermissionError(name)

    try:
        if suffix == ".dae":
            read_xml(path)  # refuses entities, and more elements than there can be
        scene = trimesh.load_scene(io.BytesIO(content), file_type=suffix[1:], resolver=Beside())
        parts = [part for part in scene.dump() if isinstance(part, trimesh.Trimesh) and len(part.faces)]
    except Exception as fault:  # trimesh raises whatever its many readers raise
        raise _CannotRead(f"{path.name} ({type(fault).__name__}: {str(fault)[:200]})".replace("\n", " ")) from fault
    if not parts:
        raise _CannotRead(f"{path.name} (no triangles)")
    meshes = (Mesh(np.asarray(part.vertices) * scale, np.asarray(part.faces)) for part in parts)
    return [(mesh, _mesh_color(part), False) for mesh, part in zip(meshes, parts, strict=True)]


def _mesh_color(part) -> Color | None:
    """The mesh file's own colour, if it says one."""
    color = getattr(getattr(part.visual, "material", None), "main_color", None)
    if color is None or not getattr(part.visual, "defined", False):
        return None
    return tuple(int(c) for c in np.asarray(color)[:3])  # pyright: ignore[reportReturnType]


def _material(element: Element | None, known: dict[str, Color | None]) -> Color | None:
    """The colour of a `<material>`, given in place or by the name of one defined for the whole robot."""
    if element is None:
        return None
    color = element.find("color")
    try:
        words = [] if color is None else [float(word) for word in color.get("rgba", "").split()]
    except ValueError:
        words = []
    if len(words) < 3 or not np.isfinite(words).all():
        return known.get(element.get("name", ""))
    red, green, blue = (round(255 * min(max(x, 0.0), 1.0)) for x in words[:3])
    return red, green, blue
