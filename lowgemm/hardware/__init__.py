"""What the chips are: architectures, compute capabilities and their rules as pure functions."""

from lowgemm.hardware.architecture import Architecture
from lowgemm.hardware.capability import CAPABILITIES, ComputeCapability, capability
from lowgemm.hardware.gpus import (
    GPUS,
    GpuFigure,
    GpuRecord,
    figure,
    gpu_record,
    record_from_attributes,
    record_with_measurements,
)
from lowgemm.hardware.occupancy import Occupancy, occupancy, shared_bytes_for

__all__ = [
    "CAPABILITIES",
    "GPUS",
    "Architecture",
    "ComputeCapability",
    "GpuFigure",
    "GpuRecord",
    "Occupancy",
    "capability",
    "figure",
    "gpu_record",
    "occupancy",
    "record_from_attributes",
    "record_with_measurements",
    "shared_bytes_for",
]
