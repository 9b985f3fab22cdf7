"""A verdict on a tile configuration: what each level supplies and needs, and which one binds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from lowgemm.errors import ArgumentValueError
from lowgemm.model.config import TileConfig
from lowgemm.model.issue import (
    ATTAINABLE_SHARE,
    COPIES,
    IssueReport,
    LoopCounts,
    counted_share,
    issue_report,
)
from lowgemm.model.latency import Pipeline, pipeline
from lowgemm.model.levels import FLOAT_BYTES, Machine
from lowgemm.model.multicast import RasterReport, rasterise
from lowgemm.model.occupancy import OccupancyReport, estimate_registers, occupancy_report
from lowgemm.model.tiling import TileTraffic, tile_traffic
from lowgemm.model.values import ceil_div, count, several

__all__ = ["LevelVerdict", "Verdict", "counted_tflops", "judge_tile", "search_tiles"]


@dataclass(frozen=True, slots=True)
class LevelVerdict:
    """One level: what it supplies, what the configuration needs at full rate, and the share of the
    FFMA peak that the two allow.

    DRAM and L2 move what a problem's real work needs. The other levels work on whole tiles in whole
    waves: their ``share`` has ``wave_share`` and ``full_tile_share`` of the verdict in it.
    """

    level: str
    supply: float
    need: float
    unit: str
    share: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A configuration on a machine and a problem.

    ``levels`` are ordered, the binding one first. ``unknown_levels`` could not be judged, because a
    figure of the GPU is not known. ``registers`` are those given, else ``expected_registers`` of
    the configuration, at most what a thread can have; ``hand_registers`` is the seed's estimate.
    ``wave_share`` is what the last wave's idle SMs leave of the time, ``full_tile_share`` what
    padding leaves of the work. ``share_of_peak`` is the binding level's share.
    """

    config: TileConfig
    machine: str
    m: int
    n: int
    k: int
    levels: tuple[LevelVerdict, ...]
    unknown_levels: tuple[str, ...]
    registers: int
    hand_registers: int
    shared_bytes: int
    occupancy: OccupancyReport
    issue: IssueReport
    traffic: TileTraffic
    multicast_factor: float
    dram_bytes: int
    stages_needed: int | None
    waves: float
    wave_share: float
    full_tile_share: float
    share_of_peak: float
    peak_tflops: float
    tflops: float

    @property
    def binding(self) -> LevelVerdict:
        """The level that binds."""
        return self.levels[0]


def judge_tile(
    config: TileConfig,
    machine: Machine,
    m: int = 4096,
    n: int = 4096,
    k: int = 4096,
    *,
    registers: int | None = None,
    shared_bytes: int | None = None,
) -> Verdict:
    """Judge a tile configuration: each level's supply and need, and the rate that follows.

    Parameters
    ----------
    config, machine
        The configuration and the GPU.
    m, n, k
        The GEMM.
    registers, shared_bytes
        What the compiler used, instead of the configuration's estimates.

    Raises
    ------
    ArgumentValueError
        A size below 1, or a block that does not fit on an SM.

    Notes
    -----
    Levels overlap: the slowest decides. Loads of A and B come through L2 for every block (less what
    a cluster multicasts, its blocks as one larger tile); from DRAM comes what
    :func:`lowgemm.model.multicast.rasterise` says; C is written once. A sub-partition works as fast
    with some of its warps as with all, so the last wave costs what the fullest one computes. Idle
    SMs and padding cost the levels inside of the SMs time, but no bytes of DRAM and L2.
    """
    m, n, k = count("m", m), count("n", n), count("k", k)
    _check_supported(config, machine)
    used = _registers(config, machine, registers)
    shared = config.shared_bytes if shared_bytes is None else count("shared", shared_bytes, least=0)
    occupancy = _fitting(config, machine, used, shared)
    traffic = tile_traffic(m, n, k, config.bm, config.bn)
    raster = _rasterised(
        config.raster, m, n, k, config.bm, config.bn,
        occupancy.blocks_per_sm * machine.sms, machine.l2_bytes,
    )  # fmt: skip
    issue = issue_report(machine, config.work())
    wave_share = _wave_share(config, machine, traffic.blocks)
    # What blocks have in common arrives at the multiple of DRAM's rate, and idle SMs take nothing.
    stages = _pipeline(
        config, machine, occupancy.blocks_per_sm, raster.dram_factor / wave_share, traffic, k
    )
    inside = [
        _issue_level(issue),
        _shared_level(machine, issue),
        *([] if stages is None else [_latency_level(config, stages, occupancy.blocks_per_sm)]),
    ]
    useful = wave_share * traffic.full_tile_share
    levels = [replace(level, share=useful * level.share) for level in inside]
    levels += _memory_levels(config, machine, traffic, raster, (m, n, k))
    levels.sort(key=lambda level: level.share)
    share = levels[0].share
    return Verdict(
        config=config,
        machine=machine.name,
        m=m, n=n, k=k,
        levels=tuple(levels),
        unknown_levels=_unknown(machine),
        registers=used,
        hand_registers=estimate_registers(config.tm, config.tn),
        shared_bytes=shared,
        occupancy=occupancy,
        issue=issue,
        traffic=traffic,
        multicast_factor=raster.multicast_factor,
        dram_bytes=raster.dram_bytes + traffic.c_bytes,
        stages_needed=None if stages is None else stages.stages,
        waves=traffic.blocks / (machine.sms * occupancy.blocks_per_sm),
        wave_share=wave_share,
        full_tile_share=traffic.full_tile_share,
        share_of_peak=share,
        peak_tflops=machine.peak_tflops,
        tflops=share * machine.peak_tflops,
    )  # fmt: skip


