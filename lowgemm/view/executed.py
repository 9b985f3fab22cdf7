"""What a kernel executed: tables, and the worst access to shared memory as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lowgemm.binary.instruction import Instruction
from lowgemm.emulator import ExecutedTotals
from lowgemm.studies.execution import ExecutedLoop, Execution
from lowgemm.view.columns import WHOLE, Column, counted, fitted_table, markdown_table

__all__ = ["executed_data", "executed_markdown", "executed_view"]

_NONE = "–"
_LEGEND = (
    "executed: instructions of all warps; threads: average of an instruction; wavefronts: passes\n"
    "through shared memory; sectors: 32-byte pieces of global memory; shared/ideal and\n"
    "global/ideal: wavefronts and sectors over the fewest possible"
)


@dataclass(frozen=True, slots=True)
class _Access:
    """Instructions of one kind, made of one source line, that accessed memory."""

    instructions: tuple[Instruction, ...]
    executed: ExecutedTotals

    @property
    def name(self) -> str:
        """How many of which operation."""
        count = len(self.instructions)
        return (
            f"{count} x {self.instructions[0].mnemonic}"
            if count > 1
            else self.instructions[0].mnemonic
        )


def _grouped(value: int) -> str:
    return f"{value:,}" if value else _NONE


def _excess(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"


def _threads(executed: ExecutedTotals) -> str:
    if not executed.instructions:
        return _NONE
    return f"{executed.threads / executed.instructions:.1f}"


def _loop_name(item: ExecutedLoop) -> str:
    if item.loop is None:
        return "outside of loops"
    hot = " hot" if item.is_hot else ""
    return f"{'  ' * (item.loop.depth - 1)}{item.loop.start:#06x}-{item.loop.end:#06x}{hot}"


def _trips(item: ExecutedLoop) -> str:
    return f"{item.trips_per_warp:,.1f}".removesuffix(".0") if item.loop else _NONE


def _loop_columns(total: int) -> list[Column[ExecutedLoop]]:
    def share(item: ExecutedLoop) -> str:
        return f"{100 * item.executed.instructions / total:.1f} %" if total else _NONE

    return [
        Column("loop", _loop_name, justify="left"),
        Column("instr.", lambda item: str(item.loop.instructions) if item.loop else _NONE, rank=5),
        Column("trips", _trips, rank=3),
        Column("executed", lambda item: _grouped(item.executed.instructions)),
        Column("share", share, rank=1),
        Column("FFMA", lambda item: f"{100 * item.executed.ffma_share:.1f} %", rank=2),
        Column("threads", lambda item: _threads(item.executed), rank=4),
        Column("wavefronts", lambda item: _grouped(item.executed.shared_wavefronts), rank=2),
        Column("shared/ideal", lambda item: _excess(item.executed.shared_excess)),
        Column("sectors", lambda item: _grouped(item.executed.global_sectors), rank=2),
        Column("global/ideal", lambda item: _excess(item.executed.global_excess)),
    ]


_ACCESS_COLUMNS: tuple[Column[_Access], ...] = (
    Column("line", lambda a: _line(a.instructions[0]), justify="left"),
    Column("access", lambda a: a.name, justify="left"),
    Column("from", lambda a: f"{a.instructions[0].address:#06x}", rank=5),
    Column("executed", lambda a: _grouped(a.executed.instructions)),
    Column("threads", lambda a: _threads(a.executed), rank=4),
    Column("wavefronts", lambda a: _grouped(a.executed.shared_wavefronts), rank=1),
    Column("shared/ideal", lambda a: _excess(a.executed.shared_excess)),
    Column("ways", lambda a: _ways(a.executed), rank=2),
    Column("sectors", lambda a: _grouped(a.executed.global_sectors), rank=1),
    Column("global/ideal", lambda a: _excess(a.executed.global_excess)),
)


def _ways(executed: ExecutedTotals) -> str:
    return str(executed.worst_conflict_ways) if executed.shared_wavefronts else _NONE


def _line(instruction: Instruction) -> str:
    if instruction.line is None:
        return _NONE
    return f"{instruction.line.file.rpartition('/')[2]}:{instruction.line.line}"


def _accesses(execution: Execution) -> list[_Access]:
    """What accessed memory, by source line and operation, in the order of the code."""
    groups: dict[tuple[str, str], list[Instruction]] = {}
    counts = execution.counts
    for item in execution.listing.instructions:
        index = item.instruction.address >> 4
        if counts.shared_wavefronts[index] or counts.global_sectors[index]:
            key = (_line(item.instruction), item.instruction.mnemonic)
            groups.setdefault(key, []).append(item.instruction)
    return [
        _Access(tuple(each), counts.totals([one.address >> 4 for one in each]))
        for each in groups.values()
    ]


def executed_view(executions: Sequence[Execution], width: int = WHOLE) -> RenderableType:
    """Tables of loops and of accesses, the worst access as a picture, and what was found wrong."""
    return Group(*(_view(each, width) for each in executions), Text(_LEGEND, style="dim"))


def _view(execution: Execution, width: int) -> RenderableType:
    head = Text.assemble(
        (execution.kernel, "bold cyan"), f"  {execution.arch}   {_summary(execution)}"
    )
    parts: list[RenderableType] = [
        head,
        fitted_table(
            _loop_columns(execution.executed.instructions),
            execution.loops,
            width,
            style=lambda item: "bold" if item.is_hot else "",
            empty=_NONE,
        ),
    ]
    accesses = _accesses(execution)
    if accesses:
        parts.append(fitted_table(_ACCESS_COLUMNS, accesses, width, empty=_NONE))
    worst = execution.counts.worst_access()
    if worst is not None:
        parts.append(Text(str(worst)))
    parts += [Text(str(finding), style="bold red") for finding in execution.findings]
    return Group(*parts, Text())


def _summary(execution: Execution) -> str:
    executed = execution.executed
    approximate = f", {execution.approximate:,} approximate (MUFU)" if execution.approximate else ""
    branches = executed.divergent_branches
    divergent = f", {counted(branches, 'divergent branch', 'divergent branches')}"
    return (
        f"{execution.launch}, {counted(execution.warps, 'warp')}: "
        f"{counted(executed.instructions, 'instruction')}, {100 * executed.ffma_share:.1f} % FFMA"
        f"{divergent if branches else ''}{approximate}, "
        f"{counted(len(execution.findings), 'finding')}"
    )


def executed_markdown(execution: Execution) -> str:
    """The loops, the accesses and the worst of them as Markdown."""
    columns = _loop_columns(execution.executed.instructions)
    lines = [f"`{execution.kernel}`, {execution.arch}, {_summary(execution)}.", ""]
    lines += [*markdown_table(columns, execution.loops), ""]
    accesses = _accesses(execution)
    if accesses:
        lines += [*markdown_table(_ACCESS_COLUMNS, accesses), ""]
    worst = execution.counts.worst_access()
    if worst is not None:
        lines += ["```", str(worst), "```", ""]
    lines += [f"* {finding}" for finding in execution.findings]
    return "\n".join(lines)


def executed_data(executions: Sequence[Execution]) -> list[dict[str, Any]]:
    """An object an instruction."""
    rows = []
    for each in executions:
        for item in each.listing.instructions:
            at = item.instruction.address
            executed = each.counts.totals([at >> 4])
            rows.append(
                {
                    "kernel": each.kernel,
                    "arch": each.arch,
                    "launch": each.launch,
                    "address": at,
                    "text": item.instruction.text or item.instruction.mnemonic,
                    "line": None if item.instruction.line is None else str(item.instruction.line),
                    "loop": item.loop,
                    **asdict(executed),
                }
            )
    return rows
