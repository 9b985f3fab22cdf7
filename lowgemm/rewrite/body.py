"""A loop body taken apart: which value each operand is, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from lowgemm.binary.flow import Loop, sass_flow
from lowgemm.binary.instruction import Instruction
from lowgemm.emulator.operation import Operation
from lowgemm.emulator.program import Program
from lowgemm.emulator.rules import PREDICATE, UNIFORM, Rule, rules_of
from lowgemm.errors import RewriteError
from lowgemm.rewrite.liveness import live_registers

__all__ = ["Body", "Exit", "Item", "Value", "hot_loop", "take_apart"]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """What a register holds from one write to the next.

    ``key`` numbers the register as :mod:`lowgemm.emulator.rules` does, ``maker`` is the place in
    the body of the instruction that writes it, None for what the loop is entered with.
    """

    key: int
    maker: int | None


@dataclass(frozen=True, slots=True)
class Item:
    """An instruction of the body.

    ``reads`` and ``writes`` hold, by operand slot, the values of its registers from the first on;
    predicates and what has no slot stand under ``""``, the guard under ``"@"``, and what is left of
    a register that it may not write under ``"old"``.
    """

    place: int
    instruction: Instruction
    rule: Rule
    reads: dict[str, tuple[Value, ...]]
    writes: dict[str, tuple[Value, ...]]

    @property
    def name(self) -> str:
        """The mnemonic without modifiers."""
        return self.instruction.name

    @property
    def is_branch(self) -> bool:
        """Whether it may leave the body, or begin it again."""
        return self.name in ("BRA", "CALL") and not self.instruction.is_filler


@dataclass(frozen=True, slots=True)
class Exit:
    """Where a loop is left: the branch, the address that follows, and the values by register."""

    place: int
    target: int
    left: dict[int, Value] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Body:
    """A loop body: its instructions, the values that it is entered with, and those that it leaves.

    ``first`` and ``last`` are the indices of its instructions in the kernel, the branch back
    included. ``entered`` are the values by register at the top, ``left`` those at the end, of every
    register that the body names. ``exits`` are in their order; the last is behind the branch back.
    """

    program: Program
    first: int
    last: int
    items: tuple[Item, ...]
    entered: dict[int, Value] = field(repr=False)
    left: dict[int, Value] = field(repr=False)
    exits: tuple[Exit, ...] = ()

    def readers(self) -> dict[Value, list[tuple[Item, str, int]]]:
        """By value: who reads it, in which slot, and which of the slot's registers it is."""
        found: dict[Value, list[tuple[Item, str, int]]] = {}
        for item in self.items:
            for slot, values in item.reads.items():
                for word, value in enumerate(values):
                    found.setdefault(value, []).append((item, slot, word))
        return found


