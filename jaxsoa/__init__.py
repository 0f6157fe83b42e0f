"""Spatial operator algebra on JAX: differentiable multibody dynamics.

Conventions: spatial vectors are angular first, (w, v) and (moment, force); public spatial results are in world axes at
the origin of the link or frame named; links are numbered base to tip, parents before children; quaternions are
(w, x, y, z). Every function takes one state; batch with `jax.vmap`. See the README for the rest.
"""

from jaxsoa import models as models
from jaxsoa.dynamics.forward import (
    AccelerationSplit as AccelerationSplit,
)
from jaxsoa.dynamics.forward import (
    acceleration_split as acceleration_split,
)
from jaxsoa.dynamics.forward import (
    forward_dynamics as forward_dynamics,
)
from jaxsoa.dynamics.forward import (
    hybrid_dynamics as hybrid_dynamics,
)
from jaxsoa.dynamics.forward import (
    prescribed_mask as prescribed_mask,
)
from jaxsoa.dynamics.inverse import (
    bias_force as bias_force,
)
from jaxsoa.dynamics.inverse import (
    center_of_mass as center_of_mass,
)
from jaxsoa.dynamics.inverse import (
    inverse_dynamics as inverse_dynamics,
)
from jaxsoa.dynamics.inverse import (
    kinetic_energy as kinetic_energy,
)
from jaxsoa.dynamics.inverse import (
    link_forces as link_forces,
)
from jaxsoa.dynamics.inverse import (
    momentum as momentum,
)
from jaxsoa.dynamics.inverse import (
    potential_energy as potential_energy,
)
from jaxsoa.dynamics.kinematics import (
    LinkPoses as LinkPoses,
)
from jaxsoa.dynamics.kinematics import (
    forward_kinematics as forward_kinematics,
)
from jaxsoa.dynamics.kinematics import (
    frame_pose as frame_pose,
)
from jaxsoa.dynamics.kinematics import (
    jacobian as jacobian,
)
from jaxsoa.dynamics.kinematics import (
    jacobian_bias as jacobian_bias,
)
from jaxsoa.dynamics.kinematics import (
    link_accelerations as link_accelerations,
)
from jaxsoa.dynamics.kinematics import (
    link_velocities as link_velocities,
)
from jaxsoa.dynamics.mass import (
    InertiaFactor as InertiaFactor,
)
from jaxsoa.dynamics.mass import (
    InnovationsMotion as InnovationsMotion,
)
from jaxsoa.dynamics.mass import (
    inertia_factor as inertia_factor,
)
from jaxsoa.dynamics.mass import (
    innovations_motion as innovations_motion,
)
from jaxsoa.dynamics.mass import (
    innovations_torque as innovations_torque,
)
from jaxsoa.dynamics.mass import (
    innovations_velocity as innovations_velocity,
)
from jaxsoa.dynamics.mass import (
    mass_matrix as mass_matrix,
)
from jaxsoa.dynamics.mass import (
    mass_matrix_inverse as mass_matrix_inverse,
)
from jaxsoa.dynamics.mass import (
    mass_matrix_logdet as mass_matrix_logdet,
)
from jaxsoa.dynamics.mass import (
    mass_times as mass_times,
)
from jaxsoa.dynamics.mass import (
    solve_mass_matrix as solve_mass_matrix,
)
from jaxsoa.dynamics.mass import (
    velocity_from_innovations as velocity_from_innovations,
)
from jaxsoa.dynamics.operational import (
    operational_space_compliance as operational_space_compliance,
)
from jaxsoa.dynamics.operational import (
    operational_space_inertia as operational_space_inertia,
)
from jaxsoa.dynamics.operational import (
    tip_compliance as tip_compliance,
)
from jaxsoa.dynamics.operational import (
    tip_force_accelerations as tip_force_accelerations,
)
from jaxsoa.io.load import load_urdf as load_urdf
from jaxsoa.model.builder import Builder as Builder
from jaxsoa.model.builder import from_arrays as from_arrays
from jaxsoa.model.description import ModelError as ModelError
from jaxsoa.model.multibody import Multibody as Multibody
from jaxsoa.model.validation import ModelWarning as ModelWarning

__version__ = "0.1.0"
