"""Functions of a CPU's library as a table per function: its loops, the hot one marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from lowgemm.analysis.host import HostLoop, HostReport
from lowgemm.view.columns import WHOLE, Column, fitted_table

__all__ = ["host_view"]

_NONE = "–"


def host_view(
    report: HostReport, about: str = "", most: int | None = 8, width: int = WHOLE
) -> RenderableType:
    """A function's loops and the mix of its hot loop.

    Parameters
    ----------
    report
        The function.
    about
        A sentence on it, shown below its name.
    most
        How many loops to show, those with the most multiply-adds; None: all.
    width
        Characters a line; columns that it has no room for are told below the table.
    """
    parts: list[RenderableType] = [Text(_title(report), style="bold"), Text(_origin(report))]
    if about:
        parts.append(Text(about))
    if not report.loops:
        return Group(*parts, Text("no loop"))
    shown = _shown(report, most)
    parts.append(_table(report, shown, width))
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


def _columns(report: HostReport) -> list[Column[HostLoop]]:
    """The figures of a loop, with what is left out first where there is little room."""
    return [
        Column("loop", lambda i: _loop_name(report, i), justify="left", style="cyan"),
        Column("depth", lambda i: str(i.depth), rank=6),
        Column("instr", lambda i: str(i.instructions)),
        Column("FMA", lambda i: str(i.fmas)),
        Column("loads", lambda i: str(i.loads), rank=1),
        Column("broadcast", lambda i: str(i.broadcasts), rank=4),
        Column("stores", lambda i: str(i.stores), rank=5),
        Column("prefetch", lambda i: str(i.prefetches), rank=7),
        Column("bits", lambda i: str(i.vector_bits or _NONE), rank=2),
        Column("vector regs", lambda i: str(i.vector_registers), rank=9),
        Column("accumulators", lambda i: str(i.accumulators), rank=8),
        Column("tile", lambda i: str(i.tile or _NONE), rank=1),
        Column("k-steps", lambda i: str(i.tile.k_steps) if i.tile else _NONE, rank=3),
        Column("loads/FMA", _loads_per_fma, rank=10),
    ]


def _loop_name(report: HostReport, loop: HostLoop) -> str:
    return f"{loop.start:#x}{' hot' if loop.index == report.hot_loop else ''}"


def _loads_per_fma(loop: HostLoop) -> str:
    ratio = loop.loads_per_fma
    return _NONE if ratio is None else f"{ratio:.2f}"


def _table(report: HostReport, loops: Sequence[HostLoop], width: int) -> RenderableType:
    return fitted_table(
        _columns(report),
        loops,
        width,
        style=lambda loop: "bold" if loop.index == report.hot_loop else "",
        empty=_NONE,
    )


def _mix(loop: HostLoop) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in loop.mix.items())
    return f"hot loop: {counts}"
