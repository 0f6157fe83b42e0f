"""The house, read from the source: imports go only downward, and only its class knows a joint kind by name."""

from __future__ import annotations

import ast
from pathlib import Path

from jaxsoa.model.joints import JOINT_KINDS

PACKAGE = Path(__file__).parents[1] / "jaxsoa"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}

#: Lowest first. What stands on one storey may import one another and everything below.
STOREYS = """
spatial indexing sweep_plan mesh_axes xla_flags caches exports protocols
sweeps parallel_sweeps one_kernel cpu kernels eager
batching
model
dynamics
models linearized
algebra
closed_chain
simulate
identify optimize
ik
io convert
contact
export c_sources formulas viz
cli
""".split("\n")
HEIGHT = {part: height for height, parts in enumerate(STOREYS) for part in parts.split()}


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The parts of the package that a file imports, inside functions too."""
    names = []
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("jaxsoa.")} - {"__version__"}


def test_every_part_has_its_storey():
    assert {part(path) for path in SOURCES} - {"__init__"} == set(HEIGHT)


def test_imports_only_downward():
    upward = {
        str(path.relative_to(PACKAGE)): [other for other in imported(path) if HEIGHT[other] > HEIGHT[part(path)]]
        for path in SOURCES
        if part(path) != "__init__"
    }
    assert not {name: others for name, others in upward.items() if others}


def asked_by_name(path: Path) -> list[str]:
    """Comparisons with, and tables of, the names of joint kinds. ("free" is a word of its own as well.)"""
    found = []
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Compare | ast.Dict):
            words = {x.value for x in ast.walk(node) if isinstance(x, ast.Constant) and isinstance(x.value, str)}
            if (words & (set(JOINT_KINDS) - {"free"})) or ("free" in words and "kind" in ast.unparse(node)):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def test_nobody_asks_a_joint_for_its_name():
    allowed = {"model/joints.py", "optimize/tasks.py", "closed_chain/mechanisms.py"}  # these make robots
    asked = {str(p.relative_to(PACKAGE)): asked_by_name(p) for p in SOURCES if part(p) != "models"}
    assert not {name: found for name, found in asked.items() if found and name not in allowed}
