"""Exported dynamics: the same answers in a process that does not import the package."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jaxsoa as soa
from jaxsoa.io.export import SEAL

ROBOT = soa.models.puma560()


def states(*lead):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=(*lead, 6))) for _ in range(3)]


def test_a_function_survives_its_file(tmp_path):
    path = tmp_path / "forward.bin"
    soa.export_function(path, soa.forward_dynamics, ROBOT)
    q, v, tau = states()
    expected = jax.jit(soa.forward_dynamics)(ROBOT, q, v, tau)
    np.testing.assert_allclose(soa.load_function(path)(q, v, tau), expected, rtol=1e-12)


def test_batches_and_named_results(tmp_path):
    path = tmp_path / "linear.bin"
    soa.export_function(path, soa.linearize_forward_dynamics, ROBOT, batch=3)
    arguments = states(3)
    got = soa.load_function(path)(*arguments)
    expected = jax.jit(jax.vmap(soa.linearize_forward_dynamics, in_axes=(None, 0, 0, 0)))(ROBOT, *arguments)
    for name in ("wrt_q", "wrt_v", "wrt_tau"):
        np.testing.assert_allclose(got[name], getattr(expected, name), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_one_program_for_several_platforms_and_every_batch_size():
    """A batch of unknown size, lowered for machines that are not there."""
    arm = soa.models.planar_arm(2)
    (size,) = jax.export.symbolic_shape("b")
    shape = jax.ShapeDtypeStruct((size, 2), jnp.float64)
    rng = np.random.default_rng(0)
    state = [jnp.asarray(rng.normal(size=(3, 2))) for _ in range(3)]

    def both(q, v, tau):
        return soa.forward_dynamics(arm, q, v, tau), *soa.linearize_forward_dynamics(arm, q, v, tau)

    batched = jax.jit(jax.vmap(both))
    checks = [jax.export.DisabledSafetyCheck.custom_call("LayoutConstraint")]
    program = jax.export.export(batched, platforms=["cpu", "cuda", "tpu"], disabled_checks=checks)(shape, shape, shape)
    assert program.platforms == ("cpu", "cuda", "tpu")
    for n in (3, 1):
        given = [x[:n] for x in state]
        for found, expected in zip(program.call(*given), batched(*given), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_a_controller_needs_jax_only(tmp_path):
    path = tmp_path / "mass.bin"
    soa.export_function(path, soa.mass_matrix, ROBOT, "q")
    program = (
        "import sys, jax, numpy as np; jax.config.update('jax_enable_x64', True)\n"
        f"f = jax.export.deserialize(bytearray(open({str(path)!r}, 'rb').read()))\n"
        "print(repr(np.asarray(f.call(np.zeros(6))).trace()), 'jaxsoa' in sys.modules)"
    )
    script = f"import jax.export\n{program}"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    expected = float(jnp.trace(jax.jit(soa.mass_matrix)(ROBOT, jnp.zeros(6))))
    value, imported = out.stdout.split()
    assert imported == "False"
    assert float(value.removeprefix("np.float64(").removesuffix(")")) == pytest.approx(expected, rel=1e-12)


def test_bad_files_and_arguments(tmp_path):
    with pytest.raises(ValueError, match="letters"):
        soa.export_function(tmp_path / "x", soa.mass_matrix, ROBOT, "qx")
    (tmp_path / "junk").write_bytes(b"not a program")
    with pytest.raises(soa.ModelError, match="junk"):
        soa.load_function(tmp_path / "junk")
    with pytest.raises(soa.ModelError, match="no regular file"):
        soa.load_function(tmp_path)
    with pytest.raises(FileNotFoundError):
        soa.load_function(tmp_path / "nothing")


def test_files_that_cannot_run_here_are_told_when_they_are_loaded(tmp_path):
    """For another platform or precision, cut or damaged anywhere: a sentence at load, not a crash at the first call."""
    path = tmp_path / "gravity.bin"
    robot = soa.models.pendulum(1)
    soa.export_function(path, soa.potential_energy, robot, "q")
    content = path.read_bytes()
    soa.load_function(path)
    with jax.enable_x64(False), pytest.raises(soa.ModelError, match="double precision, which is off"):
        soa.load_function(path)
    for at in range(0, len(content), len(content) // 25):
        path.write_bytes(content[:at])
        with pytest.raises(soa.ModelError, match="cut off"):
            soa.load_function(path)
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(soa.ModelError, match=r"damaged|cut off"):
            soa.load_function(path)
    exported = export.export(jax.jit(lambda q: 2 * q), platforms=["tpu"])(jax.ShapeDtypeStruct((1,), jnp.float32))
    program = bytes(exported.serialize())
    path.write_bytes(program + SEAL + hashlib.sha256(program).digest())
    with pytest.raises(soa.ModelError, match="exported for tpu, and JAX runs on cpu"):
        soa.load_function(path)
