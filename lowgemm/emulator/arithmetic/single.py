"""Single precision: FFMA, FADD, FMUL, FMNMX and FSETP's comparison, on bits in uint32.

Every operation rounds once, as IEEE 754 says. A fused multiply-add is done in float64, where a
product of two float32 is exact; only where the float64 sum's own rounding could change the second
one, to float32, is the sum repaired.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from lowgemm.emulator.arithmetic.formats import (
    SINGLE,
    Bits32,
    Bools,
    Comparison,
    Float32s,
    Float64s,
    Rounding,
    canonical,
    compare,
    flush,
    is_tiny,
    min_max,
    odd_sum,
    signed_zero_sum,
)

__all__ = ["fadd", "fcompare", "ffma", "fmin_max", "fmul"]

_TIE = np.int64(-(2**63))
_TIE_SHIFT = np.int64(35)
_SMALLEST_NORMAL = 2.0**-126


class _Buffers:
    """Scratch memory of one lane count."""

    def __init__(self, lanes: int) -> None:
        self.product = np.empty(lanes)
        self.addend = np.empty(lanes)
        self.total = np.empty(lanes)
        self.total_bits = self.total.view(np.int64)
        self.low = np.empty(lanes, np.int64)


class _Scratch(threading.local):
    """A thread's buffers by lane count: allocating anew would cost a page fault per 4 KiB."""

    def __init__(self) -> None:
        self.by_lanes: dict[int, _Buffers] = {}

    def get(self, lanes: int) -> _Buffers:
        buffers = self.by_lanes.get(lanes)
        if buffers is None:
            if len(self.by_lanes) >= 16:
                self.by_lanes.clear()
            buffers = self.by_lanes[lanes] = _Buffers(lanes)
        return buffers


_scratch = _Scratch()


def ffma(
    a: Bits32,
    b: Bits32,
    c: Bits32,
    *,
    ftz: bool = False,
    saturate: bool = False,
    rounding: Rounding = "RN",
    out: Bits32 | None = None,
) -> Bits32:
    """a * b + c with one rounding (FFMA).

    Parameters
    ----------
    a, b, c
        Bits of float32, one-dimensional; of one element, or numpy scalars, to broadcast.
    ftz
        Denormal operands count as zeros of their sign, denormal results become such zeros.
    saturate
        Clamp to [0, 1]; NaN becomes +0.
    rounding
        RN, RM, RP or RZ.
    out
        Where the result goes; it may be one of the operands.

    Returns
    -------
    Bits32
        The result's bits, ``out`` if given. A NaN is 0x7fffffff.
    """
    if ftz:
        a, b, c = flush(a, SINGLE), flush(b, SINGLE), flush(c, SINGLE)
    lanes = max(a.size, b.size, c.size)
    result = np.empty(lanes, np.uint32) if out is None else out
    if lanes == 0:
        return result
    scratch = _scratch.get(lanes)
    np.multiply(a.view(np.float32), b.view(np.float32), out=scratch.product, dtype=np.float64)
    np.copyto(scratch.addend, c.view(np.float32))
    if rounding == "RN":
        _round_nearest(scratch, result.view(np.float32))
    else:
        total = odd_sum(scratch.product, scratch.addend)
        total = signed_zero_sum(total, scratch.product, scratch.addend, rounding)
        result[...] = narrow_single(total, rounding)
    if ftz:
        _flush_borderline(result, lambda: odd_sum(scratch.product, scratch.addend), rounding)
    return _finish(result, ftz, saturate)


def _round_nearest(scratch: _Buffers, result: Float32s) -> None:
    """Product and addend to their sum, rounded once."""
    total = scratch.total
    np.add(scratch.product, scratch.addend, out=total)
    # Two roundings differ from one only if the first ends on a tie of the second. A normal float32
    # has a tie where the low 29 bits are 1 and 28 zeros: shifted up, the smallest integer.
    low = np.left_shift(scratch.total_bits, _TIE_SHIFT, out=scratch.low)
    if low[low.argmin()] == _TIE:
        _make_odd(scratch, low == _TIE)
    try:
        # A denormal's ties lie elsewhere; the processor raises underflow where such a result is
        # inexact, and looking at its flag is cheaper than looking at the numbers.
        with np.errstate(under="raise"):
            np.copyto(result, total, casting="unsafe")
    except FloatingPointError:
        _make_odd(scratch, np.abs(total) < _SMALLEST_NORMAL)
        np.copyto(result, total, casting="unsafe")


def _make_odd(scratch: _Buffers, where: Bools) -> None:
    """Round the sum to odd in some lanes: rounding that again gives the exact sum's rounding."""
    lanes = np.flatnonzero(where)
    scratch.total[lanes] = odd_sum(scratch.product[lanes], scratch.addend[lanes])


