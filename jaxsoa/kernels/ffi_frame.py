"""XLA's foreign function interface, as LLVM IR: how a kernel finds its buffers and shares work out over threads.

The layout is that of `xla/ffi/api/c_api.h` since version 0.1 of the interface; nothing newer is read.

    call frame:  8 extension   16 api   24 context   72 arguments   112 results
    buffer:     24 data        40 dimensions
    api:        64 destroy an error   136 schedule on the thread pool

Threads: a control block on the heap, counted by references. Chunks of the batch are handed out by an atomic counter;
the caller works too, and waits only for chunks that have begun, never for tasks that have not.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxsoa.kernels.llvm_values import Target

INLINE_SECONDS = 50e-6
"""Work shorter than this is done by the caller alone."""

SECONDS_PER_OPERATION = 0.35e-9

LARGE = 4 << 20
"""Bytes of results from which the system is asked for large pages. XLA takes fresh memory for every call, and to get
40 MB page by page takes longer than to compute what is written there (17 ms; by large pages 3)."""

_METADATA = """
  %extension_at = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extension_at
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %run, label %query
query:
  %kind_at = getelementptr i8, ptr %extension, i64 8
  %kind = load i32, ptr %kind_at
  %asked = icmp eq i32 %kind, 1
  br i1 %asked, label %tell, label %run
tell:
  %metadata_at = getelementptr i8, ptr %extension, i64 24
  %metadata = load ptr, ptr %metadata_at
  %major = getelementptr i8, ptr %metadata, i64 24
  store i32 0, ptr %major
  %minor = getelementptr i8, ptr %metadata, i64 28
  store i32 1, ptr %minor
  %traits = getelementptr i8, ptr %metadata, i64 32
  store i32 0, ptr %traits
  ret ptr null
run:
  %arguments_at = getelementptr i8, ptr %frame, i64 72
  %argument_buffers = load ptr, ptr %arguments_at
  %results_at = getelementptr i8, ptr %frame, i64 112
  %result_buffers = load ptr, ptr %results_at"""


def _pointers(kind: str, count: int, into: str, offset: int) -> str:
    """Copies the data pointers of buffers to consecutive places."""
    lines = []
    for k in range(count):
        lines.append(f"""  %{kind}a{k} = getelementptr i8, ptr %{kind}_buffers, i64 {8 * k}
  %{kind}b{k} = load ptr, ptr %{kind}a{k}
  %{kind}c{k} = getelementptr i8, ptr %{kind}b{k}, i64 24
  %{kind}d{k} = load ptr, ptr %{kind}c{k}
  %{kind}e{k} = getelementptr i8, ptr {into}, i64 {offset + 8 * k}
  store ptr %{kind}d{k}, ptr %{kind}e{k}""")
    return "\n".join(lines)


def single_handler(name: str, arguments: int, results: int) -> str:
    """The entry of a kernel of one state."""
    return f"""
define ptr @{name}(ptr %frame) #0 {{
entry:
  %pointers = alloca [{8 * max(1, arguments + results)} x i8], align 16
{_METADATA}
{_pointers("argument", arguments, "%pointers", 0)}
{_pointers("result", results, "%pointers", 8 * arguments)}
  %out = getelementptr i8, ptr %pointers, i64 {8 * arguments}
  call void @body(ptr %pointers, ptr %out)
  ret ptr null
}}
"""


def _advise(bytes_of: Sequence[int]) -> str:
    """@advise(results, states): asks for large pages for large results; `bytes_of` each result for one state."""
    lines = []
    for k, size in enumerate(bytes_of):
        if size:
            lines.append(f"""  %at{k} = getelementptr i8, ptr %results, i64 {8 * k}
  %start{k} = load i64, ptr %at{k}
  %length{k} = mul i64 %states, {size}
  %end{k} = add i64 %start{k}, %length{k}
  %first{k} = and i64 %start{k}, -4096
  %above{k} = add i64 %end{k}, 4095
  %last{k} = and i64 %above{k}, -4096
  %whole{k} = sub i64 %last{k}, %first{k}
  %large{k} = icmp sge i64 %whole{k}, {LARGE}
  br i1 %large{k}, label %ask{k}, label %next{k}
