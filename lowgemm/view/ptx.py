"""PTX reports: tables, Markdown, plain data, and a kernel's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowgemm.analysis.ptx import PtxLoop, PtxReport
from lowgemm.binary.ptx_code import PtxFunction

__all__ = ["ptx_data", "ptx_listing", "ptx_markdown", "ptx_view"]

_NONE = "–"
#: Columns of a loop's table, in the order of the data's way; each counts by what follows its name.
_GROUPS = ("ld.global", "cp.async", "st.shared", "ld.shared", "fma", "bar")
_HEADERS = ("loop (PTX lines)", "instr.", *_GROUPS, "others", "fma share")


def ptx_view(reports: Sequence[PtxReport]) -> RenderableType:
    """A table of loops per kernel and architecture, with the kernel's own line above it."""
    return Group(*(_kernel_view(report) for report in reports))


def _kernel_view(report: PtxReport) -> RenderableType:
    head = Text.assemble((report.kernel, "bold cyan"), f"  {report.arch}   {_resources(report)}")
    parts: list[RenderableType] = [head, Text(f"  all: {_mix(report.mix)}")]
    parts.append(_loop_table(report) if report.loops else Text("  no loop"))
    if report.irreducible:
        parts.append(Text("  a cycle with two entries is not among the loops", style="yellow"))
    return Group(*parts, Text())


def _resources(report: PtxReport) -> str:
    kind = "" if report.is_entry else "device function, "
    registers = ", ".join(f"{count} {name}" for name, count in report.registers.items())
    return (
        f"{kind}{report.instructions} instructions, {report.shared_bytes} B shared, "
        f"virtual registers: {registers or 'none'}"
    )


def _mix(mix: Mapping[str, int], most: int = 14) -> str:
    shown = [f"{name} {count}" for name, count in list(mix.items())[:most]]
    rest = sum(list(mix.values())[most:])
    return ", ".join([*shown, f"{rest} others"] if rest else shown)


def _grouped(mix: Mapping[str, int], group: str) -> dict[str, int]:
    """Counts of one group by width or type; of the asynchronous copies those that copy."""
    found = {
        name.removeprefix(f"{group}."): count
        for name, count in mix.items()
        if name.startswith(f"{group}.")
    }
    if group == "cp.async":
        return {width: count for width, count in found.items() if width.isdigit()}
    return found


def _cell(mix: Mapping[str, int], group: str) -> str:
    found = _grouped(mix, group)
    return ", ".join(f"{count} x {kind}" for kind, count in found.items()) or _NONE


def _loop_row(report: PtxReport, loop: PtxLoop) -> tuple[str, ...]:
    known = sum(sum(_grouped(loop.mix, group).values()) for group in _GROUPS)
    mark = " hot" if loop.index == report.hot_loop else ""
    return (
        f"{'  ' * (loop.depth - 1)}{loop.start_line}-{loop.end_line}{mark}",
        str(loop.instructions),
        *(_cell(loop.mix, group) for group in _GROUPS),
        str(loop.instructions - known),
        f"{100 * loop.fma_share:.1f} %",
    )


def _loop_table(report: PtxReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for header in _HEADERS:
        justify = "left" if header == _HEADERS[0] else "right"
        table.add_column(header, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for loop in report.loops:
        style = "bold" if loop.index == report.hot_loop else ""
        table.add_row(*_loop_row(report, loop), style=style)
    return table


def ptx_markdown(reports: Sequence[PtxReport]) -> str:
    """The same as Markdown."""
    lines = []
    for report in reports:
        lines += [f"### `{report.kernel}`, {report.arch}", "", _resources(report) + ".", ""]
        if report.loops:
            lines.append("| " + " | ".join(_HEADERS) + " |")
            lines.append("|---" + "|--:" * (len(_HEADERS) - 1) + "|")
            lines += [f"| {' | '.join(_loop_row(report, loop))} |" for loop in report.loops]
            lines.append("")
        lines += [f"All: {_mix(report.mix)}.", ""]
    return "\n".join(lines)


def ptx_data(reports: Sequence[PtxReport]) -> list[dict[str, Any]]:
    """The reports as plain data, an object a kernel and architecture."""
    return [asdict(report) for report in reports]


def ptx_listing(ptx: str, function: PtxFunction) -> str:
    """A kernel's or function's part of a PTX text, as it stands there."""
    lines = ptx.split("\n")[function.first_line - 1 : function.last_line]
    return "\n".join(lines) + "\n"
