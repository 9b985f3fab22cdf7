"""Which scoreboard each instruction sets, and the waits and stalls that follow from it."""

from __future__ import annotations

from dataclasses import replace

from lowgemm.emulator.rules import SCOREBOARDS
from lowgemm.errors import RewriteError
from lowgemm.isa import ControlWord
from lowgemm.rewrite.body import Body, Item
from lowgemm.rewrite.emit import Word, with_control
from lowgemm.rewrite.hazards import Hazard, HazardKind
from lowgemm.rewrite.schedule import Schedule, first_uses, load_groups
from lowgemm.rewrite.tile import Tile
from lowgemm.rewrite.walk import Walk

__all__ = ["Boards", "assign_scoreboards", "mend"]

#: By place: the write and the read scoreboard.
Boards = dict[int, tuple[int | None, int | None]]
#: Stall counts with which an instruction may stay on its warp.
_LONGEST_STAY, _LONGEST = 11, 15


def assign_scoreboards(
    body: Body, tile: Tile, walk: Walk, schedule: Schedule
) -> tuple[Boards, int]:
    """Give scoreboards out, and say which a bridge may wait for (a mask).

    Those of asynchronous copies stay; of the others two are for what is no fragment. Groups of
    fragments take turns with the rest, so that a wait for one does not wait for the next.
    """
    kept = _kept(body)
    free = [board for board in range(SCOREBOARDS) if board not in kept]
    others = [
        each
        for each in schedule.order
        if isinstance(each, Item) and _is_asynchronous(each) and each.name != "LDGDEPBAR"
    ]
    groups = load_groups(tile, walk)
    grouped = {place for group in groups for place in group}
    boards: Boards = {}
    rest = [item for item in others if item.place not in grouped]
    writing = any(_has_late_result(item) for item in rest)
    reading = any(item.rule.sources and not _has_late_result(item) for item in rest)
    write = free.pop() if writing else None
    read = free.pop() if reading and len(free) > 1 else write
    for item in rest:
        # A result that has come tells of the sources, too.
        late = _has_late_result(item)
        boards[item.place] = (write if late else None, None if late else read)
    for item in body.items:
        if item.name == "LDGDEPBAR":
            boards[item.place] = (item.instruction.control.write_scoreboard, None)
    for group, board in _rotated(groups, free, tile, walk, schedule).items():
        for place in groups[group]:
            boards[place] = (board, None)
    mask = sum(1 << board for board in range(SCOREBOARDS) if board not in kept)
    return boards, mask


def _has_late_result(item: Item) -> bool:
    return any(producer is None for _, producer in item.rule.results)


def _is_asynchronous(item: Item) -> bool:
    return bool(item.rule.sources) or _has_late_result(item)


def _kept(body: Body) -> set[int]:
    """Scoreboards that count asynchronous copies."""
    found = set()
    for item in body.items:
        if item.name == "LDGDEPBAR" and item.instruction.control.write_scoreboard is not None:
            found.add(item.instruction.control.write_scoreboard)
        if item.rule.leaves is not None:
            found.add(item.rule.leaves[0])
    return found


def _rotated(
    groups: list[list[int]], free: list[int], tile: Tile, walk: Walk, schedule: Schedule
) -> dict[int, int]:
    """A scoreboard for each group, such that a wait for one seldom waits for another's loads.

    A wait lasts until every load that has set the scoreboard is over, also one that has just been
    issued and is needed much later. Starting from turns, groups change their scoreboards one by one
    as long as that shortens these waits.
    """
    if not free:
        raise RewriteError(
            "no scoreboard is left for fragments", "use fewer asynchronous operations"
        )
    count = len(walk.visits)
    needed = first_uses(tile, walk)
    loads = [[schedule.position[place] for place in group] for group in groups]
    waits = [min(needed[place] for place in group) % count for group in groups]
    overlap = [
        [_waiting(waits[one], loads[other], count) for other in range(len(groups))]
        for one in range(len(groups))
    ]
    order = sorted(range(len(groups)), key=lambda each: waits[each])
    chosen = {group: free[turn % len(free)] for turn, group in enumerate(order)}

    def cost(group: int, board: int) -> int:
        return sum(
            overlap[group][other] + overlap[other][group]
            for other in chosen
            if other != group and chosen[other] == board
        )

    changed = True
    while changed:
        changed = False
        for group in order:
            best = min(free, key=lambda board: (cost(group, board), board != chosen[group]))
            if cost(group, best) < cost(group, chosen[group]):
                chosen[group], changed = best, True
    return chosen


#: FFMAs that a load from shared memory takes, as far as waits for another's are concerned.
_LATENCY = 24


def _waiting(wait: int, loads: list[int], count: int) -> int:
    """FFMAs for which a wait at a position would wait for loads at others."""
    since = min((wait - load) % count for load in loads)
    return max(0, _LATENCY - since)


def mend(words: list[Word], base: int, hazards: tuple[Hazard, ...]) -> bool:
    """Add the waits and stalls that hazards ask for, to words that begin at an address.

    Returns
    -------
    bool
        Whether anything was changed.
    """
    changed = False
    for hazard in _first_users(hazards):
        at, made = (hazard.address - base) // 16, (hazard.producer - base) // 16
        if hazard.kind is HazardKind.STALE_REUSE:
            raise RewriteError(f"the rewriter made stale code: {hazard}", "report this loop")
        if hazard.kind is HazardKind.TOO_EARLY:
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
        if not user.wait_mask >> board & 1:
            words[at] = with_control(
                words[at], replace(user, wait_mask=user.wait_mask | 1 << board)
            )
            changed = True
    return changed


def _first_users(hazards: tuple[Hazard, ...]) -> list[Hazard]:
    """Of those that a scoreboard is missing for: the first after each producer, round the loop.

    Where the first one waits the others need not, and must not: later operations may have set the
    scoreboard again.
    """
    first: dict[tuple[int, HazardKind], Hazard] = {}
    for hazard in hazards:
        if hazard.kind in (HazardKind.TOO_EARLY, HazardKind.STALE_REUSE):
            first[hazard.address, hazard.kind] = max(
                hazard, first.get((hazard.address, hazard.kind), hazard), key=lambda h: h.missing
            )
            continue
        known = first.setdefault((hazard.producer, hazard.kind), hazard)
        if _comes_before(hazard, known):
            first[hazard.producer, hazard.kind] = hazard
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
