"""Integer, logic and move operations, general and uniform.

A maker reads the fields of an instruction once; the closure that it returns works on arrays. The
fields were found by changing bits and reading nvdisasm 13.5's text; the meaning is that of the
PTX operation which the compiler makes it from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.front import Front, Mask
from lowgemm.emulator.operation import Run, maker
from lowgemm.emulator.word import PT, RZ, Read, Read64, ReadPredicate, Word, constant64
from lowgemm.isa import Form

__all__: list[str] = []

U32 = np.uint32
U64 = np.uint64
_HALF = U64(32)
_LOW = U64(0xFFFFFFFF)
_SIGN = U64(0x80000000)

Put = Callable[[Front, NDArray[Any], Mask], None]

COMPARISONS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), bool),
    np.less,
    np.equal,
    np.less_equal,
    np.greater,
    np.not_equal,
    np.greater_equal,
    lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), bool),
)
BOOLEANS: tuple[Callable[[Any, Any], Any], ...] = (
    np.logical_and,
    np.logical_or,
    np.logical_xor,
)


def put32(w: Word, at: int = 16) -> Put:
    """Writes the destination register."""
    number = w.destination(at)
    if w.uniform:
        return lambda f, value, mask: f.put_uniform(number, value, mask)
    return lambda f, value, mask: f.put(number, value, mask)


def put64(w: Word, at: int = 16) -> Put:
    """Writes the destination pair."""
    number = w.destination(at, count=2)
    if w.uniform:
        return lambda f, value, mask: f.put_uniform64(number, value, mask)
    return lambda f, value, mask: f.put64(number, value, mask)


def put_predicate(w: Word, at: int, *, uniform: bool | None = None) -> Put | None:
    """Writes a destination predicate; None where it is PT."""
    number = w.destination_predicate(at, uniform=uniform)
    if number == PT:
        return None
    if w.uniform if uniform is None else uniform:
        return lambda f, value, mask: f.put_uniform_predicate(number, value, mask)
    return lambda f, value, mask: f.put_predicate(number, value, mask)


def boolean(w: Word) -> Callable[[Any, Any], Any]:
    """AND, OR or XOR of a comparison with a predicate: bits 74-75."""
    kind = w.take(74, 2)
    if kind == 3:
        raise w.unknown("no such way to combine predicates")
    return BOOLEANS[kind]


def signed32(value: NDArray[np.uint32]) -> NDArray[np.int32]:
    """The same bits as two's complement."""
    return value.view(np.int32)


