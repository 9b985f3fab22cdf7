"""When a result may be used: fixed latencies by producer and consumer, and who has none.

An operation of fixed latency writes no scoreboard: the code must let enough cycles pass, by the
stall counts of the instructions in between, before its result is used. How many depends on what
makes the result and on what uses it. The cycles here are the fewest that ptxas (NVRTC 13.5) ever
left between the two on sm_80 to sm_120, in straight-line code of 152 kernels an architecture (the
ladder, the tests' files and textbook kernels: some 5,000 uses of ALU results by the ALU on each,
10,000 of FMA results by the FMA pipe). Where few uses were seen, the pair has the cycles of the
like pair on the other architectures, or of the weakest consumer.

Everything else has a variable latency: its instruction names a scoreboard, and who uses the result
waits for that. Units that work in order need no scoreboard of each operation: a later one's
does for all before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from lowgemm.isa.opcode import Opcode, Pipe, Space

__all__ = [
    "DRAIN_CYCLES",
    "SCOREBOARD_CYCLES",
    "Consumer",
    "Producer",
    "consumer_of",
    "fixed_latency",
    "has_fixed_latency",
    "in_order_unit",
    "predicate_consumer_of",
    "producer_of",
]

#: What a stall count of 0 stands for.
DRAIN_CYCLES = 35
#: From an instruction that sets a scoreboard to the first whose wait mask sees it: ptxas leaves two
#: on sm_80 to sm_120, and on an H200 a wait in the very next cycle does not wait. DEPBAR sees it.
SCOREBOARD_CYCLES = 2
#: The operation numbers (bits 0-8) of IMAD.WIDE, of IMAD.HI, whose addend is a pair as well, and
#: of the HFMA2 that the tensor pipe executes.
_WIDE_PRODUCT = 0x025
_HIGH_PRODUCT = 0x027
_HALF_ON_TENSOR = 0x035
_HOPPER, _BLACKWELL = 9, 10


class Producer(StrEnum):
    """What makes a result, as far as its latency depends on it."""

    ALU = "ALU"
    FMA = "FMA"
    WIDE_LOW = "IMAD.WIDE, low word"
    HALF = "packed halves"
    HALF_ON_TENSOR = "HFMA2 on the tensor pipe"
    FP64 = "FP64"
    UNIFORM = "uniform"
    UNIFORM_EARLY = "ULDC, UMOV, VOTEU"
    TO_UNIFORM = "R2UR, ELECT"
    PREDICATE_ALU = "predicate of the ALU"
    PREDICATE_FMA = "predicate of the FMA pipe"
    PREDICATE_FP64 = "predicate of the FP64 pipe"
    PREDICATE_UNIFORM = "uniform predicate"
    PREDICATE_EARLY = "uniform predicate of VOTEU"
    BARRIER = "BAR, which holds the warp"


class Consumer(StrEnum):
    """What uses a result, as far as the producer's latency depends on it."""

    ALU = "ALU"
    FMA = "FMA"
    HALF = "packed halves"
    WIDE_HIGH = "IMAD.WIDE, high word of C"
    FP64 = "FP64"
    LSU = "LSU"
    LSU_INDEX = "LDC, MATCH, SYNCS"
    XU = "XU"
    UNIFORM = "uniform"
    CONTROL = "control"
    GUARD = "guard"
    PREDICATE = "predicate operand of the ALU"
    PREDICATE_FMA = "predicate operand of the FMA pipe"
    PREDICATE_UNIFORM = "predicate operand of the uniform pipe"
    PREDICATE_LATE = "P2R"
    PREDICATE_VOTE = "predicate operand of votes, branches, barriers, memory"


