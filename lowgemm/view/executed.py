"""What a kernel executed: tables, and the worst access to shared memory as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lowgemm.binary.instruction import Instruction
from lowgemm.emulator import ExecutedTotals, WorstAccess
from lowgemm.hardware.shared_memory import BANK_BYTES, BANKS
from lowgemm.studies.execution import ExecutedLoop, Execution
from lowgemm.view.columns import WHOLE, Column, fitted_table, markdown_table

__all__ = ["access_picture", "executed_data", "executed_markdown", "executed_view"]

_NONE = "–"
_LEGEND = (
    "executed: instructions of all warps; threads: average of an instruction; wavefronts: passes\n"
    "through shared memory; sectors: 32-byte pieces of global memory; / ideal: the fewest possible"
)
#: A group has at most 32 distinct words in a bank.
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEF"


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


def _loop_columns(total: int) -> list[Column[ExecutedLoop]]:
    def share(item: ExecutedLoop) -> str:
        return f"{100 * item.executed.instructions / total:.1f} %" if total else _NONE

    return [
        Column("loop", _loop_name, justify="left"),
        Column("instr.", lambda item: str(item.loop.instructions) if item.loop else _NONE, rank=5),
        Column("trips", lambda item: f"{item.trips_per_warp:g}" if item.loop else _NONE, rank=3),
        Column("executed", lambda item: _grouped(item.executed.instructions)),
        Column("share", share, rank=1),
        Column("FFMA", lambda item: f"{100 * item.executed.ffma_share:.1f} %", rank=2),
        Column("threads", lambda item: _threads(item.executed), rank=4),
        Column("wavefronts", lambda item: _grouped(item.executed.shared_wavefronts), rank=2),
        Column("/ ideal", lambda item: _excess(item.executed.shared_excess)),
        Column("sectors", lambda item: _grouped(item.executed.global_sectors), rank=2),
        Column("/ ideal ", lambda item: _excess(item.executed.global_excess)),
    ]


_ACCESS_COLUMNS: tuple[Column[_Access], ...] = (
    Column("line", lambda a: _line(a.instructions[0]), justify="left"),
    Column("access", lambda a: a.name, justify="left"),
    Column("from", lambda a: f"{a.instructions[0].address:#06x}", rank=5),
    Column("executed", lambda a: _grouped(a.executed.instructions)),
    Column("threads", lambda a: _threads(a.executed), rank=4),
    Column("wavefronts", lambda a: _grouped(a.executed.shared_wavefronts), rank=1),
    Column("/ ideal", lambda a: _excess(a.executed.shared_excess)),
    Column("ways", lambda a: _ways(a.executed), rank=2),
    Column("sectors", lambda a: _grouped(a.executed.global_sectors), rank=1),
    Column("/ ideal ", lambda a: _excess(a.executed.global_excess)),
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


def _worst(execution: Execution) -> WorstAccess | None:
    """The access that cost most passes beyond the fewest possible, over all that were executed."""
    counts = execution.counts

    def lost(access: WorstAccess) -> int:
        index = access.index
        return int(counts.shared_wavefronts[index] - counts.ideal_shared_wavefronts[index])

    conflicts = [access for access in counts.worst.values() if lost(access) > 0]
    return max(conflicts, key=lost, default=None)


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
    worst = _worst(execution)
    if worst is not None:
        parts.append(Text(access_picture(worst, _described(execution, worst))))
    parts += [Text(str(finding), style="bold red") for finding in execution.findings]
    return Group(*parts, Text())


def _described(execution: Execution, access: WorstAccess) -> str:
    instruction = execution.listing.instructions[access.index].instruction
    return f"{instruction.address:#06x} {instruction.text or instruction.mnemonic}"


def _summary(execution: Execution) -> str:
    executed = execution.executed
    approximate = f", {execution.approximate:,} approximate (MUFU)" if execution.approximate else ""
    divergent = (
        f", {executed.divergent_branches:,} divergent branches"
        if executed.divergent_branches
        else ""
    )
    found = f", {len(execution.findings)} findings" if execution.findings else ", no finding"
    return (
        f"{execution.launch}, {execution.warps:,} warps: {executed.instructions:,} instructions, "
        f"{100 * executed.ffma_share:.1f} % FFMA{divergent}{approximate}{found}"
    )


def access_picture(access: WorstAccess, what: str) -> str:
    """Lanes against banks: which words a warp asked each bank for.

    A letter stands for a word: within a bank the first is ``a``, the next distinct one ``b``. Lanes
    of one group go through together, as many times as its fullest bank has letters.
    """
    group = min(BANKS, BANKS * BANK_BYTES // max(access.width_bytes, BANK_BYTES))
    lines = [
        f"{what}: {access.wavefronts} wavefronts, {access.ways} words in one bank",
        "lane  " + "".join(f"{bank:<8}" for bank in range(0, BANKS, 8)) + " bank",
    ]
    for first in range(0, BANKS, group):
        letters: list[dict[int, str]] = [{} for _ in range(BANKS)]
        for lane in range(first, first + group):
            lines.append(f"{lane:>4}  {_lane(access, lane, letters)}")
        depths = [len(bank) for bank in letters]
        lines.append(f"words {''.join(_digit(depth) for depth in depths)}  at most {max(depths)}")
    return "\n".join(line.rstrip() for line in lines)


def _digit(depth: int) -> str:
    if depth > 9:
        return "#"
    return str(depth) if depth else " "


def _lane(access: WorstAccess, lane: int, letters: list[dict[int, str]]) -> str:
    cells = ["."] * BANKS
    offset = access.offsets[lane]
    if offset < 0:
        return "".join(cells)
    words = range(offset // BANK_BYTES, -(-(offset + access.width_bytes) // BANK_BYTES))
    for word in words:
        known = letters[word % BANKS]
        letter = known.setdefault(word, _LETTERS[len(known)])
        cells[word % BANKS] = letter
    return "".join(cells)


def executed_markdown(execution: Execution) -> str:
    """The loops, the accesses and the worst of them as Markdown."""
    columns = _loop_columns(execution.executed.instructions)
    lines = [f"`{execution.kernel}`, {execution.arch}, {_summary(execution)}.", ""]
    lines += [*markdown_table(columns, execution.loops), ""]
    accesses = _accesses(execution)
    if accesses:
        lines += [*markdown_table(_ACCESS_COLUMNS, accesses), ""]
    worst = _worst(execution)
    if worst is not None:
        lines += ["```", access_picture(worst, _described(execution, worst)), "```", ""]
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
