"""Blocks of states in and out of a kernel: batch-first arrays, transposed to one vector per component.

load_block, store_block      full blocks, by squares of lanes transposed in registers
part_in, part_out            the last block, element by element; missing states repeat the last one
range                        all blocks from one state to another
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxsoa.kernels.llvm_values import Lanes, Writer, function


def _transposed(writer: Writer, rows: list[str]) -> list[str]:
    """Columns of a square of lanes, by rounds of shuffles."""
    W, V, distance, current = writer.lanes.width, writer.lanes.type, 1, rows
    while distance < W:
        new = list(current)
        for i in range(W):
            if i & distance:
                continue
            a, b = current[i], current[i | distance]
            low = [(j & ~distance) + (W if j & distance else 0) for j in range(W)]
            high = [(j | distance) + (W if j & distance else 0) for j in range(W)]
            for at, order in ((i, low), (i | distance, high)):
                mask = ", ".join(f"i32 {j}" for j in order)
                new[at] = writer.let(f"shufflevector {V} {a}, {V} {b}, <{W} x i32> <{mask}>")
        current, distance = new, 2 * distance
    return current


LOOPED = 6
"""Squares of an array from which its transposes are a loop, to compile faster."""


def _loop(writer: Writer, name: str, squares: int, body) -> None:
    """`body(column)` for the first columns of `squares` squares."""
    before, start = f"before{name}", f"loop{name}"
    lines, W = writer.lines, writer.lanes.width
    lines += [f"  br label %{before}", f"{before}:", f"  br label %{start}", f"{start}:"]
    lines.append(f"  %c{name} = phi i64 [0, %{before}], [%n{name}, %{start}]")
    body(f"%c{name}")
    lines.append(f"  %n{name} = add i64 %c{name}, {W}")
    lines.append(f"  %m{name} = icmp slt i64 %n{name}, {squares * W}")
    lines.append(f"  br i1 %m{name}, label %{start}, label %end{name}")
    lines.append(f"end{name}:")


def load_block(lanes: Lanes, sizes, batched, starts) -> str:
    """@load_block(arguments, in, first): a full block of states, component by component."""
    writer, W, V, size = Writer(lanes), lanes.width, lanes.type, lanes.bytes
    for k, n in enumerate(sizes):
        if not batched[k] or n == 0:
            continue
        base = writer.let(f"load ptr, ptr {writer.at('%arguments', 8 * k)}")
        row = writer.let(f"getelementptr i8, ptr {base}, i64 {writer.let(f'mul i64 %first, {n * size}')}")
        own = writer.at("%in", starts[k] * W * size)

        def square(far: str, near: str, n: int = n) -> None:
            rows = [writer.let(f"load {V}, ptr {writer.at(far, i * n * size)}, align {size}") for i in range(W)]
            for j, column in enumerate(_transposed(writer, rows)):
                writer.lines.append(f"  store {V} {column}, ptr {writer.at(near, j * W * size)}, align {W * size}")

        _squares(writer, str(k), n, row, own, square, (V, W * size))
        if n < W:
            for j in range(n):
                found = "poison"
                for lane in range(W):
                    place = writer.at(row, (lane * n + j) * size)
                    x = writer.let(f"load {lanes.scalar}, ptr {place}, align {size}")
                    found = writer.let(f"insertelement {V} {found}, {lanes.scalar} {x}, i64 {lane}")
                writer.lines.append(f"  store {V} {found}, ptr {writer.at(own, j * W * size)}, align {W * size}")
    return function("@load_block(ptr noalias %arguments, ptr noalias %in, i64 %first)", writer)


def _squares(writer: Writer, name: str, n: int, row: str, own: str, square, column: tuple[str, int]) -> None:
    """`square(place in the array, place in the block)` for squares that cover rows of n; the last may overlap.

    `column`: type and bytes of what stands in the block for a column.
    """
    W, size = writer.lanes.width, writer.lanes.bytes
    kind, step = column
    whole = n // W
    if whole >= LOOPED:

        def at(column: str) -> None:
            far = writer.let(f"getelementptr {writer.lanes.scalar}, ptr {row}, i64 {column}")
            near = writer.let(f"getelementptr {kind}, ptr {own}, i64 {column}")
            square(far, near)

        _loop(writer, name, whole, at)
    else:
        for c in range(0, whole * W, W):
            square(writer.at(row, c * size), writer.at(own, c * step))
    if n % W and n > W:
        square(writer.at(row, (n - W) * size), writer.at(own, (n - W) * step))


Slots = Sequence[Sequence[int]]
"""For each result, where in the block each of its elements is; elements that are equal are there once."""


def _in_order(slots: Sequence[int]) -> bool:
    return list(slots) == list(range(slots[0], slots[0] + len(slots)))


def _tables(slots: Slots, step: int) -> str:
    """@slots0, ...: for results whose elements do not stand side by side, bytes from the block's begin to each."""
    text = ""
    for k, own in enumerate(slots):
        if own and not _in_order(own):
            numbers = ", ".join(f"i32 {step * slot}" for slot in own)
            text += f"@slots{k} = private constant [{len(own)} x i32] [{numbers}]\n"
    return text


