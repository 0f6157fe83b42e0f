"""Sharded batches, on one device here and on eight virtual ones in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsoa import simulate


def test_one_device_maps_and_differentiates():
    """The machinery alone, on functions that compile at once."""
    x = np.linspace(0.0, 1.0, 7)
    mapped = simulate.sharded_map(lambda a, x: {"y": a * x**2}, chunk=3)
    np.testing.assert_allclose(simulate.to_host(mapped(2.0, x))["y"], 2 * x**2, rtol=1e-12)
    value, gradient = simulate.sharded_value_and_grad(lambda a, x: jnp.sin(a * x), chunk=2)(jnp.float64(2.0), x)
    np.testing.assert_allclose(value, np.sin(2 * x).mean(), rtol=1e-12)
    np.testing.assert_allclose(gradient, (x * np.cos(2 * x)).mean(), rtol=1e-12)


def test_batches_that_do_not_match_are_refused():
    mapped = simulate.sharded_map(lambda a, x, y: x + y)
    for x, y in ((np.zeros(3), np.zeros(4)), (np.zeros(0), np.zeros(0)), (np.float64(1), np.zeros(1))):
        with pytest.raises(ValueError, match="leading batch axis"):
            mapped(None, x, y)


@pytest.mark.slow
def test_eight_devices_equal_a_plain_vmap():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    script = Path(__file__).parent / "check_devices.py"
    environment = {**os.environ, "XLA_FLAGS": flags}
    done = subprocess.run([sys.executable, str(script), "8"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "8 devices: all equal" in done.stdout
