"""Public functions of a tree, each as a function of (robot, state)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

import jaxsoa as soa
from jaxsoa import contact, identify, optimize, simulate


class Entry(NamedTuple):
    """A function of (model, state). `on` says of what: any "tree", those "floating", "pendulum", "linkage", "grasp"."""

    call: Callable[[Any, dict], Any]
    on: str = "tree"
    smooth: bool = True  # has derivatives of every order that are worth comparing
    exact: bool = True  # a search whose end is a matter of rounding is compared more loosely


USUAL = ("q", "v", "a", "tau", "f_ext", "dq", "dv", "da", "dtau", "x", "nu", "force", "parameters", "prescribed")


def _last_frame(robot: soa.Multibody) -> str:
    return robot.link_names[-1]


def by_signature(function: Callable) -> Entry | None:
    """The entry of a function whose arguments all have the usual names."""
    if not inspect.isfunction(function):
        return None
    parameters = inspect.signature(function).parameters
    names = [p.name for p in parameters.values() if p.name in USUAL or p.default is p.empty]
    static = {"frame", "frames", "dt"}
    if names[:1] != ["robot"] or not set(names[1:]) <= {*USUAL, *static}:
        return None

    def call(robot, s):
        known = {"frame": _last_frame(robot), "frames": (robot.link_names[0], _last_frame(robot)), "dt": 0.01}
        return function(robot, **{name: known[name] if name in static else s[name] for name in names[1:]})

    return Entry(call)


def _bundle(robot, s) -> soa.Bundle:
    return soa.operators(robot, s["q"])


def _problem(robot) -> optimize.Problem:
    cost = optimize.LeastSquares(lambda x, u: jnp.concatenate([x.v, 0.1 * u]))
    return optimize.robot_problem(robot, horizon=2, dt=0.01, running_cost=cost, final_cost=lambda x: jnp.sum(x.v**2))


def _start(s) -> soa.State:
    return soa.State(s["q"], s["v"])


def _solved(solver: Callable, **options) -> Callable:
    def call(robot, s):
        found = solver(_problem(robot), _start(s), s["torques"][:2], **options)
        return found.states, found.controls, found.cost

    return call


def _plan(robot, s) -> optimize.Solution:
    problem = _problem(robot)
    states = optimize.simulate_controls(problem, _start(s), s["torques"][:2])
    nothing = optimize.History(*(jnp.zeros(1),) * 3)
    feedback = jnp.ones((2, robot.nv, 2 * robot.nv), robot.dtype)
    return optimize.Solution(states, s["torques"][:2], s["v"][0], jnp.array(0), jnp.array(True), nothing, feedback)


def _near(s) -> soa.State:
    return soa.State(s["q"], s["v"] + 0.1 * s["a"])


def _segment(s) -> identify.TrajectoryData:
    q, v = (jnp.stack([s[name]] * 4) for name in ("q", "v"))
    return identify.TrajectoryData(q, v, s["torques"], 0.01)


def _touching(robot, s) -> contact.Scene:
    """A ball on the last link that has just touched the ground."""
    name = _last_frame(robot)
    height = soa.frame_pose(robot, s["q"], name)[1][2] - 0.1 + 1e-5
    return contact.Scene(contact.Points(name, radii=[0.1]), contact.Plane((0.1, 0.0, 1.0), height), 0.5, 0.2, 1e-6)


def _stop(robot) -> dict[str, Any]:
    """What `constrained` is asked for: an upper limit on the torques, and rest at the end."""
    path = optimize.Inequality(lambda x, u: u - 2.0)
    return {"path": path, "final": optimize.Equality(lambda x: x.v[:1]), "max_rounds": 1, "max_iterations": 1}


def _constrained(robot, s) -> optimize.ConstrainedSolution:
    return optimize.constrained(_problem(robot), _start(s), s["torques"][:2], **_stop(robot))


def _optimal(robot, s):
    def make(parameters):
        return optimize.Setup(_problem(robot), _start(s), optimize.Inequality(lambda x, u: u - 2.0), ())

    found = optimize.optimal_trajectory(make, s["nu"], s["torques"][:2], max_rounds=1, max_iterations=1)
    return found.states, found.controls, found.cost


def tree_functions() -> dict[str, Entry]:
    servo = {"stiffness": 3.0, "damping": 0.5}

    def controlled(robot, s):
        control = simulate.PDServo(robot, s["q"], **servo)
        chain = (simulate.Gear(2.0, 0.9), simulate.Lag(0.05), simulate.Saturation(1.0, smooth=True))
        return soa.rollout(robot, s["q"], s["v"], control, 0.01, steps=2, actuators=chain)

    def sampled(robot, s):
        control = simulate.Sampled(lambda time, q, v: -v * time, every=2)
        motor = simulate.TorqueSpeed(2.0, 5.0)
        return soa.rollout(robot, s["q"], s["v"], control, 0.01, steps=2, actuators=motor, every=2)

    def multiplied(robot, s):  # operators are matrices, and promote what they multiply as JAX does
        v, tau = (jnp.asarray(s[name], robot.dtype) for name in ("v", "tau"))
        return _bundle(robot, s).Mass(v), _bundle(robot, s).Mass.inv(tau)

    def field(robot, s):
        return simulate.vector_field(robot, lambda time, q, v: -v)(0.0, _start(s))

    def adaptively(robot, s):
        options = {"rtol": 1e-3, "atol": 1e-3, "max_steps": 64}
        return simulate.solve_adaptively(robot, s["q"], s["v"], None, jnp.asarray([0.0, 0.01], robot.dtype), **options)

    def limited(robot, s):
        return simulate.JointLimits(10.0, 0.1)(robot, s["q"], s["v"])

    def integrated(integrator, **options):
        return lambda robot, s: soa.step(
            robot, s["q"], s["v"], s["tau"], 0.01, integrator=integrator, f_ext=s["f_ext"], **options
        )

    def rolled(**options):
        return lambda robot, s: soa.rollout(robot, s["q"], s["v"], s["torques"], 0.01, **options)

    def randomly(robot, s):
        model = soa.estimation.random_model(robot, s["q"], s["f_ext"])
        return model.filter(s["tau"]), model.smooth(s["tau"]), model.covariances()

    def applied(make: Callable) -> Callable:
        """The parts of a decomposition, each applied to a vector of its domain; of one size, as they are to be added:
        the part between branches is what others leave, and where that is nothing it is their rounding."""

        def call(robot, s):
            parts = make(_bundle(robot, s))
            return jnp.stack([part(jnp.ones(part.shape[1], robot.dtype)) for part in parts if part is not None])

        return call

    def found_posture(robot, s):
        target = soa.frame_pose(robot, s["q"], _last_frame(robot))[1]
        options = {"seeds": 2, "iterations": 4}
        found = soa.inverse_kinematics(robot, s["q"] + 0.1, _last_frame(robot), target, **options)
        return found.q, found.residual

    def posture_rate(robot, s):
        return soa.differential_inverse_kinematics(robot, s["q"], _last_frame(robot), s["force"], 0.01, damping=0.1)

    def touched(robot, s):
        found = contact.step(robot, _touching(robot, s), s["q"], s["v"], s["tau"], 0.01)
        return found.q, found.v, found.impulses, found.gaps

    def moved_on(robot, s):
        found = optimize.shifted(_constrained(robot, s))
        return found.controls, found.multipliers

    def followed(robot, s):
        path = [jnp.stack([s[name], s[name]]) for name in ("q", "v")]
        found = optimize.track(robot, *path, 0.01)
        return found.torques, found.gains

    def sensitive(robot, s):
        def heavier(by):
            return robot.replace(mass=robot.mass * (1 + by[0]))

        return simulate.trajectory_sensitivity(heavier, 0.1 * s["nu"][:1], s["q"], s["v"], s["torques"], 0.01)

    def actuated(robot, s):
        return simulate.linearize_actuated_step(robot, s["q"], s["v"], s["tau"], 0.01, simulate.Lag(0.05))

    dec, link = soa.decomposition, identify.link_pseudo_inertias
    entries = {
        "soa.rollout": Entry(rolled()),
        "soa.rollout, checkpoint=False": Entry(rolled(checkpoint=False)),
        "soa.rollout, segments": Entry(rolled(checkpoint="segments")),
        "soa.rollout, PDServo Gear Lag Saturation": Entry(controlled),
        "soa.rollout, Sampled TorqueSpeed": Entry(sampled, smooth=False),
        "soa.operators": Entry(multiplied),
        "soa.solve_mass_matrix, columns": Entry(lambda r, s: soa.solve_mass_matrix(r, s["q"], s["torques"].T)),
        # It exists where the frames together can move in every direction.
        "soa.operational_space_inertia": Entry(
            lambda r, s: soa.operational_space_inertia(r, s["q"], (_last_frame(r),)), "floating"
        ),
        "soa.coriolis_times": Entry(lambda r, s: soa.coriolis_times(r, s["q"], s["v"], s["a"])),
        "soa.tracking_regressor": Entry(lambda r, s: soa.tracking_regressor(r, s["q"], s["v"], s["dv"], s["a"])),
        "soa.external_forces": Entry(lambda r, s: soa.external_forces(r, s["q"], {_last_frame(r): s["force"]})),
        "soa.inverse_kinematics": Entry(found_posture, "pendulum", smooth=False, exact=False),
        "soa.differential_inverse_kinematics": Entry(posture_rate, smooth=False),
        "contact.step": Entry(touched, "floating", smooth=False, exact=False),
        "contact.gaps": Entry(lambda r, s: contact.gaps(r, _touching(r, s), s["q"])),
        "contact.Compliant": Entry(
            lambda r, s: contact.Compliant(_touching(r, s).points, contact.Plane(height=10.0), 50.0)(r, s["q"], s["v"])
        ),
        "optimize.constrained": Entry(lambda r, s: _constrained(r, s)[:4], "pendulum", smooth=False, exact=False),
        "optimize.optimal_trajectory": Entry(_optimal, "pendulum", smooth=False, exact=False),
        "optimize.shifted": Entry(moved_on, "pendulum", smooth=False, exact=False),
        "soa.Multibody": Entry(
            lambda r, s: (r.integrate(s["q"], s["dv"]), r.difference(s["q"], r.integrate(s["q"], s["v"])))
        ),
        "simulate.vector_field": Entry(field),
        "simulate.solve_adaptively": Entry(adaptively, "pendulum", smooth=False),
        "simulate.trajectory_sensitivity": Entry(sensitive),
        "simulate.linearize_actuated_step": Entry(actuated),
        "optimize.track": Entry(followed, "pendulum"),
        "simulate.JointLimits": Entry(limited),
        "simulate.with_momentum": Entry(
            lambda r, s: simulate.with_momentum(r, s["q"], s["v"], s["target"]), "floating"
        ),
        "simulate.conserving_momentum": Entry(integrated(simulate.conserving_momentum("rk4")), "floating"),
        "optimize.ilqr": Entry(_solved(optimize.ilqr, max_iterations=2), "pendulum", smooth=False, exact=False),
        "optimize.shooting": Entry(_solved(optimize.shooting, max_iterations=1), "pendulum", smooth=False, exact=False),
        "optimize.simulate_controls": Entry(
            lambda r, s: optimize.simulate_controls(_problem(r), _start(s), s["torques"][:2])
        ),
        "optimize.follow": Entry(lambda r, s: optimize.follow(_problem(r), _near(s), _plan(r, s))),
        "optimize.total_cost": Entry(
            lambda r, s: optimize.total_cost(_problem(r), _plan(r, s).states, s["torques"][:2])
        ),
        "identify.torque_residual": Entry(
            lambda r, s: identify.torque_residual(
                identify.Candidate(r, s["nu"]), identify.TorqueData(s["q"], s["v"], s["a"], s["tau"])
            )
        ),
        "identify.trajectory_residual": Entry(
            lambda r, s: identify.trajectory_residual(identify.Candidate(r, s["nu"]), _segment(s))
        ),
        "identify.consistency": Entry(lambda r, s: identify.consistency(r)),
        "identify.link_pseudo_inertias": Entry(lambda r, s: link(r)),
        "identify.pseudo_inertia": Entry(lambda r, s: identify.pseudo_inertia(r.mass, r.com, r.inertia)),
        "identify.from_pseudo_inertia": Entry(lambda r, s: identify.from_pseudo_inertia(link(r))),
        "identify.log_cholesky": Entry(lambda r, s: identify.log_cholesky(link(r)[0], link(r)[1])),
        "identify.from_log_cholesky": Entry(lambda r, s: identify.from_log_cholesky(jnp.ones(10, r.dtype), link(r)[0])),
        "estimation.random_model": Entry(randomly),
        "decomposition.blocks_of": Entry(lambda r, s: dec.blocks_of(_bundle(r, s).M, _bundle(r, s))),
        "decomposition.upsilon_plus": Entry(lambda r, s: dec.upsilon_plus(_bundle(r, s)).dense()),
        "decomposition.dense_omega": Entry(lambda r, s: dec.dense_omega(_bundle(r, s))),
        "decomposition.dense_mass": Entry(lambda r, s: dec.dense_mass(_bundle(r, s))),
        "decomposition.dense_mass_inverse": Entry(lambda r, s: dec.dense_mass_inverse(_bundle(r, s))),
        "decomposition.mass_decomposition": Entry(applied(dec.mass_decomposition)),
        "decomposition.omega_decomposition": Entry(applied(dec.omega_decomposition)),
        "decomposition.mass_inverse_decomposition": Entry(applied(dec.mass_inverse_decomposition)),
        "decomposition.decompose": Entry(applied(lambda o: dec.decompose(o, o.M, "psi", "phi"))),
        "decomposition.decompose_outboard": Entry(applied(lambda o: dec.decompose_outboard(o, o.M))),
        "decomposition.commuted": Entry(
            lambda r, s: dec.commuted(_bundle(r, s), dec.blocks_of(_bundle(r, s).M, _bundle(r, s)), "psi").dense()
        ),
    }
    for method in METHODS:
        entries[f"soa.forward_dynamics, {method}"] = Entry(
            lambda r, s, method=method: soa.forward_dynamics(r, s["q"], s["v"], s["tau"], s["f_ext"], method=method)
        )
    for integrator in simulate.INTEGRATORS:
        entries[f"soa.step, {integrator}"] = Entry(integrated(integrator))
    return entries


METHODS = ("fd1", "fd2", "fd3", "fd4", "kalman", "crb", "parallel")
