"""Would the contacts hold? Normal force and friction of one-sided contacts (JPL 88-11, Part II, Appendix A).

The grasp model holds from both sides and never slips. The report asks that this be verified during a simulation:
"all contact forces are in an appropriate friction cone". With n the unit normal into the object:

    presses      f_n = n . force >= 0
    sticks       |force - f_n n| <= friction f_n
    holds twist  |n . moment| <= torsion f_n                     (soft finger; a point contact carries no moment)

Margins are positive inside the cone; divided by the normal force they compare contacts.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from jaxsoa.closed_chain.algebra import safe_norm
from jaxsoa.closed_chain.grasp import GraspSystem, Pose, check_pose
from jaxsoa.eager import compiled
from jaxsoa.spatial import ops


class FrictionReport(NamedTuple):
    """Per contact. Two-sided contacts (no normal given) hold by definition: infinite margins."""

    normal_force: Float[Array, " l"]  # pressing is positive; zero for two-sided contacts
    tangential_force: Float[Array, " l"]
    torsional_moment: Float[Array, " l"]  # size of the moment about the normal
    friction_margin: Float[Array, " l"]  # friction f_n - |f_t|
    torsion_margin: Float[Array, " l"]  # torsion f_n - |m_n|
    presses: Bool[Array, " l"]
    sticks: Bool[Array, " l"]
    resists_twist: Bool[Array, " l"]

    @property
    def holds(self) -> Bool[Array, " l"]:
        """All conditions of each contact together."""
        return self.presses & self.sticks & self.resists_twist


@compiled(through_door=False)
def friction_report(system: GraspSystem, contact_forces: Shaped[Array, "l 6"], object_pose: Pose) -> FrictionReport:
    """Check contact forces (l, 6), on the object in world axes, against the friction cones of the system's contacts.

    A contact without a normal is two-sided; one without a coefficient is checked only for what it states.

    >>> grips = [soa.closed_chain.Point(normal=(x, 0, 0), friction=0.5) for x in (1, -1)]
    >>> system, q, pose = soa.closed_chain.mechanisms.two_arm_grasp(grips)
    >>> forces = jnp.array([[0, 0, 0, 10.0, 0, 4.0], [0, 0, 0, -10.0, 0, 6.0]])  # on the object: N m, N
    >>> print(soa.closed_chain.friction_report(system, forces, pose).sticks)
    [ True False]
    """
    R, _ = check_pose(system, object_pose)
    forces = system.arms[0].robot.convert(contact_forces, "contact_forces")
    if forces.shape != (system.n_arms, 6):
        raise ValueError(f"contact_forces must have shape ({system.n_arms}, 6), got {forces.shape}.")
    infinite = jnp.asarray(jnp.inf, forces.dtype)
    rows = []
    for arm, wrench in zip(system.arms, forces, strict=True):
        contact = arm.contact
        if contact.normal is None:
            zero = jnp.zeros((), forces.dtype)
            rows.append((zero, zero, zero, infinite, infinite, jnp.asarray(True)))
            continue
        n = ops.matvec(R, contact.normal)
        moment, force = wrench[:3], wrench[3:]
        pressing = ops.dot(n, force)
        across = safe_norm(force - pressing * n)
        twist = jnp.abs(ops.dot(n, moment))
        friction = infinite if contact.friction is None else contact.friction * pressing - across
        torsion = infinite if contact.torsion is None else contact.torsion * pressing - twist
        rows.append((pressing, across, twist, friction, torsion, pressing >= 0))
    pressing, across, twist, friction, torsion, presses = (jnp.stack(column) for column in zip(*rows, strict=True))
    return FrictionReport(pressing, across, twist, friction, torsion, presses, friction >= 0, torsion >= 0)
