"""The interactive view: served to this machine only, and seen in a real browser where one is installed."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest

pytest.importorskip("viser")

from helpers.browser import browser_path, open_page

import jaxsoa as soa
from jaxsoa.cli import main
from jaxsoa.viz import Shape, view
from jaxsoa.viz.meshes import sphere

# viser's own threads and sockets are not ours to tidy up.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PENDULUM = soa.models.pendulum(1)
MOTION = np.linspace(0, np.pi / 2, 11)[:, None]


def test_serves_this_machine_only_and_moves_the_robot(capsys):
    with view(PENDULUM, MOTION, dt=0.1, forces=np.ones((1, 6)), port=8300) as viewer:
        assert viewer.url.startswith("http://127.0.0.1:") and viewer.url in capsys.readouterr().out
        viewer.show(-1)
        assert viewer.number == 10
        # A quarter turn about y: quaternion (cos 45, 0, sin 45, 0).
        np.testing.assert_allclose(viewer._links[0].wxyz, [np.sqrt(0.5), 0, np.sqrt(0.5), 0], atol=1e-9)
        assert viewer._time.value == pytest.approx(1.0)
        viewer.show(0)
        viewer.play()
        deadline = time.monotonic() + 30
        while viewer.number == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        viewer.pause()
        assert viewer.number > 0
        address = ("127.0.0.1", viewer.server.get_port())
        socket.create_connection(address, timeout=5).close()
    with pytest.raises(OSError):
        socket.create_connection(address, timeout=5)


def test_bad_arguments():
    with pytest.raises(ValueError, match="dt"):
        view(PENDULUM, dt=0)
    with pytest.raises(ValueError, match="shape"):
        view(PENDULUM, np.zeros((3, 2)))


def test_the_command_shows_a_pose_and_a_trajectory(tmp_path, capsys):
    assert main(["view", "pendulum:2", "--q", "0.3,0.1", "--no-browser", "--seconds", "0.1", "--port", "8320"]) == 0
    assert "http://127.0.0.1:" in capsys.readouterr().out
    np.savez(tmp_path / "motion.npz", time=np.arange(11) * 0.1, q=MOTION)
    command = ["view", "pendulum", "--trajectory", str(tmp_path / "motion.npz"), "--no-browser", "--seconds", "0.3"]
    assert main([*command, "--port", "8330"]) == 0
    np.savez(tmp_path / "motion.npz", q=MOTION)
    assert main(command) == 2 and "time" in capsys.readouterr().err


def red_pixels(png: bytes) -> np.ndarray:
    import io

    from PIL import Image

    rgb = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)
    return np.argwhere((rgb[..., 0] > 120) & (rgb[..., 0] > 3 * rgb[..., 1]) & (rgb[..., 0] > 3 * rgb[..., 2]))


@pytest.mark.slow
def test_a_browser_shows_the_robot_and_its_motion():
    """A red ball at the tip of the pendulum is seen, and moves on the page when the pendulum does."""
    pytest.importorskip("playwright")
    if browser_path() is None:
        pytest.skip("no Chromium is installed")
    tip = Shape(0, sphere(0.25).moved(np.eye(3), np.array([0, 0, -1.0])), (230, 0, 0))
    with view(PENDULUM, MOTION, dt=0.1, shapes=[tip], port=8310) as viewer, open_page(viewer.url, (640, 480)) as page:
        page.get_by_text("Play / pause").wait_for(timeout=60_000)
        assert page.get_by_text("degrees of freedom").count() == 1

        def seen(number: int) -> np.ndarray:
            viewer.show(number)
            deadline, last = time.monotonic() + 60, np.zeros((0, 2))
            while time.monotonic() < deadline:  # until two screenshots agree
                page.wait_for_timeout(500)
                now = red_pixels(page.screenshot())
                if len(now) > 50 and len(last) and np.abs(now.mean(axis=0) - last.mean(axis=0)).max() < 1:
                    return now
                last = now
            raise AssertionError(f"{len(last)} red pixels")

        down, side = seen(0).mean(axis=0), seen(10).mean(axis=0)
        # The tip has swung from below the base up to its height: rows count downward.
        assert side[0] < down[0] - 30
