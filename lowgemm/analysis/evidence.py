"""The instructions that a failed expectation speaks of, with their source lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lowgemm.analysis.expectations import HOT_LOOP, PathParts, read_path
from lowgemm.analysis.sass import SassReport
from lowgemm.binary.flow import sass_flow
from lowgemm.binary.instruction import Instruction, SourceLine
from lowgemm.binary.sass import SassKernel

__all__ = ["Evidence", "Place", "collect_evidence"]

_LOCAL = ("STL", "LDL")
# What the compiler takes where the instruction itself does not serve.
_INSTEAD = {
    "FFMA": ("FFMA2", "FMUL", "FADD"),
    "FFMA2": ("FFMA",),
    "LDG": ("LDGSTS", "LD"),
    "LDGSTS": ("LDG", "STS"),
    "LDS": ("LDSM", "LD"),
    "STG": ("REDG", "RED", "ST"),
    "STS": ("LDGSTS", "ST"),
    "REDG": ("RED", "ATOMG"),
    "RED": ("REDG", "ATOMG"),
}
_MOST_KINDS = 4


@dataclass(frozen=True, slots=True)
class Place:
    """A source line and the instructions made from it, of which the first is given as text.

    ``line`` is None where the line table names none; ``source`` is the line's own text, where it
    could be read.
    """

    line: SourceLine | None
    count: int
    address: int
    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Instructions of one kind, by the lines that they come from, most of them first.

    ``where`` says in which part of the kernel they stand.
    """

    kind: str
    where: str
    count: int
    places: tuple[Place, ...]


def collect_evidence(path: str, report: SassReport, kernel: SassKernel) -> tuple[Evidence, ...]:
    """Find what a reader wants to see when an expectation of this path fails.

    For an instruction: where it stands, in all its widths, and what stands in its place if it is
    gone. For spills the accesses to local memory, for registers where most of them are in use, for
    a share or a length the instructions that make it up.

    Parameters
    ----------
    path
        The expectation's path.
    report
        The kernel's report.
    kernel
        Its machine code, with nvdisasm's text.
    """
    parts = read_path(path)
    code, where = _scope(parts, report, kernel)
    if parts.is_mnemonic:
        return _of_mnemonic(parts, report, code, where)
    match parts.name:
        case "spill_store_bytes" | "spill_load_bytes" | "stack_bytes":
            local = [i for i in code if i.name in _LOCAL]
            return _grouped(local, f"{where}, {_local_accesses(report)}")
        case "registers" | "registers_live":
            return _most_live(code, where)
        case "unknown_opcodes":
            return _grouped([i for i in code if i.opcode is None], where)
        case "moves":
            return _grouped([i for i in code if i.is_move], where)
        case "conflict_cycles":
            return _grouped([i for i in code if i.name == "FFMA"], where)
        case "instructions" | "code_bytes" | "ffma_share":
            share = parts.name == "ffma_share"
            return _grouped([i for i in code if not (share and i.name == "FFMA")], where)
        case _:
            return ()


def _scope(
    parts: PathParts, report: SassReport, kernel: SassKernel
) -> tuple[list[Instruction], str]:
    """What does work in the loop that is meant; in the kernel, if there is no such loop."""
    flow, code = sass_flow(kernel), kernel.instructions
    index = report.hot_loop if parts.loop == HOT_LOOP else parts.loop
    if index is None or index >= len(flow.loops):
        blocks = [block.index for block in flow.blocks if flow.reachable(block.index)]
        where = "in the kernel"
    else:
        loop = flow.loops[index]
        blocks = sorted(loop.own_blocks)
        where = f"in the loop {loop.start:#06x}-{loop.end:#06x}"
    runs = (code[flow.blocks[b].first : flow.blocks[b].last + 1] for b in blocks)
    return [item for run in runs for item in run if not item.is_filler], where


def _local_accesses(report: SassReport) -> str:
    """What accesses to local memory may be: nothing in them tells a spill from an array."""
    if report.has_unspilled_local_accesses:
        return "for local arrays or in called functions: nothing is spilled"
    if report.spill_store_bytes is None:
        return "for spills, local arrays or in called functions"
    return "for spills, beside local arrays if there are any"


def _of_mnemonic(
    parts: PathParts, report: SassReport, code: Sequence[Instruction], where: str
) -> tuple[Evidence, ...]:
    if parts.name in _LOCAL:
        where = f"{where}, {_local_accesses(report)}"
    found = _grouped([i for i in code if i.name == parts.name], where)
    if found:
        return found
    return _grouped([i for i in code if i.name in _INSTEAD.get(parts.name, ())], where)


def _grouped(code: Iterable[Instruction], where: str) -> tuple[Evidence, ...]:
    """The instructions by mnemonic, the most frequent first."""
    kinds: dict[str, list[Instruction]] = {}
    for item in code:
        kinds.setdefault(item.mnemonic, []).append(item)
    frequent = sorted(kinds.items(), key=lambda kind: (-len(kind[1]), kind[0]))
    return tuple(_evidence(kind, where, items) for kind, items in frequent[:_MOST_KINDS])


def _evidence(kind: str, where: str, code: Sequence[Instruction]) -> Evidence:
    counts = Counter(item.line for item in code)
    first: dict[SourceLine | None, Instruction] = {}
    for item in code:
        first.setdefault(item.line, item)
    places = (
        Place(line, count, first[line].address, first[line].text or first[line].mnemonic)
        for line, count in counts.most_common()
    )
    return Evidence(kind, where, len(code), tuple(places))


def _most_live(code: Sequence[Instruction], where: str) -> tuple[Evidence, ...]:
    most = max((item.live_registers or 0 for item in code), default=0)
    if most == 0:
        return ()
    there = [item for item in code if item.live_registers == most]
    return (_evidence(f"{most} registers live", where, there),)
