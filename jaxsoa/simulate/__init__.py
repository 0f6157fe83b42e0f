"""Simulation: steps and rollouts. Small on purpose; replace them with your own where they do not fit."""

from jaxsoa.dynamics.springs import JointSprings as JointSprings
from jaxsoa.exports import exported
from jaxsoa.simulate._grasp_rollout import (
    GraspMotion as GraspMotion,
    grasp_rollout as grasp_rollout,
    grasp_step as grasp_step,
)
from jaxsoa.simulate._rollout import (
    Sample as Sample,
    rollout as rollout,
)
from jaxsoa.simulate.actuated_step import linearize_actuated_step as linearize_actuated_step
from jaxsoa.simulate.actuators import (
    ActuatorDescription as ActuatorDescription,
    Actuators as Actuators,
    Delay as Delay,
    actuator_set as actuator_set,
    motor as motor,
    pid_servo as pid_servo,
    position_servo as position_servo,
    velocity_servo as velocity_servo,
)
from jaxsoa.simulate.adaptive import (
    solve_adaptively as solve_adaptively,
    vector_field as vector_field,
)
from jaxsoa.simulate.archive import save_archive as save_archive
from jaxsoa.simulate.control import (
    Gear as Gear,
    Lag as Lag,
    PDServo as PDServo,
    Sampled as Sampled,
    Saturation as Saturation,
    TorqueSpeed as TorqueSpeed,
)
from jaxsoa.simulate.folder_lock import FolderInUse as FolderInUse
from jaxsoa.simulate.integrators import (
    INTEGRATORS as INTEGRATORS,
    State as State,
    step as step,
)
from jaxsoa.simulate.joint_limits import JointLimits as JointLimits
from jaxsoa.simulate.momentum import (
    conserving_momentum as conserving_momentum,
    with_momentum as with_momentum,
)
from jaxsoa.simulate.named import (
    Command as Command,
    Observation as Observation,
    commands as commands,
    observation as observation,
)
from jaxsoa.simulate.progress import ProgressBar as ProgressBar
from jaxsoa.simulate.sensitivity import (
    Sensitivity as Sensitivity,
    trajectory_sensitivity as trajectory_sensitivity,
)
from jaxsoa.simulate.sensors import (
    Accelerometer as Accelerometer,
    ForceSensor as ForceSensor,
    FrameSensor as FrameSensor,
    Gyro as Gyro,
    InertialNoise as InertialNoise,
    JointPosition as JointPosition,
    JointVelocity as JointVelocity,
    JointWrench as JointWrench,
    Sensors as Sensors,
    mount as mount,
    sensor_set as sensor_set,
)
from jaxsoa.simulate.sharding import (
    device_mesh as device_mesh,
    shard_batch as shard_batch,
    sharded_map as sharded_map,
    sharded_rollout as sharded_rollout,
    sharded_value_and_grad as sharded_value_and_grad,
    to_host as to_host,
)
from jaxsoa.simulate.springs import Springs as Springs
from jaxsoa.simulate.study import run_study as run_study
from jaxsoa.simulate.surroundings import (
    Fluid as Fluid,
    GravityCompensation as GravityCompensation,
)
from jaxsoa.simulate.tendons import (
    TendonDescription as TendonDescription,
    TendonLimits as TendonLimits,
    Tendons as Tendons,
    tendon_set as tendon_set,
)

__all__ = exported(globals())  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__
