"""Binary floating-point formats, and rounding into any of them.

What the other modules share: the formats, the taking apart of bit patterns, the one rounding of an
integer significand to a format in any direction, round-to-odd in float64, and comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "BFLOAT16",
    "DOUBLE",
    "HALF",
    "SINGLE",
    "Comparison",
    "Format",
    "Rounding",
]

Rounding = Literal["RN", "RM", "RP", "RZ"]
"""To nearest (ties to even), down, up, toward zero."""

Comparison = Literal[
    "F",
    "LT",
    "EQ",
    "LE",
    "GT",
    "NE",
    "GE",
    "NUM",
    "NAN",
    "LTU",
    "EQU",
    "LEU",
    "GTU",
    "NEU",
    "GEU",
    "T",
]
"""A comparison of SASS; with U it also holds where an operand is NaN."""

# Operands are arrays or numpy scalars, which behave alike; the aliases name the bits' width.
Bits = npt.NDArray[Any]
Bits16 = npt.NDArray[np.uint16]
Bits32 = npt.NDArray[np.uint32]
Bits64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]

_U64 = np.uint64
_DTYPES: dict[int, type[np.unsignedinteger[Any]]] = {
    16: np.uint16,
    32: np.uint32,
    64: np.uint64,
}
_ONE = np.uint64(1)


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format of IEEE 754's shape.

    Attributes
    ----------
    width_bits
        All bits.
    precision_bits
        Bits of the significand, the implicit one included.
    minimum_exponent
        Exponent of the smallest normal number: 2**minimum_exponent.
    nan
        The NaN that the GPU writes. PTX ISA, "Floating Point Instructions": 0x7fffffff for single
        precision, 0x7fff for both 16-bit formats. It leaves that of double precision open: the one
        here is that of an invalid operation, measured on an H200.
    """

    width_bits: int
    precision_bits: int
    minimum_exponent: int
    nan: int

    @property
    def sign(self) -> int:
        """The mask of the sign."""
        return 1 << (self.width_bits - 1)

    @property
    def infinity(self) -> int:
        """The bits of positive infinity, which are the mask of the exponent."""
        return self.sign - (1 << (self.precision_bits - 1))

    @property
    def quiet(self) -> int:
        """The bit that makes a NaN a quiet one."""
        return 1 << (self.precision_bits - 2)

    @property
    def dtype(self) -> type[np.unsignedinteger[Any]]:
        """The unsigned integer that holds the bits."""
        return _DTYPES[self.width_bits]


HALF = Format(16, 11, -14, 0x7FFF)
BFLOAT16 = Format(16, 8, -126, 0x7FFF)
SINGLE = Format(32, 24, -126, 0x7FFFFFFF)
DOUBLE = Format(64, 53, -1022, 0xFFF8_0000_0000_0000)


def is_nan(bits: Bits, form: Format) -> Bools:
    """Where the bits are a NaN."""
    kind = form.dtype
    result: Bools = np.greater(bits & kind(form.sign - 1), kind(form.infinity))
    return result


def canonical(bits: Bits, form: Format) -> Bits:
    """The bits with every NaN made the format's own."""
    return np.where(is_nan(bits, form), form.dtype(form.nan), bits)


def flush(bits: Bits, form: Format) -> Bits:
    """The bits with every denormal made a zero of its sign."""
    kind = form.dtype
    return np.where((bits & kind(form.infinity)) == 0, bits & kind(form.sign), bits)


def is_tiny(values: Float64s, form: Format, rounding: Rounding = "RN") -> Bools:
    """Where a result, given exactly or rounded to odd, counts as denormal to the GPU's FTZ.

    It decides on the result rounded as if exponents had no lower end: a number just below the
    smallest normal one is flushed though denormals' coarser rounding would make it that one
    (measured on an H200: 0x3f7fffff * 0x00800000 is 0 with FTZ, 0x00800000 without).
    """
    smallest, magnitude = 2.0**form.minimum_exponent, np.abs(values)
    tiny: Bools
    if rounding == "RN":
        return np.less(magnitude, smallest * (1 - 2.0 ** -(form.precision_bits + 1)))
    tiny = magnitude < smallest
    if rounding != "RZ":
        away = np.signbit(values) == (rounding == "RM")
        tiny &= ~away | (magnitude <= smallest * (1 - 2.0**-form.precision_bits))
    return tiny


def bit_lengths(values: Bits64) -> npt.NDArray[np.int64]:
    """How many bits each unsigned integer has."""
    # Without the bit below the leading one the conversion cannot round up to the next power of two.
    leading = values & ~(values >> _ONE)
    return np.frexp(leading.astype(np.float64))[1].astype(np.int64)


def pack(
    negative: Bools,
    significand: Bits64,
    exponent: npt.NDArray[np.int64],
    form: Format,
    rounding: Rounding = "RN",
) -> Bits64:
    """Round ``significand * 2**exponent`` to a format, once.

    A significand may stand for a value just above it: its lowest bit, where it has two bits more
    than the format keeps, may mean "something below here".

    Returns
    -------
    Bits64
        The bits, in the low part of 64.
    """
    length = bit_lengths(significand)
    leading = exponent + length - 1
    top = significand << (64 - length).clip(0, 63).astype(_U64)
    # 62 bits and what is below them in the last: shifts by up to 63 are then all meant.
    top = (top >> _U64(2)) | ((top & _U64(3)) != 0)
    denormal = np.maximum(form.minimum_exponent - leading, 0)
    drop = np.minimum(62 - form.precision_bits + denormal, 63).astype(_U64)
    kept = top >> drop
    rest = top - (kept << drop)
    half = _ONE << (drop - _ONE)
    if rounding == "RN":
        up = (rest > half) | ((rest == half) & ((kept & _ONE) != 0))
    elif rounding == "RZ":
        up = np.zeros_like(negative)
    else:
        up = (rest != 0) & (negative == (rounding == "RM"))
    infinity = _U64(form.infinity)
    biased = (leading - form.minimum_exponent).clip(0, 1 << form.width_bits - form.precision_bits)
    magnitude = (biased.astype(_U64) << _U64(form.precision_bits - 1)) + kept + up
    magnitude = np.where(significand == 0, _U64(0), magnitude)
    overflow = magnitude >= infinity
    to_infinity = rounding == "RN" or (negative == (rounding == "RM")) & (rounding != "RZ")
    magnitude = np.where(overflow, np.where(to_infinity, infinity, infinity - _ONE), magnitude)
    result: Bits64 = magnitude | (negative.astype(_U64) << _U64(form.width_bits - 1))
    return result


