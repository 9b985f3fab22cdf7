"""Which scoreboard each instruction sets, and the waits and stalls that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lowgemm.binary.instruction import Instruction
from lowgemm.emulator.rules import SCOREBOARDS
from lowgemm.errors import RewriteError
from lowgemm.isa import ControlWord, Space
from lowgemm.rewrite.body import Body, Item
from lowgemm.rewrite.cost import latency_of
from lowgemm.rewrite.emit import Word, with_control
from lowgemm.rewrite.hazards import Hazard, HazardKind
from lowgemm.rewrite.schedule import Schedule, load_groups
from lowgemm.rewrite.tile import Tile
from lowgemm.rewrite.walk import Walk

__all__ = ["Boards", "assign_scoreboards", "mend", "without_early_waits"]

#: By place: the write and the read scoreboard.
Boards = dict[int, tuple[int | None, int | None]]
#: Hazards that stall counts mend.
_BY_TIME = (HazardKind.TOO_EARLY, HazardKind.BARRIER_PASSED)
#: So few scoreboards are all needed for data.
_FEW = 3
#: Stall counts with which an instruction may stay on its warp.
_LONGEST_STAY, _LONGEST = 11, 15


def assign_scoreboards(
    body: Body, tile: Tile, walk: Walk, schedule: Schedule, *, briefly: bool = False
) -> tuple[Boards, int]:
    """Give scoreboards out, and say which a bridge may wait for (a mask).

    Those of asynchronous copies stay. What else is asynchronous forms groups that are waited for
    together: the loads of one step's fragments, and each other operation. Where sources are held
    ``briefly`` (see :class:`lowgemm.rewrite.schedule.Spread`) one scoreboard tells when loads from
    global memory have read their addresses, long before their data comes.
    """
    kept = _kept(body)
    free = [board for board in range(SCOREBOARDS) if board not in kept]
    if not free:
        raise RewriteError("no scoreboard is left", "use fewer asynchronous operations")
    groups = _groups(body, tile, walk, schedule)
    addresses = free[0] if briefly and len(free) > _FEW else None
    free_for_groups = [board for board in free if board != addresses]
    boards: Boards = {}
    for item in body.items:
        if item.name == "LDGDEPBAR":
            boards[item.place] = (item.instruction.control.write_scoreboard, None)
    shared_out = _shared_out(groups, free_for_groups, len(schedule.order))
    for group, board in zip(groups, shared_out, strict=True):
        for place in group.places:
            item = body.items[place]
            # A result that has come tells of the sources, too.
            sources = addresses if item.name == "LDG" else None
            boards[place] = (board, sources) if _has_late_result(item) else (None, board)
    return boards, sum(1 << board for board in free)


def _has_late_result(item: Item) -> bool:
    return any(producer is None for _, producer in item.rule.results)


def _kept(body: Body) -> set[int]:
    """Scoreboards that count asynchronous copies."""
    found = set()
    for item in body.items:
        if item.name == "LDGDEPBAR" and item.instruction.control.write_scoreboard is not None:
            found.add(item.instruction.control.write_scoreboard)
        if item.rule.leaves is not None:
            found.add(item.rule.leaves[0])
    return found


# ---- which operations share one


@dataclass(frozen=True, slots=True)
class _Group:
    """Operations that are waited for together: where in the order they stand, and who waits.

    ``latency`` is in instructions of the warp, of which another may take every other cycle.
    """

    places: tuple[int, ...]
    issues: tuple[int, ...]
    wait: int
    latency: int


_SHARED_LATENCY, _GLOBAL_LATENCY = 24, 256


def _groups(body: Body, tile: Tile, walk: Walk, schedule: Schedule) -> list[_Group]:
    index = schedule.index()
    needed = {
        **_first_overwriters(body, schedule, index), **_first_readers(body, schedule, index)
    }  # fmt: skip
    together = load_groups(tile, walk)
    grouped = {place for group in together for place in group}
    alone = [
        [each.place]
        for each in schedule.order
        if isinstance(each, Item)
        and (each.rule.sources or _has_late_result(each))
        and each.name != "LDGDEPBAR"
        and each.place not in grouped
    ]
    found = []
    for group in [*together, *alone]:
        issues = tuple(index[place] for place in group)
        opcode = body.items[group[0]].instruction.opcode
        is_global = opcode is not None and opcode.space is Space.GLOBAL
        latency = _GLOBAL_LATENCY if is_global else _SHARED_LATENCY
        wait = min(needed.get(place, index[place] + latency) for place in group)
        if is_global:
            # How long DRAM takes nobody knows: nobody else should wait before its own user does.
            latency = max(latency, wait - min(issues))
        found.append(_Group(tuple(group), issues, wait, latency))
    return found


def _first_readers(body: Body, schedule: Schedule, index: dict[int, int]) -> dict[int, int]:
    """By place: where in the order its results are first read, counted on into the next round."""
    length = len(schedule.order)
    left = {value: body.entered[key] for key, value in body.left.items() if key in body.entered}
    readers = body.readers()
    found: dict[int, int] = {}
    for item in body.items:
        for values in item.writes.values():
            for value in values:
                users = [index[u.place] for u, *_ in readers.get(value, ()) if u.place in index]
                again = readers.get(left[value], ()) if value in left else ()
                users += [index[u.place] + length for u, *_ in again if u.place in index]
                if users:
                    found[item.place] = min(*users, found.get(item.place, users[0]))
    return found


def _first_overwriters(body: Body, schedule: Schedule, index: dict[int, int]) -> dict[int, int]:
    """By place of a store to shared memory: where the first of its sources is written over.

    Its data comes from global memory for each round anew, into the same registers; the load that
    brings it must not wait for one that has just been issued.
    """
    length = len(schedule.order)
    writers: dict[int, list[int]] = {}
    for item in body.items:
        for values in item.writes.values():
            for value in values:
                if item.place in index:
                    writers.setdefault(value.key, []).append(index[item.place])
    found: dict[int, int] = {}
    for item in body.items:
        if item.name != "STS" or item.place not in index:
            continue
        here = index[item.place]
        keys = {value.key for values in item.reads.values() for value in values}
        later = [at if at > here else at + length for key in keys for at in writers.get(key, ())]
        if later:
            found[item.place] = min(later)
    return found


def _shared_out(groups: list[_Group], free: list[int], length: int) -> list[int]:
    """A scoreboard for each group, such that a wait for one seldom waits for another.

    A wait lasts until all that has set the scoreboard is over, also what has just been issued and
    is needed much later. Starting from turns, groups change their scoreboards one by one as long as
    that shortens these waits.
    """
    overlap = [[_waiting(one, other, length) for other in groups] for one in groups]
    order = sorted(range(len(groups)), key=lambda each: groups[each].wait % length)
    chosen = [0] * len(groups)
    for turn, group in enumerate(order):
        chosen[group] = free[turn % len(free)]

    def costs(group: int) -> dict[int, int]:
        found = dict.fromkeys(free, 0)
        for other in range(len(groups)):
            if other != group:
                found[chosen[other]] += overlap[group][other] + overlap[other][group]
        return found

    for _ in range(_ROUNDS):
        before = list(chosen)
        for group in order:
            found = costs(group)
            best = min(found.values())
            if best < found[chosen[group]]:
                chosen[group] = next(board for board in free if found[board] == best)
        if chosen == before:
            break
    return chosen


_ROUNDS = 20


def _waiting(one: _Group, other: _Group, length: int) -> int:
    """Instructions for which a wait for one group would wait for another."""
    since = min((one.wait - issue) % length for issue in other.issues)
    return max(0, other.latency - since)


# ---- waits and stalls


def without_early_waits(words: list[Word], loop: Sequence[Instruction], first: int) -> bool:
    """Drop waits for loads from global and constant memory that have just been issued.

    Most of them asked for something else that the same scoreboard tells, and that something waited
    for since. Mended again, the code gets those back that it needs.

    Parameters
    ----------
    words
        The code, changed in place.
    loop
        The instructions of its loop.
    first
        Where they begin among the words.

    Returns
    -------
    bool
        Whether there were any.
    """
    over = [0] * SCOREBOARDS
    now, changed = 0, False
    for number, each in [*enumerate(loop), *enumerate(loop)]:
        for board in each.control.waits_for:
            kept = ControlWord.decode(words[first + number][1])
            if now < over[board] and kept.wait_mask >> board & 1:
                less = replace(kept, wait_mask=kept.wait_mask & ~(1 << board))
                words[first + number] = with_control(words[first + number], less)
                changed = True
            over[board] = 0
        made = each.control.write_scoreboard
        if made is not None and each.name in ("LDG", "LDC"):
            over[made] = now + latency_of(each)
        now += each.control.stall
    return changed


def mend(words: list[Word], base: int, hazards: tuple[Hazard, ...], loads: frozenset[int]) -> bool:
    """Add the waits and stalls that hazards ask for, to words that begin at an address.

    Parameters
    ----------
    words, base
        The code, changed in place, and its address.
    hazards
        What the checker found.
    loads
        The addresses of loads from global memory.

    Returns
    -------
    bool
        Whether anything was changed.
    """
    changed = False
    told = frozenset(
        base + 16 * n
        for n, word in enumerate(words)
        if ControlWord.decode(word[1]).read_scoreboard is not None
    )
    for hazard in _first_users(hazards, loads, told):
        at, made = (hazard.address - base) // 16, (hazard.producer - base) // 16
        if hazard.kind is HazardKind.STALE_REUSE:
            raise RewriteError(f"the rewriter made stale code: {hazard}", "report this loop")
        if hazard.kind in _BY_TIME:
            changed |= _stall(words, at - 1, hazard.missing)
            continue
        if not (0 <= at < len(words) and 0 <= made < len(words)):
            continue
        producer = ControlWord.decode(words[made][1])
        board = producer.write_scoreboard
        if hazard.kind is HazardKind.SOURCE_OVERWRITTEN and producer.read_scoreboard is not None:
            board = producer.read_scoreboard
        if board is None:
            raise RewriteError(f"nothing tells when it is over: {hazard}", "report this loop")
        user = ControlWord.decode(words[at][1])
        if user.wait_mask >> board & 1:
            changed |= _stall(words, at - 1, 1)  # it waits before the scoreboard is set
        else:
            waits = replace(user, wait_mask=user.wait_mask | 1 << board)
            words[at] = with_control(words[at], waits)
            changed = True
    return changed


def _first_users(
    hazards: tuple[Hazard, ...], loads: frozenset[int], told: frozenset[int]
) -> list[Hazard]:
    """Of those that a scoreboard is missing for: the first after each producer, round the loop.

    Where the first one waits the others need not, and must not: later operations may have set the
    scoreboard again. Least of all may a load from global memory wait where somebody has read what
    was in its register: for the loads just issued it would wait a trip to memory each. ``told`` are
    the addresses of what has a scoreboard for its sources.
    """
    first: dict[tuple[int, HazardKind], Hazard] = {}
    for hazard in hazards:
        if hazard.kind in _BY_TIME or hazard.kind is HazardKind.STALE_REUSE:
            first[hazard.address, hazard.kind] = max(
                hazard, first.get((hazard.address, hazard.kind), hazard), key=lambda h: h.missing
            )
            continue
        kind = hazard.kind
        if kind is HazardKind.RESULT_OVERWRITTEN and hazard.address in loads:
            kind = HazardKind.NOT_WAITED
        of_sources = kind is HazardKind.SOURCE_OVERWRITTEN and hazard.producer in told
        if hazard.producer in loads and not of_sources:
            # Who uses its data waits for all of it. A second wait, where its address is computed
            # or its register filled anew, would be for loads that have just been issued.
            kind = HazardKind.NOT_WAITED
        known = first.setdefault((hazard.producer, kind), hazard)
        if _comes_before(hazard, known):
            first[hazard.producer, kind] = hazard
    return list(first.values())


def _comes_before(one: Hazard, other: Hazard) -> bool:
    return (one.address <= one.producer, one.address) < (
        other.address <= other.producer,
        other.address,
    )


def _stall(words: list[Word], at: int, missing: int) -> bool:
    if not 0 <= at < len(words):
        return False
    control = ControlWord.decode(words[at][1])
    stall = min(control.stall + missing, _LONGEST)
    stay = control.stay and stall <= _LONGEST_STAY
    words[at] = with_control(words[at], replace(control, stall=stall, stay=stay))
    return stall != control.stall
