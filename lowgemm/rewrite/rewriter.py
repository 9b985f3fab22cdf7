"""Rewrite the hot loop of a kernel: taken apart, ordered anew, put behind the kernel's code."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lowgemm.binary.cubin import read_cubin
from lowgemm.binary.patch import with_grown_code
from lowgemm.binary.sass import SassKernel, read_sass
from lowgemm.emulator.program import compile_program
from lowgemm.errors import KernelNotFoundError, RewriteError
from lowgemm.hardware import Architecture
from lowgemm.isa import ControlWord
from lowgemm.rewrite.allocate import (
    Allocation,
    RegisterError,
    allocate,
    needed_behind,
    register_limit,
    resident_warps,
)
from lowgemm.rewrite.body import Body, hot_loop, take_apart
from lowgemm.rewrite.cost import LoopCost, loop_cost
from lowgemm.rewrite.emit import NOP, Word, branch, emit_body, emit_moves, pack, with_control
from lowgemm.rewrite.equivalence import find_difference
from lowgemm.rewrite.hazards import find_hazards
from lowgemm.rewrite.liveness import live_registers
from lowgemm.rewrite.schedule import Order, Schedule, Spread, find_order, plan_schedule
from lowgemm.rewrite.scoreboards import assign_scoreboards, mend, without_early_waits
from lowgemm.rewrite.temporaries import Temporary, find_temporaries
from lowgemm.rewrite.tile import Tile, find_tile
from lowgemm.rewrite.walk import Walk, plan_quarter_walks, plan_walks

__all__ = ["RewrittenKernel", "is_enabled", "rewrite_kernel"]

#: Loops begin at whole lines of 128 bytes.
_ALIGNMENT = 128
#: Each round of mending adds what the one before made visible; a handful is enough.
_ROUNDS = 32
#: In the order in which they are tried: on an H200 the first is best for 8 x 16 accumulators; those
#: behind it need fewer registers.
_SPREADS = tuple(Spread(lead, even) for even in (1.0, 0.7, 0.5, 0.3, 0.1) for lead in (24, 16, 8))
#: Where a warp waits for more than half of the cycles that it has, all come from their wait at
#: once and ask shared memory: its answers take longer. On an H200 such a loop was 2 % slower than
#: ptxas's with a lead of 24 FFMAs, and 0.6 % faster with one of 40.
_WAITING = 1.5
#: With so few warps on a scheduler the time that each takes alone must not grow: on an H200 a loop
#: of 15 % fewer cycles, with 1 % more time alone and two warps, was 7.5 % slower than ptxas's.
_FEW_WARPS = 2
_SPREADS_OF_WAITING = tuple(Spread(40, even) for even in (1.0, 0.7, 0.5, 0.3, 0.1))


class _SlowerError(RewriteError):
    """The new loop is not faster by the model."""


@dataclass(frozen=True, slots=True)
class RewrittenKernel:
    """A cubin in which one kernel has another hot loop.

    ``original`` is the SHA-256 of the cubin that it was made of, in hexadecimal: it is for no
    other. ``old_loop`` and ``new_loop`` are the addresses from the first instruction to behind the
    last; ``before`` and ``after`` what the loops cost by the model. ``entry_moves`` and
    ``exit_moves`` count the moves between registers on the way in and out.
    """

    cubin: bytes
    kernel: str
    original: str
    old_loop: range
    new_loop: range
    before: LoopCost
    after: LoopCost
    registers: int
    entry_moves: int
    exit_moves: int


def is_enabled() -> bool:
    """Whether kernels of this library rewrite their loops: not with ``LOWGEMM_REWRITE=0``."""
    return os.environ.get("LOWGEMM_REWRITE", "1") != "0"


def rewrite_kernel(
    cubin: bytes, kernel: str | None = None, *, spread: Spread | None = None
) -> RewrittenKernel:
    """Rewrite a kernel's hot loop.

    What the new loop computes is compared with the old one value by value, and its control words
    are checked on every way through the kernel, before this returns. Running both is the caller's:
    see :func:`lowgemm.rewrite.verify_on`.

    Parameters
    ----------
    cubin
        The whole file.
    kernel
        The kernel's (mangled) name; None where there is only one.
    spread
        How early and how far apart loads from shared memory stand; None tries several.

    Raises
    ------
    RewriteError
        The loop is left as it is; the error says why.
    KernelNotFoundError
        There is no such kernel, or more than one.
    CubinError
        The bytes are no cubin.
    UnknownInstructionError
        The kernel has an instruction that the emulator does not know.
    """
    chosen = _kernel(cubin, kernel)
    program = compile_program(chosen)
    loop = hot_loop(program)
    live = live_registers(program)
    bodies = [take_apart(program, loop)]
    freer = take_apart(program, loop, by_guards=True)
    if _old_values(freer) < _old_values(bodies[0]):
        bodies.append(freer)

    def known(plan: Callable[[Tile], tuple[Walk, ...]]) -> list[_HotLoop]:
        return [each for body in bodies for each in _known(chosen, body, live, plan)]

    loops, spreads = known(plan_walks), (spread,) if spread is not None else _SPREADS
    try:
        made = _first(cubin, chosen, loops, spreads)
    except RegisterError:
        made = _with_fewer_registers(cubin, chosen, loops, known(plan_quarter_walks), spreads)
    if spread is None and made.after.latency > _WAITING * made.after.cycles:
        with suppress(RewriteError):
            early = _first(cubin, chosen, loops, _SPREADS_OF_WAITING)
            warps = resident_warps(chosen)
            if early.after.together(warps) < made.after.together(warps):
                made = early
    return made


def _with_fewer_registers(
    cubin: bytes,
    kernel: SassKernel,
    loops: Sequence[_HotLoop],
    quarters: Sequence[_HotLoop],
    spreads: Sequence[Spread],
) -> RewrittenKernel:
    """The first rewrite that succeeds, by what saves registers and costs least.

    Raises
    ------
    RewriteError
        None does.
    """
    later = [replace(each, asking=1 / 2) for each in spreads]
    briefly = [replace(each, briefly=True) for each in later]
    for walks, wanted in ((loops, later), (quarters, later)):
        with suppress(RegisterError):
            if walks:
                return _first(cubin, kernel, walks, wanted)
    return _first(cubin, kernel, [*loops, *quarters], briefly)


def _first(
    cubin: bytes, kernel: SassKernel, loops: Sequence[_HotLoop], spreads: Sequence[Spread]
) -> RewrittenKernel:
    """The first rewrite that succeeds.

    Raises
    ------
    RewriteError
        None does.
    """
    refused: RewriteError | None = None
    waiting = list(loops)
    for each in spreads:
        for known in tuple(waiting):
            try:
                return _rewritten(cubin, kernel, known, each)
            except RewriteError as error:
                # The one with fewest demands tells best what is in the way.
                refused = error
                if isinstance(error, _SlowerError):
                    waiting.remove(known)  # with loads that come later it would wait longer
    assert refused is not None
    raise refused


def _old_values(body: Body) -> int:
    """How many values lie under guarded writes."""
    return sum(len(item.reads.get("old", ())) for item in body.items)


def _known(
    kernel: SassKernel,
    body: Body,
    live: list[frozenset[int]],
    plan: Callable[[Tile], tuple[Walk, ...]],
) -> list[_HotLoop]:
    """What is known of a loop before loads get their places, for each walk of a plan.

    Raises
    ------
    RewriteError
        It cannot be rewritten, or nothing can be gained.
    """
    tile = find_tile(body)
    temporaries = find_temporaries(body, tile, needed_behind(body, live))
    before = loop_cost([item.instruction for item in body.items])
    needless = sum(len(chain.copies) for chain in tile.chains)
    needless += sum(item.instruction.is_filler for item in body.items)
    fewest = before.without_conflicts(needless)
    if before.shared_cycles >= before.cycles:
        raise RewriteError(
            f"shared memory takes all of the loop's {before.cycles:.0f} cycles, and the order of "
            "FFMAs none",
            "read wider pieces, or use a larger thread tile",
        )
    if fewest >= before.cycles:
        raise RewriteError(
            f"even without a bank conflict the loop would take {fewest:.0f} cycles, and it takes "
            f"{before.cycles:.0f}",
            "the compiler's order is as good by the model",
        )
    limit = register_limit(kernel)
    known = []
    for walk in plan(tile):
        among = find_order(body, tile, temporaries, walk)
        known.append(_HotLoop(body, tile, walk, temporaries, among, live, limit, before))
    return known


def _kernel(cubin: bytes, name: str | None) -> SassKernel:
    kernels = {each.name: each for each in read_sass(cubin)}
    if name is None and len(kernels) == 1:
        return next(iter(kernels.values()))
    if name not in kernels:
        told = f"named {name!r}" if name is not None else "alone"
        raise KernelNotFoundError(
            f"the cubin has no kernel {told}",
            f"it has {', '.join(kernels) or 'none'}",
            available=tuple(kernels),
        )
    return kernels[name]


@dataclass(frozen=True, slots=True)
class _HotLoop:
    """What is known of a loop before loads get their places: it is the same for every spread."""

    body: Body
    tile: Tile
    walk: Walk
    temporaries: tuple[Temporary, ...]
    among: Order
    live: list[frozenset[int]]
    limit: int
    before: LoopCost


def _rewritten(cubin: bytes, kernel: SassKernel, loop: _HotLoop, spread: Spread) -> RewrittenKernel:
    body, tile, walk, temporaries = loop.body, loop.tile, loop.walk, loop.temporaries
    schedule = plan_schedule(body, tile, walk, loop.among, spread)
    allocation = allocate(
        *(body, tile, temporaries, walk, schedule),
        live=loop.live,
        limit=loop.limit,
        briefly=spread.briefly,
    )
    boards, mask = assign_scoreboards(body, tile, walk, schedule, briefly=spread.briefly)
    words = emit_body(schedule, allocation, boards)
    draft = _Draft(cubin, kernel, body, schedule, allocation, words, mask)
    made = draft.mended()
    new = _kernel(made, kernel.name)
    before = loop.before
    after = loop_cost(new.instructions[draft.loop.start // 16 : draft.loop.stop // 16])
    _check_faster(before, after, resident_warps(kernel))
    difference = find_difference(kernel, new)
    if difference is not None:
        raise RewriteError(f"the new loop does something else: {difference}", "report this loop")
    return RewrittenKernel(
        cubin=made,
        kernel=kernel.name,
        original=hashlib.sha256(cubin).hexdigest(),
        old_loop=range(body.first * 16, body.last * 16 + 16),
        new_loop=draft.loop,
        before=before,
        after=after,
        registers=draft.registers,
        entry_moves=len(allocation.entry.sources),
        exit_moves=max(len(each.sources) for each in allocation.exits),
    )


def _check_faster(before: LoopCost, after: LoopCost, warps: int) -> None:
    """Refuse a loop that the model does not say is faster with so many warps on a scheduler.

    Raises
    ------
    _SlowerError
        It takes as many slots, or what it saves of them a warp waits longer.
    """
    if after.cycles >= before.cycles:
        raise _SlowerError(
            f"the loop would take {after.cycles:.0f} cycles instead of {before.cycles:.0f}",
            "the compiler's order is as good by the model",
        )
    if warps <= _FEW_WARPS and after.latency > before.latency:
        raise _SlowerError(
            f"each of {warps} warps of a scheduler would take {after.latency:.0f} cycles alone "
            f"instead of {before.latency:.0f}, and the other does not fill them all",
            "the compiler's order hides more latency by the model",
        )
    if after.together(warps) >= before.together(warps):
        raise _SlowerError(
            f"{warps} warps of a scheduler would take {after.together(warps):.0f} cycles for the "
            f"loop instead of {before.together(warps):.0f}: each waits for {after.latency:.0f} "
            f"cycles in all, and before for {before.latency:.0f}",
            "the compiler's order hides more latency by the model",
        )


class _Draft:
    """A kernel's new code: the old one, in which the old loop jumps to the new one behind it."""

    def __init__(
        self,
        cubin: bytes,
        kernel: SassKernel,
        body: Body,
        schedule: Schedule,
        allocation: Allocation,
        words: list[Word],
        mask: int,
    ) -> None:
        arch = kernel.arch
        self._cubin, self._kernel = cubin, kernel
        code = bytearray(read_cubin(cubin).code[kernel.name].content)
        self.begin = len(code)
        head = emit_moves(allocation.entry, mask)
        while (self.begin + 16 * len(head)) % _ALIGNMENT:
            head.append(with_control(NOP, ControlWord(1, True, None, None, 0, 0)))
        start = self.begin + 16 * len(head)
        self.loop = range(start, start + 16 * len(words))
        tail = self._exits(body, schedule, allocation, words, mask, arch)
        old = slice(body.first * 16, body.last * 16 + 16)
        code[old] = pack([branch(old.start, self.begin, arch), *[NOP] * (len(body.items) - 1)])
        self._old_code = bytes(code)
        self.words = [*head, *words, *tail]
        self.registers = max(allocation.count, kernel.signature.registers or 0)

    def _exits(
        self,
        body: Body,
        schedule: Schedule,
        allocation: Allocation,
        words: list[Word],
        mask: int,
        arch: Architecture,
    ) -> list[Word]:
        """What stands behind the new loop; the branches that leave it, and back, get targets."""
        places = {getattr(each, "place", None): n for n, each in enumerate(schedule.order)}
        tail: list[Word] = []
        bridges = list(zip(body.exits, allocation.exits, strict=True))
        # The last exit is fallen into.
        for leaving, moves in [bridges[-1], *bridges[:-1]]:
            at = places[leaving.place]
            here = self.loop.stop + 16 * len(tail)
            target = self.loop.start if leaving is body.exits[-1] else here
            instruction = body.items[leaving.place].instruction
            words[at] = branch(self.loop.start + 16 * at, target, arch, instruction)
            tail += emit_moves(moves, mask)
            tail.append(branch(self.loop.stop + 16 * len(tail), leaving.target, arch))
        return tail

    def mended(self) -> bytes:
        """The cubin, with the waits and stalls that its code needs.

        Raises
        ------
        RewriteError
            Some hazard cannot be mended.
        """
        made, kernel = self._mended()
        first = (self.loop.start - self.begin) // 16
        loop = kernel.instructions[self.loop.start // 16 : self.loop.stop // 16]
        if without_early_waits(self.words, loop, first):
            made, _ = self._mended()
        return made

    def _mended(self) -> tuple[bytes, SassKernel]:
        for _ in range(_ROUNDS):
            code = self._old_code + pack(self.words)
            made = with_grown_code(self._cubin, self._kernel.name, code, self.registers)
            kernel = _kernel(made, self._kernel.name)
            hazards = find_hazards(kernel)
            if not hazards:
                return made, kernel
            loads = frozenset(each.address for each in kernel.instructions if each.name == "LDG")
            if not mend(self.words, self.begin, hazards, loads):
                break
        raise RewriteError(f"hazards are left: {hazards[0]}", "report this loop")
