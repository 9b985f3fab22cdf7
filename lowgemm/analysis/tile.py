"""The register tile that a GEMM's loop on a CPU implies.

It follows from the data flow of one pass through the loop. Each factor of a multiply-add is a
value: a vector that was loaded, elements that were broadcast, one lane of a register. Values that
meet in a multiply-add belong to one k-step, so the connected groups of values are the k-steps. In a
k-step of a GEMM each value of one side meets each of the other, every time in an accumulator of its
own: rows are the elements of the side that is loaded as vectors, columns those of the side that is
repeated across the vector. Where rows times columns is not the number of accumulated elements, or a
multiply-add of the loop accumulates nothing, the loop is no such outer product and has no tile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lowgemm.binary.host import HostInstruction, HostMemory, HostRegister

__all__ = [
    "MultiplyAdd",
    "RegisterTile",
    "Sums",
    "follow_sums",
    "is_broadcast",
    "multiply_add",
    "register_tile",
]


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The part of C that a loop keeps in registers, in elements.

    ``rows`` run along the vector, ``columns`` are the broadcast ones: a kernel that loads B as
    vectors has its m and n the other way round. ``k_steps`` are those of one
    pass through the loop; ``copies`` says how many sets of accumulators take turns over them.
    """

    rows: int
    columns: int
    element_bits: int
    k_steps: int
    copies: int

    def __str__(self) -> str:
        return f"{self.rows} x {self.columns}"


# ---- multiply-adds and broadcasts

_X86_FMA = re.compile(r"vfn?m(?:add|sub|addsub|subadd)(132|213|231)([ps])([sdh])$")
_X86_ELEMENT_BITS = {"s": 32, "d": 64, "h": 16}
_ARM_FMA = re.compile(r"f(n?ml[as]|n?m(ad|sb)|n?m(add|sub)|mop[as])$")
# SVE's that multiply their destination, and SME's, whose destination is no vector.
_ARM_OVERWRITES = re.compile(r"f(n?m(ad|sb)|mop[as])$")
_BROADCAST = re.compile(r"(v\w*broadcast\w+|ld[1-4]r\w*|dup)$")


@dataclass(frozen=True, slots=True)
class MultiplyAdd:
    """A fused multiply-add.

    ``factors`` are two, ``added`` what their product is added to; a register, or memory. ``lanes``
    and ``width_bits`` are None where the vectors are scalable.
    """

    destination: HostRegister
    factors: tuple[HostRegister | HostMemory, ...]
    added: HostRegister | HostMemory | None
    element_bits: int
    width_bits: int | None

    @property
    def lanes(self) -> int | None:
        """How many elements it multiplies."""
        return None if self.width_bits is None else self.width_bits // self.element_bits

    @property
    def registers(self) -> tuple[HostRegister, ...]:
        """The factors that stand in registers."""
        return tuple(f for f in self.factors if isinstance(f, HostRegister))


def multiply_add(instruction: HostInstruction) -> MultiplyAdd | None:
    """An instruction as a fused multiply-add, if it is one."""
    if not instruction.registers:
        return None
    if match := _X86_FMA.match(instruction.mnemonic):
        return _x86_fma(instruction, match[1], match[2] == "s", _X86_ELEMENT_BITS[match[3]])
    if _ARM_FMA.match(instruction.mnemonic):
        return _arm_fma(instruction)
    return None


def _x86_fma(instruction: HostInstruction, form: str, scalar: bool, bits: int) -> MultiplyAdd:
    """The digits of the name say which operands are multiplied and which, the last, is added."""
    destination = instruction.registers[0]
    operands: list[HostRegister | HostMemory] = [*instruction.registers]
    if instruction.memory:
        operands.append(instruction.memory)
    first, second, added = (
        operands[place] if (place := int(digit) - 1) < len(operands) else None for digit in form
    )
    factors = tuple(factor for factor in (first, second) if factor is not None)
    width = bits if scalar else destination.width_bits
    return MultiplyAdd(destination, factors, added, bits, width)


def _arm_fma(instruction: HostInstruction) -> MultiplyAdd:
    destination, *others = instruction.registers
    bits = destination.element_bits or (others[-1].element_bits if others else None) or 32
    added: HostRegister | None = destination
    factors = others[:2]
    if _ARM_OVERWRITES.match(instruction.mnemonic):
        # SVE's FMAD multiplies its destination; SME's FMOPA has one that is no vector.
        is_outer = instruction.mnemonic.startswith("fmop")
        factors = others[:2] if is_outer else [destination, *others[:1]]
        added = None if is_outer or len(others) < 2 else others[1]
    elif len(others) > 2:
        added = others[2]
    return MultiplyAdd(destination, tuple(factors), added, bits, destination.width_bits)


