"""Identification: find a model's inertias, friction, lengths and axes from measured torques or motion.

    data = soa.identify.prepare(time, q, tau, cutoff=5.0)
    result = soa.identify.fit(robot, data.part(0, 2 / 3), free=("inertial", "damping", "friction", "offset"), prior=0.5)
    print(result.report(), result.rms(data.part(2 / 3, 1)))

Every link stays physically consistent by construction; every number comes with a standard deviation.
"""

from jaxsoa.exports import exported
from jaxsoa.identify._fit import fit as fit
from jaxsoa.identify._pseudo_inertia import (
    consistency as consistency,
    from_log_cholesky as from_log_cholesky,
    from_pseudo_inertia as from_pseudo_inertia,
    link_pseudo_inertias as link_pseudo_inertias,
    log_cholesky as log_cholesky,
    make_physical as make_physical,
    pseudo_inertia as pseudo_inertia,
)
from jaxsoa.identify.data import (
    TorqueData as TorqueData,
    TrajectoryData as TrajectoryData,
    prepare as prepare,
    resample as resample,
    segments as segments,
    zero_phase as zero_phase,
)
from jaxsoa.identify.excitation import (
    Excitation as Excitation,
    FourierTrajectory as FourierTrajectory,
    condition_number as condition_number,
    design as design,
    random_trajectory as random_trajectory,
)
from jaxsoa.identify.parameters import (
    BLOCKS as BLOCKS,
    Candidate as Candidate,
    Parameters as Parameters,
)
from jaxsoa.identify.residuals import (
    residual_rms as residual_rms,
    torque_residual as torque_residual,
    trajectory_residual as trajectory_residual,
)
from jaxsoa.identify.result import (
    Estimate as Estimate,
    Fit as Fit,
)

__all__ = exported(globals())  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__
