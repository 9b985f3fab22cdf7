"""ex13: a GEMM whose tiles TMA copies; no edge of A, B or C is a case of its own."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lowgemm.binary.flow import sass_flow
from lowgemm.binary.sass import read_sass
from lowgemm.compiler import Build, compile_file, compile_source
from lowgemm.emulator import Emulator
from lowgemm.gemm import kernel_directory
from lowgemm.rewrite import find_hazards, rewrite_kernel
from lowgemm.runtime import Device, Module

if TYPE_CHECKING:
    from lowgemm.device import Gpu

SOURCE = kernel_directory() / "ex13_tma.cu"
ARCHS = ("sm_90", "sm_100", "sm_120")
BM, BN, BK, RING_BYTES = 256, 128, 8, 65536
#: M, N, K and blocks: one tile and less, depths that are no multiple of 8, cut tiles, many tiles.
SHAPES = (
    (256, 128, 8, 1),
    (256, 128, 64, 1),
    (1, 1, 1, 1),
    (5, 7, 3, 2),
    (300, 200, 77, 4),
    (256, 128, 72, 4),
    (513, 390, 33, 4),
    (700, 600, 20, 3),
    (30, 1200, 13, 4),
)


@cache
def build(arch: str) -> Build:
    """The kernel, compiled once an architecture."""
    return compile_file(SOURCE, arch=arch)


def check(device: Device, module: Module, m: int, n: int, k: int, blocks: int) -> None:
    """Whole numbers, so that sums are exact; gaps between rows hold what no sum may meet."""
    rng = np.random.default_rng(m + n + k)
    lda, ldb, ldc = -(-k // 4) * 4 + 4, -(-n // 4) * 4 + 4, n + 3
    a, b = np.full((m, lda), np.nan, np.float32), np.full((k, ldb), np.nan, np.float32)
    a[:, :k], b[:, :n] = rng.integers(-8, 9, (m, k)), rng.integers(-8, 9, (k, n))
    map_a = device.tensor_map(device.upload(a), (BM, BK), shape=(m, k), strides_bytes=(4 * lda, 4))
    map_b = device.tensor_map(device.upload(b), (BK, BN), shape=(k, n), strides_bytes=(4 * ldb, 4))
    c = device.upload(np.full((m, ldc), 7, np.float32))
    partial, flags = device.empty((blocks, BM * BN)), device.zeros(blocks, np.uint32)
    module.kernel("ex13_tma").launch(
        m, n, k, map_a, map_b, c, ldc, partial.view(0, partial.size), flags, grid=blocks, block=256,
        shared_bytes=RING_BYTES,
    )  # fmt: skip
    found = c.download()
    assert np.array_equal(found[:, :n], a[:, :k] @ b[:, :n])
    assert (found[:, n:] == 7).all() and not flags.download().any()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s[:3])))
@pytest.mark.parametrize("arch", ["sm_90", pytest.param("sm_120", marks=pytest.mark.slow)])
def test_products_are_exact(arch: str, shape: tuple[int, int, int, int]) -> None:
    """Every element of C, and nothing beside it; flags are zeros again."""
    with Emulator(arch, strict=True) as device:
        check(device, device.load(build(arch)), *shape)


def test_tiles_that_come_late_are_read_again() -> None:
    """Where a wait does not succeed at once the loop is left, by each warp for itself."""
    text = SOURCE.read_text(encoding="utf-8")
    line = "try_wait(base + stage_of(next) + BARRIER, parity_of(next));"
    assert line in text
    text = text.replace(line, f"(position / STAGE + t / 32) % 3 && {line}")
    late = compile_source(text, arch="sm_90", include_dirs=(str(SOURCE.parent),))
    with Emulator("sm_90", strict=True) as device:
        for shape in SHAPES[-3:]:
            check(device, device.load(late), *shape)


@pytest.mark.parametrize("arch", ARCHS)
def test_the_loop_is_one_block_without_hazards(arch: str) -> None:
    """1024 FFMAs a tile, two copies of TMA guarded by a predicate, no branch; nothing spills."""
    (compiled,) = build(arch).kernels
    assert compiled.signature.stack_bytes == 0
    kernel = read_sass(build(arch).cubin)[0]
    assert not find_hazards(kernel)
    flow = sass_flow(kernel)
    found = []
    for loop in flow.loops:
        names = [each.name for each in kernel.instructions[loop.start // 16 : loop.end // 16]]
        if len(loop.blocks) == 1 and names.count("FFMA") == BM * BN * BK // 256:
            found.append(names)
    (names,) = found
    assert names.count("UTMALDG") == 2 and names.count("BAR") == 1
    assert len(names) - names.count("FFMA") - names.count("NOP") < 90


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_the_rewritten_loop_computes_the_same(arch: str) -> None:
    """The rewriter takes the loop, and all shapes are exact with the new one."""
    rewritten = rewrite_kernel(build(arch).cubin)
    assert rewritten.after.cycles < rewritten.before.cycles
    with Emulator(arch, strict=True) as device:
        for shape in SHAPES:
            check(device, device.load(rewritten.cubin), *shape)


@pytest.mark.gpu
@pytest.mark.parametrize("rewritten", [False, True])
def test_products_of_a_gpu_are_exact(gpu: Gpu, rewritten: bool) -> None:
    """The same on a GPU, with as many blocks as it has multiprocessors too."""
    if gpu.capability < (9, 0):
        pytest.skip(f"{gpu.architecture} has no TMA")
    made = build(str(gpu.architecture))
    module = gpu.load(rewrite_kernel(made.cubin).cubin if rewritten else made)
    for shape in (*SHAPES, (2000, 1500, 1001, gpu.multiprocessors)):
        check(gpu, module, *shape)