def extended(value: NDArray[np.uint32], signed: bool) -> NDArray[np.uint64]:
    """A word as 64 bits."""
    if signed:
        return value.view(np.int32).astype(np.int64).view(np.uint64)
    return value.astype(np.uint64)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a word holds for the V operations: one number, two of 16 bits or four of 8.

    IMNMX.S64 and .U64 have one of 64 bits.
    """

    bits: int
    signed: bool = False
    clamps: bool = False

    @classmethod
    def of(cls, w: Word) -> _Parts:
        """The formats of minima: bits 72 to 74, and 76 for .RELU."""
        signed, size, clamps = w.flag(72), w.take(73, 2), w.flag(76)
        if size == 3:
            raise w.unknown("no such packed format")
        return cls(32 >> size, signed, clamps)

    def split(self, word: Any) -> Any:
        """The numbers, lowest first, along a last axis."""
        dtype = np.dtype(f"{'i' if self.signed else 'u'}{self.bits // 8}")
        return np.ascontiguousarray(word, self._word)[..., None].view(dtype)

    def join(self, numbers: Any) -> Any:
        """The word of them."""
        return np.ascontiguousarray(numbers).view(self._word)[..., 0]

    @property
    def _word(self) -> Any:
        return U64 if self.bits == 64 else U32

    def choose(self, left: Any, right: Any, take_less: Any) -> Any:
        """The lesser or the greater numbers."""
        one, two = self.split(left), self.split(right)
        less = np.where(take_less[..., None], np.minimum(one, two), np.maximum(one, two))
        return self.join(np.maximum(less, 0) if self.clamps else less)

    def add(self, left: Any, right: Any) -> Any:
        """Sums without carries from one number to the next."""
        return self.join(self.split(left) + self.split(right))

    def add_clamped(self, left: Any, right: Any, minus: tuple[bool, bool]) -> Any:
        """Sums, of negated numbers where ``minus`` says so, at the ends of the format."""
        one, two = (self.split(each).astype(np.int64) for each in (left, right))
        total = (-one if minus[0] else one) + (-two if minus[1] else two)
        ends = np.iinfo(f"{'i' if self.signed else 'u'}{self.bits // 8}")
        return self.join(np.clip(total, ends.min, ends.max).astype(ends.dtype))


# ---- moves and selections


@maker("MOV", "UMOV")
def _mov(w: Word) -> Run:
    if w.form is Form.Ri:  # MOV.64: bits 24-87 hold an immediate of 64 bits
        put, read64 = put64(w), constant64(w.take(24, 64))
        return lambda f, m: put(f, read64(f), m)
    w.ignore(72, 4)  # which quarters of eight lanes: 15 in all code that ptxas makes
    if w.flag(80):
        put, wide = put64(w), w.operand64("b", sources=2, extend="sign")
        return lambda f, m: put(f, wide(f), m)
    w.ignore(88)
    put, read = put32(w), w.operand("b", sources=2)
    return lambda f, m: put(f, read(f), m)


@maker("SEL", "USEL")
def _sel(w: Word) -> Run:
    predicate = w.predicate(87)
    if w.form in (Form.Rc, Form.Ri):  # SEL.64, of a register or an immediate of 33 bits
        put, a64 = put64(w), w.reader64(24)
        b64 = w.reader64(32) if w.form is Form.Rc else constant64(w.signed(32, 33))
        return lambda f, m: put(f, np.where(predicate(f), a64(f), b64(f)), m)
    put, a, b = put32(w), w.a(), w.operand("b", sources=2)
    return lambda f, m: put(f, np.where(predicate(f), a(f), b(f)), m)


@maker("PRMT", "UPRMT")
def _prmt(w: Word) -> Run:
    mode = w.take(72, 3)
    put, a, b, c = put32(w), w.a(), w.operand("b", sources=3), w.operand("c", sources=3)
    if mode:
        if mode not in _PICKS:
            raise w.unknown("no such mode of PRMT")
        pick = _PICKS[mode]
        return lambda f, m: put(f, _permuted_by(a(f), c(f), pick(b(f) & U32(3))), m)
    if w.is_immediate("b", sources=3):
        selector = w.take(32, 32)
        return lambda f, m: put(f, _permuted(a(f), c(f), selector), m)
    return lambda f, m: put(f, _permuted_by(a(f), c(f), b(f)), m)


def _selector(*picks: Any) -> Any:
    """A selector of PRMT from the numbers of four bytes."""
    result: Any = U32(0)
    for place, pick in enumerate(picks):
        result = result | (pick & U32(7)) << U32(4 * place)
    return result


#: The selectors of PRMT.F4E, .B4E, .RC8, .ECL, .ECR and .RC16 for the low two bits of B, as of
#: PTX's prmt: four bytes forward, backward, one byte, its left and right neighbours, one half.
_PICKS: dict[int, Callable[[Any], Any]] = {
    1: lambda s: _selector(*(s + U32(place) for place in range(4))),
    2: lambda s: _selector(*(s - U32(place) for place in range(4))),
    3: lambda s: _selector(s, s, s, s),
    4: lambda s: _selector(*(np.maximum(s, U32(place)) for place in range(4))),
    5: lambda s: _selector(*(np.minimum(s, U32(place)) for place in range(4))),
    6: lambda s: _selector(*((s & U32(1)) * U32(2) + U32(place & 1) for place in range(4))),
}


def _permuted(low: Any, high: Any, selector: int) -> NDArray[np.uint32]:
    result: Any = U32(0)
    for place in range(4):
        pick = selector >> 4 * place & 15
        source = low if pick & 7 < 4 else high
        byte = source >> U32(8 * (pick & 3)) & U32(0xFF)
        if pick & 8:
            byte = (byte >> U32(7)) * U32(0xFF)
        result = result | byte << U32(8 * place)
    return np.asarray(result)


def _permuted_by(low: Any, high: Any, selector: Any) -> NDArray[np.uint32]:
    both = high.astype(U64) << _HALF | low
    result: Any = U32(0)
    for place in range(4):
        pick = selector >> U32(4 * place) & U32(15)
        byte = (both >> ((pick & U32(7)) * U32(8)).astype(U64)).astype(U32) & U32(0xFF)
        byte = np.where(pick & U32(8), (byte >> U32(7)) * U32(0xFF), byte)
        result = result | byte << U32(8 * place)
    return np.asarray(result)


# ---- sums and products


def _addend(read: Read, negative: bool, carries: bool) -> Read64:
    """An addend of a sum with carries: negated as two's complement, with .X as one's."""
    if not negative:
        return lambda f: read(f).astype(U64)
    if carries:
        return lambda f: (~read(f)).astype(U64)
    return lambda f: (~read(f)).astype(U64) + U64(1)


@maker("IADD3", "UIADD3")
def _iadd3(w: Word) -> Run:
    carries = w.flag(74)
    if w.instruction.low & 0x1FF == 0x097:
        return _uiadd3_64(w, carries)
    names = ("a", "b", "c")
    raw = {n: w.a() if n == "a" else w.operand(n, sources=3) for n in names}
    negative = {n: w.negation(n, sources=3) for n in names}
    put = put32(w)
    first, second = put_predicate(w, 81), put_predicate(w, 84)
    carry = [w.predicate(87), w.predicate(77)] if carries else []
    if not carries:
        w.ignore(87, 4)
        w.ignore(77, 4)
    if first is None and second is None and not carries:
        return _plain_sum(put, [raw[n] for n in names], [negative[n] for n in names])
    addends = [_addend(raw[n], negative[n], carries) for n in names]

    def run(f: Front, m: Mask) -> None:
        total: Any = addends[0](f) + addends[1](f) + addends[2](f)
        for read in carry:
            total = total + read(f)
        put(f, (total & _LOW).astype(U32), m)
        over = total >> _HALF
        if first is not None:
            first(f, over >= U64(1), m)
        if second is not None:
            second(f, over >= U64(2), m)

    return run


def _plain_sum(put: Put, reads: list[Any], negative: list[bool]) -> Run:
    a, b, c = reads

    def run(f: Front, m: Mask) -> None:
        total = -a(f) if negative[0] else a(f)
        total = total - b(f) if negative[1] else total + b(f)
        put(f, total - c(f) if negative[2] else total + c(f), m)

    return run


def _uiadd3_64(w: Word, carries: bool) -> Run:
    a = w.reader64(24)
    b, c = (w.operand64(n, sources=3, extend="sign") for n in "bc")
    negative = [w.negation(n, sources=3) for n in ("a", "b", "c")]
    put = put64(w)
    over = put_predicate(w, 81), put_predicate(w, 84)
    carry = [w.predicate(87), w.predicate(77)] if carries else []
    w.ignore(87, 4)
    w.ignore(77, 4)
    if not carries and over == (None, None):
        return _plain_sum(put, [a, b, c], negative)
    return _wide_sum(put, [a, b, c], negative, carry, over)


def _wide_sum(
    put: Put, reads: list[Any], negative: list[bool], carries: list[Any], over: tuple[Any, Any]
) -> Run:
    """A sum of 64 bits with carries in and out: as one of 32, it tells how often it is longer.

    A negated addend is the two's complement, with a carry in the one's: ~x, and 1 without one.
    """
    carry = [each for each in carries if each is not None]

    def run(f: Front, m: Mask) -> None:
        total: Any = U64(0)
        longer: Any = U32(0)
        terms = [~x(f) if minus else x(f) for x, minus in zip(reads, negative, strict=True)]
        terms += [each(f).astype(U64) for each in carry]
        terms += [U64(1)] * (0 if carry else sum(negative))
        for term in terms:
            total = total + term
            longer = longer + (total < term)
        put(f, total, m)
        for number, tell in enumerate(over, 1):
            if tell is not None:
                tell(f, longer >= number, m)

    return run


def _put_total(
    f: Front, m: Mask, total: Any, put: Put, carry: ReadPredicate | None, over: Any
) -> None:
    """Write a sum of 32 bits, and whether it is longer; the carry comes on top."""
    if carry is not None:
        total = total + carry(f)
    put(f, (total & _LOW).astype(U32), m)
    if over is not None:
        over(f, total >> _HALF != 0, m)


#: Bits 73 to 75 of VIADD: numbers of no sign, and from 2 on of the sign that ISAT clamps to.
_SUM_FORMATS = {
    0: _Parts(32),
    1: _Parts(16),
    2: _Parts(32, signed=True),
    3: _Parts(16, signed=True),
    4: _Parts(8),
    5: _Parts(8, signed=True),
}


@maker("VIADD", "UVIADD")
def _viadd(w: Word) -> Run:
    clamps, number = w.flag(80), w.take(73, 3)  # .ISAT
    if number not in _SUM_FORMATS:
        raise w.unknown("no such packed format")
    parts = _SUM_FORMATS[number]
    put, a, b = put32(w), w.a(), w.operand("b", sources=2)
    first, second = w.flag(72), w.negation("b", sources=2)
    w.ignore(77, 14)
    if clamps:
        if number == 0:
            raise w.unknown("a saturating sum of neither sign")
        minus = first, second
        return lambda f, m: put(f, parts.add_clamped(a(f), b(f), minus), m)
    if parts.bits == 32:
        return _plain_sum(put, [a, b, lambda f: U32(0)], [first, second, False])

    def signed(value: Any, negative: bool) -> Any:
        return parts.join(-parts.split(value)) if negative else value

    return lambda f, m: put(f, parts.add(signed(a(f), first), signed(b(f), second)), m)


@maker("IADD")
def _iadd(w: Word) -> Run:
    wide, carries = w.flag(73), w.flag(74)
    put = put64(w) if wide else put32(w)
    a: Any = w.reader64(24) if wide else w.reader(24)
    b: Any = w.operand64("b", sources=2, extend="sign") if wide else w.operand("b", sources=2)
    negative = [w.flag(72), w.negation("b", sources=2)]
    over = put_predicate(w, 81)
    carry = w.predicate(87) if carries else None
    w.ignore(87, 4)
    w.ignore(77, 4)
    w.ignore(84, 3)
    if over is None and carry is None:
        zero = lambda f: U64(0) if wide else U32(0)  # noqa: E731
        return _plain_sum(put, [a, b, zero], [*negative, False])
    if wide:
        return _wide_sum(put, [a, b], negative, [carry], (over, None))
    addends = [_addend(a, negative[0], carries), _addend(b, negative[1], carries)]

    def run(f: Front, m: Mask) -> None:
        total: Any = addends[0](f) + addends[1](f)
        _put_total(f, m, total, put, carry, over)

    return run


@maker("IMAD", "UIMAD")
def _imad(w: Word) -> Run:
    kind = w.instruction.low & 0x1FF
    signed, carries = w.flag(73), w.flag(74)
    negative = w.negation("c", sources=3)
    a, b = w.a(), w.operand("b", sources=3)
    if kind in (0x024, 0x0A4):
        put, c = put32(w), w.operand("c", sources=3)
        carry = w.predicate(87) if carries else None
        w.ignore(87, 4)
        w.ignore(81, 3)
        return _imad_low(w, put, (a, b, c), negative, carry)
    high = kind in (0x027, 0x0A6)
    put = put32(w) if high else put64(w)
    c64 = w.operand64("c", sources=3, extend="zero")
    over = put_predicate(w, 81)
    carry = w.predicate(87) if carries else None
    w.ignore(87, 4)

    def run(f: Front, m: Mask) -> None:
        product = extended(a(f), signed) * extended(b(f), signed)
        c = c64(f)
        if negative:
            c = ~c if carries else -c
        total: Any = product + c
        carried = total < c
        if carry is not None:
            one = carry(f)
            total = total + one
            carried = carried | (one & (total == 0))
        put(f, (total >> _HALF).astype(U32) if high else total, m)
        if over is not None:
            over(f, carried, m)

    return run


def _imad_low(w: Word, put: Put, reads: Any, negative: bool, carry: Any) -> Run:
    a, b, c = reads
    if carry is None:
        if w.instruction.is_move:
            return _moved(put, c, negative)
        if negative:
            return lambda f, m: put(f, a(f) * b(f) - c(f), m)
        return lambda f, m: put(f, a(f) * b(f) + c(f), m)
    if negative:
        return lambda f, m: put(f, a(f) * b(f) + ~c(f) + carry(f), m)
    return lambda f, m: put(f, a(f) * b(f) + c(f) + carry(f), m)


def _moved(put: Put, c: Read, negative: bool) -> Run:
    """IMAD of two zeros: the compiler's move through the other pipe."""
    if negative:
        return lambda f, m: put(f, -c(f), m)
    return lambda f, m: put(f, c(f), m)


