"""What the chips are: architectures, compute capabilities and their rules as pure functions."""

from lowgemm.hardware.architecture import Architecture
from lowgemm.hardware.capability import CAPABILITIES, ComputeCapability, capability
from lowgemm.hardware.occupancy import Occupancy, occupancy

__all__ = [
    "CAPABILITIES",
    "Architecture",
    "ComputeCapability",
    "Occupancy",
    "capability",
    "occupancy",
]
