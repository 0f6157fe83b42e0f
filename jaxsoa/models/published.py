"""Arms with published parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxsoa.model.assemble import assemble
from jaxsoa.model.description import FrameDescription, JointDescription, LinkDescription, RobotDescription
from jaxsoa.model.multibody import Multibody
from jaxsoa.models._parts import (
    BASE as _BASE,
    Z as _Z,
    rotation_about_x as _rotation_about_x,
)

_Column = Sequence[float] | np.ndarray


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

    >>> print(soa.models.puma560().n_links)
    6
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

    >>> print(soa.models.stanford_arm().topology.kinds)
    ('revolute', 'revolute', 'prismatic', 'revolute', 'revolute', 'revolute')
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
