"""Loops over rows (`read_rows`) as a module of LLVM IR, for a batch of states or for one.

handler                 as of straight-line programs (`ffi_frame`)
  range(first, last)    blocks of states: load, body, store (`llvm_blocks`)
    body                finds where arguments, results and what is kept are; the stages, one after the other
      stage             the loop over rows: where each column is in this row, and the arithmetic (`llvm_parts`)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from jaxsoa.kernels.ffi_frame import batch_handler, single_handler
from jaxsoa.kernels.llvm_blocks import block_range, load_block, store_block
from jaxsoa.kernels.llvm_module import Emitted, finished
from jaxsoa.kernels.llvm_parts import Code, Memory, caller, copied, write_parts
from jaxsoa.kernels.llvm_values import Lanes, Target, Writer
from jaxsoa.kernels.program import Unreadable
from jaxsoa.kernels.rows import Access, Copies, Rows, Stage

LARGEST_BLOCK = 1 << 20
"""Bytes of arguments, or of results, of the states that are computed side by side."""

Arrays = dict[tuple[str, int], bool]
"""What a stage is given: arguments, results, constants, what is kept; and whether each is there once for all lanes."""


def rows_module(
    rows: Rows,
    sizes: Sequence[int],
    results: Sequence[int],
    batched: Sequence[bool] | None,
    dtype: np.dtype,
    target: Target,
) -> Emitted:
    """A kernel of a batch (`batched`: which arguments have one) or of one state (None); `sizes` of arguments and
    `results` for one state."""
    lanes = Lanes(dtype, 1 if batched is None else target.vector_bytes // dtype.itemsize)
    given = batched or [True] * len(sizes)
    arrays: Arrays = {("argument", k): not b for k, b in enumerate(given)}
    arrays |= {("result", k): False for k in range(len(results))}
    arrays |= {("constants", 0): True, ("kept", 0): False}
    texts, codes = [_numbers("rows_constants", lanes, rows.constants)], []
    for k, stage in enumerate(rows.stages):
        if isinstance(stage, Copies):
            texts.append(_copies(f"stage{k}", stage, arrays, lanes))
            continue
        text, code = _stage(f"stage{k}", stage, arrays, lanes)
        texts.append(text)
        codes.append(code)
    code = _merged(codes)
    kept = max(1, rows.kept) * lanes.bytes * lanes.width
    names = [f"ptr %{_name(*of)}" for of in arrays if of[0] != "constants"]
    calls = [f"  call void @stage{k}({', '.join(names)})" for k in range(len(rows.stages))]
    if batched is None:
        body = _body_of_one(len(sizes), len(results), kept, calls)
        entry = single_handler("NAME", len(sizes), len(results))
        return finished([*texts, body, entry], [(code, lanes)], target)
    starts = np.concatenate([[0], np.cumsum([n if b else 0 for n, b in zip(sizes, given, strict=True)])]).tolist()
    ends = np.concatenate([[0], np.cumsum(results)]).tolist()
    if max(starts[-1], ends[-1]) * lanes.bytes * lanes.width > LARGEST_BLOCK:
        raise Unreadable("arguments or results too large")
    slots = [range(a, b) for a, b in pairwise(ends)]
    shared = np.concatenate([[0], np.cumsum([0 if b else n for n, b in zip(sizes, given, strict=True)])]).tolist()
    prologue = ["define internal void @prologue(ptr noalias %arguments, ptr noalias %shared) #0 {"]
    prologue.insert(0, "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    body = [
        "define internal void @body(ptr noalias %in, ptr noalias %out, ptr noalias %shared, ptr noalias %kept) #0 {"
    ]
    block = lanes.bytes * lanes.width
    for k, (n, b) in enumerate(zip(sizes, given, strict=True)):
        where = f"ptr %in, i64 {starts[k] * block}" if b else f"ptr %shared, i64 {shared[k] * lanes.bytes}"
        body.append(f"  %argument{k} = getelementptr i8, {where}")
        if not b:
            prologue.append(
                f"  %at{k} = getelementptr i8, ptr %arguments, i64 {8 * k}\n  %from{k} = load ptr, ptr %at{k}"
            )
            prologue.append(f"  %to{k} = getelementptr i8, ptr %shared, i64 {shared[k] * lanes.bytes}")
            copy = f"ptr %to{k}, ptr %from{k}, i64 {n * lanes.bytes}, i1 false"
            prologue.append(f"  call void @llvm.memcpy.p0.p0.i64({copy})")
    body += [f"  %result{k} = getelementptr i8, ptr %out, i64 {ends[k] * block}" for k in range(len(results))]
    nothing = "(ptr noalias %in, ptr noalias %out, ptr noalias %shared) #0 {\n  ret void\n}\n"
    texts += ["\n".join([*lines, "  ret void\n}\n"]) for lines in (prologue, [*body, *calls])]
    texts += [f"define internal void @{name}{nothing}" for name in ("same_results", "copied")]
    texts.append(load_block(lanes, sizes, given, starts) + store_block(lanes, slots))
    texts.append(block_range(lanes, sizes, given, starts, slots, ends[-1], kept))
    bytes_ = [n * lanes.bytes for n in results]
    shared_bytes = -(-max(1, shared[-1]) * lanes.bytes // 64) * 64
    texts.append(batch_handler("NAME", len(sizes), bytes_, shared_bytes, lanes.width, max(1, rows.cost), target))
    return finished(texts, [(code, lanes)], target)


def _name(of: str, number: int) -> str:
    return of if of == "kept" else f"{of}{number}"


def _body_of_one(arguments: int, results: int, kept: int, calls: Sequence[str]) -> str:
    lines = ["declare ptr @malloc(i64)\ndeclare void @free(ptr)\ndeclare void @abort()"]
    lines.append("define internal void @body(ptr noalias %arguments, ptr noalias %results) #0 {")
    for kind, count in (("argument", arguments), ("result", results)):
        for k in range(count):
            lines.append(f"  %{kind}at{k} = getelementptr i8, ptr %{kind}s, i64 {8 * k}")
            lines.append(f"  %{kind}{k} = load ptr, ptr %{kind}at{k}")
    if kept <= LARGEST_BLOCK:
        return "\n".join([*lines, f"  %kept = alloca [{kept} x i8], align 64", *calls, "  ret void\n}\n"])
    lines += [f"  %kept = call ptr @malloc(i64 {kept})", "  %none = icmp eq ptr %kept, null"]
    lines += ["  br i1 %none, label %stop, label %go", "stop:", "  call void @abort()", "  br label %go", "go:"]
    return "\n".join([*lines, *calls, "  call void @free(ptr %kept)", "  ret void\n}\n"])


def _numbers(name: str, lanes: Lanes, values: np.ndarray) -> str:
    one = Lanes(lanes.dtype, 1)
    numbers = ", ".join(f"{one.scalar} {one.constant(x)}" for x in values.tolist()) or f"{one.scalar} 0.0"
    return f"@{name} = private constant [{max(1, values.size)} x {one.scalar}] [{numbers}], align 64\n"


def _merged(codes: Sequence[Code]) -> Code:
    """One code of several short ones."""
    if any(len(code.parts) > 1 or code.inner for code in codes):
        raise Unreadable("a row of too many operations")
    extra: dict[str, str] = {}
    for code in codes:
        for key, text in code.extra[0].items():
            extra[key] = extra.get(key, "") + text if key == "declared" else text
    parts, used = ["".join(code.parts[0] for code in codes)], [set().union(*(code.used[0] for code in codes))]
    return Code(parts, used, [extra], 0, 0, [])


def _base(of: str, number: int) -> str:
    return "@rows_constants" if of == "constants" else f"%{_name(of, number)}"


def _head(name: str, arrays: Arrays) -> str:
    pointers = ", ".join(f"ptr %{_name(*of)}" for of in arrays if of[0] != "constants")
    return f"define internal void @{name}({pointers}) #0 {{\nentry:\n"


def _loaded(writer: Writer, place: str, single: bool, name: str | None = None) -> str:
    """An element; what is there once, on all lanes."""
    lanes = writer.lanes
    if not single or lanes.width == 1:
        return writer.let(f"load {lanes.type}, ptr {place}, align {lanes.bytes * lanes.width}", name)
    number = writer.let(f"load {lanes.scalar}, ptr {place}, align {lanes.bytes}, !invariant.load !0")
    first = writer.let(f"insertelement {lanes.type} poison, {lanes.scalar} {number}, i64 0")
    zeros = f"<{lanes.width} x i32> zeroinitializer"
    return writer.let(f"shufflevector {lanes.type} {first}, {lanes.type} poison, {zeros}", name)


def _stage(name: str, stage: Stage, arrays: Arrays, lanes: Lanes) -> tuple[str, Code]:
    """@NAME(arrays): the loop over rows, and the code of a row."""
    size = lanes.bytes * lanes.width
    pointers: dict[tuple, str] = {}

    def pointer(access: Access, writes: bool) -> str:
        key = ("carried", writes) if access.of == "carried" else (access.of, access.number, access.step)
        return pointers.setdefault(key, f"p{len(pointers)}")

    def bytes_of(access: Access) -> int:
        return lanes.bytes if arrays.get((access.of, access.number), False) else size

    reads, writes = ([pointer(a, w) for a in accesses] for w, accesses in ((False, stage.reads), (True, stage.writes)))
    operations = stage.body.operations
    places: dict[object, list[int]] = {}
    for k, x in enumerate(stage.body.results[0]):
        if type(x) is int:
            places.setdefault(x, []).append(k)

    def load(writer: Writer, i: int) -> str:
        k = operations[i][2]
        access = stage.reads[k]
        place = writer.at(f"%{reads[k]}", access.start * bytes_of(access))
        return _loaded(writer, place, arrays.get((access.of, access.number), False), f"%v{i}")

    def fill(writer: Writer, value: str, _: int, k: int) -> None:
        place = writer.at(f"%{writes[k]}", stage.writes[k].start * size)
        writer.lines.append(f"  store {lanes.type} {value}, ptr {place}, align {size}")

    def store(writer: Writer, value: str, i: int) -> None:
        for k in places[i]:
            fill(writer, value, 0, k)

    logical, label = stage.body.logical(), f"{name}_row"
    numbers = [i for i, op in enumerate(operations) if op[0] != "in"]
    names = tuple(pointers.values())
    code = write_parts(stage.body, numbers, logical, lanes, Memory(names, load, store, places.__contains__), label)
    head = f"@{label}_copied({', '.join(f'ptr noalias %{x}' for x in names)})"
    text = copied(stage.body, logical, lanes, load, fill, set(numbers), head)
    text += caller(code, label, names, f"@{label}_copied")
    lines = [_head(name, arrays)]
    for k in (0, 1):
        place = (stage.carried + k * stage.carries) * size
        lines.append(f"  %buffer{k} = getelementptr i8, ptr %kept, i64 {place}")
    lines += ["  br label %loop", "loop:", "  %k = phi i64 [0, %entry], [%k1, %loop]"]
    lines.append("  %old = phi ptr [%buffer0, %entry], [%new, %loop]")
    lines.append("  %new = phi ptr [%buffer1, %entry], [%old, %loop]")
    lines.append(f"  %row = {f'sub i64 {stage.rows - 1}, %k' if stage.reverse else 'add i64 %k, 0'}")
    for key, p in pointers.items():
        if key[0] == "carried":
            lines.append(f"  %{p} = getelementptr i8, ptr %{'new' if key[1] else 'old'}, i64 0")
            continue
        of, number, step = key
        unit = lanes.bytes if arrays[of, number] else size
        lines.append(f"  %{p}o = mul i64 %row, {step * unit}")
        lines.append(f"  %{p} = getelementptr i8, ptr {_base(of, number)}, i64 %{p}o")
    lines.append(f"  call void @{label}({', '.join(f'ptr %{p}' for p in names)})")
    lines += ["  %k1 = add i64 %k, 1", f"  %more = icmp slt i64 %k1, {stage.rows}"]
    lines += ["  br i1 %more, label %loop, label %end", "end:", "  ret void", "}"]
    return text + "\n".join(lines) + "\n", code


def _copies(name: str, copies: Copies, arrays: Arrays, lanes: Lanes) -> str:
    """@NAME(arrays): elements by tables of where they are and go to."""
    writer, single = Writer(lanes), arrays[copies.of, copies.number]
    size = lanes.bytes * lanes.width
    text, count = "", len(copies.sources)
    for kind, numbers, unit in (
        ("from", copies.sources, lanes.bytes if single else size),
        ("to", copies.targets, size),
    ):
        table = ", ".join(f"i64 {n * unit}" for n in numbers)
        text += f"@{name}_{kind} = private constant [{count} x i64] [{table}]\n"
    lines = writer.lines
    lines += ["  br label %loop", "loop:", "  %k = phi i64 [0, %entry], [%k1, %loop]"]
    places = []
    for kind, base in (("from", _base(copies.of, copies.number)), ("to", "%kept")):
        at = writer.let(f"getelementptr i64, ptr @{name}_{kind}, i64 %k")
        places.append(writer.let(f"getelementptr i8, ptr {base}, i64 {writer.let(f'load i64, ptr {at}')}"))
    value = _loaded(writer, places[0], single)
    lines.append(f"  store {lanes.type} {value}, ptr {places[1]}, align {size}")
    lines += ["  %k1 = add i64 %k, 1", f"  %more = icmp slt i64 %k1, {count}"]
    lines += ["  br i1 %more, label %loop, label %end", "end:", "  ret void", "}"]
    return text + _head(name, arrays) + "\n".join(lines) + "\n"