@maker("LEA", "ULEA")
def _lea(w: Word) -> Run:
    shift, high, carries, signed = w.take(75, 5), w.flag(80), w.flag(74), w.flag(73)
    minus = w.flag(72)
    put, a = put32(w), w.a()
    b, negative = w.operand("b", sources=3 if high else 2), w.negation("b", sources=2)
    over = put_predicate(w, 81)
    carry = w.predicate(87) if carries else None
    w.ignore(87, 4)
    addend = _addend(b, negative, carries)
    upper: Read | None = None
    if high and not signed:
        upper = w.operand("c", sources=3)
    w.ignore(64, 8)

    def run(f: Front, m: Mask) -> None:
        if high:
            low = a(f).astype(U64)
            top = upper(f) if upper else (a(f).view(np.int32) >> np.int32(31)).view(U32)
            both = top.astype(U64) << _HALF | low
            index = both >> U64(32 - shift) & _LOW
        else:
            index = a(f).astype(U64) << U64(shift) & _LOW
        if minus:
            index = (index ^ _LOW) if carries else (index ^ _LOW) + U64(1)
        total: Any = index + addend(f)
        _put_total(f, m, total, put, carry, over)

    return run


@maker("IABS", "UIABS")
def _iabs(w: Word) -> Run:
    put, b = put32(w), w.operand("b", sources=2)
    return lambda f, m: put(f, np.abs(b(f).view(np.int32)).view(U32), m)