# What a compute capability must be at least; and from which on there is no multicast any more
# (CUTLASS, "Blackwell SM120 GEMMs": clusters of 1 x 1 x 1 for want of multicast).
_COPY_NEEDS = {"ldg": (0, 0), "cp.async": (8, 0), "tma": (9, 0)}
_MULTICAST_ENDS = (12, 0)


def _check_supported(config: TileConfig, machine: Machine) -> None:
    cc = machine.capability
    needed = _COPY_NEEDS[config.copy]
    if (cc.major, cc.minor) < needed:
        raise ArgumentValueError(
            f"{config} on {machine.name}: compute capability {cc} has no such copies",
            f"use copy=ldg and no cluster, or a GPU from {needed[0]}.{needed[1]} on",
        )
    if config.cluster_m * config.cluster_n > 1 and (cc.major, cc.minor) >= _MULTICAST_ENDS:
        raise ArgumentValueError(
            f"{config} on {machine.name}: compute capability {cc} has no multicast",
            "use no cluster, or a GPU of 9.0 to 11.x",
        )


def _registers(config: TileConfig, machine: Machine, given: int | None) -> int:
    most = machine.capability.registers_per_thread
    if given is not None:
        return count("registers", given)
    if config.least_registers > most:
        raise ArgumentValueError(
            f"a thread tile of {config.tm} x {config.tn} needs about {config.least_registers} "
            f"registers; a thread has at most {most}",
            "make the thread tile smaller",
        )
    return min(most, config.expected_registers)


def _fitting(
    config: TileConfig, machine: Machine, registers: int, shared_bytes: int
) -> OccupancyReport:
    report = _occupancy(machine, config.threads, registers, shared_bytes)
    if report.blocks_per_sm < 1:
        raise ArgumentValueError(
            f"a block of {config.threads} threads with {registers} registers each and "
            f"{shared_bytes} bytes of shared memory does not fit on an SM of {machine.name}: "
            f"{report.limiter}",
            "make the tile, the stages or the block smaller",
        )
    return report


@lru_cache(maxsize=1024)
def _occupancy(
    machine: Machine, threads: int, registers: int, shared_bytes: int
) -> OccupancyReport:
    return occupancy_report(
        machine.capability, threads=threads, registers=registers, shared_bytes=shared_bytes
    )


@lru_cache(maxsize=1024)
def _rasterised(
    raster: str, m: int, n: int, k: int, bm: int, bn: int, per_wave: int, l2_bytes: int
) -> RasterReport:
    return rasterise(raster, m, n, k, bm, bn, blocks_per_wave=per_wave, l2_bytes=l2_bytes)


