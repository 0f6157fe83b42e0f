"""The pictures of the README: a falling arm, and a screenshot of the interactive view in a headless Chromium.

    pip install -e ".[viz]" playwright && python experiments/pictures/draw.py

Without a Chromium on the path the screenshot is left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import jaxsoa as soa  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from helpers.browser import browser_path, open_page  # noqa: E402

HERE = Path(__file__).parent


def falling_puma() -> None:
    """A PUMA 560, its shoulder where its column has it, let go with its upper arm raised: 0.8 s, five ghosts."""
    robot = soa.models.puma560().with_base(np.eye(3), np.array([0, 0, 0.67]))
    q = jnp.array([0.3, 1.9, -0.6, 0.2, 0.5, 0.1])
    motion = jax.jit(lambda q: soa.rollout(robot, q, jnp.zeros(6), None, 2e-3, steps=400, integrator="rk4"))(q)
    soa.viz.picture(robot, np.concatenate([q[None], motion.q]), HERE / "puma_falling.png")


def viewer_screenshot() -> None:
    """The dual arm in the browser: link frames, and the 20 N that a load pulls down each hand with."""
    robot = soa.models.dual_arm()
    pose = {"left_shoulder_pitch": -0.9, "left_shoulder_roll": 0.5, "left_elbow_pitch": -1.3, "left_wrist_pitch": 0.4}
    pose |= {"right_shoulder_pitch": -0.3, "right_shoulder_roll": -0.7, "right_elbow_pitch": -1.0, "torso_yaw": 0.3}
    q = np.array(robot.neutral())
    for joint, angle in pose.items():
        q[robot.q_index(joint)] = angle
    forces = np.zeros((robot.n_links, 6))
    for side in ("left", "right"):
        forces[robot.link_names.index(f"{side}_wrist_roll_link"), 5] = -20.0
    with soa.viz.view(robot, q, forces=forces, frames=True) as viewer, open_page(viewer.url, (960, 600)) as page:
        page.get_by_text("Joints").wait_for(timeout=120_000)
        page.wait_for_timeout(15_000)
        for notice in page.locator("[class*=Notification-closeButton]").all():
            notice.click()  # "software rendering": true, and of no interest here
        page.wait_for_timeout(5_000)
        page.screenshot(path=HERE / "viewer.png")


falling_puma()
if browser_path() is None:
    print("no Chromium is installed: no screenshot")
else:
    viewer_screenshot()
