"""Pipeline depth: what the model says of latency, and kernels that differ in their stages alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lab_bench import CLOCK_MHZ, TIME_US, Mirror, by_name, measured, rows

from lowgemm.binary.sass import read_sass
from lowgemm.hardware import Architecture, gpu_record
from lowgemm.studies.lab import compile_variants
from lowgemm.studies.lab.pipeline_depth import PipelineDepth, thread_sums


def test_the_prediction_for_an_h200() -> None:
    """688 cycles and a tile over 18.4 bytes a cycle from DRAM, 243 and over 39.0 from L2."""
    found = {
        name: prediction.value
        for name, prediction in PipelineDepth().predict(gpu_record("h200"), {}).items()
    }
    transfer = 4096 / (4800 / 132 / 1.98)
    latency = 688 + transfer
    computing = 4 * (32 + 3) + 29
    assert found["DRAM, 1 stage"] == pytest.approx(latency + computing)
    for stages in (2, 3, 4):
        assert found[f"DRAM, {stages} stages"] == pytest.approx(latency / (stages - 1))
    for stages in (6, 8):
        assert found[f"DRAM, {stages} stages"] == pytest.approx(transfer)
    assert found["L2, 2 stages"] == pytest.approx(243 + 4096 / (10200 / 132 / 1.98))
    assert found["DRAM, long computation, 2 stages"] == 4 * (256 + 3) + 29


@pytest.mark.parametrize("gpu", ["v100", "a100", "h200", "b200", "3090", "5080"])
def test_more_stages_are_never_predicted_to_be_slower(gpu: str) -> None:
    """Nor is L2 slower than DRAM."""
    found = PipelineDepth().predict(gpu_record(gpu), {})
    for source in ("DRAM", "L2", "DRAM, long computation"):
        times = [p.value for name, p in found.items() if name.rpartition(",")[0] == source]
        assert times == sorted(times, reverse=True)
    for stages in ("1 stage", "2 stages", "3 stages", "4 stages"):
        assert found[f"L2, {stages}"].value <= found[f"DRAM, {stages}"].value


@pytest.mark.parametrize("gpu", ["a100", "h200", "5080"])
def test_a_tile_is_one_copy_one_read_and_the_chain(gpu: str) -> None:
    """The loop is not unrolled, and no multiply-add is folded away."""
    for name, row in rows(PipelineDepth(), gpu).items():
        assert row.code is not None
        ffmas = 256 if "long" in name else 32
        barriers = 2 if name.endswith("1 stage") else 1
        wanted = {"FFMA": ffmas, "LDGSTS.128": 1, "LDS.128": 1, "BAR": barriers}
        assert row.code.mix == wanted, name


@pytest.mark.parametrize("arch", [(8, 0), (9, 0), (10, 0), (12, 0)])
def test_the_next_copy_starts_before_the_computation(arch: tuple[int, int]) -> None:
    """As many copies before the loop as are to be under way, and the loop's before its chain."""
    for name, (variant, build) in compile_variants(PipelineDepth(), Architecture(*arch)).items():
        wanted = build.kernel(variant.kernel).name
        kernel = next(k for k in read_sass(build.cubin) if k.signature.name == wanted)
        order = [i.mnemonic for i in kernel.instructions]
        copies = [at for at, mnemonic in enumerate(order) if mnemonic == "LDGSTS.128"]
        stages = int(variant.kernel.partition("<")[2].partition(",")[0])
        assert len(copies) == stages, name
        assert copies[-1] < order.index("FFMA"), name


Floats = np.ndarray[Any, np.dtype[np.float32]]


def _mirror(ffmas: int, *, skip: int = 0) -> Any:
    """Tile by tile, as the kernel's text says it; without the first ``skip`` tiles."""

    def run(
        source: Floats, out: Floats, tiles: int, window: int, one: float, *, blocks: int
    ) -> None:
        threads = source.reshape(-1, 256, 4)
        out[...] = 0
        for block in range(blocks):
            for tile in range(skip, tiles):
                read = threads[block * window + tile % window].sum(1)
                out[block] += ffmas * one * np.roll(read, -32)

    return run


def test_measuring_accepts_right_results_and_no_others() -> None:
    """A kernel that misses one tile gets no figure."""

    def mirrors(skip: int) -> Mirror:
        kernels = {
            f"lab_pipeline_depth<{stages}, {ffmas}": _mirror(ffmas, skip=skip)
            for stages in (1, 2, 3, 4, 6, 8)
            for ffmas in (32, 256)
        }
        return by_name(kernels)

    # 102400 bytes of L2 for two SMs: windows of 3 tiles, of 512 in all.
    found = measured(PipelineDepth(), mirrors(0), l2_bytes=102400)
    assert all(each.correct for each in found.values())
    assert found["L2, 2 stages"].value == pytest.approx(TIME_US * CLOCK_MHZ / 512)
    found = measured(PipelineDepth(), mirrors(1), l2_bytes=102400)
    assert not any(each.correct or each.value for each in found.values())


def test_thread_sums_count_a_window_as_often_as_it_is_read() -> None:
    """Of 5 tiles in a window of 2 the first is read three times, the second twice."""
    host = np.zeros((2, 5, 256, 4), np.float32)
    host.reshape(-1, 256, 4)[2, 33] = (1, 2, 3, 4)  # block 1, first tile of its window
    host.reshape(-1, 256, 4)[3, 0, 0] = 7  # its second tile
    sums = thread_sums(host, 2)
    assert sums[1, 1] == 3 * 10
    assert sums[1, 224] == 2 * 7
    assert np.count_nonzero(sums) == 2
