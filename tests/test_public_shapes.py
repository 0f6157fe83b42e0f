"""Shapes and types of every public function of a robot, read from its own signature.

Right arguments of any kind (NumPy, JAX, lists; single, double, integer) give results of the annotated shape and a
floating-point type; a wrong shape is an error that names the argument. Everything is traced, nothing is compiled.
"""

from __future__ import annotations

import inspect
import types
import typing

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

import jaxsoa as soa


def small_robot() -> soa.Multibody:
    """Different numbers for everything that could be mistaken for another: 3 links, nv 8, nq 9."""
    builder = soa.Builder("small")
    builder.link("a", joint="free", mass=1.0, inertia=np.eye(3))
    builder.link("b", parent="a", joint="revolute", mass=1.0, inertia=np.eye(3), position=(1, 0, 0))
    builder.link("c", parent="b", joint="prismatic", mass=1.0, inertia=np.eye(3), axis=(1, 0, 0))
    return builder.build()


ROBOT = small_robot()
ROBOTS = {"float64": ROBOT, "float32": ROBOT.astype(jnp.float32)}
DIMENSIONS = {"nq": 9, "nv": 8, "n": 3, "ten_n": 30, "six_m": 12, "f": 4}
#: What functions take beside arrays.
OTHERS = {"frame": "c", "frames": ("b", "c"), "dt": 0.01, "control": None, "steps": 2}
#: Batches of robots on several devices, and functions whose arguments are no arrays, have tests of their own.
LEFT_OUT = {"sharded_rollout", "base_parameters", "prescribed_mask"}
LEFT_OUT |= {"external_forces", "inverse_kinematics", "differential_inverse_kinematics"}


def shape_of(annotation) -> tuple[int, ...] | None:
    """The shape that a jaxtyping annotation (or its union with None) states, if it is one of those above."""
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    for option in typing.get_args(annotation) if union else (annotation,):
        words = getattr(option, "dim_str", None)
        if words is not None and all(word.isdigit() or word in DIMENSIONS for word in words.split()):
            return tuple(int(word) if word.isdigit() else DIMENSIONS[word] for word in words.split())
    return None


def functions() -> dict[str, dict[str, tuple[int, ...]]]:
    """Public functions whose first argument is a robot: name to shapes of their array arguments."""
    found = {}
    for name, function in vars(soa).items():
        if not inspect.isfunction(function) or name in LEFT_OUT:
            continue
        parameters = list(inspect.signature(function).parameters)
        if parameters[:1] != ["robot"]:
            continue
        hints = typing.get_type_hints(function)
        shapes = {p: shape_of(hints.get(p)) for p in parameters}
        shapes = {p: shape for p, shape in shapes.items() if shape is not None}
        if shapes:
            found[name] = shapes
    return found


FUNCTIONS = functions()


def test_the_functions_are_found():
    assert len(FUNCTIONS) >= 35
    assert FUNCTIONS["forward_dynamics"] == {"q": (9,), "v": (8,), "tau": (8,), "f_ext": (3, 6)}
    assert FUNCTIONS["with_inertial_parameters"] == {"parameters": (30,)}


def call(name: str, robot: soa.Multibody, arrays: dict):
    """The shapes of a function's result."""
    function = getattr(soa, name)
    parameters = inspect.signature(function).parameters
    others = {key: value for key, value in OTHERS.items() if key in parameters and key not in arrays}
    return eqx.filter_eval_shape(lambda: function(robot, **arrays, **others))


def value_for(parameter: str, shape: tuple[int, ...], kind: str):
    """An argument of the given shape: ones (a valid quaternion, when normalized)."""
    if parameter == "prescribed":
        return np.ones(shape, bool)
    if kind == "list":
        return np.ones(shape).tolist()
    if kind.startswith("jax "):
        return jnp.ones(shape, kind.removeprefix("jax "))
    return np.ones(shape, kind)


