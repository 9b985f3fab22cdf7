"""What running a kernel means: arrays, streams, launches and the checks that come before them.

Nothing here knows the CUDA driver. :mod:`lowgemm.device` runs on a GPU; another implementation of
the same interface can interpret the machine code on the CPU.
"""

from __future__ import annotations

from lowgemm.runtime.arguments import PackedArguments, describe, pack
from lowgemm.runtime.interchange import ArrayView, ElementType, as_view, foreign_stream_handle
from lowgemm.runtime.interface import (
    Array,
    CubinSource,
    Device,
    Event,
    Kernel,
    Module,
    PreparedLaunch,
    Stream,
)
from lowgemm.runtime.launch import DeviceLimits, LaunchShape, check_launch
from lowgemm.runtime.tensor_map import TensorLayout, TensorMap

__all__ = [
    "Array",
    "ArrayView",
    "CubinSource",
    "Device",
    "DeviceLimits",
    "ElementType",
    "Event",
    "Kernel",
    "LaunchShape",
    "Module",
    "PackedArguments",
    "PreparedLaunch",
    "Stream",
    "TensorLayout",
    "TensorMap",
    "as_view",
    "check_launch",
    "describe",
    "foreign_stream_handle",
    "pack",
]
