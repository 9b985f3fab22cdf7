"""Every rung on the emulator: right on all architectures, no findings; its barriers all needed."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from lowgemm.binary.cubin import read_cubin
from lowgemm.binary.patch import with_code
from lowgemm.binary.sass import disassemble, read_sass
from lowgemm.compiler import compile_source
from lowgemm.emulator import Emulator, EmulatorKernel, Finding
from lowgemm.gemm import (
    RUNG_NAMES,
    GemmProblem,
    Reference,
    Rung,
    RungKernel,
    compile_rung,
    random_operands,
    rung,
)
from lowgemm.studies.ladder import upload_operands
from lowgemm.studies.verification import verify

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
#: Tiles of 256 x 128 take long: the rule by itself runs on one architecture, the rest with --slow.
LARGE = ("ex11", "ex12", "ex12_rewritten", "ex13", "ex13_rewritten")
#: One element, ragged and regular sizes, several k-tiles of each rung, long leading dimensions.
SHAPES = (
    GemmProblem(1, 1, 1),
    GemmProblem(35, 79, 19),
    GemmProblem(128, 128, 64),
    GemmProblem(132, 132, 68),
    GemmProblem(100, 72, 56, lda=57, ldb=75, ldc=73),
)

#: For these: one element, ragged and unaligned, and 2 x 2 tiles with a part of a k-tile.
LARGE_SHAPES = (SHAPES[0], SHAPES[1], GemmProblem(260, 132, 36))


def _is_slow(name: str, arch: str) -> bool:
    """sm_100 differs from sm_120 in FFMA2 alone, which a test of its own is about."""
    return arch == "sm_100" or (name in LARGE and arch != "sm_90")


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        pytest.param(name, arch, marks=pytest.mark.slow if _is_slow(name, arch) else ())
        for name in RUNG_NAMES
        for arch in ARCHS
    ],
)
def test_rungs_are_right_and_clean(name: str, arch: str) -> None:
    """A rung's result is right by the GPU's own check, and nothing wrong is found on the way."""
    shapes = LARGE_SHAPES if name in LARGE else SHAPES
    with Emulator(arch) as device:
        for verdict in verify(device, [rung(name, arch)], shapes):
            assert verdict.result.passed, f"{verdict.problem}, {verdict.data}: {verdict.result}"


def test_two_multiply_adds_in_one_instruction() -> None:
    """ex12 on sm_100 is right by numpy's sums, does half its multiply-adds each, and counts all."""
    chosen, problem = rung("ex12", "sm_100"), GemmProblem(40, 136, 20)
    build = compile_rung(chosen, "sm_100")
    with Emulator("sm_100") as device:
        kernel = RungKernel(device, chosen, build)
        operands = random_operands(problem)
        a, b = device.upload(operands.a.ravel()), device.upload(operands.b.ravel())
        c = device.zeros(problem.c_elements)
        kernel.prepare(problem, a, b, c).launch()
        check = Reference(problem, operands).check(c.download())
        assert check.passed, check.reason
        loaded = kernel.kernel(aligned=True)
        assert isinstance(loaded, EmulatorKernel)
        packed, threads = loaded.counts.of_opcode("FFMA2", threads=True), 2 * chosen.threads
        assert loaded.counts.of_opcode("FFMA") == 0
        assert packed == threads * chosen.tm * chosen.tn // 2 * problem.k
        assert loaded.counts.totals().ffma_threads == 2 * packed


PACKED = """
extern "C" __global__ void packed(const float* in, float* out) {
    asm("{.reg .f32 a, b, c, d, e, f, x, y, n; .reg .b64 p, q, r, s, z;"
        "ld.global.v2.f32 {a, b}, [%0]; ld.global.v2.f32 {c, d}, [%0+8];"
        "ld.global.v2.f32 {e, f}, [%0+16]; neg.f32 n, a; neg.f32 y, b;"
        "mov.b64 p, {a, b}; mov.b64 q, {c, d}; mov.b64 r, {e, f};"
        "fma.rn.f32x2 s, p, q, r; st.global.b64 [%1], s;"
        "mov.b64 z, {b, a}; fma.rn.f32x2 s, z, q, r; st.global.b64 [%1+8], s;"
        "mov.b64 z, {a, a}; fma.rn.f32x2 s, z, q, r; st.global.b64 [%1+16], s;"
        "mov.b64 z, {c, c}; fma.rn.f32x2 s, p, z, r; st.global.b64 [%1+24], s;"
        "mov.b64 z, {f, f}; fma.rn.f32x2 s, p, q, z; st.global.b64 [%1+32], s;"
        "mov.b64 z, {n, y}; fma.rn.f32x2 s, z, q, r; st.global.b64 [%1+40], s;"
        "fma.rz.f32x2 s, p, q, r; st.global.b64 [%1+48], s;}"
        :: "l"(in), "l"(out) : "memory");
}
"""


