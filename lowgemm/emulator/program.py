"""A kernel's machine code, every instruction made ready to execute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from lowgemm.binary.instruction import Instruction, decode_at
from lowgemm.binary.sass import SassKernel
from lowgemm.emulator import (  # noqa: F401  # they fill MAKERS
    access,
    clusters,
    control,
    floating,
    integer,
    tensor_copies,
    warp,
)
from lowgemm.emulator.operation import MAKERS, Flow, Operation, Run
from lowgemm.emulator.word import PT, Word, read_predicate
from lowgemm.errors import UnknownInstructionError
from lowgemm.hardware import Architecture
from lowgemm.isa import Pipe

if TYPE_CHECKING:
    from lowgemm.emulator.front import Front, Mask

__all__ = ["Program", "compile_program"]

_NEVER = 15
#: Operations that are kept: those of a kernel and of its variants.
_KEPT = 1 << 15
#: Operations of the uniform pipe that work on a warp's lanes and are guarded by their predicates.
_OF_LANES = frozenset(("R2UR", "S2UR", "CS2UR", "VOTEU", "REDUX", "CREDUX", "ELECT"))
#: Sub-word accesses to shared memory: widths below 32 bits.
_NARROW = frozenset((8, 16))
#: Loads that may be of shared memory.
_LOADS = frozenset(("LDS", "LD"))
_PHASE_BIT = 1 << 31
#: Where an access's immediate begins.
_OFFSET = 40
_WORD_AROUND = (0xFFFFFFFD, 0xFFFFFFFC)


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A kernel, ready to execute: an operation for each 16 bytes of its code.

    An instruction that the emulator does not know raises its error when a warp executes it.
    ``approximate`` are the addresses of approximate functions (MUFU), whose results may differ from
    a GPU's in the last bits. ``compared_loads`` are the indices of loads from shared memory whose
    value a compare-and-swap is given to compare, and notices if another warp was faster, or in
    which the phase of an mbarrier is looked at.
    """

    kernel: SassKernel
    operations: tuple[Operation, ...]
    approximate: tuple[int, ...]
    shared_granularity: int
    compared_loads: frozenset[int]
    texts: Callable[[str], SassKernel | None] = field(repr=False, compare=False)

    def described(self, address: int) -> Instruction:
        """The instruction at an address, with nvdisasm's text and source line if possible."""
        told = self.texts(self.kernel.name) or self.kernel
        return told.instructions[address >> 4]

    @property
    def unknown(self) -> tuple[UnknownInstructionError, ...]:
        """The instructions that the emulator does not know."""
        return tuple(each.error for each in self.operations if each.error is not None)


def _no_texts(name: str) -> SassKernel | None:
    return None


def compile_program(
    kernel: SassKernel, texts: Callable[[str], SassKernel | None] = _no_texts
) -> Program:
    """Make every instruction of a kernel ready.

    Parameters
    ----------
    kernel
        Its machine code.
    texts
        Gives the kernel of a name with nvdisasm's texts; asked for where something is reported.
    """
    arch = kernel.arch
    operations = tuple(
        _compiled(each.address, each.low, each.high, arch) for each in kernel.instructions
    )
    approximate = tuple(each.address for each in kernel.instructions if each.name == "MUFU")
    narrow = any(
        each.width_bits in _NARROW and each.name in ("LDS", "STS", "LD", "ST")
        for each in kernel.instructions
    )
    granularity = 1 if narrow else 4
    compared = _compared_loads(operations) | _phase_tests(operations)
    return Program(kernel, operations, approximate, granularity, compared, texts)


def _compared_loads(operations: Sequence[Operation]) -> frozenset[int]:
    """The loads before a compare-and-swap, perhaps in shared memory, of what it compares."""
    found: set[int] = set()
    for index, operation in enumerate(operations):
        if operation.instruction.low & 0x1FF in (access.SHARED_CAS, access.GENERIC_CAS):
            found |= _loads_compared_at(operations, index)
    return frozenset(found)


def _loads_compared_at(operations: Sequence[Operation], at: int) -> set[int]:
    """The loads that wrote what a compare-and-swap compares.

    Where 16 bits are swapped, it compares the word around them, loaded from the same place, with
    bytes put in, which may have been loaded from there too.
    """
    swap = operations[at].instruction
    wanted, found = {swap.low >> 32 & 0xFF}, set()
    bases, put_in = {swap.low >> 24 & 0xFF}, False
    for index in range(at - 1, -1, -1):
        operation = operations[index]
        instruction, written = operation.instruction, _registers(operation.writes)
        if written & bases:
            bases -= written
            if _gives_word_around(instruction):
                bases.add(instruction.low >> 24 & 0xFF)
        if not written & wanted:
            continue
        wanted -= written
        if instruction.name in _LOADS:
            same_place = instruction.low >> 24 & 0xFF in bases
            same_place &= (instruction.low ^ swap.low) >> _OFFSET == 0
            if same_place or not put_in:
                found.add(index)
        elif instruction.name in ("PRMT", "LOP3"):
            wanted |= _registers(operation.reads)
            put_in = True
        if not wanted:
            break
    return found


