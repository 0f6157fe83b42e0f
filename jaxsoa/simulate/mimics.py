"""Mimic joints in time, whatever else a step has to satisfy.

Alone, under any integrator: accelerations A y'' and velocities A y' stay multiples of A through every linear
combination that an integrator makes, so the coupling holds to rounding. Beside loops, prescribed joints or contacts
mimics are constraints among those (`Coupling`), solved with them in one go; what the contact solver leaves of them is
removed after each step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Array

from jaxsoa.closed_chain._coupled import coupled_accelerations, coupled_momentum, coupled_velocity
from jaxsoa.closed_chain.constraints import mimic_couplings
from jaxsoa.model.mimics import follow_mimics
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.integrators import Integrator, State, find_integrator
from jaxsoa.simulate.variational import variational_step


def coupled_integrator(integrator: str | Integrator) -> Integrator:
    """The integrator with mimic joints coupled to their targets; it starts from where the targets put them."""
    if integrator == "variational_euler":
        return _coupled_variational_euler
    method = find_integrator(integrator)

    def advance(robot: Multibody, acceleration, q, v, dt) -> State:
        q, v = follow_mimics(robot, q, v)
        return State(*method(robot, lambda q, v: coupled_accelerations(robot, q, acceleration(q, v)), q, v, dt))

    return advance


def _coupled_variational_euler(robot: Multibody, acceleration, q, v, dt) -> State:
    """The variational step in the momenta of the independent joints."""
    q, v = follow_mimics(robot, q, v)

    def coupled(q, v):
        return coupled_accelerations(robot, q, acceleration(q, v))

    return State(*variational_step(robot, coupled, q, v, dt, coupled_momentum, coupled_velocity))


class CoupledContact(NamedTuple):
    """A contact scene whose robot's mimic joints follow: the couplings are solved for together with the contacts."""

    scene: Any

    def advance(self, robot: Multibody, q, v, tau, dt, f_ext=None, loops=(), prescribed=None) -> tuple[Array, Array]:
        """As `contact.Scene.advance`."""
        q, v = follow_mimics(robot, q, v)
        together = (*loops, *mimic_couplings(robot))
        after = self.scene.advance(robot, q, v, tau, dt, f_ext, together, prescribed)
        return follow_mimics(robot, *after)
