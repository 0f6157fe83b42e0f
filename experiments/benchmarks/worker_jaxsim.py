"""JaxSim: its articulated-body, Newton-Euler and composite-body functions of a model and its data.

It reads URDF only through a Gazebo installation, so it is given the robot as SDF.
"""

from __future__ import annotations

from worker import serve


def start():
    import importlib.metadata

    import jax.numpy as jnp
    import jaxsim.api as js
    from base_motion import integrator
    from jax_contender import Dynamics, JaxContender
    from urdf_to_sdf import sdf_text

    def load(urdf: str, floating: bool) -> Dynamics:
        model = js.model.JaxSimModel.build_from_model_description(sdf_text(urdf, floating), is_urdf=False, gravity=9.81)

        def data(q, v):
            if not floating:
                return js.data.JaxSimModelData.build(model, joint_positions=q, joint_velocities=v)
            return js.data.JaxSimModelData.build(
                model,
                base_position=q[:3],
                base_quaternion=q[3:7],
                joint_positions=q[7:],
                base_linear_velocity=v[:3],
                base_angular_velocity=v[3:6],
                joint_velocities=v[6:],
            )

        skip = 6 if floating else 0

        def forward(q, v, tau):
            base, joints = js.model.forward_dynamics_aba(model, data(q, v), joint_forces=tau[skip:])
            return jnp.concatenate([base, joints]) if floating else joints

        def inverse(q, v, a):
            base = a[:6] if floating else jnp.zeros(6)
            wrench, joints = js.model.inverse_dynamics(
                model, data(q, v), joint_accelerations=a[skip:], base_acceleration=base
            )
            return jnp.concatenate([wrench, joints]) if floating else joints

        def mass(q):
            state = data(q, jnp.zeros(len(q) - (1 if floating else 0)))
            return js.model.free_floating_mass_matrix(model, state)[6 - skip :, 6 - skip :]

        return Dynamics(
            family="mixed",
            joints=list(model.joint_names()),
            forward=forward,
            inverse=inverse,
            mass=mass,
            integrate=integrator(floating, spin_in_body=False),
        )

    return JaxContender(importlib.metadata.version("jaxsim"), "default XLA flags", load)


if __name__ == "__main__":
    serve(start)
