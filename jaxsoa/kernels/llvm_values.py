"""Single operations as LLVM IR, for one lane or for several at once."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxsoa.kernels.program import Operand, Operation

_INSTRUCTIONS = {
    # `contract` lets a product and a sum become one fused operation, which rounds once.
    "add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv contract", "rem": "frem",
    "lt": "fcmp olt", "gt": "fcmp ogt", "le": "fcmp ole", "ge": "fcmp oge", "eq": "fcmp oeq", "ne": "fcmp une",
}  # fmt: skip
_INTRINSICS = {
    "sqrt": "sqrt", "abs": "fabs", "max": "maximum", "min": "minimum", "floor": "floor", "ceil": "ceil",
    "round": "roundeven",
}  # fmt: skip
_LIBRARY = {
    "tan": 1, "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1, "asinh": 1, "acosh": 1, "atanh": 1, "exp": 1,
    "exp2": 1, "expm1": 1, "log": 1, "log1p": 1, "cbrt": 1, "erf": 1, "pow": 2, "atan2": 2,
}  # fmt: skip
EMITTED = {*_INSTRUCTIONS, *_INTRINSICS, *_LIBRARY, "neg", "sin", "cos", "tanh", "sign", "is_finite", "select", "and",
           "or", "xor", "not", "in", "item", "product", "loop"}  # fmt: skip


class Target(NamedTuple):
    """What the emitter needs to know of a processor and its system."""

    vector_bytes: int
    fused: bool  # has fused multiply-add
    x86: bool
    linux: bool


class Lanes:
    """Text of IR on `width` lanes of a floating type; one lane is a plain number."""

    def __init__(self, dtype: np.dtype, width: int):
        self.dtype, self.double, self.width = dtype, dtype == np.float64, width
        self.scalar = "double" if self.double else "float"
        self.bytes = 8 if self.double else 4
        self.type = self.vector(self.scalar)
        self.bit = self.vector("i1")
        self.integer = "i64" if self.double else "i32"
        self.integers = self.vector(self.integer)
        short = "f64" if self.double else "f32"
        self.suffix = short if width == 1 else f"v{width}{short}"
        self.tag = f"{short}x{width}"

    def vector(self, element: str) -> str:
        return element if self.width == 1 else f"<{self.width} x {element}>"

    def _all(self, element: str, value: str) -> str:
        return value if self.width == 1 else "<" + ", ".join([f"{element} {value}"] * self.width) + ">"

    def constant(self, x: float) -> str:
        x = float(x) if self.double else float(np.float32(x))
        return self._all(self.scalar, f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}")

    def integer_constant(self, x: int) -> str:
        return self._all(self.integer, str(x))

    def truth(self, x: bool) -> str:
        return self._all("i1", "true" if x else "false")


class Writer:
    """Lines of one function's body."""

    def __init__(self, lanes: Lanes, prefix: str = "t"):
        self.lanes, self.lines, self.declared = lanes, [], set()
        self._prefix, self._count = prefix, 0
        self._turns: dict[str, str] = {}
        self.bases: dict[tuple[str, int], str] = {}  # addresses of arrays, once they are known

    def new(self) -> str:
        self._count += 1
        return f"%{self._prefix}{self._count}"

    def let(self, text: str, name: str | None = None) -> str:
        name = name or self.new()
        self.lines.append(f"  {name} = {text}")
        return name

    def at(self, base: str, offset: int) -> str:
        return base if offset == 0 else self.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def call(self, function: str, *x: str) -> str:
        """A call of an intrinsic on all lanes."""
        V = self.lanes.type
        self.declared.add(f"declare {V} @llvm.{function}.{self.lanes.suffix}({', '.join([V] * len(x))})")
        return f"call {V} @llvm.{function}.{self.lanes.suffix}({', '.join(f'{V} {y}' for y in x)})"

    def fma(self, a: str, b: str, c: str) -> str:
        return self.let(self.call("fma", a, b, c))

    def operation(self, name: str, op: Operation, ref: Callable[[Operand, bool], str], logical: bool) -> str:
        """One operation of a program; `ref(operand, logical)` names what it reads."""
        lanes, V, kind = self.lanes, self.lanes.type, op[0]
        if kind in _INSTRUCTIONS:
            return self.let(f"{_INSTRUCTIONS[kind]} {V} {ref(op[1], False)}, {ref(op[2], False)}", name)
        if kind == "neg":
            return self.let(f"fneg {V} {ref(op[1], False)}", name)
        if kind in ("sin", "cos"):
            x = ref(op[1], False)
            if x not in self._turns:
                self._turns[x] = self.let(f"call {{{V},{V}}} @sincos_{lanes.tag}({V} {x})")
            return self.let(f"extractvalue {{{V},{V}}} {self._turns[x]}, {0 if kind == 'sin' else 1}", name)
        if kind == "tanh":
            return self.let(f"call {V} @tanh_{lanes.tag}({V} {ref(op[1], False)})", name)
        if kind in _INTRINSICS:
            return self.let(self.call(_INTRINSICS[kind], *(ref(x, False) for x in op[1:])), name)
        if kind == "select":
            T = lanes.bit if logical else V
            chosen, otherwise = ref(op[3], logical), ref(op[2], logical)
            return self.let(f"select {lanes.bit} {ref(op[1], True)}, {T} {chosen}, {T} {otherwise}", name)
        if kind in ("and", "or", "xor"):
            return self.let(f"{kind} {lanes.bit} {ref(op[1], True)}, {ref(op[2], True)}", name)
        if kind == "not":
            return self.let(f"xor {lanes.bit} {ref(op[1], True)}, {lanes.truth(True)}", name)
        if kind == "is_finite":
            size = self.let(self.call("fabs", ref(op[1], False)))
            return self.let(f"fcmp olt {V} {size}, {lanes.constant(math.inf)}", name)
        if kind == "sign":
            x, one = ref(op[1], False), lanes.constant
            positive = self.let(f"fcmp ogt {V} {x}, {one(0.0)}")
            negative = self.let(f"fcmp olt {V} {x}, {one(0.0)}")
            rest = self.let(f"select {lanes.bit} {negative}, {V} {one(-1.0)}, {V} {x}")
            return self.let(f"select {lanes.bit} {positive}, {V} {one(1.0)}, {V} {rest}", name)
        return self.library(kind, [ref(x, False) for x in op[1:]], name)

    def library(self, kind: str, x: list[str], name: str | None = None) -> str:
        """A function of the C library, lane by lane."""
        lanes, s = self.lanes, self.lanes.scalar
        function = kind if lanes.double else f"{kind}f"
        self.declared.add(f"declare {s} @{function}({', '.join([s] * len(x))})")
        if lanes.width == 1:
            return self.let(f"call {s} @{function}({', '.join(f'{s} {y}' for y in x)})", name)
        found = "poison"
        for lane in range(lanes.width):
            parts = [self.let(f"extractelement {lanes.type} {y}, i64 {lane}") for y in x]
            value = self.let(f"call {s} @{function}({', '.join(f'{s} {y}' for y in parts)})")
            last = name if lane == lanes.width - 1 else None
            found = self.let(f"insertelement {lanes.type} {found}, {s} {value}, i64 {lane}", last)
        return found


