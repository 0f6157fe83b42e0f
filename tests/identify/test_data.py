"""Filtering and differentiation against exact signals and scipy's forward-backward filter."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.compare import assert_close

from jaxsoa import identify

RATE = 500.0
TIME = np.arange(0, 8, 1 / RATE)


def test_same_as_butterworth_forwards_and_backwards():
    from scipy.signal import butter, sosfiltfilt  # here, because importing it takes a second of every worker

    x = np.random.default_rng(0).normal(size=(len(TIME), 2)).cumsum(axis=0) * 0.1
    (smooth,) = identify.zero_phase(x, RATE, 5.0)
    expected = sosfiltfilt(butter(4, 5.0, fs=RATE, output="sos"), x, axis=0)
    inside = slice(500, -500)
    # The bilinear transform bends the digital filter's frequencies a little (5 Hz against 250 Hz), so not to rounding.
    assert_close(smooth[inside], expected[inside], 2e-3)


def test_derivatives_of_a_slow_signal():
    w = 2 * np.pi * 0.5
    x = np.sin(w * TIME) + 0.3 * TIME
    q, v, a = identify.zero_phase(x[:, None], RATE, 10.0, derivatives=2)
    inside = slice(1000, -1000)
    assert_close(q[inside, 0], x[inside], 1e-6)
    assert_close(v[inside, 0], (w * np.cos(w * TIME) + 0.3)[inside], 1e-6)
    assert_close(a[inside, 0], (-w * w * np.sin(w * TIME))[inside], 1e-6)


def test_prepare_undoes_jitter_and_delay():
    rng = np.random.default_rng(1)
    time = np.sort(TIME + rng.uniform(-0.3, 0.3, len(TIME)) / RATE)
    q = np.stack([np.sin(2 * time), np.cos(time)], axis=1)
    tau = np.stack([np.cos(2 * (time - 0.01)), np.sin(time - 0.01)], axis=1)  # logged 10 ms late
    data = identify.prepare(time, q, tau, cutoff=20.0, rate=RATE, output_rate=100.0, delay=0.01)
    # Straight lines between jittered samples: the second derivative keeps a little of their noise.
    assert_close(data.v[:, 0], 2 * data.tau[:, 0], 1e-3)
    assert_close(data.a[:, 1], -data.q[:, 1], 5e-3)
    train, test = data.part(0, 2 / 3), data.part(2 / 3, 1)
    assert len(train.tau) + len(test.tau) == len(data.tau)
    assert abs(len(train.tau) - 2 * len(test.tau)) <= 2


def test_dry_friction_passes_the_filter_of_the_torques():
    q, tau = np.sin(3 * TIME)[:, None], np.sign(np.cos(3 * TIME))[:, None]  # torques of dry friction alone
    data = identify.prepare(TIME, q, tau, cutoff=5.0, rate=RATE, filtered_friction=True)
    assert_close(data.dry, data.tau, 2e-3)  # the filter of the positions moves the turning points a little
    assert np.abs(np.sign(data.v) - data.tau).max() > 0.5
    assert_close(data.part(0.2, 0.4).dry, data.dry[round(0.2 * len(data.dry)) : round(0.4 * len(data.dry))], 0)


def test_segments():
    q = np.arange(11.0)[:, None]
    cut = identify.segments(q, q, q[:-1], 0.1, 3)
    assert cut.q.shape == (3, 4, 1) and cut.tau.shape == (3, 3, 1)
    assert (cut.q[1:, 0] == cut.q[:-1, -1]).all()
    with pytest.raises(ValueError, match="needs 11 states"):
        identify.segments(q[1:], q, q[:-1], 0.1, 3)


def test_bad_data_is_explained():
    with pytest.raises(ValueError, match="time must increase"):
        identify.resample(TIME[::-1], TIME[:, None], RATE)
    with pytest.raises(ValueError, match="half the sampling rate"):
        identify.zero_phase(TIME[:, None], RATE, 300.0)
