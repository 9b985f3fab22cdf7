"""Where the register file and the issue slots bind: what a thread tile costs in the SM.

On chips with 128 lanes per SM an FFMA takes every issue slot of its sub-partition, so each other
instruction and each register-bank conflict costs one. On 64 lanes it takes every second slot, and
there is room. The costs marked "H200" were measured on one (FFMA loops with chosen operands, and a
GEMM with instructions left out); for other chips of 128 lanes they are an assumption.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lowgemm.errors import ArgumentValueError
from lowgemm.hardware.register_banks import read_cycles
from lowgemm.hardware.shared_memory import LOAD_EXTRA_CYCLES_PER_ROW
from lowgemm.model.levels import FLOAT_BYTES, SHARED_BYTES_PER_CYCLE, Machine
from lowgemm.model.values import ceil_div, count, positive, positive_or_zero

__all__ = [
    "ATTAINABLE_SHARE",
    "COPIES",
    "LANE_ORDERS",
    "WALKS",
    "IssueReport",
    "LoopCounts",
    "ThreadWork",
    "conflict_cycles_per_ffma",
    "counted_share",
    "issue_report",
    "load_wavefronts",
]

#: Independent FFMA chains reach this share of lanes x clock (H200: 65.4 of 66.9 TFLOP/s).
ATTAINABLE_SHARE = 65.4 / 66.9

# H200: what is left of an 8 x 16 loop's time when all that is known has been taken off, per FFMA:
# 30 slots of 1024, less the 8 conflicts of the first FFMA of each step, which the walk counts.
_UNEXPLAINED_PER_FFMA = 22 / 1024
# Two hand-finished loops have 41 and 63 instructions that are neither FFMA nor LDS, with 7 copies
# per thread in 8 steps along k and 14 in 16: that gives the loop's own, and those of each copy.
_LOOP_INSTRUCTIONS = 19
_INSTRUCTIONS_PER_COPY = 1 + 15 / 7
# The budget for a loop that TMA feeds: barrier waits, phases, the branch.
_TMA_INSTRUCTIONS = 10

#: How the FFMAs of a step along k follow each other, and who chose their registers.
WALKS = ("placed", "rows", "no-reuse", "ptxas", "ptxas-snake")
#: Modelled conflict cycles per FFMA in loops that ptxas allocated, from the times of H200
#: prototypes of 8 x 8 and 8 x 16: 0.06 to 0.12 with rows, 0.06 to 0.07 with a snake in the source.
_PTXAS = {"ptxas": 0.11, "ptxas-snake": 0.06}

#: How a warp's 32 lanes cover its tile: 4 rows of 8, or in the order of a Z, in which lane bit 0
#: moves along N alone and bit 1 along M alone.
LANE_ORDERS = ("rows", "z")
#: How a k-tile reaches shared memory: loads and stores through registers; cp.async for B while A is
#: transposed through registers; or the tensor memory accelerator.
COPIES = ("ldg", "cp.async", "tma")


# ---- register banks

_STEPS = 8
# Far more than a thread has registers for, and walked at once.
_LARGEST_THREAD_TILE = 4096


def conflict_cycles_per_ffma(tm: int, tn: int, walk: str) -> float:
    """Cycles beyond one per FFMA that reading the operands of a thread tile's outer product takes.

    Parameters
    ----------
    tm, tn
        The thread tile.
    walk
        ``"placed"``: like a snake, each accumulator in the bank opposite to the operand that is
        fresh; ``"rows"``: row after row with A kept; ``"no-reuse"``: no operand kept; these three
        by the rule of :func:`lowgemm.hardware.register_banks.read_cycles`. ``"ptxas"`` and
        ``"ptxas-snake"``: what the compiler's allocation was seen to cost (H200).

    Raises
    ------
    ArgumentValueError
        A side below 1, a thread tile far beyond the registers, or an unknown walk.
    """
    tm, tn = count("tm", tm), count("tn", tn)
    if walk not in WALKS:
        raise ArgumentValueError(f"{walk!r} is no walk", f"use one of {', '.join(WALKS)}")
    if walk in _PTXAS:
        return _PTXAS[walk]
    if tm * tn > _LARGEST_THREAD_TILE:
        raise ArgumentValueError(
            f"walking a thread tile of {tm} x {tn} elements",
            f"use at most {_LARGEST_THREAD_TILE}; a thread has no more than 255 registers",
        )
    # Step after step, so that what one leaves to the banks meets the next.
    reads = [fresh for _ in range(_STEPS) for fresh in _fresh_operands(tm, tn, walk)]
    return read_cycles(reads) / len(reads) - 1


def _fresh_operands(tm: int, tn: int, walk: str) -> Iterator[list[int]]:
    """Register numbers that each FFMA reads anew; only their parity matters."""
    kept_a, kept_b = -1, -1
    for i in range(tm):
        columns = range(tn)
        if walk == "placed" and i % 2:
            columns = range(tn - 1, -1, -1)
        for j in columns:
            a, b = 2 * i, 2 * j  # even numbers: bank 0
            fresh = [] if i == kept_a else [a]
            # A register in both slots would count once; B's numbers are A's no more.
            fresh += [] if j == kept_b else [2 * tm + b]
            accumulator = 2 * (tm + tn + i * tn + j) + 1  # the opposite bank
            yield [*fresh, accumulator]
            if walk != "no-reuse":
                kept_a = i
            if walk == "placed":
                kept_b = j


# ---- shared memory


def load_wavefronts(vector: int, *, merged: bool) -> int:
    """Wavefronts of a warp's conflict-free load of ``vector`` floats a lane.

    The floor is 1, 2 and 4 for 1, 2 and 4 floats. Where every lane n reads the address of lane
    n ^ 1, or every one that of n ^ 2, LDS.64 takes 1 and LDS.128 takes 2 (checked with counters of
    an H200).

    Raises
    ------
    ArgumentValueError
        A width other than 1, 2 or 4.
    """
    if count("vector", vector) not in (1, 2, 4):
        raise ArgumentValueError(f"a load of {vector} floats", "use 1, 2 or 4 floats")
    return max(1, vector // 2) if merged else vector


# ---- the report


@dataclass(frozen=True, slots=True)
class ThreadWork:
    """What a thread does, and how: the part of a tile configuration that the SM's inside sees.

    ``vector`` is the floats of a load from shared memory and of a copy, ``store_conflict_ways`` the
    bank conflicts of the transposed stores of A.

    Raises
    ------
    ArgumentValueError
        Sizes below 1, threads that do not make the block tile, or an unknown order, walk or copy.
    """

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    threads: int
    vector: int = 4
    lanes: str = "rows"
    walk: str = "ptxas"
    copy: str = "ldg"
    store_conflict_ways: int = 1

    def __post_init__(self) -> None:
        for name in ("bm", "bn", "bk", "tm", "tn", "threads", "store_conflict_ways"):
            count(name, getattr(self, name))
        load_wavefronts(count("vector", self.vector), merged=False)
        if self.threads * self.tm * self.tn != self.bm * self.bn:
            raise ArgumentValueError(
                f"{self.threads} threads of {self.tm} x {self.tn} elements make "
                f"{self.threads * self.tm * self.tn} of a block tile of {self.bm} x {self.bn}",
                f"use {self.bm * self.bn / (self.tm * self.tn):g} threads, or other tiles",
            )
        for value, known in (
            (self.lanes, LANE_ORDERS),
            (self.walk, WALKS),
            (self.copy, COPIES),
        ):
            if value not in known:
                raise ArgumentValueError(
                    f"{value!r} is none of {', '.join(known)}", "use one of them"
                )

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return ceil_div(self.threads, 32)


@dataclass(frozen=True, slots=True)
class IssueReport:
    """What a step along k costs. ``*_per_warp`` are of one warp, ``*_cycles`` of a block on its SM.

    ``slots_per_warp`` is everything that an issue slot or a register bank spends on a step.
    ``binds`` is ``"FFMA pipe"``, ``"register banks"``, ``"issue slots"`` or ``"shared memory"``.
    ``share_of_peak`` is what the lanes then reach of lanes x clock. ``loop_bytes`` is the size of
    the loop over a k-tile when it is unrolled whole: beyond about 32 KB the instruction cache
    starves it (H200).
    """

    ffma_per_warp: int
    lds_per_warp: int
    lds_bits: int
    other_per_warp: float
    conflict_cycles_per_warp: float
    slots_per_warp: float
    load_wavefronts: int
    store_wavefronts: float
    ffma_cycles: float
    issue_cycles: float
    shared_cycles: float
    binds: str
    share_of_peak: float
    loop_bytes: int

    @property
    def ffma_share(self) -> float:
        """FFMAs among the issued instructions."""
        issued = self.ffma_per_warp + self.lds_per_warp + self.other_per_warp
        return self.ffma_per_warp / issued


def issue_report(machine: Machine, work: ThreadWork) -> IssueReport:
    """Count a step along k and find what binds it.

    On 128 lanes per SM a step takes FFMAs + bank conflicts + LDS at their cost + other instructions
    + what stays unexplained; on 64 lanes the FFMA pipe's two cycles hide the rest unless it is as
    much. Shared memory serves one wavefront a cycle beside that.
    """
    ffma = work.tm * work.tn
    per_side = [ceil_div(side, work.vector) for side in (work.tm, work.tn)]
    lds = sum(per_side)
    others = _other_instructions(work) / work.bk
    pipe = _pipe_cycles(machine) * ffma
    conflicts = ffma * conflict_cycles_per_ffma(work.tm, work.tn, work.walk)
    if pipe > ffma:
        # In its two cycles an FFMA reads two operands of each bank; three in one bank are rare.
        conflicts = 0.0
    extra = lds * work.vector * LOAD_EXTRA_CYCLES_PER_ROW if pipe == ffma else 0.0
    busy = max(float(pipe), ffma + conflicts + lds + extra + others)
    slots = busy + _UNEXPLAINED_PER_FFMA * pipe
    loads = _block_load_wavefronts(work, per_side)
    stores = _store_wavefronts(work)
    partitions = machine.capability.partitions_per_sm
    ffma_cycles = work.bm * work.bn / machine.ffma_lanes_per_sm
    issue_cycles = work.warps * slots / partitions
    shared_cycles = (
        (loads + stores) * SHARED_BYTES_PER_CYCLE / machine.shared_bytes_per_cycle_per_sm
    )
    longest = max(ffma_cycles, issue_cycles, shared_cycles)
    instructions = ffma + lds + others
    return IssueReport(
        ffma_per_warp=ffma,
        lds_per_warp=lds,
        lds_bits=8 * FLOAT_BYTES * work.vector,
        other_per_warp=others,
        conflict_cycles_per_warp=conflicts,
        slots_per_warp=slots,
        load_wavefronts=loads,
        store_wavefronts=stores,
        ffma_cycles=ffma_cycles,
        issue_cycles=issue_cycles,
        shared_cycles=shared_cycles,
        binds=_binding(pipe, conflicts, busy, shared_cycles > issue_cycles),
        share_of_peak=ATTAINABLE_SHARE * ffma_cycles / longest,
        loop_bytes=round(16 * instructions * work.bk),
    )


@dataclass(frozen=True, slots=True)
class LoopCounts:
    """What machine code really has, per warp and step along k (or any number of steps).

    ``lds_rows`` are the registers that all its loads from shared memory write: four for an LDS.128.

    Raises
    ------
    ArgumentValueError
        No FFMA, or a negative count.
    """

    ffma: float
    lds: float
    lds_rows: float
    other: float
    conflict_cycles: float

    def __post_init__(self) -> None:
        positive("ffma", self.ffma)
        for name in ("lds", "lds_rows", "other", "conflict_cycles"):
            positive_or_zero(name, getattr(self, name))


def counted_share(machine: Machine, counts: LoopCounts) -> float:
    """The share of the FFMA peak that the issue of counted instructions allows.

    A step along k takes its instructions, the bank conflicts of its FFMAs, and what its loads from
    shared memory cost beyond their slots. On an H200 that gives ex8 and ex9 their measured rate.
    """
    pipe = _pipe_cycles(machine)
    slots = counts.ffma + counts.lds + counts.other
    if pipe == 1:
        slots += counts.conflict_cycles + counts.lds_rows * LOAD_EXTRA_CYCLES_PER_ROW
    work = pipe * counts.ffma
    return ATTAINABLE_SHARE * work / max(work, slots)


def _pipe_cycles(machine: Machine) -> int:
    """Cycles that the FFMA pipe of a sub-partition takes for a warp: 1 or 2."""
    cc = machine.capability
    return ceil_div(cc.threads_per_warp * cc.partitions_per_sm, cc.ffma_lanes_per_sm)


def _binding(pipe: int, conflicts: float, busy: float, shared_binds: bool) -> str:
    if shared_binds:
        return "shared memory"
    if busy <= pipe:
        return "FFMA pipe"
    return "register banks" if conflicts > busy - pipe - conflicts else "issue slots"


def _other_instructions(work: ThreadWork) -> float:
    """Per thread and k-tile: copies, their addresses and guards, the loop, barriers."""
    if work.copy == "tma":
        return _TMA_INSTRUCTIONS
    a_elements = work.bm * work.bk / work.threads
    b_elements = work.bn * work.bk / work.threads
    loads = a_elements / work.vector + b_elements / work.vector
    # A is transposed on the way, element by element; B keeps its order, and its width.
    copies = loads + a_elements
    if work.copy == "ldg":
        copies += b_elements / work.vector
    return copies * _INSTRUCTIONS_PER_COPY + _LOOP_INSTRUCTIONS


def _block_load_wavefronts(work: ThreadWork, per_side: list[int]) -> int:
    # In rows of 8 lanes, neighbours share a row of A and never a column of B.
    a = load_wavefronts(work.vector, merged=True)
    b = load_wavefronts(work.vector, merged=work.lanes == "z")
    return work.warps * (per_side[0] * a + per_side[1] * b)


def _store_wavefronts(work: ThreadWork) -> float:
    """Per step along k: whole rows of 128 bytes, but for conflicts in A's transposition."""
    row = SHARED_BYTES_PER_CYCLE / FLOAT_BYTES
    ways = 1 if work.copy == "tma" else work.store_conflict_ways
    return work.bm / row * ways + work.bn / row
