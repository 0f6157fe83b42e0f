"""From what a robot logs to what a fit needs: resample, filter without delay, differentiate.

Zero-phase filtering multiplies the spectrum by 1 / (1 + (f / cutoff)^(2 order)), which is what a Butterworth filter run
forwards and then backwards does; the derivatives are those of the filtered signal, by the factor 2 pi i f. Ends are
extended by point reflection, so that nothing jumps there; within about 1 / cutoff of an end the result still depends on
that guess, so `prepare` cuts it off.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class TorqueData(NamedTuple):
    """Samples of a motion and of the torques that made it."""

    q: Any  # (samples, nq), an array of NumPy or JAX, as all of these
    v: Any  # (samples, nv)
    a: Any  # (samples, nv)
    tau: Any  # (samples, nv)
    dry: Any = None  # (samples, nv), what dry friction is multiplied by; None: tanh(v / friction_velocity)

    def part(self, start: float, stop: float) -> TorqueData:
        """The samples between two fractions of the record: `part(0, 2 / 3)` to fit, `part(2 / 3, 1)` to test."""
        return self.take(slice(round(start * len(self.tau)), round(stop * len(self.tau))))

    def take(self, index: Any) -> TorqueData:
        """Some of the samples: a slice, or an array of indices or booleans."""
        return TorqueData(*(None if x is None else np.asarray(x)[index] for x in self))


class TrajectoryData(NamedTuple):
    """Segments of a recorded motion under recorded torques, for matching by simulation."""

    q: Any  # (segments, steps + 1, nq)
    v: Any  # (segments, steps + 1, nv)
    tau: Any  # (segments, steps, nv), held during each step
    dt: Any  # s


def segments(q: np.ndarray, v: np.ndarray, tau: np.ndarray, dt: float, steps: int) -> TrajectoryData:
    """A record q (n + 1, nq), v (n + 1, nv), tau (n, nv) cut into segments of equal length; a remainder is dropped.

    Each segment is simulated from its own measured start: short ones keep the problem well behaved (multiple shooting),
    long ones say more about slow effects.

    >>> record = np.zeros((101, 2)), np.zeros((101, 2)), np.zeros((100, 2))  # q, v, tau
    >>> print(soa.identify.segments(*record, 0.01, steps=20).tau.shape)
    (5, 20, 2)
    """
    q, v, tau = np.asarray(q), np.asarray(v), np.asarray(tau)
    if len(q) != len(tau) + 1 or len(v) != len(tau) + 1:
        raise ValueError(f"A record of {len(tau)} torques needs {len(tau) + 1} states, got {len(q)} q and {len(v)} v.")
    if not 1 <= steps <= len(tau):
        raise ValueError(f"steps must be between 1 and the {len(tau)} of the record, got {steps}.")
    starts = range(0, len(tau) - steps + 1, steps)
    return TrajectoryData(
        np.stack([q[k : k + steps + 1] for k in starts]),
        np.stack([v[k : k + steps + 1] for k in starts]),
        np.stack([tau[k : k + steps] for k in starts]),
        dt,
    )


def resample(time: np.ndarray, x: np.ndarray, rate: float) -> np.ndarray:
    """x (samples, ...) at a constant rate (Hz), interpolated linearly between irregular, increasing times.

    >>> print(soa.identify.resample(np.array([0.0, 1.0]), np.array([[0.0], [2.0]]), 4.0)[:, 0])
    [0.  0.5 1.  1.5]
    """
    time, x = np.asarray(time, float), np.asarray(x, float)
    if time.ndim != 1 or len(time) != len(x) or len(time) < 2 or not (np.diff(time) > 0).all():
        raise ValueError(f"time must increase and have one entry per sample ({len(x)}), got shape {time.shape}.")
    even = np.arange(time[0], time[-1], 1 / rate)
    columns = [np.interp(even, time, column) for column in x.reshape(len(x), -1).T]
    return np.stack(columns, axis=1).reshape(len(even), *x.shape[1:])


def zero_phase(x: np.ndarray, rate: float, cutoff: float, *, order: int = 4, derivatives: int = 0) -> list[np.ndarray]:
    """x (samples, ...) low-pass filtered without delay, and as many time derivatives of it as asked for.

    `order` is that of the Butterworth filter which, run forwards and backwards, has this response; `rate` and `cutoff`
    in Hz.

    >>> t = np.arange(2000) / 1000
    >>> smooth, rate = soa.identify.zero_phase(np.sin(2 * np.pi * t)[:, None], 1000, 20, derivatives=1)
    >>> print(round(float(rate[1000, 0]), 2))  # 2 pi
    6.28
    """
    x = np.asarray(x, float)
    if not 0 < cutoff < rate / 2:
        raise ValueError(f"cutoff must be between 0 and half the sampling rate ({rate / 2} Hz), got {cutoff}.")
    n = len(x)
    pad = min(n - 1, int(np.ceil(4 * rate / cutoff)))
    before, after = 2 * x[0] - x[pad:0:-1], 2 * x[-1] - x[-2 : -pad - 2 : -1]
    extended = np.concatenate([before, x, after])
    # The extended signal starts and ends at different values; without this line its periodic continuation would jump.
    slope = (extended[-1] - extended[0]) / (len(extended) - 1)
    ramp = extended[0] + np.arange(len(extended)).reshape(-1, *(1,) * (x.ndim - 1)) * slope
    f = np.fft.rfftfreq(len(extended), 1 / rate)
    gain = 1 / (1 + (f / cutoff) ** (2 * order))
    spectrum = np.fft.rfft(extended - ramp, axis=0) * gain.reshape(-1, *(1,) * (x.ndim - 1))
    results = []
    for k in range(derivatives + 1):
        factor = ((2j * np.pi * f) ** k).reshape(-1, *(1,) * (x.ndim - 1))
        y = np.fft.irfft(spectrum * factor, len(extended), axis=0)
        y = y + (ramp if k == 0 else slope * rate if k == 1 else 0)
        results.append(y[pad : pad + n])
    return results


def prepare(
    time: np.ndarray,
    q: np.ndarray,
    tau: np.ndarray,
    *,
    cutoff: float,
    rate: float = 1000.0,
    output_rate: float = 100.0,
    trim: float | None = None,
    delay: float = 0.0,
    filtered_friction: bool = False,
) -> TorqueData:
    """Torque samples from a log of time (n,), positions q (n, nv) and torques tau (n, nv) of joints whose coordinates
    add (no quaternions).

    Resampled to `rate`, filtered at `cutoff` (Hz), differentiated, decimated to about `output_rate`, and cut by `trim`
    seconds at both ends (default 2.5 / cutoff), where filtering has to guess. `delay` (s) is how much later than the
    positions the torques are logged. Dry friction jumps where a joint turns back, and filtering the torques rounds that
    jump; with `filtered_friction` the sign of the velocity passes the same filter and takes the place of
    tanh(v / friction_velocity), so that model and measurement are compared alike.

    >>> t = np.arange(2000) / 1000  # s
    >>> swing = np.sin(2 * np.pi * t)[:, None] * np.ones(2)  # rad
    >>> data = soa.identify.prepare(t, swing, np.zeros((2000, 2)), cutoff=20.0)  # Hz
    >>> print(data.q.shape)
    (175, 2)
    """
    if q.shape != tau.shape:
        raise ValueError(f"q and tau must have one column per joint each, got shapes {q.shape} and {tau.shape}.")
    time = np.asarray(time, float)
    q_even = resample(time, q, rate)
    later = np.clip(time[0] + np.arange(len(q_even)) / rate + delay, time[0], time[-1])
    tau_even = np.stack([np.interp(later, time, column) for column in np.asarray(tau, float).T], axis=1)
    q_smooth, v, a = zero_phase(q_even, rate, cutoff, derivatives=2)
    (tau_smooth,) = zero_phase(tau_even, rate, cutoff)
    cut = round((2.5 / cutoff if trim is None else trim) * rate)
    if len(q_even) <= 2 * cut:
        raise ValueError(
            f"Too short a record, {time[-1] - time[0]:g} s: cutting {cut / rate:g} s at both ends, where filters "
            "guess, leaves nothing. Record longer, filter less (`cutoff`), or pass `trim`."
        )
    keep = slice(cut, len(q_even) - cut, max(1, round(rate / output_rate)))
    dry = zero_phase(np.sign(v), rate, cutoff)[0] if filtered_friction else None
    return TorqueData(q_smooth, v, a, tau_smooth, dry).take(keep)
