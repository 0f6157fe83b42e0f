"""Trajectory optimization: iLQR on the analytical linearization, and shooting with any optax optimizer."""

from jaxsoa.optimize.costs import LeastSquares as LeastSquares
from jaxsoa.optimize.ilqr import ilqr as ilqr
from jaxsoa.optimize.problem import (
    Dynamics as Dynamics,
    Problem as Problem,
    RobotDynamics as RobotDynamics,
    StepDynamics as StepDynamics,
    robot_problem as robot_problem,
    step_problem as step_problem,
)
from jaxsoa.optimize.shooting import shooting as shooting
from jaxsoa.optimize.solution import (
    History as History,
    Solution as Solution,
    follow as follow,
    simulate_controls as simulate_controls,
    total_cost as total_cost,
)
