"""The outer products of a loop body: accumulators, operands, and a walk that reads few registers.

A loop that multiplies a TM x TN thread tile does, in each step along k, one FFMA for every pair of
one of TM and one of TN operands. Walked row by row, an FFMA has one operand in common with the one
before, which the operand collector keeps (``.reuse``); it reads the other and its accumulator. Both
are there in one cycle if they lie in different banks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lowgemm.binary.instruction import Instruction
from lowgemm.errors import RewriteError
from lowgemm.isa import Form
from lowgemm.rewrite.body import Body, Item, Value

__all__ = ["Chain", "Fragment", "Step", "Tile", "Visit", "find_tile", "is_copy", "is_plain_ffma"]

# Bits of FFMA R, R, R, R beside registers and control word: operation and form, and "always".
_PLAIN_LOW, _PLAIN_LOW_MASK = 0x7223, 0xFFFF | 0xFFFFFF << 40
_PLAIN_HIGH_MASK = (1 << 41) - 1 ^ 255


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """An accumulator: the FFMAs that add to it, in their order.

    ``copies`` are moves between registers on its way, which one register makes needless.
    """

    ffmas: tuple[Item, ...]
    entered: Value
    left: Value
    copies: tuple[Item, ...] = ()

    @property
    def values(self) -> tuple[Value, ...]:
        """All that it is, one after the other."""
        made = sorted((*self.ffmas, *self.copies), key=lambda item: item.place)
        return (self.entered, *(item.writes["d"][0] for item in made))


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """What one load from shared memory brings for FFMAs: ``values`` by word.

    ``entered`` are those with which the loop is entered in the same registers, if there are such:
    the load is then for the next iteration.
    """

    load: Item
    values: tuple[Value, ...]
    entered: tuple[Value | None, ...]


@dataclass(frozen=True, slots=True)
class Visit:
    """An FFMA in the walk: ``kept`` is the operand in common with its neighbours."""

    item: Item
    kept: Value
    varied: Value


@dataclass(frozen=True, slots=True)
class Step:
    """One step along k: each pair of a row's and a column's operand, with its FFMA."""

    rows: tuple[Value, ...]
    cols: tuple[Value, ...]
    pairs: dict[tuple[Value, Value], Item]


@dataclass(frozen=True, slots=True)
class Tile:
    """The outer products of a loop body.

    ``owner`` gives the fragment and the word of each value that a fragment brings, entered ones
    included.
    """

    chains: tuple[Chain, ...]
    fragments: tuple[Fragment, ...]
    steps: tuple[Step, ...]
    owner: dict[Value, tuple[Fragment, int]]

    def bank(self, value: Value) -> int:
        """The bank of an operand: fragments begin at even registers."""
        if value in self.owner:
            return self.owner[value][1] % 2
        return value.key % 2


def is_plain_ffma(instruction: Instruction) -> bool:
    """Whether it is an FFMA of three registers without guard, signs or rounding of its own."""
    low, high = instruction.low, instruction.high
    return (
        instruction.name == "FFMA"
        and instruction.form is Form.rr
        and low & _PLAIN_LOW_MASK == _PLAIN_LOW
        and high & _PLAIN_HIGH_MASK == 0
        and len(instruction.registers) == 4
    )


def find_tile(body: Body) -> Tile:
    """Find the outer products.

    Raises
    ------
    RewriteError
        The FFMAs are none.
    """
    plain = {item.place for item in body.items if is_plain_ffma(item.instruction)}
    chains = _chains(body, plain)
    fragments = _fragments(body, plain)
    owner = {
        value: (fragment, word)
        for fragment in fragments
        for pair in (fragment.values, fragment.entered)
        for word, value in enumerate(pair)
        if value is not None
    }
    return Tile(chains, fragments, tuple(_steps(chains)), owner)


# ---- accumulators


def _chains(body: Body, plain: set[int]) -> tuple[Chain, ...]:
    readers = body.readers()
    chains = []
    for key, entered in body.entered.items():
        ffmas: list[Item] = []
        copies: list[Item] = []
        value = entered
        while len(users := readers.get(value, [])) == 1:
            user, slot, _ = users[0]
            if slot == "c" and user.place in plain:
                ffmas.append(user)
            elif is_copy(user):
                copies.append(user)
            else:
                break
            (value,) = user.writes["d"]
        if ffmas and not users and body.left[key] is value:
            chains.append(Chain(tuple(ffmas), entered, value, tuple(copies)))
    if not chains:
        raise RewriteError(
            "no FFMA of the loop adds to an accumulator that goes round with it",
            "the rewriter improves sums of products over the loop",
        )
    return tuple(chains)


def is_copy(item: Item) -> bool:
    """Whether it only copies a register into another: MOV, or an IMAD with two zero factors."""
    sources = [len(values) for values in item.reads.values()]
    alone = sources == [1] and len(item.writes.get("d", ())) == 1
    return item.instruction.is_move and item.rule.guard is None and alone


# ---- operands


def _fragments(body: Body, plain: set[int]) -> tuple[Fragment, ...]:
    readers = body.readers()
    entered_by_left = {
        body.left[key]: value for key, value in body.entered.items() if value in readers
    }

    def is_operand(value: Value | None) -> bool:
        users = readers.get(value, []) if value is not None else []
        return all(slot in "ab" and item.place in plain for item, slot, _ in users)

    found = []
    for item in body.items:
        if item.name != "LDS" or item.rule.guard is not None or "d" not in item.writes:
            continue
        values = item.writes["d"]
        entered = tuple(entered_by_left.get(value) for value in values)
        # A value that stays in its register unread until the loop's end is one of the next round.
        if all(map(is_operand, (*values, *entered))):
            found.append(Fragment(item, values, entered))
    return tuple(found)


# ---- steps along k


def _steps(chains: Sequence[Chain]) -> Iterable[Step]:
    length = len(chains[0].ffmas)
    if any(len(chain.ffmas) != length for chain in chains):
        raise RewriteError(
            "the accumulators are added to a different number of times each iteration",
            "the rewriter needs the same outer product for all of them",
        )
    rows_of: list[frozenset[int]] | None = None
    for number in range(length):
        step = _step([chain.ffmas[number] for chain in chains])
        places = {chain.ffmas[number].place: at for at, chain in enumerate(chains)}
        by_row = _partition(step, places, step.rows, 0)
        # Rows are those of the first step, so that an accumulator keeps its row.
        if rows_of is None:
            rows_of = by_row
        elif set(by_row) != set(rows_of):
            flipped = {(b, a): item for (a, b), item in step.pairs.items()}
            step = Step(step.cols, step.rows, flipped)
        yield step


def _partition(
    step: Step, places: dict[int, int], side: Sequence[Value], which: int
) -> list[frozenset[int]]:
    return [
        frozenset(places[item.place] for pair, item in step.pairs.items() if pair[which] is value)
        for value in side
    ]


def _step(ffmas: Sequence[Item]) -> Step:
    """The rectangle that FFMAs make of their factors."""
    factors = {item.place: (item.reads["a"][0], item.reads["b"][0]) for item in ffmas}
    neighbours: dict[Value, list[Value]] = {}
    for a, b in factors.values():
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    first = factors[ffmas[0].place][0]
    cols = list(dict.fromkeys(neighbours[first]))
    rows = list(dict.fromkeys(neighbours[cols[0]]))
    pairs: dict[tuple[Value, Value], Item] = {}
    in_rows = set(rows)
    for item in ffmas:
        a, b = factors[item.place]
        pairs[(a, b) if a in in_rows else (b, a)] = item
    whole = {(row, col) for row in rows for col in cols}
    if set(pairs) != whole or len(ffmas) != len(whole):
        raise RewriteError(
            f"{len(ffmas)} FFMAs of one step are no outer product of {len(rows)} and {len(cols)} "
            "operands",
            "the rewriter needs each operand of one side with each of the other",
        )
    return Step(tuple(rows), tuple(cols), pairs)
