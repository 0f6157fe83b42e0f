"""A compiled MuJoCo model to a `RobotDescription`: bodies, joints, inertias and sites.

How the two pictures of a robot differ, and what is done about it:

- A MuJoCo body may have several joints, and each turns about an anchor anywhere in the body. Here a link has one joint
  at its own origin. So every joint gets a link; all but the last of a body are massless. The link is called like the
  body where the body's frame is the link's; otherwise `body:joint`, and `body` is a frame fixed to it. Every body name
  is a name in `frame_names`, at MuJoCo's place for it.
- MuJoCo's hinge and slide coordinates have a reference: the body stands as written at qpos0. It is taken into the
  placement of the joint, so q is MuJoCo's qpos, entry by entry (but for the order within a free joint).
- A free joint's coordinates are absolute; so they are here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxsoa.io._mujoco import body_names, joint_names, model_name, require_mujoco
from jaxsoa.io._names import unique
from jaxsoa.model.description import (
    FrameDescription,
    JointDescription,
    LinkDescription,
    ModelError,
    RobotDescription,
    abbreviated,
)
from jaxsoa.model.joints import JOINT_KINDS, on_host
from jaxsoa.spatial.rotation import from_quaternion

#: MuJoCo's joint types, by number, and what the description calls them; an unlimited hinge is continuous.
_KINDS = {joint.mujoco: name for name, joint in JOINT_KINDS.items() if joint.mujoco is not None}
#: Where MuJoCo keeps our degrees of freedom of a free joint: it has linear ones first.
_FREE_ORDER = np.array([3, 4, 5, 0, 1, 2])


def describe_mjcf(model: Any, source: str) -> RobotDescription:
    """The description of a compiled model; see the module's text for names and frames."""
    bodies = body_names(model)
    sites = site_names(model)
    link_names = {*bodies, *sites}
    fixed_names = set(joint_names(model))
    reader = _JointReader(model)
    links, joints = [LinkDescription(bodies[0])], []
    for body in range(1, model.nbody):
        name = bodies[body]
        carrier = bodies[int(model.body_parentid[body])]
        rotation, position = _matrix(model.body_quat[body]), np.array(model.body_pos[body])
        first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
        on_link = False  # whether the last joint's link has the body's own frame
        for number in range(first, first + count):
            anchor = reader.anchor(number)
            on_link = number == first + count - 1 and not anchor.any()
            link = name if on_link else unique(f"{name}:{reader.names[number]}", link_names)
            joint = reader.joint(number, carrier, link, rotation, position + rotation @ anchor)
            joints.append(joint)
            if not on_link:
                links.append(LinkDescription(link))
            carrier, rotation, position = link, np.eye(3), -anchor
        if not on_link:
            fixed = unique(f"{name}_fixed", fixed_names)
            joints.append(JointDescription(fixed, "fixed", carrier, name, rotation, position))
        links.append(_link(model, body, name))
    frames = tuple(
        FrameDescription(name, bodies[int(model.site_bodyid[k])], _matrix(model.site_quat[k]), model.site_pos[k].copy())
        for k, name in enumerate(sites)
    )
    return RobotDescription(model_name(model), tuple(links), tuple(joints), frames, source)


def gravity(model: Any) -> np.ndarray:
    """(3,), zero where the model switches gravity off."""
    return np.zeros(3) if disabled(model, "GRAVITY") else np.array(model.opt.gravity)


def site_names(model: Any) -> tuple[str, ...]:
    """The frame that each site is: its name, `site:name` where a body has that name, `site3` if it has none."""
    taken = set(body_names(model))
    given = [model.site(k).name for k in range(model.nsite)]
    return tuple(
        unique(f"site{k}" if not name else f"site:{name}" if name in taken else name, taken)
        for k, name in enumerate(given)
    )


def _link(model: Any, body: int, name: str) -> LinkDescription:
    """The body's inertia about its centre of mass, turned from MuJoCo's principal axes into the body's."""
    principal = _matrix(model.body_iquat[body])
    inertia = principal @ np.diag(model.body_inertia[body]) @ principal.T
    return LinkDescription(name, float(model.body_mass[body]), model.body_ipos[body].copy(), inertia)


