"""Which registers hold something that is used later, guards taken into account."""

from __future__ import annotations

from lowgemm.binary.flow import sass_flow
from lowgemm.emulator.program import Program
from lowgemm.emulator.rules import UNIFORM, Rule, Rules

__all__ = ["live_registers"]

#: Registers whose values are used later: each with the guard of those uses, None for any.
_Live = frozenset[tuple[int, tuple[int, bool] | None]]


def live_registers(program: Program) -> list[frozenset[int]]:
    """By instruction: the general registers whose values are used at or after it.

    A guarded write ends the life of a value that is used under the same guard alone.
    """
    rules = Rules(program).rules
    flow = sass_flow(program.kernel)
    entering: dict[int, _Live] = {block.index: frozenset() for block in flow.blocks}
    changed = True
    while changed:
        changed = False
        for block in reversed(flow.blocks):
            live: _Live = frozenset().union(*(entering[each] for each in block.successors))
            for index in range(block.last, block.first - 1, -1):
                live = _before(rules[index], live)
            if live != entering[block.index]:
                entering[block.index] = live
                changed = True
    found: list[frozenset[int]] = [frozenset()] * len(rules)
    for block in flow.blocks:
        live = frozenset().union(*(entering[each] for each in block.successors))
        for index in range(block.last, block.first - 1, -1):
            live = _before(rules[index], live)
            found[index] = frozenset(key for key, _ in live)
    return found


def _before(rule: Rule, live: _Live) -> _Live:
    if rule.never:
        return live
    guard = None if rule.guard is None else (rule.guard.key, rule.negated)
    written = {key for key, _ in rule.results}
    # Where a predicate changes, what was guarded by it may be used in any case.
    live = frozenset(
        (key, None if each is not None and each[0] in written else each) for key, each in live
    )
    live = frozenset(
        (key, each) for key, each in live if key not in written or guard not in (None, each)
    )
    return live | {(use.key, guard) for use in rule.reads if use.key < UNIFORM}
