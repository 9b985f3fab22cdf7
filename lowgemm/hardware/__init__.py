"""What the chips are: architectures, compute capabilities and their rules as pure functions."""

from lowgemm.hardware.architecture import Architecture
from lowgemm.hardware.capability import CAPABILITIES, ComputeCapability, capability
from lowgemm.hardware.gpus import (
    GPUS,
    GpuRecord,
    gpu_record,
    nearest_with,
    record_from_attributes,
    record_with_measurements,
)
from lowgemm.hardware.occupancy import Occupancy, occupancy, shared_bytes_for

__all__ = [
    "CAPABILITIES",
    "GPUS",
    "Architecture",
    "ComputeCapability",
    "GpuRecord",
    "Occupancy",
    "capability",
    "gpu_record",
    "nearest_with",
    "occupancy",
    "record_from_attributes",
    "record_with_measurements",
    "shared_bytes_for",
]
