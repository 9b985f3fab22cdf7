"""What sm_90 adds: mbarriers, bulk copies through them, barriers of a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowgemm.emulator.front import Front, Mask
from lowgemm.emulator.operation import Flow, Run, maker
from lowgemm.emulator.word import PT, RZ, Word
from lowgemm.isa import Form

__all__: list[str] = []

U32 = np.uint32
_INSTRUCTION_BYTES = 16
#: An mbarrier's word holds 2^20 less the arrivals that it waits for, from bit 1 on.
_COUNT_MASK = (1 << 20) - 1
#: What an arrival counts (bits 84-86): how many arrivals, and what is added to the bytes awaited.
_ARRIVALS = {
    0: ("one", "register"),
    1: ("one", "none"),
    3: ("none", "register"),
    5: ("register", "none"),
}
#: How an arrival is done (bits 73-75): as it is, without a state (.RED), or for the last time
#: (.OPTOUT: mbarrier.arrive_drop).
_PLAIN, _REDUCTION, _OPT_OUT, _REDUCTION_OPT_OUT = 0, 2, 4, 6
_COPY_UNIT_BYTES = 16


@maker("SYNCS")
def _syncs(w: Word) -> Run | Flow:
    operation = w.instruction.low & 0x1FF
    if operation == 0x1B2:
        return _initialise(w)
    if operation == 0x1B1:  # SYNCS.CCTL: an mbarrier is given up
        w.ignore(16, 89)
        return lambda f, m: None
    if w.form is Form.Ri:
        return _phase_check(w)
    return _arrive(w)


def _barrier_address(w: Word) -> Any:
    """The address of an mbarrier: a register, a uniform one, an immediate."""
    base, offset = w.reader(24, uniform=False), U32(w.signed(40, 24) & 0xFFFFFFFF)
    extra = w.reader(64, uniform=True)
    return lambda f: (base(f) + extra(f) + offset).astype(np.int64)


def _initialise(w: Word) -> Run:
    """SYNCS.EXCH.64: mbarrier.init, the word made by the code before."""
    if w.take(70, 5) != 4 or w.form is not Form.Ri:
        raise w.unknown("an exchange of this kind")
    base, value = w.reader(24, uniform=True), w.reader(32, uniform=True)
    offset = w.signed(40, 24)
    w.ignore(64, 6)
    if w.destination(16, uniform=True) != RZ:
        raise w.unknown("the old word of an mbarrier")

    def run(f: Front, m: Mask) -> None:
        where = (base(f).astype(np.int64) + offset).reshape(-1)
        words = np.broadcast_to(value(f), (f.count, 1)).reshape(-1)
        chosen = np.arange(f.count) if m is None else np.flatnonzero(m.any(axis=1))
        for row in chosen:
            count = (1 << 20) - (int(words[row]) >> 1 & _COUNT_MASK)
            f.batch.mbarriers.initialise(f, int(row), int(where[row % len(where)]), count)

    return run


def _phase_check(w: Word) -> Flow:
    """SYNCS.PHASECHK: whether the phase of a parity, in bit 31 of a register, has ended."""
    # On sm_90 bit 70 is set, on sm_120 bit 76 instead, for every scope and order that PTX can ask.
    w.ignore(70, 3)
    w.ignore(73, 1)
    w.ignore(76, 5)
    address, parity = _barrier_address(w), w.reader(32, uniform=False)
    number = w.destination_predicate(81)
    w.ignore(84, 7)
    after = w.instruction.address + _INSTRUCTION_BYTES

    def control(f: Front, m: Mask) -> int | None:
        wanted = f.full(parity(f)) >> U32(31)
        ended = f.batch.mbarriers.ended(f, m, f.full(address(f)), wanted)
        if number != PT:
            f.put_predicate(number, ended, m)
        # Who waits in a loop lets others go first: the hardware suspends it for a while.
        lanes = ended if m is None else ended | ~m
        return after if lanes.all() else f.batch.give_way(f, after)

    return Flow(control)


def _arrive(w: Word) -> Run:
    kind = w.take(84, 3)
    if kind not in _ARRIVALS:
        raise w.unknown("an arrival of this kind")
    w.ignore(70, 3)
    how = w.take(73, 3)
    if how not in (_PLAIN, _REDUCTION, _OPT_OUT, _REDUCTION_OPT_OUT):
        raise w.unknown("an arrival of this kind")
    w.ignore(77, 4)
    w.ignore(87, 4)
    w.ignore(81, 3)
    w.ignore(76)
    address, value = _barrier_address(w), w.reader(32, uniform=False)
    state = w.destination(count=2)
    if state != RZ and how in (_REDUCTION, _REDUCTION_OPT_OUT):
        raise w.unknown("the state of an arrival that gives none")
    arrivals, transactions = _ARRIVALS[kind]
    leaves = how in (_OPT_OUT, _REDUCTION_OPT_OUT)

    def run(f: Front, m: Mask) -> None:
        lanes = np.arange(f.count * 32) if m is None else np.flatnonzero(f.full(m))
        where = f.full(address(f)).reshape(-1)[lanes]
        values = f.full(value(f)).reshape(-1)[lanes].astype(np.int64)
        zero, one = np.zeros_like(values), np.ones_like(values)
        count = {"one": one, "none": zero, "register": values}[arrivals]
        awaited = {"none": zero, "register": values}[transactions]
        states = f.batch.mbarriers.arrive(f, lanes, where, count, awaited, leaves=leaves)
        f.put_words(state, states.view(U32).reshape(-1, 2).T, lanes)

    return run


@maker("UBLKCP")
def _bulk_copy(w: Word) -> Run:
    """cp.async.bulk from global memory to the shared memory of one block or of several."""
    to_shared, from_shared, multicast = w.flag(73), w.flag(74), w.flag(75)
    if not to_shared or from_shared:
        raise w.unknown("a bulk copy that is not from global to shared memory")
    w.ignore(81, 3)
    w.ignore(16, 8)
    w.ignore(87, 4)
    source = w.reader64(24, uniform=True)
    number = w.register(32, uniform=True, count=2)
    size = w.reader(64, uniform=True)

    def run(f: Front, m: Mask) -> None:
        rows = np.arange(f.count) if m is None else np.flatnonzero(f.full(m).any(axis=1))
        sources, sizes = source(f).reshape(-1), size(f).reshape(-1)
        to, barrier = (f.uniform_register(number + i).reshape(-1) for i in range(2))
        for row in rows:
            word = int(sizes[row])
            blocks = word >> 16 if multicast else None
            nbytes = (word & 0xFFFF) * _COPY_UNIT_BYTES
            f.batch.bulk_copy(
                f, int(row), int(sources[row]), int(to[row]), int(barrier[row]), nbytes, blocks
            )

    return run


@maker("UCGABAR_ARV")
def _cluster_arrive(w: Word) -> Run:
    w.ignore(16, 89)
    return lambda f, m: f.batch.cluster_barriers.arrive(f, m)


@maker("UCGABAR_WAIT")
def _cluster_wait(w: Word) -> Flow:
    w.ignore(16, 89)
    after = w.instruction.address + _INSTRUCTION_BYTES
    return Flow(lambda f, m: f.batch.cluster_barriers.wait(f, m, after))
