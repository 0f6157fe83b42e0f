"""adam on JAX. Its articulated-body algorithm is for floating bases; a fixed base is a dense solve of joint rows."""

from __future__ import annotations

from worker import serve


def start():
    import importlib.metadata

    import jax
    import jax.numpy as jnp
    from adam.jax import KinDynComputations
    from base_motion import homogeneous, integrator
    from defusedxml import ElementTree
    from jax_contender import Dynamics, JaxContender

    gravity = jnp.array([0.0, 0.0, -9.81, 0.0, 0.0, 0.0])

    def load(urdf: str, floating: bool) -> Dynamics:
        root = ElementTree.parse(urdf).getroot()
        joints = [str(x.get("name")) for x in root.findall("joint") if x.get("type") != "fixed"]
        robot = KinDynComputations(urdf, joints, dtype=jnp.zeros(()).dtype, gravity=gravity)

        def fixed_parts(q, v):
            still, place = jnp.zeros(6), jnp.eye(4)
            return robot.mass_matrix(place, q)[6:, 6:], robot.bias_force(place, q, still, v)[6:]

        def parts(q, v):
            place = homogeneous(q)
            return robot.mass_matrix(place, q[7:]), robot.bias_force(place, q[7:], v[:6], v[6:])

        def forward(q, v, tau):
            if floating:
                return robot.aba(homogeneous(q), q[7:], v[:6], v[6:], tau[6:])
            M, bias = fixed_parts(q, v)
            return jax.scipy.linalg.solve(M, tau - bias, assume_a="pos")

        def inverse(q, v, a):
            M, bias = (parts if floating else fixed_parts)(q, v)
            return M @ a + bias

        def mass(q):
            return robot.mass_matrix(homogeneous(q), q[7:]) if floating else robot.mass_matrix(jnp.eye(4), q)[6:, 6:]

        integrate = integrator(floating, spin_in_body=False)
        return Dynamics("mixed", joints, forward, inverse, mass, integrate)

    return JaxContender(importlib.metadata.version("adam-robotics"), "default XLA flags", load)


if __name__ == "__main__":
    serve(start)
