"""What to ask of JAX and XLA before they start, for speed on a CPU."""

from __future__ import annotations

import os
import re

import jax

from jaxsoa.kernels.memory import keep
from jaxsoa.kernels.xla_flags import MULTI_OUTPUT_FUSION, multi_output_fusion


def fast_cpu(devices: int | None = None, *, batches: bool = True, waiting: bool = False) -> None:
    """Compile for speed on a CPU. Call it first, before JAX has computed anything.

    `batches` (the default) is for the throughput of large batches; `fast_cpu(batches=False, waiting=True)` is for one
    evaluation at a time, as in a control loop.

    It adds an XLA flag of this process (children inherit it) that lets one loop compute several results. XLA leaves it
    off by default and calls it an option of its own; it helps batches of what is not compiled into kernels, because
    the steps of a sweep share most of their terms. In a shell the same is

        XLA_FLAGS=--xla_backend_extra_options=xla_cpu_use_multi_output_fusion=true

    Loops are not unrolled (`xla_cpu_disable_loop_unrolling` of the same option): they run as fast, and compile faster.

    Vectors may be as wide as the processor has them; XLA stops at 256 bits unless asked.

    It also tells glibc's allocator (on Linux) to keep freed memory, at once; a program that has a kernel with results
    of over 32 MiB does so itself (unless `JAXSOA_KEEP_MEMORY=0` is in the environment).

    `devices` splits the CPU into that many JAX devices (one per core is best), for `jax.shard_map` or
    `soa.sharded_rollout`: a batch shared out over devices keeps all cores busy where one program does not.

    >>> soa.fast_cpu()  # first of all, before JAX has computed anything  # doctest: +SKIP
    """
    _must_come_first("fast_cpu")
    flags = os.environ.get("XLA_FLAGS", "")
    if devices is not None:
        jax.config.update("jax_num_cpu_devices", devices)
        if "--xla_cpu_multi_thread_eigen" not in flags:
            # Devices already fill the cores. If each of them also shares out its loops, they wait for each other's
            # threads, on two cores forever.
            flags = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    if "--xla_cpu_prefer_vector_width" not in flags:
        flags = f"{flags} --xla_cpu_prefer_vector_width=512".strip()
    os.environ["XLA_FLAGS"] = flags
    keep()
    if multi_output_fusion():
        return
    # Loops over a chunk are long enough as they are; unrolled, they take longer to compile and no less to run.
    option = f"{MULTI_OUTPUT_FUSION}=true,xla_cpu_disable_loop_unrolling"
    extra = re.search(r"--xla_backend_extra_options=(\S*)", flags)
    if extra is None:
        flags = f"{flags} --xla_backend_extra_options={option}".strip()
    else:
        flags = flags.replace(extra.group(0), f"{extra.group(0)},{option}")
    os.environ["XLA_FLAGS"] = flags


def low_latency_cpu() -> None:
    """Answer soon rather than much, for control loops. Call it first, before JAX has computed anything.

    JAX hands every computation on a CPU to another thread, so that Python can go on; waking that thread takes longer
    than the dynamics of a robot. This runs computations in the thread that asks for them. The same as JAX's own setting
    `jax_cpu_enable_async_dispatch=False`. Large batches want `fast_cpu` instead.

    >>> soa.low_latency_cpu()  # first of all, before JAX has computed anything  # doctest: +SKIP
    """
    _must_come_first("low_latency_cpu")
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def _must_come_first(name: str) -> None:
    # JAX cannot be asked whether it has started, but from then on it refuses another number of CPU devices.
    devices = getattr(jax.config, "jax_num_cpu_devices")  # noqa: B009
    try:
        jax.config.update("jax_num_cpu_devices", devices + 2)
    except RuntimeError:
        message = f"{name} must be called before JAX computes anything: XLA is told once, when it starts."
        raise RuntimeError(message) from None
    jax.config.update("jax_num_cpu_devices", devices)
