"""Trajectory optimization: iLQR on the analytical linearization, and shooting with any optax optimizer."""

from jaxsoa.exports import exported
from jaxsoa.optimize._constrained import (
    ConstrainedSolution as ConstrainedSolution,
    Multipliers as Multipliers,
    constrained as constrained,
    shifted as shifted,
)
from jaxsoa.optimize._ilqr import ilqr as ilqr
from jaxsoa.optimize._shooting import shooting as shooting
from jaxsoa.optimize.constraints import (
    Equality as Equality,
    Inequality as Inequality,
    clear_of_sphere as clear_of_sphere,
    friction_cone as friction_cone,
    violated as violated,
    within_joint_limits as within_joint_limits,
)
from jaxsoa.optimize.costs import LeastSquares as LeastSquares
from jaxsoa.optimize.implicit import (
    OptimalTrajectory as OptimalTrajectory,
    Setup as Setup,
    optimal_trajectory as optimal_trajectory,
)
from jaxsoa.optimize.parameters import (
    Parametrized as Parametrized,
    parametrized_problem as parametrized_problem,
    parametrized_start as parametrized_start,
)
from jaxsoa.optimize.problem import (
    Dynamics as Dynamics,
    Problem as Problem,
    RobotDynamics as RobotDynamics,
    StepDynamics as StepDynamics,
    robot_problem as robot_problem,
    step_problem as step_problem,
)
from jaxsoa.optimize.solution import (
    History as History,
    Solution as Solution,
    follow as follow,
    simulate_controls as simulate_controls,
    total_cost as total_cost,
)
from jaxsoa.optimize.tracking import Tracking as Tracking, track as track

__all__ = exported(globals())  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__
