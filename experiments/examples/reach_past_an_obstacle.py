"""A three-joint arm reaches a point without touching a ball that is in its way."""

import jax
import jax.numpy as jnp

import jaxsoa as soa
from jaxsoa.optimize import Equality, LeastSquares, clear_of_sphere, constrained, robot_problem

jax.config.update("jax_enable_x64", True)
robot = soa.models.planar_arm(3)
tip = robot.frame_names[-1]
goal, ball, radius = jnp.array([0.9, -0.6, 0.0]), jnp.array([0.45, 0.2, 0.0]), 0.15
problem = robot_problem(
    robot,
    horizon=40,
    dt=0.05,
    running_cost=LeastSquares(lambda state, torque: jnp.concatenate([0.3 * torque, 0.3 * state.v])),
)
arrive = Equality(lambda state: jnp.concatenate([soa.frame_pose(robot, state.q, tip)[1][:2] - goal[:2], state.v]))
start = soa.State(jnp.array([0.5, 0.3, 0.2]), jnp.zeros(3))
solve = jax.jit(lambda s: constrained(problem, s, path=clear_of_sphere(robot, tip, ball, radius), final=arrive))
plan = solve(start)
print(plan)
path = jax.vmap(lambda q: soa.frame_pose(robot, q, tip)[1])(plan.states.q)
print(f"nearest to the ball's centre: {jnp.linalg.norm(path - ball, axis=1).min():.4f} m of {radius} m allowed")
assert plan.converged and plan.violation < 1e-6 and jnp.linalg.norm(path - ball, axis=1).min() < 0.17  # it touches