_C = Consumer
#: Cycles by producer; a consumer that is not named has the fewest of its row.
_CYCLES: dict[Producer, Mapping[Consumer, int]] = {
    Producer.ALU: {
        _C.ALU: 4, _C.FMA: 5, _C.WIDE_HIGH: 5, _C.FP64: 6, _C.LSU: 5, _C.LSU_INDEX: 4, _C.XU: 4,
        _C.UNIFORM: 4, _C.CONTROL: 4,
    },
    Producer.FMA: {
        _C.ALU: 5, _C.FMA: 4, _C.WIDE_HIGH: 4, _C.FP64: 6, _C.LSU: 5, _C.LSU_INDEX: 4, _C.XU: 4,
        _C.UNIFORM: 4, _C.CONTROL: 4,
    },
    Producer.WIDE_LOW: {
        _C.ALU: 5, _C.FMA: 4, _C.WIDE_HIGH: 4, _C.FP64: 6, _C.LSU: 5, _C.LSU_INDEX: 4, _C.XU: 4,
        _C.UNIFORM: 4, _C.CONTROL: 4,
    },
    Producer.HALF: {
        _C.ALU: 5, _C.FMA: 5, _C.HALF: 4, _C.WIDE_HIGH: 4, _C.LSU: 5, _C.LSU_INDEX: 4, _C.XU: 4,
        _C.CONTROL: 4,
    },
    Producer.HALF_ON_TENSOR: {_C.ALU: 9, _C.FMA: 10, _C.WIDE_HIGH: 10, _C.LSU: 5, _C.CONTROL: 6},
    Producer.FP64: {_C.ALU: 10, _C.FMA: 10, _C.FP64: 8, _C.LSU: 7, _C.XU: 6},
    Producer.UNIFORM: {
        _C.ALU: 6, _C.FMA: 6, _C.WIDE_HIGH: 6, _C.FP64: 6, _C.LSU: 9, _C.LSU_INDEX: 9, _C.XU: 9,
        _C.UNIFORM: 4, _C.CONTROL: 9,
    },
    Producer.UNIFORM_EARLY: {_C.ALU: 2},
    Producer.TO_UNIFORM: {_C.FMA: 11, _C.ALU: 12, _C.LSU: 13, _C.UNIFORM: 13},
    Producer.PREDICATE_ALU: {
        _C.PREDICATE: 4, _C.PREDICATE_FMA: 5, _C.PREDICATE_LATE: 2, _C.PREDICATE_VOTE: 13,
        _C.GUARD: 13,
    },
    Producer.PREDICATE_FMA: {
        _C.PREDICATE: 5, _C.PREDICATE_FMA: 4, _C.PREDICATE_LATE: 2, _C.PREDICATE_VOTE: 13,
        _C.GUARD: 13,
    },
    Producer.PREDICATE_FP64: {
        _C.PREDICATE: 6, _C.PREDICATE_FMA: 6, _C.PREDICATE_LATE: 4, _C.PREDICATE_VOTE: 14,
        _C.GUARD: 14,
    },
    Producer.PREDICATE_UNIFORM: {
        _C.PREDICATE: 6, _C.PREDICATE_UNIFORM: 4, _C.PREDICATE_VOTE: 9, _C.GUARD: 11,
    },
    Producer.PREDICATE_EARLY: {_C.PREDICATE: 2, _C.GUARD: 5},
    # Until then the warp goes on. ptxas leaves six to whatever is no arithmetic. On an H200 a store
    # to shared memory two cycles behind the barrier overtook other warps' loads in front of it: one
    # of a hundred elements of a GEMM was wrong. With six cycles none was.
    Producer.BARRIER: {_C.LSU: 6},
}  # fmt: skip
#: What differs from sm_90 on: IMAD.WIDE takes the high word of C two cycles after the rest, and
#: its own low word is there two cycles earlier.
_SINCE_HOPPER: dict[tuple[Producer, Consumer], int] = {
    (Producer.ALU, _C.WIDE_HIGH): 3,
    (Producer.FMA, _C.WIDE_HIGH): 2,
    (Producer.WIDE_LOW, _C.WIDE_HIGH): 2,
    (Producer.HALF, _C.WIDE_HIGH): 3,
    (Producer.HALF_ON_TENSOR, _C.WIDE_HIGH): 8,
    (Producer.WIDE_LOW, _C.ALU): 3,
}


def fixed_latency(producer: Producer, consumer: Consumer, major: int) -> int:
    """Cycles from the issue of a producer to the first at which a consumer may issue.

    Parameters
    ----------
    producer, consumer
        What makes the result, and what uses it.
    major
        The architecture's major version.
    """
    if major >= _HOPPER and (producer, consumer) in _SINCE_HOPPER:
        return _SINCE_HOPPER[producer, consumer]
    row = _CYCLES[producer]
    if consumer is Consumer.HALF and consumer not in row:
        consumer = Consumer.FMA
    return row[consumer] if consumer in row else min(row.values())


def has_fixed_latency(opcode: Opcode, major: int) -> bool:
    """Whether stall counts alone protect an operation's results.

    FP64 is a pipe of fixed latency on sm_90 only; R2UR has a scoreboard before sm_90.
    """
    match opcode.pipe:
        case Pipe.FP64:
            return major == _HOPPER
        case Pipe.UNIFORM:
            if opcode.name == "R2UR":
                return major >= _HOPPER
            return opcode.name not in ("S2UR", "REDUX", "CREDUX", "LDCU")
        case Pipe.ALU | Pipe.FMA | Pipe.HALF:
            return opcode.name != "MOVM"
        case _:
            return False


