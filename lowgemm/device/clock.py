"""The SM clock of a GPU, through NVML."""

from __future__ import annotations

import contextlib
from typing import Any

from lowgemm.device.gpu import Gpu

__all__ = ["SmClock"]


class SmClock:
    """Reads the clock at which a GPU's SMs run. Where NVML is not there, each reading is None.

    Parameters
    ----------
    gpu
        The GPU; NVML knows it by its UUID, whatever CUDA_VISIBLE_DEVICES hides.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        # NVML is a library of its own and may be missing, or forbidden in a container.
        with contextlib.suppress(Exception):
            from cuda.bindings import nvml

            nvml.init_v2()
            self._handle = nvml.device_get_handle_by_uuid(gpu.uuid)
            self._nvml = nvml

    def read_mhz(self) -> int | None:
        """The clock now, in MHz, or None."""
        if self._nvml is None:
            return None
        with contextlib.suppress(Exception):
            return int(
                self._nvml.device_get_clock_info(self._handle, self._nvml.ClockType.CLOCK_SM)
            )
        return None

    def driver_release(self) -> str | None:
        """The driver's own version (``"580.159.04"``), or None."""
        if self._nvml is None:
            return None
        with contextlib.suppress(Exception):
            return str(self._nvml.system_get_driver_version())
        return None
