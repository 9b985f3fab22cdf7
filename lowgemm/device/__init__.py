"""Run kernels on an NVIDIA GPU through the CUDA driver.

Importing this package loads neither the driver nor its bindings; :class:`Gpu` does.
"""

from __future__ import annotations

from lowgemm.device.driver import driver_version, gpu_available, gpu_count
from lowgemm.device.gpu import Gpu, GpuAttributes

__all__ = ["Gpu", "GpuAttributes", "driver_version", "gpu_available", "gpu_count"]
