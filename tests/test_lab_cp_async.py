"""cp.async against load and store: three ways that differ in how a tile travels, and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lab_bench import CLOCK_MHZ, TIME_US, by_name, measured, rows

from lowgemm.binary.sass import read_sass
from lowgemm.hardware import Architecture, gpu_record
from lowgemm.studies.lab import compile_variants
from lowgemm.studies.lab.cp_async import CpAsync, thread_sums

WAYS = ("load and store", "cp.async 16 B", "cp.async 4 B")
COPIES = ", copies alone"
GPUS = ("a100", "h200", "5080")


def test_the_prediction_for_an_h200() -> None:
    """From L2 a tile takes its latency and transfer for two blocks, whichever way it goes."""
    found = CpAsync().predict(gpu_record("h200"), {})
    transfer = 8192 / (10200 / 132 / 1.98)
    for way in WAYS:
        assert found[way].value == 64 * 8 * 8 / 4  # one cycle an FFMA where no code is known
        assert found[way + COPIES].value == pytest.approx((243 + transfer) / 2)
        # Two LDS.128 of A that merge to 2 wavefronts, two of B with 4, 8 steps, 8 warps; 64 stored.
        assert "832 wavefronts" in found[way].reason
    assert "8 registers fewer" in found["cp.async 16 B"].reason


def test_the_product_is_predicted_by_its_issue_slots() -> None:
    """Instructions, bank conflicts and loads' rows, where 128 lanes make an FFMA take a slot."""
    found = rows(CpAsync(), "h200")
    for way in WAYS:
        code, prediction = found[way].code, found[way].prediction
        assert code is not None
        assert prediction is not None
        lost = (code.conflict_cycles or 0) + code.mix["LDS.128"] * 1.4
        assert prediction.value == pytest.approx(
            code.instructions + lost
        )  # two tiles of 512 FFMAs on 2 warps
    on_64_lanes = rows(CpAsync(), "a100")["load and store"].prediction
    assert on_64_lanes is not None
    assert on_64_lanes.value == 2 * 1024


@pytest.mark.parametrize("gpu", GPUS)
def test_the_ways_differ_in_their_copies_alone(gpu: str) -> None:
    """Two tiles an iteration: 8 KiB each in 2 x 2, 4 or 16 instructions a thread."""
    found = rows(CpAsync(), gpu)
    copies = (
        {"LDG.128": 4, "STS.128": 4, "LDGSTS.128": 0, "LDGSTS.32": 0},
        {"LDG.128": 0, "STS.128": 0, "LDGSTS.128": 4, "LDGSTS.32": 0},
        {"LDG.128": 0, "STS.128": 0, "LDGSTS.128": 0, "LDGSTS.32": 16},
    )
    for way, of_two_tiles in zip(WAYS, copies, strict=True):
        product, alone = found[way].code, found[way + COPIES].code
        assert product is not None
        assert alone is not None
        assert product.mix == {"FFMA": 1024, "LDS.128": 64, "BAR": 2, **of_two_tiles}
        of_one = {name: number // 2 for name, number in of_two_tiles.items()}
        assert alone.mix == {"FFMA": 0, "LDS.128": 2, "BAR": 1, **of_one}
        assert product.spill_bytes == alone.spill_bytes == 0


@pytest.mark.parametrize("gpu", ["h200", "5080"])
def test_copies_past_the_registers_free_some(gpu: str) -> None:
    """Fewer registers than through them, in the product and alone."""
    found = rows(CpAsync(), gpu)
    for suffix in ("", COPIES):
        through, past = (found[way + suffix].code for way in WAYS[:2])
        assert through is not None
        assert past is not None
        assert past.registers < through.registers


@pytest.mark.parametrize("arch", [(8, 0), (9, 0), (12, 0)])
def test_all_ways_have_one_tile_under_way(arch: tuple[int, int]) -> None:
    """The compiler starts the copies of one tile between two barriers, never of two."""
    starts = {"load and store": ("LDG.128", 2), "cp.async 16 B": ("LDGSTS.128", 2)}
    starts["cp.async 4 B"] = ("LDGSTS.32", 8)
    for name, (variant, build) in compile_variants(CpAsync(), Architecture(*arch)).items():
        wanted = build.kernel(variant.kernel).name
        kernel = next(k for k in read_sass(build.cubin) if k.signature.name == wanted)
        instruction, each = starts[name.removesuffix(COPIES)]
        counts = [0]
        for mnemonic in (i.mnemonic for i in kernel.instructions):
            counts[-1] += mnemonic == instruction
            if mnemonic == "BAR":
                counts.append(0)
        assert set(counts[:-1]) == {each}, name


Floats = np.ndarray[Any, np.dtype[np.float32]]


def _product(m: int, n: int, k: int, a: Floats, b: Floats, c: Floats, *, blocks: int) -> None:
    c[...] = (a.T @ b).reshape(-1)


def _copies(m: int, n: int, k: int, a: Floats, b: Floats, c: Floats, *, blocks: int) -> None:
    """Thread by thread, as the kernel's text says it."""
    for block in range(blocks):
        row, col = block // (n // 128) * 128, block % (n // 128) * 128
        for thread in range(256):
            at = (thread + 32) % 256
            step, first = at // 32, at % 32 * 4
            total = a[step::8, row + first : row + first + 4].sum()
            total += b[step::8, col + first : col + first + 4].sum()
            c[block * 256 + thread] = total


def test_measuring_accepts_right_results_and_no_others() -> None:
    """A product without its last k-tile, or a thread that read its own data, gets no figure."""
    names = [f"lab_cp_async<{way}, {compute}" for way in range(3) for compute in ("true", "false")]
    mirrors = (_product, _copies)
    found = measured(
        CpAsync(), by_name({n: mirrors["false" in n] for n in names}), l2_bytes=1 << 18
    )
    assert all(each.correct for each in found.values())
    # 2 waves of 2 blocks an SM, K = 64: 32 k-tiles in a launch.
    assert found["load and store"].value == pytest.approx(TIME_US * CLOCK_MHZ / 32)

    def short(m: int, n: int, k: int, a: Floats, b: Floats, c: Floats, *, blocks: int) -> None:
        _product(m, n, k, a[:-8], b[:-8], c, blocks=blocks)

    def own(m: int, n: int, k: int, a: Floats, b: Floats, c: Floats, *, blocks: int) -> None:
        _copies(m, n, k, a, b, c, blocks=blocks)
        c[: blocks * 256] = np.roll(c[: blocks * 256].reshape(blocks, 256), 32, axis=1).reshape(-1)

    mirrors = (short, own)
    found = measured(
        CpAsync(), by_name({n: mirrors["false" in n] for n in names}), l2_bytes=1 << 18
    )
    assert not any(each.correct or each.value for each in found.values())


def test_thread_sums_add_up_to_the_panels() -> None:
    """All threads of a block together see each element of their panels once."""
    rng = np.random.default_rng(1)
    a = rng.integers(-4, 5, (24, 256)).astype(np.float32)
    b = rng.integers(-4, 5, (24, 384)).astype(np.float32)
    sums = thread_sums(a, b)
    assert sums.shape == (6, 256)
    assert sums[4].sum() == a[:, 128:].sum() + b[:, 128:256].sum()
