"""What can be said of an operation, and where an instruction's bits hold its operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import cache

__all__ = ["Access", "Form", "Opcode", "Operand", "Pipe", "Predicate", "Space"]


class Pipe(StrEnum):
    """The unit that executes an instruction."""

    FMA = "FMA"
    ALU = "ALU"
    FP64 = "FP64"
    HALF = "FMA, packed halves"
    XU = "XU"  # transcendental functions and conversions
    TENSOR = "tensor"
    LSU = "LSU"  # loads, stores, atomics, shuffles, constants by address
    TEXTURE = "texture"  # textures and surfaces
    TMA = "TMA"  # bulk copies between global and shared memory
    UNIFORM = "uniform"
    CONTROL = "control"  # branches, barriers, synchronisation


class Space(StrEnum):
    """The memory that an instruction accesses."""

    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"
    CONSTANT = "constant"
    GENERIC = "generic"
    TEXTURE = "texture"
    SURFACE = "surface"
    TENSOR = "tensor"  # the tensor memory of sm_100


class Access(StrEnum):
    """What an instruction does there."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"  # gives the old value back
    REDUCE = "reduce"  # does not
    COPY = "copy"  # between global and shared memory, or from shared to tensor memory


class Form(Enum):
    """Bits 9-11: what operand slots B and C hold. Slot A is always a register (bits 24-31).

    The first letter is B's, the second C's. ``r``: a register in the slot's own bits (B 32-39, C
    64-71); ``R``: register B in C's bits; ``i`` an immediate, ``c`` a constant-bank address, ``u``
    a uniform register: each in bits 32-63.
    """

    rr = 1
    Ri = 2
    Rc = 3
    ir = 4
    cr = 5
    ur = 6
    Ru = 7


#: The first bit of each register operand of eight bits; of uniform ones before sm_100 the top two
#: are not used.
_REGISTERS = {"a": 24, "b": 32, "c": 64, "d": 16, "e": 40, "f": 48, "g": 52, "h": 72, "m": 40}
#: Registers that are no field of their own: the one behind that of another operand.
_BEHIND = {"i": "c", "j": "e", "k": "a"}
#: A register whose bits stand in two places: where, and how many.
_SPLIT = {"l": ((60, 3), (73, 5))}
#: The first bit of each predicate operand; one that is read has its negation in the fourth bit.
_PREDICATES = {
    "o": 68, "p": 81, "q": 84, "r": 87, "s": 77, "t": 68, "u": 66, "v": 69, "w": 64, "x": 87,
    "y": 24,
}  # fmt: skip
#: Predicates whose bits are inverted: zero stands for PT.
_INVERTED = "wx"
#: All predicates at once: P2R and R2P.
_EVERY_PREDICATE = "z"
_PT = 7
_REGISTER_SLOTS = frozenset((*_REGISTERS, *_BEHIND, *_SPLIT))
_UNIFORM_BIT = 91
_REGISTER_BITS = 8
_UNIFORM_REGISTER_BITS_BEFORE_SM100 = 6


