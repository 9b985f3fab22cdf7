"""What a CPU's function consists of, per loop, and the register tile that a GEMM's loop implies.

The tile follows from the data flow of one pass through the loop. Each factor of a multiply-add is a
value: a vector that was loaded, elements that were broadcast, one lane of a register. Values that
meet in a multiply-add belong to one k-step, so the connected groups of values are the k-steps. In a
k-step of a GEMM each value of one side meets each of the other, every time in an accumulator of its
own: rows are the elements of the side that is loaded as vectors, columns those of the side that is
repeated across the vector. Where rows times columns is not the number of accumulated elements, the
loop is no such outer product and no tile is given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lowgemm.binary.flow import FlowGraph, Loop
from lowgemm.binary.host import (
    HostFunction,
    HostInstruction,
    HostMemory,
    HostRegister,
    decode_host,
    host_flow,
)

__all__ = ["HostLoop", "HostReport", "RegisterTile", "analyse_host"]


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


@dataclass(frozen=True, slots=True)
class HostLoop:
    """One loop, without the loops inside it.

    ``fmas`` are fused multiply-add instructions and ``fma_elements`` the multiply-adds in those
    that accumulate from pass to pass; ``lane_fmas`` those that take one lane of a register as a
    factor for all (AArch64). ``loads`` and ``stores`` are the instructions that do; ``broadcasts``
    repeat what they load, or a register's element, across a vector, those inside a multiply-add
    included. ``vector_bits`` is the width of the multiply-adds, without them the widest vector,
    None for a scalable one. ``accumulators`` are vector registers that multiply-adds carry from
    one pass to the next.
    """

    index: int
    start: int
    end: int
    depth: int
    parent: int | None
    blocks: int
    instructions: int
    mix: Mapping[str, int]
    fmas: int
    fma_elements: int
    lane_fmas: int
    loads: int
    broadcasts: int
    stores: int
    prefetches: int
    vector_bits: int | None
    vector_registers: int
    general_registers: int
    accumulators: int
    tile: RegisterTile | None

    @property
    def fma_share(self) -> float:
        """The multiply-adds' share of the instructions."""
        return self.fmas / self.instructions if self.instructions else 0.0

    @property
    def loads_per_fma(self) -> float | None:
        """Loads for each multiply-add instruction."""
        return self.loads / self.fmas if self.fmas else None


@dataclass(frozen=True, slots=True)
class HostReport:
    """One function of a CPU's library.

    ``identified_by`` says how it was found. ``instructions`` and ``mix`` leave out NOPs and what no
    path reaches. ``hot_loop`` is the index of the loop with the most multiply-adds in a pass, in
    elements, that accumulate from pass to pass; where there are none, with the most multiply-adds,
    of the innermost and then longest. ``unknown_bytes`` are those
    that capstone could not decode, as data between functions may be. ``jumps_out`` are the
    addresses outside the function that it jumps to: its work may be done there.
    """

    library: str
    function: str
    identified_by: str
    machine: str
    code_bytes: int
    instructions: int
    mix: Mapping[str, int]
    loops: tuple[HostLoop, ...]
    hot_loop: int | None
    irreducible: bool
    unknown_bytes: int
    jumps_out: tuple[int, ...] = ()

    @property
    def hot(self) -> HostLoop | None:
        """The hot loop, where there is a loop."""
        return None if self.hot_loop is None else self.loops[self.hot_loop]


def analyse_host(function: HostFunction) -> HostReport:
    """Report on a function, its loops and the register tile of each.

    Parameters
    ----------
    function
        Its machine code, from :meth:`lowgemm.binary.host.HostLibrary.function`.
    """
    code = decode_host(function)
    flow = host_flow(code)
    reached = [
        instruction
        for block in flow.blocks
        if flow.reachable(block.index)
        for instruction in code[block.first : block.last + 1]
    ]
    loops = tuple(_loop(code, flow, loop) for loop in flow.loops)
    return HostReport(
        library=function.library,
        function=function.name,
        identified_by=function.identified_by,
        machine=function.machine.value,
        code_bytes=len(function.code),
        instructions=sum(not instruction.is_filler for instruction in reached),
        mix=_mix(reached),
        loops=loops,
        hot_loop=_hottest(loops),
        irreducible=flow.irreducible,
        unknown_bytes=sum(i.size for i in code if not i.is_known),
        jumps_out=_jumps_out(function, reached),
    )


def _jumps_out(function: HostFunction, reached: Iterable[HostInstruction]) -> tuple[int, ...]:
    inside = range(function.address, function.address + len(function.code))
    targets = (target for i in reached for target in i.targets if target not in inside)
    return tuple(dict.fromkeys(targets))


