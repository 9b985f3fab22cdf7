"""Whether control words protect every register of a kernel, on every way through it.

The hardware does not check that a result is there before it is used. The emulator's strict mode
watches the ways that one launch takes; here all ways are gone through at once, by data flow: at
each address stands what may still be under way there, whichever way led to it. Calls are followed
into the functions, each call by itself.

Stall counts are taken as the only time that passes, as if no other warp ran; a warp that waits
longer than they say is no protection. Registers, predicates, the reuse cache and the cycles behind
a barrier are covered; what asynchronous copies write in shared memory is not (the emulator watches
that).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from lowgemm.binary.flow import FlowGraph, FlowNode, build_flow, hidden_entries, sass_node
from lowgemm.binary.sass import SassKernel
from lowgemm.emulator.program import Program, compile_program
from lowgemm.emulator.rules import (
    BARRIER,
    PREDICATE,
    SCOREBOARDS,
    Rule,
    Use,
    register_name,
    rules_of,
)
from lowgemm.isa.latency import DRAIN_CYCLES, SCOREBOARD_CYCLES, Consumer, Producer, fixed_latency

__all__ = ["Hazard", "HazardKind", "find_hazards"]

#: Calls within calls that are followed; deeper ones are recursion.
_DEPTH = 8


class HazardKind(StrEnum):
    """What is wrong with the control words."""

    TOO_EARLY = "a result is read before its latency is over"
    NOT_WAITED = "a result is read before its scoreboard says that it is there"
    RESULT_OVERWRITTEN = "a register is written while a result for it is under way"
    SOURCE_OVERWRITTEN = "a register is written while an operation may still read it"
    STALE_REUSE = "the reuse cache holds the value of before"
    BARRIER_PASSED = "memory is accessed before the barrier holds the warp"


@dataclass(frozen=True, slots=True, order=True)
class Hazard:
    """An instruction that uses a register which the control words do not protect.

    ``address`` is its own, ``producer`` that of the instruction whose result or source it is,
    ``register`` as assembly writes it; ``missing`` is how many cycles are missing, 0 where a
    scoreboard is.
    """

    address: int
    producer: int
    register: str
    kind: HazardKind
    missing: int = 0

    def __str__(self) -> str:
        cycles = f", {self.missing} cycles too few" if self.missing else ""
        return (
            f"at {self.address:#06x}: {self.register} of {self.producer:#06x}: {self.kind}{cycles}"
        )


def find_hazards(kernel: SassKernel | Program) -> tuple[Hazard, ...]:
    """Find every use of a register that the control words do not protect.

    Parameters
    ----------
    kernel
        A kernel's machine code, or what :func:`lowgemm.emulator.program.compile_program` made of
        it.

    Returns
    -------
    tuple of Hazard
        In the order of their addresses; none for sound code.

    Raises
    ------
    UnknownInstructionError
        The emulator does not know an instruction, so that its operands are not known.
    """
    program = kernel if isinstance(kernel, Program) else compile_program(kernel)
    for error in program.unknown:
        raise error
    return tuple(sorted(_Search(program).run()))


# ---- what may be under way


class _Pending(NamedTuple):
    """A result, or a source that is read late, which may be under way.

    ``boards`` are the scoreboards of which one tells that it is over: its own, or of later
    operations of its unit; ``set_at`` is when each scoreboard was set. ``time`` is its issue on the
    state's clock; ``younger`` counts the operations since that set its own scoreboard. ``guard`` is
    the predicate that it depends on and whether that is negated, as far as the predicate has not
    changed since.
    """

    place: int
    producer: Producer | None
    own: bool
    boards: frozenset[int]
    set_at: tuple[int, ...]
    unit: str | None
    time: int
    younger: int
    guard: tuple[int, bool] | None


_Entries = dict[int, tuple[_Pending, ...]]


class _State:
    """What may be under way at a place of the code: results and late sources, by register."""

    __slots__ = ("kept", "now", "results", "sources")

    def __init__(self) -> None:
        self.now = 0
        self.results: _Entries = {}
        self.sources: _Entries = {}
        #: What the reuse cache may have: slot, register, who keeps it, whether it is overwritten.
        self.kept: frozenset[tuple[str, int, int, bool]] = frozenset()

    def copy(self) -> _State:
        new = _State()
        new.now, new.kept = self.now, self.kept
        new.results, new.sources = dict(self.results), dict(self.sources)
        return new

    def settle(self) -> None:
        """Forget what is over by time, and start the clock anew."""
        for entries in (self.results, self.sources):
            for key, pending in list(entries.items()):
                left = tuple(
                    each._replace(
                        time=max(each.time - self.now, -DRAIN_CYCLES),
                        set_at=tuple(max(at - self.now, -DRAIN_CYCLES) for at in each.set_at),
                    )
                    for each in pending
                    if each.producer is None or self.now - each.time < DRAIN_CYCLES
                )
                if left:
                    entries[key] = left
                else:
                    del entries[key]
        self.now = 0

    def join(self, other: _State) -> bool:
        """Take in what another way leaves under way; whether anything is new."""
        changed = False
        for mine, theirs in ((self.results, other.results), (self.sources, other.sources)):
            for key, pending in theirs.items():
                known = {(each.place, each.boards): each for each in mine.get(key, ())}
                before = dict(known)
                for each in pending:
                    place = each.place, each.boards
                    known[place] = _joined(known[place], each) if place in known else each
                if known != before:
                    mine[key] = tuple(known.values())
                    changed = True
        if not other.kept <= self.kept:
            self.kept |= other.kept
            changed = True
        return changed

    # ---- scoreboards

    def wait(self, board: int, leaving: int | None = None) -> None:
        """Forget what a scoreboard tells of; of DEPBAR, but for its last operations."""
        since = self.now - (SCOREBOARD_CYCLES if leaving is None else 0)
        for entries in (self.results, self.sources):
            for key, pending in list(entries.items()):
                left = tuple(
                    each
                    for each in pending
                    if board not in each.boards
                    or each.younger < (leaving or 0)
                    or each.set_at[board] > since
                )
                if not left:
                    del entries[key]
                elif len(left) < len(pending):
                    entries[key] = left

    def signal(self, rule: Rule) -> None:
        """Note the scoreboards that an instruction sets: they tell of earlier operations too."""
        for board in rule.boards:
            unit = rule.unit if board == rule.write_scoreboard else None
            _cover(self.results, board, unit, self.now, own_excluded=True)
            _cover(self.sources, board, rule.late_reader, self.now, own_excluded=False)

    def forget_guard(self, key: int) -> None:
        """A predicate has changed: it tells no more who executed."""
        for entries in (self.results, self.sources):
            for register, pending in list(entries.items()):
                if any(each.guard is not None and each.guard[0] == key for each in pending):
                    entries[register] = tuple(
                        each._replace(guard=None) if each.guard and each.guard[0] == key else each
                        for each in pending
                    )


def _joined(one: _Pending, other: _Pending) -> _Pending:
    return one._replace(
        time=max(one.time, other.time),
        set_at=tuple(map(max, one.set_at, other.set_at)),
        younger=min(one.younger, other.younger),
        guard=one.guard if one.guard == other.guard else None,
    )


def _cover(
    entries: _Entries, board: int, unit: str | None, now: int, *, own_excluded: bool
) -> None:
    for key, pending in list(entries.items()):
        new = tuple(_covered(each, board, unit, now, own_excluded) for each in pending)
        if new != pending:
            entries[key] = new


def _covered(
    each: _Pending, board: int, unit: str | None, now: int, own_excluded: bool
) -> _Pending:
    if each.producer is not None:
        return each
    if board in each.boards:
        return each._replace(younger=each.younger + 1)
    if unit is not None and each.unit == unit and not (own_excluded and each.own):
        set_at = tuple(now if n == board else at for n, at in enumerate(each.set_at))
        return each._replace(boards=each.boards | {board}, set_at=set_at, younger=0)
    return each


# ---- the way through the code


class _Search:
    """Goes through a kernel until nothing new is under way anywhere."""

    def __init__(self, program: Program) -> None:
        rules = rules_of(program)
        self._rules, self._major = rules.rules, rules.major
        self._instructions = program.kernel.instructions
        self._flow = _flow_with_calls(program.kernel)
        self._block_at = {block.start: block.index for block in self._flow.blocks}
        self._functions = [
            self._block_at[at] for at in program.kernel.functions if at in self._block_at
        ]
        self._returning = self._blocks_before_a_return()
        self._found: dict[tuple[int, int, int, HazardKind], Hazard] = {}

    def run(self) -> Iterable[Hazard]:
        """Every hazard."""
        context: tuple[int, ...] = ()
        reached: dict[tuple[tuple[int, ...], int], _State] = {}
        todo = []
        for block in self._entries():
            reached[context, block] = _State()
            todo.append((context, block))
        while todo:
            place = todo.pop()
            state = reached[place].copy()
            self._go_through(place[1], state)
            state.settle()
            for after in self._successors(*place):
                known = reached.get(after)
                if known is None:
                    reached[after] = state.copy()
                elif not known.join(state):
                    continue
                if after not in todo:
                    todo.append(after)
        return self._found.values()

    def _blocks_before_a_return(self) -> set[int]:
        """The blocks from which some way leads to a RET."""
        blocks = self._flow.blocks
        before: dict[int, list[int]] = {}
        for block in blocks:
            for after in block.successors:
                before.setdefault(after, []).append(block.index)
            last = self._instructions[block.last]
            if last.name == "CALL" and last.target in self._block_at:
                before.setdefault(self._block_at[last.target], []).append(block.index)
        todo = [each.index for each in blocks if self._instructions[each.last].name == "RET"]
        found = set(todo)
        while todo:
            for each in before.get(todo.pop(), ()):
                if each not in found:
                    found.add(each)
                    todo.append(each)
        return found

    def _entries(self) -> list[int]:
        """Where execution begins: the kernel, and functions that nothing is seen to call."""
        called = {each.target for each in self._instructions if each.name == "CALL"}
        entries = [0] if self._flow.blocks else []
        starts = [self._flow.blocks[index].start for index in self._functions]
        if None not in called:
            entries += [self._block_at[at] for at in starts if at not in called]
        padding = [each.is_filler or each.target == each.address for each in self._instructions]
        hidden = hidden_entries(self._flow, padding)
        return list(dict.fromkeys(entries + [self._block_at[at] for at in hidden]))

    def _successors(
        self, context: tuple[int, ...], block: int
    ) -> Iterator[tuple[tuple[int, ...], int]]:
        last = self._instructions[self._flow.blocks[block].last]
        for after in self._flow.blocks[block].successors:
            yield context, after
        if last.name == "CALL" and block + 1 < len(self._flow.blocks):
            if len(context) < _DEPTH:
                inner = (*context, block + 1)
                known = last.target is not None and last.target in self._block_at
                for at in [self._block_at[last.target or 0]] if known else self._functions:
                    # Before sm_90 ptxas leaves some loops by a CALL from which nothing returns.
                    yield inner if at in self._returning or not known else context, at
        elif last.name == "RET" and context:
            yield context[:-1], context[-1]

    def _go_through(self, block: int, state: _State) -> None:
        this = self._flow.blocks[block]
        for index in range(this.first, this.last + 1):
            self._issue(self._rules[index], state)

    def _issue(self, rule: Rule, state: _State) -> None:
        for board in rule.waits:
            state.wait(board)
        if rule.leaves is not None:
            state.wait(*rule.leaves)
        if rule.boards:
            state.signal(rule)
        if not rule.never:
            self._check(rule, state)
            self._note(rule, state)
        state.now += rule.stall
        if rule.drains:
            state.results.clear()
            state.sources.clear()

    # ---- one instruction

    def _check(self, rule: Rule, state: _State) -> None:
        if rule.guard is not None:
            self._check_read(rule.guard, rule, state)
        for use in rule.reads:
            self._check_read(use, rule, state)
            for slot, key, producer, overwritten in state.kept:
                if overwritten and (slot, key) == (use.slot, use.key):
                    self._report(rule, producer, key, HazardKind.STALE_REUSE)
        if rule.accesses:
            for each in state.results.get(BARRIER, ()):
                needs = fixed_latency(Producer.BARRIER, Consumer.LSU, self._major)
                if (missing := needs - (state.now - each.time)) > 0:
                    kind = HazardKind.BARRIER_PASSED
                    self._report(rule, each.place, BARRIER, kind, missing)
        for key, _ in rule.results:
            for each in state.results.get(key, ()):
                in_order = rule.unit is not None and self._rules[each.place].unit == rule.unit
                if each.producer is None and not in_order and not _excludes(each, rule):
                    self._report(rule, each.place, key, HazardKind.RESULT_OVERWRITTEN)
            for each in state.sources.get(key, ()):
                # A unit reads the sources of its operations in order.
                if each.unit != rule.late_reader and not _excludes(each, rule):
                    self._report(rule, each.place, key, HazardKind.SOURCE_OVERWRITTEN)

    def _check_read(self, use: Use, rule: Rule, state: _State) -> None:
        for each in state.results.get(use.key, ()):
            if use is not rule.guard and _excludes(each, rule):
                continue
            if each.producer is None:
                self._report(rule, each.place, use.key, HazardKind.NOT_WAITED)
                continue
            needs = fixed_latency(each.producer, use.consumer, self._major)
            passed = state.now - each.time
            if passed < needs:
                missing = needs - passed
                self._report(rule, each.place, use.key, HazardKind.TOO_EARLY, missing)

    def _report(
        self, rule: Rule, producer: int, key: int, kind: HazardKind, missing: int = 0
    ) -> None:
        place = rule.index, producer, key, kind
        known = self._found.get(place)
        if known is None or known.missing < missing:
            self._found[place] = Hazard(
                rule.index * 16, producer * 16, register_name(key), kind, missing
            )

    def _note(self, rule: Rule, state: _State) -> None:
        guard = None if rule.guard is None else (rule.guard.key, rule.negated)
        if rule.is_barrier:
            for key, pending in list(state.sources.items()):
                left = tuple(each for each in pending if each.boards)
                if left:
                    state.sources[key] = left
                else:
                    del state.sources[key]
        barrier = ((BARRIER, Producer.BARRIER),) if rule.is_barrier else ()
        for key, producer in (*rule.results, *barrier):
            if key >= PREDICATE:
                state.forget_guard(key)
            if guard is not None and guard[0] == key:
                guard = None
            new = self._result(rule, key, producer, state.now, guard)
            before = () if rule.guard is None else state.results.get(key, ())
            state.results[key] = (*(each for each in before if each.place != rule.index), new)
            if rule.guard is None:
                state.sources.pop(key, None)
        for key in rule.sources:
            source = _Pending(
                rule.index,
                None,
                True,
                frozenset(rule.boards),
                (state.now,) * SCOREBOARDS,
                rule.late_reader,
                state.now,
                0,
                guard,
            )
            before = state.sources.get(key, ())
            state.sources[key] = (*(each for each in before if each.place != rule.index), source)
        self._keep(rule, state)

    @staticmethod
    def _keep(rule: Rule, state: _State) -> None:
        """What the reuse cache may have behind an instruction: a slot is kept until it is read."""
        if rule.yields:
            state.kept = frozenset()
        elif state.kept or rule.kept:
            written = {key for key, _ in rule.results}
            kept = {each for each in state.kept if each[0] not in rule.slots}
            kept |= {(slot, key, rule.index, False) for slot, key in rule.kept}
            state.kept = frozenset(
                (slot, key, place, old or key in written) for slot, key, place, old in kept
            )

    @staticmethod
    def _result(
        rule: Rule, key: int, producer: Producer | None, now: int, guard: tuple[int, bool] | None
    ) -> _Pending:
        boards: tuple[int, ...] = ()
        if producer is None and rule.write_scoreboard is not None:
            boards = rule.boards[:1]
        elif producer is None and key >= PREDICATE:
            boards = rule.boards  # an atomic's predicate comes with its read scoreboard
        unit = None if producer is not None or boards else rule.unit
        return _Pending(
            rule.index,
            producer,
            bool(boards),
            frozenset(boards),
            (now,) * SCOREBOARDS,
            unit,
            now,
            0,
            guard,
        )


def _excludes(each: _Pending, rule: Rule) -> bool:
    """Whether the one executes only where the other does not."""
    if each.guard is None or rule.guard is None:
        return False
    return each.guard == (rule.guard.key, not rule.negated)


def _flow_with_calls(kernel: SassKernel) -> FlowGraph:
    """The control flow in which a call ends its block, and nothing leads over it."""
    nodes = []
    for each in kernel.instructions:
        node = sass_node(each)
        if each.name == "CALL":
            # A guarded call may be passed by: then its block's end leads on as well.
            node = FlowNode(node.address, node.size, (), each.is_conditional)
        nodes.append(node)
    called = [e.target for e in kernel.instructions if e.name == "CALL" and e.target is not None]
    behind = [e.address + 16 for e in kernel.instructions if e.name == "CALL"]
    return build_flow(nodes, dict.fromkeys((*kernel.functions, *called, *behind)))
