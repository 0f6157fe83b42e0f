"""The command line as a person uses it: what it prints, writes and returns."""

from __future__ import annotations

import csv
import os
import signal
import sys

import jax
import numpy as np
import pytest
from helpers.mimicking import A, B, gripper_text

import jaxsoa as soa
from jaxsoa.cli import COMMANDS, main, tables
from jaxsoa.cli.linearize import continuous_model
from jaxsoa.cli.robots import BUILT_IN

ARM = """<robot name="arm"><link name="base"/><link name="rod"><inertial><mass value="2"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="rod"/></joint></robot>"""

MJCF = """<mujoco model="swing"><worldbody><body name="bob"><joint name="pin" type="hinge" axis="0 1 0"/>
<geom type="sphere" size=".1" pos="0 0 -1" mass="1"/></body></worldbody></mujoco>"""


@pytest.fixture
def arm(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(ARM)
    return path


def lines(capsys):
    captured = capsys.readouterr()
    return captured.out, captured.err


# --- help, errors, exit codes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["--help"] if command is None else [command, "--help"])
    assert leaving.value.code == 0
    out, _ = lines(capsys)
    assert "examples:" in out and f"jaxsoa {command or 'demo'}" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["info", "nosuch"], ["nosuch", "puma560"]),
        (["info", "puma56"], ["puma56", "Did you mean puma560?"]),
        (["info", "nosuch.urdf"], ["nosuch.urdf"]),
        (["info", "nosuch.npz"], ["nosuch.npz"]),
        (["info", "puma560:3"], ["puma560"]),
        (["info", "chain:many"], ["chain"]),
        (["info", "chain:0"], ["chain"]),
        (["info", "puma560", "--floating-base"], ["URDF"]),
        (["simulate", "cart_pole", "--q", "1"], ["--q", "2", "1"]),
        (["simulate", "cart_pole", "--v", "1,x"], ["--v", "'x'"]),
        (["simulate", "cart_pole", "--q", "joint7=1"], ["joint7", "joint1"]),
        (["simulate", "cart_pole", "--dt", "0"], ["--dt"]),
        (["simulate", "cart_pole", "--steps", "0"], ["step"]),
        (["simulate", "cart_pole", "-o", "motion.txt"], ["motion.txt", ".npz"]),
        (["simulate", "cart_pole", "-o", "/no/such/folder/motion.npz"], ["folder"]),
        (["linearize", "cart_pole", "--dt", "-1"], ["--dt"]),
        (["view", "cart_pole", "--trajectory", "nosuch.npz"], ["nosuch.npz"]),
        (["info", "chain:99999999999999999999"], ["chain", "10000"]),
        (["info", "chain:" + "9" * 5000], ["chain"]),
        (["info", "a\x1b[31mb"], ["a\\x1b[31mb"]),
        (["simulate", "cart_pole", "--seconds", "inf"], ["--seconds", "inf"]),
        (["simulate", "cart_pole", "--seconds", "1e300"], ["--seconds"]),
        (["simulate", "cart_pole", "--seconds", "nan"], ["--seconds"]),
        (["simulate", "cart_pole", "--seconds", "-1"], ["--seconds"]),
        (["simulate", "cart_pole", "--steps", "100000000000"], ["--steps"]),
        (["simulate", "cart_pole", "--steps", "400000000"], ["400000000 steps", "bytes"]),
        (["simulate", "cart_pole", "--q", "random", "--seed", "9" * 30], ["--seed"]),
        (["simulate", "cart_pole", "--seed", "-1"], ["--seed"]),
        (["linearize", "cart_pole", "--seed", str(2**64)], ["--seed"]),
        (["view", "cart_pole", "--port", "-1"], ["--port", "65535"]),
        (["view", "cart_pole", "--port", "99999"], ["--port", "99999"]),
        (["view", "cart_pole", "--seconds", "inf"], ["--seconds"]),
        (["view", "cart_pole", "--seconds", "1e300"], ["--seconds"]),
        (["benchmark", "cart_pole", "--batch", "10000000000000"], ["--batch"]),
        (["benchmark", "cart_pole", "--seed", "9" * 30], ["--seed"]),
        (["demo", "--seconds", "inf"], ["--seconds"]),
        (["demo", "--seconds", "1e300"], ["--seconds"]),
        (["benchmark", "cart_pole", "--batch", "0"], ["--batch"]),
        (["demo", "--batch", "0"], ["--batch"]),
        (["demo", "--output", "picture.txt"], ["picture.txt", ".png"]),
    ],
)
def test_an_error_is_one_line_that_names_the_fault(arguments, words, capsys):
    assert main(arguments) == 2
    out, err = lines(capsys)
    assert err.startswith("jaxsoa: ") and err.count("\n") == 1 and not out
    assert all(word in err for word in words), err


