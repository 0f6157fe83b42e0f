"""What is measured: one `Case` is a robot, an operation, a batch size and a precision; a grid is a list of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import product

OPERATIONS = (
    "inverse_dynamics",
    "forward_dynamics",
    "mass_matrix",
    "linearization",
    "perturbation",
    "gradient",
    "rollout",
    "scan",  # the same steps of one state, in a loop of the user's own
)
SIMULATED = ("rollout", "scan")
BATCHES = (1, 64, 1024, 4096, 16384)
DTYPES = ("float64", "float32")
CHAINS = (8, 16, 64, 256, 512, 1024, 4096)
ROBOTS = ("arm", "quadruped", "humanoid", *(f"chain-{n}" for n in CHAINS))
ROLLOUT_STEPS, ROLLOUT_DT = 1000, 1e-3


@dataclass(frozen=True)
class Case:
    robot: str
    operation: str
    batch: int
    dtype: str = "float64"

    @property
    def title(self) -> str:
        return f"{self.robot}, {self.operation.replace('_', ' ')}, batch {self.batch}, {self.dtype}"

    def as_dict(self) -> dict:
        return asdict(self)


def cases(robots: Iterable[str], operations: Iterable[str], batches: Iterable[int], dtypes: Iterable[str]):
    """All combinations that make sense: dense answers of long chains and large rollouts are left out."""
    chosen = []
    for dtype, robot, operation, batch in product(dtypes, robots, operations, batches):
        links = int(robot.split("-")[1]) if robot.startswith("chain-") else 0
        if operation == "perturbation" and not links and robot != "arm":  # a free base has other tangents elsewhere
            continue
        if operation == "scan" and batch > 1:
            continue
        dense = operation in ("mass_matrix", "linearization")
        if dense and links**2 * batch > 4096 * 64**2:  # gigabytes of answers, for every contender
            continue
        if links * batch > 4096 * 64 or (operation in SIMULATED and (batch > 4096 or links > 256)):
            continue
        chosen.append(Case(robot, operation, batch, dtype))
    return chosen


def quick_grid() -> list[Case]:
    return [
        Case("arm", "forward_dynamics", 4096),
        Case("arm", "forward_dynamics", 1),
        Case("arm", "linearization", 1024),
        Case("humanoid", "forward_dynamics", 4096),
        Case("chain-64", "forward_dynamics", 1),
    ]


def default_grid() -> list[Case]:
    """The most telling first: a run that uses up its time leaves out the last ones."""
    real = ("arm", "humanoid", "quadruped")
    return [
        *(Case(robot, "forward_dynamics", 4096) for robot in real),
        *(Case(robot, "forward_dynamics", 1) for robot in real[:2]),
        Case("arm", "linearization", 4096),
        Case("humanoid", "linearization", 1024),
        *(Case(robot, "gradient", 4096) for robot in real[:2]),
        *(Case(robot, "inverse_dynamics", 4096) for robot in real[:2]),
        *(Case(robot, "mass_matrix", 4096) for robot in real[:2]),
        *(Case(f"chain-{n}", "forward_dynamics", 1) for n in (8, 64, 512, 4096)),
        *(Case("arm", "forward_dynamics", n) for n in (64, 1024, 16384)),
        *(Case(robot, "rollout", 64) for robot in real[:2]),
        *(Case(robot, "forward_dynamics", 4096, "float32") for robot in real),
        *(Case(f"chain-{n}", "forward_dynamics", 1, "float32") for n in (8, 64, 512)),
    ]


def full_grid() -> list[Case]:
    return cases(ROBOTS, OPERATIONS, BATCHES, DTYPES)