def is_broadcast(instruction: HostInstruction) -> bool:
    """Whether it repeats an element, or a part of a vector, across the vector."""
    if _BROADCAST.match(instruction.mnemonic):
        return True
    widest = max((r.width_bits or 0 for r in instruction.registers), default=0)
    if instruction.mnemonic.endswith("movddup"):
        return widest == 128
    fma, memory = multiply_add(instruction), instruction.memory
    return bool(fma and memory and (memory.width_bits or 0) < (fma.width_bits or 0))


# ---- the register tile

_HALF = re.compile(r"v?movs[lh]dup$")
_COPY = re.compile(r"(v?mov[au]p[sd]|v?movdq[au]\w*|mov|fmov|orr)$")
_LOAD = re.compile(r"(v?mov\w+|v?lddqu|v\w*broadcast\w+|ld\w+)$")
_STEP = re.compile(r"(add|sub)s? (\w+), (?:\2, )?#?(-?(?:0x[0-9a-f]+|\d+))$")
_STACK = ("rsp", "rbp", "sp", "x29")
_SIGNS = {"add": 1, "sub": -1}
_PERMUTE = re.compile(r"(vpermil\w+|vperm[pqdsf]\w*|v?pshufd|v?shufp[sd]|rev64|ext)$")


@dataclass(frozen=True, slots=True)
class _Value:
    """A vector value: where it comes from, and how many different bits it holds (None: unknown).

    ``broadcast``: it was made by repeating what it holds across the vector, or is one lane.
    """

    origin: tuple[object, ...]
    distinct_bits: int | None = None
    broadcast: bool = False


@dataclass(slots=True)
class _State:
    """On one pass, the values of vector registers, and of general ones what they are based on.

    A general register is what an instruction made it, plus a number.
    """

    values: dict[str, _Value] = field(default_factory=dict)
    bases: dict[str, tuple[object, int]] = field(default_factory=dict)

    def of(self, register: HostRegister) -> _Value:
        value = self.values.get(register.identity, _Value(("before", register.identity)))
        if register.lane is None:
            return value
        return _Value((*value.origin, "lane", register.lane), register.element_bits, True)

    def loaded(self, what: str, memory: HostMemory, place: int = 0) -> tuple[object, ...]:
        """Names what is in memory: the same for two loads of one address."""
        (base, offset), (index, further) = map(self._based, (memory.base, memory.index))
        offset += memory.displacement + further * memory.scale
        return (what, base, index, memory.scale, offset, memory.width_bits, place)

    def slot(self, memory: HostMemory) -> str | None:
        """The name of a place on the stack, where compilers keep what registers cannot hold."""
        base, offset = self._based(memory.base)
        if base not in _STACK or memory.index:
            return None
        return f"{base}{offset + memory.displacement:+d}"

    def kept(self, memory: HostMemory) -> _Value | None:
        """What the loop itself has put on the stack there."""
        return self.values.get(self.slot(memory) or "")

    def move_pointers(self, place: int, instruction: HostInstruction) -> None:
        """Follow general registers: one to which a number is added is still known."""
        step = _STEP.match(f"{instruction.mnemonic} {instruction.operands}")
        for name in instruction.written:
            base, offset = self._based(name)
            if step is None:
                self.bases[name] = ((name, place), 0)
            else:
                self.bases[name] = (base, offset + int(step[3], 0) * _SIGNS[step[1]])

    def _based(self, register: str) -> tuple[object, int]:
        return self.bases.get(register, (register, 0))


@dataclass(frozen=True, slots=True)
class _Step:
    """A multiply-add on a pass: the values that it takes, and the origin of the one it makes."""

    result: tuple[object, ...]
    factors: tuple[_Value, ...]
    added: _Value
    fma: MultiplyAdd


