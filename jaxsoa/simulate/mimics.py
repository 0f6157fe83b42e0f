"""Mimic joints in time, whatever else a step has to satisfy.

Alone, under any integrator: accelerations A y'' and velocities A y' stay multiples of A through every linear
combination that an integrator makes, so the coupling holds to rounding. Beside loops, prescribed joints or contacts
mimics are constraints among those (`Coupling`), solved with them in one go; what the contact solver leaves of them is
removed after each step.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from jaxtyping import Array

from jaxsoa.closed_chain._coupled import coupled_accelerations, coupled_momentum, coupled_velocity
from jaxsoa.closed_chain.constraints import mimic_couplings
from jaxsoa.closed_chain.loops import check_loops
from jaxsoa.model.mimics import follow_mimics
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.integrators import Integrator, State, check_contact, find_integrator
from jaxsoa.simulate.variational import variational_step


class Coupled(NamedTuple):
    """What a step is made of when mimic joints follow in it."""

    integrator: Any
    loops: Any
    contact: Any


def with_mimics(robot: Multibody, integrator: Any, loops: Any, prescribed: Any, contact: Any) -> Coupled:
    """The integrator, the loops or the scene, whichever it is that makes the mimic joints of a step follow."""
    if contact is not None:
        check_contact(contact, integrator)
        return Coupled(integrator, loops, CoupledContact(contact))
    if bool(loops) or prescribed is not None:
        return Coupled(integrator, (*check_loops(robot, loops), *mimic_couplings(robot)), None)
    return Coupled(coupled_integrator(integrator), loops, None)


@cache
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
        after = self.stepped(robot, q, v, tau, dt, f_ext, loops, prescribed)
        return after.q, after.v

    def stepped(self, robot: Multibody, q, v, tau, dt, f_ext=None, loops=(), prescribed=None) -> Any:
        """As `contact.Scene.stepped`."""
        q, v = follow_mimics(robot, q, v)
        together = (*loops, *mimic_couplings(robot))
        after = self.scene.stepped(robot, q, v, tau, dt, f_ext, together, prescribed)
        q, v = follow_mimics(robot, after.q, after.v)
        return after._replace(q=q, v=v)

    def warn_unsolved(self, residual: Array, stacklevel: int = 4) -> None:
        """As `contact.Scene.warn_unsolved`."""
        self.scene.warn_unsolved(residual, stacklevel + 1)
