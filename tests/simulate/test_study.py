"""Studies in chunks: saved whole or not at all, resumed, refused if changed; the script killed and spread for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from jaxsoa import simulate

SCRIPT = Path(__file__).parents[2] / "experiments" / "sharded_study.py"


class Power(Exception):
    """Cut in the middle of a study."""


def squares(calls: list, fail_at: int | None = None):
    def compute(indices):
        if fail_at is not None and len(calls) == fail_at:
            raise Power
        calls.append(list(indices))
        return {"index": indices, "square": indices.astype(float) ** 2, "sum": np.array([indices.sum()])}

    return compute


def test_resumed_without_losing_or_repeating(tmp_path, capsys):
    options = {"chunk": 4, "settings": {"power": 2}}
    unbroken = simulate.run_study(squares([]), 10, tmp_path / "a", **options)
    first, second = [], []
    with pytest.raises(Power):
        simulate.run_study(squares(first, fail_at=2), 10, tmp_path / "b", **options)
    (tmp_path / "b" / "chunk_00002.npz.123.partial").write_bytes(b"cut off")
    assert not (tmp_path / "b" / "result.npz").exists()
    time.sleep(2.1)  # archives would differ if they carried times (of two seconds' resolution)
    resumed = simulate.run_study(squares(second), 10, tmp_path / "b", **options)
    assert first == [[0, 1, 2, 3], [4, 5, 6, 7]] and second == [[8, 9]]
    assert resumed.read_bytes() == unbroken.read_bytes()
    result = np.load(resumed)
    np.testing.assert_array_equal(result["square"], np.arange(10.0) ** 2)
    np.testing.assert_array_equal(result["sum"], [6, 22, 17])
    assert not list((tmp_path / "b").glob("*.partial"))
    shown = capsys.readouterr().err
    assert "chunk 3/3" in shown and "resuming: 2 of 3 chunks" in shown
    simulate.run_study(squares([], fail_at=0), 10, tmp_path / "b", **options)  # finished: nothing is computed


def test_another_study_in_the_same_folder_is_refused(tmp_path):
    simulate.run_study(squares([]), 4, tmp_path, chunk=4, settings={"power": 2})
    with pytest.raises(ValueError, match=r"settings\['power'\]: 2 there, 3 now"):
        simulate.run_study(squares([]), 4, tmp_path, chunk=4, settings={"power": 3})
    with pytest.raises(ValueError, match="another study"):
        simulate.run_study(squares([]), 8, tmp_path, chunk=4, settings={"power": 2})
    assert json.loads((tmp_path / "study.json").read_text())["settings"] == {"power": 2}


def test_archives_are_what_numpy_reads(tmp_path):
    arrays = {"b": np.arange(6).reshape(2, 3).T, "a": np.float32(1.5), "c": np.array([True, False])}
    simulate.save_archive(tmp_path / "x.npz", arrays)
    loaded = np.load(tmp_path / "x.npz")
    assert sorted(loaded) == ["a", "b", "c"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].dtype == np.asarray(array).dtype


# --- the real thing, in processes of its own -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory):
    """Compiled programs are shared between the runs of this file: only the first of each kind compiles."""
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
    return {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2"}


def command(folder, *more):
    size = ["--robots=32", "--steps=30", "--links=2", "--chunk=8"]
    return [sys.executable, str(SCRIPT), "run", "--folder", str(folder), *size, *more]


def finish(folder, environment, *more) -> dict:
    done = subprocess.run(command(folder, *more), env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "chunk 4/4" in done.stderr  # progress was shown
    return dict(np.load(folder / "result.npz"))


def kill_when_a_chunk_is_saved(process: subprocess.Popen, folder: Path) -> int:
    """SIGKILL to the whole process group, so that no process of the study outlives it. Returns the chunks saved."""
    try:
        while not list(folder.glob("chunk_*.npz")):
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.002)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return len(list(folder.glob("chunk_*.npz")))


@pytest.mark.slow
def test_one_process_eight_devices_and_two_processes_agree(tmp_path, shared_cache):
    one = finish(tmp_path / "one", shared_cache)
    assert np.abs(one["gradient"]).min() > 0 and np.ptp(one["cost"]) > 0.1
    np.testing.assert_allclose(one["mean_gradient"], one["gradient"].reshape(4, 8, -1).mean(axis=1), rtol=1e-12)
    for more in (("--devices=8",), ("--processes=2",)):
        other = finish(tmp_path / more[0].strip("-"), shared_cache, *more)
        assert sorted(other) == sorted(one)
        for name, expected in one.items():
            scale = max(1.0, np.abs(expected).max())
            np.testing.assert_allclose(other[name], expected, rtol=0, atol=1e-12 * scale, err_msg=f"{name} {more}")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="process groups and SIGKILL are POSIX")
@pytest.mark.parametrize("more", [(), ("--processes=2",)], ids=["one_process", "two_processes"])
def test_killed_and_restarted_the_file_is_the_same(tmp_path, shared_cache, more):
    finish(tmp_path / "whole", shared_cache, "--no-gradient", *more)
    line = [*command(tmp_path / "killed", "--no-gradient", *more), "--pause=0.5"]
    process = subprocess.Popen(line, env=shared_cache, start_new_session=True, stderr=subprocess.DEVNULL)
    saved = kill_when_a_chunk_is_saved(process, tmp_path / "killed")
    assert process.returncode == -signal.SIGKILL and 0 < saved < 4
    assert not (tmp_path / "killed" / "result.npz").exists()
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "killed").glob("chunk_*.npz")}
    finish(tmp_path / "killed", shared_cache, "--no-gradient", *more)
    assert all(path.stat().st_mtime_ns == then for path, then in written.items())  # nothing was computed again
    assert (tmp_path / "killed" / "result.npz").read_bytes() == (tmp_path / "whole" / "result.npz").read_bytes()