@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "folder"])
@pytest.mark.parametrize("option", ["-o", "--picture"])
def test_files_that_exist_are_left_alone_unless_forced(kind, option, tmp_path, capsys):
    target, name = tmp_path / "precious", "m.npz" if option == "-o" else "m.png"
    out = tmp_path / name
    if kind == "folder":
        out.mkdir()
    elif kind == "file":
        out.write_bytes(b"precious")
    else:
        if kind == "link":
            target.write_bytes(b"precious")
        out.symlink_to(target)
    command = ["simulate", "pendulum", "--steps", "1", option, str(out)]
    assert main(command) == 2
    printed, err = lines(capsys)
    assert err.count("\n") == 1 and str(out) in err and not printed
    if kind == "folder":
        assert main([*command, "--force"]) == 2 and out.is_dir()
        return
    assert "--force" in err
    assert target.exists() == (kind == "link") and (kind == "dangling link" or out.read_bytes() == b"precious")
    if option == "-o":
        assert main([*command, "--force"]) == 0
        assert not out.is_symlink() and out.read_bytes() != b"precious"
        assert target.exists() == (kind == "link") and (kind != "link" or target.read_bytes() == b"precious")
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted({name, *(["precious"] * (kind == "link"))})


def test_other_commands_ask_before_they_overwrite(tmp_path, capsys):
    for command, name in ((["linearize", "pendulum"], "m.csv"), (["demo"], "m.png")):
        (tmp_path / name).write_text("precious")
        assert main([*command, "-o", str(tmp_path / name)]) == 2
        assert "--force" in lines(capsys)[1] and (tmp_path / name).read_text() == "precious"


def test_an_interrupted_write_leaves_nothing(tmp_path):
    path = tmp_path / "m.csv"
    with pytest.raises(KeyboardInterrupt), tables.written_at_once(path) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


LONG = ["simulate", "pendulum:2", "--steps", "20000", "--dt", "0.001", "--integrator", "semi_implicit_euler"]


