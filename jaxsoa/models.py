"""Ready-made robots: textbook mechanisms, two arms with published parameters, and random trees for testing.

Each public function returns a `Multibody`; the private `_describe_*` function beside it says, in plain NumPy, what
the robot is made of. Unless said otherwise links are numbered from the base (`link1`, moved by `joint1`), the root
link is `base`, and gravity is the default of the model, 9.81 m/s^2 along -z.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.model.assemble import assemble
from jaxsoa.model.description import FrameDescription, JointDescription, LinkDescription, RobotDescription
from jaxsoa.model.joints import JOINT_KINDS
from jaxsoa.model.multibody import Multibody

_X = np.array([1.0, 0.0, 0.0])
_Y = np.array([0.0, 1.0, 0.0])
_Z = np.array([0.0, 0.0, 1.0])
_BASE = LinkDescription("base")

_Column = Sequence[float] | np.ndarray


# Textbook mechanisms


def pendulum(n: int = 1, *, length: float = 1.0, mass: float = 1.0) -> Multibody:
    """n equal uniform rods on hinges about y, swinging in the x-z plane; at q = 0 they hang straight down.

    `length` and `mass` are those of one rod. The frame `tip` is at the end of the last one.
    """
    return assemble(_describe_pendulum(n, length, mass))


def _describe_pendulum(n: int, length: float, mass: float) -> RobotDescription:
    return _describe_serial_rods("pendulum", n, -length * _Z, mass, axis=_Y)


def planar_arm(n: int = 3, *, length: float = 0.5, mass: float = 1.0) -> Multibody:
    """n equal uniform rods on hinges about z, in the horizontal plane where gravity does no work; along x at q = 0.

    `length` and `mass` are those of one rod. The frame `tip` is at the end of the last one.
    """
    return assemble(_describe_planar_arm(n, length, mass))


def _describe_planar_arm(n: int, length: float, mass: float) -> RobotDescription:
    return _describe_serial_rods("planar_arm", n, length * _X, mass, axis=_Z)


def chain(n: int, *, length: float = 0.3, mass: float = 1.0) -> Multibody:
    """n equal rods in space: each hinge is turned by +90 or -90 degrees against the one before it and set off from it.

    Neighbouring axes are skew (they neither meet nor are parallel), so no term of the dynamics vanishes by symmetry.
    `length` and `mass` are those of one rod. The frame `tip` is at the end of the last one.
    """
    return assemble(_describe_chain(n, length, mass))


def _describe_chain(n: int, length: float, mass: float) -> RobotDescription:
    offset = np.array([1.0, 0.0, 0.2]) * length  # along the rod, and a little along its hinge
    quarter_turns = (_rotation_about_x(np.pi / 2), _rotation_about_x(-np.pi / 2))
    return _describe_serial_rods("chain", n, offset, mass, axis=_Z, turn=lambda k: quarter_turns[k % 2])


def _describe_serial_rods(
    name: str,
    n: int,
    rod: np.ndarray,
    mass: float,
    *,
    axis: np.ndarray,
    turn: Callable[[int], np.ndarray] = lambda k: np.eye(3),
) -> RobotDescription:
    """n copies of a rod from its hinge to `rod`; `turn(k)` orients hinge k (1, 2, ...) in the link before it."""
    _require_links(name, n)
    links, joints = [_BASE], []
    for k in range(1, n + 1):
        links.append(_rod(f"link{k}", rod, mass))
        joints.append(
            JointDescription(
                f"joint{k}",
                "continuous",
                links[k - 1].name,
                links[k].name,
                rotation=np.eye(3) if k == 1 else turn(k),
                position=np.zeros(3) if k == 1 else rod,
                axis=axis,
            )
        )
    tip = FrameDescription("tip", links[-1].name, position=rod)
    return RobotDescription(name, tuple(links), tuple(joints), (tip,), source=f"jaxsoa.models.{name}")


def cart_pole() -> Multibody:
    """A cart sliding along x with a pole hinged on it about y; q = (cart position, pole angle), q = 0 is upright.

    Masses and lengths of A. G. Barto, R. S. Sutton and C. W. Anderson, "Neuronlike adaptive elements that can solve
    difficult learning control problems", IEEE Trans. SMC 13(5), 1983: cart 1.0 kg, pole 0.1 kg and 1 m long.
    `joint1` moves the cart (`link1`), `joint2` the pole (`link2`); the frame `tip` is at the end of the pole.
    """
    return assemble(_describe_cart_pole())


def _describe_cart_pole() -> RobotDescription:
    cart = LinkDescription("link1", mass=1.0, inertia=np.eye(3) * 0.01)  # it never turns, so any inertia will do
    pole = _rod("link2", _Z, 0.1)
    slide = JointDescription("joint1", "prismatic", "base", "link1", axis=_X)
    hinge = JointDescription("joint2", "continuous", "link1", "link2", axis=_Y)
    tip = FrameDescription("tip", "link2", position=_Z)
    return RobotDescription("cart_pole", (_BASE, cart, pole), (slide, hinge), (tip,), source="jaxsoa.models.cart_pole")


# Arms with published parameters


def _describe_dh_arm(
    name: str,
    *,
    twist: _Column,
    length: _Column,
    offset: _Column,
    mass: _Column,
    com: np.ndarray,
    inertia: np.ndarray,
    armature: _Column,
    limits: np.ndarray,
    damping: _Column | None = None,
    friction: _Column | None = None,
    prismatic: Sequence[int] = (),
    tool: float = 0.0,
) -> RobotDescription:
    """A serial arm as papers tabulate it: one entry per link, standard Denavit-Hartenberg frames.

    The pose of link frame i in link frame i - 1 is Rot_z(theta) Trans_z(offset) Trans_x(length) Rot_x(twist), where
    theta, or for the links in `prismatic` the way along z, is the joint variable. `com` (n, 3) and `inertia`
    (n, 3, 3), about the centre of mass, are given in that frame, at the far end of the link. Here link frames sit on
    the joint axis instead, which leaves the joint variables as they are. The frame `tool` is the last tabulated one,
    moved along its z axis.
    """
    links, joints = [_BASE], []
    rotation, position = np.eye(3), np.zeros(3)  # of the last tabulated frame, seen from the link it belongs to
    for i in range(len(mass)):
        joints.append(
            JointDescription(
                f"joint{i + 1}",
                "prismatic" if i in prismatic else "revolute",
                links[i].name,
                f"link{i + 1}",
                rotation=rotation,
                position=position,
                axis=_Z,
                armature=float(armature[i]),
                damping=float(damping[i]) if damping is not None else 0.0,
                friction=float(friction[i]) if friction is not None else 0.0,
                lower=float(limits[i, 0]),
                upper=float(limits[i, 1]),
            )
        )
        rotation, position = _rotation_about_x(twist[i]), np.array([length[i], 0.0, offset[i]])
        link_com = position + rotation @ com[i]
        links.append(LinkDescription(f"link{i + 1}", mass[i], link_com, rotation @ inertia[i] @ rotation.T))
    end = FrameDescription("tool", links[-1].name, rotation, position + rotation @ (tool * _Z))
    return RobotDescription(name, tuple(links), tuple(joints), (end,), source=f"jaxsoa.models.{name}")


def puma560(*, friction: bool = False) -> Multibody:
    """The Unimation PUMA 560, six revolute joints, with measured parameters and reflected motor inertias.

    Masses, centres of mass and inertias: B. Armstrong, O. Khatib and J. Burdick, "The explicit dynamic model and
    inertial parameters of the PUMA 560 arm", Proc. IEEE ICRA 1986, pp. 510-518. Geometry, motor inertias, gear ratios
    and friction: P. I. Corke and B. Armstrong-Helouvry, "A search for consensus among model parameters reported for
    the PUMA 560 robot", Proc. IEEE ICRA 1994, pp. 1608-1613, as tabulated (in standard Denavit-Hartenberg frames) in
    Corke's Robotics Toolbox, model `p560`. Joint angles are those of that table; the link frames here sit on the
    joint axes, as in modified Denavit-Hartenberg geometry. The origin is the shoulder, z up; the frame `tool` is the
    wrist centre.

    Published values, which the tests compare with (SI units, gravity 9.81), at the toolbox's nominal pose
    qn = (0, pi/4, pi, 0, pi/4, 0):

        gravity load    (0, 31.6399, 6.0351, 0, 0.0283, 0)
        mass matrix     diagonal (3.6594, 4.4137, 0.9378, 0.1925, 0.1713, 0.1941), and
                        M12 = -0.4044, M13 = 0.1006, M23 = 0.3509, M14 = -0.0025, M25 = 0.0024, M35 = 0.0015

    and the gravity constant g1 = -37.2 N m (upper arm) of Armstrong et al. Their g2 = -8.44 N m (forearm) becomes
    -8.74 here, because the toolbox puts the centre of mass of link 4 19 mm beyond the wrist centre, they 19 mm before
    it; the toolbox's table is followed, so that its published results are met to every digit.

    The published inertia of link 3 misses the triangle inequality of principal moments by a tenth (0.086 against
    0.066 + 0.0125); it is kept as measured. The papers give link 1 only its moment about the joint axis, since
    nothing else of it acts on a fixed base. So that the link is a physical body, it has 13 kg here and the same
    moment about every axis; on a fixed base this changes no torque, but the total mass and momentum are only as good
    as that guess.

    `friction=True` adds the viscous and Coulomb friction of the same table (Coulomb friction averaged over both
    directions); without it the arm conserves energy.
    """
    # The published inertia of link 3 is known to be no rigid body's: no need to warn every user of it.
    return assemble(_describe_puma560(friction), validate="off")


def _describe_puma560(friction: bool = False) -> RobotDescription:
    moments = [
        [0.35, 0.35, 0.35],
        [0.13, 0.524, 0.539],
        [0.066, 0.086, 0.0125],
        [1.8e-3, 1.3e-3, 1.8e-3],
        [0.3e-3, 0.4e-3, 0.3e-3],
        [0.15e-3, 0.15e-3, 0.04e-3],
    ]
    com = [
        [0.0, 0.0, 0.0],
        [-0.3638, 0.006, 0.2275],
        [-0.0203, -0.0141, 0.070],
        [0.0, 0.019, 0.0],
        [0.0, 0.0, 0.0],
        [0.0, 0.0, 0.032],
    ]
    limits = [[-160, 160], [-45, 225], [-225, 45], [-110, 170], [-100, 100], [-266, 266]]
    # Measured at the motor: inertia and viscous friction reflect with the square of the gear ratio.
    gear = np.array([62.6111, 107.815, 53.7063, 76.0364, 71.923, 76.686])
    motor_inertia = np.array([200e-6, 200e-6, 200e-6, 33e-6, 33e-6, 33e-6])
    viscous = np.array([1.48e-3, 0.817e-3, 1.38e-3, 71.2e-6, 82.6e-6, 36.7e-6])
    coulomb_forward = np.array([0.395, 0.126, 0.132, 11.2e-3, 9.26e-3, 3.96e-3])
    coulomb_backward = np.array([0.435, 0.071, 0.105, 16.9e-3, 14.5e-3, 10.5e-3])
    return _describe_dh_arm(
        "puma560",
        twist=np.radians([90, 0, -90, 90, -90, 0]),
        length=[0.0, 0.4318, 0.0203, 0.0, 0.0, 0.0],
        offset=[0.0, 0.0, 0.15005, 0.4318, 0.0, 0.0],
        mass=[13.0, 17.4, 4.8, 0.82, 0.34, 0.09],
        com=np.array(com),
        inertia=np.array([np.diag(row) for row in moments]),
        armature=motor_inertia * gear**2,
        limits=np.radians(limits),
        damping=viscous * gear**2 if friction else None,
        friction=(coulomb_forward + coulomb_backward) / 2 * gear if friction else None,
    )


def stanford_arm() -> Multibody:
    """The Stanford arm of V. Scheinman: revolute, revolute, prismatic, then a three-axis wrist.

    Mass properties and reflected actuator inertias: R. P. Paul, "Robot Manipulators: Mathematics, Programming, and
    Control", MIT Press 1981, chapter 6, after A. K. Bejczy, "Robot arm dynamics and control", JPL TM 33-669, 1974.
    Geometry: R. P. Paul, "Modelling, trajectory calculation and servoing of a computer controlled arm", Stanford
    AIM-177, 1972. Joint variables are those of the standard Denavit-Hartenberg table with theta3 = 0; the link frames
    here sit on the joint axes. q[2] is the extension of the boom, from 6 to 44 inches; q[2] = 0 draws the wrist
    centre into the shoulder, so `neutral()` is no pose of the real arm. z is up, and at q = 0 the boom points up.

    The same sources give the smallest and largest inertia seen by each joint without load, kg m^2 and kg, which the
    tests compare with, to one per cent:

        joint       1        2        3        4        5
        smallest    1.417    3.590    7.257    0.108    0.114
        largest     6.176    6.950    7.257    0.123    0.114
    """
    return assemble(_describe_stanford_arm())


def _describe_stanford_arm() -> RobotDescription:
    # Copies of these tables are in circulation with the centres of mass of links 2 to 6 ten times too far out and the
    # entries of link 5 moved by one column; both make moments about the centre of mass negative. The values below
    # keep every link physical and give the published inertias quoted above.
    mass = np.array([9.29, 5.01, 4.25, 1.08, 0.63, 0.51])
    com = np.array(
        [
            [0.0, 0.0175, -0.1105],
            [0.0, -0.1054, 0.0],
            [0.0, 0.0, -0.6447],
            [0.0, 0.0092, -0.0054],
            [0.0, 0.0, 0.0566],
            [0.0, 0.0, 0.1554],
        ]
    )
    # Tabulated about the origin of the link's frame, without products of inertia.
    origin_moments = [
        [0.276, 0.255, 0.071],
        [0.108, 0.018, 0.100],
        [2.51, 2.51, 0.006],
        [0.002, 0.001, 0.001],
        [0.003, 0.003, 0.0004],
        [0.013, 0.013, 0.0003],
    ]
    # The parallel-axis theorem takes them to the centre of mass.
    inertia = [
        np.diag(row) - m * (c @ c * np.eye(3) - np.outer(c, c))
        for row, m, c in zip(origin_moments, mass, com, strict=True)
    ]
    limits = np.radians([[-170, 170], [-170, 170], [0, 0], [-170, 170], [-90, 90], [-170, 170]])
    # The stroke is 38 inches; that it ends at 44 is inferred from the largest inertias quoted above.
    limits[2] = 6 * 0.0254, 44 * 0.0254
    return _describe_dh_arm(
        "stanford_arm",
        twist=np.radians([-90, 90, 0, -90, 90, 0]),
        length=np.zeros(6),
        offset=[0.412, 0.154, 0.0, 0.0, 0.0, 0.0],
        mass=mass,
        com=com,
        inertia=np.array(inertia),
        armature=[0.953, 2.193, 0.782, 0.106, 0.097, 0.020],
        limits=limits,
        prismatic=(2,),
        tool=0.263,
    )


# A robot with two hands


def dual_arm() -> Multibody:
    """A torso that turns about z (`torso_yaw`) and carries two equal seven-joint arms, hanging down at q = 0.

    Joints are `left_shoulder_pitch` ... `left_wrist_roll` and the same for `right_`, links the same without the
    motion (`left_shoulder_pitch_link`); the frames `left_hand` and `right_hand` are where they hold things. The
    proportions are those of a small humanoid, the numbers are invented.
    """
    return assemble(_describe_dual_arm())


def _describe_dual_arm() -> RobotDescription:
    # name, axis, length to the next joint (m), mass (kg)
    segments = (
        ("shoulder_pitch", _Y, 0.06, 2.0),
        ("shoulder_roll", _X, 0.10, 2.5),
        ("shoulder_yaw", _Z, 0.20, 2.5),
        ("elbow_pitch", _Y, 0.12, 2.0),
        ("forearm_yaw", _Z, 0.15, 1.5),
        ("wrist_pitch", _Y, 0.06, 0.8),
        ("wrist_roll", _X, 0.10, 0.6),
    )
    links = [_BASE, _rod("torso", 0.6 * _Z, 20.0, radius=0.12)]
    joints = [JointDescription("torso_yaw", "revolute", "base", "torso", axis=_Z, lower=-2.8, upper=2.8)]
    frames = []
    for side, sign in (("left", 1.0), ("right", -1.0)):
        parent, position = "torso", np.array([0.0, 0.2 * sign, 0.55])
        for name, axis, length, mass in segments:
            link = _rod(f"{side}_{name}_link", -length * _Z, mass, radius=0.04)
            joint = JointDescription(
                f"{side}_{name}", "revolute", parent, link.name, position=position, axis=axis, lower=-2.8, upper=2.8
            )
            links.append(link)
            joints.append(joint)
            parent, position = link.name, -length * _Z
        frames.append(FrameDescription(f"{side}_hand", parent, position=position))
    return RobotDescription("dual_arm", tuple(links), tuple(joints), tuple(frames), source="jaxsoa.models.dual_arm")


# Random trees

# Degrees of freedom of every joint kind that moves.
_DEGREES = {name: joint.nv for name, joint in JOINT_KINDS.items() if joint.nv > 0}

TreeShape = Literal["random", "chain", "star"]


def random_tree(
    key: Any,
    n: int,
    kinds: Sequence[str] | None = None,
    *,
    shape: TreeShape = "random",
    floating_base: bool = False,
    armature: bool = False,
    damping: bool = False,
    friction: bool = False,
) -> Multibody:
    """A random tree of n moving links: random topology, joints, placements and physical inertias.

    - `key`: a JAX random key or an integer; the same key gives the same robot.
    - `kinds`: the joint kinds to draw from (default: every kind that moves). Each of them occurs when n is at least
      their number, and none much more often than another.
    - `shape`: "random" hangs each link on the base or any earlier link, "chain" on the last one, "star" on the base.
    - `floating_base`: the base is itself a moving link, on a free joint; it is one of the n.
    - `armature`, `damping`, `friction`: whether the joints have random positive ones.

    Runs on the host: it cannot be traced, since the topology it draws is static.
    """
    _require_links("random_tree", n)
    description = _describe_random_tree(
        key, n - floating_base, kinds, shape=shape, armature=armature, damping=damping, friction=friction
    )
    return assemble(description, floating_base=floating_base)


def _describe_random_tree(
    key: Any,
    n: int,
    kinds: Sequence[str] | None = None,
    *,
    shape: TreeShape = "random",
    armature: bool = False,
    damping: bool = False,
    friction: bool = False,
) -> RobotDescription:
    kinds = tuple(_DEGREES) if kinds is None else tuple(kinds)
    unknown = [kind for kind in kinds if kind not in _DEGREES]
    if unknown or not kinds:
        raise ValueError(f"random_tree: kinds must be some of {', '.join(_DEGREES)}; got {list(kinds)}.")
    if shape not in ("random", "chain", "star"):
        raise ValueError(f'random_tree: shape must be "random", "chain" or "star"; got {shape!r}.')

    rng = _host_generator(key)
    # Whole rounds of all kinds, cut to n after shuffling each round: every kind occurs as soon as there is room.
    rounds = -(-n // len(kinds))
    drawn = [kind for _ in range(rounds) for kind in rng.permutation(kinds)][:n]

    links, joints = [_random_link(rng, "base")], []
    for k, kind in enumerate(drawn, start=1):
        parent = {"random": int(rng.integers(k)), "chain": k - 1, "star": 0}[shape]
        axes = _random_rotation(rng)
        degrees = _DEGREES[kind]
        joints.append(
            JointDescription(
                f"joint{k}",
                str(kind),
                links[parent].name,
                f"link{k}",
                rotation=_random_rotation(rng),
                position=rng.normal(scale=0.3, size=3),
                axis=axes[0],
                axis2=axes[1],
                pitch=float(rng.uniform(0.05, 0.3)) if kind == "helical" else 0.0,
                armature=rng.uniform(0.01, 0.2, degrees).tolist() if armature else 0.0,
                damping=rng.uniform(0.01, 0.5, degrees).tolist() if damping else 0.0,
                friction=rng.uniform(0.01, 0.5, degrees).tolist() if friction else 0.0,
            )
        )
        links.append(_random_link(rng, f"link{k}"))
    return RobotDescription("random_tree", tuple(links), tuple(joints), source="jaxsoa.models.random_tree")


def _host_generator(key: Any) -> np.random.Generator:
    """A NumPy generator seeded by an integer or by the bits of a JAX key (of the new or the old style)."""
    if isinstance(key, int | np.integer):
        return np.random.default_rng(int(key))
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    return np.random.default_rng(np.asarray(key).ravel().tolist())


def _random_rotation(rng: np.random.Generator) -> np.ndarray:
    orthogonal = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return orthogonal * np.sign(np.linalg.det(orthogonal))


def _random_link(rng: np.random.Generator, name: str) -> LinkDescription:
    """A solid body of random mass, extent and orientation.

    Drawing the second moments of the mass distribution, not the inertia, is what makes every draw physical.
    """
    mass = float(rng.uniform(0.5, 2.0))
    axes = _random_rotation(rng)
    second_moments = mass * axes @ np.diag(rng.uniform(0.05, 0.25, 3) ** 2) @ axes.T
    inertia = np.trace(second_moments) * np.eye(3) - second_moments
    return LinkDescription(name, mass, rng.normal(scale=0.15, size=3), inertia)


# Shared parts


def _rod(name: str, end: np.ndarray, mass: float, radius: float = 0.02) -> LinkDescription:
    """A uniform solid cylinder from the link's origin to `end`."""
    length = float(np.linalg.norm(end))
    along = np.outer(end, end) / length**2
    across = np.eye(3) - along
    inertia = mass * (radius**2 / 2 * along + (length**2 / 12 + radius**2 / 4) * across)
    return LinkDescription(name, mass, end / 2, inertia)


def _rotation_about_x(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])


def _require_links(name: str, n: int) -> None:
    if n < 1:
        raise ValueError(f"{name}: the number of links must be at least 1; got {n}.")
