"""Rewriting: every rule for its value and its reduction, the papers' algorithms derived, values of every step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_oracle import case, close

import jaxsoa as soa
from jaxsoa.algebra.expression import Operator
from jaxsoa.algebra.rules import OPTIONAL, RULES, _letter, with_adjoints
from jaxsoa.algebra.words import expand, factor, word_size
from jaxsoa.dynamics.inverse import bias_forces, dissipation
from jaxsoa.dynamics.kinematics import gravity_upward, link_inertias, moving_kinematics

EVERY_RULE = with_adjoints((*RULES, *OPTIONAL.values()))


def run_of(o, text):
    state = o.state
    return tuple(_letter(token, 0, o.joints, o.links, state.has_armature) for token in text.split())


@pytest.mark.parametrize("rule", EVERY_RULE, ids=[f"{r.equation} {r.pattern}" for r in EVERY_RULE])
def test_rule(rule):
    """It fires, and every resulting word is smaller. That both sides are equal, test_operator_identities.py says."""
    adjoint = rule.name not in soa.IDENTITIES
    for where in ("tree", "noisy", "chain"):
        c = case(where)
        if not rule.holds(c.o.state):
            continue
        if adjoint:
            close(c.dense(rule.left(c.o)), c.dense(rule.right(c.o)))
        for _, text in rule.result:
            assert word_size(run_of(c.o, text)) < word_size(run_of(c.o, rule.pattern))
        found = rule.match(run_of(c.o, rule.pattern), (c.o.state,))
        assert found is not None and found[:2] == (0, len(rule.pattern.split()))


def test_rules_with_a_condition_do_not_fire_with_armature():
    for rule in EVERY_RULE:
        if rule.condition:
            assert rule.match(run_of(case("noisy").o, rule.pattern), (case("noisy").o.state,)) is None


def test_rules_do_not_mix_bundles():
    c = case("arm")
    other = soa.operators(c.robot, c.q + 0.3)
    mixed = c.o.whitening @ other.H @ other.phi
    assert soa.simplify(mixed).term == mixed.term


# --- the papers' derivations ------------------------------------------------------------------------------------------


def equation_of_motion(c):
    """T = H phi [M phi* (H* a + a_bias) + b + B f] with random vectors for everything but a."""
    o, n = c.o, 6 * c.robot.n_links
    tip = c.robot.frame_names[-1]
    T, unknown = o.vector("T", c.rng.normal(size=c.robot.nv)), o.vector("θ̈", np.zeros(c.robot.nv))
    a, b = (o.vector(name, c.rng.normal(size=n), "link") for name in ("𝔞", "b"))
    f = o.vector("f", c.rng.normal(size=6), o.tips(tip))
    right = o.H @ o.phi @ (o.M @ o.phi.T @ (o.H.T @ unknown + a) + b + o.B(tip) @ f)
    if o.state.has_armature:
        right = right + o.armature @ unknown
    return T, unknown, right


def check_steps(c, derivation):
    expected = c.dense(derivation.start)
    for step in derivation.steps:
        close(c.dense(step.expression), expected)
        assert step.rule
    sweeps = [derivation.start.sweeps, *(step.expression.sweeps for step in derivation.steps)]
    assert sweeps[-1] <= min(sweeps)
    return [str(step.expression) for step in derivation.steps]


@pytest.mark.parametrize("where", ["arm", "noisy", "tree"])
def test_forward_dynamics_is_derived(where):
    c = case(where)
    T, unknown, right = equation_of_motion(c)
    solved = soa.solve_for(unknown, T, right)
    assert str(solved.result) == "𝓜⁻¹ (T - H φ (M φ* 𝔞 + b + B f))"
    derivation = soa.derive(solved.result)
    forms = check_steps(c, derivation)
    fd1 = "(I - H ψ K)* D⁻¹ (I - H ψ K) (T - H φ (M φ* 𝔞 + b + B f))"  # (4.17)-(4.18)
    fd3 = "(I - H ψ K)* D⁻¹ ((I - H ψ K) T - H ψ (M φ* 𝔞 + b + B f))"  # (5.8)-(5.10)
    fd4 = "(I - H ψ K)* D⁻¹ (T - H ψ (K T + P 𝔞 + b + B f)) - K* ψ* 𝔞"  # DARTS (7.21)
    assert forms[0] == fd1 and forms[1] == fd3 and forms[-1] == fd4
    sweeps = {form: step.expression.sweeps for form, step in zip(forms, derivation.steps, strict=True)}
    assert (sweeps[fd1], sweeps[fd3], sweeps[fd4]) == (4, 3, 2)
    printed = str(derivation)
    assert "JPL 88-11 (4.16)" in printed and "JPL 88-11 (5.4)" in printed and fd4 in printed


@pytest.mark.parametrize("where", ["arm", "noisy"])
def test_algorithm_fd4_as_the_report_has_it(where):
    """With identity A.7 preferred: (5.14)-(5.15)."""
    c = case(where)
    T, unknown, right = equation_of_motion(c)
    derivation = soa.derive(soa.solve_for(unknown, T, right).result, prefer=["a.50"])
    forms = check_steps(c, derivation)
    assert forms[-1] == "(I - H ψ K)* D⁻¹ ((I - H ψ K) T - H (ψ̃ P 𝔞 + ψ (b + B f))) - K* ψ* τ̄* 𝔞 - G* 𝔞"
    assert derivation.result.sweeps == 2


def test_link_accelerations_of_fd2_are_derived():
    """(5.6): alpha = phi* (H* M^-1 T' + a) needs one filter and one smoother beside phi* a."""
    c, o = case("noisy"), case("noisy").o
    T, a = o.vector("T'", c.rng.normal(size=c.robot.nv)), o.vector("𝔞", c.rng.normal(size=o.links.size), "link")
    derivation = soa.derive(o.phi.T @ (o.H.T @ o.Mass.inv @ T + a))
    assert check_steps(c, derivation)[-1] == "ψ* H* D⁻¹ (I - H ψ K) T' + φ* 𝔞"
    assert (derivation.start.sweeps, derivation.result.sweeps) == (3, 2)


def test_derived_forward_dynamics_runs():
    """The derived expression with the robot's own biases is forward dynamics."""
    c = case("noisy")
    robot = c.robot
    v, tau = (jnp.asarray(c.rng.normal(size=robot.nv)) for _ in range(2))

    @jax.jit
    def both(robot, q, v, tau):
        kin, vel = moving_kinematics(robot, q, v)
        roots = jnp.asarray([p < 0 for p in robot.topology.parents])
        up = jnp.concatenate(gravity_upward(robot, v))
        bias = vel.bias + jnp.where(roots[:, None], up, 0)
        gyroscopic = bias_forces(link_inertias(robot, kin.rotation), vel.angular, None)
        o = soa.operators(robot, q)
        T, a, b = (
            o.vector("T", tau - dissipation(robot, v)),
            o.vector("a", bias, "link"),
            o.vector("b", gyroscopic, "link"),
        )
        unknown = o.vector("x", jnp.zeros_like(tau))
        right = o.H @ o.phi @ (o.M @ o.phi.T @ (o.H.T @ unknown + a) + b) + o.armature @ unknown
        derived = soa.simplify(soa.solve_for(unknown, T, right).result)
        assert derived.sweeps == 2
        return derived.value, soa.forward_dynamics(robot, q, v, tau)

    close(*both(robot, c.q, v, tau))


def test_operational_space_is_derived():
    c = case("noisy")
    J = c.o.J(c.robot.frame_names[-1])
    derivation = soa.derive(J @ c.o.Mass.inv @ J.T)
    forms = check_steps(c, derivation)
    assert forms[-2:] == ["B* ψ* H* D⁻¹ H ψ B", "B* Υ B"]  # (5.5), and the recursion for Omega
    assert [step.expression.sweeps for step in derivation.steps][-2:] == [2, 0]
    M, Jd = c.dense(c.o.Mass), c.dense(J)
    close(derivation.result.dense(), Jd @ np.linalg.solve(M, Jd.T))


def test_frames_on_different_links_keep_two_sweeps():
    c = case("tree")
    J = c.o.J((c.robot.frame_names[-1], c.robot.frame_names[-2]))
    derivation = soa.derive(J @ c.o.Mass.inv @ J.T)
    assert check_steps(c, derivation)[-1] == "B* ψ* H* D⁻¹ H ψ B"


def test_closed_chain_dynamics_is_derived():
    """RCCFD2 (6.18) from the analytical solution (3.6) of part II, for frames of one tree."""
    c, o = case("noisy"), case("noisy").o
    hands = (c.robot.frame_names[-1], c.robot.frame_names[-2])
    J, tips = o.J(hands), o.tips(hands)
    X = c.rng.normal(size=(12, 12))
    C = o.matrix("C", X @ X.T + np.eye(12), tips, symmetric=True)  # A M(C)^-1 A* of the object held
    T, a = o.vector("T'", c.rng.normal(size=c.robot.nv)), o.vector("a_C", c.rng.normal(size=12), tips)
    Omega = J @ o.Mass.inv @ J.T + C
    inner = "(B* ψ* H* D⁻¹ H ψ B + C)⁻¹ (B* ψ* H* D⁻¹ (I - H ψ K) T' - a_C)"
    tip_forces = soa.derive(Omega.inv @ (J @ o.Mass.inv @ T - a))  # (3.6b)
    assert check_steps(c, tip_forces)[-1] == inner  # (6.18d)
    Minv = o.Mass.inv
    accelerations = (Minv - Minv @ J.T @ Omega.inv @ J @ Minv) @ T + Minv @ J.T @ Omega.inv @ a  # (3.6a)
    forms = check_steps(c, soa.derive(accelerations))
    # (6.18e), its first factor transposed and f(0) = Omega^-1 {...} of (6.18d) in its place, with both signs turned.
    minus_f = "(B* ψ* H* D⁻¹ H ψ B + C)⁻¹ (a_C - B* ψ* H* D⁻¹ (I - H ψ K) T')"
    assert forms[-1] == f"(I - H ψ K)* D⁻¹ (T' - H ψ (K T' - B {minus_f}))"
    f = o.vector("f", c.rng.normal(size=12), tips)
    assert check_steps(c, soa.derive(Minv @ (T - J.T @ f)))[-1] == "(I - H ψ K)* D⁻¹ (T' - H ψ (K T' + B f))"  # (6.17)


def test_solving_needs_a_linear_equation():
    o = case("arm").o
    T, x = o.vector("T", np.ones(7)), o.vector("x", np.ones(7))
    with pytest.raises(ValueError, match="not linear in x"):
        soa.solve_for(x, T, o.Mass @ T)
    assert str(soa.solve_for(x, T, o.D @ x + o.armature @ x).result) == "(D + A)⁻¹ T"


# --- properties -------------------------------------------------------------------------------------------------------


def random_product(o, rng, length):
    """A random walk between joint and link space over operators that rules match."""
    W = o.whitening
    joint_to_joint = [W, W.T, W.inv, o.D.inv, o.Mass.inv, o.Mass, o.identity - o.H @ o.Psi @ o.L]
    joint_to_link = [o.H.T, o.K, o.phi.T @ o.H.T, o.psi.T @ o.H.T, o.psi @ o.K, o.S @ o.L, o.G]
    link_to_link = [o.phi, o.psi, o.phi.T, o.M @ o.phi.T, o.M @ o.psi.T, o.P, o.E_phi, o.tau_bar, o.psi - o.phi]
    link_to_joint = [o.H, o.K.T, o.H @ o.phi, o.H @ o.psi, o.K.T @ o.phi.T, o.K.T @ o.psi.T]
    result = o.identity
    while length > 0 or result.codomain != o.joints:
        at_joints = result.codomain == o.joints
        stay, leave = (joint_to_joint, joint_to_link) if at_joints else (link_to_link, link_to_joint)
        options = stay if rng.random() < 0.4 and length > 0 else leave
        result = options[rng.integers(len(options))] @ result
        length -= 1
    return result


def random_expression(o, rng):
    first, second, third = (random_product(o, rng, int(rng.integers(2, 6))) for _ in range(3))
    return first - 2 * second if rng.random() < 0.5 else (first + second) @ third


@pytest.mark.parametrize(("where", "seed"), [("tree", 0), ("noisy", 1), ("chain", 2)])
def test_simplify_keeps_the_value_and_never_needs_more_sweeps(where, seed):
    c = case(where)
    rng = np.random.default_rng(seed)  # other expressions for each robot: how they are rewritten does not depend on it
    shorter = 0
    for _ in range(15):
        expression = random_expression(c.o, rng)
        derivation = soa.derive(expression)
        for step in derivation.steps:
            close(c.dense(step.expression), c.dense(expression), 1e-9)  # a dozen factors lose a digit
        simple = soa.simplify(expression)
        assert simple.sweeps <= expression.sweeps
        shorter += simple.sweeps < expression.sweeps
        assert soa.simplify(simple).sweeps <= simple.sweeps
    assert shorter >= 3


def test_expanding_and_factoring_keep_the_value():
    c = case("noisy")
    rng = np.random.default_rng(3)
    for _ in range(20):
        expression = random_expression(c.o, rng)
        again = Operator(factor(expand(expression.term)), expression.data)
        close(c.dense(again), c.dense(expression), 1e-9)


def test_the_filter_is_recognized_however_it_is_written():
    o = case("arm").o
    for W in (
        o.whitening,
        o.identity - o.H @ o.psi @ o.K,
        o.identity - o.H @ o.Psi @ o.L,
        -(o.H @ o.psi @ o.S @ o.L) + o.identity,
        (o.identity + o.H @ o.phi @ o.K).inv,
    ):
        assert str(soa.simplify(W @ o.H @ o.phi)) == "H ψ"
        assert str(soa.simplify(o.phi.T @ o.H.T @ W.T)) == "ψ* H*"
        assert str(soa.simplify(W @ o.Mass @ W.T)) == "D"
    assert str(soa.simplify((o.identity + o.H @ o.phi @ o.K) @ (o.identity - o.H @ o.psi @ o.K))) == "I"
    assert str(soa.simplify(o.H @ o.psi @ o.M @ o.psi.T @ o.H.T)) == "D"
