"""Studies under attack: two runs at once, killed owners, damaged and foreign chunks, awkward settings and types."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsoa import simulate
from jaxsoa.simulate import folder_lock
from jaxsoa.simulate.folder_lock import FolderInUse, FolderLock

PATIENCE = 120.0  # seconds that a process gets; far more than it needs


def powers(calls: list | None = None, power: int = 2):
    def compute(indices):
        if calls is not None:
            calls.append(list(indices))
        return {"power": indices.astype(float) ** power}

    return compute


def wait_for(path) -> None:
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.005)


# --- two runs at once -------------------------------------------------------------------------------------------------

STUCK_IN_ITS_SECOND_CHUNK = """
import sys, time
from pathlib import Path
from jaxsoa import simulate

folder = Path(sys.argv[1])

def compute(indices):
    if indices[0] > 0:
        (folder / "chunk_00001.npz.1.partial").touch()
        (folder / "inside").touch()
        time.sleep(600)
    return {"power": indices.astype(float) ** 2}

simulate.run_study(compute, 6, folder, chunk=2, settings={"power": 2}, progress=False)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
def test_a_second_run_is_refused_and_a_killed_ones_work_is_taken_over(tmp_path):
    owner = subprocess.Popen([sys.executable, "-c", STUCK_IN_ITS_SECOND_CHUNK, str(tmp_path)])
    try:
        wait_for(tmp_path / "inside")
        for power in (2, 3):  # the same study, and another one
            with pytest.raises(FolderInUse, match=f"process {owner.pid} on {socket.gethostname()}"):
                simulate.run_study(powers(power=power), 6, tmp_path, chunk=2, settings={"power": power})
        assert (tmp_path / "chunk_00001.npz.1.partial").exists()  # a live run's file is left alone
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    calls = []
    result = simulate.run_study(powers(calls), 6, tmp_path, chunk=2, settings={"power": 2})
    assert calls == [[2, 3], [4, 5]]
    np.testing.assert_array_equal(np.load(result)["power"], np.arange(6.0) ** 2)
    assert not list(tmp_path.glob("*.partial"))


RACE = """
import sys, time
from pathlib import Path
import numpy as np
from jaxsoa import simulate

root, own, others, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])

def compute(indices):
    time.sleep(0.002)
    return {"power": np.full(len(indices), float(own))}

for number in range(rounds):
    (root / f"ready_{number}_{own}").touch()
    while len(list(root.glob(f"ready_{number}_*"))) < others:
        time.sleep(0.001)
    outcome = "finished"
    try:
        path = simulate.run_study(
            compute, 4, root / f"study_{number}", chunk=1, settings={"power": own}, progress=False
        )
        assert (np.load(path)["power"] == own).all(), "got another's data"
    except simulate.FolderInUse:
        outcome = "in use"
    except ValueError as error:
        assert "another study" in str(error)
        outcome = "another"
    print(number, outcome, flush=True)
"""


