"""Functions of a CPU's library as a table per function: its loops, the hot one marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowgemm.analysis.host import HostLoop, HostReport

__all__ = ["host_view"]

_NONE = "–"
_COLUMNS = (
    "instr", "FMA", "loads", "broadcast", "stores", "prefetch", "bits", "vector regs",
    "accumulators", "tile", "k-steps", "loads/FMA",
)  # fmt: skip


def host_view(report: HostReport, about: str = "", most: int | None = 8) -> RenderableType:
    """A function's loops and the mix of its hot loop.

    Parameters
    ----------
    report
        The function.
    about
        A sentence on it, shown below its name.
    most
        How many loops to show, those with the most multiply-adds; None: all.
    """
    parts: list[RenderableType] = [Text(_title(report), style="bold"), Text(_origin(report))]
    if about:
        parts.append(Text(about))
    if not report.loops:
        return Group(*parts, Text("no loop"))
    shown = _shown(report, most)
    parts.append(_table(report, shown))
    if len(shown) < len(report.loops):
        parts.append(Text(f"{len(report.loops) - len(shown)} more loops: --all shows them"))
    if report.hot is not None:
        parts.append(Text(_mix(report.hot)))
    return Group(*parts)


def _title(report: HostReport) -> str:
    return f"{report.function} of {Path(report.library).name} ({report.machine})"


def _origin(report: HostReport) -> str:
    found = f"found as {report.identified_by}; {report.code_bytes} bytes, "
    text = f"{found}{report.instructions} instructions, {len(report.loops)} loops"
    return f"{text}; {report.unknown_bytes} bytes not decoded" if report.unknown_bytes else text


def _shown(report: HostReport, most: int | None) -> Sequence[HostLoop]:
    if most is None or len(report.loops) <= most:
        return report.loops
    ranked = sorted(report.loops, key=lambda i: (i.index != report.hot_loop, -i.fma_elements))
    return sorted(ranked[:most], key=lambda i: i.index)


def _table(report: HostReport, loops: Sequence[HostLoop]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("loop", style="cyan", no_wrap=True)
    table.add_column("depth", justify="right")
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for loop in loops:
        is_hot = loop.index == report.hot_loop
        name = f"{loop.start:#x}{' hot' if is_hot else ''}"
        table.add_row(name, str(loop.depth), *_cells(loop), style="bold" if is_hot else "")
    return table


def _cells(loop: HostLoop) -> tuple[str, ...]:
    tile, ratio = loop.tile, loop.loads_per_fma
    counts = (loop.instructions, loop.fmas, loop.loads, loop.broadcasts, loop.stores)
    return (
        *(str(count) for count in counts),
        str(loop.prefetches),
        str(loop.vector_bits or _NONE),
        str(loop.vector_registers),
        str(loop.accumulators),
        str(tile) if tile else _NONE,
        str(tile.k_steps) if tile else _NONE,
        _NONE if ratio is None else f"{ratio:.2f}",
    )


def _mix(loop: HostLoop) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in loop.mix.items())
    return f"hot loop: {counts}"
