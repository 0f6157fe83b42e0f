"""Every public function of the library as a function of a model and a state, so that each can be put to the same test.

`TABLE` has a function `(model, state) -> arrays` for every public name that is one; `NOT_OF_A_STATE` the others, each
with the reason. A function whose first argument is a robot and whose other arguments have the usual names is in the
table of its own accord, so that a new one is tested as soon as it is public.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from helpers.closed_functions import closed_functions
from helpers.tree_functions import Entry, by_signature, tree_functions

import jaxsoa as soa
from jaxsoa import closed_chain, contact, convert, identify, ik, models, optimize, simulate, viz
from jaxsoa.exports import exported

MODULES = {
    "soa": soa,
    "closed_chain": closed_chain,
    "closed_chain.mechanisms": closed_chain.mechanisms,
    "contact": contact,
    "ik": ik,
    "simulate": simulate,
    "optimize": optimize,
    "identify": identify,
    "estimation": soa.estimation,
    "decomposition": soa.decomposition,
    "models": models,
    "convert": convert,
    "viz": viz,
}


def public_names() -> dict[str, Any]:
    """Everything public, by module and name, once; what a file only imports from elsewhere is not its own."""
    found: dict[str, Any] = {}
    for prefix, module in MODULES.items():
        is_package = hasattr(module, "__path__")
        for name, value in vars(module).items():
            if name.startswith("_") or isinstance(value, ModuleType) or value is exported:
                continue
            own = is_package or getattr(value, "__module__", None) == module.__name__
            if own and not any(value is other for other in found.values()):
                found[f"{prefix}.{name}"] = value
    return found


# --- what is not a function of a state ----------------------------------------------------------------------------

_REASONS = {
    "types of results, tested with the functions that return them": """
        soa.AccelerationSplit soa.LinkPoses soa.InertiaFactor soa.InnovationsMotion soa.BaseParameters
        soa.LinearizedForwardDynamics soa.LinearizedInverseDynamics soa.LinearizedStep soa.Limits soa.Bundle
        soa.Operator soa.Derivation soa.State closed_chain.Closed closed_chain.ClosedGrasp closed_chain.CutChain
        closed_chain.EmbeddedAcceleration closed_chain.Embedding closed_chain.Equality closed_chain.GraspState
        closed_chain.GraspAcceleration closed_chain.GraspOperators closed_chain.GraspTorques closed_chain.LoopTorques
        closed_chain.LoopAcceleration closed_chain.FrictionReport closed_chain.mechanisms.Mechanism
        closed_chain.mechanisms.Grasp simulate.Sample optimize.History optimize.Solution identify.TorqueData
        identify.TrajectoryData identify.Excitation identify.Candidate identify.Estimate identify.Fit
        estimation.Sample estimation.Filtered estimation.Smoothed estimation.Covariances estimation.RandomModel
        decomposition.Decomposition convert.CoordinateMap""",
    "errors and warnings": "soa.ModelError soa.ModelWarning soa.SpaceError simulate.FolderInUse",
    "results": """
        soa.OperationalSpaceDynamics soa.InverseKinematics soa.HybridDerivatives soa.LinearizedHybridDynamics
        closed_chain.LinearizedLoopDynamics simulate.GraspMotion optimize.ConstrainedSolution optimize.Multipliers
        optimize.OptimalTrajectory contact.Solution contact.Step soa.Symbolic simulate.Sensitivity
        soa.ExportedC         closed_chain.LinearizedGraspDynamics closed_chain.LinearizedEmbeddedDynamics""",
    "constants": "soa.IDENTITIES closed_chain.Constraint simulate.INTEGRATORS identify.BLOCKS",
    "parts of a model or a problem, made once on the host": """
        soa.Builder soa.from_arrays soa.prescribed_mask closed_chain.Coupling closed_chain.Distance closed_chain.Loop
        closed_chain.ball closed_chain.cylinder closed_chain.distance closed_chain.hinge closed_chain.mimic_couplings
        closed_chain.planar closed_chain.screw closed_chain.slider closed_chain.weld closed_chain.Contact
        closed_chain.Custom closed_chain.Hinge closed_chain.Point closed_chain.Rigid closed_chain.SoftFinger
        closed_chain.Arm closed_chain.GraspSystem closed_chain.RigidBody closed_chain.embed
        closed_chain.equality_constraints closed_chain.mechanisms.linkage closed_chain.mechanisms.four_bar
        closed_chain.mechanisms.five_bar closed_chain.mechanisms.stewart closed_chain.mechanisms.two_arm_grasp
        optimize.LeastSquares optimize.Dynamics optimize.Problem optimize.RobotDynamics optimize.StepDynamics
        optimize.robot_problem optimize.step_problem models.cart_pole models.chain models.dual_arm models.pendulum
        models.planar_arm models.puma560 models.stanford_arm models.random_tree models.Section models.circle
        models.rectangle models.rod soa.merge closed_chain.CoupledRobot optimize.Equality optimize.Inequality
        optimize.clear_of_sphere optimize.friction_cone optimize.Setup optimize.Parametrized
        optimize.parametrized_problem optimize.parametrized_start optimize.within_joint_limits contact.Points
        contact.Scene contact.Cones contact.Settings contact.points_of contact.Ball contact.Box contact.Capsule
        contact.HeightField contact.Plane contact.Surface ik.Direction ik.Pose ik.Position""",
    "the solver inside `contact.step`": "contact.solve",
    "looks at values, so it cannot be traced": """
        soa.base_parameters closed_chain.check_grasp identify.prepare identify.resample identify.segments
        identify.zero_phase identify.condition_number identify.design identify.random_trajectory identify.fit
        identify.FourierTrajectory identify.Parameters identify.make_physical identify.residual_rms
        optimize.violated""",
    "controllers, actuators and integrators, tested inside `rollout`": """
        simulate.Gear simulate.Lag simulate.PDServo simulate.Sampled simulate.Saturation simulate.TorqueSpeed
        simulate.ActuatorDescription simulate.Actuators simulate.Delay simulate.actuator_set simulate.motor
        simulate.pid_servo simulate.position_servo simulate.velocity_servo simulate.JointSprings simulate.Springs
        optimize.Tracking simulate.Fluid simulate.GravityCompensation simulate.TendonDescription simulate.TendonLimits
        simulate.Tendons simulate.tendon_set""",
    "sensors, tested against MuJoCo": """
        simulate.Accelerometer simulate.ForceSensor simulate.FrameSensor simulate.Gyro simulate.InertialNoise
        simulate.JointPosition simulate.JointVelocity simulate.JointWrench simulate.Sensors simulate.sensor_set
        simulate.Observation simulate.observation simulate.Command simulate.commands""",
    "batches of their own, over devices, tested by test_sharding.py": """
        soa.sharded_rollout simulate.device_mesh simulate.shard_batch simulate.sharded_map
        simulate.sharded_value_and_grad simulate.to_host""",
    "files, settings and the terminal": """
        soa.clear_caches soa.load_mjcf_actuators soa.load_mjcf_keyframes soa.load_mjcf_sensors soa.load_mjcf_springs
        soa.fast_cpu soa.low_latency_cpu soa.export_function soa.export_c soa.load_function soa.load soa.save
        soa.load_mjcf soa.load_mjcf_constraints soa.load_mjcf_passive soa.load_urdf soa.save_urdf simulate.ProgressBar
        simulate.run_study simulate.save_archive viz.Mesh viz.film viz.picture viz.Shape viz.primitive_shapes viz.Viewer
        viz.view viz.urdf_shapes""",
    "algebra of symbols": "soa.derive soa.simplify soa.solve_for soa.symbolic",
    "parts of the decompositions, which call them": "decomposition.inboard decomposition.outboard",
    "arrays of any shape, not of a model": """
        convert.linear_first convert.angular_first convert.world_to_local convert.local_to_world convert.motion_at
        convert.force_at convert.PinocchioMap convert.MujocoMap""",
}
NOT_OF_A_STATE = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def _table() -> dict[str, Entry]:
    table = {**tree_functions(), **closed_functions()}
    for name, value in public_names().items():
        entry = None if name in table or name in NOT_OF_A_STATE else by_signature(value)
        if entry is not None:
            table[name] = entry
    return table


TABLE = _table()


CORE = tuple(n for n, entry in TABLE.items() if n.startswith("soa.") and "," not in n and entry.on == "tree")
"""The functions of every day: what the default run of the tests tries, the others being slow to trace together."""


def entries_on(model: str) -> dict[str, Entry]:
    """The part of the table that concerns one of the models of `function_states.MODELS`."""
    kinds = {"fixed": ("tree",), "floating": ("tree", "floating"), "every kind": ("tree",)}.get(model, (model,))
    return {name: entry for name, entry in TABLE.items() if entry.on in kinds}