def check_annotated(result, annotation, where: str) -> None:
    """The result, or each field of it that has an annotation, is of the shape that it says."""
    shape = shape_of(annotation)
    if shape is not None:
        assert result.shape == shape, f"{where}: {result.shape} instead of {shape}"
    elif typing.get_origin(annotation) is tuple:
        for k, (part, hint) in enumerate(zip(result, typing.get_args(annotation), strict=True)):
            check_annotated(part, hint, f"{where}[{k}]")
    elif inspect.isclass(annotation) and annotation not in (soa.Multibody, soa.Bundle):
        for field, hint in typing.get_type_hints(annotation).items():
            if hasattr(result, field):
                check_annotated(getattr(result, field), hint, f"{where}.{field}")


FLOATS = ("float64", "float32", "jax float64", "jax float32", "float16", "list")
INTEGERS = ("int64", "int32", "bool", "jax int32", "uint8")


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=2)
@given(data=st.data())
def test_right_arguments_of_any_type(name: str, data):
    model = data.draw(st.sampled_from(sorted(ROBOTS)), label="robot")
    kinds = {p: data.draw(st.sampled_from(FLOATS + INTEGERS), label=p) for p in FUNCTIONS[name]}
    arrays = {p: value_for(p, shape, kinds[p]) for p, shape in FUNCTIONS[name].items()}
    if data.draw(st.booleans(), label="without f_ext"):
        arrays.pop("f_ext", None)
    result = call(name, ROBOTS[model], arrays)
    check_annotated(result, typing.get_type_hints(getattr(soa, name)).get("return"), name)
    for leaf in jax.tree.leaves(eqx.filter(result, lambda x: isinstance(x, jax.ShapeDtypeStruct))):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            assert leaf.dtype == ROBOTS[model].dtype, (name, leaf.dtype)  # the model's type is that of everything


@pytest.mark.parametrize("name", FUNCTIONS)
def test_single_precision_in_and_out_with_the_annotated_shape(name: str):
    """Double precision anywhere on the way would show: it is what the tests run with."""
    dtype = "float32"
    arrays = {p: value_for(p, shape, dtype) for p, shape in FUNCTIONS[name].items()}
    result = call(name, ROBOTS[dtype], arrays)
    check_annotated(result, typing.get_type_hints(getattr(soa, name)).get("return"), name)
    for leaf in jax.tree.leaves(eqx.filter(result, lambda x: isinstance(x, jax.ShapeDtypeStruct))):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            assert leaf.dtype == dtype, (name, leaf)


@st.composite
def other_shapes(draw, shape: tuple[int, ...]):
    """Shapes near the right one, and others."""
    near = st.sampled_from(
        [(), (0,), shape[:-1], (*shape, 1), (1, *shape), (2, *shape), tuple(n + 1 for n in shape), shape[::-1],
         (shape[0] - 1, *shape[1:]), (8,), (9,), (3,), (3, 8), (1,)]
    )  # fmt: skip
    far = st.lists(st.integers(0, 12), max_size=4).map(tuple)
    return draw((near | far).filter(lambda other: other != shape))


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=12)
@given(data=st.data())
def test_a_wrong_shape_is_an_error_that_names_the_argument(name: str, data):
    shapes = FUNCTIONS[name]
    wrong = data.draw(st.sampled_from(sorted(shapes)), label="argument")
    shape = data.draw(other_shapes(shapes[wrong]), label="shape")
    assume(not (wrong == "x" and len(shape) == 2 and shape[0] == 8))  # M x and its inverse take columns too
    kind = data.draw(st.sampled_from(("float64", "jax float32", "int64")), label="type")
    arrays = {p: value_for(p, s, "float64") for p, s in shapes.items()}
    arrays[wrong] = np.ones(shape, bool) if wrong == "prescribed" else value_for(wrong, shape, kind)
    with pytest.raises((ValueError, TypeError), match=rf"\b{wrong}\b"):
        call(name, ROBOT, arrays)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("value", ["text", None, object(), {"a": 1}], ids=["text", "None", "object", "dict"])
def test_what_is_no_array_is_a_type_or_value_error(name: str, value):
    shapes = FUNCTIONS[name]
    first = next(iter(shapes))
    arrays = {p: value_for(p, s, "float64") for p, s in shapes.items()} | {first: value}
    with pytest.raises((ValueError, TypeError)):
        call(name, ROBOT, arrays)
