"""An interactive view in the browser, served by viser on this machine only (unless another host is asked for)."""

from __future__ import annotations

import contextlib
import io
import threading
import time
from typing import Any

import numpy as np

from jaxsoa.contact.scene import Scene
from jaxsoa.model.multibody import Multibody
from jaxsoa.viz._optional import require
from jaxsoa.viz.guard import Guard, free_port
from jaxsoa.viz.scene import (
    Shapes,
    as_forces,
    as_motion,
    as_shapes,
    force_arrows,
    largest_forces,
    poses,
)
from jaxsoa.viz.shapes import robot_size
from jaxsoa.viz.touching import as_contacts

FRAME_RATE = 30.0


def view(
    robot: Multibody,
    q=None,
    *,
    dt: float = 0.01,
    shapes: Shapes = None,
    forces=None,
    contact: Scene | None = None,
    contact_forces=None,
    frames: bool = False,
    host: str = "127.0.0.1",
    port: int = 8080,
    open_browser: bool = False,
    verbose: bool = True,
) -> Viewer:
    """Serve a robot to the browser and return at once; the address is printed and is `.url`.

    q (nq,) is one pose (default: neutral), which sliders in the page then move joint by joint; q (times, nq), states a
    time `dt` apart, is a motion to play. `shapes`: primitive (default), a URDF path for its visuals, or your own.
    `forces` (n_links, 6) or (times, n_links, 6), as `f_ext`, become arrows; `frames` shows the links' axes at first.
    A `contact` scene shows its points and surfaces, and `contact_forces`, as in `picture`, arrows where bodies touch.
    The next free port from `port` on is taken. The address holds a secret, without which nothing is shown: pages of
    other sites that the browser shows cannot look at the robot, nor move it. In a notebook the returned `Viewer`
    displays the page.

    >>> viewer = soa.viz.view(robot, q, verbose=False)
    >>> print(viewer.url.startswith("http://127.0.0.1:"))
    True
    >>> viewer.close()
    """
    drawn = {"shapes": shapes, "forces": forces, "contact": contact, "contact_forces": contact_forces}
    viewer = Viewer(robot, q, dt=dt, **drawn, frames=frames, host=host, port=port)
    if verbose:
        print(f"{robot.name} is shown at {viewer.url}")
    if open_browser:
        import webbrowser

        webbrowser.open(viewer.url)
    return viewer


