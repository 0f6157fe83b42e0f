"""Closed chains: arms that grasp an object, and loops of any kind in any tree."""

from jaxsoa.closed_chain import mechanisms as mechanisms
from jaxsoa.closed_chain._coupled import CoupledRobot as CoupledRobot, coupled as coupled
from jaxsoa.closed_chain.close import (
    Closed as Closed,
    ClosedGrasp as ClosedGrasp,
    close_grasp as close_grasp,
    close_loops as close_loops,
    close_loops_report as close_loops_report,
)
from jaxsoa.closed_chain.constraints import (
    Constraint as Constraint,
    Coupling as Coupling,
    Distance as Distance,
    Loop as Loop,
    ball as ball,
    cylinder as cylinder,
    distance as distance,
    hinge as hinge,
    mimic_couplings as mimic_couplings,
    planar as planar,
    screw as screw,
    slider as slider,
    weld as weld,
)
from jaxsoa.closed_chain.contacts import (
    Contact as Contact,
    Custom as Custom,
    Hinge as Hinge,
    Point as Point,
    Rigid as Rigid,
    SoftFinger as SoftFinger,
)
from jaxsoa.closed_chain.cut_chain import CutChain as CutChain, cut_chain_dynamics as cut_chain_dynamics
from jaxsoa.closed_chain.embedding import (
    EmbeddedAcceleration as EmbeddedAcceleration,
    Embedding as Embedding,
    embed as embed,
    embedded_forward_dynamics as embedded_forward_dynamics,
    embedded_inverse_dynamics as embedded_inverse_dynamics,
    embedded_mass_matrix as embedded_mass_matrix,
    embedded_velocity as embedded_velocity,
)
from jaxsoa.closed_chain.equality import Equality as Equality, equality_constraints as equality_constraints
from jaxsoa.closed_chain.grasp import (
    Arm as Arm,
    GraspState as GraspState,
    GraspSystem as GraspSystem,
    RigidBody as RigidBody,
    check_grasp as check_grasp,
    grasp_state as grasp_state,
)
from jaxsoa.closed_chain.grasp_dynamics import (
    GraspAcceleration as GraspAcceleration,
    grasp_compliance as grasp_compliance,
    grasp_forward_dynamics as grasp_forward_dynamics,
)
from jaxsoa.closed_chain.grasp_letters import GraspOperators as GraspOperators, grasp_operators as grasp_operators
from jaxsoa.closed_chain.linearize_embedded import (
    LinearizedEmbeddedDynamics as LinearizedEmbeddedDynamics,
    linearize_embedded_dynamics as linearize_embedded_dynamics,
)
from jaxsoa.closed_chain.linearize_grasp import (
    LinearizedGraspDynamics as LinearizedGraspDynamics,
    linearize_grasp_forward_dynamics as linearize_grasp_forward_dynamics,
)
from jaxsoa.closed_chain.linearize_loops import (
    LinearizedLoopDynamics as LinearizedLoopDynamics,
    linearize_loop_forward_dynamics as linearize_loop_forward_dynamics,
)
from jaxsoa.closed_chain.loop_dynamics import (
    LoopAcceleration as LoopAcceleration,
    loop_forward_dynamics as loop_forward_dynamics,
)
from jaxsoa.closed_chain.loop_inverse import (
    GraspTorques as GraspTorques,
    LoopTorques as LoopTorques,
    grasp_inverse_dynamics as grasp_inverse_dynamics,
    loop_inverse_dynamics as loop_inverse_dynamics,
)
from jaxsoa.closed_chain.loops import (
    holding as holding,
    loop_effective_inertia as loop_effective_inertia,
    loop_errors as loop_errors,
    loop_jacobian as loop_jacobian,
)
from jaxsoa.closed_chain.one_sided import FrictionReport as FrictionReport, friction_report as friction_report
from jaxsoa.closed_chain.stabilize import (
    grasp_rotations as grasp_rotations,
    project as project,
    project_grasp as project_grasp,
    project_position as project_position,
    project_velocity as project_velocity,
)
from jaxsoa.exports import exported

__all__ = exported(globals())  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__
