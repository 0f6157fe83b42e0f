"""Rollouts: controllers, actuators, what is recorded, what reverse mode keeps, progress, and what is refused."""

from __future__ import annotations

import io
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import simulate
from jaxsoa.simulate.segments import segment_length, segmented_scan

DT, STEPS = 0.01, 12


@pytest.fixture(scope="module")
def robot():
    return soa.models.cart_pole()


@pytest.fixture(scope="module")
def start(robot):
    return robot.neutral() + 0.1, jnp.zeros(robot.nv)


def gain(time, q, v):
    return -3.0 * q - v + jnp.sin(time)


@pytest.fixture(scope="module")
def closed(robot, start):
    return jax.jit(lambda q, v: soa.rollout(robot, q, v, gain, DT, steps=STEPS))(*start)


def test_the_loop_it_stands_for(robot, start, closed):
    """A plain Python loop over `step`, its torques handed back as an array, and the same from a batch of one."""
    step, gained = jax.jit(lambda q, v, tau: soa.step(robot, q, v, tau, DT)), jax.jit(gain)
    (q, v), torques, qs = start, [], []
    for k in range(STEPS):
        torques.append(gained(k * DT, q, v))
        q, v = step(q, v, torques[-1])
        qs.append(q)
    np.testing.assert_allclose(closed.q, qs, rtol=1e-12, atol=1e-14)
    opened = jax.jit(lambda q, v, tau: soa.rollout(robot, q, v, tau, DT))(*start, jnp.stack(torques))
    np.testing.assert_allclose(opened.q, closed.q, rtol=1e-12, atol=1e-14)


def test_recording_only_what_is_asked(robot, start, closed):
    def run(q, v):
        def more(**options):
            return soa.rollout(robot, q, v, gain, DT, steps=STEPS, **options)

        return more(record="final"), more(every=4), more(record=lambda s: (s.time, s.tau, s.v[0]), every=3)

    final, fourth, (time, tau, speed) = jax.jit(run)(*start)
    np.testing.assert_allclose(final.q, closed.q[-1], rtol=1e-12)
    np.testing.assert_allclose(fourth.q, closed.q[3::4], rtol=1e-12)
    np.testing.assert_allclose(time, DT * np.array([3, 6, 9, 12]), rtol=1e-12)
    np.testing.assert_allclose(speed, closed.v[2::3, 0], rtol=1e-12)
    before = [gain(k * DT, closed.q[k - 1], closed.v[k - 1]) for k in (2, 5, 8, 11)]
    np.testing.assert_allclose(tau, before, rtol=1e-12)