class _JointReader:
    """What the joints of a compiled model say, one at a time."""

    def __init__(self, model: Any):
        self.model = model
        self.names = joint_names(model)
        self.damped = not disabled(model, "DAMPER")
        self.sprung = not disabled(model, "SPRING")
        self.rubbed = not (disabled(model, "FRICTIONLOSS") or disabled(model, "CONSTRAINT"))

    def kind(self, number: int) -> str:
        kind = _KINDS[int(self.model.jnt_type[number])]
        unlimited = (name for name, other in JOINT_KINDS.items() if other.moves_like == kind and not other.has_range)
        return kind if self.model.jnt_limited[number] else next(unlimited, kind)

    def anchor(self, number: int) -> np.ndarray:
        """(3,), body axes; a slide and a free joint have none that matters."""
        turns = JOINT_KINDS[self.kind(number)].angular_only
        return np.array(self.model.jnt_pos[number]) if turns else np.zeros(3)

    def joint(self, number: int, parent: str, child: str, rotation: np.ndarray, position: np.ndarray):
        """The joint, with `rotation` and `position` placing the body as it stands at qpos0."""
        model, kind = self.model, self.kind(number)
        axis = np.array(model.jnt_axis[number])
        reference = float(model.qpos0[int(model.jnt_qposadr[number])])
        joint = JOINT_KINDS[kind]
        if joint.position is not None:
            rotation, position = np.eye(3), np.zeros(3)
        elif joint.nq == 1:  # where it is at zero
            back, shift, _ = on_host(joint, axis, axis, 0.0, np.array([-reference]))
            rotation, position = rotation @ back, position + rotation @ shift
        ranged = model.jnt_limited[number] and _has_range(model, number)
        lower, upper = model.jnt_range[number] if ranged else (-np.inf, np.inf)
        effort = np.abs(model.jnt_actfrcrange[number]).max() if model.jnt_actfrclimited[number] else np.inf
        return JointDescription(
            self.names[number],
            kind,
            parent,
            child,
            rotation,
            position,
            axis,
            armature=self._per_degree(model.dof_armature, number, kind),
            damping=self._per_degree(model.dof_damping, number, kind) if self.damped else 0.0,
            friction=self._per_degree(model.dof_frictionloss, number, kind) if self.rubbed else 0.0,
            stiffness=self._stiffness(number, kind),
            rest=self._rest(number, kind),
            lower=float(lower),
            upper=float(upper),
            effort=float(effort),
        )

    def _stiffness(self, number: int, kind: str) -> float:
        """A free joint's spring pulls along world axes in MuJoCo, along those of the body here: it is left out."""
        free = JOINT_KINDS[kind].position is not None
        return float(self.model.jnt_stiffness[number]) if self.sprung and not free else 0.0

    def _rest(self, number: int, kind: str) -> tuple[float, ...] | None:
        joint, start = JOINT_KINDS[kind], int(self.model.jnt_qposadr[number])
        if joint.position is not None:
            return None
        return tuple(float(x) for x in self.model.qpos_spring[start : start + joint.nq])

    def _per_degree(self, values: np.ndarray, number: int, kind: str) -> tuple[float, ...]:
        start = int(self.model.jnt_dofadr[number])
        joint = JOINT_KINDS[kind]
        order = np.arange(joint.nv) if joint.position is None else _FREE_ORDER
        return tuple(float(x) for x in values[start + order])


# What is left out ------------------------------------------------------------------------------------------------