@maker("VABSDIFF")
def _vabsdiff(w: Word) -> Run:
    signed = w.flag(73)
    put, a = put32(w), w.a()
    b, c = w.operand("b", sources=3), w.operand("c", sources=3)
    if put_predicate(w, 81):
        raise w.unknown("the predicate of VABSDIFF")

    def run(f: Front, m: Mask) -> None:
        left, right = extended(a(f), signed), extended(b(f), signed)
        difference = np.abs((left - right).view(np.int64)).view(U64)
        put(f, (difference & _LOW).astype(U32) + c(f), m)

    return run


@maker("VABSDIFF4")
def _vabsdiff4(w: Word) -> Run:
    sums = w.flag(75)  # .ACC
    put, a = put32(w), w.a()
    b, c = w.operand("b", sources=3), w.operand("c", sources=3)
    if put_predicate(w, 81):
        raise w.unknown("the predicate of VABSDIFF4")
    if not sums and (w.form is not Form.rr or w.take(64, 8) != RZ):
        raise w.unknown("differences by bytes with an addend")

    def run(f: Front, m: Mask) -> None:
        left, right, total = a(f), b(f), c(f)
        for byte in range(4):
            one, two = (_piece(each, byte, 8, False) for each in (left, right))
            difference = np.abs((one - two).view(np.int32))
            total = total + (difference.view(U32) << U32(0 if sums else 8 * byte))
        put(f, total, m)

    return run


