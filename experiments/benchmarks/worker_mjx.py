"""MJX: the smooth part of its pipeline alone (no contacts, no constraint solver), which is the least it can do."""

from __future__ import annotations

from worker import serve


def start():
    import importlib.metadata

    from base_motion import integrator
    from jax_contender import Dynamics, JaxContender
    from mujoco import mjx
    from mujoco.mjx._src import smooth  # the public functions hold everything but the solve with the mass matrix
    from mujoco_model import mujoco_model

    def load(urdf: str, floating: bool) -> Dynamics:
        host, joints = mujoco_model(urdf, floating)
        model = mjx.put_model(host)
        blank = mjx.make_data(model)

        def inertia(q):
            data = mjx.com_pos(model, mjx.kinematics(model, blank.replace(qpos=q)))
            return mjx.crb(model, data)

        def forward(q, v, tau):
            data = mjx.com_vel(model, mjx.factor_m(model, inertia(q)).replace(qvel=v))
            data = mjx.rne(model, data)
            return smooth.solve_m(model, data, tau - data.qfrc_bias)

        def inverse(q, v, a):
            data = mjx.com_pos(model, mjx.kinematics(model, blank.replace(qpos=q)))
            data = mjx.com_vel(model, data.replace(qvel=v, qacc=a))
            return mjx.rne(model, data, flg_acc=True).qfrc_bias

        return Dynamics(
            family="mujoco",
            joints=joints,
            forward=forward,
            inverse=inverse,
            mass=lambda q: mjx.full_m(model, inertia(q)),
            integrate=integrator(floating, spin_in_body=True),
        )

    settings = "default XLA flags (its documentation names none for CPUs); smooth dynamics alone"
    return JaxContender(importlib.metadata.version("mujoco-mjx"), settings, load)


if __name__ == "__main__":
    serve(start)
