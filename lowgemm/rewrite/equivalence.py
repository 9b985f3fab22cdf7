"""Whether two loop bodies compute the same, value by value.

Both are followed from symbols for what they are entered with. An operation's result is named by the
operation and by the names of its operands; a load also by what has been written before it. Two
bodies are the same if every register that counts at the end has the same name, and if they do the
same to memory, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lowgemm.rewrite.body import Body, Item, Value
from lowgemm.rewrite.schedule import memory_effect
from lowgemm.rewrite.tile import is_plain_ffma

__all__ = ["find_difference"]

_CONTROL = ((1 << 23) - 1) << 41
_DESTINATION = 255 << 16

#: A name: the same number for the same operation on the same operands.
Names = dict[tuple[object, ...], int]


@dataclass(slots=True)
class _Trace:
    """What a body does: names of registers by key, and what happens in memory, by space."""

    names: Names
    state: dict[int, int]
    events: dict[str, list[int]] = field(default_factory=lambda: {"shared": [], "global": []})
    branch: int = -1

    def name(self, *parts: object) -> int:
        return self.names.setdefault(parts, len(self.names))

    def of(self, value: Value) -> int:
        if value.key not in self.state:
            self.state[value.key] = self.name("entered", value.key)
        return self.state[value.key]


def find_difference(
    old: Body, new: Body, entered: Mapping[int, int], left: Mapping[int, int]
) -> str | None:
    """Say how two loop bodies differ; None if they do the same.

    Parameters
    ----------
    old, new
        The bodies.
    entered
        By register of the new body: the register of the old one whose value it is entered with,
        where that is another.
    left
        By register of the old body that counts at the end: the new body's that holds its value.
    """
    names: Names = {}
    traces = _Trace(names, {}), _Trace(names, {})
    for register, origin in entered.items():
        traces[1].state[register] = traces[1].name("entered", origin)
    for trace, body in zip(traces, (old, new), strict=True):
        for item in body.items:
            _follow(trace, item)
    for space in ("shared", "global"):
        one, other = (trace.events[space] for trace in traces)
        if one != other:
            common = zip(one, other, strict=False)
            place = next((i for i, (a, b) in enumerate(common) if a != b), len(one))
            return f"operation {place} on {space} memory is another one, or has another operand"
    if traces[0].branch != traces[1].branch:
        return "the branch back depends on another value"
    for key, register in left.items():
        if traces[0].of(Value(key, None)) != traces[1].of(Value(register, None)):
            return f"what R{key} holds at the end is not what R{register} holds in the new order"
    return None


def _follow(trace: _Trace, item: Item) -> None:
    instruction = item.instruction
    if instruction.is_filler:
        return
    operands = {slot: tuple(trace.of(v) for v in values) for slot, values in item.reads.items()}
    if is_plain_ffma(instruction):
        # A product does not depend on the order of its factors, NaN included: it is canonical.
        factors = tuple(sorted((operands["a"], operands["b"])))
        result = trace.name("FFMA", factors, operands["c"])
    else:
        bits = instruction.low & ~_DESTINATION, instruction.high & ~_CONTROL
        if instruction.name == "BRA":
            trace.branch = trace.name("branch", operands.get("@"), operands.get(""))
            return
        result = trace.name(bits, tuple(sorted(operands.items())), _since(trace, item))
        _record(trace, item, result)
    for slot, values in item.writes.items():
        for word, value in enumerate(values):
            trace.state[value.key] = trace.name(result, slot, word)


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