def function(head: str, writer: Writer) -> str:
    """A function without result."""
    return f"define internal void {head} #0 {{\n" + "\n".join(writer.lines) + "\n  ret void\n}\n"


def sincos(lanes: Lanes, fused: bool) -> str:
    """@sincos(x) -> {sin x, cos x}, to 2 units in the last place.

    Near zero: x less the nearest multiple of pi/2 in three pieces, which fused operations subtract without rounding
    (Cody and Waite), then minimax polynomials. Large x (and all, on processors without fused operations): C library.
    """
    V, c, w = lanes.type, lanes.constant, Writer(lanes, "s")
    pair = f"{{{V},{V}}}"
    if lanes.double:
        magic, farthest = 6755399441055744.0, 1e9
        pieces = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
        S = (1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
             -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01)  # fmt: skip
        C = (-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
             2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02)  # fmt: skip
    else:
        magic, farthest = 12582912.0, 2e4
        pieces = (1.57079637050628662109375, -4.37113900018624283e-8, -1.71512451e-15)
        S = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
        C = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
    size = w.let(w.call("fabs", "%x"))
    far = w.let(f"fcmp ogt {V} {size}, {c(farthest if fused else -1.0)}")
    if lanes.width > 1:
        bits = w.let(f"bitcast {lanes.bit} {far} to i{lanes.width}")
        far = w.let(f"icmp ne i{lanes.width} {bits}, 0")
    w.lines.append(f"  br i1 {far}, label %slow, label %fast")
    w.lines.append("slow:")
    turned = w.let(f"insertvalue {pair} poison, {V} {w.library('sin', ['%x'])}, 0")
    both = w.let(f"insertvalue {pair} {turned}, {V} {w.library('cos', ['%x'])}, 1")
    w.lines.append(f"  ret {pair} {both}")
    w.lines.append("fast:")
    t = w.fma("%x", c(2 / math.pi), c(magic))
    turns = w.let(f"fsub {V} {t}, {c(magic)}")
    back = w.let(f"fneg {V} {turns}")
    quarter = w.let(f"bitcast {V} {t} to {lanes.integers}")
    r = "%x"
    for piece in pieces:
        r = w.fma(back, c(piece), r)
    z = w.let(f"fmul {V} {r}, {r}")

    def polynomial(coefficients):
        total = c(coefficients[0])
        for coefficient in coefficients[1:]:
            total = w.fma(total, z, c(coefficient))
        return total

    sine = w.fma(polynomial(S), w.let(f"fmul {V} {z}, {r}"), r)
    # cos = (1 - z/2) + rounding error of that + z^2 polynomial
    half = w.fma(z, c(-0.5), c(1.0))
    lost = w.fma(z, c(-0.5), w.let(f"fsub {V} {c(1.0)}, {half}"))
    tail = w.fma(w.let(f"fmul {V} {z}, {z}"), polynomial(C), lost)
    cosine = w.let(f"fadd {V} {half}, {tail}")
    I, i = lanes.integers, lanes.integer_constant
    odd = w.let(f"icmp ne {I} {w.let(f'and {I} {quarter}, {i(1)}')}, {i(0)}")
    found_s = w.let(f"select {lanes.bit} {odd}, {V} {cosine}, {V} {sine}")
    found_c = w.let(f"select {lanes.bit} {odd}, {V} {sine}, {V} {cosine}")
    up = i(62 if lanes.double else 30)

    def with_sign(value, number):  # the second bit of a number of quarter turns is the sign
        bit = w.let(f"shl {I} {w.let(f'and {I} {number}, {i(2)}')}, {up}")
        flipped = w.let(f"xor {I} {w.let(f'bitcast {V} {value} to {I}')}, {bit}")
        return w.let(f"bitcast {I} {flipped} to {V}")

    found_s = with_sign(found_s, quarter)
    found_c = with_sign(found_c, w.let(f"add {I} {quarter}, {i(1)}"))
    is_zero = w.let(f"fcmp oeq {V} %x, {c(0.0)}")  # keeps the sign of -0
    found_s = w.let(f"select {lanes.bit} {is_zero}, {V} %x, {V} {found_s}")
    first = w.let(f"insertvalue {pair} poison, {V} {found_s}, 0")
    both = w.let(f"insertvalue {pair} {first}, {V} {found_c}, 1")
    w.lines.append(f"  ret {pair} {both}")
    return _define(w, f"{pair} @sincos_{lanes.tag}({V} %x)")


