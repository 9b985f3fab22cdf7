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


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel, ready to execute: an operation for each 16 bytes of its code.

    An instruction that the emulator does not know raises its error when a warp executes it.
    ``approximate`` are the addresses of approximate functions (MUFU), whose results may differ from
    a GPU's in the last bits. ``compared_loads`` are the indices of loads from shared memory whose
    value a compare-and-swap is given to compare: it notices if another warp was faster.
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
    return Program(kernel, operations, approximate, granularity, _compared_loads(operations), texts)


def _compared_loads(operations: Sequence[Operation]) -> frozenset[int]:
    """The loads before a compare-and-swap in shared memory that wrote what it compares."""
    found = set()
    for index, operation in enumerate(operations):
        if operation.instruction.low & 0x1FF != access.SHARED_CAS:
            continue
        compared = operation.instruction.low >> 32 & 0xFF
        for before in range(index - 1, -1, -1):
            if any(
                first <= compared < first + count and not uniform
                for first, count, uniform in operations[before].writes
            ):
                if operations[before].instruction.name == "LDS":
                    found.add(before)
                break
    return frozenset(found)


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
    by_uniform = uniform or (instruction.name == "SYNCS" and instruction.low & 0x1FF == 0x1B2)
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