def hot_loop(program: Program) -> Loop:
    """The innermost loop with the most FFMAs.

    Raises
    ------
    RewriteError
        No loop has an FFMA, or that loop has branches inside: it may be left at several places,
        but must be gone through from its top to its end.
    """
    instructions = program.kernel.instructions
    flow = sass_flow(program.kernel)

    def ffmas(loop: Loop) -> int:
        blocks = (flow.blocks[index] for index in loop.own_blocks)
        return sum(
            instructions[i].name == "FFMA" for b in blocks for i in range(b.first, b.last + 1)
        )

    loop = max(flow.loops, key=ffmas, default=None)
    if loop is None or not ffmas(loop):
        packed = any(each.name == "FFMA2" for each in instructions)
        raise RewriteError(
            f"kernel {program.kernel.name} has no loop with an FFMA"
            + (", only packed ones (FFMA2)" if packed else ""),
            "compile it for another architecture" if packed else "there is nothing to gain",
        )
    _check_place(program, loop)
    inside = range(loop.start + 16, loop.end)
    targets = {each.target for each in instructions[loop.start // 16 : loop.end // 16]}
    whole = sum(flow.blocks[each].end - flow.blocks[each].start for each in loop.blocks)
    if whole != loop.end - loop.start or any(target in inside for target in targets):
        raise RewriteError(
            f"the hot loop of {program.kernel.name} at {loop.start:#06x} has branches inside",
            "make it free of branches: read the last tile again instead of testing for the end",
        )
    return loop


#: Special registers that tell the time: %clock, %clock_hi, %globaltimer and its high word.
_CLOCKS = range(80, 84)


def _check_place(program: Program, loop: Loop) -> None:
    """Refuse what no proof about the loop alone can show to stay the same.

    Raises
    ------
    RewriteError
        A function behind the kernel holds the loop: who calls it keeps values in registers that
        nothing after the loop names. Or the loop reads the time.
    """
    instructions = program.kernel.instructions
    flow = sass_flow(program.kernel)
    reached, waiting = set(loop.blocks), list(loop.blocks)
    while waiting:
        block = flow.blocks[waiting.pop()]
        if instructions[block.last].name == "RET":
            raise RewriteError(
                f"the hot loop at {loop.start:#06x} stands in a function that is called",
                "have the compiler put it into the kernel: __forceinline__",
            )
        new = set(block.successors) - reached
        reached |= new
        waiting += new
    for each in instructions[loop.start // 16 : loop.end // 16]:
        if each.name in ("CS2R", "S2R", "S2UR") and each.high >> 8 & 0xFF in _CLOCKS:
            raise RewriteError(
                f"the hot loop reads the time at {each.address:#06x}",
                "instructions change their places; read it outside of the loop",
            )


def take_apart(program: Program, loop: Loop, *, by_guards: bool = False) -> Body:
    """Follow the registers through a loop body.

    Parameters
    ----------
    program
        The kernel, ready to execute.
    loop
        One of its loops.
    by_guards
        Whether to forget what lies under guarded writes where only users with that guard look. It
        frees registers, and makes two bodies comparable only if both do without the same.
    """
    first, last = loop.start // 16, loop.end // 16 - 1
    rules = rules_of(program).rules
    entered: dict[int, Value] = {}
    current: dict[int, Value] = {}

    def read(key: int) -> Value:
        if key not in current:
            current[key] = entered[key] = Value(key, None)
        return current[key]

    items = []
    exits = []
    for index in range(first, last + 1):
        operation, rule, place = program.operations[index], rules[index], index - first
        if operation.error is not None:
            raise operation.error
        reads: dict[str, tuple[Value, ...]] = {}
        for slot, keys in _read_keys(operation, rule):
            reads[slot] = reads.get(slot, ()) + tuple(map(read, keys))
        if rule.guard is not None and rule.results:
            reads["old"] = tuple(read(key) for key, _ in rule.results)
        writes: dict[str, tuple[Value, ...]] = {}
        for slot, keys in _written_keys(operation, rule):
            made = tuple(Value(key, place) for key in keys)
            current.update((value.key, value) for value in made)
            writes[slot] = writes.get(slot, ()) + made
        items.append(Item(place, operation.instruction, rule, reads, writes))
        # Before sm_90 ptxas leaves some loops by CALL.REL.NOINC to what follows them.
        if items[-1].is_branch:
            target = operation.instruction.target if index < last else loop.end
            exits.append(Exit(place, target or 0, dict(current)))
    needed, users = _needed(program, first, current, exits), _users(items)
    needless = _opposite(items, needed, users)
    if by_guards:
        _add_used_under_its_guard(items, needed, users, needless)
    items = [
        replace(item, reads=_trimmed(item, needless[item.place]))
        if item.place in needless
        else item
        for item in items
    ]
    # What only a needless old value was read for need not be there when the loop begins again.
    used = {value for item in items for values in item.reads.values() for value in values}
    entered = {key: value for key, value in entered.items() if value in used}
    return Body(program, first, last, tuple(items), entered, dict(current), tuple(exits))


def _needed(
    program: Program, first: int, current: dict[int, Value], exits: list[Exit]
) -> set[Value]:
    """The values that are used behind the loop or in its next round."""
    live = live_registers(program)
    ways = [(current, live[first])]
    ways += [(each.left, live[each.target // 16]) for each in exits]
    # Only of general registers it is known whether they are used.
    return {
        value for left, keys in ways for key, value in left.items() if key in keys or key >= UNIFORM
    }


_Users = dict[Value, list[tuple[Item, str]]]


def _users(items: list[Item]) -> _Users:
    """By value: who uses it, and in which slot."""
    found: _Users = {}
    for item in items:
        for slot, values in item.reads.items():
            for value in values:
                found.setdefault(value, []).append((item, slot))
    return found


def _guard(item: Item) -> tuple[tuple[Value, ...] | None, bool]:
    return item.reads.get("@"), item.rule.negated


def _is_guarded(item: Item, users: list[tuple[Item, str]]) -> bool:
    """Whether users look only where an item's guard holds.

    An old value under a guarded write is seen where that guard does not hold.
    """
    return all(slot != "old" and _guard(user) == _guard(item) for user, slot in users)


def _opposite(items: list[Item], needed: set[Value], users: _Users) -> dict[int, set[Value]]:
    """By item: old values under a guarded write where the opposite guard writes as well.

    Of ``@P0 LDG R1`` and ``@!P0 MOV R1`` one writes in any case, so that nothing is left of before;
    but in between nobody may look who would see it.
    """
    needless: dict[int, set[Value]] = {}
    for second in items:
        for old in second.reads.get("old", ()):
            if old.maker is None or old in needed:
                continue
            first = items[old.maker]
            same = first.reads.get("@") == second.reads.get("@")
            others = [(u, slot) for u, slot in users[old] if u is not second or slot != "old"]
            if same and first.rule.negated != second.rule.negated and _is_guarded(first, others):
                before = dict(zip(_made(first), first.reads["old"], strict=True))
                needless.setdefault(first.place, set()).add(before[old])
    return needless


def _add_used_under_its_guard(
    items: list[Item], needed: set[Value], users: _Users, needless: dict[int, set[Value]]
) -> None:
    """Add the old values under results that only items with the same guard use.

    Of ``@P0 MOV R1, R2`` what is used by ``@P0 LDG R3, [R1]`` alone matters only if it wrote. That
    holds too where ``@P0 ADD R1, R1, 4`` lies in between and nothing of before is seen under it:
    so the last come first.
    """
    for item in reversed(items):
        for made, old in zip(_made(item), item.reads.get("old", ()), strict=False):
            seen = [
                (user, slot)
                for user, slot in users.get(made, [])
                if slot != "old" or made not in needless.get(user.place, ())
            ]
            if made not in needed and _is_guarded(item, seen):
                needless.setdefault(item.place, set()).add(old)


def _made(item: Item) -> list[Value]:
    made = {value.key: value for values in item.writes.values() for value in values}
    return [made[key] for key, _ in item.rule.results]


def _trimmed(item: Item, needless: set[Value]) -> dict[str, tuple[Value, ...]]:
    old = tuple(value for value in item.reads["old"] if value not in needless)
    return {**item.reads, "old": old}


def _read_keys(operation: Operation, rule: Rule) -> Iterator[tuple[str, tuple[int, ...]]]:
    slots = _slots(operation.instruction, written=False)
    told = set()
    for first, count, uniform in operation.reads:
        base = first + (UNIFORM if uniform else 0)
        # A register in two slots is told twice: each of them is an operand of its own.
        for slot in slots.get((first, uniform), [""]):
            if (slot, base) not in told:
                told.add((slot, base))
                yield slot, tuple(range(base, base + count))
    predicates = [use.key for use in rule.reads if use.slot == "" and use.key >= PREDICATE]
    if predicates:
        yield "", tuple(predicates)
    if rule.guard is not None:
        yield "@", (rule.guard.key,)


def _written_keys(operation: Operation, rule: Rule) -> Iterator[tuple[str, tuple[int, ...]]]:
    slots = _slots(operation.instruction, written=True)
    for first, count, uniform in operation.writes:
        base = first + (UNIFORM if uniform else 0)
        for slot in slots.get((first, uniform), [""]):
            yield slot, tuple(range(base, base + count))
    predicates = tuple(key for key, _ in rule.results if key >= PREDICATE)
    if predicates:
        yield "", predicates


def _slots(instruction: Instruction, *, written: bool) -> dict[tuple[int, bool], list[str]]:
    found: dict[tuple[int, bool], list[str]] = {}
    for each in instruction.registers:
        if each.written == written:
            found.setdefault((each.number, each.uniform), []).append(each.slot)
    return found