def test_memory_goes_through_and_can_be_handed_on(robot, start):
    """A lagged actuator behind a controller that runs at every third step: in one go, and in two."""
    control, actuators = simulate.Sampled(gain, every=3), (simulate.Lag(0.03), simulate.Saturation(0.2))

    def run(q, v, steps, **options):
        return soa.rollout(robot, q, v, control, DT, steps=steps, actuators=actuators, record=lambda s: s, **options)

    def halves(q, v):
        first = run(q, v, STEPS // 2)
        last = jax.tree.map(lambda x: x[-1], first)
        return run(q, v, STEPS), first, run(last.q, last.v, STEPS // 2, time=last.time, memory=last.memory)

    whole, first, second = jax.jit(halves)(*start)
    for a, b, c in zip(whole[:4], first[:4], second[:4], strict=True):
        np.testing.assert_allclose(a, jnp.concatenate([b, c]), rtol=1e-12, atol=1e-14)
    # The same by hand, from the recorded states.
    held, torque = None, np.zeros(robot.nv)
    states = [start, *zip(whole.q, whole.v, strict=True)]
    for k in range(STEPS):
        held = gain(k * DT, *states[k]) if k % 3 == 0 else held
        torque = held + (torque - held) * np.exp(-DT / 0.03)
        np.testing.assert_allclose(whole.tau[k], np.clip(torque, -0.2, 0.2), rtol=1e-11)
    assert np.abs(whole.tau).max() == 0.2  # the limit was met


@pytest.mark.parametrize("every", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_checkpointing_changes_no_gradient(start, robot, every):
    torques = jnp.asarray(np.random.default_rng(0).normal(size=(STEPS, robot.nv)))

    def cost(tau, checkpoint):
        states = soa.rollout(robot, *start, tau, DT, checkpoint=checkpoint, every=every)
        return jnp.sum(states.q**2) + jnp.sum(states.v[-1] ** 2)

    kinds = ("segments", False) if every == 3 else ("segments", True)
    value = jax.jit(lambda tau: cost(tau, kinds[0]))
    gradients = jax.jit(lambda tau: [jax.grad(cost)(tau, kind) for kind in kinds])(torques)
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-11, atol=1e-13)
    direction = np.random.default_rng(1).normal(size=torques.shape)
    ahead, behind = (value(torques + h * direction) for h in (1e-5, -1e-5))
    np.testing.assert_allclose(np.vdot(gradients[0], direction), (ahead - behind) / 2e-5, rtol=1e-7)


def test_segments_of_any_length():
    """Segmented scans are scans, whether or not the segments come out even."""

    def body(c, x):
        return c + x, c * x

    @jax.jit
    def both(xs):
        n = len(xs)
        return segmented_scan(body, 1.0, xs, n, segment_length(n)), jax.lax.scan(body, 1.0, xs)

    for length in (1, 2, 7, 12, 31):
        (carry, ys), (expected, expected_ys) = both(jnp.arange(length, dtype=jnp.float64))
        assert carry == expected and np.array_equal(ys, expected_ys)


def test_progress_is_drawn_from_inside_jit_and_vmap(robot, start, monkeypatch):
    seen = []
    monkeypatch.setattr(simulate.ProgressBar, "update", lambda self, done: seen.append(int(done)))
    q, v = (jnp.stack([x, x]) for x in start)
    run = jax.jit(
        jax.vmap(lambda q, v: soa.rollout(robot, q, v, None, DT, steps=6, record="final", every=2, progress=True))
    )
    jax.block_until_ready(run(q, v))
    jax.effects_barrier()
    assert sorted(seen) == [2, 4, 6]  # once each, not once per robot


def test_the_bar_itself():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal, log, quiet = Terminal(), io.StringIO(), io.StringIO()
    for stream, lines in ((terminal, False), (log, True), (quiet, False)):
        bar = simulate.ProgressBar(4, "work", stream=stream, lines=lines)
        for done in (1, 3, 2, 4, 2):  # late reports change nothing; after the end it starts again
            bar.update(done)
    drawn = terminal.getvalue()
    assert drawn.count("\r") == 4 and "4/4" in drawn and drawn.count("\n") == 1
    written = [line.split(",")[0] for line in log.getvalue().splitlines()]
    assert written == ["work 1/4", "work 3/4", "work 4/4", "work 2/4"]
    assert quiet.getvalue() == ""


def test_the_first_step_that_is_not_finite_is_told_outside_of_jit(robot, start):
    def hasty(time, q, v):
        return -1e7 * q  # far beyond what a step of DT can follow

    def run(**options):
        return soa.rollout(robot, *start, hasty, DT, steps=200, **options)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        states = jax.jit(run)()
    finite = np.isfinite(np.concatenate([states.q, states.v], axis=1)).all(axis=1)
    first = int(np.argmin(finite)) + 1
    assert 1 < first < 200
    told = rf"not finite from step {first} on \(at {DT * first:g} s\)"
    for options in ({}, {"record": "final"}):
        with pytest.warns(UserWarning, match=told) as record:
            run(**options)
        assert record[0].filename == __file__
    # An array of torques takes the compiled way; a record of every second step misses nothing.
    torques = jnp.zeros((8, robot.nv)).at[4, 0].set(jnp.inf)
    with pytest.warns(UserWarning, match="not finite from step 5 on") as record:
        soa.rollout(robot, *start, torques, DT, every=2)
    assert record[0].filename == __file__


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"control": None}, "steps"),
        ({"control": jnp.zeros((3, 5))}, r"\(steps, nv\)"),
        ({"control": None, "steps": 10, "every": 3}, "divide"),
        ({"control": None, "steps": 10, "checkpoint": "sqrt"}, "segments"),
        ({"control": None, "steps": 10, "record": "last"}, "final"),
    ],
)
def test_refusals_say_what_is_wrong(robot, start, options, message):
    with pytest.raises(ValueError, match=message):
        soa.rollout(robot, *start, dt=DT, **options)