def _loop(code: Sequence[HostInstruction], flow: FlowGraph, loop: Loop) -> HostLoop:
    body = [
        instruction
        for index in sorted(loop.own_blocks)
        for instruction in code[flow.blocks[index].first : flow.blocks[index].last + 1]
        if not instruction.is_filler
    ]
    fmas = [fma for instruction in body if (fma := _fma(instruction))]
    accumulators = _accumulators(body)
    memories = [instruction.memory for instruction in body if instruction.memory]
    touched = {name for i in body for name in i.read | i.written}
    vectors = {r.identity for i in body for r in i.registers if r.is_vector}
    return HostLoop(
        index=loop.index,
        start=loop.start,
        end=loop.end,
        depth=loop.depth,
        parent=loop.parent,
        blocks=len(loop.own_blocks),
        instructions=len(body),
        mix=_mix(body),
        fmas=len(fmas),
        fma_elements=sum(f.lanes or 1 for f in fmas if f.destination.identity in accumulators),
        lane_fmas=sum(any(f.lane is not None for f in fma.registers) for fma in fmas),
        loads=sum(memory.loads for memory in memories),
        broadcasts=sum(_is_broadcast(i) for i in body),
        stores=sum(memory.stores for memory in memories),
        prefetches=sum(instruction.is_prefetch for instruction in body),
        vector_bits=_vector_bits(body, fmas),
        vector_registers=len(vectors),
        general_registers=sum(bool(_GENERAL.match(name)) for name in touched),
        accumulators=len(accumulators),
        tile=_tile(body),
    )


_GENERAL = re.compile(r"(r\w+|x\d+|sp)$")


def _mix(instructions: Iterable[HostInstruction]) -> dict[str, int]:
    counts = Counter(i.mnemonic for i in instructions if not i.is_filler)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _vector_bits(body: Sequence[HostInstruction], fmas: Sequence[_Fma]) -> int | None:
    if fmas:
        widths = [fma.width_bits for fma in fmas]
    else:
        widths = [r.width_bits for i in body for r in i.registers if r.is_vector]
    known = [width for width in widths if width is not None]
    return max(known) if len(known) == len(widths) and known else None


def _hottest(loops: Sequence[HostLoop]) -> int | None:
    if not loops:
        return None
    best = max(loops, key=lambda i: (i.fma_elements, i.fmas, i.depth, i.instructions))
    return best.index


# ---- multiply-adds and broadcasts

_X86_FMA = re.compile(r"vfn?m(?:add|sub|addsub|subadd)(132|213|231)([ps])([sdh])$")
_X86_ELEMENT_BITS = {"s": 32, "d": 64, "h": 16}
_ARM_FMA = re.compile(r"f(n?ml[as]|n?m(ad|sb)|n?m(add|sub)|mop[as])$")
# SVE's that multiply their destination, and SME's, whose destination is no vector.
_ARM_OVERWRITES = re.compile(r"f(n?m(ad|sb)|mop[as])$")
_BROADCAST = re.compile(r"(v\w*broadcast\w+|ld[1-4]r\w*|dup)$")


@dataclass(frozen=True, slots=True)
class _Fma:
    """A fused multiply-add. ``accumulates``: it adds to its destination.

    ``factors`` are two, registers or memory. ``lanes`` and ``width_bits`` are None where the
    vectors are scalable.
    """

    destination: HostRegister
    factors: tuple[HostRegister | HostMemory, ...]
    accumulates: bool
    element_bits: int
    width_bits: int | None

    @property
    def lanes(self) -> int | None:
        return None if self.width_bits is None else self.width_bits // self.element_bits

    @property
    def registers(self) -> tuple[HostRegister, ...]:
        return tuple(f for f in self.factors if isinstance(f, HostRegister))


def _fma(instruction: HostInstruction) -> _Fma | None:
    if not instruction.registers:
        return None
    if match := _X86_FMA.match(instruction.mnemonic):
        return _x86_fma(instruction, match[1], match[2] == "s", _X86_ELEMENT_BITS[match[3]])
    if _ARM_FMA.match(instruction.mnemonic):
        destination = instruction.registers[0]
        added = instruction.registers[3:4] or (destination,)
        accumulates = added[0].identity == destination.identity
        accumulates &= not _ARM_OVERWRITES.match(instruction.mnemonic)
        sources = instruction.registers[1:3]
        bits = destination.element_bits or sources[-1].element_bits or 32
        return _Fma(destination, sources, accumulates, bits, destination.width_bits)
    return None


def _x86_fma(instruction: HostInstruction, form: str, scalar: bool, bits: int) -> _Fma:
    """The digits of the name say which operands are multiplied and which, the last, is added."""
    destination = instruction.registers[0]
    operands: list[HostRegister | HostMemory] = [*instruction.registers]
    if instruction.memory:
        operands.append(instruction.memory)
    factors = tuple(
        operands[place] for digit in form[:2] if (place := int(digit) - 1) < len(operands)
    )
    width = bits if scalar else destination.width_bits
    return _Fma(destination, factors, form[2] == "1", bits, width)