def narrow_single(values: Float64s, rounding: Rounding) -> Bits32:
    """Float64 values, exact or rounded to odd, to float32 bits; NaNs are not made canonical."""
    nearest = values.astype(np.float32)
    bits = nearest.view(np.uint32)
    if rounding == "RN":
        return bits
    back = nearest.astype(np.float64)
    truncated = bits - (np.abs(back) > np.abs(values))
    if rounding == "RZ":
        return truncated
    away = (np.signbit(values) == (rounding == "RM")) & (np.abs(back) != np.abs(values))
    rounded: Bits32 = truncated + (away & ~np.isnan(values))
    return rounded


def _flush_borderline(result: Bits32, total: Callable[[], Float64s], rounding: Rounding) -> None:
    """Flush, in place, results that only denormals' coarser rounding made the smallest normal."""
    borderline = (result & np.uint32(0x7FFFFFFF)) == np.uint32(0x00800000)
    if borderline.any():
        result[borderline & is_tiny(total(), SINGLE, rounding)] &= np.uint32(0x80000000)


def _finish(result: Bits32, ftz: bool, saturate: bool) -> Bits32:
    """Make NaNs canonical, then flush and clamp, in place."""
    values = result.view(np.float32)
    # argmax stops at a NaN, and costs less than isnan and any.
    if np.isnan(values[values.argmax()]):
        result[...] = canonical(result, SINGLE)
    if ftz:
        result[...] = flush(result, SINGLE)
    if saturate:
        values[...] = np.where(values > 0, np.minimum(values, np.float32(1)), np.float32(0))
    return result


def fadd(
    a: Bits32,
    b: Bits32,
    *,
    ftz: bool = False,
    saturate: bool = False,
    rounding: Rounding = "RN",
    out: Bits32 | None = None,
) -> Bits32:
    """a + b with one rounding (FADD); parameters and result as of `ffma`."""
    if ftz:
        a, b = flush(a, SINGLE), flush(b, SINGLE)
    lanes = max(a.size, b.size)
    result = np.empty(lanes, np.uint32) if out is None else out
    if lanes == 0:
        return result
    x, y = a.view(np.float32), b.view(np.float32)
    if rounding == "RN":
        np.add(x, y, out=result.view(np.float32))
    else:
        x64, y64 = x.astype(np.float64), y.astype(np.float64)
        total = signed_zero_sum(odd_sum(x64, y64), x64, y64, rounding)
        result[...] = narrow_single(total, rounding)
    return _finish(result, ftz, saturate)


def fmul(
    a: Bits32,
    b: Bits32,
    *,
    ftz: bool = False,
    saturate: bool = False,
    rounding: Rounding = "RN",
    out: Bits32 | None = None,
) -> Bits32:
    """a * b with one rounding (FMUL); parameters and result as of `ffma`."""
    if ftz:
        a, b = flush(a, SINGLE), flush(b, SINGLE)
    lanes = max(a.size, b.size)
    result = np.empty(lanes, np.uint32) if out is None else out
    if lanes == 0:
        return result
    x, y = a.view(np.float32), b.view(np.float32)
    if rounding == "RN":
        np.multiply(x, y, out=result.view(np.float32))
    else:
        product: Float64s = np.multiply(x, y, dtype=np.float64)
        result[...] = narrow_single(product, rounding)
    if ftz:
        _flush_borderline(result, lambda: np.multiply(x, y, dtype=np.float64), rounding)
    return _finish(result, ftz, saturate)


def fmin_max(
    a: Bits32,
    b: Bits32,
    minimum: npt.NDArray[np.bool_] | bool,
    *,
    ftz: bool = False,
    propagate_nan: bool = False,
    xorsign: bool = False,
) -> Bits32:
    """Minimum where ``minimum``, else maximum (FMNMX); -0 is below +0.

    Parameters
    ----------
    a, b
        Bits of float32. With ``xorsign`` they keep their signs: the absolute value that the
        instruction shows on both is part of it.
    minimum
        One bool, or one a lane.
    ftz
        Denormal operands count as zeros of their sign.
    propagate_nan
        Any NaN makes 0x7fffffff; else only two do, and of one NaN and a number the number results
        (PTX ISA, ``min``).
    xorsign
        Compare absolute values; the result's sign is the exclusive or of both signs, a NaN's sign
        included.
    """
    return min_max(a, b, minimum, SINGLE, ftz=ftz, propagate_nan=propagate_nan, xorsign=xorsign)


def fcompare(a: Bits32, b: Bits32, operation: Comparison, *, ftz: bool = False) -> Bools:
    """Compare float32 bits (FSETP, FSET); with ftz denormals count as zeros."""
    if ftz:
        a, b = flush(a, SINGLE), flush(b, SINGLE)
    return compare(a.view(np.float32), b.view(np.float32), operation)
