"""Registers of a loop body that hold something for a while: addresses, copies, data on its way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lowgemm.emulator.rules import UNIFORM
from lowgemm.rewrite.body import Body, Item, Value
from lowgemm.rewrite.tile import Tile

__all__ = ["Temporary", "find_temporaries"]

#: Slots that are no field of an instruction.
_NO_FIELD = ("", "@", "old")


@dataclass(frozen=True, slots=True, eq=False)
class Temporary:
    """Values that must lie in neighbouring registers: each with its place among them.

    ``words`` is how many registers they are, aligned to as many.
    """

    offsets: dict[Value, int]
    words: int


def find_temporaries(body: Body, tile: Tile, kept: Iterable[Value]) -> tuple[Temporary, ...]:
    """Find the values that live and die within the body, and may lie in any registers.

    Parameters
    ----------
    body, tile
        The loop and its outer products, whose values are none of these.
    kept
        Values that are needed behind the loop, or when it begins again.
    """
    fixed = set(kept) | set(tile.owner) | set(body.entered.values())
    for chain in tile.chains:
        fixed |= set(chain.values)
    groups = _Groups()
    for item in body.items:
        fields = _fields(item)
        for operands in (item.reads, item.writes):
            for slot, values in operands.items():
                general = [value for value in values if value.key < UNIFORM]
                groups.join(general if slot not in _NO_FIELD else ())
                if slot not in fields and slot != "old":
                    fixed |= set(general)
        for value in item.reads.get("old", ()):
            if value.key < UNIFORM:
                groups.join([value, next(v for v in _written(item) if v.key == value.key)])
    found = []
    for members in groups.sets():
        if not fixed & members:
            temporary = _laid_out(members, groups.widest(members))
            if temporary is not None:
                found.append(temporary)
    return tuple(found)


def _fields(item: Item) -> dict[str, int]:
    opcode = item.instruction.opcode
    bits = item.instruction.low | item.instruction.high << 64
    return opcode.register_fields(bits) if opcode is not None else {}


def _written(item: Item) -> Iterable[Value]:
    return (value for values in item.writes.values() for value in values)


def _laid_out(members: set[Value], words: int) -> Temporary | None:
    """The values by their place, as their registers now have it; None if they reach over it."""
    base = min(value.key for value in members) // words * words
    offsets = {value: value.key - base for value in members}
    return Temporary(offsets, words) if max(offsets.values()) < words else None


class _Groups:
    """Sets of values that are joined step by step."""

    def __init__(self) -> None:
        self._set: dict[Value, set[Value]] = {}
        self._width: dict[Value, int] = {}

    def join(self, values: Iterable[Value]) -> None:
        """All these are operands of one slot."""
        together = list(values)
        merged: set[Value] = set()
        for value in together:
            merged |= self._set.get(value, {value})
            width = len({each.key for each in together})
            self._width[value] = max(self._width.get(value, 1), 1 << (width - 1).bit_length())
        for value in merged:
            self._set[value] = merged

    def sets(self) -> list[set[Value]]:
        """Each set once."""
        return list({id(members): members for members in self._set.values()}.values())

    def widest(self, members: set[Value]) -> int:
        """The most registers of one operand among them."""
        return max(self._width[value] for value in members)
