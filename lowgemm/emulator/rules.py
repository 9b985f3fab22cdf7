"""What an instruction asks of control words: its operands, their latencies, its scoreboards."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from lowgemm.emulator.operation import Operation
from lowgemm.emulator.program import Program
from lowgemm.emulator.word import PT
from lowgemm.isa import Opcode, Pipe
from lowgemm.isa.latency import (
    DRAIN_CYCLES,
    Consumer,
    Producer,
    consumer_of,
    has_fixed_latency,
    in_order_unit,
    predicate_consumer_of,
    producer_of,
)

__all__ = [
    "BARRIER",
    "PREDICATE",
    "SCOREBOARDS",
    "UNIFORM",
    "UNIFORM_PREDICATE",
    "Rule",
    "Rules",
    "Use",
    "register_name",
    "rules_of",
]

SCOREBOARDS = 6
#: Where the kinds of registers begin in one numbering of all.
UNIFORM, PREDICATE, UNIFORM_PREDICATE = 256, 512, 520
#: No register: what accesses to memory need of a barrier.
BARRIER = 528
#: Pipes that read the sources of their operations some time after these have issued.
_LATE_READERS = (Pipe.LSU, Pipe.XU, Pipe.TMA)
#: Pipes of accesses to memory.
_TO_MEMORY = (Pipe.LSU, Pipe.TMA)


def _register_key(number: int, uniform: bool) -> int:
    return number + UNIFORM if uniform else number


def _predicate_key(number: int, uniform: bool) -> int:
    return number + (UNIFORM_PREDICATE if uniform else PREDICATE)


def register_name(key: int) -> str:
    """A register as assembly writes it."""
    if key == BARRIER:
        return "the barrier"
    for first, prefix in ((UNIFORM_PREDICATE, "UP"), (PREDICATE, "P"), (UNIFORM, "UR")):
        if key >= first:
            return f"{prefix}{key - first}"
    return f"R{key}"


@dataclass(frozen=True, slots=True)
class Use:
    """A register or predicate that an instruction reads.

    ``key`` numbers all registers; ``slot`` is the operand's, ``@`` for the guard.
    """

    key: int
    consumer: Consumer
    slot: str


@dataclass(frozen=True, slots=True)
class Rule:
    """What an instruction's control word and operands ask for.

    ``waits`` are the scoreboards that it waits for; ``leaves`` is a scoreboard of which so many
    operations may be under way. ``boards`` are those that it sets. ``results`` are what it writes,
    with the class of its latency, None where that is variable. ``sources`` are the registers that
    it reads only some time after it has issued. ``slots`` are the operand slots in which it reads
    registers, ``kept`` slot and register of its operands with ``.reuse``; ``yields`` says that it
    empties the reuse cache. ``accesses`` says that it goes to memory, which a barrier orders.
    ``never`` tells of an instruction that is predicated off
    for good, ``negated`` of a guard that must be false, ``drains`` of one after which the warp goes
    on only when all that it has under way is over (a stall count of 0: code for a debugger has no
    other protection).
    """

    index: int
    stall: int
    waits: tuple[int, ...]
    leaves: tuple[int, int] | None
    write_scoreboard: int | None
    boards: tuple[int, ...]
    guard: Use | None
    reads: tuple[Use, ...]
    results: tuple[tuple[int, Producer | None], ...]
    sources: tuple[int, ...]
    slots: frozenset[str]
    kept: tuple[tuple[str, int], ...]
    yields: bool
    unit: str | None
    late_reader: str | None
    is_barrier: bool
    accesses: bool
    never: bool
    negated: bool
    drains: bool


class Rules:
    """The rules of a program, by index."""

    def __init__(self, program: Program) -> None:
        major = program.kernel.arch.major
        self.program = program
        self.major = major
        self.rules = tuple(
            _rule(index, each, major) for index, each in enumerate(program.operations)
        )


@functools.lru_cache(maxsize=4)
def rules_of(program: Program) -> Rules:
    """The rules of a program; those of the last few are kept."""
    return Rules(program)


def _rule(index: int, operation: Operation, major: int) -> Rule:
    instruction = operation.instruction
    control, opcode = instruction.control, instruction.opcode
    late = opcode is not None and opcode.pipe in _LATE_READERS and not operation.never
    reads = tuple(_reads(operation, major))
    written = tuple(_results(operation, major))
    return Rule(
        index=index,
        stall=control.stall or DRAIN_CYCLES,
        waits=control.waits_for + _named_by_depbar(operation),
        leaves=_left_by_depbar(operation),
        write_scoreboard=control.write_scoreboard,
        boards=_boards(control.write_scoreboard, control.read_scoreboard),
        guard=_guard(operation),
        reads=reads,
        results=written,
        sources=_late_sources(opcode, reads) if late and opcode is not None else (),
        slots=frozenset(each.slot for each in reads if each.key < PREDICATE),
        kept=_kept(operation, reads),
        yields=not control.stay,
        unit=in_order_unit(opcode) if opcode is not None else None,
        late_reader=opcode.pipe.value if late and opcode is not None else None,
        is_barrier=instruction.name == "BAR",
        accesses=opcode is not None and opcode.pipe in _TO_MEMORY and not operation.never,
        never=operation.never,
        negated=bool(instruction.guard & 8),
        drains=control.stall == 0,
    )


def _late_sources(opcode: Opcode, reads: tuple[Use, ...]) -> tuple[int, ...]:
    """The registers that are read some time after the issue.

    Uniform ones are read at once, but for TMA's: ptxas guards them with the read scoreboard.
    """
    end = PREDICATE if opcode.pipe is Pipe.TMA else UNIFORM
    return tuple({each.key for each in reads if each.key < end})


def _boards(*boards: int | None) -> tuple[int, ...]:
    return tuple(each for each in boards if each is not None and each < SCOREBOARDS)


def _guard(operation: Operation) -> Use | None:
    number = operation.instruction.guard & 7
    if number == PT:
        return None
    return Use(_predicate_key(number, operation.uniform_guard), Consumer.GUARD, "@")


def _reads(operation: Operation, major: int) -> Iterator[Use]:
    instruction = operation.instruction
    opcode, number = instruction.opcode, instruction.low & 0x1FF
    if opcode is None:
        return
    slots: dict[tuple[int, bool], list[str]] = {}
    for each in instruction.registers:
        if not each.written:
            slots.setdefault((each.number, each.uniform), []).append(each.slot)
    for first, count, uniform in operation.reads:
        for slot in slots.get((first, uniform), ["a"]):
            for word in range(count):
                consumer = consumer_of(opcode, number, major, slot, word)
                yield Use(_register_key(first + word, uniform), consumer, slot)
    for predicate, uniform in operation.reads_predicates:
        yield Use(_predicate_key(predicate, uniform), predicate_consumer_of(opcode, major), "")


def _results(operation: Operation, major: int) -> Iterator[tuple[int, Producer | None]]:
    instruction = operation.instruction
    opcode, number = instruction.opcode, instruction.low & 0x1FF
    if opcode is None:
        return
    fixed = has_fixed_latency(opcode, major)
    for first, count, uniform in operation.writes:
        for word in range(count):
            producer = producer_of(opcode, number, major, word=word) if fixed else None
            yield _register_key(first + word, uniform), producer
    for predicate, uniform in operation.writes_predicates:
        producer = producer_of(opcode, number, major, predicate=True) if fixed else None
        yield _predicate_key(predicate, uniform), producer


def _kept(operation: Operation, reads: tuple[Use, ...]) -> tuple[tuple[str, int], ...]:
    """What the reuse cache keeps; a yield empties it.

    It is found again by slot and register: ptxas sets every tenth flag where the next
    instruction reads another register in that slot, and would compute nonsense if slots alone
    counted. Others stand before an instruction without that slot, and the one behind it reads the
    register; whether the cache still has it then is not known, so that it may. No code of ptxas
    writes to the register before the slot is read again.
    """
    instruction = operation.instruction
    if not instruction.control.stay:
        return ()
    slots = {each.slot for each in instruction.registers if each.reuse}
    return tuple({(use.slot, use.key): None for use in reads if use.slot in slots})


def _named_by_depbar(operation: Operation) -> tuple[int, ...]:
    """The scoreboards in the mask of DEPBAR: bits 32 to 37."""
    if operation.instruction.name != "DEPBAR":
        return ()
    mask = operation.instruction.low >> 32 & 63
    return tuple(board for board in range(SCOREBOARDS) if mask >> board & 1)


def _left_by_depbar(operation: Operation) -> tuple[int, int] | None:
    """DEPBAR.LE: the scoreboard, and how many of those that set it may be under way."""
    low = operation.instruction.low
    if operation.instruction.name != "DEPBAR" or not low >> 47 & 1:
        return None
    return low >> 44 & 7, low >> 38 & 63