def store_block(lanes: Lanes, slots: Slots) -> str:
    """@store_block(results, out, first): the inverse of @load_block."""
    writer, W, V, size = Writer(lanes), lanes.width, lanes.type, lanes.bytes
    for k, where in enumerate(slots):
        n = len(where)
        if n == 0:
            continue
        ordered = _in_order(where)
        base = writer.let(f"load ptr, ptr {writer.at('%results', 8 * k)}")
        row = writer.let(f"getelementptr i8, ptr {base}, i64 {writer.let(f'mul i64 %first, {n * size}')}")
        own = writer.at("%out", where[0] * W * size) if ordered else f"@slots{k}"

        def slot(offset: str) -> str:
            bytes_ = writer.let(f"sext i32 {writer.let(f'load i32, ptr {offset}, align 4, !invariant.load !0')} to i64")
            return writer.let(f"getelementptr i8, ptr %out, i64 {bytes_}")

        def square(far: str, near: str, n: int = n, ordered: bool = ordered) -> None:
            if ordered:
                places = [writer.at(near, j * W * size) for j in range(W)]
            else:
                places = [slot(writer.at(near, 4 * j)) for j in range(W)]
            columns = [writer.let(f"load {V}, ptr {place}, align {W * size}") for place in places]
            for lane, x in enumerate(_transposed(writer, columns)):
                writer.lines.append(f"  store {V} {x}, ptr {writer.at(far, lane * n * size)}, align {size}")

        _squares(writer, str(k), n, row, own, square, (V, W * size) if ordered else ("i32", 4))
        if n < W:
            for j in range(n):
                x = writer.let(f"load {V}, ptr {writer.at('%out', where[j] * W * size)}, align {W * size}")
                for lane in range(W):
                    one = writer.let(f"extractelement {V} {x}, i64 {lane}")
                    place = writer.at(row, (lane * n + j) * size)
                    writer.lines.append(f"  store {lanes.scalar} {one}, ptr {place}, align {size}")
    return function("@store_block(ptr noalias %results, ptr noalias %out, i64 %first)", writer)


