"""Half precision and bfloat16: HFMA2, HADD2, HMUL2, HMNMX2 and HSETP2's comparison.

Bits in uint16, one number an element: the caller splits packed pairs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lowgemm.emulator.arithmetic.formats import (
    BFLOAT16,
    HALF,
    Bits16,
    Bits32,
    Bools,
    Comparison,
    Float32s,
    Float64s,
    Format,
    compare,
    flush,
    is_tiny,
    min_max,
    odd_sum,
)

__all__ = ["hadd", "hcompare", "hfma", "hmin_max", "hmul"]


def widen(bits: Bits16, *, bf16: bool) -> Float32s:
    """The numbers as float32, which holds both formats exactly."""
    if bf16:
        return (np.atleast_1d(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.atleast_1d(bits.view(np.float16).astype(np.float32))


def _operand(bits: Bits16, form: Format, ftz: bool) -> Float64s:
    bits = flush(bits, form) if ftz else bits
    return widen(bits, bf16=form is BFLOAT16).astype(np.float64)


def _finish(total: Float64s, form: Format, ftz: bool, saturate: bool, relu: bool) -> Bits16:
    """Round once, then flush and clamp."""
    bits = round_nearest(total, form)
    if ftz:
        bits = np.where(is_tiny(total, form), bits & form.dtype(form.sign), bits)
    if relu:
        bits = clamp_negative(bits)
    if saturate:
        values = widen(bits, bf16=form is BFLOAT16)
        one = form.dtype(0x3F80 if form is BFLOAT16 else 0x3C00)
        bits = np.where(values > 0, np.where(values > 1, one, bits), form.dtype(0))
    return bits


def round_nearest(total: Float64s, form: Format) -> Bits16:
    """Float64 values, exact or rounded to odd, to the format; NaN canonical."""
    single = total.astype(np.float32)
    back = single.astype(np.float64)
    # To odd again, now of float32: both formats are narrower by more than two bits.
    bits = single.view(np.uint32) - (np.abs(back) > np.abs(total))
    bits |= back != total
    if form is BFLOAT16:
        result = round_bf16(bits)
    else:
        result = bits.view(np.float32).astype(np.float16).view(np.uint16)
    return np.where(np.isnan(total), form.dtype(form.nan), result)


def round_bf16(bits: Bits32) -> Bits16:
    """Float32 bits to bfloat16 bits, to nearest; not for NaNs, which may become anything."""
    half_below = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + half_below) >> np.uint32(16)).astype(np.uint16)


def clamp_negative(bits: Bits16) -> Bits16:
    """Negative numbers and -0 to +0 (.RELU); NaNs, canonical and so positive, stay."""
    return np.where(bits >= 0x8000, np.uint16(0), bits)


def hfma(
    a: Bits16,
    b: Bits16,
    c: Bits16,
    *,
    bf16: bool = False,
    ftz: bool = False,
    saturate: bool = False,
    relu: bool = False,
) -> Bits16:
    """a * b + c with one rounding, to nearest (HFMA2).

    Parameters
    ----------
    a, b, c
        Bits of fp16 or, with ``bf16``, of bfloat16; one-dimensional, of one element to broadcast.
    ftz
        Denormal operands count as zeros of their sign, denormal results become such zeros.
    saturate
        Clamp to [0, 1]; NaN becomes +0.
    relu
        Negative results become +0; NaN stays.

    Returns
    -------
    Bits16
        The result's bits; a NaN is 0x7fff in both formats.
    """
    form = BFLOAT16 if bf16 else HALF
    x, y, z = (_operand(part, form, ftz) for part in (a, b, c))
    return _finish(odd_sum(x * y, z), form, ftz, saturate, relu)


def hadd(
    a: Bits16,
    b: Bits16,
    *,
    bf16: bool = False,
    ftz: bool = False,
    saturate: bool = False,
    relu: bool = False,
) -> Bits16:
    """a + b with one rounding, to nearest (HADD2); parameters and result as of `hfma`."""
    form = BFLOAT16 if bf16 else HALF
    x, y = _operand(a, form, ftz), _operand(b, form, ftz)
    return _finish(odd_sum(x, y), form, ftz, saturate, relu)


def hmul(
    a: Bits16,
    b: Bits16,
    *,
    bf16: bool = False,
    ftz: bool = False,
    saturate: bool = False,
    relu: bool = False,
) -> Bits16:
    """a * b with one rounding, to nearest (HMUL2); parameters and result as of `hfma`."""
    form = BFLOAT16 if bf16 else HALF
    x, y = _operand(a, form, ftz), _operand(b, form, ftz)
    return _finish(x * y, form, ftz, saturate, relu)


def hmin_max(
    a: Bits16,
    b: Bits16,
    minimum: npt.NDArray[np.bool_] | bool,
    *,
    bf16: bool = False,
    ftz: bool = False,
    propagate_nan: bool = False,
    xorsign: bool = False,
) -> Bits16:
    """Minimum where ``minimum``, else maximum (HMNMX2); as `fmin_max`, a NaN being 0x7fff."""
    form = BFLOAT16 if bf16 else HALF
    return min_max(a, b, minimum, form, ftz=ftz, propagate_nan=propagate_nan, xorsign=xorsign)


def hcompare(
    a: Bits16, b: Bits16, operation: Comparison, *, bf16: bool = False, ftz: bool = False
) -> Bools:
    """Compare bits of fp16 or bfloat16 (HSETP2); with ftz denormals count as zeros."""
    form = BFLOAT16 if bf16 else HALF
    if ftz:
        a, b = flush(a, form), flush(b, form)
    return compare(widen(a, bf16=bf16), widen(b, bf16=bf16), operation)
