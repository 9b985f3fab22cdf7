"""The emulator's floating point, against exact arithmetic on Python's integers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowgemm.emulator import arithmetic as ar
from lowgemm.emulator.arithmetic.formats import BFLOAT16, DOUBLE, HALF, SINGLE, Format

Bits = npt.NDArray[Any]
ROUNDINGS: tuple[ar.Rounding, ...] = ("RN", "RM", "RP", "RZ")
FORMATS = {"half": HALF, "bfloat16": BFLOAT16, "single": SINGLE, "double": DOUBLE}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """NumPy's floating-point warnings are off, as where the emulator runs."""
    with np.errstate(all="ignore"):
        yield


# ---- the oracle: numbers are (integer, exponent of two)


def kind(bits: int, form: Format) -> str:
    """zero, finite, infinite or nan."""
    magnitude = bits & (form.sign - 1)
    if magnitude == 0:
        return "zero"
    if magnitude < form.infinity:
        return "finite"
    return "infinite" if magnitude == form.infinity else "nan"


def decode(bits: int, form: Format) -> tuple[int, int]:
    """The finite number of a bit pattern."""
    field, fraction = divmod(bits & (form.sign - 1), 1 << (form.precision_bits - 1))
    integer = fraction + ((1 << (form.precision_bits - 1)) if field else 0)
    exponent = form.minimum_exponent - form.precision_bits + max(field, 1)
    return (-integer if bits & form.sign else integer), exponent


def encode(integer: int, exponent: int, form: Format, rounding: str) -> int:
    """The bit pattern that a number not zero is rounded to."""
    negative, integer = integer < 0, abs(integer)
    lowest = form.minimum_exponent - form.precision_bits + 1
    ulp = max(integer.bit_length() + exponent - form.precision_bits, lowest)
    kept, rest = divmod(integer << max(exponent - ulp, 0), unit := 1 << max(ulp - exponent, 0))
    inward = rounding == "RZ" or rounding == ("RP" if negative else "RM")
    if rounding == "RN":
        kept += 2 * rest > unit or (2 * rest == unit and kept % 2)
    elif rest and not inward:
        kept += 1
    bits = kept + ((ulp - lowest) << (form.precision_bits - 1))
    if bits >= form.infinity:
        bits = form.infinity - inward
    return bits | (form.sign if negative else 0)


def flushed(bits: int, form: Format, ftz: bool) -> int:
    """Denormals to zeros of their sign, where ftz."""
    return bits & form.sign if ftz and not bits & form.infinity else bits


def smallest(form: Format) -> float:
    """The smallest normal number."""
    return float(2.0**form.minimum_exponent)


def fused(a: int, b: int, c: int, form: Format, rounding: str = "RN", ftz: bool = False) -> int:
    """a * b + c, rounded once."""
    a, b, c = (flushed(part, form, ftz) for part in (a, b, c))
    kinds = [kind(part, form) for part in (a, b, c)]
    product_sign = (a ^ b) & form.sign
    for part in (b, c, a):
        if form is DOUBLE and kind(part, form) == "nan":
            return part | form.quiet
    if "nan" in kinds or ("infinite" in kinds[:2] and "zero" in kinds[:2]):
        return form.nan
    if "infinite" in kinds[:2]:
        opposite = kinds[2] == "infinite" and product_sign != c & form.sign
        return form.nan if opposite else product_sign | form.infinity
    if kinds[2] == "infinite":
        return c
    (x, x_exponent), (y, y_exponent), (z, z_exponent) = (decode(part, form) for part in (a, b, c))
    exponent = min(x_exponent + y_exponent, z_exponent)
    total = (x * y << x_exponent + y_exponent - exponent) + (z << z_exponent - exponent)
    if total:
        bits = encode(total, exponent, form, rounding)
        # FTZ looks at the number as rounded without an end to the exponents.
        integer, shift = decode(encode(total, exponent + 8, form, rounding), form)
        tiny = bits & form.infinity == 0 or abs(integer) * 2.0 ** (shift - 8) < smallest(form)
        return bits & form.sign if ftz and tiny else bits
    if x * y == 0 and z == 0 and product_sign == c & form.sign:
        return product_sign
    return form.sign if rounding == "RM" else 0