def block_range(lanes: Lanes, sizes, batched, starts, slots: Slots, n_out: int, kept: int = 0) -> str:
    """@range: blocks from one state to another; the last one may be filled up with its last state. `n_out`: slots,
    `kept`: bytes of memory that the body is given, if it needs any."""
    W, size = lanes.width, lanes.bytes
    n_in, n_out = max(1, starts[-1]) * W * size, max(1, n_out) * W * size
    text = [_tables(slots, W * size)]
    given = [n if b else 0 for n, b in zip(sizes, batched, strict=True)]
    results = list(map(len, slots))
    firsts = [own[0] if own and _in_order(own) else 0 for own in slots]
    for kind, lengths, offsets in (("in", given, starts), ("out", results, firsts)):
        arrays = "arguments" if kind == "in" else "results"
        lines = []
        for k, n in enumerate(lengths):
            if n == 0:
                continue
            stride = f"  %stride{k} = mul i64 %e{k}, {W * size}"
            if kind == "out" and not _in_order(slots[k]):
                stride = f"""  %slot{k} = getelementptr i32, ptr @slots{k}, i64 %e{k}
  %bytes{k} = load i32, ptr %slot{k}, align 4
  %stride{k} = sext i32 %bytes{k} to i64"""
            source, target = ("far", "near") if kind == "in" else ("near", "far")
            copy = f"""  %x{k} = load {lanes.scalar}, ptr %{source}{k}, align {size}
  store {lanes.scalar} %x{k}, ptr %{target}{k}, align {size}"""
            lines.append(f"""  br label %head{k}
head{k}:
  %at{k} = getelementptr i8, ptr %{arrays}, i64 {8 * k}
  %base{k} = load ptr, ptr %at{k}
  br label %lane{k}
lane{k}:
  %l{k} = phi i64 [0, %head{k}], [%ln{k}, %next{k}]
  %inside{k} = icmp slt i64 %l{k}, %count
  %state{k} = select i1 %inside{k}, i64 %l{k}, i64 %last
  %number{k} = add i64 %first, %state{k}
  %offset{k} = mul i64 %number{k}, {n * size}
  %row{k} = getelementptr i8, ptr %base{k}, i64 %offset{k}
  %column{k} = getelementptr {lanes.scalar}, ptr %block, i64 %l{k}
  %own{k} = getelementptr i8, ptr %column{k}, i64 {offsets[k] * W * size}
  br label %element{k}
element{k}:
  %e{k} = phi i64 [0, %lane{k}], [%en{k}, %element{k}]
  %far{k} = getelementptr {lanes.scalar}, ptr %row{k}, i64 %e{k}
{stride}
  %near{k} = getelementptr i8, ptr %own{k}, i64 %stride{k}
{copy}
  %en{k} = add i64 %e{k}, 1
  %more{k} = icmp slt i64 %en{k}, {n}
  br i1 %more{k}, label %element{k}, label %next{k}
next{k}:
  %ln{k} = add i64 %l{k}, 1
  %again{k} = icmp slt i64 %ln{k}, {W if kind == "in" else "%count"}
  br i1 %again{k}, label %lane{k}, label %done{k}
done{k}:""")
        text.append(
            f"define internal void @part_{kind}"
            f"(ptr noalias %{arrays}, ptr noalias %block, i64 %first, i64 %count) #0 {{\n"
            "  %last = sub i64 %count, 1\n" + "\n".join(lines) + "\n  ret void\n}\n"
        )
    more = ", ptr %kept" if kept else ""
    take = f"""  %memory = call ptr @malloc(i64 {kept + 64})
  %none = icmp eq ptr %memory, null
  br i1 %none, label %stop, label %begin
stop:
  call void @abort()
  br label %begin
begin:
  %after_memory = getelementptr i8, ptr %memory, i64 63
  %kept = call ptr @llvm.ptrmask.p0.i64(ptr %after_memory, i64 -64)"""
    functions = "ptr @malloc(i64)", "void @free(ptr)", "void @abort()", "ptr @llvm.ptrmask.p0.i64(ptr, i64)"
    declared = "".join(f"declare {text}\n" for text in functions) if kept else ""
    before = "begin" if kept else "entry"
    return (
        declared
        + "".join(text)
        + f"""
define internal void @range(ptr %arguments, ptr %results, ptr %shared, i64 %from, i64 %to) #0 {{
entry:
  %in = alloca [{n_in} x i8], align 64
  %out = alloca [{n_out} x i8], align 64
{take if kept else ""}
  call void @same_results(ptr %in, ptr %out, ptr %shared)
  br label %loop
loop:
  %first = phi i64 [%from, %{before}], [%after, %next]
  %after = add i64 %first, {W}
  %full = icmp sle i64 %after, %to
  br i1 %full, label %whole, label %part
whole:
  call void @load_block(ptr %arguments, ptr %in, i64 %first)
  call void @body(ptr %in, ptr %out, ptr %shared{more})
  call void @copied(ptr %in, ptr %out, ptr %shared)
  call void @store_block(ptr %results, ptr %out, i64 %first)
  br label %next
part:
  %count = sub i64 %to, %first
  call void @part_in(ptr %arguments, ptr %in, i64 %first, i64 %count)
  call void @body(ptr %in, ptr %out, ptr %shared{more})
  call void @copied(ptr %in, ptr %out, ptr %shared)
  call void @part_out(ptr %results, ptr %out, i64 %first, i64 %count)
  br label %next
next:
  %more = icmp slt i64 %after, %to
  br i1 %more, label %loop, label %end
end:
{"  call void @free(ptr %memory)" if kept else ""}
  ret void
}}
"""
    )
