"""What a CPU's function consists of, per loop."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lowgemm.analysis.tile import (
    MultiplyAdd,
    RegisterTile,
    follow_sums,
    is_broadcast,
    multiply_add,
    register_tile,
)
from lowgemm.binary.flow import FlowGraph, Loop
from lowgemm.binary.host import HostFunction, HostInstruction, decode_host, host_flow

__all__ = ["HostLoop", "HostReport", "RegisterTile", "analyse_host"]


@dataclass(frozen=True, slots=True)
class HostLoop:
    """One loop, without the loops inside it.

    ``fmas`` are fused multiply-add instructions and ``fma_elements`` the multiply-adds in those
    that accumulate from pass to pass, ``all_fma_elements`` those in all; ``lane_fmas`` take one
    lane of a register as a factor for all (AArch64). ``loads`` and ``stores`` are the instructions
    that do; ``broadcasts`` repeat what they load, or a register's element, across a vector, those
    inside a multiply-add included. ``vector_bits`` is the width of the multiply-adds, without them
    the widest vector, None for a scalable one. ``accumulators`` are sums that multiply-adds carry
    from one pass to the next, each counted once whatever registers it stands in.
    """

    index: int
    start: int
    end: int
    depth: int
    parent: int | None
    blocks: int
    instructions: int
    mix: Mapping[str, int]
    fmas: int
    fma_elements: int
    lane_fmas: int
    loads: int
    broadcasts: int
    stores: int
    prefetches: int
    vector_bits: int | None
    vector_registers: int
    general_registers: int
    accumulators: int
    tile: RegisterTile | None
    all_fma_elements: int = 0

    @property
    def fma_share(self) -> float:
        """The multiply-adds' share of the instructions."""
        return self.fmas / self.instructions if self.instructions else 0.0

    @property
    def loads_per_fma(self) -> float | None:
        """Loads for each multiply-add instruction."""
        return self.loads / self.fmas if self.fmas else None


@dataclass(frozen=True, slots=True)
class HostReport:
    """One function of a CPU's library.

    ``identified_by`` says how it was found. ``instructions`` and ``mix`` leave out NOPs and what no
    path reaches. ``hot_loop`` is the index of the loop with the most multiply-adds in a pass, in
    elements, of those where some accumulate from pass to pass; where there are none, with the most
    multiply-adds, of the innermost and then longest. ``unknown_bytes`` are those that capstone
    could not decode, as data between functions may be. ``jumps_out`` are the addresses outside the
    function that it jumps to: its work may be done there.
    """

    library: str
    function: str
    identified_by: str
    machine: str
    code_bytes: int
    instructions: int
    mix: Mapping[str, int]
    loops: tuple[HostLoop, ...]
    hot_loop: int | None
    irreducible: bool
    unknown_bytes: int
    jumps_out: tuple[int, ...] = ()

    @property
    def hot(self) -> HostLoop | None:
        """The hot loop, where there is a loop."""
        return None if self.hot_loop is None else self.loops[self.hot_loop]


def analyse_host(function: HostFunction) -> HostReport:
    """Report on a function, its loops and the register tile of each.

    Parameters
    ----------
    function
        Its machine code, from :meth:`lowgemm.binary.host.HostLibrary.function`.
    """
    code = decode_host(function)
    flow = host_flow(code)
    reached = [
        instruction
        for block in flow.blocks
        if flow.reachable(block.index)
        for instruction in code[block.first : block.last + 1]
    ]
    loops = tuple(_loop(code, flow, loop) for loop in flow.loops)
    return HostReport(
        library=function.library,
        function=function.name,
        identified_by=function.identified_by,
        machine=function.machine.value,
        code_bytes=len(function.code),
        instructions=sum(not instruction.is_filler for instruction in reached),
        mix=_mix(reached),
        loops=loops,
        hot_loop=_hottest(loops),
        irreducible=flow.irreducible,
        unknown_bytes=sum(i.size for i in code if not i.is_known),
        jumps_out=_jumps_out(function, reached),
    )


def _jumps_out(function: HostFunction, reached: Iterable[HostInstruction]) -> tuple[int, ...]:
    inside = range(function.address, function.address + len(function.code))
    targets = (target for i in reached for target in i.targets if target not in inside)
    return tuple(dict.fromkeys(targets))


def _loop(code: Sequence[HostInstruction], flow: FlowGraph, loop: Loop) -> HostLoop:
    body = [
        instruction
        for index in sorted(loop.own_blocks)
        for instruction in code[flow.blocks[index].first : flow.blocks[index].last + 1]
        if not instruction.is_filler
    ]
    fmas = [fma for instruction in body if (fma := multiply_add(instruction))]
    sums = follow_sums(body)
    memories = [instruction.memory for instruction in body if instruction.memory]
    touched = {name for i in body for name in i.read | i.written}
    vectors = {r.identity for i in body for r in i.registers if r.is_vector}
    return HostLoop(
        index=loop.index,
        start=loop.start,
        end=loop.end,
        depth=loop.depth,
        parent=loop.parent,
        blocks=len(loop.own_blocks),
        instructions=len(body),
        mix=_mix(body),
        fmas=len(fmas),
        fma_elements=sum(product.fma.lanes or 1 for product in sums.products),
        lane_fmas=sum(any(f.lane is not None for f in fma.registers) for fma in fmas),
        loads=sum(memory.loads for memory in memories),
        broadcasts=sum(is_broadcast(i) for i in body),
        stores=sum(memory.stores for memory in memories),
        prefetches=sum(instruction.is_prefetch for instruction in body),
        vector_bits=_vector_bits(body, fmas),
        vector_registers=len(vectors),
        general_registers=sum(bool(_GENERAL.match(name)) for name in touched),
        accumulators=len(sums.accumulators),
        tile=register_tile(sums) if len(sums.products) == len(fmas) else None,
        all_fma_elements=sum(fma.lanes or 1 for fma in fmas),
    )


_GENERAL = re.compile(r"(r\w+|x\d+|sp)$")


def _mix(instructions: Iterable[HostInstruction]) -> dict[str, int]:
    counts = Counter(i.mnemonic for i in instructions if not i.is_filler)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _vector_bits(body: Sequence[HostInstruction], fmas: Sequence[MultiplyAdd]) -> int | None:
    if fmas:
        widths = [fma.width_bits for fma in fmas]
    else:
        widths = [r.width_bits for i in body for r in i.registers if r.is_vector]
    known = [width for width in widths if width is not None]
    return max(known) if len(known) == len(widths) and known else None


def _hottest(loops: Sequence[HostLoop]) -> int | None:
    if not loops:
        return None

    def heat(loop: HostLoop) -> tuple[int, int, int, int]:
        carried = loop.all_fma_elements if loop.fma_elements else 0
        return carried, loop.fmas, loop.depth, loop.instructions

    return max(loops, key=heat).index
