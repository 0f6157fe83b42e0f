"""frax, with the environment its README recommends (set by the parent: see contenders.py)."""

from __future__ import annotations

import os

from worker import serve


def start():
    import importlib.metadata
    import warnings

    warnings.filterwarnings("ignore", message=r".*\[frax\].*")
    import frax
    import jax.numpy as jnp
    from jax_contender import Dynamics, JaxContender

    def load(urdf: str, floating: bool) -> Dynamics:
        robot = frax.Robot(urdf, floating_base="quaternion" if floating else None)
        gravity = jnp.array([0.0, 0.0, 9.81, 0.0, 0.0, 0.0])  # as in its own forward_dynamics
        return Dynamics(
            family="mujoco",
            joints=list(robot.joint_names)[6 if floating else 0 :],
            forward=lambda q, v, tau: robot.forward_dynamics(q, v, tau, None),
            inverse=lambda q, v, a: robot.rnea(q, v, a, gravity, None),
            mass=robot.mass_matrix,
            integrate=robot.integrate,
        )

    return JaxContender(importlib.metadata.version("frax"), os.environ.get("XLA_FLAGS", "").strip(), load)


if __name__ == "__main__":
    serve(start)
