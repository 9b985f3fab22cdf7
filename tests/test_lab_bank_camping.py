"""The bank-camping experiment: the walk's arithmetic, and what each rule of addresses says."""

from __future__ import annotations

import numpy as np
import pytest

from lowgemm.hardware import Architecture, gpu_record
from lowgemm.studies.inspection import inspect_build
from lowgemm.studies.lab import compile_variants, find_experiment
from lowgemm.studies.lab.bank_camping import _from_l2, _Walk, _walks, sums_of_threads

EXPERIMENT = find_experiment("bank-camping")


def test_hashing_predicts_no_difference_and_the_plain_rule_a_32nd() -> None:
    """Each pitch runs at the padded speed; the reason names what a plain interleave would do."""
    found = EXPERIMENT.predict(gpu_record("h200"), {})
    assert {prediction.value for prediction in found.values()} == {1.0}
    for name in ("DRAM, pitch 8192", "DRAM, pitch 16384", "L2, pitch 8192"):
        assert "from 1 of them, padded from 32: 0.031 times" in found[name].reason


@pytest.mark.parametrize(("mib", "strips"), [(60, 8), (40, 8), (6, 1), (126, 16)])
def test_the_walk_in_l2_fits_a_quarter_of_it(mib: int, strips: int) -> None:
    """8192 rows of 128 bytes are 1 MiB a strip."""
    walk = _from_l2(mib * 2**20)
    assert walk.strips == strips
    assert walk.bytes // walk.passes == strips * 2**20 <= mib * 2**20 / 4


def test_the_walks_from_dram_read_as_much_whatever_the_pitch() -> None:
    """512 MiB, and the numbers of the kernel's arguments are powers of two."""
    for name, walk in _walks(60 * 2**20).items():
        assert walk.groups & (walk.groups - 1) == 0
        if name.startswith("DRAM"):
            assert walk.bytes == 2**29


@pytest.mark.parametrize("pitch", [128, 128 + 32])
@pytest.mark.parametrize("warps", [3, 40, 200])
def test_the_wanted_sums_are_those_of_the_kernels_loop(pitch: int, warps: int) -> None:
    """The loop over units, rows and lanes, written out, gives each thread's sum."""
    walk = _Walk(128, 64, 4, passes=3)
    flat = np.random.default_rng(0).integers(-8, 9, 64 * 160).astype(np.float32)
    wanted = np.zeros((warps, 32), np.float32)
    log2_groups = walk.groups.bit_length() - 1
    for warp in range(warps):
        for _ in range(walk.passes):
            for unit in range(warp, walk.groups * walk.strips, warps):
                row, strip = (unit & (walk.groups - 1)) * 8, unit >> log2_groups
                for r in range(8):
                    first = (row + r) * pitch + strip * 32
                    wanted[warp] += flat[first : first + 32]
    assert (sums_of_threads(flat, walk, pitch, warps) == wanted).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_eight_rows_are_in_flight(arch: str) -> None:
    """Eight loads and eight additions an iteration; all walks are one kernel."""
    built = compile_variants(EXPERIMENT, Architecture.parse(arch))
    builds = {id(build) for name, (_, build) in built.items() if not name.startswith("GEMM")}
    assert len(builds) == 1
    variant, build = built["DRAM, pitch 8192"]
    (report,) = inspect_build(build)
    assert report.kernel == variant.kernel
    assert report.hot is not None
    assert (report.hot.mix["LDG.32"], report.hot.mix["FADD"]) == (8, 8)