ask{k}:
  %place{k} = inttoptr i64 %first{k} to ptr
  %done{k} = call i32 @madvise(ptr %place{k}, i64 %whole{k}, i32 14)
  br label %next{k}
next{k}:""")
    return (
        "declare i32 @madvise(ptr, i64, i32)\n"
        "define internal void @advise(ptr %results, i64 %states) #0 {\n" + "\n".join(lines) + "\n  ret void\n}\n"
    )


# Control block: 0 next chunk, 8 chunks done, 16 references, 24 chunks, 32 states a chunk, 40 states, 48 pointers of
# arguments, then of results, then what all states share.
_HEAD = 48


def batch_handler(
    name: str,
    arguments: int,
    result_bytes: Sequence[int],
    shared_bytes: int,
    width: int,
    operations: int,
    target: Target,
) -> str:
    """The entry of a kernel of a batch: the number of states is the first dimension of the first result.

    `result_bytes`: of each result for one state.
    """
    results = len(result_bytes)
    size = -(-(_HEAD + 8 * (arguments + results)) // 64) * 64
    shared = size
    size += shared_bytes
    alone = max(width, round(INLINE_SECONDS / (operations * SECONDS_PER_OPERATION)) * width)
    pause = "call void @llvm.x86.sse2.pause()" if target.x86 else "fence acquire"
    declare_pause = "declare void @llvm.x86.sse2.pause()" if target.x86 else ""
    define_advise = _advise(result_bytes) if target.linux else ""
    advise = "call void @advise(ptr %results, i64 %states)" if target.linux else ""
    return f"""
@{name}_threads = global i64 1
{declare_pause}
{define_advise}
declare ptr @malloc(i64)
declare void @free(ptr)
define internal void @share(ptr %control) #0 {{
entry:
  %chunks_at = getelementptr i8, ptr %control, i64 24
  %chunks = load i64, ptr %chunks_at
  %length_at = getelementptr i8, ptr %control, i64 32
  %length = load i64, ptr %length_at
  %states_at = getelementptr i8, ptr %control, i64 40
  %states = load i64, ptr %states_at
  %done_at = getelementptr i8, ptr %control, i64 8
  %arguments = getelementptr i8, ptr %control, i64 {_HEAD}
  %results = getelementptr i8, ptr %control, i64 {_HEAD + 8 * arguments}
  %shared = getelementptr i8, ptr %control, i64 {shared}
  br label %loop
loop:
  %chunk = atomicrmw add ptr %control, i64 1 monotonic
  %mine = icmp slt i64 %chunk, %chunks
  br i1 %mine, label %work, label %out
work:
  %from = mul i64 %chunk, %length
  %to_all = add i64 %from, %length
  %inside = icmp slt i64 %to_all, %states
  %to = select i1 %inside, i64 %to_all, i64 %states
  call void @range(ptr %arguments, ptr %results, ptr %shared, i64 %from, i64 %to)
  %before = atomicrmw add ptr %done_at, i64 1 release
  br label %loop
out:
  ret void
}}
define internal void @release(ptr %control) #0 {{
  %references_at = getelementptr i8, ptr %control, i64 16
  %before = atomicrmw sub ptr %references_at, i64 1 acq_rel
  %last = icmp eq i64 %before, 1
  br i1 %last, label %gone, label %out
gone:
  call void @free(ptr %control)
  ret void
out:
  ret void
}}
define internal void @task(ptr %control) #0 {{
  call void @share(ptr %control)
  call void @release(ptr %control)
  ret void
}}
define ptr @{name}(ptr %frame) #0 {{
entry:
  %own = alloca [{size} x i8], align 64
{_METADATA}
  %first_result = load ptr, ptr %result_buffers
  %dimensions_at = getelementptr i8, ptr %first_result, i64 40
  %dimensions = load ptr, ptr %dimensions_at
  %states = load i64, ptr %dimensions
  %empty = icmp slt i64 %states, 1
  br i1 %empty, label %finished, label %some
