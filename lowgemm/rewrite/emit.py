"""Instructions in their new order, with their registers and control words."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from lowgemm.binary.instruction import Instruction
from lowgemm.hardware import Architecture
from lowgemm.isa import ControlWord, Pipe
from lowgemm.rewrite.allocate import Allocation, Moves, RegisterError
from lowgemm.rewrite.body import Item, Value
from lowgemm.rewrite.schedule import Schedule
from lowgemm.rewrite.tile import Visit

__all__ = ["NOP", "Word", "branch", "emit_body", "emit_moves", "pack"]

#: The low and the high half of an instruction.
Word = tuple[int, int]

NOP: Word = (0x7918, 0x000FC00000000000)

_FFMA_FIELDS = {"d": 16, "a": 24, "b": 32, "c": 64}
_BRANCH_LOW = 0x7947  # BRA, always
_MOVE_LOW, _MOVE_HIGH = 0x7202, 0xF00  # MOV Rd, Rb: all quarters of eight lanes
_ALWAYS = 7 << 12
_GUARD = 15 << 12
#: The longest stall count with which an instruction may stay on its warp.
_LONGEST_STAY = 11
#: A half-rate pipe takes an instruction every other cycle.
_MOVE_STALL = 2
_BRANCH_STALL = 5


def pack(words: Iterable[Word]) -> bytes:
    """The machine code."""
    return b"".join(struct.pack("<QQ", *word) for word in words)


def with_fields(word: Word, fields: Iterable[tuple[int, int]]) -> Word:
    """The same with other numbers in fields of eight bits, by their first bit."""
    bits = word[0] | word[1] << 64
    for at, number in fields:
        bits = bits & ~(255 << at) | number << at
    return bits & (1 << 64) - 1, bits >> 64


def with_control(word: Word, control: ControlWord) -> Word:
    """The same with another control word."""
    return word[0], control.encode(word[1])


def emit_body(
    schedule: Schedule, allocation: Allocation, boards: dict[int, tuple[int | None, int | None]]
) -> list[Word]:
    """The loop's instructions, the branch back at its end still with its old target.

    Parameters
    ----------
    schedule, allocation
        The order and the registers.
    boards
        Write and read scoreboard of each instruction that sets one, by its place.
    """
    words = []
    order = schedule.order
    for number, each in enumerate(order):
        if isinstance(each, Visit):
            following = order[number + 1] if number + 1 < len(order) else None
            words.append(_ffma(each, following, allocation.registers))
        else:
            words.append(_other(each, order[number + 1 :][:1], allocation.registers, boards))
    return words


def _number(value: Value, registers: dict[Value, int]) -> int:
    return registers.get(value, value.key)


def _ffma(visit: Visit, following: Visit | Item | None, registers: dict[Value, int]) -> Word:
    instruction = visit.item.instruction
    operands = {
        "a": visit.kept,
        "b": visit.varied,
        "c": visit.item.reads["c"][0],
        "d": visit.item.writes["d"][0],
    }
    fields = [(_FFMA_FIELDS[slot], _number(value, registers)) for slot, value in operands.items()]
    reuse = 0
    if isinstance(following, Visit):
        reuse |= 1 if following.kept is visit.kept else 0
        reuse |= 2 if following.varied is visit.varied else 0
    control = ControlWord(1, True, None, None, 0, reuse)
    return with_control(with_fields((instruction.low, instruction.high), fields), control)


def _other(
    item: Item,
    following: Sequence[Visit | Item],
    registers: dict[Value, int],
    boards: dict[int, tuple[int | None, int | None]],
) -> Word:
    instruction = item.instruction
    opcode = instruction.opcode
    word = instruction.low, instruction.high
    places = opcode.register_fields(word[0] | word[1] << 64) if opcode is not None else {}
    fields = [
        (places[slot], registers[values[0]])
        for operands in (item.reads, item.writes)
        for slot, values in operands.items()
        if slot in places and values and values[0] in registers
    ]
    write, read = boards.get(item.place, (None, None))
    stall = _stall(item, following)
    return with_control(with_fields(word, fields), ControlWord(stall, True, write, read, 0, 0))


def _stall(item: Item, following: Sequence[Visit | Item]) -> int:
    """Cycles before the next instruction, latencies apart."""
    opcode, old = item.instruction.opcode, item.instruction.control.stall
    if opcode is None or opcode.pipe is Pipe.CONTROL:
        return max(1, min(old, _LONGEST_STAY))
    alone = not following or isinstance(following[0], Visit)
    return 1 if alone else 2


# ---- around the loop


def emit_moves(moves: Moves, wait_mask: int) -> list[Word]:
    """Moves that happen as if all at once; what comes first waits for scoreboards.

    Raises
    ------
    RewriteError
        Registers change places in a circle, and none is spare.
    """
    pending = {to: source for to, source in moves.sources.items() if source != to}
    sequence: list[tuple[int, int]] = []
    while pending:
        ready = [target for target in pending if target not in pending.values()]
        if ready:
            sequence.extend((target, pending.pop(target)) for target in ready)
            continue
        # A cycle: one of its registers goes out of the way.
        if moves.spare is None:
            raise RegisterError("no register is spare to move others", "use fewer registers")
        target, source = next(iter(pending.items()))
        sequence.append((moves.spare, source))
        pending[target] = moves.spare
    words = [with_control(NOP, ControlWord(1, True, None, None, wait_mask, 0))]
    for target, source in sequence:
        word = _MOVE_LOW | target << 16 | source << 32, _MOVE_HIGH
        words.append(with_control(word, ControlWord(_MOVE_STALL, True, None, None, 0, 0)))
    return words


def branch(at: int, target: int, arch: Architecture, template: Instruction | None = None) -> Word:
    """A branch at an address to another.

    Parameters
    ----------
    at, target
        The addresses.
    arch
        The architecture: from sm_90 on the offset's lowest byte has a place of its own.
    template
        A branch whose condition and control word it has; without it, it is always taken.
    """
    low, high = (template.low, template.high) if template else (_BRANCH_LOW, 7 << 23)
    bits = low | high << 64
    offset = (target - at - 16) // 4
    if arch.major >= 9:
        bits &= ~(((1 << 48) - 1) << 34 | 255 << 16)
        bits |= (offset >> 8 & (1 << 48) - 1) << 34 | (offset & 255) << 16
    else:
        bits &= ~(((1 << 48) - 1) << 34)
        bits |= (offset & (1 << 48) - 1) << 34
    word = bits & (1 << 64) - 1, bits >> 64
    if template is None:
        word = with_control(word, ControlWord(_BRANCH_STALL, True, None, None, 0, 0))
    return word
