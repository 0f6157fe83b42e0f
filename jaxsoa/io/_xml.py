"""Untrusted XML to an element tree: bounded in size, depth and count, with no DTD, no entities and no recovery."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from jaxsoa.model.description import ModelError

#: Documented limits. The largest robot files in circulation are below 1 MiB, 12 levels and 5,000 elements.
MAX_BYTES = 64 * 2**20
MAX_DEPTH = 100
MAX_ELEMENTS = 1_000_000

#: How `RobotDescription.source` and error messages call a model that was handed over as text.
TEXT_SOURCE = "<XML text>"


def read_xml(source: str | os.PathLike[str], most: Mapping[str, int] | None = None) -> tuple[Element, str]:
    """The root element of `source`, and the name by which error messages call it.

    `source` is a path, or XML text: a string whose first visible character is `<`. `most`: how many elements of a tag
    the root may hold; reading ends at one more.
    """
    content, name, skipped_lines = _content_of(source)
    if len(content) > MAX_BYTES:
        raise ModelError(f"{name}: the file is larger than the limit of {MAX_BYTES} bytes.")
    if not content.strip():
        raise ModelError(f"{name}, line 1: the file is empty; a robot description was expected.")
    parser = DefusedXMLParser(target=_BoundedTreeBuilder(name, most or {}), forbid_dtd=True)
    try:
        parser.feed(content)
        return parser.close(), name
    except DefusedXmlException as error:
        raise ModelError(
            f"{name}: document type declarations and entities are refused ({type(error).__name__}). "
            "Remove the <!DOCTYPE ...> declaration; robot files have no use for it."
        ) from error
    except ParseError as error:
        line = error.position[0] + skipped_lines
        reason = str(error).split(":")[0]
        raise ModelError(f"{name}, line {line}: the XML is malformed ({reason}); nothing was read.") from error
    except ModelError:
        raise
    except (ValueError, LookupError) as error:  # an encoding that the parser or the text cannot handle
        raise ModelError(f"{name}: the text cannot be decoded ({error}). Save the file as UTF-8.") from error


def _content_of(source: str | os.PathLike[str]) -> tuple[str | bytes, str, int]:
    """What to parse, what to call it, and how many lines were dropped before the first `<`."""
    if isinstance(source, str):
        # Text pasted between triple quotes starts with a newline, which XML forbids before its declaration.
        text = source.lstrip("\ufeff \t\r\n")
        if text.startswith("<"):
            return text, TEXT_SOURCE, source[: len(source) - len(text)].count("\n")
        if not text:
            raise ModelError("The source is an empty string; give a path or XML text.")
    elif not isinstance(source, os.PathLike):
        raise ModelError(f"The source must be a path or XML text, but it is of type {type(source).__name__}.")
    name = os.fsdecode(source)
    try:
        with Path(name).open("rb") as file:
            # One byte more than allowed tells an oversized file, or an endless device, without reading all of it.
            return file.read(MAX_BYTES + 1), name, 0
    except (OSError, ValueError) as error:
        shown = name if len(name) <= 200 else name[:200] + "..."
        reason = getattr(error, "strerror", None) or error
        raise ModelError(
            f"{shown!r} cannot be read ({reason}). Give the path of a file, or XML text starting with '<'."
        ) from error


class _BoundedTreeBuilder(TreeBuilder):
    """Builds the tree, and stops as soon as a hostile file nests too deep or holds too many elements."""

    def __init__(self, name: str, most: Mapping[str, int]):
        super().__init__()
        self._name, self._most = name, most
        self._found = dict.fromkeys(most, 0)
        self._depth = 0
        self._count = 0

    def start(self, tag, attrs, /):
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH:
            raise ModelError(f"{self._name}: elements are nested deeper than the limit of {MAX_DEPTH} levels.")
        if self._count > MAX_ELEMENTS:
            raise ModelError(f"{self._name}: the file holds more than the limit of {MAX_ELEMENTS} elements.")
        word = tag.rpartition("}")[2]
        if self._depth == 2 and word in self._most:
            self._found[word] += 1
            if self._found[word] > self._most[word]:
                raise ModelError(f"{self._name}: the robot has more {word}s than the limit of {self._most[word]}.")
        return super().start(tag, attrs)

    def end(self, tag, /):
        self._depth -= 1
        return super().end(tag)
