"""Whether a rewritten kernel computes what the original does, value by value.

Both loop bodies are followed from symbols for what they are entered with. An operation's result is
named by the operation and by the names of its operands; a load also by what has been written before
it. The new loop does the same if, wherever it may be left, every register that is used behind has
the same name as in the old one, if it begins again with what it was entered with, and if it does
the same to memory, in the same order. The moves on the way in and out are read from the code.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from lowgemm.binary.flow import sass_flow
from lowgemm.binary.instruction import Instruction
from lowgemm.binary.sass import SassKernel
from lowgemm.emulator.program import Program, compile_program
from lowgemm.emulator.rules import UNIFORM, register_name
from lowgemm.rewrite.body import Body, Item, hot_loop, take_apart
from lowgemm.rewrite.liveness import live_registers
from lowgemm.rewrite.schedule import memory_effect
from lowgemm.rewrite.tile import is_copy, is_plain_ffma

__all__ = ["find_difference"]

_CONTROL = ((1 << 23) - 1) << 105

#: A name: the same number for the same operation on the same operands.
Names = dict[tuple[object, ...], int]


@dataclass(slots=True)
class _Trace:
    """What a body does: names of registers by key, and what happens in memory, by space."""

    names: Names
    state: dict[int, int]
    events: dict[str, list[int]] = field(default_factory=lambda: {"shared": [], "global": []})

    def name(self, *parts: object) -> int:
        return self.names.setdefault(parts, len(self.names))

    def at(self, key: int) -> int:
        """What a register holds."""
        if key not in self.state:
            self.state[key] = self.name("entered", key)
        return self.state[key]


def find_difference(original: SassKernel, rewritten: SassKernel) -> str | None:
    """Say how a rewritten kernel differs from the original; None if it does the same.

    Parameters
    ----------
    original, rewritten
        The kernels' machine code. The rewritten one has the original's up to the hot loop's first
        instruction, which jumps behind it to moves, the new loop, and moves again.

    Raises
    ------
    RewriteError
        The original has no loop that can be rewritten.
    UnknownInstructionError
        An instruction is not known.
    """
    programs = compile_program(original), compile_program(rewritten)
    found = _difference(*programs, by_guards=False)
    return found if found is None else _difference(*programs, by_guards=True)


def _difference(program: Program, new_program: Program, *, by_guards: bool) -> str | None:
    original, rewritten = program.kernel, new_program.kernel
    loop = hot_loop(program)
    old = take_apart(program, loop, by_guards=by_guards)
    count = len(original.instructions)
    inside = range(old.first, old.last + 1)
    for index, (one, other) in enumerate(
        zip(original.instructions, rewritten.instructions, strict=False)
    ):
        if index not in inside and (one.low, one.high) != (other.low, other.high):
            return f"the instruction at {index * 16:#06x}, outside the loop, is another one"
    jump = rewritten.instructions[old.first]
    if jump.name != "BRA" or jump.is_conditional or (jump.target or 0) < count * 16:
        return "the old loop does not jump to a new one"
    loops = {each.start: each for each in sass_flow(rewritten).loops}
    entry = _moves(rewritten, jump.target or 0, loops)
    if entry.end not in loops:
        return "no loop stands behind the moves on the way in"
    new = take_apart(new_program, loops[entry.end], by_guards=by_guards)
    if len(old.exits) != len(new.exits):
        return f"the loop is left at {len(new.exits)} places instead of {len(old.exits)}"
    exits = []
    for before, after in zip(old.exits, new.exits, strict=True):
        moves = _moves(rewritten, after.target)
        back = rewritten.instructions[moves.end // 16]
        if back.name != "BRA" or back.is_conditional or back.target != before.target:
            return "where the loop is left the old code does not follow"
        exits.append(moves.sources)
    return _compared(old, new, entry.sources, exits)


@dataclass(frozen=True, slots=True)
class _Moves:
    """Moves one after the other: what each register holds then, and the address behind."""

    sources: dict[int, int]
    end: int


def _moves(kernel: SassKernel, start: int, loops: Container[int] = ()) -> _Moves:
    """The moves from an address on; the first instruction of a loop is none of them."""
    held: dict[int, int] = {}
    index = start // 16
    while index * 16 not in loops:
        each = kernel.instructions[index]
        if each.name not in ("MOV", "NOP") or each.is_conditional:
            break
        if each.name == "MOV":
            target, source = each.register("d"), each.register("b")
            if target is None or source is None or source.uniform:
                break
            held[target.number] = held.get(source.number, source.number)
        index += 1
    return _Moves(held, index * 16)


def _compared(
    old: Body, new: Body, entry: dict[int, int], exits: list[dict[int, int]]
) -> str | None:
    names: Names = {}
    traces = _Trace(names, {}), _Trace(names, {})
    for register, origin in entry.items():
        traces[1].state[register] = traces[1].name("entered", origin)
    live = live_registers(old.program)
    begin = [0, 0]
    for number, pair in enumerate(zip(old.exits, new.exits, strict=True)):
        for which, (trace, body, leaving) in enumerate(zip(traces, (old, new), pair, strict=True)):
            for item in body.items[begin[which] : leaving.place + 1]:
                _follow(trace, item)
            begin[which] = leaving.place + 1
        for space in ("shared", "global"):
            one, other = (trace.events[space] for trace in traces)
            if one != other:
                common = zip(one, other, strict=False)
                place = next((i for i, (a, b) in enumerate(common) if a != b), len(one))
                return f"operation {place} on {space} memory is another one, or has another operand"
        places = {
            key: exits[number].get(key, key)
            for key in (*live[pair[0].target // 16], *(k for k in old.left if k >= UNIFORM))
        }
        found = _difference_at(traces, places)
        if found is not None:
            return found
    again = {key: entry.get(key, key) for key in new.entered}
    return _difference_at(traces, {origin: key for key, origin in again.items()})


def _difference_at(traces: tuple[_Trace, _Trace], places: dict[int, int]) -> str | None:
    """What is not where it should be: by register of the old code, that of the new one."""
    for key, register in places.items():
        if traces[0].at(key) != traces[1].at(register):
            return f"{register_name(register)} does not hold what {register_name(key)} would"
    return None


def _follow(trace: _Trace, item: Item) -> None:
    instruction = item.instruction
    if instruction.is_filler:
        return
    operands = {slot: tuple(trace.at(v.key) for v in values) for slot, values in item.reads.items()}
    if is_copy(item):
        ((source,),) = operands.values()
        trace.state[item.writes["d"][0].key] = source
        return
    if is_plain_ffma(instruction):
        # A product does not depend on the order of its factors, NaN included: it is canonical.
        factors = tuple(sorted((operands["a"], operands["b"])))
        result = trace.name("FFMA", factors, operands["c"])
    else:
        bits = _without_registers(instruction)
        if item.is_branch:
            result = trace.name("branch", operands.get("@"), operands.get(""), instruction.guard)
            trace.events["shared"].append(result)
            trace.events["global"].append(result)
            return
        result = trace.name(bits, tuple(sorted(operands.items())), _since(trace, item))
        _record(trace, item, result)
    for slot, values in item.writes.items():
        for word, value in enumerate(values):
            trace.state[value.key] = trace.name(result, slot, word)


def _without_registers(instruction: Instruction) -> int:
    """The operation alone: operands are compared by what they hold."""
    bits = instruction.low | instruction.high << 64
    if instruction.opcode is not None:
        for at in instruction.opcode.register_fields(bits).values():
            bits &= ~(255 << at)
    return bits & ~_CONTROL


def _since(trace: _Trace, item: Item) -> tuple[int, ...]:
    """How much has happened in the memory that an operation reads."""
    match memory_effect(item):
        case "shared read":
            return (len(trace.events["shared"]),)
        case "global read" | "strong read":
            return (len(trace.events["global"]),)
        case _:
            return ()


def _record(trace: _Trace, item: Item, result: int) -> None:
    match memory_effect(item):
        case "shared write":
            trace.events["shared"].append(result)
        case "strong read":
            trace.events["global"].append(result)
        case "fence":
            trace.events["shared"].append(result)
            trace.events["global"].append(result)