@pytest.mark.skipif(sys.platform == "win32", reason="asks the system for limits that Windows does not have")
@pytest.mark.parametrize("ending", [".npz", ".csv"])
def test_a_full_disk_is_one_line_and_leaves_nothing(ending, tmp_path, capsys):
    """As far as a program sees: no file may grow beyond some bytes, and the system refuses the rest."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Nor may JAX keep half a program on disk, where other tests would find it.
    least = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        code = main([*LONG, "-o", str(tmp_path / f"motion{ending}")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
    _, err = lines(capsys)
    assert code == 2 and err.startswith("jaxsoa: ") and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("when", ["computing", "writing"])
def test_an_interrupt_is_130_and_leaves_no_part_of_a_file(when, tmp_path, capsys, monkeypatch):
    """SIGINT, as Ctrl-C sends it, by the process to itself: in the middle of its work, or of a file."""
    where, name = (soa, "rollout") if when == "computing" else (np, "savetxt")
    inner = getattr(where, name)

    def interrupted(target, *arguments, **options):
        if when == "writing":
            target.write_text("half")
        os.kill(os.getpid(), signal.SIGINT)
        return inner(target, *arguments, **options)

    monkeypatch.setattr(where, name, interrupted)
    # Where tests run in the background, a shell may have had SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main([*LONG, "-o", str(tmp_path / "motion.csv")]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert lines(capsys)[1].splitlines()[-1] == "jaxsoa: interrupted"
    assert not list(tmp_path.iterdir())


def test_no_name_of_a_file_reaches_the_terminal_as_it_is(tmp_path, arm, capsys):
    """Escape sequences in names of files, links and robots; and messages have an end."""
    for name in ("\x9b31m", "\u202eevil", "a\u2028b", "a&#10;b"):
        arm.write_text(ARM.replace("hinge", name), encoding="utf-8")
        assert main(["info", str(arm)]) == 2
        out, err = lines(capsys)
        assert not out and err.count("\n") == 1 and err.rstrip("\n").isprintable() and "control characters" in err
    hostile = tmp_path / "\x1b]0;title\x07.urdf"
    hostile.write_text(ARM.replace('value="2"', 'value="' + "9" * 20_000 + '"'))
    assert main(["info", str(hostile)]) == 2
    out, err = lines(capsys)
    assert not out and err.rstrip("\n").isprintable() and len(err) < 2500
    hostile.write_text(ARM.replace('ixx="1"', 'ixx="5"'))
    assert main(["simulate", str(hostile), "--steps", "0"]) == 2
    assert main(["info", str(hostile)]) == 0
    out, err = lines(capsys)
    assert "\x1b" not in out + err and "warning:" in out


def test_no_command_shows_the_help(capsys):
    assert main([]) == 2
    assert "examples:" in lines(capsys)[1]


def test_a_missing_library_is_told_before_the_work(monkeypatch, capsys):
    def missing(module, purpose):
        raise ImportError(f"{purpose} needs {module}")

    monkeypatch.setattr("jaxsoa.viz.pictures.require", missing)
    monkeypatch.setattr("shutil.which", lambda name: None)
    for arguments in (["simulate", "cart_pole", "--picture"], ["demo", "--output"]):
        for name, word in (("a.gif", "PIL"), ("a.mp4", "ffmpeg"), ("a.webp", "PIL")):
            assert main([*arguments, name]) == 2
            out, err = lines(capsys)
            assert word in err and err.count("\n") == 1 and not out


def test_simulate_stops_joints_at_their_limits_and_says_which(arm, tmp_path, capsys):
    limited = ARM.replace('type="continuous"', 'type="revolute"').replace(
        "</joint>", '<limit lower="-0.1" upper="0.1" effort="1" velocity="1"/></joint>'
    )
    arm.write_text(limited)
    for speed, limits, told in (("1", "ignored", "not enforced: hinge"), ("1", "stops", "past them by what the stops")):
        motion = tmp_path / f"{limits}.npz"
        options = ["--v", speed, "--steps", "50", "--dt", "0.01", "--limits", limits, "-o", str(motion)]
        assert main(["simulate", str(arm), *options]) == 0
        assert told in lines(capsys)[0]
        reached = np.abs(np.load(motion)["q"]).max()
        assert reached > 0.45 if limits == "ignored" else reached < 0.14
    assert main(["simulate", str(arm), "--v", "0.01", "--steps", "50", "--dt", "0.01"]) == 0
    assert "limits" not in lines(capsys)[0]


def test_simulate_couples_mimic_joints_unless_they_are_free(tmp_path, capsys):
    (tmp_path / "gripper.urdf").write_text(gripper_text())
    off = {}
    for mimics in ("coupled", "free"):
        motion = tmp_path / f"{mimics}.npz"
        options = ["--v", "shoulder=1", "--steps", "20", "--dt", "0.01", "-o", str(motion)]
        options += [] if mimics == "coupled" else ["--mimics", "free"]
        assert main(["simulate", str(tmp_path / "gripper.urdf"), *options]) == 0
        q = np.load(motion)["q"]
        off[mimics] = np.abs(q - (q[:, [0, 3]] @ A.T + B)).max()
    lines(capsys)
    assert off["coupled"] < 1e-5 < 1e-2 < off["free"]  # in single precision


def test_a_broken_file_is_one_line_and_a_traceback_if_asked(arm, capsys):
    arm.write_text(ARM.replace('value="2"', 'value="-2"'))
    assert main(["info", str(arm)]) == 2
    _, err = lines(capsys)
    assert err.count("\n") == 1 and "rod" in err and "-2" in err
    for arguments in (["--traceback", "info", str(arm)], ["info", str(arm), "--traceback"]):
        with pytest.raises(soa.ModelError):
            main(arguments)


# --- info -----------------------------------------------------------------------------------------------------------


def test_info_shows_the_tree(arm, capsys):
    assert main(["info", str(arm), "--joints"]) == 0
    out, _ = lines(capsys)
    assert "1 moving links" in out and "rod  (continuous hinge, 2.000 kg)" in out
    assert "hinge  continuous  0" in out
    body = ARM.split('<link name="rod">')[1].split("</link>")[0]
    arm.write_text(ARM.replace('<link name="base"/>', f'<link name="base">{body}</link>'))
    assert main(["info", str(arm), "--floating-base"]) == 0
    assert "nq 8, nv 7" in lines(capsys)[0]


def test_info_draws_branches(capsys):
    assert main(["info", "dual_arm"]) == 0
    out, _ = lines(capsys)
    assert "├─ left_shoulder_pitch_link" in out and "└─ right_shoulder_pitch_link" in out and "│  └─ left" in out


def test_info_reports_what_is_doubtful(arm, capsys):
    arm.write_text(ARM.replace('ixx="1"', 'ixx="5"'))
    assert main(["info", str(arm)]) == 0
    assert "warning:" in lines(capsys)[0]


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_robot_has_a_name(name, capsys):
    assert main(["info", name]) == 0
    assert name in lines(capsys)[0]


def test_robots_from_mjcf(tmp_path, capsys):
    pytest.importorskip("mujoco")
    path = tmp_path / "swing.xml"
    path.write_text(MJCF)
    assert main(["info", str(path)]) == 0
    assert "bob" in lines(capsys)[0]


# --- simulate, linearize, benchmark ---------------------------------------------------------------------------------


def test_simulate_writes_the_motion_of_rollout(tmp_path, capsys):
    npz, table, picture = tmp_path / "m.npz", tmp_path / "m.csv", tmp_path / "m.png"
    common = ["simulate", "pendulum:2", "--q", "joint2=0.5", "--tau", "1,0", "--steps", "103", "--dt", "0.01"]
    common += ["--integrator", "semi_implicit_euler"]
    assert main([*common, "-o", str(npz), "--picture", str(picture)]) == 0
    assert str(npz) in lines(capsys)[0]
    robot = soa.models.pendulum(2)
    torques = np.tile([1.0, 0.0], (103, 1))
    expected = jax.jit(lambda q: soa.rollout(robot, q, np.zeros(2), torques, 0.01))(np.array([0, 0.5]))
    with np.load(npz) as file:
        assert file["time"].shape == (104,) and file["q"].shape == (104, 2)
        np.testing.assert_allclose(file["q"][1:], expected.q, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(file["v"][1:], expected.v, rtol=1e-10, atol=1e-12)
    assert picture.read_bytes().startswith(b"\x89PNG")
    # Started where velocities overflow: reported, and still written.
    assert main([*common, "--v", "0,1e200", "-o", str(table)]) == 1
    assert "diverged at 0.01 s" in lines(capsys)[0]
    with table.open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["time", "q.joint1", "q.joint2", "v.joint1", "v.joint2", "energy"]
    assert len(rows) == 105 and [float(x) for x in rows[1][:5]] == [0, 0, 0.5, 0, 1e200]


URDF_OF_A_BRICK = """<robot name="brick"><link name="brick"><inertial><mass value="2"/>
<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><geometry><box size="0.2 0.2 0.1"/></geometry></collision></link></robot>"""


def test_simulate_on_the_ground(tmp_path, capsys):
    """A brick falls 1 cm and stays."""
    path, npz = tmp_path / "brick.urdf", tmp_path / "m.npz"
    path.write_text(URDF_OF_A_BRICK)
    common = ["simulate", str(path), "--floating-base", "--q", "floating_base=1,0,0,0,0,0,0.06", "--seconds", "0.2"]
    common += ["--dt", "0.004", "-o", str(npz)]
    assert main([*common, "--ground", "0.5", "--touching", "brick", "--picture", str(tmp_path / "m.png")]) == 0
    assert "semi_implicit_euler" in lines(capsys)[0]
    with np.load(npz) as file:
        np.testing.assert_allclose(file["q"][-1], [1, 0, 0, 0, 0, 0, 0.05], atol=1e-9)
        assert np.abs(file["v"][-1]).max() < 1e-9
    assert main(["simulate", "pendulum", "--ground"]) == 2 and "not a file" in lines(capsys)[1]
    assert main([*common, "--force", "--ground", "-1"]) == 2 and "friction must not be negative" in lines(capsys)[1]
    assert main([*common, "--force", "--ground", "--touching", "bric"]) == 2
    for text, words in (
        ("floating_base=1,0,0", "has 7 entries in q, got 3"),
        ("1,floating_base=0", "before the first"),
    ):
        assert main(["simulate", str(path), "--floating-base", "--q", text]) == 2 and words in lines(capsys)[1]


def test_linearize_finds_the_falling_pendulum(tmp_path, capsys):
    npz, table = tmp_path / "model.npz", tmp_path / "model.csv"
    assert main(["linearize", "pendulum", "--q", str(np.pi), "-o", str(npz)]) == 0
    out, _ = lines(capsys)
    robot = soa.models.pendulum(1)
    m, l, central = float(robot.mass[0]), float(-robot.com[0, 2]), float(robot.inertia[0, 1, 1])
    rate = np.sqrt(m * 9.81 * l / (central + m * l**2))
    assert "(1 of 2 growing)" in out and f"{rate:+.4f}" in out and "doubles every" in out
    with np.load(npz) as file:
        A, B, values = file["A"], file["B"], file["eigenvalues"]
    np.testing.assert_allclose(np.sort(values.real), [-rate, rate], rtol=1e-9)
    assert main(["linearize", "pendulum", "--q", str(np.pi), "-o", str(table)]) == 0
    with table.open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["dq.joint1", "dv.joint1", "dtau.joint1"]
    np.testing.assert_allclose(np.array(rows[1:], float), np.concatenate([A, B], axis=1), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_the_continuous_model_of_a_turning_body():
    """A spherical joint turning with w: d/dt dq = dv - w x dq; the lower rows by central differences."""
    robot = soa.models.random_tree(3, 1, ["spherical"])
    q, w, tau = robot.random(1), np.array([0.3, -0.8, 0.5]), np.array([0.2, 0.1, -0.4])
    A, B = jax.jit(continuous_model)(robot, q, w, tau)
    turning = np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
    np.testing.assert_allclose(A[:3], np.concatenate([-turning, np.eye(3)], axis=1), atol=1e-12)
    np.testing.assert_array_equal(B[:3], 0)
    dynamics = jax.jit(lambda x: soa.forward_dynamics(robot, robot.integrate(q, x[:3]), w + x[3:6], tau + x[6:]))
    h = 1e-6
    columns = [(dynamics(h * e) - dynamics(-h * e)) / (2 * h) for e in np.eye(9)]
    lower = np.concatenate([A[3:], B[3:]], axis=1)
    # Central differences in double precision: rounding 1e-16 / h, times accelerations of order 100.
    np.testing.assert_allclose(np.stack(columns, axis=1), lower, atol=1e-7 * np.abs(lower).max())


@pytest.mark.slow
def test_benchmark_agrees_with_pinocchio(capsys):
    pytest.importorskip("pinocchio")
    assert main(["benchmark", "pendulum:2", "--batch", "3", "--repetitions", "1"]) == 0
    out, _ = lines(capsys)
    assert "linearized forward dynamics" in out and "largest relative difference from Pinocchio" in out


@pytest.mark.slow
def test_demo_runs_checks_itself_and_writes_a_picture(tmp_path, capsys):
    picture = tmp_path / "demo.png"
    assert main(["demo", "--batch", "4", "--seconds", "0.1", "--output", str(picture)]) == 0
    out, _ = lines(capsys)
    assert "energy drift" in out and str(picture) in out
    assert picture.read_bytes().startswith(b"\x89PNG")
