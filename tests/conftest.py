"""Shared by all tests: double precision, a hypothesis profile without deadlines (compilation takes time), robots."""

from __future__ import annotations

import os

# Tests compile much and run little: without LLVM's optimizations the suite takes about two thirds of the time. Set
# XLA_FLAGS (to nothing, say) to test what users compile.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax

jax.config.update("jax_enable_x64", True)

import hypothesis  # noqa: E402

hypothesis.settings.register_profile(
    "jaxsoa",
    deadline=None,
    print_blob=True,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("jaxsoa")
