"""Latency as a product of throughput: bytes in flight, and pipeline stages.

Second seed, section 0 (latency = static latency + tile / bandwidth) and section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lowgemm.errors import ArgumentValueError
from lowgemm.model.levels import FLOAT_BYTES, Level, Machine
from lowgemm.model.values import count, positive

__all__ = [
    "InFlight",
    "Pipeline",
    "bytes_in_flight",
    "in_flight",
    "load_latency_cycles",
    "pipeline",
]


def load_latency_cycles(
    static_latency_cycles: float, tile_bytes: float, bytes_per_cycle: float
) -> float:
    """Cycles until a tile is there: static latency plus tile over bandwidth (section 0).

    Raises
    ------
    ArgumentValueError
        A value that is not positive.
    """
    latency = positive("static_latency_cycles", static_latency_cycles)
    tile = positive("tile_bytes", tile_bytes)
    return latency + tile / positive("bytes_per_cycle", bytes_per_cycle)


def bytes_in_flight(latency_cycles: float, bytes_per_cycle: float) -> float:
    """Bytes that must be under way to keep a level busy: latency times bandwidth (Little's law).

    Raises
    ------
    ArgumentValueError
        A value that is not positive.
    """
    return positive("latency_cycles", latency_cycles) * positive("bytes_per_cycle", bytes_per_cycle)


@dataclass(frozen=True, slots=True)
class InFlight:
    """What must be under way per SM to get a level's full bandwidth."""

    level: str
    latency_cycles: float
    bytes_per_cycle_per_sm: float
    bytes_per_sm: float
    float4_loads_per_sm: float


def in_flight(machine: Machine) -> tuple[InFlight, ...]:
    """Bytes in flight for each level whose latency and rate are known, the farthest first."""
    found = []
    for level in machine.levels():
        if level.latency_cycles is None or level.bytes_per_cycle_per_sm is None:
            continue
        needed = bytes_in_flight(level.latency_cycles, level.bytes_per_cycle_per_sm)
        found.append(
            InFlight(
                level.name,
                level.latency_cycles,
                level.bytes_per_cycle_per_sm,
                needed,
                needed / (4 * FLOAT_BYTES),
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How many k-tiles must be under way so that their loads hide behind the computation.

    ``load_cycles`` is a k-tile's latency from its level at the SM's share of that level's
    bandwidth; ``compute_cycles`` the time in which the SM's lanes work on one k-tile of every
    resident block. ``stages`` counts the tile that is computed as well: 2 is a double buffer.
    """

    level: str
    tile_bytes: int
    load_cycles: float
    compute_cycles: float
    stages: int
    bandwidth_bound: bool


def pipeline(
    machine: Machine,
    bm: int,
    bn: int,
    bk: int,
    *,
    level: str = "DRAM",
    blocks_per_sm: int = 1,
    bytes_per_cycle: float | None = None,
) -> Pipeline:
    """Stages that hide the latency of a level behind the computation of a k-tile.

    The loads of a stage must arrive while the stages before it are computed:
    1 + ceil(load / compute). More stages do not help where bandwidth binds. ``bytes_per_cycle`` is
    the rate at which the SM takes tiles in, by default its share of the level's bandwidth; where
    blocks have tiles in common it is more.

    Raises
    ------
    ArgumentValueError
        A size below 1, or a level of which latency or rate is not known.
    """
    bm, bn, bk = count("bm", bm), count("bn", bn), count("bk", bk)
    blocks = count("blocks_per_sm", blocks_per_sm)
    source = _level(machine, level)
    static, rate = source.latency_cycles, source.bytes_per_cycle_per_sm
    if bytes_per_cycle is not None:
        rate = positive("bytes_per_cycle", bytes_per_cycle)
    if static is None or rate is None:
        raise ArgumentValueError(
            f"latency or bandwidth of {source.name} of {machine.name} is not known",
            "measure it and set it with dataclasses.replace(machine, ...)",
        )
    tile_bytes = FLOAT_BYTES * bk * (bm + bn)
    transfer = blocks * tile_bytes / rate
    load = static + transfer
    compute = blocks * bm * bn * bk / machine.ffma_lanes_per_sm
    return Pipeline(
        level=source.name,
        tile_bytes=tile_bytes,
        load_cycles=load,
        compute_cycles=compute,
        stages=1 + math.ceil(load / compute),
        bandwidth_bound=transfer > compute,
    )


def _level(machine: Machine, name: str) -> Level:
    for level in machine.levels():
        if level.name.lower() == str(name).lower():
            return level
    raise ArgumentValueError(
        f"{machine.name} has no level {name!r}",
        f"the levels are {', '.join(level.name for level in machine.levels())}",
    )
