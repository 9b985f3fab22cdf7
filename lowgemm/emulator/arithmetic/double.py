"""Double precision: DFMA, DADD, DMUL, DMNMX and DSETP's comparison, on bits in uint64.

A fused multiply-add follows Boldo and Melquiond, "Emulation of FMA and correctly rounded sums"
(IEEE Transactions on Computers 57, 2008): error-free transformations, one of them rounded to odd.
Where an exponent is extreme, or the rounding is directed, the same runs on scaled operands, and an
integer significand is rounded to the format.

The PTX ISA names no NaN for double precision. Measured on an H200: an operand's NaN is passed on,
made quiet; of several, b's is taken before c's, and that before a's. An invalid operation gives
0xfff8000000000000.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lowgemm.emulator.arithmetic.formats import (
    DOUBLE,
    Bits64,
    Bools,
    Comparison,
    Float64s,
    Rounding,
    compare,
    is_nan,
    min_max,
    odd_sum,
    pack,
    signed_zero_sum,
    two_sum,
)

__all__ = ["dadd", "dcompare", "dfma", "dmin_max", "dmul"]

_SPLITTER = 2.0**27 + 1
_GUARD_BITS = 8


def dfma(a: Bits64, b: Bits64, c: Bits64, *, rounding: Rounding = "RN") -> Bits64:
    """a * b + c with one rounding (DFMA).

    Parameters
    ----------
    a, b, c
        Bits of float64, one-dimensional; of one element, or numpy scalars, to broadcast.
    rounding
        RN, RM, RP or RZ.

    Returns
    -------
    Bits64
        The result's bits; which NaN results says the module.
    """
    operands = (np.atleast_1d(part) for part in np.broadcast_arrays(a, b, c))
    x, y, z = (np.ascontiguousarray(part).view(np.float64) for part in operands)
    product = x * y
    finite_factors = np.isfinite(x) & np.isfinite(y)
    finite = finite_factors & np.isfinite(z)
    # Zero products, infinities and NaNs need no care, unless a finite product overflows.
    total = np.where(finite_factors & ~finite, z, product + z)
    needs_care = finite & (x != 0) & (y != 0)
    if rounding == "RN":
        result = np.where(needs_care, _moderate_fma(x, y, z), total)
        hard = needs_care & ~_all_moderate(x, y, z)
    else:
        result = signed_zero_sum(total, product, z, rounding)
        hard = needs_care
    bits = result.view(np.uint64)
    if hard.any():
        lanes = np.flatnonzero(hard)
        bits[lanes] = _scaled_fma(x[lanes], y[lanes], z[lanes], rounding)
    return _pass_nan(bits, a, c, b)


def _pass_nan(result: Bits64, *operands: Bits64) -> Bits64:
    """Give NaN results the NaN of the last operand that is one, made quiet."""
    nan = is_nan(result, DOUBLE)
    if nan.any():
        result = np.where(nan, np.uint64(DOUBLE.nan), result)
        for operand in operands:
            passed = nan & is_nan(operand, DOUBLE)
            result = np.where(passed, operand | np.uint64(DOUBLE.quiet), result)
    return result


def _moderate(values: Float64s, low: int, high: int) -> Bools:
    """Where the magnitude lies in [2**-low, 2**high]."""
    magnitude = np.abs(values)
    moderate: Bools = (magnitude >= 2.0**-low) & (magnitude <= 2.0**high)
    return moderate


def _all_moderate(x: Float64s, y: Float64s, z: Float64s) -> Bools:
    """Where no step of `_moderate_fma` overflows or drops bits below the format's last."""
    factors = _moderate(x, 480, 480) & _moderate(y, 480, 480)
    moderate: Bools = factors & ((z == 0) | _moderate(z, 900, 1000))
    return moderate


