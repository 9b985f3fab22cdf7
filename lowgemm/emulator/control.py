"""Where the front goes on: branches, convergence, barriers, the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowgemm.emulator.front import Front, Mask
from lowgemm.emulator.integer import put32, put_predicate
from lowgemm.emulator.operation import Flow, Run, maker
from lowgemm.emulator.word import ReadPredicate, Word
from lowgemm.isa import Form

__all__: list[str] = []

U32 = np.uint32
_INSTRUCTION_BYTES = 16
_CONDITION = 87
_GUARD = 12
#: How WARPSYNC waits (bits 85-86), as is, .EXCLUSIVE or .COLLECTIVE: in the latter two the code
#: behind it, up to where the others are met, is for the lanes of one mask alone.
_COLLECTIVE = 2
#: What BPT does (bits 84-86): end the kernel.
_TRAP = 3


def _nothing(f: Front, m: Mask) -> None:
    pass


@maker(
    "NOP", "MEMBAR", "ERRBAR", "CGAERRBAR", "CCTL", "CCTLL", "FENCE", "ENDCOLLECTIVE",
    "PREEXIT", "ACQBULK", "PMTRIG", "UTMACCTL", "UBLKPF", "UTMAPF",
)  # fmt: skip
def _no_effect(w: Word) -> Run:
    """Order between memory accesses is that of the program here; hints have no value."""
    w.ignore(16, 89)
    return _nothing


@maker("YIELD", "NANOSLEEP")
def _yield(w: Word) -> Flow:
    w.ignore(16, 89)
    after = w.instruction.address + _INSTRUCTION_BYTES
    return Flow(lambda f, m: f.batch.give_way(f, after))


def _condition(w: Word) -> ReadPredicate | None:
    """The second predicate of a control operation; None for PT."""
    return None if w.predicate_is_true(_CONDITION) else w.predicate(_CONDITION, uniform=False)


def _and(f: Front, m: Mask, condition: ReadPredicate | None) -> Mask:
    if condition is None:
        return m
    holds = condition(f)
    return holds & m if m is not None else f.guarded(holds)


def _offset(w: Word) -> int:
    """The signed byte offset of a branch: in words of four bytes in bits 34-81, from sm_90 on with
    the lowest eight bits in bits 16-23."""
    if w.arch.major >= 9:
        value = w.take(34, 48) << 8 | w.take(16, 8)
        width = 56
    else:
        value, width = w.take(34, 48), 48
    value -= (1 << width) if value >> (width - 1) else 0
    return value * 4


@maker("BRA")
def _bra(w: Word) -> Flow:
    target = w.instruction.target
    if target is None:
        raise w.unknown("a branch without a target")
    _offset(w)
    after = w.instruction.address + _INSTRUCTION_BYTES
    w.ignore(84, 3)
    condition = _condition(w)
    if w.form is Form.Ri:  # .U: a uniform predicate decides
        decides = w.predicate(24, uniform=True)
        w.ignore(32, 2)
        return Flow(
            lambda f, m: f.batch.branch(
                f, _and(f, _uniform(f, m, decides(f)), condition), target, after
            )
        )
    kind, by_any = w.take(32, 2), w.flag(84)
    if kind >= 2 or w.has_uniform:
        return _branch_on_divergence(w, kind, target, after)
    if by_any:  # .U.ANY: all lanes go where one of them does
        return Flow(
            lambda f, m: f.batch.branch(f, _if_any(f, _and(f, m, condition)), target, after)
        )
    return Flow(lambda f, m: f.batch.branch(f, _and(f, m, condition), target, after))


def _if_any(f: Front, m: Mask) -> Mask:
    if m is None:
        return None
    return f.guarded(np.broadcast_to(m.any(axis=1, keepdims=True), (f.count, 32)))


def _uniform(f: Front, m: Mask, holds: Any) -> Mask:
    lanes = np.broadcast_to(holds, (f.count, 32))
    return lanes & m if m is not None else f.guarded(lanes)


def _branch_on_divergence(w: Word, kind: int, target: int, after: int) -> Flow:
    """BRA.DIV: branch where lanes of the mask are elsewhere; BRA.CONV: where they are all here.

    Lanes whose guard is false are not here. Where lanes ask for different masks, R2UR makes it so
    for all of them, and BRA.DIV sends them all to the code that takes one mask after the other.
    """
    converged = kind == 3
    inverted = w.flag(82 if w.arch.major >= 10 else 30)
    read = w.reader(24, uniform=True) if w.has_uniform else None
    guard = w.predicate(_GUARD, uniform=False)

    def control(f: Front, m: Mask) -> int | None:
        willing = f.guarded(f.full(guard(f)))
        here = f.mask_bits(willing)
        alive = f.batch.alive_bits(f)
        wanted = read(f) if read is not None else np.zeros((1, 1), U32)
        wanted = (~wanted if inverted else wanted) & alive
        together = (wanted & ~here) == 0
        if converged:
            return f.batch.branch(f, _uniform(f, willing, together), target, after)
        return f.batch.branch(f, _uniform(f, m, ~together), target, after)

    return Flow(control, sees_guard=True)


@maker("BRX", "BRXU", "RET", "CALL", "JMX")
def _indirect(w: Word) -> Flow:
    name = w.instruction.name
    after = w.instruction.address + _INSTRUCTION_BYTES
    direct = name == "CALL" and w.instruction.target is not None
    offset = _offset(w)
    w.ignore(32, 2)
    absolute = w.instruction.low & 0x1FF == 0x143 or (name == "RET" and w.flag(85))
    w.ignore(82, 5)
    condition = _condition(w)
    if direct:
        target = w.instruction.target
        assert target is not None
        return Flow(lambda f, m: f.batch.branch(f, _and(f, m, condition), target, after))
    pair: Any = w.reader64(24, uniform=name == "BRXU" or w.has_uniform)
    base = 0 if absolute else after

    def control(f: Front, m: Mask) -> int | None:
        targets = f.full(pair(f)).astype(np.int64) + (base + offset)
        return f.batch.branch_to(f, _and(f, m, condition), targets & 0xFFFFFFFF, after)

    return Flow(control)


# ---- convergence


@maker("BSSY")
def _bssy(w: Word) -> Run:
    number = w.take(16, 4)
    w.ignore(20, 4)
    w.ignore(34, 48)
    w.ignore(32, 2)
    w.ignore(82, 5)
    if not w.predicate_is_true(_CONDITION):
        raise w.unknown("a second condition")
    return lambda f, m: f.batch.convergence.open(f, number, m)


def _convergence_point(w: Word) -> tuple[int, ReadPredicate | None]:
    """The convergence barrier that BSYNC and BREAK name, and their second predicate."""
    number = w.take(16, 4)
    w.ignore(20, 4)
    w.ignore(72, 2)  # .RELIABLE, .RECONVERGENT: how the hardware schedules
    w.ignore(82, 5)
    return number, _condition(w)


@maker("BSYNC")
def _bsync(w: Word) -> Flow:
    number, condition = _convergence_point(w)
    after = w.instruction.address + _INSTRUCTION_BYTES
    return Flow(lambda f, m: f.batch.convergence.meet(f, number, _and(f, m, condition), after))


@maker("BREAK")
def _break(w: Word) -> Run:
    number, condition = _convergence_point(w)
    return lambda f, m: f.batch.convergence.leave(f, number, _and(f, m, condition))


@maker("BMOV")
def _bmov(w: Word) -> Run:
    operation = w.instruction.low & 0x1FF
    number = w.take(24, 6)
    if number >= 16:
        raise w.unknown("a special register of convergence")
    clears = w.flag(84)
    if operation == 0x155:
        put = put32(w)

        def read(f: Front, m: Mask) -> None:
            put(f, f.batch.convergence.members(f, number), m)
            if clears:
                f.batch.convergence.set_members(f, number, np.zeros((1, 1), U32), m)

        return read
    if operation != 0x156:
        raise w.unknown("a move of this kind")
    w.ignore(16, 8)
    source = w.operand("b", sources=2)

    return lambda f, m: f.batch.convergence.set_members(f, number, source(f), m)


@maker("WARPSYNC")
def _warpsync(w: Word) -> Flow:
    after = w.instruction.address + _INSTRUCTION_BYTES
    w.ignore(16, 8)
    how = w.take(84, 3) >> 1
    if how > _COLLECTIVE:
        raise w.unknown("a wait of this kind")
    condition = _condition(w)
    form = w.form
    every = form is Form.ir and w.arch.major >= 9  # WARPSYNC.ALL
    if form is Form.ir and not every:
        mask = w.take(32, 32)
        value = np.full((1, 1), mask, U32)
        read: Any = lambda f: value  # noqa: E731
    elif every:
        w.ignore(32, 50)
        all_lanes = np.full((1, 1), 0xFFFFFFFF, U32)
        read = lambda f: all_lanes  # noqa: E731
    else:
        read = w.reader(24 if w.arch.major >= 9 else 32)
        w.ignore(32, 50)  # a collective's target
    return Flow(
        lambda f, m: f.batch.convergence.synchronise(
            f, _and(f, m, condition), f.full(read(f)), after, exclusive=how != 0
        )
    )


@maker("EXIT", "KILL")
def _exit(w: Word) -> Flow:
    after = w.instruction.address + _INSTRUCTION_BYTES
    w.ignore(84, 3)
    condition = _condition(w)
    return Flow(lambda f, m: f.batch.leave(f, _and(f, m, condition), after))


@maker("BPT")
def _trap(w: Word) -> Flow:
    """BPT.TRAP: a finding of the threads that come here, and their end."""
    if w.take(84, 3) != _TRAP:
        raise w.unknown("a break point")
    w.ignore(16, 68)
    after = w.instruction.address + _INSTRUCTION_BYTES

    def control(f: Front, m: Mask) -> int | None:
        f.batch.report_trap(f, m, w.instruction.address)
        return f.batch.leave(f, m, after)

    return Flow(control)


# ---- barriers of a block


@maker("BAR")
def _bar(w: Word) -> Flow:
    mode = w.take(77, 2)
    w.ignore(79, 2)  # .DEFER_BLOCKING
    after = w.instruction.address + _INSTRUCTION_BYTES
    form = w.form
    if mode > 2:
        raise w.unknown("BAR.SCAN")
    number: Any = None
    count: Any = None
    if form in (Form.rr, Form.Ri):
        number = w.reader(32)
    else:
        w.ignore(54, 4)
    if form is Form.ir:
        count = w.reader(32)
    elif form in (Form.Ri, Form.cr):
        w.ignore(42, 12)
    fixed_number = w.bits >> 54 & 15
    fixed_count = w.bits >> 42 & 0xFFF
    packed = form is Form.rr  # barrier and, above 16 bits, the count
    reduces = w.flag(78) or mode == 2
    kind = w.take(74, 2)
    value = w.predicate(_CONDITION, uniform=False) if reduces else None
    w.ignore(_CONDITION, 4)

    def control(f: Front, m: Mask) -> int | None:
        which: Any = np.full((1, 1), fixed_number, np.int64)
        if number is not None:
            which = number(f).astype(np.int64)
        threads: Any = np.full((1, 1), fixed_count, np.int64)
        if count is not None:
            threads = count(f).astype(np.int64)
        if packed:
            threads = which >> 16 & 0xFFF
            which = which & 15
        reduction = None if value is None else (kind, value(f))
        return f.batch.barriers.come(f, m, which & 15, threads & 0xFFF, after, mode == 1, reduction)

    return Flow(control)


@maker("B2R")
def _b2r(w: Word) -> Run:
    put, found = put32(w), put_predicate(w, 81)
    if w.take(78, 2) != 1:
        raise w.unknown("the state of a barrier")
    w.ignore(32, 8)

    def run(f: Front, m: Mask) -> None:
        value = f.batch.barriers.result(f)
        put(f, value, m)
        if found is not None:
            found(f, value != 0, m)

    return run
