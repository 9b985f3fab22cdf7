"""What releases of NVRTC changed: a table a loop, and plain data."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lowgemm.studies.drift import Drift
from lowgemm.view.columns import WHOLE
from lowgemm.view.tracks import kernel_track_data, kernel_track_parts

__all__ = ["drift_data", "drift_view"]


def drift_view(drift: Drift, width: int = WHOLE) -> RenderableType:
    """A table of each kernel and loop in which releases differ; a line for those that do not.

    Parameters
    ----------
    drift
        The record.
    width
        Characters a line.
    """
    versions = drift.nvrtc_versions
    parts: list[RenderableType] = []
    for kernel in drift.kernels:
        title = Text.assemble((kernel.kernel, "bold cyan"), f"  {kernel.archs[0]}")
        if kernel.changed:
            parts += [title, *kernel_track_parts(kernel, "NVRTC", versions, width), Text()]
        else:
            parts += [Text.assemble(title, f": the same in NVRTC {', '.join(versions)}"), Text()]
    return Group(*parts)


def drift_data(drift: Drift) -> dict[str, Any]:
    """All figures as plain data, changed or not."""
    return {
        "target": drift.target,
        "nvrtc": list(drift.nvrtc_versions),
        "kernels": [{**kernel_track_data(k), "arch": k.archs[0]} for k in drift.kernels],
    }