@dataclass(frozen=True, slots=True)
class Operand:
    """A register operand of an instruction: its slot and what the instruction does with it."""

    slot: str
    number: int
    uniform: bool
    written: bool


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate operand: its slot (``o`` to ``z``), and whether it is read negated or written."""

    slot: str
    number: int
    uniform: bool = False
    negated: bool = False
    written: bool = False

    def __str__(self) -> str:
        return f"{'!' if self.negated else ''}{'UP' if self.uniform else 'P'}{self.number}"


@dataclass(frozen=True, slots=True)
class Opcode:
    """One operation.

    ``name`` is the mnemonic without modifiers. ``operands`` is what it writes and, behind ``=``,
    what it reads, one letter a slot: ``d`` the destination, ``a``, ``b``, ``c`` the sources, ``e``
    to ``m`` what few operations have, ``o`` to ``z`` predicates; capitals stand for uniform ones.
    Slots ``b`` and ``c`` move with the :class:`Form`. ``uniform`` are the operands where bit 91
    says that there is a uniform register, of an operation whose slots do not move; ``forms`` those
    of single forms that follow no rule. ``only_if`` names slots that are there only if bits are set
    (``~bit``: clear). ``pairs`` names those that are 64-bit whatever the modifiers say. ``space``
    and ``access`` are None where no memory is accessed.
    """

    name: str
    pipe: Pipe
    operands: str = "="
    pairs: str = ""
    space: Space | None = None
    access: Access | None = None
    uniform: str | None = None
    forms: Mapping[Form, str] = field(default_factory=dict)
    only_if: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def is_sized(self) -> bool:
        """Whether its width is part of what it does: a load, store or copy of 8 to 256 bits."""
        sized = self.access in (Access.LOAD, Access.STORE, Access.COPY)
        whole = self.space in (Space.CONSTANT, Space.TEXTURE, Space.SURFACE, Space.TENSOR)
        return sized and not whole and self.name not in _UNSIZED and self.pipe is not Pipe.TMA

    def operands_in(self, bits: int, *, wide: bool) -> Iterator[Operand]:
        """The register operands of an instruction, those that are zero registers left out.

        Parameters
        ----------
        bits
            Its 128 bits.
        wide
            Whether uniform registers have numbers of eight bits: from sm_100 on.
        """
        uniform_bits = _REGISTER_BITS if wide else _UNIFORM_REGISTER_BITS_BEFORE_SM100
        for place in self._places(bits):
            if place.at not in _REGISTER_SLOTS:
                continue
            zero = (1 << (uniform_bits if place.uniform else _REGISTER_BITS)) - 1
            number = _number(place.at, bits) & zero
            if number != zero and place.slot in _BEHIND:
                number += 1
            if number != zero:
                yield Operand(place.slot, number, place.uniform, place.written)

    def register_fields(self, bits: int) -> dict[str, int]:
        """The first bit of each operand slot that holds a general register in eight bits."""
        return {
            place.slot: _REGISTERS[place.at]
            for place in self._places(bits)
            if place.at in _REGISTERS and not place.uniform
        }

    def predicates_in(self, bits: int) -> Iterator[Predicate]:
        """The predicates that an instruction reads and writes beside its guard, without PT."""
        for place in self._places(bits):
            if place.at == _EVERY_PREDICATE:
                for number in range(_PT):
                    yield Predicate(place.slot, number, place.uniform, written=place.written)
            elif place.at in _PREDICATES:
                at = _PREDICATES[place.at]
                number = bits >> at & 7 ^ (7 if place.at in _INVERTED else 0)
                negated = not place.written and bool(bits >> (at + 3) & 1)
                if number != _PT:
                    yield Predicate(place.slot, number, place.uniform, negated, place.written)

    def _places(self, bits: int) -> Iterator[_Place]:
        """The slots that the instruction has."""
        for place in self._layout(bits):
            if _is_there(self.only_if.get(place.slot, ()), bits):
                yield place

    def _layout(self, bits: int) -> tuple[_Place, ...]:
        form = Form(value) if (value := bits >> 9 & 7) else None
        has_uniform = bool(bits >> _UNIFORM_BIT & 1)
        if form is None:
            return _as_written(self.operands)
        if form in self.forms:
            return _as_written(self.forms[form])
        if self.uniform is not None:
            return _as_written(self.uniform if has_uniform else self.operands)
        if self.pipe is Pipe.UNIFORM:
            # Its registers are uniform anyway: form ur is rr, and an immediate is an immediate.
            return _by_form(self.operands, Form.rr if form is Form.ur else form, False)
        return _by_form(self.operands, form, has_uniform)


_UNSIZED = frozenset(("LDSM", "STSM", "LDGMC"))


@dataclass(frozen=True, slots=True)
class _Place:
    """A slot, and the slot whose bits hold it."""

    slot: str
    at: str
    uniform: bool
    written: bool


@cache
def _as_written(operands: str) -> tuple[_Place, ...]:
    written, _, read = operands.partition("=")
    return tuple(
        _Place(letter.lower(), letter.lower(), letter.isupper(), is_written)
        for letters, is_written in ((written, True), (read, False))
        for letter in letters
    )


@cache
def _by_form(operands: str, form: Form, has_uniform: bool) -> tuple[_Place, ...]:
    """The places of an operation whose slots B and C move.

    An immediate, constant or uniform register takes bits 32-63: as C where the operation has three
    sources and the form puts register B in C's bits, otherwise as B. A constant whose address a
    uniform register holds has it in the same bits.
    """
    has_c = "c" in operands.lower()
    in_wide_bits = "c" if has_c and form in (Form.Ri, Form.Rc, Form.Ru) else "b"
    places = []
    for place in _as_written(operands):
        if place.at not in "bc" or (form is Form.rr and not (has_uniform and place.at == "b")):
            places.append(place)
        elif form is not Form.rr and place.at != in_wide_bits:
            places.append(replace(place, at="c"))
        elif has_uniform:
            places.append(replace(place, at="b", uniform=True))
    return tuple(places)


def _is_there(conditions: tuple[int, ...], bits: int) -> bool:
    return all(bits >> bit & 1 if bit >= 0 else not bits >> ~bit & 1 for bit in conditions)


def _number(slot: str, bits: int) -> int:
    if slot in _SPLIT:
        number, shift = 0, 0
        for at, width in _SPLIT[slot]:
            number |= (bits >> at & (1 << width) - 1) << shift
            shift += width
        return number
    return bits >> _REGISTERS[_BEHIND.get(slot, slot)] & 255
