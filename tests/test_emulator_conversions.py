"""Conversions and comparisons of floats, halves and bfloat16s, against exact numbers."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lowgemm import compile_source
from lowgemm.emulator import Emulator

if TYPE_CHECKING:
    from lowgemm.device import Gpu

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")
COUNT = 512
_ALL = 0xFFFFFFFF
#: Halves and bfloat16s at the ends of the formats, and around ones and halves.
_EDGES = [0, 1, 0x3FF, 0x400, 0x3C00, 0x3E00, 0x3F80, 0x3FC0, 0x4020, 0x7BFF, 0x7C00, 0x7E00]
_EDGES += [0x7F, 0x80, 0x7F7F, 0x7F80, 0x7FC0, 0x7FFF, 0x4316, 0x437F, 0x4380]
_ROUND: dict[str, Callable[[Fraction], int]] = {
    "rn": round, "rd": math.floor, "ru": math.ceil, "rz": math.trunc
}  # fmt: skip
#: Bits of the significand, and the exponent of the smallest normal number.
_HALF, _BFLOAT16 = (11, -14), (8, -126)
_NAN = 0x7FFF


def _narrow(number: float, form: tuple[int, int], rounding: str = "rn") -> int:
    """The bits of a format of 16 bits, rounded once."""
    precision, least = form
    infinity = 0x8000 - (1 << precision - 1)
    if number != number:
        return _NAN
    sign = 0x8000 if math.copysign(1, number) < 0 else 0
    if abs(number) == math.inf:
        return sign | infinity
    exact = Fraction(number)
    exponent = max(_exponent(abs(exact)), least)
    units = abs(_ROUND[rounding](exact / Fraction(2) ** (exponent - precision + 1)))
    bits = ((exponent - least) << precision - 1) + units
    if bits >= infinity:
        outward = rounding == "rn" or rounding == ("rd" if sign else "ru")
        bits = infinity if outward else infinity - 1
    return sign | bits


def _exponent(number: Fraction) -> int:
    """The exponent of the greatest power of two that is not above it."""
    if not number:
        return -10000
    guess = number.numerator.bit_length() - number.denominator.bit_length()
    return guess if Fraction(2) ** guess <= number else guess - 1


def _float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _double(high: int, low: int) -> float:
    return float(struct.unpack("<d", struct.pack("<II", low, high))[0])


def _half(bits: int) -> float:
    return float(struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0])


def _bfloat16(bits: int) -> float:
    return _float((bits & 0xFFFF) << 16)


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> bits - 1 else number


def _clamped(number: float, least: int, most: int) -> int:
    """A float as an integer toward zero; NaN is 0."""
    if number != number:
        return 0
    return int(min(max(number, least), most)) if abs(number) != math.inf else (
        most if number > 0 else least
    )  # fmt: skip


def _both(function: Callable[..., int], *words: int) -> int:
    """A function of two halves a word."""
    return function(*words) | function(*(word >> 16 for word in words)) << 16


def _integral(number: float, form: tuple[int, int], function: Callable[[float], float]) -> int:
    if not math.isfinite(number):
        return _narrow(number, form)
    return _narrow(math.copysign(function(number), number), form)


def _of_float(rounding: str) -> Callable[[int, int], int]:
    return lambda a, b: _narrow(_float(a), _BFLOAT16, rounding)


def _of_int(rounding: str) -> Callable[[int, int], int]:
    return lambda a, b: _narrow(_signed(a, 32), _BFLOAT16, rounding)


def _relu(bits: int) -> int:
    return bits if bits < 0x8000 else 0


def _greater(a: int, b: int) -> int:
    return 0x3C00 if _half(a) > _half(b) else 0


def _at_most(a: int, b: int) -> int:
    return 0x3F80 if _bfloat16(a) <= _bfloat16(b) else 0


def _same(a: int, b: int) -> int:
    return 0xFFFF if _half(a) == _half(b) else 0


#: CUDA C++ of words a and b, and what it is: f is a as a float, d is a and b as a double, h and g
#: are their low halves, H and G pairs of halves, k, P and Q the same of bfloat16s.
CASES: dict[str, Callable[[int, int], int]] = {
    "__hisnan(h) + 2 * __hge(h, g) + 4 * __hltu(h, g)": lambda a, b: (
        (_half(a) != _half(a)) + 2 * (_half(a) >= _half(b)) + 4 * (not _half(a) >= _half(b))
    ),
    "__hisnan(k) + 2 * __hgt(k, P.y)": lambda a, b: (
        (_bfloat16(a) != _bfloat16(a)) + 2 * (_bfloat16(a) > _bfloat16(a >> 16))
    ),
    "word(__hgt2(H, G))": lambda a, b: _both(_greater, a, b),
    "word(__hle2(P, Q))": lambda a, b: _both(_at_most, a, b),
    "__heq2_mask(H, G)": lambda a, b: _both(_same, a, b),
    "__hbeq2(H, H)": lambda a, b: _half(a) == _half(a) and _half(a >> 16) == _half(a >> 16),
    'of2("set.lt.f32.f32", f, e)': lambda a, b: 0x3F800000 if _float(a) < _float(b) else 0,
    **{f"word(__float2bfloat16_{to}(f))": _of_float(to) for to in _ROUND},
    **{f"word(__int2bfloat16_{to}((int)a))": _of_int(to) for to in _ROUND},
    "d == d ? word(__double2bfloat16(d)) : 0": lambda a, b: (
        _narrow(d, _BFLOAT16) if (d := _double(a, b)) == d else 0
    ),
    "word(__uint2bfloat16_rn(a))": lambda a, b: _narrow(a, _BFLOAT16),
    "word(__ll2bfloat16_rn(x))": lambda a, b: _narrow(_signed(a << 32 | b, 64), _BFLOAT16),
    "word(__ull2bfloat16_rn(x))": lambda a, b: _narrow(a << 32 | b, _BFLOAT16),
    "word(__short2bfloat16_rn((short)a))": lambda a, b: _narrow(_signed(a, 16), _BFLOAT16),
    "__bfloat162int_rz(k)": lambda a, b: _clamped(_bfloat16(a), -(2**31), 2**31 - 1),
    "__bfloat162uint_rz(k)": lambda a, b: _clamped(_bfloat16(a), 0, 2**32 - 1),
    "__bfloat162short_rz(k)": lambda a, b: _clamped(_bfloat16(a), -(2**15), 2**15 - 1),
    "k == k ? __bfloat162ll_rz(k) >> 16 : 0": lambda a, b: (
        _clamped(_bfloat16(a), -(2**63), 2**63 - 1) >> 16
    ),
    "word(h2floor(H))": lambda a, b: _both(lambda x: _integral(_half(x), _HALF, math.floor), a),
    "word(h2rint(H))": lambda a, b: _both(lambda x: _integral(_half(x), _HALF, round), a),
    "word(h2trunc(P))": lambda a, b: _both(
        lambda x: _integral(_bfloat16(x), _BFLOAT16, math.trunc), a
    ),
    'of2("cvt.rz.f16x2.f32", f, e)': lambda a, b: (
        _narrow(_float(b), _HALF, "rz") | _narrow(_float(a), _HALF, "rz") << 16
    ),
    'of2("cvt.rz.relu.bf16x2.f32", f, e)': lambda a, b: (
        _relu(_narrow(_float(b), _BFLOAT16, "rz"))
        | _relu(_narrow(_float(a), _BFLOAT16, "rz")) << 16
    ),
    'of1("cvt.rn.relu.f16.f32", f)': lambda a, b: _relu(_narrow(_float(a), _HALF)),
    'of1("cvt.rn.relu.bf16.f32", f)': lambda a, b: _relu(_narrow(_float(a), _BFLOAT16)),
    'to_word("cvt.rzi.sat.u8.f32", f)': lambda a, b: _clamped(_float(a), 0, 255),
}

_SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <class T> __device__ unsigned word(T value) {
    if constexpr (sizeof(T) == 2) return *(unsigned short*)&value; else return *(unsigned*)&value;
}
#define of2(op, x, y) [&]{ \
    unsigned r; asm(op " %0,%1,%2;" : "=r"(r) : "f"(x), "f"(y)); return r; }()
#define of1(op, x) [&]{ unsigned short r; asm(op " %0,%1;" : "=h"(r) : "f"(x)); return r; }()
#define to_word(op, x) [&]{ unsigned r; asm(op " %0,%1;" : "=r"(r) : "f"(x)); return r; }()
#define of_half(op, x) [&]{ \
    unsigned short r; asm(op " %0,%1;" : "=h"(r) : "h"((unsigned short)word(x))); return r; }()
#define of_double(type, kind, op, x) \
    [&]{ type r; asm(op " %0,%1;" : kind(r) : "d"(x)); return r; }()
extern "C" __global__ void k(const unsigned* in, unsigned* out) {
    const int t = threadIdx.x, n = blockDim.x;
    unsigned a = in[t], b = in[n + t];
    long long x = (unsigned long long)a << 32 | b;
    float f = __uint_as_float(a), e = __uint_as_float(b);
    double d = __longlong_as_double(x);
    __half2 H = *(__half2*)&a, G = *(__half2*)&b;
    __nv_bfloat162 P = *(__nv_bfloat162*)&a, Q = *(__nv_bfloat162*)&b;
    __half h = H.x, g = G.x;
    __nv_bfloat16 k = P.x;
"""


