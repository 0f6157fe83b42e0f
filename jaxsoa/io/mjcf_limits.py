"""Is an MJCF file small enough for MuJoCo's compiler? Looked at before, since the compiler itself has no limits.

A line of XML can ask for a texture of gigabytes or a hundred million bodies, and the compiler then ends the process or
never comes back. So what multiplies is counted here: in the file, and in those that it includes.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree.ElementTree import Element

from jaxsoa.io._xml import read_xml
from jaxsoa.model.description import ModelError

#: Documented limits. MuJoCo's time grows with the square of the bodies: that many take it some ten seconds.
MAX_BODIES = 4000
#: Of elements after replication, and of files that belong to one model.
MAX_PARTS, MAX_FILES = 50_000, 500
#: Pixels of all textures together (a cube has six sides), and points of all height fields.
MAX_PIXELS, MAX_POINTS = 2**26, 2**24
#: Of other counts: keyframes, user data, entries of custom numbers, vertices of meshes that are made.
MAX_KEYS, MAX_COUNT = 10_000, 1_000_000

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def check_size(root: Element, name: str, assets: Mapping[str, bytes] | None, folder: Path) -> None:
    """A `ModelError` unless the model of this root element, with its files in `folder`, is within the limits."""
    _Counter(name, assets or {}, folder).check(root)


class _Counter:
    def __init__(self, name: str, assets: Mapping[str, bytes], folder: Path):
        self.name, self.assets, self.folder = name, assets, folder
        self.files = self.bodies = self.parts = self.pixels = self.points = 0.0
        self.folders = {folder, Path()}

    def check(self, root: Element) -> None:
        elements = list(self._with_included(root, 1.0, 0))
        for element, _ in elements:
            if element.tag == "compiler":
                self.folders |= {self.folder / element.get(key, "") for key in ("meshdir", "texturedir", "assetdir")}
        for element, times in elements:
            self.parts += times
            self.bodies += times * (element.tag == "body")
            self._element(element)
            for what, count, most in (
                ("bodies", self.bodies, MAX_BODIES),
                ("elements", self.parts, MAX_PARTS if times > 1 else math.inf),
                ("pixels of textures", self.pixels, MAX_PIXELS),
                ("points of height fields", self.points, MAX_POINTS),
            ):
                if not count <= most:
                    raise ModelError(f"{self.name}: the model has {count:.0f} {what} or more; the limit is {most:g}.")

    def _with_included(self, element: Element, times: float, depth: int) -> Iterator[tuple[Element, float]]:
        """Elements, those of included files too, each with how many times replication makes it."""
        if depth > 100:
            raise ModelError(f"{self.name}: files include one another without end, or elements are nested too deep.")
        if element.tag == "replicate":
            times *= max(self._numbers(element, "count"), default=1.0)
        yield element, times
        # A model that is attached counts where it is read; one is rarely attached more often than that.
        if element.tag == "include" or (element.tag == "model" and element.get("file")):
            yield from self._with_included(self._included(element.get("file", "")), times, depth + 1)
        for child in element:
            yield from self._with_included(child, times, depth + 1)

    def _included(self, file: str) -> Element:
        self.files += 1
        if self.files > MAX_FILES:
            raise ModelError(f"{self.name}: the model is made of more than {MAX_FILES} files.")
        for key, content in self.assets.items():
            if os.path.basename(key) == os.path.basename(file):
                text = content.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
                return read_xml(text if text.startswith("<") else f"<{text[:100]}")[0]
        places = [folder / file for folder in self.folders]
        found = next((place for place in places if place.exists()), places[0])
        self.folders.add(found.parent)
        return read_xml(found)[0]

    def _element(self, element: Element) -> None:
        match element.tag:
            case "texture":
                sides = 1 if element.get("type") == "2d" else 6
                width, height = (max(self._numbers(element, key), default=1.0) for key in ("width", "height"))
                self.pixels += width * max(height, 1.0) * sides
                self._file(element)
            case "hfield":
                rows, columns = (max(self._numbers(element, key), default=1.0) for key in ("nrow", "ncol"))
                self.points += rows * columns
                self._file(element)
            case "mesh" if element.get("builtin"):
                self._bounded(element, "params", 1000)
            case "mesh" | "skin" | "flexcomp":
                self._file(element)
                if element.tag == "flexcomp":
                    counts = self._numbers(element, "count")
                    self.bodies += math.prod(counts) if counts else 0.0
            case "composite":
                self.bodies += math.prod(self._numbers(element, "count") or [1.0])
            case "size":
                for key in element.attrib:
                    if key not in ("memory", "nstack"):  # of simulations, which are not MuJoCo's here
                        of_simulations = key in ("nuserdata", "njmax", "nconmax")
                        self._bounded(element, key, MAX_COUNT if of_simulations else MAX_KEYS)
            case "numeric" | "user" | "general" | "plugin" | "contact" | "rangefinder":
                for key in ("size", "dim", "actdim", "num", "nsample"):
                    self._bounded(element, key, MAX_COUNT)

    def _file(self, element: Element) -> None:
        """A file that the compiler opens: no device, and no picture that unpacks to more than its size tells."""
        for key in ("file", "fileright", "fileleft", "fileup", "filedown", "filefront", "fileback"):
            file = element.get(key)
            if not file:
                continue
            if len(file) > 4000 or "\0" in file:
                raise ModelError(f"{self.name}: <{element.tag}> names a file of {len(file)} characters.")
            last = os.path.basename(file)
            heads = [data[:32] for name, data in self.assets.items() if os.path.basename(name) == last]
            for place in (folder / file for folder in self.folders):
                if place.exists() and not place.is_file():
                    raise ModelError(f"{self.name}: <{element.tag} {key}={file!r}> is no regular file.")
                if place.is_file():
                    with place.open("rb") as content:
                        heads.append(content.read(32))
            for head in heads[:1]:
                if head.startswith(b"\x89PNG") and len(head) >= 24:
                    width, height = struct.unpack(">II", head[16:24])
                    self.pixels += width * height
                elif element.tag == "hfield" and len(head) >= 8:
                    rows, columns = struct.unpack("<ii", head[:8])
                    self.points += abs(rows * columns)

    def _numbers(self, element: Element, key: str) -> list[float]:
        return [abs(float(word)) for word in _NUMBER.findall(element.get(key, ""))]

    def _bounded(self, element: Element, key: str, most: int) -> None:
        if max(self._numbers(element, key), default=0.0) > most:
            shown = element.get(key, "")[:40]
            raise ModelError(f"{self.name}: <{element.tag} {key}={shown!r}> is beyond the limit of {most}.")
