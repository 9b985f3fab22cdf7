"""PTX reports: tables, Markdown, plain data, and a kernel's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lowgemm.analysis.ptx import PtxLoop, PtxReport
from lowgemm.binary.ptx_code import PtxFunction
from lowgemm.view.columns import WHOLE, Column, fitted_table, markdown_table

__all__ = ["ptx_data", "ptx_listing", "ptx_markdown", "ptx_view"]

_NONE = "–"
# Columns of a loop's table, in the order of the data's way, with what is left out first where there
# is little room; each counts by what follows its name. One that no loop fills is left out, except
# fma's.
_GROUPS = {
    "ld.global": 3, "cp.async": 5, "st.shared": 6, "ld.shared": 2, "fma": 0, "bar": 8,
    "ld.local": 2, "st.local": 2, "st.global": 4,
}  # fmt: skip
# Matrix operations, whose names say more than fits into a cell: they are only counted there.
_MATRIX = {"ldmatrix": 3, "wmma.load": 3, "wmma.mma": 1, "mma": 1}


def ptx_view(reports: Sequence[PtxReport], width: int = WHOLE) -> RenderableType:
    """A table of loops per kernel and architecture, with the kernel's own line above it.

    Parameters
    ----------
    reports
        The kernels.
    width
        Characters a line; columns that it has no room for are told below a table.
    """
    return Group(*(_kernel_view(report, width) for report in reports))


def _kernel_view(report: PtxReport, width: int) -> RenderableType:
    head = Text.assemble((report.kernel, "bold cyan"), f"  {report.arch}   {_resources(report)}")
    parts: list[RenderableType] = [head, Text(f"  all: {_mix(report.mix)}")]
    parts.append(_loop_table(report, width) if report.loops else Text("  no loop"))
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
    return ", ".join([*shown, f"{rest} more"] if rest else shown)


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
    if group in _MATRIX:
        return str(sum(found.values()) or _NONE)
    return ", ".join(f"{count} x {kind}" for kind, count in found.items()) or _NONE


def _groups(report: PtxReport) -> tuple[str, ...]:
    def occurs(group: str) -> bool:
        return any(_grouped(loop.mix, group) for loop in report.loops)

    return tuple(group for group in (*_GROUPS, *_MATRIX) if group == "fma" or occurs(group))


def _columns(report: PtxReport) -> list[Column[PtxLoop]]:
    groups = _groups(report)
    return [
        Column("loop (PTX lines)", lambda loop: _loop_name(report, loop), justify="left"),
        Column("instr.", lambda loop: str(loop.instructions)),
        *(_group_column(group) for group in groups),
        Column("others", lambda loop: str(_count_others(loop, groups)), rank=7, told=False),
        Column("fma share", lambda loop: f"{100 * loop.fma_share:.1f} %", rank=1),
    ]


def _group_column(group: str) -> Column[PtxLoop]:
    return Column(group, lambda loop: _cell(loop.mix, group), rank=(_GROUPS | _MATRIX)[group])


def _loop_name(report: PtxReport, loop: PtxLoop) -> str:
    mark = " hot" if loop.index == report.hot_loop else ""
    return f"{'  ' * (loop.depth - 1)}{loop.start_line}-{loop.end_line}{mark}"


def _others(loop: PtxLoop, groups: Sequence[str]) -> dict[str, int]:
    """What has no column."""
    shown = {f"{group}.{kind}" for group in groups for kind in _grouped(loop.mix, group)}
    return {name: count for name, count in loop.mix.items() if name not in shown}


def _count_others(loop: PtxLoop, groups: Sequence[str]) -> int:
    return sum(_others(loop, groups).values())


def _told_others(report: PtxReport, loop: PtxLoop) -> str:
    """What has no column, and the matrix operations under their full names."""
    groups = _groups(report)
    others = _others(loop, groups)
    matrix = {f"{g}.{kind}": n for g in _MATRIX for kind, n in _grouped(loop.mix, g).items()}
    parts = [
        f"{_count_others(loop, groups)} others: {_mix(others, 10)}" if others else "",
        f"matrix: {_mix(matrix)}" if matrix else "",
    ]
    return "; ".join(filter(None, parts))


def _loop_table(report: PtxReport, width: int) -> RenderableType:
    return fitted_table(
        _columns(report),
        report.loops,
        width,
        style=lambda loop: "bold" if loop.index == report.hot_loop else "",
        remark=lambda loop: _told_others(report, loop),
        empty=_NONE,
    )


def ptx_markdown(reports: Sequence[PtxReport]) -> str:
    """The same as Markdown."""
    lines = []
    for report in reports:
        lines += [f"### `{report.kernel}`, {report.arch}", "", _resources(report) + ".", ""]
        if report.loops:
            lines += [*markdown_table(_columns(report), report.loops), ""]
            lines += [
                f"* {_loop_name(report, loop).strip()}: {told}"
                for loop in report.loops
                if (told := _told_others(report, loop))
            ]
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