def narrow(values: Float64s, form: Format, rounding: Rounding = "RN") -> Bits:
    """Float64 values, exact or rounded to odd, to a format of at most 51 bits, NaN canonical."""
    bits = values.view(np.uint64)
    field = (bits >> _U64(52)) & _U64(0x7FF)
    fraction = bits & _U64((1 << 52) - 1)
    significand = np.where(field != 0, fraction | _U64(1 << 52), fraction)
    exponent = np.maximum(field, _ONE).astype(np.int64) - 1075
    negative = np.signbit(values)
    result = pack(negative, significand, exponent, form, rounding)
    infinite = _U64(form.infinity) | (negative.astype(_U64) << _U64(form.width_bits - 1))
    result = np.where(np.isinf(values), infinite, result)
    return np.where(np.isnan(values), _U64(form.nan), result).astype(form.dtype)


def two_sum(x: Float64s, y: Float64s) -> tuple[Float64s, Float64s]:
    """The rounded sum and its error, together the exact sum (Knuth)."""
    total = x + y
    other = total - x
    return total, (x - (total - other)) + (y - other)


def odd_sum(x: Float64s, y: Float64s) -> Float64s:
    """The sum rounded to odd: where inexact, the neighbour whose last bit is set.

    Rounding it again, to at most 51 bits, gives the exact sum's rounding (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums", IEEE Transactions on Computers 57, 2008).
    """
    total, error = two_sum(x, y)
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & ((bits & 1) == 0)
    step = np.where((error > 0) == (total > 0), 1, -1)
    odd: Float64s = (bits + step * inexact).view(np.float64)
    return odd


def signed_zero_sum(total: Float64s, x: Float64s, y: Float64s, rounding: Rounding) -> Float64s:
    """The sum of x and y with the sign that an exact zero has in this rounding."""
    if rounding != "RM":
        return total
    return np.where((total == 0) & (np.signbit(x) | np.signbit(y)), -0.0, total)


def order(bits: Bits, form: Format) -> npt.NDArray[Any]:
    """Signed integers in the order of the numbers, -0 below +0."""
    signed = bits.view(f"i{form.width_bits // 8}")
    everything = signed >> (form.width_bits - 1)
    ordered: npt.NDArray[Any] = signed ^ (everything & (form.sign - 1))
    return ordered


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "F": lambda x, y: np.zeros(np.broadcast(x, y).shape, np.bool_),
    "LT": np.less,
    "EQ": np.equal,
    "LE": np.less_equal,
    "GT": np.greater,
    "NE": lambda x, y: (x < y) | (x > y),
    "GE": np.greater_equal,
    "NUM": lambda x, y: ~(np.isnan(x) | np.isnan(y)),
    "NAN": lambda x, y: np.isnan(x) | np.isnan(y),
    "LTU": lambda x, y: ~(x >= y),
    "EQU": lambda x, y: ~((x < y) | (x > y)),
    "LEU": lambda x, y: ~(x > y),
    "GTU": lambda x, y: ~(x <= y),
    "NEU": np.not_equal,
    "GEU": lambda x, y: ~(x < y),
    "T": lambda x, y: np.ones(np.broadcast(x, y).shape, np.bool_),
}


def compare(x: npt.NDArray[Any], y: npt.NDArray[Any], operation: Comparison) -> Bools:
    """Compare floating-point numbers."""
    result: Bools = np.atleast_1d(_COMPARISONS[operation](x, y))
    return result


def min_max(
    a: Bits,
    b: Bits,
    minimum: Bools | bool,
    form: Format,
    *,
    ftz: bool = False,
    propagate_nan: bool = False,
    xorsign: bool = False,
) -> Bits:
    """Minimum where ``minimum``, else maximum; -0 is below +0.

    PTX ISA, ``min`` and ``max``: of one NaN and a number the number, of two NaNs the canonical NaN;
    with ``propagate_nan`` (.NAN) any NaN makes the canonical NaN. With ``xorsign`` (.XORSIGN) the
    absolute values are compared and the result's sign is the exclusive or of both signs, a NaN's
    sign included (measured on an H200).
    """
    kind = form.dtype
    a, b = np.broadcast_arrays(np.atleast_1d(a), b)
    if ftz:
        a, b = flush(a, form), flush(b, form)
    sign = (a ^ b) & kind(form.sign)
    if xorsign:
        a, b = a & kind(form.sign - 1), b & kind(form.sign - 1)
    a_nan, b_nan = is_nan(a, form), is_nan(b, form)
    take_a = ((order(a, form) < order(b, form)) == minimum) & ~a_nan
    result = np.where(take_a | b_nan, a, b)
    if xorsign:
        result |= sign
    nan = a_nan | b_nan if propagate_nan else a_nan & b_nan
    return np.where(nan, kind(form.nan), result)