def product(a: int, b: int, form: Format, rounding: str = "RN", ftz: bool = False) -> int:
    """a * b, rounded once: a zero of the product's sign adds nothing."""
    return fused(a, b, (a ^ b) & form.sign, form, rounding, ftz)


def one(form: Format) -> int:
    """The bits of 1."""
    return (1 - form.minimum_exponent) << (form.precision_bits - 1)


# ---- operands


def specials(form: Format) -> list[int]:
    """Zeros, denormals, the ends of the range, infinities, NaNs, and numbers around one."""
    unit = 1 << (form.precision_bits - 1)
    positive = [0, 1, 2, unit - 1, unit, unit + 1, form.infinity - 1, form.infinity]
    positive += [form.infinity + 1, form.infinity + unit // 2, form.sign - 1]
    positive += [one(form) + step for step in (-unit, -1, 0, 1, unit // 2, unit, unit + 1)]
    return positive + [bits | form.sign for bits in positive]


def only(bits: int, dtype: Any) -> Bits:
    """An operand of no dimension, which broadcasts."""
    return np.array(bits, dtype)


def patterns(form: Format, count: int, seed: int) -> Bits:
    """Random bits, and numbers within a few binades of one another, and specials."""
    rng = np.random.default_rng(seed)
    anything = rng.integers(0, 2**form.width_bits, count, np.uint64)
    near = rng.integers(one(form) >> 1, one(form) + (one(form) >> 1), count, np.uint64)
    few = rng.integers(0, 12, count, np.uint64) << np.uint64(form.precision_bits - 1)
    near = (near & np.uint64((1 << (form.precision_bits - 1)) - 1)) + few
    near += np.uint64(one(form) - (6 << (form.precision_bits - 1)))
    near |= rng.integers(0, 2, count, np.uint64) << np.uint64(form.width_bits - 1)
    tiny = rng.integers(0, 3 << (form.precision_bits - 1), count, np.uint64)
    special = rng.choice(np.array(specials(form), np.uint64), count)
    kinds = rng.integers(0, 6, count)
    return np.choose(kinds, [anything, near, near, near, tiny, special]).astype(form.dtype)


def same(result: Bits, expected: list[int], *operands: Bits) -> None:
    """The bits agree; the first that do not are shown with their operands."""
    wanted = np.array(expected, result.dtype)
    wrong = np.flatnonzero(result != wanted)[:3]
    shown = [[hex(part[lane]) for part in (*operands, result, wanted)] for lane in wrong]
    assert not shown


def close_ties(count: int, seed: int) -> tuple[Bits, Bits, Bits]:
    """Float32 operands whose product is half a unit in the last place of c, but for 2**-46."""
    rng = np.random.default_rng(seed)
    step = rng.integers(-40, 41, count) * 2.0**-23
    exponent = rng.integers(-140, 100, count)
    c = np.ldexp(rng.integers(2**23, 2**24, count), exponent - 23).astype(np.float32)
    half_ulp = np.maximum(exponent - 24, -150)
    first = half_ulp // 2
    odd = rng.choice([1, 1, 1, 3, -1, -1, -3], count)
    a = np.ldexp((1 + step) * odd, first).astype(np.float32)
    b = np.ldexp(1 - step * rng.choice([1, 1, 0], count), half_ulp - first).astype(np.float32)
    c = np.where(rng.random(count) < 0.5, c, -c)
    return a.view(np.uint32), b.view(np.uint32), c.view(np.uint32)


# ---- single


@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_single_operations_round_once(rounding: ar.Rounding, ftz: bool) -> None:
    """FFMA, FADD and FMUL give the exact result's rounding in every direction."""
    a, b, c = (patterns(SINGLE, 6000, seed) for seed in (1, 2, 3))
    triples = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    same(
        ar.ffma(a, b, c, rounding=rounding, ftz=ftz),
        [fused(*parts, SINGLE, rounding, ftz) for parts in triples],
        a,
        b,
        c,
    )
    same(
        ar.fadd(a, b, rounding=rounding, ftz=ftz),
        [fused(x, one(SINGLE), y, SINGLE, rounding, ftz) for x, y, _ in triples],
        a,
        b,
    )
    same(
        ar.fmul(a, b, rounding=rounding, ftz=ftz),
        [product(x, y, SINGLE, rounding, ftz) for x, y, _ in triples],
        a,
        b,
    )


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_ffma_near_ties(rounding: ar.Rounding) -> None:
    """A sum that is a tie but for its last bits is rounded by those, also where denormal."""
    count = 100_000 if rounding == "RN" else 5_000
    a, b, c = close_ties(count, 4)
    exact = a.view(np.float32).astype(float) * b.view(np.float32) + c.view(np.float32)
    naive = exact.astype(np.float32).view(np.uint32)
    result = ar.ffma(a, b, c, rounding=rounding)
    triples = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    same(result, [fused(*parts, SINGLE, rounding) for parts in triples], a, b, c)
    assert np.count_nonzero(result != naive) > count // 10


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_flushing_next_to_the_smallest_normal(rounding: ar.Rounding) -> None:
    """FTZ flushes what is below it when rounded as if there were no denormals, as an H200 does."""
    rng = np.random.default_rng(8)
    a = np.ldexp(rng.uniform(1, 2, 5000), -60).astype(np.float32)
    b = (2.0**-126 / a.astype(float)).astype(np.float32).view(np.uint32)
    b += rng.integers(-2, 3, 5000, np.int32).view(np.uint32)
    b |= rng.integers(0, 2, 5000, np.uint32) << np.uint32(31)
    x, c = a.view(np.uint32), rng.choice(np.array([0, 0x80000000, 0x800000], np.uint32), 5000)
    triples = list(zip(x.tolist(), b.tolist(), c.tolist(), strict=True))
    expected = [product(*parts[:2], SINGLE, rounding, True) for parts in triples]
    same(ar.fmul(x, b, rounding=rounding, ftz=True), expected, x, b)
    expected = [fused(*parts, SINGLE, rounding, True) for parts in triples]
    same(ar.ffma(x, b, c, rounding=rounding, ftz=True, out=c.copy()), expected, x, b, c)


def test_ffma_writes_where_it_is_told() -> None:
    """``out`` may be the addend; the other operands stay; one element stands for all."""
    a, b, c = close_ties(1000, 5)
    kept = a.copy(), b.copy()
    expected = ar.ffma(a, b, c)
    assert ar.ffma(a, b, c, out=c) is c
    assert np.array_equal(c, expected)
    assert np.array_equal(a, kept[0])
    assert np.array_equal(b, kept[1])
    scalar = ar.ffma(a, b[0], only(0, np.uint32))
    assert np.array_equal(scalar, ar.ffma(a, np.full_like(a, b[0]), np.zeros_like(a)))
    assert ar.ffma(a[:1], b[:1], b[0]).shape == (1,)
    assert ar.ffma(a[:0], b[:0], c[:0]).size == 0


@given(st.lists(st.tuples(*[st.sampled_from(specials(SINGLE)) | st.integers(0, 2**32 - 1)] * 3)))
def test_ffma_of_anything(triples: list[tuple[int, int, int]]) -> None:
    """Any three bit patterns, specials among them, fuse as exact arithmetic says."""
    a, b, c = np.array(triples, np.uint32).reshape(-1, 3).T.copy()
    same(ar.ffma(a, b, c), [fused(*parts, SINGLE) for parts in triples], a, b, c)


def test_saturation() -> None:
    """A saturated result lies in [0, 1]; NaN and -0 become +0."""
    a, b = patterns(SINGLE, 3000, 6), patterns(SINGLE, 3000, 7)
    values = ar.fadd(a, b).view(np.float32)
    expected = np.where(values > 0, np.minimum(values, 1), 0).astype(np.float32)
    result = ar.fadd(a, b, saturate=True)
    assert np.array_equal(result, expected.view(np.uint32))
    assert ar.fmul(only(0x7FFFFFFF, np.uint32), only(0, np.uint32), saturate=True).tolist() == [0]
    assert ar.fmul(only(0x80000000, np.uint32), only(1, np.uint32), saturate=True).tolist() == [0]


# ---- double and half


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_double_operations_round_once(rounding: ar.Rounding) -> None:
    """DFMA, DADD and DMUL give the exact result's rounding in every direction."""
    a, b, c = (patterns(DOUBLE, 6000, seed) for seed in (11, 12, 13))
    # Sums that nearly cancel: c is the rounded product's opposite in some lanes.
    c[::5] = ar.dmul(a[::5], b[::5]) ^ np.uint64(DOUBLE.sign)
    triples = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    expected = [fused(*parts, DOUBLE, rounding) for parts in triples]
    same(ar.dfma(a, b, c, rounding=rounding), expected, a, b, c)
    expected = [fused(x, one(DOUBLE), y, DOUBLE, rounding) for x, y, _ in triples]
    same(ar.dadd(a, b, rounding=rounding), expected, a, b)
    expected = [product(x, y, DOUBLE, rounding) for x, y, _ in triples]
    same(ar.dmul(a, b, rounding=rounding), expected, a, b)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_dfma_near_ties(rounding: ar.Rounding) -> None:
    """Ties but for 2**-104 of the product are rounded by that, also where denormal."""
    rng = np.random.default_rng(14)
    step = rng.integers(-9, 10, 4000) * 2.0**-52
    exponent = rng.integers(-1070, 900, 4000)
    half_ulp = np.maximum(exponent - 53, -1075)
    c = np.ldexp(rng.integers(2**52, 2**53, 4000).astype(float), exponent - 52)
    a = np.ldexp(1 + step, half_ulp // 2)
    b = np.ldexp(rng.choice([-1.0, 1.0], 4000) * (1 - step), half_ulp - half_ulp // 2)
    x, y, z = (part.view(np.uint64) for part in (a, b, c))
    triples = zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    expected = [fused(*parts, DOUBLE, rounding) for parts in triples]
    same(ar.dfma(x, y, z, rounding=rounding), expected, x, y, z)


@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("form", [HALF, BFLOAT16], ids=["half", "bfloat16"])
def test_half_operations_round_once(form: Format, ftz: bool) -> None:
    """HFMA2, HADD2 and HMUL2 round the exact result once in both formats."""
    bf16 = form is BFLOAT16
    a, b, c = (patterns(form, 8000, seed) for seed in (21, 22, 23))
    triples = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    expected = [fused(*parts, form, "RN", ftz) for parts in triples]
    same(ar.hfma(a, b, c, bf16=bf16, ftz=ftz), expected, a, b, c)
    expected = [fused(x, one(form), y, form, "RN", ftz) for x, y, _ in triples]
    same(ar.hadd(a, b, bf16=bf16, ftz=ftz), expected, a, b)
    expected = [product(x, y, form, "RN", ftz) for x, y, _ in triples]
    same(ar.hmul(a, b, bf16=bf16, ftz=ftz), expected, a, b)


@pytest.mark.parametrize("form", [HALF, BFLOAT16], ids=["half", "bfloat16"])
def test_half_clamps(form: Format) -> None:
    """Relu keeps NaN and drops the negative; saturation ends at one and drops NaN."""
    bf16, zero = form is BFLOAT16, only(0, np.uint16)
    values = np.array([0x8000, 0x8001, form.sign | one(form), one(form) + 5, 0xFFFF], np.uint16)
    assert ar.hadd(values, zero, bf16=bf16, relu=True).tolist() == [0, 0, 0, one(form) + 5, 0x7FFF]
    assert ar.hadd(values, zero, bf16=bf16, saturate=True).tolist() == [0, 0, 0, one(form), 0]


# ---- minimum, maximum, comparisons


def least(a: int, b: int, form: Format, sign: int, propagate: bool) -> int:
    """Minimum (sign 1) or maximum (-1) as the PTX ISA words it."""
    nans = [kind(part, form) == "nan" for part in (a, b)]
    if all(nans) or (any(nans) and propagate):
        return (b if nans[1] else a) | form.quiet if form is DOUBLE else form.nan
    if any(nans):
        return b if nans[0] else a

    def place(bits: int) -> int:
        magnitude = bits & (form.sign - 1)
        return sign * (-1 - magnitude if bits & form.sign else magnitude)

    return min(a, b, key=place)


@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_minimum_and_maximum(name: str, propagate: bool) -> None:
    """-0 is below +0, a NaN gives way to a number or, where it propagates, wins."""
    form = FORMATS[name]
    values = np.array(specials(form), form.dtype)
    a, b = (part.ravel() for part in np.meshgrid(values, values))
    choose = np.arange(a.size) % 2 == 0
    signs = np.where(choose, 1, -1).tolist()
    expected = [
        least(x, y, form, sign, propagate)
        for x, y, sign in zip(a.tolist(), b.tolist(), signs, strict=True)
    ]
    if form is SINGLE:
        result: Bits = ar.fmin_max(a, b, choose, propagate_nan=propagate)
    elif form is DOUBLE:
        result = ar.dmin_max(a, b, choose, propagate_nan=propagate)
    else:
        result = ar.hmin_max(a, b, choose, propagate_nan=propagate, bf16=form is BFLOAT16)
    same(result, expected, a, b)


def test_minimum_with_xorsign_and_ftz() -> None:
    """Xorsign compares magnitudes and multiplies signs; ftz makes denormals zeros first."""
    a, b = np.array([3.0, -2.0, -1.0], np.float32), np.array([-2.0, -5.0, 4.0], np.float32)
    bits = a.view(np.uint32), b.view(np.uint32)
    assert ar.fmin_max(*bits, True, xorsign=True).view(np.float32).tolist() == [-2, 2, -1]
    assert ar.fmin_max(*bits, False, xorsign=True).view(np.float32).tolist() == [-3, 5, -4]
    assert (
        ar.fmin_max(only(0x80000001, np.uint32), only(5, np.uint32), True, ftz=True) == 0x80000000
    )


@pytest.mark.parametrize("name", FORMATS)
def test_comparisons(name: str) -> None:
    """Ordered comparisons are false of a NaN, those with U are true."""
    form = FORMATS[name]
    values = np.array(specials(form), form.dtype)
    a, b = (part.ravel() for part in np.meshgrid(values, values))
    for operation in ar_comparisons():
        if form is SINGLE:
            result = ar.fcompare(a, b, operation)
        elif form is DOUBLE:
            result = ar.dcompare(a, b, operation)
        else:
            result = ar.hcompare(a, b, operation, bf16=form is BFLOAT16)
        pairs = zip(a.tolist(), b.tolist(), strict=True)
        assert result.tolist() == [holds(x, y, form, operation) for x, y in pairs], operation
    assert ar.fcompare(only(1, np.uint32), only(0, np.uint32), "EQ", ftz=True)
    assert ar.hcompare(only(1, np.uint16), only(0x8000, np.uint16), "EQ", ftz=True)


def ar_comparisons() -> tuple[ar.Comparison, ...]:
    """All comparisons."""
    ordered: tuple[ar.Comparison, ...] = ("F", "LT", "EQ", "LE", "GT", "NE", "GE", "NUM")
    return (*ordered, "NAN", "LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "T")


def holds(a: int, b: int, form: Format, operation: str) -> bool:
    """Whether a comparison holds, by its name."""
    if "nan" in (kind(a, form), kind(b, form)):
        return operation in ("NAN", "T") or operation.endswith("U")
    magnitudes = [part & (form.sign - 1) for part in (a, b)]
    x, y = (-m if part & form.sign else m for m, part in zip(magnitudes, (a, b), strict=True))
    names = {"LT": x < y, "EQ": x == y, "LE": x <= y, "GT": x > y, "NE": x != y, "GE": x >= y}
    names |= {"NUM": True, "NAN": False, "T": True, "F": False}
    return names[operation.removesuffix("U") if operation != "NUM" else "NUM"]


# ---- conversions


def integral(integer: int, exponent: int, rounding: str) -> int:
    """A number rounded to an integer."""
    if exponent >= 0:
        return integer << exponent
    floor, rest = divmod(integer, unit := 1 << -exponent)
    if rounding == "RN":
        return floor + (2 * rest > unit or (2 * rest == unit and floor % 2))
    return floor + (rest > 0 and (rounding == "CEIL" or (rounding == "TRUNC" and integer < 0)))


@pytest.mark.parametrize("rounding", ["RN", "TRUNC", "FLOOR", "CEIL"])
@pytest.mark.parametrize("source", [16, 32, 64])
def test_float_to_integer(source: int, rounding: ar.IntegerRounding) -> None:
    """F2I rounds and saturates at every width; a NaN gives what the PTX ISA says."""
    form = {16: HALF, 32: SINGLE, 64: DOUBLE}[source]
    bits = np.concatenate([patterns(form, 500, 31), around_powers(form)])
    for target in (8, 16, 32, 64):
        for signed in (False, True):
            low, high = (
                (-(1 << target - 1), (1 << target - 1) - 1) if signed else (0, 2**target - 1)
            )
            expected = []
            for part in bits.tolist():
                if kind(part, form) == "nan":
                    value = 1 << target - 1 if source == 64 or target == 64 else 0
                elif kind(part, form) == "infinite":
                    value = low if part & form.sign else high
                else:
                    value = min(max(integral(*decode(part, form), rounding), low), high)
                expected.append(value % 2**target)
            result = ar.f2i(
                bits, source_bits=source, signed=signed, target_bits=target, rounding=rounding
            )
            same(result, expected, bits)


def test_float_to_integer_of_a_nan_by_its_modifier() -> None:
    """With .NTZ a NaN gives 0, without it the top bit, whatever the widths."""
    for to_zero, expected in ((True, 0), (False, 0x80000000)):
        result = ar.f2i(
            only(0x7FC00000, np.uint32),
            source_bits=32,
            signed=True,
            target_bits=32,
            nan_to_zero=to_zero,
        )
        assert result.tolist() == [expected]


def around_powers(form: Format) -> Bits:
    """Numbers near powers of two and near halves, of both signs."""
    numbers = [
        sign * (2.0**power + near)
        for power in range(65)
        for near in (-1, -0.5, 0, 0.5, 1.5)
        for sign in (-1, 1)
    ]
    floats = {16: np.float16, 32: np.float32, 64: np.float64}[form.width_bits]
    return np.array(numbers).astype(floats).view(form.dtype)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("form", [HALF, BFLOAT16, SINGLE, DOUBLE])
def test_integer_to_float(form: Format, rounding: ar.Rounding) -> None:
    """I2F rounds integers of every width once, and knows their ends."""
    rng = np.random.default_rng(32)
    values = rng.integers(0, 2**64, 600, np.uint64) >> rng.integers(0, 64, 600, np.uint64)
    ends = [2**power + near for power in range(1, 64) for near in (-1, 0, 1)]
    values = np.concatenate([values, np.array([0, 2**64 - 1, 65519, 65520, *ends], np.uint64)])
    for source in (8, 16, 32, 64):
        for signed in (False, True):
            expected = []
            for value in values.tolist():
                number = value % 2**source
                number -= 2**source if signed and number >= 2 ** (source - 1) else 0
                expected.append(encode(number, 0, form, rounding) if number else 0)
            result = ar.i2f(
                values, source_bits=source, signed=signed, target_bits=form.width_bits,
                bf16=form is BFLOAT16, rounding=rounding,
            )  # fmt: skip
            same(result, expected, values)


@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(
    ("source", "target"), [(32, 64), (64, 32), (32, 16), (16, 32), (64, 16), (16, 64)]
)
def test_float_to_float(source: int, target: int, rounding: ar.Rounding, ftz: bool) -> None:
    """F2F rounds once, keeps zeros' signs, and flushes denormals of single precision only."""
    forms = {16: HALF, 32: SINGLE, 64: DOUBLE}
    form, goal = forms[source], forms[target]
    bits = np.concatenate([patterns(form, 3000, 33), halfway(form, goal)])
    expected = [
        flushed(
            converted(flushed(part, form, ftz and source == 32), form, goal, rounding),
            goal,
            ftz and target == 32,
        )
        for part in bits.tolist()
    ]
    result = ar.f2f(bits, source_bits=source, target_bits=target, rounding=rounding, ftz=ftz)
    same(result, expected, bits)


def halfway(form: Format, goal: Format) -> Bits:
    """Numbers of the wider format on and next to the ties of the narrower one."""
    rng = np.random.default_rng(34)
    lost = form.precision_bits - goal.precision_bits
    if lost <= 0:
        return np.array([], form.dtype)
    bottom = goal.minimum_exponent - goal.precision_bits - 2 - form.minimum_exponent + 1
    top = bottom + goal.precision_bits + 4 if form is not DOUBLE else bottom + 40
    field = rng.integers(max(bottom, 0), top, 3000, np.uint64)
    kept = rng.integers(0, 1 << goal.precision_bits - 1, 3000, np.uint64) << np.uint64(lost)
    ties = (field << np.uint64(form.precision_bits - 1)) | kept | np.uint64(1 << (lost - 1))
    around: Bits = ties + rng.integers(0, 3, 3000, np.uint64) - np.uint64(1)
    return around.astype(form.dtype)


def converted(bits: int, form: Format, goal: Format, rounding: str) -> int:
    """A bit pattern in another format."""
    sign = goal.sign if bits & form.sign else 0
    what = kind(bits, form)
    if what == "finite":
        return encode(*decode(bits, form), goal, rounding)
    nan = goal.nan
    if DOUBLE in (form, goal):
        lost = form.precision_bits - goal.precision_bits
        payload = bits & (form.sign - form.infinity - 1)
        payload = payload >> lost if lost > 0 else payload << -lost
        nan = sign | goal.infinity | goal.quiet | payload
    return {"zero": sign, "infinite": sign | goal.infinity, "nan": nan}[what]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("form", [HALF, SINGLE, DOUBLE])
def test_bfloat16_conversions(form: Format, rounding: ar.Rounding) -> None:
    """A float of any width goes to bfloat16 with one rounding, and back as it is."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    if form is not HALF:
        bits = np.concatenate([patterns(form, 5000, 35), halfway(form, BFLOAT16)])
    expected = [converted(part, form, BFLOAT16, rounding) for part in bits.tolist()]
    settings: dict[str, Any] = {"source_bits": form.width_bits, "rounding": rounding}
    result = ar.f2f_bf16(bits, **settings)
    same(result, expected, bits)
    assert np.array_equal(ar.bf16_to_f32(result) >> 16, result)
    relu = ar.f2f_bf16(bits, **settings, relu=True)
    assert relu.tolist() == [0 if part >= 0x8000 else part for part in expected]


@pytest.mark.parametrize("rounding", ["RN", "TRUNC", "FLOOR", "CEIL"])
@pytest.mark.parametrize("source", [16, 32, 64])
def test_round_to_integral(source: int, rounding: ar.IntegerRounding) -> None:
    """FRND gives the integer as a float; what rounds to zero keeps its sign."""
    form = {16: HALF, 32: SINGLE, 64: DOUBLE}[source]
    bits = np.concatenate([patterns(form, 2000, 36), around_powers(form)])
    expected = []
    for part in bits.tolist():
        if kind(part, form) != "finite":
            expected.append(converted(part, form, form, "RN"))
            continue
        value = integral(*decode(part, form), rounding)
        expected.append(encode(value, 0, form, "RN") if value else part & form.sign)
    same(ar.frnd(bits, source_bits=source, rounding=rounding), expected, bits)


# ---- special functions


INFINITY, NAN = 0x7F800000, 0x7FFFFFFF
ONE = 0x3F800000


@pytest.mark.parametrize(
    ("operation", "operand", "expected"),
    [
        ("RCP", 0x80000001, 0x80000000 | INFINITY),
        ("RCP", 0x7F000001, 0),
        ("RCP", 0x80000000 | INFINITY, 0x80000000),
        ("RSQ", 0, INFINITY),
        ("RSQ", 0x80000000, 0x80000000 | INFINITY),
        ("RSQ", 0xBF800000, NAN),
        ("RSQ", INFINITY, 0),
        ("SQRT", 0x80000000, 0x80000000),
        ("SQRT", 0x40800000, 0x40000000),
        ("LG2", 1, 0x80000000 | INFINITY),
        ("LG2", 0x41000000, 0x40400000),
        ("LG2", 0xBF800000, NAN),
        ("EX2", 1, ONE),
        ("EX2", 0x80000000 | INFINITY, 0),
        ("EX2", 0xC2FE0000, 0),
        ("EX2", INFINITY, INFINITY),
        ("SIN", 0x80000000, 0x80000000),
        ("SIN", 0x3E800000, ONE),
        ("SIN", INFINITY, NAN),
        ("COS", 0, ONE),
        ("COS", 0x4B000000, ONE),
        ("TANH", 0x80000005, 0x80000005),
        ("TANH", INFINITY, ONE),
        ("TANH", 0x7F800001, NAN),
        ("RCP64H", 0x40000000, 0x3FE00000),
        ("RCP64H", 0x800FFFFF, 0xFFF00000),
        ("RCP64H", 0x7FF00000, 0),
        ("RSQ64H", 0x40100000, 0x3FE00000),
        ("RSQ64H", 0, 0x7FF00000),
        ("RSQ64H", 0xBFF00000, 0x7FFFFFFF),
        ("RCP64H", 0xFFF80000, 0x7FFFFFFF),
    ],
)
def test_special_functions_at_their_edges(
    operation: ar.MufuOperation, operand: int, expected: int
) -> None:
    """Zeros, denormals, infinities and exact values give what the PTX ISA's tables say."""
    assert hex(ar.mufu(operation, only(operand, np.uint32))[0]) == hex(expected)


@given(st.floats(2.0**-20, 100, width=32))
@settings(max_examples=50)
def test_special_functions_are_those_of_the_name(x: float) -> None:
    """Each function is within one part in 2**22 of Python's, sine and cosine within 2**-22."""
    expected = {
        "RCP": 1 / x,
        "RSQ": x**-0.5,
        "SQRT": x**0.5,
        "EX2": 2.0**x,
        "LG2": math.log2(x),
        "TANH": math.tanh(x),
    }
    bits = np.array([x], np.float32).view(np.uint32)
    for operation, value in expected.items():
        result = ar.mufu(operation, bits).view(np.float32)[0]  # type: ignore[arg-type]
        assert math.isclose(result, value, rel_tol=2.0**-22, abs_tol=2.0**-40), operation
    turns = math.fmod(x, 1) * 2 * math.pi
    sine, cosine = (ar.mufu(name, bits).view(np.float32)[0] for name in ("SIN", "COS"))
    assert math.isclose(sine, math.sin(turns), abs_tol=2.0**-22)
    assert math.isclose(cosine, math.cos(turns), abs_tol=2.0**-22)
