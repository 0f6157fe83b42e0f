"""Exported C: it compiles without a warning, by C and C++ compilers, and answers as the function does."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import kernels
from jaxsoa.io import c_sources
from jaxsoa.model.joints import JOINT_KINDS

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
KINDS = ("revolute", "universal")


def compiler(name):
    """A compiler by name; clang also as the package `ziglang` brings it."""
    command, found = [name], shutil.which(name) is not None
    if not found and name == "clang" and importlib.util.find_spec("ziglang"):
        command, found = [sys.executable, "-m", "ziglang", "cc"], True
    return pytest.param(command, id=name, marks=pytest.mark.skipif(not found, reason=f"no {name} here"))


def functions_of(robot):
    functions = {"forward": soa.forward_dynamics, "mass": soa.mass_matrix}
    if robot.nq == robot.nv:
        functions |= {
            "inverse": soa.inverse_dynamics,
            "linear": soa.linearize_forward_dynamics,
            "tool": partial(soa.jacobian, frame=robot.frame_names[-1]),
        }
    return functions


@pytest.fixture(scope="module", params=["fixed", "floating"])
def robot(request):
    if request.param == "fixed":
        return soa.models.random_tree(1, 2, KINDS)
    return soa.models.random_tree(2, 2, ("revolute",), floating_base=True)


@pytest.fixture(scope="module")
def written(robot, tmp_path_factory):
    """Every function, one of them in both types, as files: {(name, type): what export_c says}."""
    folder = tmp_path_factory.mktemp("c")
    chosen = [(name, "float64") for name in functions_of(robot)] + [("forward", "float32")]
    return {
        (name, dtype): soa.export_c(folder / f"{name}_{dtype}.c", functions_of(robot)[name], robot, dtype=dtype)
        for name, dtype in chosen
    }


def build(command, sources, library):
    done = subprocess.run([*command, "-shared", "-fPIC", "-o", str(library), *map(str, sources), "-lm"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[:2000]
    return ctypes.CDLL(str(library))


def call(library, exported, arguments, dtype):
    """Results of a C function, in arrays that hold NaN before."""
    given = [np.ascontiguousarray(x, dtype) for x in arguments]
    results = [np.full(shape, np.nan, dtype) for _, shape in exported.results]
    getattr(library, exported.name)(*(ctypes.c_void_p(x.ctypes.data) for x in (*given, *results)))
    return results


@pytest.mark.parametrize("command", [compiler("gcc"), compiler("clang")])
def test_compiled_c_equals_the_function(robot, written, tmp_path, command):
    library = build([*command, *STRICT], [e.source for e in written.values()], tmp_path / "library.so")
    rng = np.random.default_rng(0)
    state = [robot.random(jax.random.key(0)), *(jnp.asarray(rng.normal(size=robot.nv)) for _ in range(2))]
    expected = jax.jit(lambda *x: {n: f(robot, *x[: 1 if n in ("mass", "tool") else 3])
                                   for n, f in functions_of(robot).items()})(*state)  # fmt: skip
    for (function, dtype), exported in written.items():
        arguments = state[: len(exported.arguments)]
        assert [shape for _, shape in exported.arguments] == [x.shape for x in arguments]
        found = call(library, exported, arguments, dtype)
        for x, y in zip(found, jax.tree.leaves(expected[function]), strict=True):
            scale = np.abs(y).max()
            np.testing.assert_allclose(x, y, rtol=0, atol=scale * (1e-12 if dtype == "float64" else 1e-4))


@pytest.mark.slow
@pytest.mark.parametrize("command", [compiler("gcc"), compiler("clang")])
def test_all_joint_kinds(tmp_path, command):
    robot = soa.models.random_tree(3, 9, sorted(set(JOINT_KINDS) - {"fixed", "free"}), floating_base=True)
    v, tau = jax.random.normal(jax.random.key(1), (2, robot.nv))
    state = [robot.random(jax.random.key(0)), v, tau]
    for name, function in {"forward": soa.forward_dynamics, "inverse": soa.inverse_dynamics}.items():
        exported = soa.export_c(tmp_path / f"{name}.c", function, robot, dtype="float64")
        library = build([*command, *STRICT], [exported.source], tmp_path / f"{name}.so")
        (found,), expected = call(library, exported, state, "float64"), function(robot, *state)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
def test_a_program_of_cpp_calls_it(robot, written, tmp_path):
    exported = written["forward", "float64"]
    q = np.asarray(robot.random(jax.random.key(1)))
    numbers = ", ".join(map(repr, q.tolist()))
    (tmp_path / "main.cpp").write_text(f"""