class Viewer:
    """A served scene, made by `view`: `show(number)` a state, `play()` and `pause()` the motion, `close()` it."""

    def __init__(
        self, robot: Multibody, q, *, dt, shapes, forces, frames, host, port, contact=None, contact_forces=None
    ):
        if not dt > 0:
            raise ValueError(f"dt must be positive, got {dt}.")
        self._viser = require("viser", "The view in the browser")
        self.robot, self.dt = robot, float(dt)
        self.q = as_motion(robot, q)
        self._contacts = as_contacts(robot, contact, contact_forces, self.q)
        self._shapes = as_shapes(robot, shapes) + (self._contacts.shapes if self._contacts else ())
        self._forces = as_forces(robot, forces, len(self.q))
        self._poses = poses(robot, self.q)
        self._largest = np.zeros(2) if self._forces is None else largest_forces(self._forces)
        self._size = robot_size(robot)
        port = free_port(host, port)  # viser never ends its search where there is none
        self._guard = Guard(host)
        with _quiet(), self._guard.standing_before_viser():
            self.server = self._viser.ViserServer(host=host, port=port, label=robot.name or "jaxsoa", verbose=False)
        if not self._guard.stands:
            self.server.stop()
            raise RuntimeError(f"viser {self._viser.__version__} cannot be kept from pages of other sites.")
        self._playing, self._closed = threading.Event(), threading.Event()
        self._lock = threading.RLock()
        self._number = 0
        self._build_scene(frames)
        self._build_controls(frames)
        self.show(0)
        self._player = threading.Thread(target=self._play_loop, daemon=True)
        self._player.start()

    # --- what a script does with it ---------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where the page is served; who has this address can see and steer it."""
        host = self.server.get_host()
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server.get_port()}/{self._guard.secret}/"

    @property
    def number(self) -> int:
        """Which state of the motion is shown."""
        return self._number

    def show(self, number: int) -> None:
        """Show state `number` of the motion (negative: from its end)."""
        number = range(len(self.q))[number]
        with self._lock:
            self._number = number
            self._moved_by_hand = False
            self._place(self._poses.rotation[number], self._poses.position[number])
            if len(self.q) > 1:
                self._time.value = number * self.dt

    def play(self) -> None:
        """Go on with the motion, from the state shown, in real time."""
        self._playing.set()

    def pause(self) -> None:
        """Stop at the state shown."""
        self._playing.clear()

    def wait(self, seconds: float | None = None) -> None:
        """Serve for so long, or until interrupted."""
        self._closed.wait(seconds)

    def close(self) -> None:
        """Stop serving."""
        self._closed.set()
        self._playing.set()  # wakes the player, which then ends
        self._player.join(timeout=5)
        with _quiet():
            self.server.stop()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return f'<iframe src="{self.url}" width="100%" height="480" frameborder="0"></iframe>'

    # --- the scene ---------------------------------------------------------------------------------------------

    def _build_scene(self, frames: bool) -> None:
        scene, size = self.server.scene, self._size
        scene.set_up_direction("+z")
        names = [*self.robot.link_names, "base"]
        self._links = [
            scene.add_frame(
                f"/robot/{k}_{name}",
                show_axes=frames and k < self.robot.n_links,
                axes_length=0.12 * size,
                axes_radius=0.006 * size,
            )
            for k, name in enumerate(names)
        ]
        for k, shape in enumerate(self._shapes):
            scene.add_mesh_simple(
                f"{self._links[shape.link].name}/shape{k}",
                vertices=np.asarray(shape.mesh.vertices, np.float32),
                faces=np.asarray(shape.mesh.faces, np.uint32),
                color=shape.color,
                flat_shading=not shape.smooth,
                side="double",
            )
        low, high = self._bounds()
        middle, radius = (low + high) / 2, max(float(np.linalg.norm(high - low)) / 2, 0.6 * size)
        cell = 10.0 ** np.floor(np.log10(size))
        scene.add_grid(
            "/ground",
            width=40 * cell,
            height=40 * cell,
            cell_size=cell / 2,
            section_size=cell,
            fade_distance=14 * radius,
            position=(0.0, 0.0, 0.0),
        )
        self.server.initial_camera.position = middle + 1.75 * radius * np.array([0.8, -0.9, 0.5])
        self.server.initial_camera.look_at = middle
        self.server.initial_camera.fov = np.radians(45)

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        points = self._poses.position.reshape(-1, 3)
        corners = [s.mesh.vertices @ self._poses.rotation[0, s.link].T + self._poses.position[0, s.link]
                   for s in self._shapes]  # fmt: skip
        every = np.concatenate([points, *corners])
        return every.min(axis=0), every.max(axis=0)

    def _place(self, rotation: np.ndarray, position: np.ndarray) -> None:
        self._shown_positions = position
        quaternions = self._viser.transforms.SO3.from_matrix(rotation).wxyz
        with self.server.atomic():
            for handle, quaternion, point in zip(self._links, quaternions, position, strict=True):
                handle.wxyz, handle.position = quaternion, point
            self._draw_forces()

    def _draw_forces(self) -> None:
        if self._show_forces is None:
            return
        size, arrows = self._size, []
        if self._forces is not None:
            arrows = force_arrows(self._forces[self._number], self._shown_positions, size, self._largest)
        if self._contacts is not None and not self._moved_by_hand:  # where they touch is known of the motion only
            arrows = arrows + self._contacts.arrows(self._number, size)
        points = np.array([[a.start, a.start + a.vector] for a in arrows], np.float32).reshape(-1, 2, 3)
        colors = np.array([a.color for a in arrows], np.uint8).reshape(-1, 3)
        self.server.scene.add_arrows(  # in the place of those shown before
            "/forces",
            points,
            colors,
            shaft_radius=0.008 * size,
            head_radius=0.02 * size,
            head_length=0.05 * size,
            visible=self._show_forces.value and len(arrows) > 0,
        )

    # --- the controls ------------------------------------------------------------------------------------------

    def _build_controls(self, frames: bool) -> None:
        gui = self.server.gui
        gui.configure_theme(show_logo=False, show_share_button=False)
        if hasattr(gui, "main_panel"):  # viser 1.1: beside the scene, not over it
            gui.main_panel.dock_right()
        gui.add_markdown(f"**{self.robot.name}**: {self.robot.n_links} links, {self.robot.nv} degrees of freedom")
        show_frames = gui.add_checkbox("Link frames", frames)

        @show_frames.on_update
        def _(_: Any) -> None:
            for handle in self._links[:-1]:
                handle.show_axes = show_frames.value

        self._show_forces = None
        if self._forces is not None or self._contacts is not None:
            self._show_forces = gui.add_checkbox("Forces", True)
            self._show_forces.on_update(lambda _: self._draw_forces())
        if len(self.q) > 1:
            self._build_player()
        else:
            self._build_joint_sliders()

    def _build_player(self) -> None:
        gui = self.server.gui
        end = (len(self.q) - 1) * self.dt
        self._play_button = gui.add_button("Play / pause")
        self._time = gui.add_slider("Time (s)", 0.0, end, min(self.dt, end), 0.0)
        self._speed = gui.add_slider("Speed", 0.1, 4.0, 0.1, 1.0)
        self._play_button.on_click(lambda _: self.pause() if self._playing.is_set() else self.play())

        @self._time.on_update
        def _(event: Any) -> None:
            if event.client is not None:  # moved by a hand, not by the player
                self.show(round(min(self._time.value, end) / self.dt))

    def _build_joint_sliders(self) -> None:
        robot, gui = self.robot, self.server.gui
        values = np.array(self.q[0], float)
        start = values.copy()
        sliders = []
        lower, upper = np.asarray(robot.limits.lower, float), np.asarray(robot.limits.upper, float)

        def update() -> None:
            pose = poses(robot, values[None])
            with self._lock:
                self._moved_by_hand = True
                self._place(pose.rotation[0], pose.position[0])

        with gui.add_folder("Joints", expand_by_default=robot.nv <= 16):
            for joint, name in zip(robot.topology.joints, robot.joint_names, strict=True):
                if joint.nq != joint.nv:
                    continue  # quaternions have no sliders
                for k, what in enumerate(joint.coordinates):
                    at, dof = robot.q_index(name).start + k, robot.v_index(name).start + k
                    span = np.pi if "angle" in what else 1.0
                    low = lower[dof] if np.isfinite(lower[dof]) else -span
                    high = upper[dof] if np.isfinite(upper[dof]) else span
                    # Whole steps of 0.01, wide enough for the pose shown at first.
                    low, high = np.floor(100 * min(low, values[at])) / 100, np.ceil(100 * max(high, values[at])) / 100
                    label = name if joint.nv == 1 else f"{name} {what}"
                    slider = gui.add_slider(label, float(low), float(max(high, low + 0.01)), 0.01, float(values[at]))
                    sliders.append((slider, at))

                    @slider.on_update
                    def _(_: Any, slider=slider, at=at) -> None:
                        values[at] = slider.value
                        update()

            reset = gui.add_button("Reset")

        @reset.on_click
        def _(_: Any) -> None:
            for slider, at in sliders:
                slider.value = float(start[at])

    def _play_loop(self) -> None:
        while not self._closed.is_set():
            self._playing.wait()
            if self._closed.is_set() or len(self.q) == 1:
                return
            began, first = time.perf_counter(), self._number % (len(self.q) - 1)
            while self._playing.is_set() and not self._closed.is_set():
                elapsed = (time.perf_counter() - began) * self._speed.value
                number = first + round(elapsed / self.dt)
                if number >= len(self.q):  # from the start again
                    began, first = time.perf_counter(), 0
                    number = 0
                self.show(number)
                self._closed.wait(1 / FRAME_RATE)


@contextlib.contextmanager
def _quiet():
    """viser announces its address, and its end, in a banner of its own; `view` prints one line instead."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
