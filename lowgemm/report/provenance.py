"""Where a run's numbers come from: what every kind of run has to say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lowgemm.device import Gpu, driver_version
from lowgemm.device.clock import SmClock

__all__ = ["run_facts"]


def run_facts(gpu: Gpu, command: str) -> dict[str, Any]:
    """Date, command, release, GPU and driver, by the names of the provenance records."""
    import lowgemm

    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": command,
        "lowgemm": lowgemm.__version__,
        "gpu": gpu.name,
        "compute_capability": "{}.{}".format(*gpu.capability),
        "multiprocessors": gpu.multiprocessors,
        "driver": SmClock(gpu).driver_release(),
        "driver_cuda": "{}.{}".format(*driver_version()),
    }