def in_order_unit(opcode: Opcode) -> str | None:
    """The unit that gives results in the order of its operations; None where there is no order."""
    if opcode.pipe in (Pipe.XU, Pipe.FP64):
        return opcode.pipe.value
    if opcode.name in ("SHFL", "LDS", "LDSM", "ATOMS") or opcode.space is Space.SHARED:
        return "shared memory"
    return opcode.name if opcode.name in ("LDC", "QSPC", "S2UR", "B2R") else None


def _pipe(opcode: Opcode, major: int) -> Pipe:
    """Where it executes: on sm_90 and sm_100 VIADD has the latencies of the FMA pipe."""
    fma = opcode.name == "VIADD" and major in (_HOPPER, _BLACKWELL)
    return Pipe.FMA if fma else opcode.pipe


def producer_of(
    opcode: Opcode, number: int, major: int, *, predicate: bool = False, word: int = 0
) -> Producer:
    """The class of a result of fixed latency.

    Parameters
    ----------
    opcode, number
        The operation, and its number (bits 0-8).
    major
        The architecture's major version.
    predicate
        Whether the result is a predicate; otherwise it is a register.
    word
        Which of the result's registers.
    """
    pipe = _pipe(opcode, major)
    if predicate:
        return _predicate_producer(opcode, pipe)
    match pipe:
        case Pipe.FMA if number == _WIDE_PRODUCT and word == 0:
            return Producer.WIDE_LOW
        case Pipe.FMA:
            return Producer.FMA
        case Pipe.HALF if number == _HALF_ON_TENSOR and major < _BLACKWELL:
            return Producer.HALF_ON_TENSOR
        case Pipe.HALF:
            return Producer.HALF
        case Pipe.FP64:
            return Producer.FP64
        case Pipe.UNIFORM if opcode.name in ("ULDC", "UMOV", "VOTEU"):
            return Producer.UNIFORM_EARLY
        case Pipe.UNIFORM if opcode.name in ("R2UR", "ELECT"):
            return Producer.TO_UNIFORM
        case Pipe.UNIFORM:
            return Producer.UNIFORM
        case _:
            return Producer.ALU


def _predicate_producer(opcode: Opcode, pipe: Pipe) -> Producer:
    if pipe is Pipe.UNIFORM and opcode.name != "ELECT":
        is_vote = opcode.name == "VOTEU"
        return Producer.PREDICATE_EARLY if is_vote else Producer.PREDICATE_UNIFORM
    found = {Pipe.FMA: Producer.PREDICATE_FMA, Pipe.FP64: Producer.PREDICATE_FP64}
    return found.get(pipe, Producer.PREDICATE_ALU)


_REGISTER_CONSUMERS = {
    Pipe.ALU: Consumer.ALU,
    Pipe.FMA: Consumer.FMA,
    Pipe.HALF: Consumer.HALF,
    Pipe.FP64: Consumer.FP64,
    Pipe.XU: Consumer.XU,
    Pipe.UNIFORM: Consumer.UNIFORM,
    Pipe.CONTROL: Consumer.CONTROL,
}


def consumer_of(opcode: Opcode, number: int, major: int, slot: str, word: int) -> Consumer:
    """The class of a register operand.

    Parameters
    ----------
    opcode, number
        The operation, and its number (bits 0-8).
    major
        The architecture's major version.
    slot, word
        The operand's slot (``a``, ``b``, ``c``, ...), and which of its registers.
    """
    if number in (_WIDE_PRODUCT, _HIGH_PRODUCT) and slot == "c" and word == 1:
        return Consumer.WIDE_HIGH
    if opcode.name in ("LDC", "MATCH", "SYNCS"):
        return Consumer.LSU_INDEX
    return _REGISTER_CONSUMERS.get(_pipe(opcode, major), Consumer.LSU)


def predicate_consumer_of(opcode: Opcode, major: int) -> Consumer:
    """The class of a predicate operand; a guard is :attr:`Consumer.GUARD`."""
    if opcode.name in ("P2R", "UP2UR"):
        return Consumer.PREDICATE_LATE
    if opcode.name in ("VOTE", "VOTEU"):
        return Consumer.PREDICATE_VOTE
    match _pipe(opcode, major):
        case Pipe.CONTROL | Pipe.LSU | Pipe.TEXTURE | Pipe.TMA:
            # An LDGSTS that comes sooner fills with zeros by the predicate as it was: seen on an
            # H200. ptxas leaves 13 cycles before each.
            return Consumer.PREDICATE_VOTE
        case Pipe.FMA:
            return Consumer.PREDICATE_FMA
        case Pipe.UNIFORM:
            return Consumer.PREDICATE_UNIFORM
        case _:
            return Consumer.PREDICATE
