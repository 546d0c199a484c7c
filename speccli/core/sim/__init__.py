"""A simulator of vLLM engines: their real metric families, their laws, no model and no GPU.

Everything it serves says that it is simulated. Figures of cost are illustrative.
`build_fleet` makes engines, `SimServer` (in `speccli.core.sim.server`) puts them on the network.
"""

from speccli.core.sim.base import Change
from speccli.core.sim.config import Acceptance, SimConfig, StepCost, Traffic
from speccli.core.sim.engine import SimEngine
from speccli.core.sim.faults import Fault
from speccli.core.sim.fleet import Fleet, Replica, ScaledClock, build_fleet
from speccli.core.sim.fluid import FluidEngine
from speccli.core.sim.scenario import Event, Scenario

__all__ = [
    "Acceptance",
    "Change",
    "Event",
    "Fault",
    "Fleet",
    "FluidEngine",
    "Replica",
    "ScaledClock",
    "Scenario",
    "SimConfig",
    "SimEngine",
    "StepCost",
    "Traffic",
    "build_fleet",
]