def test_of_different_studies_started_together_in_one_folder_one_wins(tmp_path):
    count, rounds = 3, 10
    line = [sys.executable, "-c", RACE, str(tmp_path)]
    runs = [
        subprocess.Popen([*line, str(i), str(count), str(rounds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for i in range(count)
    ]
    winners = dict.fromkeys(range(rounds), 0)
    for run in runs:
        out, err = run.communicate(timeout=PATIENCE)
        assert run.returncode == 0, err.decode()[-2000:]
        for number, outcome in (text.split(maxsplit=1) for text in out.decode().splitlines()):
            winners[int(number)] += outcome == "finished"
    assert set(winners.values()) == {1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is POSIX")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    lock = FolderLock(tmp_path)
    with pytest.raises(FolderInUse):
        FolderLock(tmp_path)
    hold, let_go = os.pipe()
    hear, say = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(say, b"x")
        os.close(let_go)
        os.read(hold, 1)  # until the parent closes its end
        os._exit(0)
    try:
        os.read(hear, 1)
        folder_lock._held.remove(lock)
        os.close(lock._file)  # what the system does for a killed process
        FolderLock(tmp_path).release()
    finally:
        for end in (let_go, hold, hear, say):
            os.close(end)
        os.waitpid(child, 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="start times are read from /proc")
def test_without_locks_of_the_system_the_record_tells_a_stale_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_lock, "_lock", lambda file: None)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    own = folder_lock._this_process()
    stale = {
        "ended": {**own, "pid": ended.pid},
        "number used again": {**own, "started": own["started"] - 1},
        "before the machine's last start": {**own, "boot": "another"},
    }
    for case, record in stale.items():
        (tmp_path / "lock").write_text(json.dumps(record))
        FolderLock(tmp_path).release()
        assert (tmp_path / "lock").read_bytes() == b"", case
    for record in (own, {**own, "host": "elsewhere", "pid": ended.pid}):
        (tmp_path / "lock").write_text(json.dumps(record))
        with pytest.raises(FolderInUse, match=f"process {record['pid']} on {record['host']}"):
            FolderLock(tmp_path)
        assert json.loads((tmp_path / "lock").read_text()) == record  # and it is left as it was


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_hide_nothing_of_the_study(tmp_path):
    settings = {"chunk": 3, "items": 12, "settings": None}
    simulate.run_study(powers(), 12, tmp_path, chunk=3, settings=settings)
    with pytest.raises(ValueError, match=r"chunk: 3 there, 4 now\)"):
        simulate.run_study(powers(), 12, tmp_path, chunk=4, settings=settings)
    with pytest.raises(ValueError, match=r"items: 12 there, 9 now\)"):
        simulate.run_study(powers(), 9, tmp_path, chunk=3, settings=settings)
    with pytest.raises(ValueError, match=r"settings\['settings'\]: null there, nothing now"):
        simulate.run_study(powers(), 12, tmp_path, chunk=3, settings={"chunk": 3, "items": 12})


def test_settings_with_nan_resume(tmp_path):
    settings = {"limit": float("nan"), "nested": {"a": [float("nan"), float("inf")]}}
    calls = []
    simulate.run_study(powers(calls), 4, tmp_path, chunk=2, settings=settings)
    (tmp_path / "chunk_00001.npz").unlink()
    simulate.run_study(powers(calls), 4, tmp_path, chunk=2, settings=settings)
    assert calls == [[0, 1], [2, 3], [2, 3]]
    with pytest.raises(ValueError, match=r"settings\['limit'\]: NaN there, 1.0 now\)"):
        simulate.run_study(powers(calls), 4, tmp_path, chunk=2, settings={**settings, "limit": 1.0})


def test_settings_that_are_not_json_and_empty_studies_are_refused_by_name(tmp_path):
    with pytest.raises(TypeError, match="stored as JSON"):
        simulate.run_study(powers(), 4, tmp_path / "a", chunk=2, settings={"a": np.arange(2)})
    with pytest.raises(ValueError, match="at least one item"):
        simulate.run_study(powers(), 0, tmp_path / "a", chunk=2, settings={})
    assert not (tmp_path / "a").exists()


# --- chunks -----------------------------------------------------------------------------------------------------------


def flip_a_bit(data: bytes) -> bytes:
    """In the numbers: the last array member's end, before the archive's directory."""
    at = data.index(b"PK\x01\x02") - 9
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def rewritten(data: bytes) -> bytes:
    """A whole and readable archive with another number in it: only the digest can tell."""
    return flip_a_bit(data).replace(*_checksums(data))


def _checksums(data: bytes) -> tuple[bytes, bytes]:
    import io
    import zipfile
    import zlib

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        member = archive.infolist()[-1]
        old, start = member.CRC, data.index(b"\x93NUMPY")
    new = zlib.crc32(flip_a_bit(data)[start : start + member.file_size])
    return old.to_bytes(4, "little"), new.to_bytes(4, "little")


DAMAGE = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "a bit": flip_a_bit,
    "a number and its checksum": rewritten,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_chunks_are_named_first_and_computed_again(tmp_path, damage):
    options = {"chunk": 2, "settings": {"power": 2}, "progress": False}
    whole = simulate.run_study(powers(), 6, tmp_path, **options).read_bytes()
    path = tmp_path / "chunk_00001.npz"
    changed = DAMAGE[damage](path.read_bytes())
    path.write_bytes(changed)
    if damage == "a number and its checksum":
        assert np.load(path)["power"].shape == (2,)  # NumPy has no doubt
    calls = []
    with pytest.warns(RuntimeWarning, match=r"chunk_00001\.npz .*computed again"):
        result = simulate.run_study(powers(calls), 6, tmp_path, **options)
    assert calls == [[2, 3]] and result.read_bytes() == whole


def test_without_its_description_a_folder_still_refuses_another_study(tmp_path):
    options = {"chunk": 2, "progress": False}
    simulate.run_study(powers(), 4, tmp_path, settings={"power": 2}, **options)
    (tmp_path / "study.json").unlink()
    with pytest.raises(ValueError, match=r"chunk_00000\.npz holds another study .*2 there, 3 now"):
        simulate.run_study(powers(power=3), 4, tmp_path, settings={"power": 3}, **options)
    calls = []
    simulate.run_study(powers(calls), 4, tmp_path, settings={"power": 2}, **options)
    assert calls == [] and json.loads((tmp_path / "study.json").read_text())["settings"] == {"power": 2}
    (tmp_path / "study.json").write_text("{cut")
    with pytest.warns(RuntimeWarning, match=r"study\.json is damaged"):
        simulate.run_study(powers(calls), 4, tmp_path, settings={"power": 2}, **options)
    assert calls == []


def test_a_chunk_under_another_ones_name_is_not_taken(tmp_path):
    options = {"chunk": 2, "settings": {}, "progress": False}
    result = simulate.run_study(powers(), 4, tmp_path, **options)
    (tmp_path / "chunk_00000.npz").write_bytes((tmp_path / "chunk_00001.npz").read_bytes())
    calls = []
    simulate.run_study(powers(calls), 4, tmp_path, **options)
    assert calls == [[0, 1]]
    np.testing.assert_array_equal(np.load(result)["power"], [0, 1, 4, 9])


def test_types_that_numpy_does_not_know_come_back(tmp_path):
    def compute(indices):
        x = jnp.asarray(indices, jnp.float32) / 3
        return {"half": x.astype(jnp.bfloat16), "eighth": x.astype(jnp.float8_e4m3fn), "one": jnp.bfloat16(1.5)}

    calls = compute(np.arange(4))
    result = np.load(simulate.run_study(compute, 4, tmp_path, chunk=2, settings={}, progress=False))
    for name in ("half", "eighth"):
        assert result[name].dtype == calls[name].dtype
        np.testing.assert_array_equal(result[name], np.asarray(calls[name]))
    assert result["one"].dtype == jnp.bfloat16 and result["one"].tolist() == [1.5, 1.5]
