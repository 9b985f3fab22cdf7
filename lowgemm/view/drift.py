"""What releases of NVRTC changed: a table a loop, and plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowgemm.studies.drift import Drift, DriftRow, KernelDrift, LoopDrift
from lowgemm.view.difference import figure_text

__all__ = ["drift_data", "drift_view"]

_NONE = "–"


def drift_view(drift: Drift) -> RenderableType:
    """A table of each kernel and loop in which releases differ; a line for those that do not."""
    parts: list[RenderableType] = []
    for kernel in drift.kernels:
        parts += _kernel_parts(kernel, drift.nvrtc_versions)
    return Group(*parts)


def _kernel_parts(kernel: KernelDrift, versions: Sequence[str]) -> list[RenderableType]:
    title = Text.assemble((kernel.kernel, "bold cyan"), f"  {kernel.arch}")
    if not kernel.changed:
        return [Text.assemble(title, f": the same in NVRTC {', '.join(versions)}"), Text()]
    rows = [row for row in kernel.rows if row.changed]
    parts: list[RenderableType] = [title, _table("kernel", rows, versions)]
    return [*parts, *(_loop_part(loop, versions) for loop in kernel.loops)]


def _loop_part(loop: LoopDrift, versions: Sequence[str]) -> RenderableType:
    addresses = " | ".join(
        _NONE if there is None else f"{there.start:#06x}-{there.end:#06x}" for there in loop.loops
    )
    name = f"{'hot loop' if loop.hot else 'loop'} {addresses}"
    if not loop.changed:
        return Text(f"{name}: the same\n")
    came_or_went = None in loop.loops
    return _table(name, [row for row in loop.rows if row.changed or came_or_went], versions)


def _table(title: str, rows: Sequence[DriftRow], versions: Sequence[str]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        header_style="bold",
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    for version in versions:
        table.add_column(f"NVRTC {version}", justify="right", no_wrap=True)
    for row in rows:
        texts = (_NONE if v is None else figure_text(row.name, v) for v in row.values)
        table.add_row(row.name, *texts)
    return table


def drift_data(drift: Drift) -> dict[str, Any]:
    """All figures as plain data, changed or not."""
    return {
        "target": drift.target,
        "nvrtc": list(drift.nvrtc_versions),
        "kernels": [_kernel_data(kernel) for kernel in drift.kernels],
    }


def _kernel_data(kernel: KernelDrift) -> dict[str, Any]:
    return {
        "kernel": kernel.kernel,
        "arch": kernel.arch,
        "changed": kernel.changed,
        "figures": _rows_data(kernel.rows),
        "loops": [
            {
                "hot": loop.hot,
                "places": [
                    None if there is None else {"start": there.start, "end": there.end}
                    for there in loop.loops
                ],
                "figures": _rows_data(loop.rows),
            }
            for loop in kernel.loops
        ],
    }


def _rows_data(rows: Sequence[DriftRow]) -> list[dict[str, Any]]:
    return [{**asdict(row), "changed": row.changed} for row in rows]
