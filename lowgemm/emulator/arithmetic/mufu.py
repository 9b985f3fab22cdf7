"""MUFU, the special functions: approximate on the GPU, rounded to nearest here.

The GPU's results differ from these in the last bits; its special cases are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from lowgemm.emulator.arithmetic.formats import (
    BFLOAT16,
    HALF,
    SINGLE,
    Bits16,
    Bits32,
    Float64s,
    canonical,
    flush,
)
from lowgemm.emulator.arithmetic.half import round_nearest, widen

__all__ = ["HalfMufuOperation", "MufuOperation", "mufu", "mufu_half"]

HalfMufuOperation = Literal["EX2", "TANH"]

MufuOperation = Literal[
    "COS", "SIN", "EX2", "LG2", "RCP", "RSQ", "SQRT", "TANH", "RCP64H", "RSQ64H"
]


def _turns(function: Callable[[Float64s], Float64s], x: Float64s) -> Float64s:
    """A function of an angle in revolutions, of which the GPU keeps 25 fractional bits.

    That it drops what is below was measured on an H200: an angle below 2**-25 has the sine 0.
    """
    return function(np.trunc(np.fmod(x, 1.0) * 2**25) * (2 * np.pi / 2**25))


_FUNCTIONS: dict[str, Callable[[Float64s], Float64s]] = {
    "COS": lambda x: _turns(np.cos, x),
    "SIN": lambda x: _turns(np.sin, x),
    "EX2": np.exp2,
    "LG2": np.log2,
    "RCP": np.reciprocal,
    # The root keeps the sign of -0, so that its reciprocal is -infinity as PTX says.
    "RSQ": lambda x: np.reciprocal(np.sqrt(x)),
    "SQRT": np.sqrt,
    "TANH": np.tanh,
}


def mufu(operation: MufuOperation, bits: Bits32) -> Bits32:
    """A special function of float32 bits (MUFU); approximate: hardware differs in last bits.

    Parameters
    ----------
    operation
        COS and SIN (of an angle in revolutions: for ``__sinf`` the compiler multiplies by
        1 / (2 pi) first, with FMUL.RZ), EX2, LG2, RCP, RSQ, SQRT, TANH; RCP64H and RSQ64H take the
        high word of a double and give the high word of an approximation for it, the low words being
        zero.
    bits
        Operands. Denormals count as zeros of their sign and denormal results become zeros, as with
        PTX's ``.ftz`` (the compiler scales around it), except for TANH.

    Returns
    -------
    Bits32
        The results; a NaN is 0x7fffffff, also as a high word (measured on an H200).
    """
    bits = np.atleast_1d(bits)
    if operation in ("RCP64H", "RSQ64H"):
        return _double_high(_FUNCTIONS[operation.removesuffix("64H")], bits)
    keep_denormals = operation == "TANH"
    operand = bits if keep_denormals else flush(bits, SINGLE)
    values = _FUNCTIONS[operation](operand.view(np.float32).astype(np.float64))
    result = canonical(values.astype(np.float32).view(np.uint32), SINGLE)
    return result if keep_denormals else flush(result, SINGLE)


def mufu_half(operation: HalfMufuOperation, bits: Bits16, *, bf16: bool) -> Bits16:
    """EX2 or TANH of fp16 or bfloat16 bits (MUFU.F16, MUFU.BF16); approximate as `mufu` is.

    Denormals stay, but for those of EX2 in bfloat16, which PTX has with ``.ftz`` alone. A NaN is
    0x7fff.
    """
    form = BFLOAT16 if bf16 else HALF
    flushes = bf16 and operation == "EX2"
    values = widen(flush(bits, form) if flushes else bits, bf16=bf16).astype(np.float64)
    result = round_nearest(_FUNCTIONS[operation](values), form)
    return flush(result, form) if flushes else result


def _double_high(function: Callable[[Float64s], Float64s], high: Bits32) -> Bits32:
    """The function of doubles given, and rounded to nearest, by their high words."""
    words = np.where((high & np.uint32(0x7FF00000)) == 0, high & np.uint32(0x80000000), high)
    values = function((words.astype(np.uint64) << np.uint64(32)).view(np.float64))
    bits = (values.view(np.uint64) + np.uint64(1 << 31)) >> np.uint64(32)
    result = np.where(np.isnan(values), np.uint32(SINGLE.nan), bits.astype(np.uint32))
    return np.where((result & np.uint32(0x7FF00000)) == 0, result & np.uint32(0x80000000), result)