@maker("IDP")
def _idp(w: Word) -> Run:
    halves, upper = w.flag(76), w.flag(77)  # .2A, and whether it takes B's upper bytes
    if upper and not halves:
        raise w.unknown("no such product")
    signs = w.flag(73), w.flag(74)
    put, a = put32(w), w.a()
    b, c = w.operand("b", sources=3), w.operand("c", sources=3)
    if w.flag(75):
        raise w.unknown("a negated addend")

    def run(f: Front, m: Mask) -> None:
        total, left, right = c(f), a(f), b(f)
        for number in range(2 if halves else 4):
            one = _piece(left, number, 16 if halves else 8, signs[0])
            two = _piece(right, number + 2 * upper, 8, signs[1])
            total = total + one * two
        put(f, total, m)

    return run


def _piece(value: NDArray[np.uint32], number: int, bits: int, signed: bool) -> NDArray[np.uint32]:
    """One of a word's bytes or halves, as a word."""
    top, down = value << U32(32 - bits * (number + 1)), 32 - bits
    return (top.view(np.int32) >> np.int32(down)).view(U32) if signed else top >> U32(down)


# ---- logic and shifts


def _lut(table: int, a: Any, b: Any, c: Any) -> Any:
    """A function of three bits by its table: bit 4 a + 2 b + c of it is the result."""
    simple = _SIMPLE.get(table)
    if simple is not None:
        return simple(a, b, c)
    result: Any = None
    for row in range(8):
        if table >> row & 1:
            term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
            result = term if result is None else result | term
    return a ^ a if result is None else result


