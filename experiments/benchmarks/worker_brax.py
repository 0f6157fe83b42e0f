"""Brax, generalized pipeline, with an exact solve (the inverse it uses by default is approximate)."""

from __future__ import annotations

from worker import serve


def start():
    import importlib.metadata

    import jax
    from base_motion import integrator
    from brax import kinematics
    from brax.generalized import dynamics, mass
    from brax.generalized.base import State
    from brax.io import mjcf
    from jax_contender import Dynamics, JaxContender
    from mujoco_model import mujoco_model

    def load(urdf: str, floating: bool) -> Dynamics:
        host, joints = mujoco_model(urdf, floating)
        system = mjcf.load_model(host)

        def state(q, v):
            x, xd = kinematics.forward(system, q, v)
            return dynamics.transform_com(system, State.init(q, v, x, xd))

        def forward(q, v, tau):
            now = state(q, v)
            force = dynamics.forward(system, now, tau)
            return jax.scipy.linalg.solve(mass.matrix(system, now), force, assume_a="pos")

        return Dynamics(
            family="mujoco",
            joints=joints,
            forward=forward,
            mass=lambda q: mass.matrix(system, state(q, jax.numpy.zeros(system.qd_size()))),
            integrate=integrator(floating, spin_in_body=True),
        )

    settings = "default XLA flags; exact solve instead of its approximate inverse"
    return JaxContender(importlib.metadata.version("brax"), settings, load)


if __name__ == "__main__":
    serve(start)
