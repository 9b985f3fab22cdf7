"""Integer intrinsics and PTX operations of ordinary CUDA C++, against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lowgemm import compile_source
from lowgemm.emulator import Emulator

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


#: CUDA C++ of a, b and c, and what it is.
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


def _operands() -> list[list[int]]:
    numbers = np.random.default_rng(5).integers(0, 1 << 32, (3, COUNT)).tolist()
    for place, (x, y) in enumerate((x, y) for x in _EDGES for y in _EDGES):
        numbers[0][place], numbers[1][place] = x, y
    return [[int(each) for each in row] for row in numbers]


@pytest.mark.parametrize("arch", ARCHS)
def test_intrinsics_are_those_of_cuda(arch: str) -> None:
    """Each intrinsic is right for random words and for those at the ends of every format."""
    lines = "".join(f"out[{at} * n + t] = {text};" for at, text in enumerate(CASES))
    source = (
        'extern "C" __global__ void k(const unsigned* in, unsigned* out) {'
        "int t = threadIdx.x; bool high, low; const int n = blockDim.x;"
        f"unsigned a = in[t], b = in[n + t], c = in[2 * n + t]; {lines} }}"
    )
    operands = _operands()
    with Emulator(arch) as device:
        given = device.empty(3 * COUNT, np.uint32)
        given.upload(np.array(operands, np.uint32).reshape(-1))
        out = device.zeros(len(CASES) * COUNT, np.uint32)
        device.load(compile_source(source, arch=arch)).kernel("k").launch(
            given, out, grid=1, block=COUNT
        )
        results = out.download().reshape(len(CASES), COUNT).tolist()
    for (text, expected), row in zip(CASES.items(), results, strict=True):
        wanted = [expected(a, b, c) & _ALL for a, b, c in zip(*operands, strict=True)]
        assert row == wanted, text
