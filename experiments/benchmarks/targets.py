"""`run.py --targets`: how many times as fast as others, row by row, with what is aimed at.

    python experiments/benchmarks/run.py --targets --before ../jaxsoa-before      # a checkout from before the kernels
    python experiments/benchmarks/run.py --targets --robots arm --only forward_dynamics mass_matrix

Pinocchio is called from C++ loops that write the answers into an array (`worker_native.py`). Every row is measured
twice over: by the clock, and by processor time (of all threads), which a busy machine disturbs less.
"""

from __future__ import annotations

from dataclasses import dataclass

from cases import Case

ROBOTS = ("arm", "humanoid")


@dataclass(frozen=True)
class Target:
    what: str
    operation: str
    batch: int
    ours: str
    theirs: str | None
    kind: str  # "times": theirs / ours at least; "over", "alone" us, "seconds", "share": ours at most
    bounds: tuple[float, float]  # arm, humanoid


TWO = "pinocchio-loops-threads"
TARGETS = (
    Target("forward dynamics, batch 4096", "forward_dynamics", 4096, "jaxsoa", TWO, "times", (10, 6)),
    Target("forward dynamics, batch 64", "forward_dynamics", 64, "jaxsoa", "pinocchio-loops", "times", (5, 5)),
    Target("inverse dynamics, batch 4096", "inverse_dynamics", 4096, "jaxsoa", TWO, "times", (8, 4)),
    Target("mass matrix, batch 4096", "mass_matrix", 4096, "jaxsoa", TWO, "times", (8, 4)),
    Target("the same where freed memory is kept", "mass_matrix", 4096, "jaxsoa-fast", TWO, "times", (8, 4)),
    Target("full linearization, batch 4096", "linearization", 4096, "jaxsoa", "pinocchio-loops", "times", (8, 4)),
    Target("reverse-mode gradient, batch 4096", "gradient", 4096, "jaxsoa", "jaxsoa-before", "times", (4, 4)),
    Target("a jitted call over an empty one, us", "forward_dynamics", 1, "jaxsoa", "jaxsoa-empty", "over", (3, 9)),
    Target("a step inside lax.scan", "scan", 1, "jaxsoa", "pinocchio-loops", "times", (2, 2)),
    Target("1,000-step rollout, batch 64", "rollout", 64, "jaxsoa", "jaxsoa-before", "times", (5, 4)),
    Target("robot as argument of jit", "forward_dynamics", 4096, "jaxsoa-argument", "jaxsoa", "share", (2.2, 2.2)),
    Target("first call, forward dynamics, s", "forward_dynamics", 4096, "jaxsoa", None, "seconds", (0.6, 2.5)),
    Target("first call, linearization, s", "linearization", 4096, "jaxsoa", None, "seconds", (1.5, 6)),
    Target("eager call after the first, us", "forward_dynamics", 1, "jaxsoa-eager", None, "alone", (150, 200)),
)
TABLE = ("forward_dynamics", "inverse_dynamics", "mass_matrix", "linearization")
"""Operations of the table of Pinocchio's forms, all on one thread but ours."""
FORMS = ("pinocchio-loops", "pinocchio-templates", "pinocchio-casadi")


def cases_of(robots, only, forms: bool) -> dict[Case, list[str]]:
    """The cases, and the contenders in each."""
    found: dict[Case, list[str]] = {}
    for robot in robots:
        for t in TARGETS:
            if only and t.operation not in only:
                continue
            names = found.setdefault(Case(robot, t.operation, t.batch), [])
            names += [name for name in (t.ours, t.theirs) if name is not None and name not in names]
        for operation in TABLE if forms else ():
            if not only or operation in only:
                names = found.setdefault(Case(robot, operation, 4096), ["jaxsoa"])
                names += [name for name in FORMS if name not in names]
    return found


def lines(results: dict) -> list[str]:
    """Markdown: a row a target, then Pinocchio's forms beside each other."""
    cases = {(c["robot"], c["operation"], c["batch"]): c.get("entries", {}) for c in results["cases"]}
    robots = [robot for robot in ROBOTS if any(key[0] == robot for key in cases)]
    out = ["| | " + " | ".join(f"{r}: aim | reached | by processor time" for r in robots) + " |"]
    out.append("| --- |" + " --- | --- | --- |" * len(robots))
    for t in TARGETS:
        fields = []
        for robot in robots:
            entries = cases.get((robot, t.operation, t.batch))
            bound = t.bounds[ROBOTS.index(robot)]
            sign = ">=" if t.kind == "times" else "<="
            texts = ["", ""] if entries is None else [_reached(t, entries, clock) for clock in ("min", "processor")]
            fields += [f"{sign} {bound:g}", *texts]
        if any(fields[1::3]):
            out.append(f"| {t.what} | " + " | ".join(fields) + " |")
    names = [n for n in ("jaxsoa", *FORMS, TWO) if any("seconds" in e.get(n, {}) for e in cases.values())]
    out += ["", "Microseconds a state, by the clock / of processor time:", "", f"| | {' | '.join(names)} |"]
    out.append("| --- |" + " --- |" * len(names))
    for (robot, operation, batch), entries in cases.items():
        if batch == 4096 and operation in TABLE:
            row = [_both(entries.get(name, {}), batch) for name in names]
            out.append(f"| {operation.replace('_', ' ')}, {robot} | {' | '.join(row)} |")
    return out


def _time(entry: dict, clock: str) -> float | None:
    if "seconds" not in entry:
        return None
    return entry["processor_seconds"] if clock == "processor" else entry["seconds"]["min"]


def _both(entry: dict, batch: int) -> str:
    wall, processor = (_time(entry, clock) for clock in ("min", "processor"))
    return "" if wall is None else f"{1e6 * wall / batch:.3g} / {1e6 * processor / batch:.3g}"


def _reached(t: Target, entries: dict, clock: str) -> str:
    ours, theirs = (_time(entries.get(name or "", {}), clock) for name in (t.ours, t.theirs))
    if t.kind == "seconds":
        seconds = entries.get(t.ours, {}).get("compile_seconds" if clock == "min" else "compile_processor_seconds")
        return "" if seconds is None else f"{seconds:.2f}"
    if ours is None or (t.theirs is not None and theirs is None):
        name = t.ours if ours is None else t.theirs
        return f"({name}: {entries.get(name or '', {}).get('skip', 'not run')})" if clock == "min" else ""
    if t.kind == "alone":
        return f"{1e6 * ours:.3g}"
    assert theirs is not None
    if t.kind == "times":
        return f"{theirs / ours:.3g}"
    return f"{1e6 * (ours - theirs):.3g}" if t.kind == "over" else f"{ours / theirs:.3g}"