_SIMPLE: dict[int, Callable[[Any, Any, Any], Any]] = {
    0xC0: lambda a, b, c: a & b,
    0xFC: lambda a, b, c: a | b,
    0x3C: lambda a, b, c: a ^ b,
    0x33: lambda a, b, c: ~b,
    0x0F: lambda a, b, c: ~a,
    0x55: lambda a, b, c: ~c,
    0xF0: lambda a, b, c: a,
    0xCC: lambda a, b, c: b,
    0xAA: lambda a, b, c: c,
    0xF8: lambda a, b, c: a | b & c,
    0xEA: lambda a, b, c: a & b | c,
    0x80: lambda a, b, c: a & b & c,
    0xFE: lambda a, b, c: a | b | c,
    0x96: lambda a, b, c: a ^ b ^ c,
    0x30: lambda a, b, c: a & ~b,
    0x78: lambda a, b, c: a ^ b & c,
    0x6A: lambda a, b, c: a & b ^ c,
}


@maker("LOP3", "ULOP3")
def _lop3(w: Word) -> Run:
    table, with_and = w.take(72, 8), w.flag(80)
    put, a = put32(w), w.a()
    b, c = w.operand("b", sources=3), w.operand("c", sources=3)
    found, other = put_predicate(w, 81), w.predicate(87)

    def run(f: Front, m: Mask) -> None:
        result = _lut(table, a(f), b(f), c(f))
        put(f, result, m)
        if found is not None:
            some = result != 0
            found(f, some & other(f) if with_and else some | other(f), m)

    return run


@maker("PLOP3", "UPLOP3")
def _plop3(w: Word) -> Run:
    if w.instruction.low & 0x1FF not in (0x01C, 0x09C):
        return _plop3_of_signs(w)
    table, second = w.take(64, 3) | w.take(72, 5) << 3, w.take(16, 8)
    first_put, second_put = put_predicate(w, 81), put_predicate(w, 84)
    r, s = w.predicate(87), w.predicate(77)
    uniform = w.flag(67) if not w.uniform else None
    t = w.predicate(68, uniform=True if uniform else None)

    def run(f: Front, m: Mask) -> None:
        a, b, c = r(f), s(f), t(f)
        results = [_lut(each, a, b, c) for each in (table, second)]
        for put, value in zip((first_put, second_put), results, strict=True):
            if put is not None:
                put(f, value, m)

    return run


def _plop3_of_signs(w: Word) -> Run:
    """PLOP3 of three registers' signs, with a full table at bits 72-79."""
    tables = w.take(72, 8), w.take(16, 8)
    puts = put_predicate(w, 81), put_predicate(w, 84)
    w.ignore(87, 4)
    if w.form is not Form.rr:
        raise w.unknown("signs of other than registers")
    reads = w.reader(24), w.reader(32), w.reader(64)

    def run(f: Front, m: Mask) -> None:
        signs = [read(f) >> U32(31) != 0 for read in reads]
        for put, table in zip(puts, tables, strict=True):
            if put is not None:
                put(f, _lut(table, *signs), m)

    return run


@maker("SHF", "USHF")
def _shf(w: Word) -> Run:
    kind, wraps, right, high = w.take(73, 2), w.flag(75), w.flag(76), w.flag(80)
    put, a = put32(w), w.a()
    b, c = w.operand("b", sources=3), w.operand("c", sources=3)
    wide, signed = kind < 2, kind in (0, 2)
    most = U64(64 if wide else 32)

    def run(f: Front, m: Mask) -> None:
        both = c(f).astype(U64) << _HALF | a(f)
        by = b(f).astype(U64)
        by = by & (most - U64(1)) if wraps else np.minimum(by, most)
        put(f, _shifted(both, by, right, signed, wide, high), m)

    return run


def _shifted(both: Any, by: Any, right: bool, signed: bool, wide: bool, high: bool) -> Any:
    over = by >= U64(64) if wide else None
    by = np.minimum(by, U64(63)) if wide else by
    if right:
        value = (both.view(np.int64) >> by.view(np.int64)).view(U64) if signed else both >> by
    else:
        value = both << by
    if over is not None and (not signed or not right):
        value = np.where(over, U64(0), value)
    return ((value >> _HALF) if high else value & _LOW).astype(U32)


@maker("SGXT", "USGXT")
def _sgxt(w: Word) -> Run:
    signed, wraps = w.flag(73), w.flag(75)
    put, a, b = put32(w), w.a(), w.operand("b", sources=2)

    def run(f: Front, m: Mask) -> None:
        width = b(f) & U32(31) if wraps else np.minimum(b(f), U32(32))
        shift = (U32(32) - width).astype(U64)
        value: Any = a(f).astype(U64) << shift & _LOW
        if signed:
            value = (value << _HALF).view(np.int64) >> np.int64(32) >> shift.view(np.int64)
            put(f, np.where(width == 0, U64(0), value.view(U64) & _LOW).astype(U32), m)
        else:
            put(f, (value >> shift).astype(U32), m)

    return run


