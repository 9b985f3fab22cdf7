"""Integer intrinsics and PTX operations of ordinary CUDA C++, against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lowgemm import compile_source
from lowgemm.emulator import Emulator

if TYPE_CHECKING:
    from lowgemm.device import Gpu

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")
COUNT = 256
_ALL = 0xFFFFFFFF
#: Words whose bytes, halves and signs are at their ends.
_EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0x80808080, 0x7FFFFFFF, 0x80000000, _ALL)


def _bytes(word: int) -> tuple[int, ...]:
    return tuple(word.to_bytes(4, "little"))


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _packed(values: list[int]) -> int:
    return int.from_bytes(bytes(value & 255 for value in values), "little")


def _pairs(a: int, b: int) -> list[tuple[int, int]]:
    return list(zip(_bytes(a), _bytes(b), strict=True))


def _differences(a: int, b: int) -> list[int]:
    return [abs(x - y) for x, y in _pairs(a, b)]


def _signed_differences(a: int, b: int) -> list[int]:
    return [abs(_signed(x) - _signed(y)) for x, y in _pairs(a, b)]


def _halves(word: int) -> list[int]:
    return [(half ^ 0x8000) - 0x8000 for half in (word & 0xFFFF, word >> 16)]


def _of_halves(choose: Callable[..., int], *words: int) -> int:
    low, high = (choose(*each) & 0xFFFF for each in zip(*map(_halves, words), strict=True))
    return low | high << 16


def _half_sum(x: int, y: int) -> int:
    return ((x + y) & 0xFFFF ^ 0x8000) - 0x8000


def _word(number: int) -> int:
    return (number ^ 0x80000000) - 0x80000000


def _smaller(x: int, y: int) -> int:
    return int(x <= y)


def _mixed(number: int) -> int:
    """What mixed() of the kernel makes of 64 bits."""
    return (number ^ 3 * (number >> 32 & _ALL)) & _ALL


def _wide(high: int, low: int) -> int:
    return high << 32 | low


def _long(high: int, low: int) -> int:
    """The same, signed."""
    return (_wide(high, low) ^ 1 << 63) - (1 << 63)


def _pair(number: int) -> int:
    """What pair() of the kernel makes of 128 bits."""
    return _mixed(number & (1 << 64) - 1) ^ 5 * _mixed(number >> 64 & (1 << 64) - 1)


def _clamped(number: int) -> int:
    return max(-(1 << 31), min(number, (1 << 31) - 1))


def _dot(a: int, b: int, c: int, upper: bool) -> int:
    """dp2a of two signed halves and two unsigned bytes."""
    return c + sum(x * y for x, y in zip(_halves(a), _bytes(b)[2 * upper :], strict=False))


def _picked(a: int, b: int, places: list[int]) -> int:
    """The bytes of a and b at four places."""
    both = (*_bytes(a), *_bytes(b))
    return _packed([both[place & 7] for place in places])


#: CUDA C++ of a, b and c, x (a above b) and y (c above a) of 64 bits, and what it is.
CASES: dict[str, Callable[[int, int, int], int]] = {
    "__vabsdiffu4(a, b)": lambda a, b, c: _packed(_differences(a, b)),
    "__vabsdiffs4(a, b)": lambda a, b, c: _packed(_signed_differences(a, b)),
    "__vsadu4(a, b) + c": lambda a, b, c: sum(_differences(a, b)) + c,
    "__vsads4(a, b)": lambda a, b, c: sum(_signed_differences(a, b)),
    "__vadd4(a, b)": lambda a, b, c: _packed([x + y for x, y in _pairs(a, b)]),
    "__vsub4(a, b)": lambda a, b, c: _packed([x - y for x, y in _pairs(a, b)]),
    "__vneg2(a)": lambda a, b, c: _of_halves(lambda x: -x, a),
    "__vavgu4(a, b)": lambda a, b, c: _packed([(x + y + 1) // 2 for x, y in _pairs(a, b)]),
    "__vcmpgtu4(a, b)": lambda a, b, c: _packed([-(x > y) for x, y in _pairs(a, b)]),
    "mixed(min(x, y))": lambda a, b, c: _mixed(min(_wide(a, b), _wide(c, a))),
    "mixed(max((long long)x, (long long)y))": lambda a, b, c: _mixed(max(_long(a, b), _long(c, a))),
    "mixed(min(x, 5ull))": lambda a, b, c: _mixed(min(_wide(a, b), 5)),
    "mixed(min((long long)x, -1ll))": lambda a, b, c: _mixed(min(_long(a, b), -1)),
    "(x == ~0ull) + 2 * ((long long)x != -1ll) + 4 * (x > 0xfffffffffffffff0ull)": lambda a, b, c: (
        (_wide(a, b) == (1 << 64) - 1)
        + 2 * (_wide(a, b) != (1 << 64) - 1)
        + 4 * (_wide(a, b) > 0xFFFFFFFFFFFFFFF0)
    ),
    'pair("add.cc.u64", "addc.u64", x, y)': lambda a, b, c: _pair(
        (_wide(a, b) + _wide(c, a)) * (1 + (1 << 64))
    ),
    'pair("sub.cc.u64", "subc.u64", x, y)': lambda a, b, c: _pair(
        (_wide(a, b) - _wide(c, a)) * (1 - (1 << 64))
    ),
    'ptx2("add.sat.s32", a, b)': lambda a, b, c: _clamped(_word(a) + _word(b)),
    'ptx2("sub.sat.s32", a, b)': lambda a, b, c: _clamped(_word(a) - _word(b)),
    'ptx3("mad.hi.sat.s32", a, b, c)': lambda a, b, c: _clamped(
        (_word(a) * _word(b) >> 32) + _word(c)
    ),
    "__dp2a_lo(a, b, c)": lambda a, b, c: (
        c + (a & 0xFFFF) * _bytes(b)[0] + (a >> 16) * _bytes(b)[1]
    ),
    'ptx3("dp2a.lo.s32.u32", a, b, c)': lambda a, b, c: _dot(a, b, c, False),
    'ptx3("dp2a.hi.s32.u32", a, b, c)': lambda a, b, c: _dot(a, b, c, True),
    'ptx3("prmt.b32.f4e", a, b, c)': lambda a, b, c: _picked(
        a, b, [(c & 3) + place for place in range(4)]
    ),
    'ptx3("prmt.b32.b4e", a, b, c)': lambda a, b, c: _picked(
        a, b, [(c & 3) - place for place in range(4)]
    ),
    'ptx3("prmt.b32.rc8", a, b, c)': lambda a, b, c: _picked(a, b, [c & 3] * 4),
    'ptx3("prmt.b32.ecl", a, b, c)': lambda a, b, c: _picked(
        a, b, [max(c & 3, place) for place in range(4)]
    ),
    'ptx3("prmt.b32.ecr", a, b, c)': lambda a, b, c: _picked(
        a, b, [min(c & 3, place) for place in range(4)]
    ),
    'ptx3("prmt.b32.rc16", a, b, c)': lambda a, b, c: _picked(
        a, b, [2 * (c & 1), 2 * (c & 1) + 1] * 2
    ),
    "__usad(a, b, c)": lambda a, b, c: abs(a - b) + c,
    "__vmins4(a, b)": lambda a, b, c: _packed(
        [min(_signed(x), _signed(y)) for x, y in _pairs(a, b)]
    ),
    "__vmaxu4(a, b)": lambda a, b, c: _packed([max(x, y) for x, y in _pairs(a, b)]),
    "__vmaxs2(a, b)": lambda a, b, c: _of_halves(max, a, b),
    "__vimax3_s16x2(a, b, c)": lambda a, b, c: _of_halves(max, a, b, c),
    "__vimin_s16x2_relu(a, b)": lambda a, b, c: _of_halves(lambda *x: max(min(x), 0), a, b),
    "__vimax3_s32_relu(a, b, c)": lambda a, b, c: max(_word(a), _word(b), _word(c), 0),
    "__viaddmin_s16x2_relu(a, b, c)": lambda a, b, c: _of_halves(
        lambda x, y, z: max(min(_half_sum(x, y), z), 0), a, b, c
    ),
    "__vibmin_s16x2(a, b, &high, &low) + 2 * low + 4 * high": lambda a, b, c: (
        _of_halves(min, a, b)
        + 2 * _smaller(_halves(a)[0], _halves(b)[0])
        + 4 * _smaller(_halves(a)[1], _halves(b)[1])
    ),
}


_SOURCE = r"""
__device__ unsigned long long wide(unsigned high, unsigned low) {
    return (unsigned long long)high << 32 | low; }