def tanh(lanes: Lanes, fused: bool) -> str:
    """@tanh(x): a rational function near zero, 1 - 2 / (exp(2 x) + 1) elsewhere."""
    V, c, w = lanes.type, lanes.constant, Writer(lanes, "s")
    head = f"{V} @tanh_{lanes.tag}({V} %x)"
    if not fused:
        w.lines.append(f"  ret {V} {w.library('tanh', ['%x'])}")
        return _define(w, head)

    def polynomial(z, coefficients):
        total = c(coefficients[0])
        for coefficient in coefficients[1:]:
            total = w.fma(total, z, c(coefficient))
        return total

    z = w.let(f"fmul {V} %x, %x")
    p = polynomial(z, (-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3))
    q = polynomial(z, (1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3))
    near = w.fma(w.let(f"fmul {V} %x, {z}"), w.let(f"fdiv {V} {p}, {q}"), "%x")
    size = w.let(w.call("fabs", "%x"))
    large = w.let(f"fcmp ogt {V} {size}, {c(20.0)}")
    y = w.let(f"fmul {V} {w.let(f'select {lanes.bit} {large}, {V} {c(20.0)}, {V} {size}')}, {c(2.0)}")
    magic = 6755399441055744.0 if lanes.double else 12582912.0
    t = w.fma(y, c(1 / math.log(2)), c(magic))
    back = w.let(f"fneg {V} {w.let(f'fsub {V} {t}, {c(magic)}')}")
    r = w.fma(back, c(1.42860682030941723212e-6), w.fma(back, c(6.93145751953125e-1), y))
    rr = w.let(f"fmul {V} {r}, {r}")
    above = polynomial(rr, (1.26177193074810590878e-4, 3.02994407707441961300e-2, 0.99999999999999999991))
    above = w.let(f"fmul {V} {r}, {above}")
    below = polynomial(rr, (3.00198505138664455042e-6, 2.52448340349684104192e-3, 2.27265548208155028766e-1, 2.0))
    below = w.let(f"fsub {V} {below}, {above}")
    e = w.fma(w.let(f"fdiv {V} {above}, {below}"), c(2.0), c(1.0))
    I = lanes.integers
    power = w.let(f"shl {I} {w.let(f'bitcast {V} {t} to {I}')}, {lanes.integer_constant(52 if lanes.double else 23)}")
    scaled = w.let(f"add {I} {w.let(f'bitcast {V} {e} to {I}')}, {power}")
    e = w.let(f"bitcast {I} {scaled} to {V}")
    rest = w.let(f"fdiv {V} {c(2.0)}, {w.let(f'fadd {V} {e}, {c(1.0)}')}")
    away = w.let(w.call("copysign", w.let(f"fsub {V} {c(1.0)}, {rest}"), "%x"))
    found = w.let(f"select {lanes.bit} {w.let(f'fcmp olt {V} {size}, {c(0.625)}')}, {V} {near}, {V} {away}")
    unknown = w.let(f"fcmp uno {V} %x, %x")
    w.lines.append(f"  ret {V} {w.let(f'select {lanes.bit} {unknown}, {V} %x, {V} {found}')}")
    return _define(w, head)


def _define(w: Writer, head: str) -> str:
    body = "\n".join(w.lines)
    return f"{chr(10).join(sorted(w.declared))}\ndefine internal {head} #0 {{\n{body}\n}}\n"
