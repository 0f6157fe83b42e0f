"""Mimic joints in time: any integrator, with accelerations that keep the joints coupled.

Accelerations A y'' and velocities A y' stay multiples of A through every linear combination that an integrator makes,
so the coupling holds to rounding, without projection or drift.
"""

from __future__ import annotations

from jaxsoa.closed_chain._coupled import coupled_accelerations
from jaxsoa.model.mimics import follow_mimics
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.integrators import Integrator, State, find_integrator


def coupled_integrator(integrator: str | Integrator) -> Integrator:
    """The integrator with mimic joints coupled to their targets; it starts from where the targets put them."""
    method = find_integrator(integrator)

    def advance(robot: Multibody, acceleration, q, v, dt) -> State:
        q, v = follow_mimics(robot, q, v)
        return method(robot, lambda q, v: coupled_accelerations(robot, q, acceleration(q, v)), q, v, dt)

    return advance
