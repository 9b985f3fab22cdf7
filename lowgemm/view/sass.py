"""Machine-code reports: tables, Markdown, plain data, and listings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lowgemm.analysis import LoopReport, SassReport
from lowgemm.analysis.listing import KernelListing, ListedInstruction
from lowgemm.analysis.tracks import KernelTrack
from lowgemm.view.columns import WHOLE, Column, fitted_table, markdown_table
from lowgemm.view.difference import NAMED_MOVES
from lowgemm.view.tracks import kernel_track_parts

__all__ = [
    "compared_view",
    "listing_data",
    "sass_data",
    "sass_listing",
    "sass_markdown",
    "sass_view",
]

_NONE = "–"
_BANK_NOTE = (
    "* modelled: cycles lost to register-bank conflicts per iteration (rule measured on sm_90)"
)
_CONTROL_LEGEND = (
    "control word: scoreboards it waits for : W, that its result sets : R, that its reads\n"
    "set : S stay or Y yield : cycles to the warp's next instruction : operands kept (reuse)"
)
_LOOP_LEGEND = "| stands inside a loop, > in the hot loop; a loop ends before its second address"
# Columns of a loop's table, those of a GEMM in the order of its data's way, with what is left out
# first where there is little room. One that no loop of the kernel fills is left out, except FFMA's.
_GROUPS = {
    "LDG": 3, "LDGSTS": 5, "STS": 6, "LDS": 2, "FFMA": 0, "BAR": 8, "STG": 4, "LDSM": 2, "FFMA2": 0,
    "DFMA": 1, "HFMA2": 4, "HMMA": 1, "IMMA": 1, "LDL": 2, "STL": 2,
}  # fmt: skip


def sass_view(reports: Sequence[SassReport], width: int = WHOLE) -> RenderableType:
    """A table of loops per kernel and architecture, with the kernel's own line above it.

    Parameters
    ----------
    reports
        The kernels.
    width
        Characters a line; columns that it has no room for are told below a table.
    """
    return Group(*(_kernel_view(report, width) for report in reports))


def _kernel_view(report: SassReport, width: int) -> RenderableType:
    head = Text.assemble(
        (f"{report.kernel}", "bold cyan"), f"  {report.arch}   {_resources(report)}"
    )
    parts: list[RenderableType] = [head, Text(f"  all: {_mix(report.mix, report.move_mix)}")]
    if report.loops:
        parts += [_loop_table(report, width), *map(Text, _bank_notes(report))]
    else:
        parts.append(Text("  no loop"))
    parts += [Text(f"  {remark}", style="yellow") for remark in _remarks(report)]
    return Group(*parts, Text())


def _resources(report: SassReport) -> str:
    live = f" ({report.registers_live} live)" if report.registers_live is not None else ""
    spills = (
        "spills unknown"
        if report.spill_store_bytes is None
        else f"spills {report.spill_store_bytes} B stores + {report.spill_load_bytes} B loads"
    )
    stack = "stack unknown" if report.stack_bytes is None else f"{report.stack_bytes} B stack"
    moves = f" (of which moves {report.moves})" if report.moves else ""
    return (
        f"{report.registers} registers{live}, {report.shared_bytes} B shared, "
        f"{stack}, {spills}, {report.instructions} instructions{moves}, "
        f"{report.code_bytes / 1024:.1f} KiB of code"
    )


def _remarks(report: SassReport) -> Iterator[str]:
    if report.unknown_opcodes:
        unknown = _mix(report.unknown_opcodes)
        yield f"unknown opcodes, counted by nvdisasm's name, their operands not read: {unknown}"
    if report.external_calls:
        yield f"calls what is linked in later: {', '.join(report.external_calls)}"
    if report.registers_live is None:
        yield "live registers unknown: nvdisasm 13 counts none in cubins of NVRTC 12"
    if report.irreducible:
        yield "a cycle with two entries is not among the loops"
    if report.has_unspilled_local_accesses:
        yield "LDL and STL are no spills here: local arrays, or frames of called functions"


def _bank_notes(report: SassReport) -> list[str]:
    return [_BANK_NOTE] if any(loop.multiply_adds for loop in report.loops) else []


def _mix(mix: Mapping[str, int], moves: Mapping[str, int] | None = None, most: int = 14) -> str:
    """Counts by name, the moves among them in brackets."""
    shown = [f"{name} {count}{_moves(moves, name)}" for name, count in list(mix.items())[:most]]
    rest = sum(list(mix.values())[most:])
    return ", ".join([*shown, f"{rest} more"] if rest else shown)


def _moves(moves: Mapping[str, int] | None, name: str) -> str:
    count = (moves or {}).get(name)
    if not count or name in NAMED_MOVES:
        return ""
    return f" ({count} {'move' if count == 1 else 'moves'})"


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


def _columns(report: SassReport) -> list[Column[LoopReport]]:
    """The figures of a loop, and the operations that have a column of their own."""
    groups = _groups(report)
    has_banks = any(loop.multiply_adds for loop in report.loops)
    return [
        Column("loop", lambda loop: _loop_name(report, loop), justify="left"),
        Column("instr.", lambda loop: str(loop.instructions)),
        *(_group_column(group) for group in groups),
        Column("others", lambda loop: _number(_count_others(loop, groups)), rank=7, told=False),
        Column("FFMA share", lambda loop: f"{100 * loop.ffma_share:.1f} %", rank=1),
        *([Column("bank cycles*", _bank_cycles, rank=9)] if has_banks else []),
        Column("live", lambda loop: _number(loop.registers_live), rank=10),
        Column("moves", lambda loop: str(loop.moves or _NONE), rank=11),
    ]


def _groups(report: SassReport) -> tuple[str, ...]:
    """Those that occur; moves under the name of an operation are no such."""
    there = {
        name.partition(".")[0]
        for loop in report.loops
        for name, count in loop.mix.items()
        if count > loop.move_mix.get(name, 0)
    }
    return tuple(group for group in _GROUPS if group in there or group == "FFMA")


def _group_column(group: str) -> Column[LoopReport]:
    return Column(group, lambda loop: _widths(loop, group), rank=_GROUPS[group])


def _loop_name(report: SassReport, loop: LoopReport) -> str:
    mark = " hot" if loop.index == report.hot_loop else ""
    return f"{'  ' * (loop.depth - 1)}{loop.start:#06x}-{loop.end:#06x}{mark}"


def _number(value: int | None) -> str:
    return _NONE if value is None else str(value)


def _bank_cycles(loop: LoopReport) -> str:
    """Only FFMAs are modelled: without them there is nothing to say."""
    return str(loop.conflict_cycles) if loop.multiply_adds else _NONE


def _others(loop: LoopReport, groups: Sequence[str]) -> dict[str, int]:
    """What has no column."""
    return {name: n for name, n in loop.mix.items() if name.partition(".")[0] not in groups}


def _count_others(loop: LoopReport, groups: Sequence[str]) -> int:
    return sum(_others(loop, groups).values())


def _told_others(report: SassReport, loop: LoopReport) -> str:
    groups = _groups(report)
    told = _mix(_others(loop, groups), loop.move_mix, 10)
    return f"{_count_others(loop, groups)} others: {told}" if told else ""


def _loop_table(report: SassReport, width: int) -> RenderableType:
    return fitted_table(
        _columns(report),
        report.loops,
        width,
        style=lambda loop: "bold" if loop.index == report.hot_loop else "",
        remark=lambda loop: _told_others(report, loop),
        empty=_NONE,
    )


def compared_view(kernels: Sequence[KernelTrack], width: int = WHOLE) -> RenderableType:
    """A table a kernel and loop, an architecture a column.

    Parameters
    ----------
    kernels
        The kernels.
    width
        Characters a line.
    """
    parts: list[RenderableType] = []
    for kernel in kernels:
        tables = kernel_track_parts(kernel, "", kernel.archs, width, every=True)
        parts += [Text(kernel.kernel, style="bold cyan"), *tables, Text()]
    return Group(*parts)


def sass_markdown(reports: Sequence[SassReport]) -> str:
    """The same as Markdown."""
    lines = []
    for report in reports:
        lines += [f"### `{report.kernel}`, {report.arch}", "", _resources(report) + ".", ""]
        lines += [*_markdown_loops(report), "", f"All: {_mix(report.mix, report.move_mix)}.", ""]
        for remark in _remarks(report):
            lines += [f"{remark[0].upper()}{remark[1:]}.", ""]
    return "\n".join(lines)


def _markdown_loops(report: SassReport) -> list[str]:
    if not report.loops:
        return ["No loop."]
    columns = _columns(report)
    others = [
        f"* {_loop_name(report, loop).strip()}: {told}"
        for loop in report.loops
        if (told := _told_others(report, loop))
    ]
    return [
        *markdown_table(columns, report.loops),
        "",
        *others,
        *([""] if others else []),
        *(note.replace("*", "\\*") for note in _bank_notes(report)),
    ]


def sass_data(reports: Sequence[SassReport]) -> list[dict[str, Any]]:
    """The reports as plain data, an object a kernel and architecture."""
    return [asdict(report) for report in reports]


def sass_listing(listing: KernelListing, *, control: bool = False) -> Text:
    """A kernel's instructions, an address a line, without the padding behind its end.

    Parameters
    ----------
    listing
        The kernel.
    control
        Whether each line begins with the control word: wait mask, write and read scoreboard, stay
        or yield, stall, reuse.
    """
    text = Text(no_wrap=True, overflow="ignore")
    text.append(listing.kernel, style="bold cyan").append(f"  {listing.arch}\n")
    legend = [_CONTROL_LEGEND] if control else []
    legend += [_LOOP_LEGEND] if listing.loops else ["this kernel has no loop"]
    text.append("".join(f"{line}\n" for line in legend), style="dim")
    margin = max((loop.depth for loop in listing.loops), default=0)
    before: ListedInstruction | None = None
    for item in listing.instructions:
        if not item.is_padding:
            _append_heads(text, listing, item, before)
            _append_instruction(text, item, margin, control)
            before = item
    return text


def _append_heads(
    text: Text, listing: KernelListing, item: ListedInstruction, before: ListedInstruction | None
) -> None:
    """What stands above an instruction where it changes: its loop, its source line, its label."""
    if item.loop is not None and (before is None or before.loop != item.loop):
        loop = listing.loops[item.loop]
        hot = ", hot" if item.is_hot else ""
        begins = "" if item.instruction.address == loop.start else ", continued"
        where = f"{loop.start:#06x}-{loop.end:#06x}"
        about = f"loop {loop.index}, {where}{hot}{begins}: {loop.instructions} instructions"
        text.append(f"// {about}\n", style="bold")
    line = item.instruction.line
    if line is not None and (before is None or before.instruction.line != line):
        source = f"   {item.source.strip()}" if item.source else ""
        text.append(f"// {line}{source}\n", style="dim")
    if item.label:
        text.append(f"{item.label}:\n", style="bold")


def _append_instruction(text: Text, item: ListedInstruction, margin: int, control: bool) -> None:
    bars = "|" * item.depth
    text.append(f"{bars[:-1]}>" if item.is_hot else bars, style="green" if item.is_hot else "dim")
    text.append(" " * (margin - item.depth + 1))
    if control:
        text.append(f"{item.instruction.control}  ", style="magenta")
    text.append(f"{item.instruction.address:#06x}  ", style="dim")
    text.append(f"{item.instruction.text or item.instruction.mnemonic}\n")


def listing_data(listing: KernelListing) -> list[dict[str, Any]]:
    """The instructions as plain data, an object an instruction, padding included."""
    return [
        {
            "kernel": listing.kernel,
            "arch": listing.arch,
            "address": item.instruction.address,
            "text": item.instruction.text or item.instruction.mnemonic,
            "control": str(item.instruction.control),
            "line": None if item.instruction.line is None else str(item.instruction.line),
            "label": item.label or None,
            "loop": item.loop,
            "hot": item.is_hot,
            "source": item.source,
            "padding": item.is_padding,
        }
        for item in listing.instructions
    ]