def _is_broadcast(instruction: HostInstruction) -> bool:
    if _BROADCAST.match(instruction.mnemonic):
        return True
    widest = max((r.width_bits or 0 for r in instruction.registers), default=0)
    if instruction.mnemonic.endswith("movddup"):
        return widest == 128
    fma, memory = _fma(instruction), instruction.memory
    return bool(fma and memory and (memory.width_bits or 0) < (fma.width_bits or 0))


def _accumulators(body: Sequence[HostInstruction]) -> set[str]:
    """Vector registers that enter the loop, only multiply-adds change, and leave it again."""
    changed: dict[str, set[bool]] = {}
    for instruction in body:
        fma = _fma(instruction)
        for name in instruction.written:
            adds = bool(fma and fma.accumulates and fma.destination.identity == name)
            changed.setdefault(name, set()).add(adds)
    return {name for name, kinds in changed.items() if kinds == {True}}


# ---- the register tile

_HALF = re.compile(r"v?movs[lh]dup$")
_COPY = re.compile(r"(v?mov[au]p[sd]|v?movdq[au]\w*|mov|fmov|orr)$")
_LOAD = re.compile(r"(v?mov\w+|v?lddqu|v\w*broadcast\w+|ld\w+)$")
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
    """Values of the registers on one pass; how often each general register has changed."""

    values: dict[str, _Value] = field(default_factory=dict)
    versions: Counter[str] = field(default_factory=Counter)

    def of(self, register: HostRegister) -> _Value:
        value = self.values.get(register.identity, _Value(("before", register.identity)))
        if register.lane is None:
            return value
        return _Value((*value.origin, "lane", register.lane), register.element_bits, True)

    def loaded(self, what: str, memory: HostMemory, place: int = 0) -> tuple[object, ...]:
        """Names what is in memory: the same for two loads of an address that has not moved."""
        registers = [(name, self.versions[name]) for name in (memory.base, memory.index)]
        return (what, *registers, memory.scale, memory.displacement, place)


@dataclass(frozen=True, slots=True)
class _Product:
    destination: str
    factors: tuple[_Value, _Value]
    fma: _Fma


def _tile(body: Sequence[HostInstruction]) -> RegisterTile | None:
    accumulators = _accumulators(body)
    state = _State()
    _products(body, state, accumulators)
    # What a register holds at the end is what the next pass begins with.
    after = _State({name: _entering(name, value) for name, value in state.values.items()})
    products = _products(body, after, accumulators)
    if not products:
        return None
    steps = [_outer_product(group) for group in _groups(products)]
    shapes = set(steps)
    shape = shapes.pop()
    if shapes or shape is None:
        return None
    rows, columns = shape
    fma = products[0].fma
    copies = len(accumulators) * (fma.lanes or 1) // (rows * columns)
    return RegisterTile(rows, columns, fma.element_bits, len(steps), max(copies, 1))


def _entering(name: str, value: _Value) -> _Value:
    return _Value(("before", name), value.distinct_bits, value.broadcast)


def _products(
    body: Sequence[HostInstruction], state: _State, accumulators: set[str]
) -> list[_Product]:
    products = []
    for place, instruction in enumerate(body):
        fma = _fma(instruction)
        if fma and fma.accumulates and fma.destination.identity in accumulators:
            values = tuple(_factor(factor, state) for factor in fma.factors)
            if len(values) == 2:
                products.append(_Product(fma.destination.identity, (values[0], values[1]), fma))
        else:
            _define(place, instruction, state)
        for name in instruction.written:
            state.versions[name] += 1
    return products


def _factor(factor: HostRegister | HostMemory, state: _State) -> _Value:
    if isinstance(factor, HostRegister):
        return state.of(factor)
    return _Value(state.loaded("factor", factor), factor.width_bits)


def _define(place: int, instruction: HostInstruction, state: _State) -> None:
    """Record what an instruction leaves in vector registers."""
    written = [
        r for r in instruction.registers if r.is_vector and r.identity in instruction.written
    ]
    sources = [r for r in instruction.registers if r.is_vector and r not in written]
    memory, name = instruction.memory, instruction.mnemonic
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
    duplicates = name.endswith("movddup")
    if bits is not None and width is not None and (_HALF.match(name) or duplicates):
        bits = min(bits, width // 2)
    broadcast = duplicates or bool(_BROADCAST.match(name))
    return _Value(state.loaded(name, memory, nth), bits, broadcast)


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
    accumulated = len({p.destination for p in group}) * lanes
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
