"""LLVM IR to machine code that XLA can call, by llvmlite; compiled once, kept for the life of the process."""

from __future__ import annotations

import ctypes
import hashlib
import struct
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from jaxsoa.kernels import disk_cache, jax_interface, settings
from jaxsoa.kernels.llvm_values import Target

EMITTER = "2"
"""Version of what is emitted; part of the key of every kernel on disk."""

OPTIMIZATION = 1
"""Of code generation only: LLVM's passes on IR take longer than they save."""


class KernelNotice(UserWarning):
    """Kernels cannot be compiled here; everything works, more slowly."""


@cache
def _llvm() -> Any:
    """llvmlite's binding, ready for this processor, or None (said once)."""
    try:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        return llvm
    except Exception as error:
        warnings.warn(
            f"jaxsoa's kernels need llvmlite, which cannot be used here ({error}); JAX compiles everything instead.",
            KernelNotice,
            stacklevel=2,
        )
        return None


def available() -> bool:
    return settings.wanted() and _llvm() is not None


def why_not() -> str:
    """What is in the way where nothing is available."""
    return "llvmlite, which is missing" if settings.wanted() else f"{settings.KERNELS}=0"


class _Host(NamedTuple):
    triple: str
    cpu: str
    features: str
    target: Target


@cache
def _host() -> _Host:
    llvm = _llvm()
    triple, cpu = llvm.get_process_triple(), llvm.get_host_cpu_name()
    features: Any = {}
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # not known for this processor: only what its architecture always has
        pass
    x86 = triple.startswith(("x86_64", "i386", "i686"))
    wide = 64 if features.get("avx512f") else 32 if features.get("avx") else 16
    fused = bool(features.get("fma")) if x86 else True
    text = features.flatten() if features else ""
    return _Host(triple, cpu, text, Target(wide, fused, x86, "linux" in triple))


def target() -> Target:
    return _host().target


def _machine(llvm: Any) -> Any:
    host = _host()
    found = llvm.Target.from_triple(host.triple)
    return found.create_target_machine(cpu=host.cpu, features=host.features, opt=OPTIMIZATION, jit=True)


def _compile(texts: Sequence[str]) -> list[bytes]:
    """Object code of modules, several at a time."""
    llvm = _llvm()

    def one(text: str) -> bytes:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
        return _object(llvm, _machine(llvm), module)

    if len(texts) == 1:
        return [one(texts[0])]
    with ThreadPoolExecutor(settings.threads()) as pool:
        return list(pool.map(one, texts))


def _object(llvm: Any, machine: Any, module: Any) -> bytes:
    """`machine.emit_object(module)`, without the lock of llvmlite, which lets one thread at a time compile.

    LLVM itself asks only that threads share no context and no machine, and ours do not.
    """
    ffi = llvm.ffi
    try:
        unlocked = ffi.lib.LLVMPY_TargetMachineEmitToMemory._cfn
        start, size, dispose = (getattr(ffi.lib, f"LLVMPY_{name}") for name in _BUFFER)
    except AttributeError:  # another version of llvmlite
        return machine.emit_object(module)
    with ffi.OutputString() as error:
        buffer = unlocked(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        return ctypes.string_at(start(buffer), size(buffer))
    finally:
        dispose(buffer)


_BUFFER = ("GetBufferStart", "GetBufferSize", "DisposeMemoryBuffer")


def _packed(codes: Sequence[bytes]) -> bytes:
    """Several files in one: their number, their lengths, their content."""
    return struct.pack(f"<{len(codes) + 1}Q", len(codes), *map(len, codes)) + b"".join(codes)


def _unpacked(code: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("<Q", code)
    ends = np.cumsum([8 * (count + 1), *struct.unpack_from(f"<{count}Q", code, 8)])
    return [code[a:b] for a, b in pairwise(ends.tolist())]


class _Loaded:
    """All kernels of this process: their code is never freed, because compiled programs may call it at any time."""

    def __init__(self):
        self.lock = threading.RLock()
        self.names: dict[str, str] = {}
        self.engine: Any = None

    def load(self, texts: Sequence[str], threads: bool, partitionable: bool) -> tuple[str, bool]:
        """The registered target of modules whose entry is called @NAME, and whether they had to be compiled."""
        host = _host()
        options = (EMITTER, OPTIMIZATION, _llvm().llvm_version_info, host, *texts)
        key = hashlib.sha256(repr(options).encode()).hexdigest()
        with self.lock:
            if key in self.names:
                return self.names[key], False
            name = f"jaxsoa_{key[:24]}"
            code, compiled = disk_cache.load(key), False
            if code is None:
                code, compiled = _packed(_compile([text.replace("@NAME", f"@{name}") for text in texts])), True
                disk_cache.store(key, code)
            address = self._add(code, name, threads)
            jax_interface.register_target(name, address, partitionable)
            self.names[key] = name
            return name, compiled

    def _add(self, code: bytes, name: str, threads: bool) -> int:
        llvm = _llvm()
        if self.engine is None:
            self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly("", llvm.create_context()), _machine(llvm))
        for part in _unpacked(code):
            self.engine.add_object_file(llvm.ObjectFileRef.from_data(part))
        self.engine.finalize_object()
        if threads:
            place = self.engine.get_global_value_address(f"{name}_threads")
            ctypes.c_int64.from_address(place).value = settings.threads()
        return self.engine.get_function_address(name)


_loaded = _Loaded()


def load(texts: Sequence[str], *, threads: bool, partitionable: bool) -> tuple[str, bool]:
    """Compile modules (entry @NAME) and register them with XLA: (name of the target, whether compiled anew)."""
    return _loaded.load(texts, threads, partitionable)