def _two_product(x: Float64s, y: Float64s) -> tuple[Float64s, Float64s]:
    """The rounded product and its error, together the exact product (Dekker, Veltkamp)."""
    product = x * y
    x_scaled, y_scaled = x * _SPLITTER, y * _SPLITTER
    x_high = x_scaled - (x_scaled - x)
    y_high = y_scaled - (y_scaled - y)
    x_low, y_low = x - x_high, y - y_high
    error = x_high * y_high - product
    return product, ((error + x_high * y_low) + x_low * y_high) + x_low * y_low


def _exact_fma(x: Float64s, y: Float64s, z: Float64s) -> tuple[Float64s, Float64s]:
    """Two numbers, the second rounded to odd, whose sum rounds as x * y + z does."""
    high, low = _two_product(x, y)
    middle, least = two_sum(z, low)
    total, rest = two_sum(high, middle)
    return total, odd_sum(rest, least)


def _moderate_fma(x: Float64s, y: Float64s, z: Float64s) -> Float64s:
    """x * y + z to nearest where nothing in between leaves the format's range."""
    total, rest = _exact_fma(x, y, z)
    return total + rest


def _scaled_fma(x: Float64s, y: Float64s, z: Float64s, rounding: Rounding) -> Bits64:
    """x * y + z of finite numbers with x * y not zero, for all exponents and roundings."""
    (x, x_exponent), (y, y_exponent), (z, z_exponent) = np.frexp(x), np.frexp(y), np.frexp(z)
    exponent = x_exponent.astype(np.int64) + y_exponent
    ahead = np.where(z == 0, -200, z_exponent - exponent)
    # 200 binary places apart the lesser term only says on which side of the greater the sum lies.
    exponent += np.maximum(ahead - 200, 0)
    total, rest = _exact_fma(x, y, np.ldexp(z, ahead.clip(-200, 200)))
    total, rest = two_sum(total, rest)
    # An exact zero is of two nonzero terms of opposite sign.
    negative = np.where(total == 0, rounding == "RM", np.signbit(total))
    significand, shift = np.frexp(np.abs(total))
    scale = 53 + _GUARD_BITS - shift
    below = np.ldexp(np.where(np.signbit(total), -rest, rest), scale)
    floor = np.floor(below)
    integer = np.ldexp(significand, 53).astype(np.int64) << _GUARD_BITS
    integer = (integer + floor.astype(np.int64)) | (floor != below)
    return pack(negative, integer.view(np.uint64), exponent - scale, DOUBLE, rounding)


def dadd(a: Bits64, b: Bits64, *, rounding: Rounding = "RN") -> Bits64:
    """a + b with one rounding (DADD); parameters and result as of `dfma`."""
    if rounding != "RN":
        return dfma(a, np.ones(1).view(np.uint64), b, rounding=rounding)
    total: Float64s = np.atleast_1d(a.view(np.float64) + b.view(np.float64))
    return _pass_nan(total.view(np.uint64), a, b)


def dmul(a: Bits64, b: Bits64, *, rounding: Rounding = "RN") -> Bits64:
    """a * b with one rounding (DMUL); parameters and result as of `dfma`."""
    if rounding != "RN":
        # A zero of the product's sign adds nothing, to a product that is zero either.
        return dfma(a, b, (a ^ b) & np.uint64(DOUBLE.sign), rounding=rounding)
    product: Float64s = np.atleast_1d(a.view(np.float64) * b.view(np.float64))
    return _pass_nan(product.view(np.uint64), a, b)


def dmin_max(
    a: Bits64,
    b: Bits64,
    minimum: npt.NDArray[np.bool_] | bool,
    *,
    propagate_nan: bool = False,
) -> Bits64:
    """Minimum where ``minimum``, else maximum (DMNMX); -0 is below +0.

    A NaN results where in `fmin_max`, and is b's, made quiet, unless only a is one (the sequence
    around DSETP.MIN that is compiled for an H200 gives the same).
    """
    return _pass_nan(min_max(a, b, minimum, DOUBLE, propagate_nan=propagate_nan), a, b)


def dcompare(a: Bits64, b: Bits64, operation: Comparison) -> Bools:
    """Compare float64 bits (DSETP)."""
    return compare(a.view(np.float64), b.view(np.float64), operation)
