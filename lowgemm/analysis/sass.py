"""What a kernel's machine code consists of: per kernel, and above all per loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lowgemm.analysis.banks import conflict_cycles
from lowgemm.binary import display_names, function_name, spellings
from lowgemm.binary.flow import FlowGraph, Loop, sass_flow
from lowgemm.binary.instruction import Instruction, SourceLine
from lowgemm.binary.sass import SassKernel
from lowgemm.compiler import Build, KernelResources

__all__ = [
    "LoopReport",
    "SassReport",
    "analyse_build",
    "analyse_cubin",
    "analyse_kernel",
    "count_in",
]


def count_in(mix: Mapping[str, int], name: str) -> int:
    """How often an instruction occurs in a mix: ``LDS.128`` that width, ``LDS`` all widths."""
    return sum(n for mnemonic, n in mix.items() if name in (mnemonic, mnemonic.partition(".")[0]))


@dataclass(frozen=True, slots=True)
class LoopReport:
    """One loop, without the loops inside it.

    ``start`` and ``end`` are addresses in the kernel. ``mix`` counts instructions by mnemonic,
    loads, stores and copies with their width. ``moves`` of them only put a value into a register;
    ``move_mix`` counts these by mnemonic.
    ``conflict_cycles`` is modelled: what register-bank conflicts cost each iteration beyond one
    issue slot per FFMA. ``registers_live`` is the most registers in use at once.
    """

    index: int
    start: int
    end: int
    depth: int
    parent: int | None
    blocks: int
    instructions: int
    mix: Mapping[str, int]
    ffma_share: float
    moves: int
    conflict_cycles: int
    registers_live: int | None
    lines: tuple[SourceLine, ...] = field(default=(), repr=False)
    move_mix: Mapping[str, int] = field(default_factory=dict, repr=False)

    @property
    def multiply_adds(self) -> int:
        """FFMAs and their packed form of sm_100, each one issue slot."""
        return _multiply_adds(self.mix)


@dataclass(frozen=True, slots=True)
class SassReport:
    """One kernel on one architecture.

    ``kernel`` is its name for people, ``symbol`` that in the cubin, ``name_expressions`` what it
    was asked for by. ``arch`` is the architecture that it was compiled for; that of a bare cubin
    cannot tell a family target (``sm_100f``).

    Counts leave out what is no work: NOPs, instructions that a constant predicate turns off, and
    blocks that no path reaches. ``stack_bytes`` is what a thread needs with the functions that the
    kernel calls, None where they call each other without end. ``spill_store_bytes`` and
    ``spill_load_bytes`` come from the compiler's log and are None for a bare cubin. ``hot_loop`` is
    the index of the loop with the most FFMAs; where there are none, of the innermost and then
    longest. ``unknown_opcodes`` maps each operation that lowgemm does not know to its count.
    ``external_calls`` names the functions that a relocatable cubin leaves to be linked in: what
    they do is in none of these figures. ``moves`` only put a value into a register; ``move_mix``
    counts these by mnemonic.
    """

    kernel: str
    arch: str
    registers: int
    shared_bytes: int
    stack_bytes: int | None
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    instructions: int
    mix: Mapping[str, int]
    ffma_share: float
    moves: int
    registers_live: int | None
    code_bytes: int
    loops: tuple[LoopReport, ...]
    hot_loop: int | None
    irreducible: bool
    unknown_opcodes: Mapping[str, int]
    move_mix: Mapping[str, int] = field(default_factory=dict, repr=False)
    external_calls: tuple[str, ...] = ()
    symbol: str = ""
    name_expressions: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which people may mean it."""
        return (
            self.kernel,
            *self.name_expressions,
            *(spellings(self.symbol) if self.symbol else ()),
        )

    @property
    def hot(self) -> LoopReport | None:
        """The hot loop, where there is a loop."""
        return None if self.hot_loop is None else self.loops[self.hot_loop]

    @property
    def has_unspilled_local_accesses(self) -> bool:
        """Whether it uses local memory though nothing is spilled: for arrays, or in functions."""
        local = any(name.partition(".")[0] in ("LDL", "STL") for name in self.mix)
        return local and self.spill_store_bytes == 0 and self.spill_load_bytes == 0