@dataclass(frozen=True, slots=True)
class _Product:
    """A product, and the sum that it is added to, by the register in which that begins a pass."""

    accumulator: str
    factors: tuple[_Value, _Value]
    fma: MultiplyAdd


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums that a loop carries from pass to pass, and the products added to them in one.

    ``accumulators`` are the registers in which they begin a pass. On the way a sum may stand in
    others: compilers write it over a factor and copy it back.
    """

    accumulators: frozenset[str]
    products: tuple[_Product, ...]


def follow_sums(body: Sequence[HostInstruction]) -> Sums:
    """Find the sums of a pass through a loop by following values, wherever they stand."""
    state = _State()
    _pass(body, state)
    # What a register holds at the end is what the next pass begins with.
    after = _State({name: _entering(name, value) for name, value in state.values.items()})
    steps = _pass(body, after)
    paths = _paths(steps, after)
    accumulator: dict[tuple[object, ...], str] = {}
    for name, ends in paths.items():
        for end, path in ends.items():
            if name == end or name in _following(paths, end):  # it comes round
                accumulator |= dict.fromkeys((step.result for step in path), name)
    products = (
        _Product(accumulator[step.result], (step.factors[0], step.factors[1]), step.fma)
        for step in steps
        if step.result in accumulator
    )
    return Sums(frozenset(accumulator.values()), tuple(products))


def _paths(steps: Sequence[_Step], after: _State) -> dict[str, dict[str, list[_Step]]]:
    """From each register at the begin of a pass to those at its end: what is added on the way."""
    added = {step.result: step for step in steps}
    paths: dict[str, dict[str, list[_Step]]] = {}
    for end, value in after.values.items():
        path = []
        while value.origin in added:
            path.append(added[value.origin])
            value = path[-1].added
        if value.origin[0] == "before" and len(value.origin) == 2:
            paths.setdefault(str(value.origin[1]), {})[end] = path
    return paths


def _following(paths: Mapping[str, Mapping[str, object]], name: str) -> set[str]:
    """The registers where a value may stand after one pass or more."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        ends = set(paths.get(waiting.pop(), ())) - found
        found |= ends
        waiting.extend(ends)
    return found


def register_tile(sums: Sums) -> RegisterTile | None:
    """The tile that a loop's products make up, if they are those of outer products."""
    if not sums.products:
        return None
    steps = [_outer_product(group) for group in _groups(sums.products)]
    shapes = set(steps)
    shape = shapes.pop()
    if shapes or shape is None:
        return None
    rows, columns = shape
    fma = sums.products[0].fma
    copies = len(sums.accumulators) * (fma.lanes or 1) // (rows * columns)
    return RegisterTile(rows, columns, fma.element_bits, len(steps), max(copies, 1))


def _entering(name: str, value: _Value) -> _Value:
    return _Value(("before", name), value.distinct_bits, value.broadcast)


def _pass(body: Sequence[HostInstruction], state: _State) -> list[_Step]:
    steps = []
    for place, instruction in enumerate(body):
        fma = multiply_add(instruction)
        added = _added(fma, state) if fma is not None else None
        if fma is not None and added is not None and len(fma.factors) == 2:
            factors = tuple(_factor(factor, fma, state) for factor in fma.factors)
            steps.append(_Step(("sum", place), factors, added, fma))
            state.values[fma.destination.identity] = _Value(("sum", place))
        else:
            _define(place, instruction, state)
        state.move_pointers(place, instruction)
    return steps


def _added(fma: MultiplyAdd, state: _State) -> _Value | None:
    if isinstance(fma.added, HostRegister):
        return state.of(fma.added)
    return None if fma.added is None else state.kept(fma.added)


def _factor(factor: HostRegister | HostMemory, fma: MultiplyAdd, state: _State) -> _Value:
    if isinstance(factor, HostRegister):
        return state.of(factor)
    repeats = (factor.width_bits or 0) < (fma.width_bits or 0)
    if not repeats and (kept := state.kept(factor)) is not None:
        return kept
    origin = state.loaded("broadcast" if repeats else "load", factor)
    return _Value(origin, factor.width_bits, repeats)


