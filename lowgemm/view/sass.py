"""Machine-code reports: tables, Markdown, plain data, and listings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowgemm.analysis import LoopReport, SassReport
from lowgemm.binary.sass import SassKernel

__all__ = ["sass_data", "sass_listing", "sass_markdown", "sass_view"]

_NONE = "–"
_BANK_NOTE = (
    "* modelled: cycles lost to register-bank conflicts per iteration (rule measured on sm_90)"
)
# Columns of a loop's table, those of a GEMM in the order of its data's way. One that no loop of the
# kernel fills is left out, except FFMA's.
_GEMM_GROUPS = ("LDG", "LDGSTS", "STS", "LDS", "FFMA", "BAR", "STG")
_OTHER_GROUPS = ("LDSM", "FFMA2", "DFMA", "HFMA2", "HMMA", "IMMA", "LDL", "STL")


def sass_view(reports: Sequence[SassReport]) -> RenderableType:
    """A table of loops per kernel and architecture, with the kernel's own line above it."""
    return Group(*(_kernel_view(report) for report in reports))


def _kernel_view(report: SassReport) -> RenderableType:
    head = Text.assemble(
        (f"{report.kernel}", "bold cyan"), f"  {report.arch}   {_resources(report)}"
    )
    parts: list[RenderableType] = [head, Text(f"  all: {_mix(report.mix)}")]
    if report.loops:
        parts.append(_loop_table(report))
    else:
        parts.append(Text("  no loop"))
    if report.unknown_opcodes:
        parts.append(Text(f"  unknown opcodes: {_mix(report.unknown_opcodes)}", style="yellow"))
    if report.external_calls:
        called = ", ".join(report.external_calls)
        parts.append(Text(f"  calls what is linked in later: {called}", style="yellow"))
    if report.irreducible:
        parts.append(Text("  a cycle with two entries is not among the loops", style="yellow"))
    return Group(*parts, Text())


def _resources(report: SassReport) -> str:
    live = f" ({report.registers_live} live)" if report.registers_live is not None else ""
    spills = (
        "spills unknown"
        if report.spill_store_bytes is None
        else f"spills {report.spill_store_bytes} + {report.spill_load_bytes} B"
    )
    stack = "stack unknown" if report.stack_bytes is None else f"{report.stack_bytes} B stack"
    return (
        f"{report.registers} registers{live}, {report.shared_bytes} B shared, "
        f"{stack}, {spills}, {report.instructions} instructions, "
        f"{report.code_bytes / 1024:.1f} KiB of code"
    )


def _mix(mix: Mapping[str, int], most: int = 14) -> str:
    shown = [f"{name} {count}" for name, count in list(mix.items())[:most]]
    rest = sum(list(mix.values())[most:])
    return ", ".join([*shown, f"{rest} others"] if rest else shown)


def _widths(loop: LoopReport, group: str) -> str:
    """The counts of one operation by width: ``32 x 128``."""
    found = {
        name.partition(".")[2]: count
        for name, count in loop.mix.items()
        if name.partition(".")[0] == group
    }
    if not found:
        return _NONE
    return ", ".join(
        f"{count} x {width}" if width else str(count) for width, count in found.items()
    )


def _groups(report: SassReport) -> tuple[str, ...]:
    """The operations that have a column of their own."""
    there = {name.partition(".")[0] for loop in report.loops for name in loop.mix}
    return tuple(g for g in (*_GEMM_GROUPS, *_OTHER_GROUPS) if g in there or g == "FFMA")


def _loop_row(report: SassReport, loop: LoopReport, groups: Sequence[str]) -> tuple[str, ...]:
    known = sum(c for name, c in loop.mix.items() if name.partition(".")[0] in groups)
    mark = " hot" if loop.index == report.hot_loop else ""
    return (
        f"{'  ' * (loop.depth - 1)}{loop.start:#06x}-{loop.end:#06x}{mark}",
        str(loop.instructions),
        *(_widths(loop, group) for group in groups),
        str(loop.instructions - known),
        f"{100 * loop.ffma_share:.1f} %",
        str(loop.conflict_cycles),
        _NONE if loop.registers_live is None else str(loop.registers_live),
    )


def _headers(groups: Sequence[str]) -> tuple[str, ...]:
    return ("loop", "instr.", *groups, "others", "FFMA share", "bank cycles*", "live")


def _loop_table(report: SassReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    groups = _groups(report)
    for header in _headers(groups):
        table.add_column(header, justify="left" if header == "loop" else "right", no_wrap=True)
    for loop in report.loops:
        style = "bold" if loop.index == report.hot_loop else ""
        table.add_row(*_loop_row(report, loop, groups), style=style)
    table.caption = _BANK_NOTE
    table.caption_justify = "left"
    return table


def sass_markdown(reports: Sequence[SassReport]) -> str:
    """The same as Markdown."""
    lines = []
    for report in reports:
        lines += [f"### `{report.kernel}`, {report.arch}", "", _resources(report) + ".", ""]
        lines += [*_markdown_loops(report), "", "All: " + _mix(report.mix) + ".", ""]
        if report.unknown_opcodes:
            lines += [f"Unknown opcodes: {_mix(report.unknown_opcodes)}.", ""]
        if report.irreducible:
            lines += ["A cycle with two entries is not among the loops.", ""]
    return "\n".join(lines)


def _markdown_loops(report: SassReport) -> list[str]:
    if not report.loops:
        return ["No loop."]
    groups = _groups(report)
    headers = _headers(groups)
    return [
        "| " + " | ".join(headers) + " |",
        "|---" + "|--:" * (len(headers) - 1) + "|",
        *("| " + " | ".join(_loop_row(report, loop, groups)) + " |" for loop in report.loops),
        "",
        _BANK_NOTE.replace("*", "\\*"),
    ]


def sass_data(reports: Sequence[SassReport]) -> list[dict[str, Any]]:
    """The reports as plain data, an object a kernel and architecture."""
    return [asdict(report) for report in reports]


def sass_listing(kernel: SassKernel, *, control: bool = False) -> Text:
    """A kernel's instructions, an address a line.

    Parameters
    ----------
    kernel
        Its machine code with nvdisasm's text.
    control
        Whether each line begins with the control word: wait mask, write and read scoreboard, stay
        or yield, stall, reuse.
    """
    text = Text(f"{kernel.name}  {kernel.arch}\n")
    line = None
    for instruction in kernel.instructions:
        if instruction.line is not None and instruction.line != line:
            line = instruction.line
            text.append(f"// {line}\n", style="dim")
        if control:
            text.append(f"{instruction.control}  ", style="magenta")
        text.append(f"{instruction.address:#06x}  ", style="dim")
        text.append(f"{instruction.text or instruction.mnemonic}\n")
    return text