def _pipeline(
    config: TileConfig,
    machine: Machine,
    blocks: int,
    dram_factor: float,
    traffic: TileTraffic,
    k: int,
) -> Pipeline | None:
    """None where the latency of DRAM is not known."""
    if machine.dram_latency_cycles is None:
        return None
    # DRAM's multiple goes up to the rate of L2.
    rate = dram_factor * machine.dram_bytes_per_cycle_per_sm
    rate = min(rate, machine.l2_bytes_per_cycle_per_sm or rate)
    # A tile at an edge loads only what is there.
    whole = FLOAT_BYTES * traffic.blocks * (config.bm + config.bn) * k
    return pipeline(
        machine,
        config.bm,
        config.bn,
        config.bk,
        blocks_per_sm=blocks,
        bytes_per_cycle=rate * whole / traffic.input_bytes,
    )


def _wave_share(config: TileConfig, machine: Machine, blocks: int) -> float:
    """Work per what the fullest sub-partition does, times all of them."""
    partitions = machine.capability.partitions_per_sm
    warps = ceil_div(config.threads, machine.capability.threads_per_warp)
    fullest = ceil_div(ceil_div(blocks, machine.sms) * warps, partitions)
    return blocks * warps / (machine.sms * partitions * fullest)


# ---- the levels

_ISSUE_UNIT = "cycles per FFMA cycle"


def _level(level: str, supply: float, need: float, unit: str) -> LevelVerdict:
    share = min(ATTAINABLE_SHARE, supply / need) if need > 0 else ATTAINABLE_SHARE
    return LevelVerdict(level, supply, need, unit, share)


def _issue_level(issue: IssueReport) -> LevelVerdict:
    name = "FFMA issue" if issue.binds == "shared memory" else issue.binds
    need = issue.issue_cycles / issue.ffma_cycles
    return LevelVerdict(name, 1.0, need, _ISSUE_UNIT, ATTAINABLE_SHARE / need)


def _shared_level(machine: Machine, issue: IssueReport) -> LevelVerdict:
    supply = machine.shared_bytes_per_cycle_per_sm
    need = supply * issue.shared_cycles / issue.ffma_cycles
    return _level("shared memory", supply, need, "bytes per cycle and SM")


def _memory_levels(
    config: TileConfig,
    machine: Machine,
    traffic: TileTraffic,
    raster: RasterReport,
    size: tuple[int, int, int],
) -> list[LevelVerdict]:
    # Cycles of the whole GPU at full rate, times SMs: bytes over this are per cycle and SM.
    sm_cycles = math.prod(size) / machine.ffma_lanes_per_sm
    cluster = tile_traffic(*size, config.bm * config.cluster_m, config.bn * config.cluster_n)
    through_l2 = (cluster.input_bytes + traffic.c_bytes) / sm_cycles
    from_dram = (raster.dram_bytes + traffic.c_bytes) / sm_cycles
    unit = "bytes per cycle and SM"
    levels = [_level("DRAM", machine.dram_bytes_per_cycle_per_sm, from_dram, unit)]
    if machine.l2_bytes_per_cycle_per_sm is not None:
        levels.append(_level("L2", machine.l2_bytes_per_cycle_per_sm, through_l2, unit))
    return levels


def _latency_level(config: TileConfig, stages: Pipeline, blocks: int) -> LevelVerdict:
    """Cycles of computation in which loads hide, against the cycles that they take.

    With one stage a block waits for its tile and only the SM's other blocks compute meanwhile.
    """
    if config.stages > 1:
        hidden = (config.stages - 1) * stages.compute_cycles
        return _level("latency", hidden, stages.load_cycles, "cycles per k-tile")
    own = stages.compute_cycles / blocks
    hidden = stages.compute_cycles - own
    share = stages.compute_cycles / max(stages.compute_cycles, stages.load_cycles + own)
    return LevelVerdict(
        "latency", hidden, stages.load_cycles, "cycles per k-tile", min(ATTAINABLE_SHARE, share)
    )


