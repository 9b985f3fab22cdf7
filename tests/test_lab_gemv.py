"""The GEMV experiment: the seed's estimates, Little's law, and loads that wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from lowgemm.binary.sass import disassemble
from lowgemm.device import Gpu
from lowgemm.errors import ArgumentValueError, ArrayLayoutError, ToolNotFoundError
from lowgemm.hardware import Architecture, GpuRecord, gpu_record
from lowgemm.hardware.dram import (
    bytes_per_cycle_per_sm,
    channels_touched,
    gb_per_s_by_flight,
    gb_per_s_of_cycles,
)
from lowgemm.studies.inspection import inspect_build
from lowgemm.studies.lab import compile_variants, find_experiment
from lowgemm.studies.lab.gemv import _SHAPES, _Shape, fma_per_cycle_per_sm
from lowgemm.studies.peers import CublasSgemv

EXPERIMENT = find_experiment("gemv")


def test_the_estimates_are_the_texts() -> None:
    """The A100 as the second text takes it: 13.39 B/clk and SM, 1.674 and 3.347 multiply-adds."""
    a100 = gpu_record("a100")
    assert bytes_per_cycle_per_sm(2039, 108, 1.41) == pytest.approx(13.39, abs=0.005)
    assert gb_per_s_of_cycles(13.39, 108, 1.41) == pytest.approx(2039, abs=0.5)
    assert fma_per_cycle_per_sm(a100, multicast=False) == pytest.approx(1.674, abs=0.0005)
    assert fma_per_cycle_per_sm(a100, multicast=True) == pytest.approx(3.347, abs=0.0005)


def test_bytes_in_flight_make_the_rate() -> None:
    """18.4 B/clk over 688 cycles are 12.6 KB per SM; half of them give half the rate."""
    needed = bytes_per_cycle_per_sm(4800, 132, 1.98) * 688
    assert needed == pytest.approx(12636, abs=1)
    assert gb_per_s_by_flight(132 * needed, 688, 1.98) == pytest.approx(4800)
    assert gb_per_s_by_flight(66 * needed, 688, 1.98) == pytest.approx(2400)
    with pytest.raises(ArgumentValueError, match="latency_cycles"):
        gb_per_s_by_flight(1, 0, 1)


def test_a_plain_interleave_camps_on_powers_of_two() -> None:
    """Rows 32 KiB apart share a channel; 128 bytes more spread them over all."""
    assert channels_touched(4 * 8192, 8192) == 1
    assert channels_touched(4 * (8192 + 32), 8192) == 32
    assert channels_touched(1024, 8192) == 8
    with pytest.raises(ArgumentValueError, match="rows"):
        channels_touched(1024, 0)


def test_the_predictions_for_an_h200() -> None:
    """A warp's 128 bytes are too few for 64 warps; one float4 a lane is enough."""
    found = EXPERIMENT.predict(gpu_record("h200"), {})
    assert found["row per thread"].value == pytest.approx(16384 * 32 / 688 * 1.98)
    assert found["row per warp"].value == pytest.approx(132 * 2048 * 4 / 688 * 1.98)
    assert found["row per warp, float4"].value == pytest.approx(0.92 * 4800)
    assert "2.30 without multicast" in found["row per block"].reason
    assert "4.59 with it" in found["row per block"].reason


def test_an_unpublished_latency_is_no_obstacle() -> None:
    """The RTX 5080's is not in the table: the nearest GPU's stands in, and is named."""
    record: GpuRecord = gpu_record("rtx 5080")
    assert record.dram_latency_cycles is None
    found = EXPERIMENT.predict(record, {})
    assert found["row per block"].value == pytest.approx(0.92 * 960)
    assert "936 cycles (that of the RTX 5090)" in found["row per warp"].reason


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_every_load_is_issued_before_any_is_used(arch: str) -> None:
    """The bytes in flight are what the source says: no multiply-add stands between the loads."""
    variants = compile_variants(EXPERIMENT, Architecture.parse(arch))
    build = next(build for _, build in variants.values())
    code = {kernel.name: kernel for kernel in disassemble(build.cubin)}
    reports = {report.kernel: report for report in inspect_build(build)}
    for name, shape in _SHAPES.items():
        compiled = build.kernel(shape.kernel)
        hot = reports[compiled.display_name].hot
        assert hot is not None
        loop = [
            i.mnemonic
            for i in code[compiled.name].instructions
            if hot.start <= i.address <= hot.end
        ]
        loads = [place for place, mnemonic in enumerate(loop) if mnemonic.startswith("LDG")]
        uses = [place for place, mnemonic in enumerate(loop) if mnemonic in ("FFMA", "FADD")]
        assert len(loads) == shape.depth * (shape.rows + shape.uses_x), name
        assert len(uses) == shape.depth * shape.rows * shape.width, name
        assert max(loads) < min(uses), name
        assert hot.mix.get(f"LDG.{32 * shape.width}") == len(loads), name


def touched(shape: _Shape, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Row and column of every element that the kernel's threads read, by its own arithmetic."""
    teams, stride = shape.threads // shape.team, shape.team * shape.width
    blocks = rows * shape.team // (shape.rows * shape.threads)
    for block in range(blocks):
        for thread in range(shape.threads):
            row = (block * teams + thread // shape.team) * shape.rows
            first = thread % shape.team * shape.width
            for k in range(0, columns, stride * shape.depth):
                for i in range(shape.depth):
                    for r in range(shape.rows):
                        for j in range(shape.width):
                            yield row + r, first + k + i * stride + j


@pytest.mark.parametrize("name", _SHAPES)
def test_every_element_is_read_once(name: str) -> None:
    """Two blocks' rows of one step along k: teams, rows, depth and width tile the matrix."""
    shape = _SHAPES[name]
    rows = 2 * shape.rows * shape.threads // shape.team
    columns = shape.team * shape.width * shape.depth
    counts = np.zeros((rows, columns), int)
    for at in touched(shape, rows, columns):
        counts[at] += 1
    assert (counts == 1).all()
    assert 16384 % columns == 0
    assert shape.blocks * shape.rows * shape.threads // shape.team == 16384


@pytest.mark.gpu
def test_cublas_computes_a_row_major_gemv(gpu: Gpu) -> None:
    """A matrix that is not square shows rows and columns in their places."""
    stream = gpu.stream()
    try:
        cublas = CublasSgemv(gpu, stream)
    except ToolNotFoundError as error:
        pytest.skip(error.what)
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (96, 40)).astype(np.float32)
    x = rng.integers(-3, 4, 40).astype(np.float32)
    y = gpu.empty(96)
    y.fill(float("nan"))
    device_a, device_x = gpu.upload(a), gpu.upload(x)
    cublas.prepare(device_a, device_x, y)()
    assert (y.download(stream=stream) == a @ x).all()
    with pytest.raises(ArrayLayoutError, match="m x n"):
        cublas.prepare(device_a, y, device_x)
    cublas.close()