def _gives_word_around(instruction: Instruction) -> bool:
    """Whether it clears the lowest bits of an address: LOP3 with an immediate, a & b."""
    return (
        instruction.name == "LOP3"
        and instruction.low >> 32 in _WORD_AROUND
        and instruction.high >> 8 & 0xFF == 0xC0
    )


def _phase_tests(operations: Sequence[Operation]) -> frozenset[int]:
    """The loads of an mbarrier's phase, before sm_90 in bit 31 of its second word.

    They are those of a kernel that arrives at some whose value is first masked with this bit.
    """
    instructions = [each.instruction for each in operations]
    if not any(access.is_memory_arrival(each.low, each.high) for each in instructions):
        return frozenset()
    found = set()
    for index, instruction in enumerate(instructions):
        if instruction.name in _LOADS:
            loaded = instruction.low >> 16 & 0xFF
            uses = (
                i
                for i in range(index + 1, len(operations))
                if loaded in _registers(operations[i].reads)
            )
            first = instructions[next(uses, index)]
            if first.name == "LOP3" and first.low >> 32 == _PHASE_BIT:
                found.add(index)
    return frozenset(found)


def _registers(ranges: Sequence[tuple[int, int, bool]]) -> set[int]:
    return {first + i for first, count, uniform in ranges if not uniform for i in range(count)}


@lru_cache(maxsize=_KEPT)
def _compiled(address: int, low: int, high: int, arch: Architecture) -> Operation:
    return _operation(decode_at(address, low, high, arch), arch)


def _refusing(error: UnknownInstructionError) -> Run:
    def run(f: Front, m: Mask) -> None:
        raise f.batch.launch.located(error)

    return run


def _operation(instruction: Instruction, arch: Architecture) -> Operation:
    opcode = instruction.opcode
    of_lanes = instruction.name in _OF_LANES
    uniform = opcode is not None and opcode.pipe is Pipe.UNIFORM and not of_lanes
    word = Word(instruction, arch, uniform=uniform)
    guard = None
    number, negated = instruction.guard & 7, bool(instruction.guard & 8)
    is_tma = opcode is not None and opcode.pipe is Pipe.TMA
    initialises = instruction.name == "SYNCS" and instruction.low & 0x1FF == 0x1B2
    by_uniform = uniform or is_tma or initialises
    if number != PT:
        guard = read_predicate(number, negated, by_uniform)
    operation = Operation(
        instruction,
        guard=guard,
        never=instruction.guard == _NEVER,
        uniform=uniform,
        uniform_guard=by_uniform,
        next=instruction.address + 16,
    )
    if operation.never:
        return operation
    try:
        made = _made(word)
    except UnknownInstructionError as error:
        operation.error = error
        operation.run = _refusing(error)
        return operation
    if isinstance(made, Flow):
        operation.control = made.control
        operation.guard = None if made.sees_guard else guard
    else:
        operation.run = made
    operation.reads = (*word.reads, *_reads_without_a_value(instruction, word))
    operation.writes = tuple(word.writes)
    operation.reads_predicates = tuple(word.reads_predicates)
    operation.writes_predicates = tuple(word.writes_predicates)
    return operation


def _made(word: Word) -> Run | Flow:
    """What an instruction does.

    Raises
    ------
    UnknownInstructionError
        The emulator does not know it, or some of its bits.
    """
    name = word.instruction.name
    if name not in MAKERS:
        raise word.unknown("the emulator does not know this operation")
    made = MAKERS[name](word)
    word.finish()
    return made


def _reads_without_a_value(
    instruction: Instruction, word: Word
) -> tuple[tuple[int, int, bool], ...]:
    """Registers that the hardware reads though no value depends on them here.

    They are the descriptors and addresses of hints in uniform registers, which are pairs, and what
    NANOSLEEP and the like take.
    """
    known = {(first, uniform) for first, _, uniform in word.reads}
    return tuple(
        (each.number, 2 if each.uniform else 1, each.uniform)
        for each in instruction.registers
        if not each.written and (each.number, each.uniform) not in known
    )
