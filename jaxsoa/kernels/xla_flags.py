"""What XLA was asked for in its flags, where our own choices depend on it."""

from __future__ import annotations

import os

MULTI_OUTPUT_FUSION = "xla_cpu_use_multi_output_fusion"


def multi_output_fusion() -> bool:
    """Whether XLA was asked (see `fast_cpu`) to compute several results in one loop. Without it, a sweep's step is
    dozens of loops that compute shared terms again, and large batches are worth more than a warm cache."""
    return f"{MULTI_OUTPUT_FUSION}=true" in os.environ.get("XLA_FLAGS", "")
