"""What the chips are: architectures, compute capabilities and their rules as pure functions."""

from lowgemm.hardware.architecture import Architecture
from lowgemm.hardware.capability import CAPABILITIES, ComputeCapability, capability
from lowgemm.hardware.gpus import GPUS, GpuRecord, gpu_record, record_from_attributes
from lowgemm.hardware.occupancy import Occupancy, occupancy

__all__ = [
    "CAPABILITIES",
    "GPUS",
    "Architecture",
    "ComputeCapability",
    "GpuRecord",
    "Occupancy",
    "capability",
    "gpu_record",
    "occupancy",
    "record_from_attributes",
]