def _unknown(machine: Machine) -> tuple[str, ...]:
    figures = (("L2", machine.l2_bytes_per_cycle_per_sm), ("latency", machine.dram_latency_cycles))
    return tuple(name for name, figure in figures if figure is None)


def counted_tflops(verdict: Verdict, machine: Machine, counts: LoopCounts) -> float:
    """A verdict's rate with counted instructions instead of estimated ones.

    The other levels, waves and padding stay those of the verdict; see
    :func:`lowgemm.model.issue.counted_share`.
    """
    others = min(level.share for level in verdict.levels if level.unit != _ISSUE_UNIT)
    useful = verdict.wave_share * verdict.full_tile_share
    return min(others, useful * counted_share(machine, counts)) * verdict.peak_tflops


# ---- search

_SIDES = (32, 64, 96, 128, 192, 256)
_DEPTHS = (8, 16, 32)
_THREAD_SIDES = (4, 8, 12, 16)
_MOST_THREADS = 512
# Two warps for each sub-partition: one alone waits for every load from shared memory. cuBLAS and
# the fastest kernels measured have exactly these.
_LEAST_WARPS = 8


def search_tiles(
    machine: Machine,
    m: int = 4096,
    n: int = 4096,
    k: int = 4096,
    *,
    top: int = 10,
    copies: Sequence[str] = COPIES[:2],
    stages: Sequence[int] = (2, 3),
    walk: str = "ptxas",
    lanes: str = "rows",
) -> tuple[Verdict, ...]:
    """The best configurations that fit on the machine.

    Parameters
    ----------
    machine, m, n, k
        The GPU and the GEMM.
    top
        How many to return.
    copies, stages, walk, lanes
        What may be tried; see :class:`lowgemm.model.config.TileConfig`.

    Returns
    -------
    tuple of Verdict
        By predicted rate, with at least two warps for every sub-partition. Those within 0.5 % of
        each other count as equal: then the one that moves fewer bytes is better (power), then the
        one with fewer registers and less shared memory.

    Raises
    ------
    ArgumentValueError
        A size below 1, or nothing to choose from.
    """
    top = count("top", top)
    found = []
    for config in _configurations(copies, stages, walk, lanes):
        if config.expected_registers > machine.capability.registers_per_thread:
            continue  # it would spill
        try:
            verdict = judge_tile(config, machine, m, n, k)
        except ArgumentValueError:
            continue  # it does not fit on this machine, or the machine has no such copies
        if verdict.occupancy.warps_per_sm >= _LEAST_WARPS:
            found.append(verdict)
    if not found:
        raise ArgumentValueError(
            f"no configuration fits on {machine.name}", "allow more copies or stages"
        )
    found.sort(key=_cost)
    return tuple(found[:top])


def _configurations(
    copies: Sequence[str], stages: Sequence[int], walk: str, lanes: str
) -> list[TileConfig]:
    copies, stages = several("copies", copies), several("stages", stages)
    found = []
    for bm in _SIDES:
        for bn in _SIDES:
            for tm in _THREAD_SIDES:
                for tn in _THREAD_SIDES:
                    threads = bm * bn // (tm * tn)
                    # Whole warps of 4 x 8 lanes, and some for every sub-partition.
                    whole = bm % (4 * tm) == 0 and bn % (8 * tn) == 0 and threads % 128 == 0
                    if not whole or threads > _MOST_THREADS:
                        continue
                    found += [
                        TileConfig(
                            bm, bn, bk, tm, tn, threads,
                            stages=depth, copy=copy, walk=walk, lanes=lanes,
                        )
                        for bk in _DEPTHS
                        for copy in copies
                        for depth in stages
                        if min(bm, bn) * bk % (4 * threads) == 0
                    ]  # fmt: skip
    return found


def _cost(verdict: Verdict) -> tuple[float, float, int, int]:
    moved = verdict.traffic.input_bytes + verdict.dram_bytes
    step = round(200 * verdict.share_of_peak)
    return -step, moved, verdict.registers, verdict.shared_bytes
