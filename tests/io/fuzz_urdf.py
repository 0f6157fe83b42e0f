"""Mutate real URDF files and read them: a whole model or a `ModelError`, in bounded time and memory, always.

    python tests/io/fuzz_urdf.py --files 10000

prints how many mutated files were loaded and why the others were refused. It ends with an error, and keeps the file,
if reading one raised anything but `ModelError`, gave a model that lacks a part of the file, or took too long. Needs
`example-robot-data` (the extra `test`); without it the package's own robots are mutated.
"""

from __future__ import annotations

import argparse
import copy
import importlib.metadata
import math
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import jax
import numpy as np

import jaxsoa as soa

jax.config.update("jax_enable_x64", True)

#: Seconds of processor time that one file may take, and bytes that the whole run may need beyond what it starts with.
TIME_LIMIT = 10.0
MEMORY_LIMIT = 500 * 2**20
#: Larger files are left out: a mutation changes a few places, and most of the time would go into the rest.
MAX_SOURCE_BYTES = 30_000

NUMBERS = [
    *("nan", "NaN", "inf", "-inf", "Infinity", "1e999", "-1e999", "1e308", "-1e308", "1.8e308", "1e-320", "5e-324"),
    *("0", "-0", "-1", "1e16", "9" * 400, "0." + "0" * 400 + "1", "", " ", "abc", "1,5", "${x}", "$(arg y)", "0x10"),
    *("1_000", "1.2.3", "--1", "1e", "+", "٣", "1 2", "1 2 3 4", "\t1\n", "true", "None", "1e5000", "-.5e+3"),
]
WORDS = ["", " ", "a", "world", "base_link", "../../x", "x" * 10_000, "ü", "\u202e", "None", "0", "&amp;", "<", "'"]
TYPES = ["revolute", "continuous", "prismatic", "planar", "floating", "fixed", "ball", "", "REVOLUTE", "helical"]


def source_files() -> list[bytes]:
    """What is mutated: the smaller robots of example-robot-data, or our own written as URDF."""
    try:
        files = importlib.metadata.files("example-robot-data") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    contents = [Path(str(f.locate())).read_bytes() for f in sorted(files) if f.suffix == ".urdf"]
    contents = [content for content in contents if 200 < len(content) <= MAX_SOURCE_BYTES]
    if contents:
        return contents
    with tempfile.TemporaryDirectory() as folder:
        for number, robot in enumerate((soa.models.puma560(), soa.models.pendulum(4), soa.models.cart_pole())):
            soa.save_urdf(robot, Path(folder) / str(number), validate="off")
        return [path.read_bytes() for path in sorted(Path(folder).iterdir())]


# Mutations -------------------------------------------------------------------------------------------------------
# Each takes the content and a source of chance, and returns changed content. Those of trees and attributes need the
# content to be XML still; where it is not, they leave it as it is.


