"""Clusters: predictions, machine code, and a mirror of the kernel's indices and barriers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from lowgemm.binary.sass import disassemble
from lowgemm.hardware import Architecture, gpu_record
from lowgemm.studies.lab import compile_variants, find_experiment
from lowgemm.studies.lab.clusters import expected_output

EXPERIMENT = find_experiment("clusters")
SHAPES = [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)]
STAGES, WARPS, TILE_FLOATS, CONSUMERS = 3, 4, 4096, 128


def test_multicast_divides_what_l2_is_asked_for() -> None:
    """On an H200 39 bytes a cycle: 840 cycles for 32 KiB, less by the factor, down to the port."""
    found = EXPERIMENT.predict(gpu_record("h200"), {})
    rate = 10200 / 132 / 1.98
    for name, kib in {"alone": 32, "2 x 1": 24, "4 x 1": 20, "2 x 2, own copies": 32}.items():
        assert found[name].value == pytest.approx(kib * 1024 / rate), name
    assert found["2 x 2"].value == found["4 x 2"].value == 32 * 1024 / 64


def test_chips_without_multicast_have_no_variants_with_it() -> None:
    """On 12.x blocks copy for themselves alone."""
    names = {variant.name for variant in EXPERIMENT.variants(Architecture(12, 0))}
    assert names == {"alone", "2 x 1, own copies", "2 x 2, own copies"}
    assert set(EXPERIMENT.predict(gpu_record("rtx 5080"), {})) == names


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_only_shares_are_multicast(arch: str) -> None:
    """Two bulk copies: A's multicast where blocks share a row, B's where they share a column."""
    multicast = {"alone": 0, "2 x 1": 1, "4 x 1": 1, "2 x 2": 2, "4 x 2": 2, "2 x 2, own copies": 0}
    variants = compile_variants(EXPERIMENT, Architecture.parse(arch))
    texts = {}
    for build in {id(b): b for _, b in variants.values()}.values():
        for kernel in disassemble(build.cubin, live_registers=False):
            texts[kernel.name] = [instruction.text for instruction in kernel.instructions]
    for name, wanted in multicast.items():
        variant, build = variants[name]
        copies = [t for t in texts[build.kernel(variant.kernel).name] if "UBLKCP" in t]
        assert len(copies) == 2, name
        assert sum("MULTICAST" in text for text in copies) == wanted, name


# ---- a mirror of the kernel


@dataclass
class Barrier:
    """An mbarrier: a phase ends when all have arrived and all bytes have come."""

    arrivals: int
    phase: int = 0
    pending: int = field(init=False)
    bytes_due: int = 0

    def __post_init__(self) -> None:
        self.pending = self.arrivals

    def arrive(self, expected: int = 0) -> None:
        self.bytes_due += expected
        self.pending -= 1
        assert self.pending >= 0, "more arrivals than the barrier counts"
        self._end()

    def complete(self, count: int) -> None:
        self.bytes_due -= count
        self._end()

    def _end(self) -> None:
        if self.pending == 0 and self.bytes_due == 0:
            self.phase, self.pending = self.phase + 1, self.arrivals

    def passed(self, parity: int) -> bool:
        """As try_wait.parity: the phase of that parity is over."""
        return self.phase % 2 != parity


class Cluster:
    """The blocks of one cluster: their stages hold (step, rank of the writer) for each share."""

    def __init__(self, m: int, n: int, steps: int) -> None:
        self.m, self.n, self.steps = m, n, steps
        blocks = range(m * n)
        readers = 1 + (n - 1 if n > 1 else 0) + (m - 1 if m > 1 else 0)
        self.full = [[Barrier(1) for _ in range(STAGES)] for _ in blocks]
        self.empty = [[Barrier(readers * WARPS) for _ in range(STAGES)] for _ in blocks]
        self.stages: list[list[dict[tuple[str, int], int]]]
        self.stages = [[{} for _ in range(STAGES)] for _ in blocks]
        self.under_way: list[tuple[list[int], int, tuple[str, int], int, int]] = []

    def row(self, rank: int) -> list[int]:
        return [rank // self.n * self.n + j for j in range(self.n)]

    def col(self, rank: int) -> list[int]:
        return [i * self.n + rank % self.n for i in range(self.m)]

    def producer(self, rank: int) -> Iterator[None]:
        for step in range(self.steps):
            stage, use = step % STAGES, step // STAGES
            while use > 0 and not self.empty[rank][stage].passed((use - 1) & 1):
                yield
            self.full[rank][stage].arrive(2 * TILE_FLOATS)
            yield
            for tile, blocks in (("A", self.row(rank)), ("B", self.col(rank))):
                share = TILE_FLOATS // len(blocks)
                key = (tile, blocks.index(rank))
                self.under_way.append((blocks, stage, key, step, share))
                yield

    def consumer(self, rank: int) -> Iterator[None]:
        for step in range(self.steps):
            stage = step % STAGES
            while not self.full[rank][stage].passed(step // STAGES & 1):
                yield
            for _ in range(2):  # what is read must be this step's, and stay it
                held = self.stages[rank][stage]
                assert len(held) == self.n + self.m
                assert set(held.values()) == {step}
                yield
            for block in dict.fromkeys([rank, *self.row(rank), *self.col(rank)]):
                self.empty[block][stage].arrive()
                yield

    def run(self, seed: int) -> None:
        """All threads and copies in a random order; each must come to its end."""
        rng = random.Random(seed)
        blocks = range(self.m * self.n)
        threads = [self.producer(rank) for rank in blocks]
        threads += [self.consumer(rank) for rank in blocks for _ in range(WARPS)]
        for _ in range(400_000):
            if not threads and not self.under_way:
                return
            if self.under_way and (not threads or rng.random() < 0.3):
                at = rng.randrange(len(self.under_way))
                blocks_to, stage, key, step, share = self.under_way[at]
                block = blocks_to[0]
                self.stages[block][stage][key] = step
                self.full[block][stage].complete(share)
                self.under_way[at : at + 1] = (
                    [(blocks_to[1:], stage, key, step, share)] if blocks_to[1:] else []
                )
                continue
            thread = rng.choice(threads)
            if next(thread, "over") == "over":
                threads.remove(thread)
        raise AssertionError("a wait never ended")


@pytest.mark.parametrize(("m", "n"), SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_barriers_neither_hang_nor_let_a_stage_be_overwritten(m: int, n: int, seed: int) -> None:
    """Whatever the order of threads and copies, each step's tiles are whole until all have read."""
    Cluster(m, n, steps=10).run(seed)


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_shares_make_whole_tiles_and_the_sums_are_those_of_the_kernel(m: int, n: int) -> None:
    """Element by element as the kernel copies and reads, against the expected output."""
    rows, depth, steps, grid = 8, 32, 9, 2 * m * n
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 8, (2, rows, depth, TILE_FLOATS)).astype(np.float32)
    flat_a, flat_b = a.ravel(), b.ravel()
    out = np.zeros((grid, CONSUMERS), np.float32)
    weights = np.arange(1, 5, dtype=np.float32)
    for step in range(steps):
        tiles = np.full((grid, 2, TILE_FLOATS), np.nan, np.float32)
        for block in range(grid):
            cluster, rank = divmod(block, m * n)
            row, col = (cluster * m + rank // n) % rows, (cluster * n + rank % n) % rows
            at = (step + cluster * 5) & (depth - 1)
            same_row = ((1 << n) - 1) << (rank // n * n)
            same_col = sum(1 << (i * n + rank % n) for i in range(m))
            for tile, flat, index, mask, part, of in (
                (0, flat_a, row, same_row, rank % n, n),
                (1, flat_b, col, same_col, rank // n, m),
            ):
                share = TILE_FLOATS // of
                begin = (index * depth + at) * TILE_FLOATS + part * share
                for other in range(m * n):
                    if mask >> other & 1:
                        place = slice(part * share, (part + 1) * share)
                        tiles[cluster * m * n + other, tile, place] = flat[begin : begin + share]
        assert not np.isnan(tiles).any()
        first = (step % 8 * CONSUMERS + np.arange(CONSUMERS)) * 4
        for element in range(4):
            out += weights[element] * tiles[:, :, first + element].sum(axis=1)
    assert (out == expected_output(a, b, m, n, grid, steps)).all()
