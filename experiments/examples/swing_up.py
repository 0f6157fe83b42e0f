"""A cart pole swings up and stands still, by iLQR under a force limit."""

import jax
import jax.numpy as jnp

import jaxsoa as soa
from jaxsoa.optimize import LeastSquares, ilqr, robot_problem

robot = soa.models.cart_pole()  # q = 0: upright, over the middle
hanging = jnp.array([0.0, jnp.pi])
problem = robot_problem(
    robot,
    horizon=100,
    dt=0.02,
    running_cost=LeastSquares(lambda state, force: 0.1 * force),
    final_cost=LeastSquares(lambda state: 30 * jnp.concatenate([state.q, state.v])),
    actuated=["joint1"],
    torque_limits=15.0,
)
start = soa.State(hanging, jnp.zeros(2))
plan = jax.jit(lambda start: ilqr(problem, start, 0.1 * jnp.ones((100, 1))))(start)
print(plan)
error = jnp.abs(plan.states.q[-1]).max()
print(f"ends {error:.1e} from upright; the largest force is {jnp.abs(plan.controls).max():.2f} N")
assert plan.converged and error < 0.02
