"""Spatial operator algebra on JAX: differentiable multibody dynamics.

Conventions: spatial vectors are angular first, (w, v) and (moment, force); public spatial results are in world axes at
the origin of the link or frame named; links are numbered base to tip, parents before children; quaternions are
(w, x, y, z). Every function takes one state; batch with `jax.vmap`. See CONVENTIONS.md for the rest.

Threads may call everything at once, first calls too: a program is compiled once, others wait for it; different programs
are traced in turns, because tracing is Python, so eight threads take about as long as one after the other. Processes
must be started by "spawn" or "forkserver" (`multiprocessing.get_context("spawn")`), never by fork once anything was
computed: JAX computes in threads, a forked child has none of them, and its first call waits forever.
"""

from jaxsoa import (
    closed_chain as closed_chain,
    contact as contact,
    identify as identify,
    ik as ik,
    kernels as kernels,
    models as models,
    optimize as optimize,
    simulate as simulate,
    viz as viz,
)
from jaxsoa.algebra import (
    decomposition as decomposition,
    estimation as estimation,
)
from jaxsoa.algebra.bundle import (
    Bundle as Bundle,
    operators as operators,
)
from jaxsoa.algebra.expression import (
    Operator as Operator,
)
from jaxsoa.algebra.identities import (
    IDENTITIES as IDENTITIES,
)
from jaxsoa.algebra.simplify import (
    Derivation as Derivation,
    derive as derive,
    simplify as simplify,
    solve_for as solve_for,
)
from jaxsoa.algebra.terms import (
    SpaceError as SpaceError,
)
from jaxsoa.caches import clear_caches as clear_caches
from jaxsoa.closed_chain.operational_dynamics import (
    OperationalSpaceDynamics as OperationalSpaceDynamics,
    operational_space_dynamics as operational_space_dynamics,
)
from jaxsoa.cpu import (
    fast_cpu as fast_cpu,
    low_latency_cpu as low_latency_cpu,
)
from jaxsoa.dynamics.coriolis import (
    coriolis_matrix as coriolis_matrix,
    coriolis_times as coriolis_times,
)
from jaxsoa.dynamics.external_forces import (
    external_forces as external_forces,
)
from jaxsoa.dynamics.forward import (
    AccelerationSplit as AccelerationSplit,
    acceleration_split as acceleration_split,
    accelerations_by_fd2 as accelerations_by_fd2,
    forward_dynamics as forward_dynamics,
    hybrid_dynamics as hybrid_dynamics,
    prescribed_mask as prescribed_mask,
)
from jaxsoa.dynamics.inverse import (
    bias_force as bias_force,
    center_of_mass as center_of_mass,
    inverse_dynamics as inverse_dynamics,
    kinetic_energy as kinetic_energy,
    link_forces as link_forces,
    momentum as momentum,
    potential_energy as potential_energy,
)
from jaxsoa.dynamics.kinematics import (
    LinkPoses as LinkPoses,
    forward_kinematics as forward_kinematics,
    frame_pose as frame_pose,
    jacobian as jacobian,
    jacobian_bias as jacobian_bias,
    link_accelerations as link_accelerations,
    link_velocities as link_velocities,
)
from jaxsoa.dynamics.mass import (
    InertiaFactor as InertiaFactor,
    InnovationsMotion as InnovationsMotion,
    inertia_factor as inertia_factor,
    innovations_motion as innovations_motion,
    innovations_torque as innovations_torque,
    innovations_velocity as innovations_velocity,
    mass_matrix as mass_matrix,
    mass_matrix_inverse as mass_matrix_inverse,
    mass_matrix_logdet as mass_matrix_logdet,
    mass_times as mass_times,
    solve_mass_matrix as solve_mass_matrix,
    velocity_from_innovations as velocity_from_innovations,
)
from jaxsoa.dynamics.operational import (
    operational_space_compliance as operational_space_compliance,
    operational_space_inertia as operational_space_inertia,
    tip_compliance as tip_compliance,
    tip_force_accelerations as tip_force_accelerations,
)
from jaxsoa.exports import exported
from jaxsoa.formulas import Symbolic as Symbolic, symbolic as symbolic
from jaxsoa.ik import (
    InverseKinematics as InverseKinematics,
    differential_inverse_kinematics as differential_inverse_kinematics,
    inverse_kinematics as inverse_kinematics,
    manipulability as manipulability,
)
from jaxsoa.io import (
    convert as convert,
)
from jaxsoa.io.archive import (
    load as load,
    save as save,
)
from jaxsoa.io.c_sources import ExportedC as ExportedC, export_c as export_c
from jaxsoa.io.export import (
    export_function as export_function,
    load_function as load_function,
)
from jaxsoa.io.load import (
    load_mjcf as load_mjcf,
    load_mjcf_actuators as load_mjcf_actuators,
    load_mjcf_constraints as load_mjcf_constraints,
    load_mjcf_keyframes as load_mjcf_keyframes,
    load_mjcf_passive as load_mjcf_passive,
    load_mjcf_sensors as load_mjcf_sensors,
    load_mjcf_springs as load_mjcf_springs,
    load_urdf as load_urdf,
)
from jaxsoa.io.urdf_export import (
    save_urdf as save_urdf,
)
from jaxsoa.linearized.base_parameters import (
    BaseParameters as BaseParameters,
    base_parameters as base_parameters,
)
from jaxsoa.linearized.forward import (
    LinearizedForwardDynamics as LinearizedForwardDynamics,
    linearize_forward_dynamics as linearize_forward_dynamics,
)
from jaxsoa.linearized.hybrid import (
    HybridDerivatives as HybridDerivatives,
    LinearizedHybridDynamics as LinearizedHybridDynamics,
    linearize_hybrid_dynamics as linearize_hybrid_dynamics,
)
from jaxsoa.linearized.inverse import (
    LinearizedInverseDynamics as LinearizedInverseDynamics,
    linearize_inverse_dynamics as linearize_inverse_dynamics,
)
from jaxsoa.linearized.perturbation import (
    forward_dynamics_perturbation as forward_dynamics_perturbation,
    inverse_dynamics_perturbation as inverse_dynamics_perturbation,
)
from jaxsoa.linearized.regressor import (
    inertial_parameters as inertial_parameters,
    regressor as regressor,
    with_inertial_parameters as with_inertial_parameters,
)
from jaxsoa.linearized.tracking_regressor import tracking_regressor as tracking_regressor
from jaxsoa.model.builder import (
    Builder as Builder,
    from_arrays as from_arrays,
)
from jaxsoa.model.description import (
    ModelError as ModelError,
)
from jaxsoa.model.edit import (
    merge as merge,
)
from jaxsoa.model.multibody import (
    Limits as Limits,
    Multibody as Multibody,
)
from jaxsoa.model.validation import (
    ModelWarning as ModelWarning,
)
from jaxsoa.simulate import (
    State as State,
    rollout as rollout,
    sharded_rollout as sharded_rollout,
    step as step,
)
from jaxsoa.simulate.linearized_step import (
    LinearizedStep as LinearizedStep,
    linearize_step as linearize_step,
)

__version__ = "0.2.0"
_MODULES = "closed_chain contact convert decomposition estimation identify ik kernels models optimize simulate viz"
__all__ = exported(globals(), *_MODULES.split())  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
