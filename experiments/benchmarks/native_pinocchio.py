"""Pinocchio without Python: called from C++ loops, from its templates for this processor, and as C that CasADi writes.

The programs in `native/` are compiled when they are first asked for and kept in the user's cache folder. They need g++
and, beside `pin`, headers: `pip install cmeel-eigen casadi`. The templates take minutes to compile.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent / "native"
OPERATIONS = {"forward_dynamics": 0, "inverse_dynamics": 1, "mass_matrix": 2, "linearization": 3, "rollout": 4}
DEFINED = ("-DNDEBUG", "-DBOOST_MPL_CFG_NO_PREPROCESSED_HEADERS", "-DBOOST_MPL_LIMIT_LIST_SIZE=30",
           "-DBOOST_MPL_LIMIT_VECTOR_SIZE=30", "-DBOOST_FUSION_INVOKE_MAX_ARITY=12")  # fmt: skip
FLAGS = {
    "loops": ("-O2", "-DPINOCCHIO_ENABLE_TEMPLATE_INSTANTIATION"),  # the library's own instances
    "templates": ("-O3", "-march=native"),
}


class Missing(Exception):
    """What has to be installed."""


def _prefix() -> Path:
    import pinocchio

    return next(p for p in Path(pinocchio.__file__).parents if p.name == "cmeel.prefix")


def _version() -> str:
    import pinocchio

    return pinocchio.__version__


def _eigen() -> Path:
    for folder in map(Path, sys.path):
        if (folder / "cmeel.prefix" / "include" / "eigen3").is_dir():
            return folder / "cmeel.prefix" / "include" / "eigen3"
    raise Missing("headers of Eigen (pip install cmeel-eigen)")


def _kept(name: str, command: list[str], sources: list[Path], version: str = "") -> Path:
    """The output of a compiler, made once of sources of this content; `command` without the output."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxsoa" / "benchmarks"
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    options = [x for x in command if "/" not in x]
    content = b"".join(path.read_bytes() for path in sources) + repr((options, version)).encode()
    target = base / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"
    if not target.exists():
        new = target.with_suffix(f".{os.getpid()}")
        try:
            done = subprocess.run([*command, "-o", str(new)], capture_output=True, text=True)
        except FileNotFoundError as error:
            raise Missing("a C++ compiler") from error
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stderr[-500:]}")
        os.replace(new, target)
    return target


def _cpp(source: str, kind: tuple[str, ...], more: tuple[str, ...]) -> list[str]:
    prefix = _prefix()
    include = (f"-I{prefix / 'include'}", f"-I{_eigen()}")
    link = (f"-L{prefix / 'lib'}", "-lpthread", f"-Wl,-rpath,{prefix / 'lib'}")
    return ["g++", "-std=c++17", *kind, *DEFINED, str(HERE / source), *include, *link, *more]


def library(kind: str) -> ctypes.CDLL:
    """`kind`: "loops" (the library as installed) or "templates" (compiled for this processor)."""
    more = ("-shared", "-fPIC", *(("-lpinocchio_default",) if kind == "loops" else ()))
    command = _cpp("loops.cpp", FLAGS[kind], more)
    found = ctypes.CDLL(str(_kept(kind, command, [HERE / "loops.cpp", HERE / "model.hpp"], _version())))
    found.load.restype = ctypes.c_void_p
    return found


def write_model(model, path: Path) -> None:
    """A Pinocchio model as numbers, a joint a line."""
    lines = [str(model.njoints - 1)]
    for k in range(1, model.njoints):
        at, body = model.jointPlacements[k], model.inertias[k]
        numbers = np.concatenate([at.rotation.ravel(), at.translation, [body.mass], body.lever, body.inertia.ravel()])
        text = " ".join(repr(float(x)) for x in numbers)
        lines.append(f"{model.parents[k]} {model.joints[k].shortname()} {text}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _address(x: np.ndarray | None):
    return None if x is None else x.ctypes.data_as(ctypes.c_void_p)


class Loops:
    """Batches of states by C++ loops over Pinocchio's functions."""

    def __init__(self, kind: str, model, folder: Path, threads: int):
        path = folder / f"model-{os.getpid()}.txt"
        write_model(model, path)
        self.library, self.threads = library(kind), threads
        self.loaded = ctypes.c_void_p(self.library.load(str(path).encode(), threads))
        if not self.loaded:
            raise Missing("joints other than revolute ones along an axis")

    def run(self, operation: str, q, v, x, out, steps: int = 0, dt: float = 0.0) -> None:
        self.library.run(
            self.loaded, OPERATIONS[operation], self.threads, ctypes.c_long(len(q)), *map(_address, (q, v, x, out)),
            ctypes.c_long(steps), ctypes.c_double(dt),
        )  # fmt: skip


class Generated:
    """The same by C that CasADi writes of Pinocchio's algorithms on its symbols; one thread."""

    def __init__(self, model, folder: Path, operation: str):
        spec = importlib.util.find_spec("casadi")
        if spec is None or not spec.submodule_search_locations:
            raise Missing("casadi")
        casadi = Path(spec.submodule_search_locations[0])
        command = _cpp("casadi_functions.cpp", ("-O0",),
                       (f"-I{casadi / 'include'}", f"-L{casadi}", "-lcasadi", f"-Wl,-rpath,{casadi}"))  # fmt: skip
        writer = _kept("casadi", command, [HERE / "casadi_functions.cpp", HERE / "model.hpp"], _version())
        path = folder / f"model-{os.getpid()}.txt"
        write_model(model, path)
        subprocess.run([str(writer), str(path), str(folder), operation], check=True, capture_output=True)
        source = folder / f"{operation}.c"
        with source.open("a", encoding="utf-8") as file:
            file.write(_LOOP.replace("FUNCTION", operation))
        command = ["gcc", "-O2", "-march=native", "-shared", "-fPIC", str(source), "-lm"]
        self.library = ctypes.CDLL(str(_kept(operation, command, [source])))

    def run(self, q, v, x, outs) -> None:
        sizes = (q.shape[1], v.shape[1], x.shape[1], *(out[0].size for out in outs))
        rest = [_address(out) for out in outs] + [None] * (3 - len(outs))
        widths = (ctypes.c_long * 6)(*sizes)
        self.library.loop(ctypes.c_long(len(q)), widths, *map(_address, (q, v, x)), *rest)


_LOOP = """
void loop(long n, const long *size, const double *q, const double *v, const double *x,
          double *a, double *b, double *c) {
  const double *in[16];
  double *out[16];
  static double w[4000000];
  static casadi_int iw[4000000];
  for (long k = 0; k < n; ++k) {
    in[0] = q + k * size[0]; in[1] = v + k * size[1]; in[2] = x + k * size[2];
    out[0] = a + k * size[3];
    if (b) { out[1] = b + k * size[4]; out[2] = c + k * size[5]; }
    FUNCTION(in, out, iw, w, 0);
  }
}
"""
