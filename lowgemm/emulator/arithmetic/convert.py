"""Conversions: F2I, I2F, F2F, F2FP and FRND, on bit patterns."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from lowgemm.emulator.arithmetic.formats import (
    BFLOAT16,
    DOUBLE,
    HALF,
    SINGLE,
    Bits,
    Bits16,
    Bits32,
    Bits64,
    Float64s,
    Format,
    Rounding,
    canonical,
    flush,
    is_nan,
    narrow,
    pack,
)
from lowgemm.emulator.arithmetic.half import clamp_negative, round_bf16
from lowgemm.emulator.arithmetic.single import narrow_single

__all__ = ["IntegerRounding", "bf16_to_f32", "f2f", "f2f_bf16", "f2i", "frnd", "i2f"]

IntegerRounding = Literal["RN", "TRUNC", "FLOOR", "CEIL"]
"""To the nearest integer (ties to even), toward zero, down, up."""

_FORMATS = {16: HALF, 32: SINGLE, 64: DOUBLE}
_FLOATS: dict[int, type[np.floating[Any]]] = {16: np.float16, 32: np.float32, 64: np.float64}
_TO_INTEGRAL = {"RN": np.rint, "TRUNC": np.trunc, "FLOOR": np.floor, "CEIL": np.ceil}


def _numbers(bits: Bits, source_bits: int, ftz: bool) -> Float64s:
    """The numbers as float64, which holds all three formats exactly."""
    if ftz:
        bits = flush(bits, _FORMATS[source_bits])
    return np.atleast_1d(bits.view(_FLOATS[source_bits])).astype(np.float64)


def f2i(
    bits: Bits,
    *,
    source_bits: int,
    signed: bool,
    target_bits: int,
    rounding: IntegerRounding = "RN",
    ftz: bool = False,
    nan_to_zero: bool | None = None,
) -> Bits64:
    """Floating point to integer (F2I), saturating.

    Parameters
    ----------
    bits
        Bits of a float of ``source_bits``: 16, 32 or 64.
    signed
        Whether the integer is signed.
    target_bits
        The integer's width: 8, 16, 32 or 64.
    rounding
        RN, TRUNC, FLOOR or CEIL.
    ftz
        Denormal operands count as zeros.
    nan_to_zero
        Whether a NaN gives 0 (the modifier .NTZ) or the target's top bit alone. Left out, it is as
        the PTX ISA says of ``cvt``: 0 where the source is no double and the target has at most 32
        bits.

    Returns
    -------
    Bits64
        The integer, in two's complement of ``target_bits``, zeros above.
    """
    values = _TO_INTEGRAL[rounding](_numbers(bits, source_bits, ftz))
    nan = np.isnan(values)
    top = 1 << (target_bits - 1)
    low, high = (-float(top), float(top)) if signed else (0.0, 2.0 * top)
    under, over = values < low, values >= high
    values = np.where(nan | under | over, 0.0, values)
    result = values.astype(np.int64 if signed else np.uint64).view(np.uint64)
    result[under] = top if signed else 0
    result[over] = top - 1 if signed else 2 * top - 1
    if nan_to_zero is None:
        nan_to_zero = source_bits != 64 and target_bits != 64
    result[nan] = 0 if nan_to_zero else top
    result &= np.uint64(2 * top - 1)
    return result


def i2f(
    values: Bits64,
    *,
    source_bits: int,
    signed: bool,
    target_bits: int,
    bf16: bool = False,
    rounding: Rounding = "RN",
) -> Bits:
    """Integer to floating point (I2F).

    Parameters
    ----------
    values
        Integers in the low ``source_bits`` (8, 16, 32 or 64) of uint64; what is above is ignored.
    signed
        Whether they are in two's complement.
    target_bits
        The float's width: 16, 32 or 64.
    bf16
        Whether a float of 16 bits is a bfloat16.
    rounding
        RN, RM, RP or RZ.

    Returns
    -------
    Bits
        The float's bits, in an unsigned integer of its width.
    """
    unused = np.uint64(64 - source_bits)
    shifted = np.atleast_1d(values) << unused
    integers = shifted.view(np.int64) >> np.int64(unused) if signed else shifted >> unused
    form = BFLOAT16 if bf16 else _FORMATS[target_bits]
    if source_bits <= 32 and target_bits >= 32:
        exact = integers.astype(np.float64)
        return exact.view(np.uint64) if target_bits == 64 else narrow_single(exact, rounding)
    negative = integers < 0
    magnitude = np.where(negative, -integers, integers).astype(np.uint64)
    exponent = np.zeros(magnitude.shape, np.int64)
    return pack(negative, magnitude, exponent, form, rounding).astype(form.dtype)


def f2f(
    bits: Bits,
    *,
    source_bits: int,
    target_bits: int,
    rounding: Rounding = "RN",
    ftz: bool = False,
    relu: bool = False,
) -> Bits:
    """A float of one width to another (F2F, F2FP, HADD2.F32).

    Parameters
    ----------
    bits
        Bits of a float of ``source_bits``: 16 (fp16), 32 or 64.
    target_bits
        16, 32 or 64.
    rounding
        RN, RM, RP or RZ; widening is exact.
    ftz
        Denormal float32, as operand or result, becomes a zero of its sign (PTX ISA, ``cvt``: the
        modifier is one of single precision).
    relu
        Negative results become +0; NaN stays.

    Returns
    -------
    Bits
        The bits in an unsigned integer of the target's width. A NaN is the target's canonical one,
        except that from and to doubles its sign and leading bits stay and it is made quiet
        (measured on an H200).
    """
    form = _FORMATS[target_bits]
    result = _convert(bits, source_bits, form, rounding, ftz and source_bits == 32)
    if ftz and target_bits == 32:
        result = flush(result, form)
    if relu:
        result = np.where((result & form.dtype(form.sign)) != 0, form.dtype(0), result)
    return result


def _convert(bits: Bits, source_bits: int, form: Format, rounding: Rounding, ftz: bool) -> Bits:
    if source_bits == 32 and form is HALF and rounding == "RN":
        # Single to half is one instruction of the CPU, so take it.
        values = np.atleast_1d(flush(bits, SINGLE) if ftz else bits).view(np.float32)
        return canonical(values.astype(np.float16).view(np.uint16), HALF)
    source = _FORMATS[source_bits]
    numbers = _numbers(bits, source_bits, ftz)
    if form is HALF:
        result = narrow(numbers, form, rounding)
    else:
        result = numbers.view(np.uint64) if form is DOUBLE else narrow_single(numbers, rounding)
    return np.where(is_nan(bits, source), _converted_nan(np.atleast_1d(bits), source, form), result)


def _converted_nan(bits: Bits, source: Format, form: Format) -> Bits:
    """NaNs in another format."""
    kind = form.dtype
    if DOUBLE not in (source, form):
        return np.full(bits.shape, form.nan, kind)
    wide = bits.astype(np.uint64)
    shift = np.uint64(abs(form.precision_bits - source.precision_bits))
    payload = wide & np.uint64(source.sign - 1 - source.infinity)
    payload = payload << shift if form is DOUBLE else payload >> shift
    negative = wide >> np.uint64(source.width_bits - 1)
    bits = payload | np.uint64(form.infinity | form.quiet)
    return (bits | negative << np.uint64(form.width_bits - 1)).astype(kind)


def f2f_bf16(
    bits: Bits,
    *,
    source_bits: int = 32,
    rounding: Rounding = "RN",
    ftz: bool = False,
    relu: bool = False,
) -> Bits16:
    """A float of 16 (fp16), 32 or 64 bits to bfloat16 bits (F2F.BF16, F2FP.BF16).

    A NaN is as in `f2f`, as ftz and relu are.
    """
    if source_bits == 32 and rounding == "RN":
        bits = np.atleast_1d(flush(bits, SINGLE) if ftz else bits)
        nan = is_nan(bits, SINGLE)
        result = np.where(nan, np.uint16(BFLOAT16.nan), round_bf16(bits))
    else:
        numbers = _numbers(bits, source_bits, ftz and source_bits == 32)
        source = _FORMATS[source_bits]
        quiet = _converted_nan(np.atleast_1d(bits), source, BFLOAT16)
        result = np.where(is_nan(bits, source), quiet, narrow(numbers, BFLOAT16, rounding))
    return clamp_negative(result) if relu else result


def bf16_to_f32(bits: Bits16) -> Bits32:
    """Bfloat16 bits to float32 bits: zeros below, as the compiler's shift does, NaNs included."""
    return np.atleast_1d(bits).astype(np.uint32) << np.uint32(16)


def frnd(
    bits: Bits, *, source_bits: int, rounding: IntegerRounding = "RN", ftz: bool = False
) -> Bits:
    """Round to an integral number of the same format (FRND).

    Parameters
    ----------
    bits
        Bits of a float of ``source_bits``: 16, 32 or 64.
    rounding
        RN, TRUNC, FLOOR or CEIL.
    ftz
        Denormal operands count as zeros of their sign.

    Returns
    -------
    Bits
        The bits; a zero keeps the operand's sign. A NaN is the format's canonical one, of doubles
        the operand's made quiet (measured on an H200).
    """
    form = _FORMATS[source_bits]
    if ftz:
        bits = flush(bits, form)
    values = np.atleast_1d(bits.view(_FLOATS[source_bits]))
    result = _TO_INTEGRAL[rounding](values).view(form.dtype)
    if form is DOUBLE:
        return np.where(is_nan(bits, form), bits | np.uint64(form.quiet), result)
    return canonical(result, form)
