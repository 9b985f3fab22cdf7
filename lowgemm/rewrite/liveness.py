"""Which registers hold something that is used later, guards taken into account."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from lowgemm.binary.flow import sass_flow
from lowgemm.emulator.program import Program
from lowgemm.emulator.rules import UNIFORM, Rule, rules_of

__all__ = ["live_registers"]

#: A predicate's key and whether it is negated; None: without a guard.
_Guard = tuple[int, bool] | None
#: Registers whose values are used later, a bit each, by the guard of those uses.
_Live = dict[_Guard, int]


@functools.lru_cache(maxsize=4)
def live_registers(program: Program) -> list[frozenset[int]]:
    """By instruction: the general registers whose values are used at or after it.

    A guarded write ends the life of a value that is used under the same guard alone.
    """
    effects = [_effect(rule) for rule in rules_of(program).rules]
    flow = sass_flow(program.kernel)
    entering: dict[int, _Live] = {block.index: {} for block in flow.blocks}
    changed = True
    while changed:
        changed = False
        for block in reversed(flow.blocks):
            live = _union(entering[each] for each in block.successors)
            for index in range(block.last, block.first - 1, -1):
                effects[index].go_back(live)
            if live != entering[block.index]:
                entering[block.index] = live
                changed = True
    found: list[frozenset[int]] = [frozenset()] * len(effects)
    known: dict[int, frozenset[int]] = {}
    for block in flow.blocks:
        live = _union(entering[each] for each in block.successors)
        for index in range(block.last, block.first - 1, -1):
            effects[index].go_back(live)
            mask = 0
            for each in live.values():
                mask |= each
            if mask not in known:
                known[mask] = frozenset(key for key in range(UNIFORM) if mask >> key & 1)
            found[index] = known[mask]
    return found


def _union(ways: Iterable[_Live]) -> _Live:
    live: _Live = {}
    for way in ways:
        for guard, mask in way.items():
            live[guard] = live.get(guard, 0) | mask
    return live


@dataclass(frozen=True, slots=True)
class _Effect:
    """What an instruction does to lives: what it writes and reads, under which guard."""

    guard: _Guard
    written: int
    predicates: frozenset[int]
    read: int

    def go_back(self, live: _Live) -> None:
        """From what lives behind the instruction to what lives before it."""
        if self.predicates:
            # Where a predicate changes, what was guarded by it may be used in any case.
            for guard in [each for each in live if each and each[0] in self.predicates]:
                live[None] = live.get(None, 0) | live.pop(guard)
        if self.written:
            for key in list(live) if self.guard is None else [self.guard]:
                if key in live:
                    live[key] &= ~self.written
                    if not live[key]:
                        del live[key]
        if self.read:
            live[self.guard] = live.get(self.guard, 0) | self.read


def _effect(rule: Rule) -> _Effect:
    if rule.never:
        return _Effect(None, 0, frozenset(), 0)
    written = {key for key, _ in rule.results}
    return _Effect(
        None if rule.guard is None else (rule.guard.key, rule.negated),
        sum(1 << key for key in written if key < UNIFORM),
        frozenset(key for key in written if key >= UNIFORM),
        sum(1 << key for key in {use.key for use in rule.reads if use.key < UNIFORM}),
    )
