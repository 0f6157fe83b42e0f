"""Loops inside a kernel whose end depends on values: states side by side go on until the last of them is done.

A loop has its values in one piece of memory: what it carries, then what stays. Its test and its body are functions of
that memory. A state that is done keeps what it has while its neighbours go on.
"""

from __future__ import annotations

from jaxsoa.kernels.llvm_values import Lanes


def loop_function(name: str, lanes: Lanes, carried: int) -> str:
    """@NAME(values): calls @NAME_test(values, flag) and @NAME_body(values, new) for as long as a state goes on."""
    V, W, size = lanes.type, lanes.width, lanes.bytes * lanes.width
    zero = lanes.constant(0.0)
    anywhere = (
        "  %any = or i1 %on, false"
        if W == 1
        else f"  %bits = bitcast <{W} x i1> %on to i{W}\n  %any = icmp ne i{W} %bits, 0"
    )
    return f"""
define internal void @{name}(ptr noalias %values) #0 {{
entry:
  %flag = alloca [{size} x i8], align 64
  %new = alloca [{max(1, carried) * size} x i8], align 64
  br label %ask
ask:
  call void @{name}_test(ptr %values, ptr %flag)
  %number = load {V}, ptr %flag, align {size}
  %on = fcmp une {V} %number, {zero}
{anywhere}
  br i1 %any, label %go, label %end
go:
  call void @{name}_body(ptr %values, ptr %new)
  br label %move
move:
  %k = phi i64 [0, %go], [%k1, %move]
  %at = getelementptr {V}, ptr %values, i64 %k
  %of = getelementptr {V}, ptr %new, i64 %k
  %old = load {V}, ptr %at, align {size}
  %found = load {V}, ptr %of, align {size}
  %kept = select {lanes.bit} %on, {V} %found, {V} %old
  store {V} %kept, ptr %at, align {size}
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, {carried}
  br i1 %more, label %move, label %ask
end:
  ret void
}}
"""