def left_out(model: Any) -> list[str]:
    """What MuJoCo would simulate and a tree of rigid links does not: one phrase per kind of thing."""
    found = []

    def note(what: str, present, names=None) -> None:
        numbers = np.flatnonzero(present)
        if len(numbers):
            found.append(f"{what} ({abbreviated([names[k] for k in numbers]) if names else len(numbers)})")

    def listed(kind: str, count: int) -> list[str]:
        return [getattr(model, kind)(k).name or f"{kind}{k}" for k in range(count)]

    joints, bodies = joint_names(model), body_names(model)
    if not (disabled(model, "CONTACT") or disabled(model, "CONSTRAINT")):
        note("contacts of geoms", (model.geom_contype != 0) | (model.geom_conaffinity != 0))
        note("contact pairs", np.ones(model.npair))
    actuators = listed("actuator", len(model.actuator_trntype))
    note("actuators, which load_mjcf_actuators reads", np.ones(len(actuators)), actuators)
    straight = np.array([_is_straight_tendon(model, k) for k in range(model.ntendon)], bool)
    bound, tendons = _bound_tendons(model), listed("tendon", model.ntendon)
    note("tendons, which load_mjcf_passive and load_mjcf_actuators read", straight, tendons)
    note("friction and armature of tendons", straight & bound, tendons)
    note("tendons that wrap around geoms", ~straight, tendons)
    note("sensors, which load_mjcf_sensors reads", np.ones(model.nsensor), listed("sensor", model.nsensor))
    note("keyframes, which load_mjcf_keyframes reads", np.ones(model.nkey), listed("key", model.nkey))
    if not disabled(model, "SPRING"):
        free = model.jnt_type == 0
        note("non-linear springs", _any_nonzero(model, "jnt_stiffnesspoly", model.njnt), joints)
        note("springs of free joints", (model.jnt_stiffness != 0) & free, joints)
    if not disabled(model, "DAMPER"):
        owners = [joints[int(k)] for k in model.dof_jntid]
        note("non-linear damping", _any_nonzero(model, "dof_dampingpoly", model.nv), owners)
    if not (disabled(model, "EQUALITY") or disabled(model, "CONSTRAINT")):
        note("equality constraints, which load_mjcf_constraints reads", model.eq_active0, listed("equality", model.neq))
    note("gravity compensation of bodies, which load_mjcf_passive reads", model.body_gravcomp != 0, bodies)
    ranged = [_has_range(model, k) for k in range(model.njnt)]
    note("ranges of ball joints", np.asarray(model.jnt_limited, bool) & ~np.array(ranged, bool), joints)
    note("mocap bodies, held where the file puts them", model.body_mocapid >= 0, bodies)
    if model.opt.density > 0 or model.opt.viscosity > 0:
        found.append("forces of the surrounding fluid, which load_mjcf_passive reads")
    note("deformable bodies (flex)", np.ones(model.nflex))
    note("plugins", np.ones(model.nplugin))
    return found


def refuse_unsupported(model: Any, source: str) -> None:
    """What has no counterpart and would change the motion without anybody seeing why."""
    for number in np.flatnonzero(model.jnt_type == 0):
        start = int(model.jnt_dofadr[number])
        if model.dof_armature[start : start + 3].any():
            # MuJoCo adds it to world-fixed directions, a Multibody to those of the body: they differ by w x v.
            raise ModelError(
                f"{source}: the free joint {joint_names(model)[number]!r} has armature along its translations, which "
                "a free joint here cannot have. Remove it, or add the mass to the body."
            )
    if model.njnt == 0:
        raise ModelError(f"{source}: the model has no joint, so nothing in it can move.")


def _has_range(model: Any, number: int) -> bool:
    """Whether a joint's coordinates can have limits: a ball's range bounds its angle of rotation."""
    return JOINT_KINDS[_KINDS[int(model.jnt_type[number])]].has_range


def _is_straight_tendon(model: Any, number: int) -> bool:
    """Along joints, or straight from site to site: nothing that it wraps around."""
    wraps = require_mujoco().mjtWrap
    start = int(model.tendon_adr[number])
    kinds = np.asarray(model.wrap_type[start : start + int(model.tendon_num[number])])
    return bool(np.isin(kinds, [int(wraps.mjWRAP_JOINT), int(wraps.mjWRAP_SITE), int(wraps.mjWRAP_PULLEY)]).all())


def _bound_tendons(model: Any) -> np.ndarray:
    """(ntendon,) whether a tendon has friction or armature, which nothing here reads."""
    armature = getattr(model, "tendon_armature", np.zeros(model.ntendon))
    return np.any([np.asarray(x) != 0 for x in (model.tendon_frictionloss, armature)], axis=0)


def _any_nonzero(model: Any, field: str, count: int) -> np.ndarray:
    """(count,) whether an array that older versions of MuJoCo do not have holds anything."""
    values = np.asarray(getattr(model, field, np.zeros((count, 0)))).reshape(count, -1)
    return (values != 0).any(axis=1)


def disabled(model: Any, what: str) -> bool:
    """Whether an option of the file switches this off."""
    bits = require_mujoco().mjtDisableBit
    return bool(model.opt.disableflags & getattr(bits, f"mjDSBL_{what}", getattr(bits, "mjDSBL_PASSIVE", 0)))


def _matrix(quaternion: np.ndarray) -> np.ndarray:
    return np.array(from_quaternion(tuple(quaternion / np.linalg.norm(quaternion))))
