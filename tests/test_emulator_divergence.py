"""Lanes of a warp that go their own ways: where they meet again, and who votes with whom."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from lowgemm import compile_source
from lowgemm.emulator import Emulator

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")
LANES = np.arange(32)
#: Of every case of the branches below some lanes, some of them with subnormal numbers.
_MIXED = np.resize([0.0, -0.5, 0.3, 7.0, -100.0, 1.0, 5e-310, 3.0, 0.9], 32)


def launched(
    body: str, arch: str, out: NDArray[np.generic], *inputs: object
) -> NDArray[np.generic]:
    """What a warp leaves in out, an array of 32 doubles or 128 unsigned integers."""
    kinds = {np.dtype(np.float64): "double", np.dtype(np.uint32): "unsigned"}
    parameters = f"{kinds[out.dtype]}* o, const double* x"
    source = f'extern "C" __global__ void k({parameters}) {{ int t = threadIdx.x; {body} }}'
    with Emulator(arch, instructions=20_000) as device:
        there = device.upload(out)
        build = compile_source(source, arch=arch)
        device.load(build).kernel("k").launch(
            there, device.upload(_MIXED), *inputs, grid=1, block=32
        )
        return there.download()


@pytest.mark.parametrize("arch", ARCHS)
def test_paths_that_use_one_convergence_register(arch: str) -> None:
    """Two paths of a warp that each go off to a slow division do not wait for each other."""
    body = (
        "double a = x[t], r; if (a < 0) r = 1 / (a * a + 1e-310); else if (a < 1) "
        "r = a / 3 + sqrt(a) / 5; else { r = 0; for (int i = 0; i < (int)a; i++) r += 1 / (a + i);"
        "} o[t] = r;"
    )

    def expected(a: float) -> float:
        if a < 0:
            return 1 / (a * a + 1e-310)
        if a < 1:
            return a / 3 + math.sqrt(a) / 5
        return sum(1 / (a + i) for i in range(int(a)))

    found = launched(body, arch, np.zeros(32))
    assert found == pytest.approx([expected(float(a)) for a in _MIXED], rel=1e-15)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_function_of_many_branches(arch: str) -> None:
    """tgamma goes a different way for every kind of argument."""
    a = np.where(_MIXED == 0, 2.5, _MIXED)
    a = np.where(a == -100, -2.5, a)
    body = "double a = x[t]; if (a == 0) a = 2.5; if (a == -100) a = -2.5; o[t] = tgamma(a);"
    with np.errstate(over="ignore"):
        expected = [math.gamma(v) if abs(v) > 1e-300 else math.inf for v in a.tolist()]
    assert launched(body, arch, np.zeros(32)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("arch", ARCHS)
def test_lanes_that_break_out_while_others_call(arch: str) -> None:
    """Who leaves a loop with break is not waited for in it, and meets the others behind it."""
    source = (
        "__device__ __noinline__ unsigned f(unsigned v) { if (v % 3 == 0) { unsigned s = 0; "
        "for (unsigned i = 0; i < v % 7; i++) { if (i * v % 5 == 4) break; s += i; } return s; } "
        "return v * 5 + 1; }"
        'extern "C" __global__ void k(unsigned* o) { unsigned t = threadIdx.x, v = t; '
        "for (int i = 0; i < 9; i++) { if (v & 1) v += f(v); else v = v / 2 + t; "
        "if (v % 11 == 3) break; if (v % 13 == 5) { v += f(t); break; } } __syncwarp(); o[t] = v; }"
    )

    def f(v: int) -> int:
        if v % 3:
            return v * 5 + 1
        s = 0
        for i in range(v % 7):
            if i * v % 5 == 4:
                break
            s += i
        return s

    def expected(t: int) -> int:
        v = t
        for _ in range(9):
            v = v + f(v) if v & 1 else v // 2 + t
            if v % 11 == 3:
                break
            if v % 13 == 5:
                return v + f(t)
        return v

    with Emulator(arch, instructions=50_000) as device:
        out = device.zeros(32, np.uint32)
        device.load(compile_source(source, arch=arch)).kernel("k").launch(out, grid=1, block=32)
        assert out.download().tolist() == [expected(t) for t in range(32)]


@pytest.mark.parametrize("arch", ARCHS)
def test_votes_of_groups_of_lanes(arch: str) -> None:
    """Lanes that come together and name groups of eight vote among the eight."""
    body = (
        "unsigned m = 0xffu << (t / 8 * 8); o[t] = __any_sync(m, t == 9);"
        "o[t] += 2 * __all_sync(m, t < 24); o[t + 32] = __ballot_sync(m, t & 1);"
        "o[t + 64] = __match_any_sync(m, t & 1); o[t + 96] = __reduce_add_sync(m, t);"
    )
    group = LANES // 8
    expected = (
        (group == 1) + 2 * (LANES < 24),
        0xAA << (8 * group),
        np.where(LANES & 1, 0xAA, 0x55) << (8 * group),
        64 * group + 28,
    )
    found = launched(body, arch, np.zeros(128, np.uint32))
    assert found.tolist() == np.concatenate(expected).tolist()


@pytest.mark.parametrize("arch", ARCHS)
def test_votes_of_groups_with_lanes_elsewhere(arch: str) -> None:
    """A group votes without the lanes that have left or are on another path."""
    body = (
        "o[t] = 7; if (t == 31) return; unsigned m = t < 10 ? 0x3ffu : 0x7ffffc00u;"
        "if (t % 10 > 4) o[t] = __ballot_sync(m & (t < 10 ? 0x3e0u : 0x3e0f8000u), t & 1);"
        "o[t + 32] = __ballot_sync(m, t % 3 == 0);"
    )
    odd = sum(1 << t for t in range(32) if t & 1)
    third = sum(1 << t for t in range(32) if t % 3 == 0)
    first = [
        7 if t == 31 or t % 10 < 5 else odd & (0x3E0 if t < 10 else 0x3E0F8000) for t in range(32)
    ]
    second = [0 if t == 31 else third & (0x3FF if t < 10 else 0x7FFFFC00) for t in range(32)]
    found = launched(body, arch, np.zeros(128, np.uint32))
    assert found[:64].tolist() == first + second
