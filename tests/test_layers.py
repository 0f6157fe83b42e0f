"""The house, read from the source: imports lead downward, files are short, a joint kind is known to its class alone."""

from __future__ import annotations

import ast
import copy
from functools import cache
from pathlib import Path

from jaxsoa.model.joints import JOINT_KINDS

PACKAGE = Path(__file__).parents[1] / "jaxsoa"
SOURCES = sorted(PACKAGE.rglob("*.py"))

#: Lowest first. What stands on one storey may import one another and everything below.
STOREYS = """
spatial indexing sweep_plan mesh_axes caches exports protocols
sweeps parallel_sweeps cpu kernels eager
model
dynamics
models linearized
algebra
closed_chain
simulate
identify optimize
ik
io
contact
formulas viz
cli
""".split("\n")
HEIGHT = {part: height for height, parts in enumerate(STOREYS) for part in parts.split()}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The parts of the package that a file imports, inside functions too."""
    names = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("jaxsoa.")} - {"__version__"}


def test_every_part_has_its_storey():
    assert {part(path) for path in SOURCES} - {"__init__"} == set(HEIGHT)


def test_the_table_of_the_layers_names_every_part():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert not [name for name in HEIGHT if f"`jaxsoa/{name}.py`" not in text and f"`jaxsoa/{name}/`" not in text]


def test_files_are_short():
    assert not {path: lines for path in SOURCES if (lines := path.read_text(encoding="utf-8").count("\n")) > 400}


def test_imports_only_downward():
    upward = {
        str(path.relative_to(PACKAGE)): [other for other in imported(path) if HEIGHT[other] > HEIGHT[part(path)]]
        for path in SOURCES
        if part(path) != "__init__"
    }
    assert not {name: others for name, others in upward.items() if others}


def modules_imported(path: Path) -> set[str]:
    nodes = list(ast.walk(tree(path)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def test_private_and_moving_interfaces_of_jax_are_met_in_one_file():
    moving = ("jax._src", "jax.interpreters", "jax.extend", "jaxlib")
    met = {path for path in SOURCES for module in modules_imported(path) if f"{module}.".startswith(moving)}
    assert {str(path.relative_to(PACKAGE)) for path in met} == {"kernels/jax_interface.py"}


class Nameless(ast.NodeTransformer):
    """Local names as numbers, in order of appearance."""

    def __init__(self):
        self.numbers: dict[str, str] = {}

    def visit_Name(self, node):
        return ast.Name(self.numbers.setdefault(node.id, f"x{len(self.numbers)}"), node.ctx)

    def visit_arg(self, node):
        return ast.arg(self.numbers.setdefault(node.arg, f"x{len(self.numbers)}"))


def bodies_of_sweeps(path: Path) -> dict[str, str]:
    """What `gather` and `scatter` are given to do at a link, whatever its names, by its place."""
    found = {}
    for function in ast.walk(tree(path)):
        if isinstance(function, ast.FunctionDef):
            inner = {node.name: node for node in function.body if isinstance(node, ast.FunctionDef)}
            for call in ast.walk(function):
                sweep = isinstance(call, ast.Call) and ast.unparse(call.func) in ("gather", "scatter")
                body = inner.get(ast.unparse(call.args[1])) if sweep and len(call.args) > 1 else None
                if body is not None:
                    body = copy.deepcopy(body)
                    body.name = ""
                    found[f"{path.relative_to(PACKAGE)}, line {body.lineno}"] = ast.dump(Nameless().visit(body))
    return found


def test_no_recursion_is_written_twice():
    """The sweeps' bodies differ in more than names. (With arguments in another order they would pass; people look.)"""
    found = {place: body for path in SOURCES for place, body in bodies_of_sweeps(path).items()}
    twice = [place for place, body in found.items() if list(found.values()).count(body) > 1]
    assert len(found) >= 25 and not twice


def asked_by_name(path: Path) -> list[str]:
    """Comparisons with, and tables of, the names of joint kinds. ("free" is a word of its own as well.)"""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Compare | ast.Dict):
            words = {x.value for x in ast.walk(node) if isinstance(x, ast.Constant) and isinstance(x.value, str)}
            if (words & (set(JOINT_KINDS) - {"free"})) or ("free" in words and "kind" in ast.unparse(node)):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def test_nobody_asks_a_joint_for_its_name():
    allowed = {"model/joints.py", "optimize/tasks.py", "closed_chain/mechanisms.py"}  # these make robots
    asked = {str(p.relative_to(PACKAGE)): asked_by_name(p) for p in SOURCES if part(p) != "models"}
    assert not {name: found for name, found in asked.items() if found and name not in allowed}