def _define(place: int, instruction: HostInstruction, state: _State) -> None:
    """Record what an instruction leaves in vector registers, and in their places on the stack."""
    written = [
        r for r in instruction.registers if r.is_vector and r.identity in instruction.written
    ]
    sources = [r for r in instruction.registers if r.is_vector and r not in written]
    memory, name = instruction.memory, instruction.mnemonic
    if memory and memory.stores and (slot := state.slot(memory)):
        is_whole = len(sources) == 1 and sources[0].width_bits == memory.width_bits
        state.values[slot] = state.of(sources[0]) if is_whole else _Value(("made", place, -1))
    for nth, register in enumerate(dict.fromkeys(written)):
        value = _Value(("made", place, nth))
        before = state.values.get(register.identity)
        if register.lane is not None:
            if before and before.distinct_bits is not None:
                value = _Value(value.origin, before.distinct_bits + (register.element_bits or 0))
        elif memory and memory.loads and _LOAD.match(name):
            value = _loaded(name, register, memory, nth, len(written), state)
        elif not memory and _COPY.match(name) and len({r.identity for r in sources}) == 1:
            value = state.of(sources[0])
        elif _BROADCAST.match(name) and not memory:
            held = {"s": 32, "d": 64}.get(name[-1], register.element_bits)
            value = _Value(value.origin, held, True)
        elif _PERMUTE.match(name) and not memory:
            value = _permuted(value.origin, instruction, state)
        state.values[register.identity] = value


def _loaded(
    name: str, register: HostRegister, memory: HostMemory, nth: int, of: int, state: _State
) -> _Value:
    bits, width = memory.width_bits, register.width_bits
    if bits is not None:
        bits //= of
    if of == 1 and bits == width and (kept := state.kept(memory)) is not None:
        return kept
    duplicates = name.endswith("movddup")
    if bits is not None and width is not None and (_HALF.match(name) or duplicates):
        bits = min(bits, width // 2)
    halves = name if _HALF.match(name) or duplicates else ""
    broadcast = duplicates or bool(_BROADCAST.match(name))
    what = halves or ("broadcast" if broadcast else "load")
    return _Value(state.loaded(what, memory, nth), bits, broadcast)


def _permuted(origin: tuple[object, ...], instruction: HostInstruction, state: _State) -> _Value:
    """A permutation of one vector holds what that vector held (an index vector is no source)."""
    sources = [state.of(r) for r in instruction.registers[1:] if r.is_vector]
    known = [value for value in sources if value.distinct_bits is not None]
    bits = known[0].distinct_bits if len({value.origin for value in known}) == 1 else None
    return _Value(origin, bits)


def _groups(products: Sequence[_Product]) -> list[list[_Product]]:
    """Products that share values, directly or through others."""
    above: dict[_Value, _Value] = {}

    def top(value: _Value) -> _Value:
        while above.setdefault(value, value) != value:
            value = above[value]
        return value

    for product in products:
        above[top(product.factors[0])] = top(product.factors[1])
    groups: dict[_Value, list[_Product]] = {}
    for product in products:
        groups.setdefault(top(product.factors[0]), []).append(product)
    return list(groups.values())


def _outer_product(group: Sequence[_Product]) -> tuple[int, int] | None:
    """Rows and columns, where each element of one side meets each of the other once."""
    sides = _sides(group)
    if sides is None:
        return None
    bits, lanes = group[0].fma.element_bits, group[0].fma.lanes
    if lanes is None or any(p.fma.lanes != lanes for p in group):
        return None
    elements = []
    for side in sides:
        if any(value.distinct_bits is None for value in side):
            return None
        elements.append(sum((value.distinct_bits or 0) // bits for value in side))
    blocks = {
        (a.distinct_bits or 0) * (b.distinct_bits or 0) for a, b in (p.factors for p in group)
    }
    accumulated = len({p.accumulator for p in group}) * lanes
    if blocks != {lanes * bits * bits} or elements[0] * elements[1] != accumulated:
        return None
    first, second = (_along_vector(side) for side in sides)
    swapped = (second, elements[1]) > (first, elements[0])
    return (elements[1], elements[0]) if swapped else (elements[0], elements[1])


def _along_vector(side: Iterable[_Value]) -> tuple[int, bool]:
    """How many bits of a vector a side's values fill; where that decides nothing, who repeats."""
    values = list(side)
    filled = max(value.distinct_bits or 0 for value in values)
    return filled, not all(value.broadcast for value in values)


def _sides(group: Sequence[_Product]) -> tuple[set[_Value], set[_Value]] | None:
    """The two sides of the products, None where a value would be on both."""
    neighbours: dict[_Value, list[_Value]] = {}
    for product in group:
        a, b = product.factors
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    start = group[0].factors[0]
    side = {start: 0}
    stack = [start]
    while stack:
        value = stack.pop()
        for other in neighbours[value]:
            if other not in side:
                side[other] = 1 - side[value]
                stack.append(other)
            elif side[other] == side[value]:
                return None
    first = {value for value, number in side.items() if number == 0}
    return first, set(side) - first
