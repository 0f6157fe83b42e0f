"""What all JAX libraries share: the operations built from a few functions of one state, compiled and run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from cases import ROLLOUT_DT, ROLLOUT_STEPS
from coordinates import arrange
from operations import ARGUMENTS, joint_part
from worker import CHECKED, Unsupported, load_states


@dataclass
class Dynamics:
    """A robot in one library; functions of one state in its own coordinates. What it lacks stays None."""

    family: str  # of coordinates
    joints: Sequence[str]  # in the library's order
    forward: Callable  # (q, v, tau) -> a
    inverse: Callable | None = None  # (q, v, a) -> tau
    mass: Callable | None = None  # (q,) -> M
    integrate: Callable | None = None  # (q, v, dt) -> q
    linearize: Callable | None = None  # (q, v, tau) -> (da/dq, da/dv, da/dtau); jacfwd where there is none
    perturb: Callable | None = None  # (q, v, tau, a) -> the derivative along (v, a, tau); jvp where there is none
    rollout: Callable | None = None  # (q, v) -> q at the end; a scan over semi-implicit Euler steps where there is none
    step: Callable | None = None  # (q, v) -> (q, v) a step later, for `scan`
    model: Any = None  # what `of` takes
    of: Callable | None = None  # model -> Dynamics, for a model that is an argument of what is compiled


class JaxContender:
    """`load(urdf, floating)` returns `Dynamics`; `wrap` makes a batched function of one of a single state."""

    def __init__(
        self,
        version: str,
        settings: str,
        load: Callable[[str, bool], Dynamics],
        wrap: Callable[[Callable], Callable] = jax.vmap,
        place: Callable[[np.ndarray], Any] = jnp.asarray,
        divisor: int = 1,
        most: int | None = None,
        way: str | None = None,
    ):
        """`way`: "argument", the model is an argument of `jit`; "eager", no `jit`; "empty", an addition instead."""
        self.version, self.settings, self.load = version, settings, load
        self.wrap, self.place, self.divisor, self.most = wrap, place, divisor, most
        self.way = way
        self._loaded: dict[str, Dynamics] = {}

    def prepare(self, case: dict[str, Any]):
        if case["batch"] % self.divisor:
            raise Unsupported(f"a batch of {case['batch']} cannot be shared out over {self.divisor} devices")
        if self.most is not None and case["batch"] > self.most:
            raise Unsupported("settings for one evaluation at a time")
        if case["urdf"] not in self._loaded:
            self._loaded = {case["urdf"]: self.load(case["urdf"], case["floating"])}
        robot = self._loaded[case["urdf"]]
        states = arrange(load_states(case), robot.family, case["floating"], case["joints"], robot.joints)
        single = case["batch"] == 1
        base_q, base_v = (states[key].shape[1] - len(robot.joints) for key in ("q", "v"))
        function = build(robot, case["operation"], base_v)
        arrays = [states[key].astype(case["dtype"]) for key in ARGUMENTS[case["operation"]]]
        arguments = [jnp.asarray(x[0]) if single else self.place(x) for x in arrays]

        if self.way == "eager":
            if not single:
                raise Unsupported("calls outside of jit are measured one state at a time")
            start = time.perf_counter()
            jax.block_until_ready(function(*arguments))
            record = {"compile_seconds": time.perf_counter() - start}

            def eager():
                return jax.block_until_ready(function(*arguments))

            return eager, lambda: self._answer(case, robot, base_q, base_v, single, eager()), record
        if self.way == "empty":
            function = _empty
        if self.way == "argument":
            if robot.of is None:
                raise Unsupported("no model that could be an argument")
            of, model, operation = robot.of, robot.model, case["operation"]

            def function(model, *state):
                return build(of(model), operation, base_v)(*state)

            if not single:
                function = jax.vmap(function, in_axes=(None, *(0 for _ in arguments)))
            arguments = [model, *arguments]
        elif not single:
            function = self.wrap(function)

        start, processor = time.perf_counter(), time.process_time()
        lowered = jax.jit(function).lower(*arguments)
        traced = time.perf_counter()
        compiled = lowered.compile()
        done, processor = time.perf_counter(), time.process_time() - processor

        def run():
            return jax.block_until_ready(compiled(*arguments))

        def answer() -> np.ndarray:
            if self.way == "empty":
                return np.zeros(0)
            return self._answer(case, robot, base_q, base_v, single, run())

        record = {"compile_seconds": done - start, "trace_seconds": traced - start, **_memory(compiled)}
        record["compile_processor_seconds"] = processor
        if self.way == "empty":
            record["answerless"] = True
        return run, answer, record

    def _answer(self, case, robot: Dynamics, base_q: int, base_v: int, single: bool, result) -> np.ndarray:
        result = jax.tree.map(lambda x: np.asarray(x)[None] if single else np.asarray(x)[:CHECKED], result)
        return joint_part(case["operation"], result, base_q, base_v, case["joints"], robot.joints)


def _empty(*state):
    return state[-1] + state[-2]


def build(robot: Dynamics, operation: str, base: int) -> Callable:
    """The operation as a function of one state; `base` is the number of the base's velocities."""
    if operation == "forward_dynamics":
        return robot.forward
    if operation == "inverse_dynamics":
        return _offered(robot.inverse, operation)
    if operation == "mass_matrix":
        return _offered(robot.mass, operation)
    if operation == "linearization":
        return robot.linearize or jax.jacfwd(robot.forward, argnums=(0, 1, 2))
    if operation == "perturbation":
        return robot.perturb or (
            lambda q, v, tau, a: jax.jvp(robot.forward, (q, v, tau), (v, a, tau))[1]  # q and v alike: no free base
        )
    if operation == "gradient":
        return jax.grad(lambda q, v, tau: jnp.sum(robot.forward(q, v, tau)[base:] ** 2), argnums=(0, 1, 2))
    if operation == "rollout":
        return robot.rollout or _rollout(robot)
    if operation == "scan":
        return _scan(_offered(robot.step, operation))
    raise Unsupported(f"no operation {operation!r}")


def _offered(function: Callable | None, operation: str) -> Callable:
    if function is None:
        raise Unsupported(f"no {operation.replace('_', ' ')} in this library")
    return function


def _rollout(robot: Dynamics) -> Callable:
    integrate = _offered(robot.integrate, "integration of positions")

    def final(q, v):
        def step(state, _):
            q, v = state
            v = v + ROLLOUT_DT * robot.forward(q, v, jnp.zeros_like(v))
            return (integrate(q, v, ROLLOUT_DT), v), None

        return jax.lax.scan(step, (q, v), length=ROLLOUT_STEPS)[0][0]

    return final


def _scan(step: Callable) -> Callable:
    def final(q, v):
        return jax.lax.scan(lambda state, _: (step(*state), None), (q, v), length=ROLLOUT_STEPS)[0][0]

    return final


def _memory(compiled) -> dict[str, int]:
    try:
        analysis = compiled.memory_analysis()
        return {
            "temporary_bytes": int(analysis.temp_size_in_bytes),
            "argument_bytes": int(analysis.argument_size_in_bytes),
            "output_bytes": int(analysis.output_size_in_bytes),
        }
    except Exception:  # not every backend offers it
        return {}
