"""Whether two loop bodies compute the same, value by value.

Both are followed from symbols for what they are entered with. An operation's result is named by the
operation and by the names of its operands; a load also by what has been written before it. Two
bodies are the same if every register that counts at the end has the same name, and if they do the
same to memory, in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lowgemm.binary.instruction import Instruction
from lowgemm.emulator.rules import UNIFORM, register_name
from lowgemm.rewrite.allocate import Allocation, live_registers
from lowgemm.rewrite.body import Body, Item
from lowgemm.rewrite.schedule import memory_effect
from lowgemm.rewrite.tile import is_plain_ffma

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


def find_difference(old: Body, new: Body, allocation: Allocation) -> str | None:
    """Say how two loop bodies differ; None if they do the same.

    Parameters
    ----------
    old, new
        The bodies.
    allocation
        The registers of the new one: what they hold at its begin, and what behind its exits.
    """
    names: Names = {}
    traces = _Trace(names, {}), _Trace(names, {})
    for register, origin in allocation.entry.sources.items():
        traces[1].state[register] = traces[1].name("entered", origin)
    if len(old.exits) != len(new.exits):
        return f"it is left at {len(new.exits)} places instead of {len(old.exits)}"
    begin = [0, 0]
    for number, pair in enumerate(zip(old.exits, new.exits, strict=True)):
        for which, (trace, body, leaving) in enumerate(zip(traces, (old, new), pair, strict=True)):
            for item in body.items[begin[which] : leaving.place + 1]:
                _follow(trace, item)
            begin[which] = leaving.place + 1
        found = _difference_at(old, traces, allocation, number)
        if found is not None:
            return found
    return None


def _difference_at(
    old: Body, traces: tuple[_Trace, _Trace], allocation: Allocation, number: int
) -> str | None:
    """What differs where the loop may be left, or begins again."""
    for space in ("shared", "global"):
        one, other = (trace.events[space] for trace in traces)
        if one != other:
            common = zip(one, other, strict=False)
            place = next((i for i, (a, b) in enumerate(common) if a != b), len(one))
            return f"operation {place} on {space} memory is another one, or has another operand"
    moved = allocation.exits[number].sources
    live = live_registers(old.program)
    leaving = old.exits[number]
    places = {key: moved.get(key, key) for key in live[leaving.target // 16]}
    if number == len(old.exits) - 1:
        for register, origin in allocation.entry.sources.items():
            if register not in allocation.registers.values():
                return f"R{register} is filled for nothing"
            if traces[0].at(origin) != traces[1].at(register):
                return f"R{register} does not hold at the end what R{origin} would"
        entered = set(allocation.entry.sources.values())
        places |= {key: key for key in live[old.first] if key not in entered}
    # Predicates and uniform registers keep their names.
    places |= {key: key for key in old.left if key >= UNIFORM}
    for key, register in places.items():
        if traces[0].at(key) != traces[1].at(register):
            told = register_name(key), register_name(register)
            return f"what {told[0]} holds where the loop is left is not in {told[1]}"
    return None


def _follow(trace: _Trace, item: Item) -> None:
    instruction = item.instruction
    if instruction.is_filler:
        return
    operands = {slot: tuple(trace.at(v.key) for v in values) for slot, values in item.reads.items()}
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
        case "global read":
            return (len(trace.events["global"]),)
        case _:
            return ()


def _record(trace: _Trace, item: Item, result: int) -> None:
    match memory_effect(item):
        case "shared write":
            trace.events["shared"].append(result)
        case "fence":
            trace.events["shared"].append(result)
            trace.events["global"].append(result)
