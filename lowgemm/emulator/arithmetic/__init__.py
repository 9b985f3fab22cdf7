"""The GPU's floating-point arithmetic on bit patterns, over many lanes, exact to the last bit.

Float32 is uint32, float64 uint64, fp16 and bfloat16 uint16. Operands are one-dimensional
arrays of equal length, or numpy scalars and arrays of one element, which broadcast; results are
one-dimensional. Negation and absolute values of operands are the caller's. NumPy's floating-point
warnings are not silenced here: run under ``numpy.errstate(all="ignore")``.
"""

from lowgemm.emulator.arithmetic.convert import (
    IntegerRounding,
    bf16_to_f32,
    f2f,
    f2f_bf16,
    f2i,
    frnd,
    i2f,
)
from lowgemm.emulator.arithmetic.double import dadd, dcompare, dfma, dmin_max, dmul
from lowgemm.emulator.arithmetic.formats import Comparison, Rounding
from lowgemm.emulator.arithmetic.half import hadd, hcompare, hfma, hmin_max, hmul
from lowgemm.emulator.arithmetic.mufu import HalfMufuOperation, MufuOperation, mufu, mufu_half
from lowgemm.emulator.arithmetic.single import fadd, fcompare, ffma, fmin_max, fmul

__all__ = [
    "Comparison",
    "HalfMufuOperation",
    "IntegerRounding",
    "MufuOperation",
    "Rounding",
    "bf16_to_f32",
    "dadd",
    "dcompare",
    "dfma",
    "dmin_max",
    "dmul",
    "f2f",
    "f2f_bf16",
    "f2i",
    "fadd",
    "fcompare",
    "ffma",
    "fmin_max",
    "fmul",
    "frnd",
    "hadd",
    "hcompare",
    "hfma",
    "hmin_max",
    "hmul",
    "i2f",
    "mufu",
    "mufu_half",
]