def flip_bytes(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def insert_bytes(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    junk = (b"\0", b"]]>", b"<!--", b"<?x ?>", b"&#0;", b"&x;", chance.randbytes(chance.randrange(1, 50)))
    return content[:at] + chance.choice(junk) + content[at:]


def delete_slice(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + content[at + chance.choice((1, 3, 30, 300, 3000)) :]


def truncate(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def repeat_slice(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    piece = content[at : at + chance.choice((10, 100, 1000))]
    return content[:at] + piece * chance.choice((2, 3, 20)) + content[at:]


def re_encode(content: bytes, chance: random.Random) -> bytes:
    text = content.decode("utf-8", "replace")
    name = chance.choice(("utf-16", "utf-32", "latin-1", "utf-7", "utf-8-sig", "cp037"))
    declared = chance.choice((name, "utf-8", "klingon", "ascii"))
    text = re.sub(r"<\?xml[^>]*\?>", f'<?xml version="1.0" encoding="{declared}"?>', text)
    return text.encode(name, "replace")


def declare_entities(content: bytes, chance: random.Random) -> bytes:
    body = re.sub(rb"<\?xml[^>]*\?>", b"", content)
    levels = "".join(f'<!ENTITY e{k + 1} "{f"&e{k};" * 10}">' for k in range(chance.choice((1, 9))))
    bomb = f'<!DOCTYPE robot [<!ENTITY e0 "boom">{levels}]>'
    outside = '<!DOCTYPE robot [<!ENTITY e1 SYSTEM "file:///etc/hostname">]>'
    remote = '<!DOCTYPE robot SYSTEM "http://localhost:9/x.dtd">'
    body = body.replace(b"name=", b'name="&e1;" x=', 1) if chance.random() < 0.5 else body
    return chance.choice((bomb, outside, remote, "<!DOCTYPE robot>")).encode() + body


def nest_deeply(content: bytes, chance: random.Random) -> bytes:
    depth = chance.choice((50, 200, 20_000))
    return content.replace(b"</robot>", b"<a>" * depth + b"</a>" * depth + b"</robot>")


def add_many(content: bytes, chance: random.Random) -> bytes:
    piece = chance.choice((b'<link name="l%d"/>', b'<joint name="j%d" type="fixed"/>', b"<gazebo>%d</gazebo>"))
    pieces = b"".join(piece % k for k in range(chance.choice((20, 500))))
    return content.replace(b"</robot>", pieces + b"</robot>")


def on_tree(change: Callable[[Element, random.Random], None]) -> Callable[[bytes, random.Random], bytes]:
    """A mutation of the element tree."""

    def mutate(content: bytes, chance: random.Random) -> bytes:
        if b"<!DOCTYPE" in content:
            return content  # this parser would expand entities
        try:
            root = ElementTree.fromstring(content)
            change(root, chance)
            return ElementTree.tostring(root, encoding="utf-8")
        except (ElementTree.ParseError, ValueError, LookupError, RecursionError):
            return content

    mutate.__name__ = change.__name__
    return mutate


def _pick(root: Element, chance: random.Random, tags: str = "") -> Element:
    elements = [e for e in root.iter() if not tags or e.tag in tags.split()]
    return chance.choice(elements or [root])


@on_tree
def change_number(root: Element, chance: random.Random) -> None:
    element = _pick(root, chance, "mass inertia origin axis limit dynamics mimic")
    if element.attrib:
        key = chance.choice(sorted(element.attrib))
        words = element.attrib[key].split() or [""]
        words[chance.randrange(len(words))] = chance.choice(NUMBERS)
        element.attrib[key] = " ".join(words)


@on_tree
def change_attribute(root: Element, chance: random.Random) -> None:
    element = _pick(root, chance)
    if element.attrib:
        key = chance.choice(sorted(element.attrib))
        action = chance.randrange(4)
        if action == 0:
            del element.attrib[key]
        elif action == 1:
            element.attrib[key] = chance.choice(WORDS)
        elif action == 2:
            element.attrib[key + "x"] = element.attrib.pop(key)
        else:
            other = _pick(root, chance)
            element.attrib[key] = chance.choice(sorted(other.attrib.values()) or [""])


@on_tree
def change_type(root: Element, chance: random.Random) -> None:
    joint = _pick(root, chance, "joint")
    joint.set("type", chance.choice(TYPES))


@on_tree
def rename(root: Element, chance: random.Random) -> None:
    one, other = (_pick(root, chance, "link joint") for _ in range(2))
    one.set("name", other.get("name", ""))


@on_tree
def reconnect(root: Element, chance: random.Random) -> None:
    names = [link.get("name", "") for link in root.findall("link")] or [""]
    _pick(root, chance, "parent child").set("link", chance.choice(names))


@on_tree
def remove_element(root: Element, chance: random.Random) -> None:
    parent = _pick(root, chance)
    if len(parent):
        parent.remove(chance.choice(list(parent)))


@on_tree
def copy_element(root: Element, chance: random.Random) -> None:
    tags = "link joint inertial mass inertia origin axis limit parent child"
    _pick(root, chance).insert(0, copy.deepcopy(_pick(root, chance, tags)))


@on_tree
def shuffle_elements(root: Element, chance: random.Random) -> None:
    children = list(root)
    chance.shuffle(children)
    root[:] = children


@on_tree
def add_mimic(root: Element, chance: random.Random) -> None:
    names = [joint.get("name", "") for joint in root.findall("joint")] or [""]
    numbers = {key: chance.choice(NUMBERS) for key in ("multiplier", "offset") if chance.random() < 0.3}
    ElementTree.SubElement(_pick(root, chance, "joint"), "mimic", {"joint": chance.choice(names), **numbers})


@on_tree
def rename_tag(root: Element, chance: random.Random) -> None:
    tags = ("link", "joint", "robot", "mass", "{http://www.ros.org/wiki/xacro}macro", "{x}link", "origin")
    _pick(root, chance).tag = chance.choice(tags)


MUTATIONS = [
    *(flip_bytes, insert_bytes, delete_slice, truncate, repeat_slice, re_encode, declare_entities, nest_deeply),
    *(change_attribute, change_type, rename, reconnect, remove_element, copy_element, shuffle_elements, add_mimic),
    *(change_number, change_number, change_number, rename_tag, add_many),
]


def mutated(sources: list[bytes], seed: int, number: int) -> tuple[bytes, str]:
    """File `number` of the run, and how it was made."""
    chance = random.Random(f"{seed}/{number}")
    content = chance.choice(sources)
    steps = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        mutate = chance.choice(MUTATIONS)
        content = mutate(content, chance) or b" "
        steps.append(mutate.__name__)
    return content, " + ".join(steps)


# Reading ---------------------------------------------------------------------------------------------------------


class Failure(AssertionError):
    """A file was read to something that it does not say."""


def read(path: Path, *, floating_base: bool) -> str:
    """What became of a file: "loaded", or the reason why not; anything but that raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an overflow on the way is a failure too
        warnings.simplefilter("ignore", soa.ModelWarning)
        try:
            robot = soa.load_urdf(path, floating_base=floating_base)
        except soa.ModelError as error:
            if len(str(error)) > 5000:
                raise Failure(f"a message of {len(str(error))} characters") from error
            return "refused: " + _gist(str(error), str(path))
    check_whole(robot, path, floating_base)
    return "loaded"


def check_whole(robot: soa.Multibody, path: Path, floating_base: bool) -> None:
    """The model has every link and every joint of the file, all its mass, and finite numbers."""
    root = ElementTree.parse(path).getroot()
    namespace = root.tag.rpartition("}")[0]
    prefix = namespace + "}" if namespace else ""
    links, joints = root.findall(prefix + "link"), root.findall(prefix + "joint")
    if root.tag != prefix + "robot":
        raise Failure(f"the root is <{root.tag}>")
    moving = [j for j in joints if j.get("type") != "fixed"]
    expected = {str(j.get("name")) for j in moving} | ({"floating_base"} if floating_base else set())
    if set(robot.joint_names) != expected or len(robot.joint_names) != len(moving) + floating_base:
        raise Failure(f"joints {sorted(expected ^ set(robot.joint_names))} are missing or added")
    missing = {str(link.get("name")) for link in links} - set(robot.frame_names)
    if missing:
        raise Failure(f"links {sorted(missing)} are missing")
    ends = {str(j.find(prefix + "child").get("link")): j for j in joints}  # pyright: ignore[reportOptionalMemberAccess]
    mass = 0.0
    for link in links:
        value = link.find(f"{prefix}inertial/{prefix}mass")
        name = str(link.get("name"))
        while name in ends and ends[name].get("type") == "fixed":  # what holds this link
            name = str(ends[name].find(prefix + "parent").get("link"))  # pyright: ignore[reportOptionalMemberAccess]
        if value is not None and (name in ends or floating_base):
            mass += float(str(value.get("value")))
    if not math.isclose(float(np.sum(robot.mass)), mass, rel_tol=1e-5, abs_tol=1e-9):
        raise Failure(f"the mass is {float(np.sum(robot.mass))}, but the file says {mass}")
    for key in ("mass", "com", "inertia", "joint_rotation", "joint_position", "axis", "axis2", "damping", "friction"):
        if not np.isfinite(getattr(robot, key)).all():
            raise Failure(f"{key} is not finite")
    if any(np.isnan(leaf).any() for leaf in jax.tree.leaves(robot.limits)):
        raise Failure("a limit is not a number")


def _gist(message: str, path: str) -> str:
    """A message without the names and numbers of the file that caused it."""
    text = message.replace(path, "").lstrip(":, ")
    text = re.sub(r"^line \d+: ", "", text)
    text = re.sub(r"'(?:[^'\\]|\\.)*'|\"[^\"]*\"", "_", text)
    text = re.sub(r"\[.*?\]|\((?:[^()]|\([^()]*\))*\)|<[^>]*>", "_", text, flags=re.S)
    text = re.sub(r"-?\d[\d.e+-]*", "#", text)
    return re.split(r"[.;?] |\.$", text)[0][:70].strip()


class TooLong(BaseException):
    """Not an `Exception`, so that no handler on the way takes it for something else."""


def _interrupt(signum, frame):
    raise TooLong


def fuzz(
    files: int, *, seed: int = 0, keep: Path | None = None, show: Callable[[int], None] = lambda done: None
) -> tuple[Counter[str], list[str], float]:
    """Read `files` mutated files: the tally of what became of them, failures, and the longest time that one took."""
    sources = source_files()
    tally: Counter[str] = Counter()
    failures: list[str] = []
    longest = 0.0
    previous = signal.signal(signal.SIGVTALRM, _interrupt)  # processor time: a busy machine is no failure
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "mutated.urdf"
            for number in range(files):
                content, steps = mutated(sources, seed, number)
                path.write_bytes(content)
                start = time.process_time()
                signal.setitimer(signal.ITIMER_VIRTUAL, TIME_LIMIT)
                try:
                    tally[read(path, floating_base=number % 3 == 0)] += 1
                except (Exception, TooLong):
                    failures.append(f"file {number} of seed {seed} ({steps}):\n{traceback.format_exc()[-3000:]}")
                    tally["FAILED"] += 1
                    if keep is not None:
                        keep.mkdir(parents=True, exist_ok=True)
                        (keep / f"{seed}-{number}.urdf").write_bytes(content)
                finally:
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                longest = max(longest, time.process_time() - start)
                show(number + 1)
    finally:
        signal.signal(signal.SIGVTALRM, previous)
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * (1 if sys.platform == "darwin" else 1024)
    if used > MEMORY_LIMIT:
        failures.append(f"reading took {used / 2**20:.0f} MB more than before")
    return tally, failures, longest


def report(tally: Counter[str], failures: list[str], longest: float, seconds: float) -> str:
    files = tally.total()
    lines = [f"{files} mutated files in {seconds:.1f} s ({1000 * seconds / max(files, 1):.1f} ms each, at most"]
    lines[0] += f" {1000 * longest:.0f} ms of processor time): {tally['loaded']} loaded, {tally['FAILED']} failed"
    refused = Counter({key: count for key, count in tally.items() if key.startswith("refused")})
    lines.append(
        f"{refused.total()} refused with a ModelError, for {len(refused)} kinds of reasons; the most frequent:"
    )
    lines += [f"{count:7d}  {reason.removeprefix('refused: ')}" for reason, count in refused.most_common(25)]
    return "\n".join([*lines, *failures])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="where files that fail are kept")
    options = parser.parse_args()

    def show(done: int) -> None:
        if sys.stderr.isatty() and (done % 20 == 0 or done == options.files):
            filled = round(40 * done / options.files)
            bar = f"\rreading [{'#' * filled}{'.' * (40 - filled)}] {done}/{options.files}"
            print(bar, end="\n" if done == options.files else "", file=sys.stderr, flush=True)

    start = time.perf_counter()
    tally, failures, longest = fuzz(options.files, seed=options.seed, keep=options.keep, show=show)
    print(report(tally, failures, longest, time.perf_counter() - start))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
