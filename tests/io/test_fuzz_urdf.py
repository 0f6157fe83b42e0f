"""Mutated URDF, MJCF and npz files: a whole model or a `ModelError`, always."""

from __future__ import annotations

import time

import pytest


@pytest.fixture(scope="module")
def fuzz_urdf():
    pytest.importorskip("resource", reason="the limits on time and memory need a Unix system")
    import fuzz_urdf

    return fuzz_urdf


def run(module, files: int, seed: int, capsys) -> None:
    start = time.perf_counter()
    tally, failures, longest = module.fuzz(files, seed=seed)
    with capsys.disabled():
        print("\n" + module.report(tally, failures, longest, time.perf_counter() - start))
    assert tally.total() == files
    assert not failures
    # A fuzzer that breaks everything, or nothing, tests little.
    assert 0.05 * files < tally["loaded"] < 0.6 * files
    assert len(tally) > 15


def test_500_mutated_files(fuzz_urdf, capsys):
    run(fuzz_urdf, 500, seed=1, capsys=capsys)


@pytest.mark.slow
def test_10000_mutated_files(fuzz_urdf, tmp_path, capsys):
    """Of the three formats together."""
    run(fuzz_urdf, 4000, seed=2, capsys=capsys)
    import fuzz_others

    assert 150 < fuzz_others.fuzz_archives(4000, 2, tmp_path) < 3700
    pytest.importorskip("mujoco")
    assert 100 < fuzz_others.fuzz_mjcf(2000, 2, tmp_path) < 1900


def test_300_mutated_archives(fuzz_urdf, tmp_path):
    import fuzz_others

    assert 20 < fuzz_others.fuzz_archives(300, 1, tmp_path) < 280


def test_100_mutated_mjcf_files(fuzz_urdf, tmp_path):
    pytest.importorskip("mujoco")
    import fuzz_others

    assert 5 < fuzz_others.fuzz_mjcf(100, 1, tmp_path) < 95


def test_the_fuzzer_notices_partial_models_and_other_errors(fuzz_urdf, monkeypatch: pytest.MonkeyPatch):
    """A reader that drops a joint, one that raises something else and one that hangs are failures."""
    soa = fuzz_urdf.soa
    honest = soa.load_urdf

    def hang(*args, **options):
        while True:
            pass

    def crash(*args, **options):
        raise KeyError("surprise")

    def lighter(*args, **options):
        robot = honest(*args, **options)
        return robot.replace(mass=robot.mass * 0.5)

    other = soa.models.pendulum(1)
    monkeypatch.setattr(fuzz_urdf, "TIME_LIMIT", 1.0)
    monkeypatch.setattr(fuzz_urdf, "MUTATIONS", [fuzz_urdf.shuffle_elements])
    for reader, message in (
        (hang, "TooLong"), (crash, "surprise"), (lighter, "the mass is"), (lambda *a, **k: other, "missing or added"),
    ):  # fmt: skip
        monkeypatch.setattr(soa, "load_urdf", reader)
        tally, failures, _ = fuzz_urdf.fuzz(1, seed=3)
        assert tally["FAILED"] == 1
        assert message in failures[0]
