"""Back onto the constraints: projection of positions and velocities, differentiable.

Integration lets a closed chain drift. Stabilization (an option of `loop_forward_dynamics`) pulls errors back over time;
projection removes them at once, by the shortest way in the metric of kinetic energy:

    dq = -M^-1 J* (J M^-1 J*)^+ error (Newton, repeated),    v <- v - M^-1 J* (J M^-1 J*)^+ J v.

The velocity projection is the impact that closing the loops would cause, so it never adds kinetic energy.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.algebra import motion_shift
from jaxsoa.closed_chain.close import hold
from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.grasp import GraspSystem, Pose, check_pose
from jaxsoa.closed_chain.loops import check_loops, check_prescribed, cut_at_rest, loop_rows_at_rest
from jaxsoa.dynamics.kinematics import frame_pose
from jaxsoa.eager import compiled
from jaxsoa.mesh_axes import scan
from jaxsoa.model.multibody import Multibody


@compiled(through_door=False)
def project_position(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Shaped[Array, " nq"],
    *,
    iterations: int = 2,
    rtol: float | None = None,
    prescribed: Shaped[Array, " nv"] | None = None,
) -> Float[Array, " nq"]:
    """The configuration that satisfies the loops, next to q. `iterations` Newton steps: two for a drift of 1e-4.

    Joints whose motion is `prescribed` (bool (nv,)) stay where they are.

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    >>> q = soa.closed_chain.project_position(robot, loops, q, iterations=8)  # far off, so more than two
    >>> print(jnp.abs(soa.closed_chain.loop_errors(robot, loops, q)).max() < 1e-9)
    True
    """
    loops, prescribed = check_loops(robot, loops), check_prescribed(robot, prescribed)
    q = robot.check_q(q)

    def newton(q, _):
        rows = loop_rows_at_rest(robot, loops, q)
        response = cut_at_rest(robot, q, rows.jacobian, rtol, prescribed)
        return robot.integrate(q, -response.columns @ response.compliance.solve(rows.error)), None

    return scan(newton, q, None, length=iterations)[0]


@compiled(through_door=False)
def project_velocity(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    *,
    rtol: float | None = None,
    prescribed: Shaped[Array, " nv"] | None = None,
) -> Float[Array, " nv"]:
    """The velocity that the loops allow next to v, as an inelastic impact leaves it; prescribed joints keep theirs.

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    >>> v = soa.closed_chain.project_velocity(robot, loops, q, jnp.ones(3))  # rad/s
    >>> print(jnp.abs(soa.closed_chain.loop_jacobian(robot, loops, q) @ v).max() < 1e-9)
    True
    """
    loops, prescribed = check_loops(robot, loops), check_prescribed(robot, prescribed)
    q, v = robot.check_q(q), robot.check_v(v)
    J = loop_rows_at_rest(robot, loops, q).jacobian
    response = cut_at_rest(robot, q, J, rtol, prescribed)
    return v - response.columns @ response.compliance.solve(J @ v)


@compiled(through_door=False)
def project(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    *,
    iterations: int = 2,
    rtol: float | None = None,
    prescribed: Shaped[Array, " nv"] | None = None,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """(q, v) on the constraints: what a simulation calls after a step.

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    >>> q, v = soa.closed_chain.project(robot, loops, q, jnp.ones(3), iterations=8)
    >>> print(jnp.abs(soa.closed_chain.loop_jacobian(robot, loops, q) @ v).max() < 1e-9)
    True
    """
    q = project_position(robot, loops, q, iterations=iterations, rtol=rtol, prescribed=prescribed)
    return q, project_velocity(robot, loops, q, v, rtol=rtol, prescribed=prescribed)


@compiled(through_door=False)
def project_grasp(
    system: GraspSystem,
    q: Sequence[Array],
    v: Sequence[Array],
    object_pose: Pose,
    object_velocity: Shaped[Array, "6"],
    rotations: Sequence[Array],
    *,
    iterations: int = 2,
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Arms back onto the object: (q, v) per arm, with the object's pose and velocity as they are.

    `rotations`: per arm the orientation of its frame in the object's axes (`grasp_rotations` at the start of a
    simulation), met up to what the contact leaves free.

    >>> system, q, pose = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> held = soa.closed_chain.grasp_rotations(system, q, pose)
    >>> drifted, still = [x + 1e-3 for x in q], [jnp.zeros(7)] * 2  # rad, rad/s
    >>> q, v = soa.closed_chain.project_grasp(system, drifted, still, pose, jnp.zeros(6), held, iterations=3)
    >>> print(jnp.abs(soa.closed_chain.check_grasp(system, q, pose)).max() < 1e-9)  # m
    True
    """
    q, v = system.check("q", q, "check_q"), system.check("v", v, "check_v")
    pose = check_pose(system, object_pose)
    positions, velocities = [], []
    for arm, qi, vi, target in zip(system.arms, q, v, rotations, strict=True):
        robot = arm.robot

        def newton(q, _, arm=arm, v=vi, target=target):
            at = hold(arm, q, v, pose, target)
            response = cut_at_rest(arm.robot, q, at.jacobian)
            return arm.robot.integrate(q, -response.columns @ response.compliance.solve(at.error)), None

        qi = scan(newton, qi, None, length=iterations)[0]
        at = hold(arm, qi, vi, pose, target)
        response = cut_at_rest(robot, qi, at.jacobian)
        of_object = motion_shift(at.frame.position - pose[1]) @ robot.convert(object_velocity, "object_velocity")
        slip = at.jacobian @ vi - at.held @ of_object
        positions.append(qi)
        velocities.append(vi - response.columns @ response.compliance.solve(slip))
    return tuple(positions), tuple(velocities)


@compiled(through_door=False)
def grasp_rotations(system: GraspSystem, q: Sequence[Array], object_pose: Pose) -> tuple[Array, ...]:
    """Orientation of each arm's frame in the object's axes, as found at (q, object_pose).

    >>> system, q, pose = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> print([R.shape for R in soa.closed_chain.grasp_rotations(system, q, pose)])
    [(3, 3), (3, 3)]
    """
    R, _ = check_pose(system, object_pose)
    q = system.check("q", q, "check_q")
    return tuple(R.T @ frame_pose(arm.robot, x, arm.frame)[0] for arm, x in zip(system.arms, q, strict=True))
