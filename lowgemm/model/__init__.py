"""The machine model: what a GPU's levels deliver, what a tile needs, and what binds, on paper.

Pure functions over frozen records; nothing is measured and nothing is compiled. Two public texts
are behind it: *GEMM 优化总结* ("the first seed": intensity, registers, occupancy) and
*如何让计算受限问题真正达到计算受限* ("the second seed": the model). A section in a docstring is the
second's.
"""

from lowgemm.model.config import TileConfig
from lowgemm.model.gemv import GemvEstimate, gemv
from lowgemm.model.issue import (
    ATTAINABLE_SHARE,
    IssueReport,
    ThreadWork,
    conflict_cycles_per_ffma,
    issue_report,
    load_wavefronts,
)
from lowgemm.model.latency import (
    InFlight,
    Pipeline,
    bytes_in_flight,
    in_flight,
    load_latency_cycles,
    pipeline,
)
from lowgemm.model.levels import (
    GemmIntensity,
    Level,
    LevelNeed,
    Machine,
    Roofline,
    arithmetic_intensity,
    level_needs,
    ridge_fma_per_byte,
    roofline,
)
from lowgemm.model.levers import (
    Dataflow,
    Lever,
    compression,
    dataflow,
    fusion,
    more_bandwidth,
    sparsity,
)
from lowgemm.model.multicast import (
    CooperationCycles,
    MulticastShare,
    RasterChoice,
    RasterReport,
    Wave,
    best_rasters,
    cluster_reuse,
    cooperation_cycles,
    multicast_share,
    rasterise,
)
from lowgemm.model.occupancy import (
    HandOccupancy,
    OccupancyReport,
    OccupancyStep,
    estimate_registers,
    hand_occupancy,
    occupancy_report,
)
from lowgemm.model.raster import RASTER_NAMES, closed_form_tiles, raster_order
from lowgemm.model.tiling import (
    LoopNestCounts,
    ReuseFactors,
    TileRequirement,
    TileTraffic,
    register_tile_requirement,
    reuse,
    reuse_factors,
    shared_tile_requirement,
    tile_flop_per_byte,
    tile_requirement,
    tile_traffic,
    walk_loop_nest,
)
from lowgemm.model.values import next_power_of_two
from lowgemm.model.verdict import LevelVerdict, Verdict, judge_tile, search_tiles

__all__ = [
    "ATTAINABLE_SHARE",
    "RASTER_NAMES",
    "CooperationCycles",
    "Dataflow",
    "GemmIntensity",
    "GemvEstimate",
    "HandOccupancy",
    "InFlight",
    "IssueReport",
    "Level",
    "LevelNeed",
    "LevelVerdict",
    "Lever",
    "LoopNestCounts",
    "Machine",
    "MulticastShare",
    "OccupancyReport",
    "OccupancyStep",
    "Pipeline",
    "RasterChoice",
    "RasterReport",
    "ReuseFactors",
    "Roofline",
    "ThreadWork",
    "TileConfig",
    "TileRequirement",
    "TileTraffic",
    "Verdict",
    "Wave",
    "arithmetic_intensity",
    "best_rasters",
    "bytes_in_flight",
    "closed_form_tiles",
    "cluster_reuse",
    "compression",
    "conflict_cycles_per_ffma",
    "cooperation_cycles",
    "dataflow",
    "estimate_registers",
    "fusion",
    "gemv",
    "hand_occupancy",
    "in_flight",
    "issue_report",
    "judge_tile",
    "level_needs",
    "load_latency_cycles",
    "load_wavefronts",
    "more_bandwidth",
    "multicast_share",
    "next_power_of_two",
    "occupancy_report",
    "pipeline",
    "raster_order",
    "rasterise",
    "register_tile_requirement",
    "reuse",
    "reuse_factors",
    "ridge_fma_per_byte",
    "roofline",
    "search_tiles",
    "shared_tile_requirement",
    "sparsity",
    "tile_flop_per_byte",
    "tile_requirement",
    "tile_traffic",
    "walk_loop_nest",
]
