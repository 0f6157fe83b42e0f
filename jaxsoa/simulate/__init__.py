"""Simulation: steps and rollouts. Small on purpose; replace them with your own where they do not fit."""

from jaxsoa.simulate.integrators import (
    INTEGRATORS as INTEGRATORS,
    State as State,
    step as step,
)
from jaxsoa.simulate.rollout import rollout as rollout