@maker("BMSK", "UBMSK")
def _bmsk(w: Word) -> Run:
    wraps = w.flag(75)
    put, a, b = put32(w), w.a(), w.operand("b", sources=2)

    def run(f: Front, m: Mask) -> None:
        at, width = a(f).astype(U64), b(f).astype(U64)
        if wraps:
            at, width = at & U64(31), width & U64(31)
        at, width = np.minimum(at, U64(32)), np.minimum(width, U64(32))
        put(f, (((U64(1) << width) - U64(1)) << at & _LOW).astype(U32), m)

    return run


@maker("POPC", "UPOPC")
def _popc(w: Word) -> Run:
    put, b, inverted = put32(w), w.operand("b", sources=2), w.flag(63)
    if w.is_immediate("b", sources=2):
        inverted = False
    return lambda f, m: put(f, np.bitwise_count(~b(f) if inverted else b(f)).astype(U32), m)


@maker("BREV", "UBREV")
def _brev(w: Word) -> Run:
    put, b = put32(w), w.operand("b", sources=2)

    def run(f: Front, m: Mask) -> None:
        v = b(f)
        for shift, pattern in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F)):
            v = (v & U32(pattern)) << U32(shift) | v >> U32(shift) & U32(pattern)
        put(f, v.byteswap(), m)

    return run


@maker("FLO", "UFLO")
def _flo(w: Word) -> Run:
    put, b, inverted = put32(w), w.operand("b", sources=2), w.flag(63)
    signed, as_shift = w.flag(73), w.flag(74)
    if put_predicate(w, 81):
        raise w.unknown("the predicate of FLO")

    def run(f: Front, m: Mask) -> None:
        v = ~b(f) if inverted else b(f)
        if signed:
            v = np.where(v >> U32(31), ~v, v)
        # The exponent of the exact double is the place of the leading one.
        place = (v.astype(np.float64).view(U64) >> U64(52)).astype(np.int64) - 1023
        found = 31 - place if as_shift else place
        put(f, np.where(v == 0, np.int64(-1), found).astype(np.int32).view(U32), m)

    return run


# ---- comparisons, minima


@maker("ISETP", "UISETP")
def _isetp(w: Word) -> Run:
    compare, signed, extends = w.take(76, 3), w.flag(73), w.flag(72)
    combine = boolean(w)
    wide = w.arch.major >= 10 and w.flag(80)
    a, b = (
        (w.reader64(24), w.operand64("b", sources=2, extend="sign"))
        if wide
        else (w.reader(24), w.operand("b", sources=2))
    )
    first, second, other = put_predicate(w, 81), put_predicate(w, 84), w.predicate(87)
    lower = w.predicate(68) if extends else None
    w.ignore(68, 4)
    whole = np.int64 if wide else np.int32
    function = COMPARISONS[compare]

    def run(f: Front, m: Mask) -> None:
        left: Any
        right: Any
        left, right = a(f), b(f)
        if signed:
            left, right = left.view(whole), right.view(whole)
        if lower is None:
            result = function(left, right)
        else:
            result = _extended_comparison(compare, left, right, lower(f))
        with_other = other(f)
        if first is not None:
            first(f, combine(result, with_other), m)
        if second is not None:
            second(f, combine(~result, with_other), m)

    return run


def _extended_comparison(compare: int, left: Any, right: Any, lower: Any) -> Any:
    """The upper words' comparison, where the lower words' has been made."""
    strict = {1: np.less, 3: np.less, 4: np.greater, 6: np.greater}.get(compare)
    equal = left == right
    if strict is not None:
        return strict(left, right) | equal & lower
    if compare == 2:
        return equal & lower
    if compare == 5:
        return ~equal | lower
    return COMPARISONS[compare](left, right)


@maker("IMNMX", "UIMNMX")
def _imnmx(w: Word) -> Run:
    wide = w.arch.major >= 10 and w.flag(74)
    parts = _Parts(64 if wide else 32, w.flag(73))
    w.ignore(68, 4)
    w.ignore(77, 4)
    put = put64(w) if wide else put32(w)
    a: Any = w.reader64(24) if wide else w.a()
    b: Any = w.operand64("b", sources=2, extend="sign") if wide else w.operand("b", sources=2)
    for at in (81, 84):
        if w.take(at, 3) not in (0, PT):
            raise w.unknown("a predicate of a minimum")
    take_less = w.predicate(87)
    return lambda f, m: put(f, parts.choose(a(f), b(f), take_less(f)), m)