def analyse_build(build: Build, kernels: Iterable[SassKernel]) -> tuple[SassReport, ...]:
    """Report on the kernels of a build, with the spills that its log tells."""
    named = {compiled.name: compiled for compiled in build.kernels}
    return tuple(
        replace(
            analyse_kernel(
                kernel, named[kernel.name].display_name, named[kernel.name].resources
            ),
            arch=str(build.arch),
            name_expressions=named[kernel.name].name_expressions,
        )
        for kernel in kernels
    )  # fmt: skip


def analyse_cubin(kernels: Sequence[SassKernel]) -> tuple[SassReport, ...]:
    """Report on the kernels of a bare cubin, whose spills nobody knows."""
    names = display_names([kernel.name for kernel in kernels])
    return tuple(analyse_kernel(kernel, names[kernel.name]) for kernel in kernels)


def analyse_kernel(
    kernel: SassKernel, display_name: str | None = None, resources: KernelResources | None = None
) -> SassReport:
    """Report on one kernel.

    Parameters
    ----------
    kernel
        Its machine code, with or without nvdisasm's text.
    display_name
        Its name for people; otherwise made from the mangled name.
    resources
        What the compiler's log says of it, where there is one.
    """
    flow = sass_flow(kernel)
    reached = [
        instruction
        for block in flow.blocks
        if flow.reachable(block.index)
        for instruction in kernel.instructions[block.first : block.last + 1]
    ]
    work = [instruction for instruction in reached if not instruction.is_filler]
    loops = tuple(_loop_report(kernel.instructions, flow, loop) for loop in flow.loops)
    mix = _mix(work)
    return SassReport(
        kernel=display_name or function_name(kernel.name),
        arch=str(kernel.arch),
        registers=kernel.signature.registers,
        shared_bytes=kernel.signature.shared_bytes,
        stack_bytes=kernel.signature.stack_bytes,
        spill_store_bytes=resources.spill_store_bytes if resources else None,
        spill_load_bytes=resources.spill_load_bytes if resources else None,
        instructions=len(work),
        mix=mix,
        ffma_share=_share(mix, len(work)),
        moves=sum(instruction.is_move for instruction in work),
        registers_live=_most_live(reached),
        code_bytes=len(kernel.instructions) * 16,
        loops=loops,
        hot_loop=_hottest(loops),
        irreducible=flow.irreducible,
        unknown_opcodes=_unknown(reached),
        move_mix=_mix(instruction for instruction in work if instruction.is_move),
        external_calls=kernel.external_calls,
        symbol=kernel.name,
    )


def _loop_report(code: Sequence[Instruction], flow: FlowGraph, loop: Loop) -> LoopReport:
    runs = [code[flow.blocks[b].first : flow.blocks[b].last + 1] for b in sorted(loop.own_blocks)]
    work = [instruction for run in runs for instruction in run if not instruction.is_filler]
    mix = _mix(work)
    lines = dict.fromkeys(instruction.line for instruction in work if instruction.line)
    return LoopReport(
        index=loop.index,
        start=loop.start,
        end=loop.end,
        depth=loop.depth,
        parent=loop.parent,
        blocks=len(loop.own_blocks),
        instructions=len(work),
        mix=mix,
        ffma_share=_share(mix, len(work)),
        moves=sum(instruction.is_move for instruction in work),
        conflict_cycles=sum(conflict_cycles(run) for run in runs),
        registers_live=_most_live(work),
        lines=tuple(lines),
        move_mix=_mix(instruction for instruction in work if instruction.is_move),
    )


def _mix(instructions: Iterable[Instruction]) -> dict[str, int]:
    counts = Counter(instruction.mnemonic for instruction in instructions)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _multiply_adds(mix: Mapping[str, int]) -> int:
    """FFMAs and their packed form of sm_100, each one issue slot."""
    return mix.get("FFMA", 0) + mix.get("FFMA2", 0)


def _share(mix: Mapping[str, int], total: int) -> float:
    return _multiply_adds(mix) / total if total else 0.0


def _most_live(instructions: Iterable[Instruction]) -> int | None:
    known = [i.live_registers for i in instructions if i.live_registers is not None]
    return max(known, default=None)


def _hottest(loops: Sequence[LoopReport]) -> int | None:
    if not loops:
        return None
    best = max(loops, key=lambda loop: (_multiply_adds(loop.mix), loop.depth, loop.instructions))
    return best.index


def _unknown(instructions: Iterable[Instruction]) -> dict[str, int]:
    found = Counter(
        f"{i.name} (0x{i.low & 0x1FF:03x})" if i.text else i.name
        for i in instructions
        if i.opcode is None
    )
    return dict(sorted(found.items()))