__device__ unsigned mixed(unsigned long long x) { return (unsigned)x ^ 3 * (unsigned)(x >> 32); }
#define ptx2(op, p, q) [&]{ \
    unsigned r; asm(op " %0,%1,%2;" : "=r"(r) : "r"(p), "r"(q)); return r; }()
#define ptx3(op, p, q, s) [&]{ \
    unsigned r; asm(op " %0,%1,%2,%3;" : "=r"(r) : "r"(p), "r"(q), "r"(s)); return r; }()
#define pair(first, second, p, q) [&]{ \
    unsigned long long low, high; \
    asm(first " %0,%2,%3; " second " %1,%3,%2;" : "=&l"(low), "=l"(high) : "l"(p), "l"(q)); \
    return mixed(low) ^ 5 * mixed(high); }()
"""


def _operands() -> list[list[int]]:
    numbers = np.random.default_rng(5).integers(0, 1 << 32, (3, COUNT)).tolist()
    for place, (x, y) in enumerate((x, y) for x in _EDGES for y in _EDGES):
        numbers[0][place], numbers[1][place] = x, y
    return [[int(each) for each in row] for row in numbers]


def _results(device: Emulator | Gpu, arch: str) -> list[list[int]]:
    """A row for each case."""
    lines = "".join(f"out[{at} * n + t] = {text};" for at, text in enumerate(CASES))
    source = _SOURCE + (
        'extern "C" __global__ void k(const unsigned* in, unsigned* out) {'
        "int t = threadIdx.x; bool high, low; const int n = blockDim.x;"
        "unsigned a = in[t], b = in[n + t], c = in[2 * n + t];"
        "unsigned long long x = wide(a, b), y = wide(c, a);"
        f"{lines} }}"
    )
    given = device.empty(3 * COUNT, np.uint32)
    given.upload(np.array(_operands(), np.uint32).reshape(-1))
    out = device.zeros(len(CASES) * COUNT, np.uint32)
    kernel = device.load(compile_source(source, arch=arch)).kernel("k")
    kernel.launch(given, out, grid=1, block=COUNT)
    rows: list[list[int]] = out.download().reshape(len(CASES), COUNT).tolist()
    return rows


def _check(results: list[list[int]]) -> None:
    operands = _operands()
    for (text, expected), row in zip(CASES.items(), results, strict=True):
        wanted = [expected(a, b, c) & _ALL for a, b, c in zip(*operands, strict=True)]
        assert row == wanted, text


@pytest.mark.parametrize("arch", ARCHS)
def test_intrinsics_are_those_of_cuda(arch: str) -> None:
    """Each intrinsic is right for random words and for those at the ends of every format."""
    with Emulator(arch) as device:
        _check(_results(device, arch))


@pytest.mark.parametrize("arch", ARCHS)
def test_lanes_may_name_masks_of_their_own(arch: str) -> None:
    """A reduction of each tile of eight lanes is that tile's, from one instruction of a warp."""
    source = (
        'extern "C" __global__ void k(unsigned* out) { unsigned t = threadIdx.x;'
        "out[t] = __reduce_add_sync(0xffu << (t & 24), t); }"
    )
    with Emulator(arch) as device:
        out = device.zeros(32, np.uint32)
        device.load(compile_source(source, arch=arch)).kernel("k").launch(out, grid=1, block=32)
        tiles = np.arange(32).reshape(4, 8).sum(axis=1)
        assert out.download().tolist() == tiles.repeat(8).tolist()


@pytest.mark.gpu
def test_a_gpu_computes_the_same(gpu: Gpu) -> None:
    """What is expected here is what a GPU gives."""
    _check(_results(gpu, str(gpu.architecture)))