@maker("VIMNMX", "UVIMNMX")
def _vimnmx(w: Word) -> Run:
    parts = _Parts.of(w)
    w.ignore(77, 4)
    put, a, b = put32(w), w.a(), w.operand("b", sources=2)
    take_less, tells = w.predicate(87), _tells_a(w, parts)

    def run(f: Front, m: Mask) -> None:
        left, right, less = a(f), b(f), take_less(f)
        told = tells(f, left, right, less)
        put(f, parts.choose(left, right, less), m)
        for put_bit, value in told:
            put_bit(f, value, m)

    return run


def _tells_a(w: Word, parts: _Parts) -> Callable[..., list[tuple[Put, Any]]]:
    """Predicates that say whether A is the result: of the lower half, and of the upper."""
    if parts.bits != 16:
        for at in (81, 84):
            if w.take(at, 3) not in (0, PT):
                raise w.unknown("a predicate of a minimum")
        return lambda *_: []
    places = [(half, put_predicate(w, at)) for half, at in enumerate((81, 84))]
    wanted = [(half, put) for half, put in places if put is not None]

    def tell(f: Front, left: Any, right: Any, less: Any) -> list[tuple[Put, Any]]:
        if not wanted:
            return []
        one, two = parts.split(left), parts.split(right)
        is_a = np.where(less[..., None], one <= two, one >= two)
        return [(put, is_a[..., half]) for half, put in wanted]

    return tell


@maker("VIADDMNMX")
def _viaddmnmx(w: Word) -> Run:
    parts = _Parts.of(w)
    put, a = put32(w), w.a()
    b, c = w.operand("b", sources=3), w.operand("c", sources=3)
    negative = w.negation("b", sources=3)
    if (negative and parts.bits != 32) or w.take(77, 4):
        raise w.unknown("packed differences")
    take_less = w.predicate(87)

    def run(f: Front, m: Mask) -> None:
        total = a(f) - b(f) if negative else parts.add(a(f), b(f))
        put(f, parts.choose(total, c(f), take_less(f)), m)

    return run


@maker("VIMNMX3")
def _vimnmx3(w: Word) -> Run:
    parts = _Parts.of(w)
    put, a = put32(w), w.a()
    b, c = w.operand("b", sources=3), w.operand("c", sources=3)
    if w.take(75) or w.take(77, 4):
        raise w.unknown("a modifier of a minimum of three")
    take_less = w.predicate(87)

    def run(f: Front, m: Mask) -> None:
        less = take_less(f)
        put(f, parts.choose(parts.choose(a(f), b(f), less), c(f), less), m)

    return run


# ---- predicates as bits


@maker("P2R", "UP2UR")
def _p2r(w: Word) -> Run:
    byte = w.take(76, 2)
    put, a, b = put32(w), w.a(), w.operand("b", sources=2)
    uniform = w.uniform
    # ptxas takes a mask for what it says: a predicate that it leaves out may be under way.
    asked = w.take(32, 32) if w.is_immediate("b", sources=2) else -1
    numbers = [number for number in range(PT) if asked >> number & 1]
    w.reads_predicates += [(number, uniform) for number in numbers]

    def run(f: Front, m: Mask) -> None:
        read = f.uniform_predicate if uniform else f.predicate
        bits: Any = U32(0)
        for number in numbers:
            bits = bits | read(number).astype(U32) << U32(number + 8 * byte)
        mask = b(f) << U32(8 * byte)
        put(f, a(f) & ~mask | bits & mask, m)

    return run


@maker("R2P", "UR2UP")
def _r2p(w: Word) -> Run:
    byte = w.take(76, 2)
    a = w.a()
    if not w.is_immediate("b", sources=2):
        raise w.unknown("a mask in a register")
    mask = w.take(32, 32)
    uniform = w.uniform
    w.writes_predicates += [(number, uniform) for number in range(PT) if mask >> number & 1]

    def run(f: Front, m: Mask) -> None:
        put = f.put_uniform_predicate if uniform else f.put_predicate
        bits = a(f) >> U32(8 * byte)
        for number in range(PT):
            if mask >> number & 1:
                put(number, (bits >> U32(number) & U32(1)) != 0, m)

    return run