some:
  %threads = load i64, ptr @{name}_threads
  %few = icmp sle i64 %states, {alone}
  %one = icmp slt i64 %threads, 2
  %alone = or i1 %few, %one
  br i1 %alone, label %go, label %heap
heap:
  %block = call ptr @malloc(i64 {size})
  %none = icmp eq ptr %block, null
  %found = select i1 %none, ptr %own, ptr %block
  br label %go
go:
  %control = phi ptr [%own, %some], [%found, %heap]
  %solo = phi i1 [true, %some], [%none, %heap]
{_pointers("argument", arguments, "%control", _HEAD)}
{_pointers("result", results, "%control", _HEAD + 8 * arguments)}
  %arguments = getelementptr i8, ptr %control, i64 {_HEAD}
  %results = getelementptr i8, ptr %control, i64 {_HEAD + 8 * arguments}
  %shared = getelementptr i8, ptr %control, i64 {shared}
  {advise}
  call void @prologue(ptr %arguments, ptr %shared)
  br i1 %solo, label %inline, label %spread
inline:
  call void @range(ptr %arguments, ptr %results, ptr %shared, i64 0, i64 %states)
  br label %finished
finished:
  ret ptr null
spread:
  %pieces = mul i64 %threads, 4
  %quotient = udiv i64 %states, %pieces
  %blocks = udiv i64 %quotient, {width}
  %blocks1 = add i64 %blocks, 1
  %length = mul i64 %blocks1, {width}
  %padded = add i64 %states, %length
  %less = sub i64 %padded, 1
  %chunks = udiv i64 %less, %length
  store i64 0, ptr %control
  %done_at = getelementptr i8, ptr %control, i64 8
  store i64 0, ptr %done_at
  %references_at = getelementptr i8, ptr %control, i64 16
  store i64 %threads, ptr %references_at
  %chunks_at = getelementptr i8, ptr %control, i64 24
  store i64 %chunks, ptr %chunks_at
  %length_at = getelementptr i8, ptr %control, i64 32
  store i64 %length, ptr %length_at
  %states_at = getelementptr i8, ptr %control, i64 40
  store i64 %states, ptr %states_at
  %request = alloca [40 x i8], align 8
  %sorry = alloca [24 x i8], align 8
  %api_at = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api_at
  %context_at = getelementptr i8, ptr %frame, i64 24
  %context = load ptr, ptr %context_at
  %schedule_at = getelementptr i8, ptr %api, i64 136
  %schedule = load ptr, ptr %schedule_at
  %destroy_at = getelementptr i8, ptr %api, i64 64
  %destroy = load ptr, ptr %destroy_at
  store i64 40, ptr %request
  %request8 = getelementptr i8, ptr %request, i64 8
  store ptr null, ptr %request8
  %request16 = getelementptr i8, ptr %request, i64 16
  store ptr %context, ptr %request16
  %request24 = getelementptr i8, ptr %request, i64 24
  store ptr @task, ptr %request24
  %request32 = getelementptr i8, ptr %request, i64 32
  store ptr %control, ptr %request32
  br label %ask
ask:
  %asked_for = phi i64 [1, %spread], [%asked_next, %asked_end]
  %error = call ptr %schedule(ptr %request)
  %refused = icmp ne ptr %error, null
  br i1 %refused, label %without, label %asked_end
without:
  store i64 24, ptr %sorry
  %sorry8 = getelementptr i8, ptr %sorry, i64 8
  store ptr null, ptr %sorry8
  %sorry16 = getelementptr i8, ptr %sorry, i64 16
  store ptr %error, ptr %sorry16
  call void %destroy(ptr %sorry)
  call void @release(ptr %control)
  br label %asked_end
asked_end:
  %asked_next = add i64 %asked_for, 1
  %ask_more = icmp slt i64 %asked_next, %threads
  br i1 %ask_more, label %ask, label %join
join:
  call void @share(ptr %control)
  br label %wait
wait:
  %done = load atomic i64, ptr %done_at acquire, align 8
  %waiting = icmp slt i64 %done, %chunks
  br i1 %waiting, label %pause, label %all
pause:
  {pause}
  br label %wait
all:
  call void @release(ptr %control)
  ret ptr null
}}
"""