#include <cstdio>
#include "{exported.name}.h"
int main() {{
    const double q[] = {{{numbers}}}, v[{robot.nv}] = {{}}, tau[{robot.nv}] = {{}};
    double a[{robot.nv}];
    {exported.name}(q, v, tau, a);
    for (double x : a) std::printf("%.17g\\n", x);
    std::printf("%d\\n", {exported.name.upper()}_OPERATIONS);
}}
""")
    folder = exported.source.parent
    subprocess.run(["gcc", *STRICT, "-c", "-o", "f.o", str(exported.source)], check=True, cwd=tmp_path)
    strict = ["g++", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{folder}", "main.cpp", "f.o", "-o", "main", "-lm"]
    subprocess.run(strict, check=True, cwd=tmp_path)
    *found, operations = subprocess.run(tmp_path / "main", capture_output=True, text=True, check=True).stdout.split()
    zero = jnp.zeros(robot.nv)
    expected = jax.jit(soa.forward_dynamics)(robot, q, zero, zero)
    np.testing.assert_allclose(np.array(found, float), expected, rtol=1e-10, atol=1e-10)
    assert int(operations) == sum(exported.operations.values()) > 100
    assert f"{operations} operations" in str(exported)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
def test_every_operation_nan_choices_and_matrices(tmp_path):
    """Functions of any arrays; NaN goes through, matrices are loops, results may take the place of arguments."""
    rng = np.random.default_rng(1)
    pattern = np.tril(rng.random((11, 11)) < 0.5)

    def function(robot, x, y):
        large = jnp.where(pattern, x, 0) @ y @ y.T
        near = jnp.clip(y[0], -0.9, 0.9)
        smooth = [getattr(jnp, f) for f in "sin cos tan sinh tanh exp arctan arcsinh expm1 cbrt floor round".split()]
        inner = [jnp.arcsin, jnp.arccos, jnp.arctanh, jax.scipy.special.erf, jnp.sign, jnp.abs]
        rows = [f(y[0]) for f in smooth] + [f(near) for f in inner]
        both = [jnp.maximum(x[0], y[0]), jnp.minimum(x[0], 1.0), jnp.arctan2(x[0], y[0]), jnp.fmod(x[0], y[1]),
                jnp.abs(x[0]) ** y[0], jnp.where((x[0] > 0) ^ ~(y[0] <= 0.3), x[0], -jnp.inf)]  # fmt: skip
        rows += both
        kernel = jax.vmap(kernels.door(lambda z: z * z.sum(), constants=()))(x[:2])
        return {"large": large, "rows": jnp.stack(rows), "finite": jnp.isfinite(x[0]), "kernel": kernel, "double": 2.0}

    exported = soa.export_c(
        tmp_path / "every.c", function, soa.models.pendulum(1), inputs=((11, 11), (11, 11)), dtype="float64"
    )
    library = build(["gcc", *STRICT], [exported.source], tmp_path / "library.so")
    x, y = rng.normal(size=(2, 11, 11))
    x[0, :3] = np.nan, np.inf, -0.0
    names = [name for name, _ in exported.results]
    assert names == ["x_double", "finite", "kernel", "large", "rows"]
    expected = jax.jit(function, static_argnums=0)(None, x, y)
    for name, found in zip(names, call(library, exported, (x, y), "float64"), strict=True):
        want = np.asarray(expected[name.removeprefix("x_")], float)
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12, err_msg=name)
    np.testing.assert_array_equal(np.isnan(expected["large"]).any(axis=1), [pattern[0, 0]] + [False] * 10)


def test_what_is_no_c_is_refused_with_the_reason(tmp_path):
    arm = soa.models.pendulum(2)
    path = tmp_path / "f.c"
    with pytest.raises(ValueError, match="eig cannot be written as C, because of the operation eigh"):

        def eig(robot, q):
            return jnp.linalg.eigvalsh(soa.mass_matrix(robot, q))

        soa.export_c(path, eig, arm)
    with pytest.raises(ValueError, match="results of type int"):
        soa.export_c(path, lambda robot, q: jnp.argmax(q), arm)
    with pytest.raises(ValueError, match="loop whose end depends on values"):
        soa.export_c(path, lambda robot, q: jax.lax.while_loop(lambda x: x[0] < 9, lambda x: x + 1, q), arm)
    with pytest.raises(ValueError, match="What shape has 'point' of f"):

        def f(robot, q, point):
            return q

        soa.export_c(path, f, arm)
    with pytest.raises(ValueError, match=re.escape("end in the name of a C function and .c")):
        soa.export_c(tmp_path / "double.c", soa.mass_matrix, arm)
    with pytest.raises(ValueError, match="letters 'q' and 'v' or shapes"):
        soa.export_c(path, soa.mass_matrix, arm, "z")
    with pytest.raises(ValueError, match="float32 or float64"):
        soa.export_c(path, soa.mass_matrix, arm, dtype="int8")
    with pytest.raises(KeyError, match="no frame named 'nowhere'"):
        soa.export_c(path, partial(soa.jacobian, frame="nowhere"), arm)
    assert not list(tmp_path.iterdir())  # nothing half written


def test_too_long_a_program_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(c_sources, "LONGEST_C", 100)
    with pytest.raises(ValueError, match="cannot be written as C, because of"):
        soa.export_c(tmp_path / "f.c", soa.forward_dynamics, soa.models.pendulum(3))
