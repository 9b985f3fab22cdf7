"""The SM clock of a GPU, through NVML."""

from __future__ import annotations

from lowgemm.device.gpu import Gpu
from lowgemm.device.nvml import Nvml

__all__ = ["SmClock"]


class SmClock:
    """Reads the clock at which a GPU's SMs run. Where NVML is not there, each reading is None.

    Parameters
    ----------
    gpu
        The GPU.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._nvml = Nvml(gpu)

    def read_mhz(self) -> int | None:
        """The clock now, in MHz, or None."""
        return self._nvml.ask(
            lambda nvml, gpu: int(nvml.device_get_clock_info(gpu, nvml.ClockType.CLOCK_SM))
        )

    def driver_release(self) -> str | None:
        """The driver's own version (``"580.159.04"``), or None."""
        return self._nvml.ask(lambda nvml, gpu: str(nvml.system_get_driver_version()))