def _operands() -> list[list[int]]:
    """Pairs of edges, words of any bits, and floats near integers."""
    rng = np.random.default_rng(7)
    words = rng.integers(0, 1 << 32, (2, COUNT)).tolist()
    edges = [*_EDGES, *(edge | 0x8000 for edge in _EDGES)]
    for place in range(COUNT // 2):
        for row in words:
            low, high = rng.choice(edges, 2).tolist()
            row[place] = low | high << 16
    near = rng.integers(-300, 300, COUNT // 8) + rng.choice([-0.5, 0, 0.5], COUNT // 8)
    words[0][-len(near) :] = near.astype(np.float32).view(np.uint32).tolist()
    return [[int(each) for each in row] for row in words]


def _run(
    device: Emulator | Gpu, arch: str, texts: list[str], operands: list[list[int]]
) -> list[list[int]]:
    """A row for each text."""
    lines = "".join(f"out[{at} * n + t] = {text};\n" for at, text in enumerate(texts))
    given = device.empty(2 * COUNT, np.uint32)
    given.upload(np.array(operands, np.uint32).reshape(-1))
    out = device.zeros(len(texts) * COUNT, np.uint32)
    kernel = device.load(compile_source(_SOURCE + lines + "}", arch=arch)).kernel("k")
    kernel.launch(given, out, grid=1, block=COUNT)
    rows: list[list[int]] = out.download().reshape(len(texts), COUNT).tolist()
    return rows


def _check(
    device: Emulator | Gpu, cases: dict[str, Callable[[int, int], int]], operands: list[list[int]]
) -> None:
    results = _run(device, str(device.architecture), list(cases), operands)
    for (text, expected), row in zip(cases.items(), results, strict=True):
        for a, b, got in zip(*operands, row, strict=True):
            assert got == int(expected(a, b)) & _ALL, f"{text} of {a:#010x} and {b:#010x}"


@pytest.mark.parametrize("arch", ARCHS)
def test_conversions_are_those_of_cuda(arch: str) -> None:
    """Conversions round once, and comparisons know the format and its NaNs."""
    with Emulator(arch) as device:
        _check(device, CASES, _operands())


#: Functions of halves, the first architecture with them, how they read, and how near they are.
_APPROXIMATE: list[tuple[str, int, Callable[[int], float], Callable[[float], float], float]] = [
    ("word(h2tanh_approx(H))", 80, _half, math.tanh, 2e-3),
    ('of_half("ex2.approx.f16", h)', 80, _half, lambda x: float(2**x), 2e-3),
    ("word(h2tanh_approx(P))", 80, _bfloat16, math.tanh, 1e-2),
    ('of_half("ex2.approx.ftz.bf16", k)', 90, _bfloat16, lambda x: float(2**x), 1e-2),
]


@pytest.mark.parametrize("arch", ARCHS)
def test_special_functions_of_halves_are_near(arch: str) -> None:
    """EX2 and TANH of halves and bfloat16s differ from the exact ones in the last bits only."""
    numbers = np.linspace(-4, 4, COUNT).astype(np.float32)
    halves = numbers.astype(np.float16).view(np.uint16).tolist()
    bfloats = (numbers.view(np.uint32) >> 16).tolist()
    with Emulator(arch) as device:
        for text, first, read, exact, near in _APPROXIMATE:
            if int(arch[3:]) < first:
                continue
            words = halves if read is _half else bfloats
            (row,) = _run(device, arch, [text], [words, words])
            wanted = [exact(read(word)) for word in words]
            assert [read(got) for got in row] == pytest.approx(wanted, rel=near, abs=1e-6), text


@pytest.mark.gpu
def test_a_gpu_converts_the_same(gpu: Gpu) -> None:
    """What is expected here is what a GPU gives."""
    _check(gpu, CASES, _operands())


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ('__float_as_uint(of_double(float, "=f", "cvt.rn.ftz.f32.f64", d))', 0x380FFFFFEFFFFFFF),
        ('of_double(unsigned, "=r", "cvt.rzi.sat.u8.f64", d)', 0x7FF8000000000000),
        ('of_double(unsigned, "=r", "cvt.rzi.sat.s8.f64", d)', 0x7FF8000000000000),
        ("word(__double2bfloat16(d))", 0xFFFC000000000000),
    ],
)
def test_a_gpu_decides_what_ptx_leaves_open(gpu: Gpu, text: str, bits: int) -> None:
    """Where PTX's text and the emulator may differ, the emulator does as the GPU."""
    arch = str(gpu.architecture)
    operands = [[bits >> 32] * COUNT, [bits & _ALL] * COUNT]
    with Emulator(arch) as device:
        assert _run(gpu, arch, [text], operands) == _run(device, arch, [text], operands)
