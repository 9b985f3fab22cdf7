"""The energy that a GPU has taken, through NVML."""

from __future__ import annotations

from lowgemm.device.gpu import Gpu
from lowgemm.device.nvml import Nvml

__all__ = ["EnergyMeter"]


class EnergyMeter:
    """Reads what a GPU takes. What NVML does not tell is None.

    Parameters
    ----------
    gpu
        The GPU.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._nvml = Nvml(gpu)

    def read_joules(self) -> float | None:
        """The energy since the driver was loaded (Volta and later). It moves in steps."""
        return self._read("device_get_total_energy_consumption")

    def read_watts(self) -> float | None:
        """The power; from Ampere on (GA100 apart) the mean of the last second."""
        return self._read("device_get_power_usage")

    def _read(self, function: str) -> float | None:
        """NVML counts both in thousandths."""
        return self._nvml.ask(lambda nvml, gpu: int(getattr(nvml, function)(gpu)) / 1e3)
