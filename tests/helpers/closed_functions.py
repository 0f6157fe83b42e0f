"""Public functions of closed chains, each as a function of (mechanism, state) or (grasp, state)."""

from __future__ import annotations

from helpers.tree_functions import Entry

from jaxsoa import closed_chain as cc, simulate
from jaxsoa.closed_chain.embedding import AggregateBody

#: Methods of the grasp that are other ways to the same answer; "analytic" is for arms of six degrees of freedom.
GRASP_METHODS = ("dense", "general", "rccfd1", "rccfd2", "rccfd3", "rank6")


def _embedding(m) -> cc.Embedding:
    """The four-bar linkage by its crank; written out, since `embed` looks at values."""
    robot = m.robot
    node = AggregateBody((0, 1, 2), (0, 1, 2), (0,), (0,), -1)
    return cc.Embedding(robot, m.loops, ("left1_joint",), (node,), m.q)


def _pose(g, s):
    return g.pose[0], s["place"]


def closed_functions() -> dict[str, Entry]:
    def on_loops(function, *names, **options) -> Entry:
        return Entry(lambda m, s: function(m.robot, m.loops, *(s[name] for name in names), **options), "linkage")

    def embedded(function, *names, **options) -> Entry:
        return Entry(lambda m, s: function(_embedding(m), *(s[name] for name in names), **options), "linkage")

    def on_grasp(function, *names, **options) -> Entry:
        return Entry(lambda g, s: function(g.system, *(s[name] for name in names), _pose(g, s), **options), "grasp")

    def held(m, s):
        return cc.loop_errors(m.robot, cc.holding(m.robot, s["q"], m.loops), s["q"] + 0.1)

    def inverse(**options):
        driven = ("left1_joint", "right1_joint")
        return Entry(
            lambda m, s: cc.loop_inverse_dynamics(
                m.robot, m.loops, s["q"], s["v"], s["a"], driven, s["f_ext"], **options
            ),
            "linkage",
        )

    def two_arms(g, s):
        arms = tuple((arm.robot, arm.frame) for arm in g.system.arms)
        return cc.cut_chain_dynamics(arms, s["q"], s["v"], s["tau"])

    def projected(g, s):
        turns = cc.grasp_rotations(g.system, s["q"], _pose(g, s))
        q = tuple(x + 1e-3 for x in s["q"])
        return cc.project_grasp(g.system, q, s["v"], _pose(g, s), s["twist"], turns)

    def carried(g, s):
        motion = simulate.GraspMotion(s["q"], s["v"], _pose(g, s), s["twist"])
        turns = cc.grasp_rotations(g.system, s["q"], _pose(g, s))
        return simulate.grasp_step(g.system, motion, s["tau"], 0.01, turns, integrator="semi_implicit_euler")

    def carried_on(g, s):
        torques = tuple(x[None] for x in s["tau"])
        return simulate.grasp_rollout(
            g.system, s["q"], s["v"], _pose(g, s), torques, 0.01, integrator="semi_implicit_euler"
        )

    def written(g, s):
        letters = cc.grasp_operators(g.system, s["q"], s["v"], s["tau"], _pose(g, s))
        return (letters.J @ letters.bundle.Mass.inv @ letters.torque - letters.bias).value

    dynamics = cc.grasp_forward_dynamics
    entries = {
        "closed_chain.close_loops": on_loops(cc.close_loops, "q"),
        "closed_chain.close_loops_report": Entry(
            lambda m, s: cc.close_loops_report(m.robot, m.loops, s["q"] + 0.1)[:2], "linkage", exact=False
        ),
        "closed_chain.loop_errors": on_loops(cc.loop_errors, "q"),
        "closed_chain.loop_jacobian": on_loops(cc.loop_jacobian, "q"),
        "closed_chain.loop_effective_inertia": on_loops(cc.loop_effective_inertia, "q"),
        "closed_chain.loop_forward_dynamics": on_loops(cc.loop_forward_dynamics, "q", "v", "tau", "f_ext"),
        "closed_chain.linearize_loop_forward_dynamics": on_loops(
            cc.linearize_loop_forward_dynamics, "q", "v", "tau", "f_ext"
        ),
        "closed_chain.loop_inverse_dynamics": inverse(),
        "closed_chain.loop_inverse_dynamics, torques": inverse(least="torques"),
        "closed_chain.holding": Entry(held, "linkage"),
        "closed_chain.project": on_loops(cc.project, "q", "v"),
        "closed_chain.project_position": on_loops(cc.project_position, "q"),
        "closed_chain.project_velocity": on_loops(cc.project_velocity, "q", "v"),
        "closed_chain.embedded_velocity": embedded(cc.embedded_velocity, "q", "rates"),
        "closed_chain.embedded_mass_matrix": embedded(cc.embedded_mass_matrix, "q"),
        "closed_chain.embedded_inverse_dynamics": embedded(cc.embedded_inverse_dynamics, "q", "rates", "more", "f_ext"),
        "closed_chain.embedded_forward_dynamics": embedded(cc.embedded_forward_dynamics, "q", "rates", "tau", "f_ext"),
        "closed_chain.embedded_forward_dynamics, dense": embedded(
            cc.embedded_forward_dynamics, "q", "rates", "tau", method="dense"
        ),
        "closed_chain.grasp_state": on_grasp(cc.grasp_state, "q", "v"),
        "closed_chain.grasp_rotations": on_grasp(cc.grasp_rotations, "q"),
        "closed_chain.grasp_forward_dynamics": on_grasp(dynamics, "q", "v", "tau"),
        "closed_chain.grasp_inverse_dynamics": on_grasp(cc.grasp_inverse_dynamics, "q", "v", "a", squeeze=2.0),
        "closed_chain.friction_report": on_grasp(cc.friction_report, "force"),
        # Not smooth: how redundant arms settle along their self-motions is the search's affair, and no derivative's.
        "closed_chain.close_grasp": Entry(
            lambda g, s: cc.close_grasp(g.system, tuple(x + 0.01 for x in s["q"]), _pose(g, s)),
            "grasp",
            smooth=False,
            exact=False,
        ),
        "closed_chain.project_grasp": Entry(projected, "grasp"),
        "closed_chain.cut_chain_dynamics": Entry(two_arms, "grasp"),
        "closed_chain.grasp_operators": Entry(written, "grasp"),
        "closed_chain.grasp_compliance": on_grasp(cc.grasp_compliance, "q"),
        "closed_chain.linearize_grasp_forward_dynamics": on_grasp(cc.linearize_grasp_forward_dynamics, "q", "v", "tau"),
        "closed_chain.linearize_embedded_dynamics": embedded(cc.linearize_embedded_dynamics, "q", "rates", "tau"),
        "simulate.grasp_step": Entry(carried, "grasp", exact=False),
        "simulate.grasp_rollout": Entry(carried_on, "grasp", exact=False),
    }
    for method in GRASP_METHODS:
        entries[f"closed_chain.grasp_forward_dynamics, {method}"] = on_grasp(dynamics, "q", "v", "tau", method=method)
    return entries