def test_packed_operands_go_where_their_modifiers_say() -> None:
    """FFMA2 in order, swapped, one register for both halves, negated, rounded to zero."""
    build = compile_source(PACKED, arch="sm_100")
    (kernel,) = disassemble(build.cubin, live_registers=False)
    texts = " ".join(each.text for each in kernel.instructions if each.name == "FFMA2")
    assert all(each in texts for each in (".LO_HI", ".F32,", ".F32x2.HI_LO", "-R", ".RZ"))
    numbers = np.array([1.1, -2.3, 0.7, 3.9, -5.3, 0.1], np.float32)
    a, b, c, d, e, f = (float(each) for each in numbers)
    sums = [
        *(a * c + e, b * d + f, b * c + e, a * d + f, a * c + e, a * d + f, a * c + e, b * c + f),
        *(a * c + f, b * d + f, -a * c + e, -b * d + f, a * c + e, b * d + f),
    ]
    expected = np.array(sums, np.float64)  # exact: products of 48 bits, sums within 53
    nearest = expected.astype(np.float32)
    toward_zero = np.where(np.abs(nearest) > np.abs(expected), np.nextafter(nearest, 0), nearest)
    with Emulator("sm_100") as device:
        out = device.zeros(14)
        device.load(build).kernel("packed").launch(device.upload(numbers), out, grid=1, block=1)
        result = out.download()
    assert (result[:12] == nearest[:12]).all()
    assert (result[12:] == toward_zero[12:]).all()


#: Barriers that no access needs, by rung and architecture: the one behind the last tile of a
#: remainder loop, after which nothing is written to shared memory.
REDUNDANT = {("ex4_16", "sm_120"): 1}


def _problems(chosen: Rung, *, aligned: bool) -> tuple[GemmProblem, ...]:
    """Two tiles each way; numbers of k-tiles that reach every remainder of an unrolled loop."""
    m, n = chosen.bm + 4, chosen.bn + 4
    depths = [chosen.bk * tiles for tiles in ((4, 5, 6, 7) if chosen.bk <= 16 else (4, 5))]
    if aligned:
        return tuple(GemmProblem(m, n, k) for k in depths)
    return tuple(GemmProblem(m + 1, n + 1, k - 1, lda=401, ldb=151, ldc=153) for k in depths)


def _without(code: bytes, address: int) -> bytes:
    """The code with a NOP in place of an instruction; the control word stays."""
    changed = bytearray(code)
    _, high = struct.unpack_from("<QQ", code, address)
    struct.pack_into("<QQ", changed, address, 0x7918, high & ~((1 << 41) - 1))
    return bytes(changed)


@dataclass(frozen=True)
class _Run:
    findings: tuple[Finding, ...]
    result: NDArray[np.float32]
    executed: NDArray[np.int64]


def _run(cubin: bytes, kernel: str, chosen: Rung, arch: str, problem: GemmProblem) -> _Run:
    """What an emulated launch finds, its result, and how often each instruction was executed."""
    with Emulator(arch, findings="collect", instructions=2_000_000) as device:
        a, b = device.empty(problem.a_elements), device.empty(problem.b_elements)
        c = device.zeros(problem.c_elements)
        upload_operands(problem, random_operands(problem), a, b)
        loaded = device.load(cubin).kernel(kernel)
        launch = chosen.launch(device, problem, a, b, c)
        loaded.launch(*launch.arguments, **launch.geometry)
        return _Run(tuple(device.findings), c.download(), loaded.counts.warps)


#: One barrier a tile, and asynchronous copies: the others take as long and show the same.
QUICK = ("ex4_32", "ex9", "ex10")


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        pytest.param(
            name, arch, marks=() if arch == "sm_90" and name in QUICK else pytest.mark.slow
        )
        for name in RUNG_NAMES
        for arch in ARCHS
    ],
)
def test_every_barrier_and_wait_is_missed(name: str, arch: str) -> None:
    """Without any one of its barriers and waits a rung is found to be wrong, or it is redundant."""
    chosen = rung(name, arch)
    build = compile_rung(chosen, arch)
    for aligned in (True, False)[: 2 if chosen.has_float4 else 1]:
        kernel = build.kernel(chosen.instance(aligned=aligned)).signature.name
        code = read_cubin(build.cubin).code[kernel].content
        (sass,) = (each for each in read_sass(build.cubin) if each.name == kernel)
        missing = {each.address for each in sass.instructions if each.name in ("BAR", "DEPBAR")}
        redundant: set[int] = set()
        for problem in _problems(chosen, aligned=aligned):
            if not missing:
                break
            whole = _run(build.cubin, kernel, chosen, arch, problem)
            assert not whole.findings
            for address in sorted(missing):
                if not whole.executed[address >> 4]:
                    continue
                changed = with_code(build.cubin, kernel, _without(code, address))
                without = _run(changed, kernel, chosen, arch, problem)
                if without.findings:
                    missing.remove(address)
                else:
                    assert (without.result == whole.result).all()
                    redundant.add(address)
        assert missing == redundant & missing, "never executed"
        assert len(missing) == REDUNDANT.get((name, arch), 0), [hex(each) for each in missing]
