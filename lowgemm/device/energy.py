"""The energy that a GPU has taken, through NVML."""

from __future__ import annotations

import contextlib
from typing import Any

from lowgemm.device.gpu import Gpu

__all__ = ["EnergyMeter"]


class EnergyMeter:
    """Reads what a GPU takes. What NVML does not tell is None.

    Parameters
    ----------
    gpu
        The GPU; NVML knows it by its UUID.
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

    def read_joules(self) -> float | None:
        """The energy since the driver was loaded (Volta and later). It moves in steps."""
        return self._read("device_get_total_energy_consumption")

    def read_watts(self) -> float | None:
        """The power; from Ampere on (GA100 apart) the mean of the last second."""
        return self._read("device_get_power_usage")

    def _read(self, function: str) -> float | None:
        """NVML counts both in thousandths."""
        if self._nvml is None:
            return None
        with contextlib.suppress(Exception):
            return int(getattr(self._nvml, function)(self._handle)) / 1e3
        return None
