"""The machine model as small tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowgemm.model import (
    GemvEstimate,
    InFlight,
    LevelNeed,
    Machine,
    OccupancyReport,
    RasterChoice,
    RasterReport,
    ReuseFactors,
    TileRequirement,
    TileTraffic,
    Verdict,
)
from lowgemm.studies.modelling import ChosenGpu, CompiledTile, Explanation
from lowgemm.view.columns import Column, fitted_table

__all__ = [
    "explain_view",
    "gemv_view",
    "levels_view",
    "occupancy_view",
    "raster_view",
    "search_view",
    "tile_view",
]

_NONE = "–"


def _table(*columns: str, title: str = "") -> Table:
    table = Table(
        title=title or None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        pad_edge=False,
    )
    table.add_column(columns[0], style="cyan", no_wrap=True)
    for name in columns[1:]:
        table.add_column(name, justify="right")
    return table


def _pairs(rows: Iterable[tuple[str, str]], title: str = "") -> Table:
    table = Table(
        title=title or None,
        box=None,
        show_header=False,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def _number(value: float | None, digits: int = 2) -> str:
    return _NONE if value is None else f"{value:,.{digits}f}".replace(",", " ")


def _bytes(value: int | None) -> str:
    if value is None:
        return _NONE
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value} B"


def _percent(value: float) -> str:
    return f"{value:.1%}".replace("%", " %")


def _heading(gpu: ChosenGpu) -> Text:
    return Text(f"{gpu.record.name}, {gpu.chosen}", style="bold")


def levels_view(
    gpu: ChosenGpu,
    machine: Machine,
    needs: Sequence[LevelNeed],
    flight: Sequence[InFlight],
    ridge: float,
) -> RenderableType:
    """What each level delivers, and how often a byte must be used."""
    table = _table("level", "capacity", "B/clk/SM", "use each byte", "latency clk", "in flight/SM")
    need = {item.level: item for item in needs}
    waiting = {item.level: item for item in flight}
    for level in machine.levels():
        mine, under_way = need.get(level.name), waiting.get(level.name)
        table.add_row(
            level.name,
            _bytes(level.capacity_bytes),
            _number(level.bytes_per_cycle_per_sm),
            _number(mine.amplification if mine else None),
            _number(level.latency_cycles, 0),
            _bytes(round(under_way.bytes_per_sm)) if under_way else _NONE,
        )
    facts = _pairs(
        (
            ("lanes per SM", f"{machine.ffma_lanes_per_sm}, {machine.sms} SMs"),
            ("they eat", f"{machine.need_bytes_per_cycle_per_sm} B/clk/SM"),
            ("peak", f"{_number(machine.peak_tflops, 1)} TFLOP/s at {machine.clock_ghz} GHz"),
            ("ridge", f"{_number(ridge)} FMA/B"),
        )
    )
    sources = [f"{name}: {source}" for name, source in gpu.record.sources().items()]
    return Group(_heading(gpu), facts, table, Text("; ".join(sources), style="dim"))


def tile_view(
    gpu: ChosenGpu,
    shared: TileRequirement,
    registers: TileRequirement,
    factors: ReuseFactors,
    limit: tuple[int, float],
    tile: tuple[str, TileTraffic, float] | None,
) -> RenderableType:
    """How large the tiles must be, what an SM can hold, and what a given one gives.

    ``limit`` is the largest square tile that an SM holds, and the multicast factor it then needs.
    """
    table = _table("tile in", "supply B/clk", "need B/clk", "amplification", "side", "2^n")
    for name, item in (("shared memory", shared), ("registers", registers)):
        table.add_row(
            name,
            _number(item.supply_bytes_per_cycle_per_sm),
            _number(item.need_bytes_per_cycle_per_sm, 0),
            _number(item.amplification),
            str(item.min_tile),
            str(item.next_power_of_two),
        )
    local = (
        f"local reuse: {factors.l1} of the register tile in shared memory "
        f"({_number(factors.l1_exact)}), {factors.l2} in registers; "
        f"{factors.shared_tile} in all"
    )
    parts: list[RenderableType] = [_heading(gpu), table, Text(local)]
    largest, multicast = limit
    if shared.next_power_of_two > largest:
        parts.append(
            Text(
                f"a tile of {shared.next_power_of_two} has more sums than an SM's registers hold; "
                f"with {largest} multicast must give {_number(multicast)}"
            )
        )
    if tile:
        name, traffic, missing = tile
        parts.append(
            Text(
                f"{name}: each element used {_number(traffic.reuse, 1)} times, "
                f"{_number(traffic.flop_per_byte, 1)} FLOP/B, {_bytes(traffic.input_bytes)} "
                f"requested by {traffic.blocks} blocks; multicast must give {_number(missing)}"
            )
        )
    return Group(*parts)


def raster_view(
    gpu: ChosenGpu, raster: str, report: RasterReport, choices: Sequence[RasterChoice]
) -> RenderableType:
    """An order wave by wave in short, and the orders beside it."""
    title = (
        f"{report.grid_rows} x {report.grid_columns} blocks, {report.blocks_per_wave} at a time, "
        f"{len(report.waves)} waves; L2 of {gpu.record.name}, {gpu.chosen}"
    )
    table = _table("order", "multicast", "with L2", "unique", "from DRAM")
    for choice in choices:
        mark = " <" if choice.raster == raster else ""
        table.add_row(
            choice.raster + mark,
            _number(choice.multicast_factor),
            _number(choice.dram_factor),
            _bytes(choice.unique_bytes),
            _bytes(choice.dram_bytes),
        )
    most = (
        f"requested: {_bytes(report.requested_bytes)}; no order gives more than "
        f"{_number(report.largest_factor)}"
    )
    return Group(Text(title, style="bold"), table, Text(most))


def occupancy_view(where: str, report: OccupancyReport) -> RenderableType:
    """Blocks and warps, the limiter, and how far it is to the next step."""
    table = _table("resource", "used", "free beside it", "less for one block more")
    for step in report.steps:
        less = _NONE if step.less_for_next is None else str(step.less_for_next)
        table.add_row(step.resource, str(step.used), str(step.free_more), less)
    facts = _pairs(
        (
            ("blocks per SM", f"{report.blocks_per_sm}, limited by {report.limiter}"),
            ("warps per SM", f"{report.warps_per_sm}, {_percent(report.occupancy)}"),
            (
                "by hand",
                f"{report.hand.blocks_per_sm} blocks, {_percent(report.hand.occupancy)}",
            ),
        ),
        where,
    )
    return Group(facts, table)


def gemv_view(gpu: ChosenGpu, estimate: GemvEstimate) -> RenderableType:
    """Both estimates of a GEMV."""
    table = _table(
        f"{estimate.m} x {estimate.n}, {estimate.batch}", "reuse", "FMA/clk/SM", "GFLOP/s"
    )
    table.add_row(
        "every SM fetches the vector",
        _number(estimate.reuse),
        _number(estimate.fma_per_cycle_per_sm, 3),
        _number(estimate.gflops, 0),
    )
    table.add_row(
        "L2 multicasts it",
        _number(estimate.reuse_multicast),
        _number(estimate.fma_per_cycle_per_sm_multicast, 3),
        _number(estimate.gflops_multicast, 0),
    )
    facts = (
        f"{_number(estimate.fma_per_byte, 3)} FMA/B against a ridge of "
        f"{_number(estimate.ridge_fma_per_byte)}; at least {_number(estimate.time_us, 1)} us"
    )
    return Group(_heading(gpu), table, Text(facts))


def explain_view(gpu: ChosenGpu, explanation: Explanation) -> RenderableType:
    """A verdict: levels with the binding one first, the inside of the SM, and the compiler's."""
    verdict = explanation.verdict
    size = f"{verdict.m} x {verdict.n} x {verdict.k}"
    name = str(verdict.config)
    if explanation.name != name:
        name = f"{explanation.name}: {name}"
    table = _table("level", "supply", "need", "", "share of peak", title="the binding level first")
    for level in verdict.levels:
        table.add_row(
            level.level, _number(level.supply), _number(level.need), level.unit,
            _percent(level.share),
        )  # fmt: skip
    parts: list[RenderableType] = [
        _heading(gpu),
        Text(f"{name} on {size}"),
        table,
        _pairs(_summary(explanation)),
        _inside(verdict, explanation.compiled),
    ]
    if verdict.unknown_levels:
        parts.append(Text(f"not known of this GPU: {', '.join(verdict.unknown_levels)}"))
    parts += [Text(note) for note in explanation.notes]
    return Group(*parts)


def _summary(explanation: Explanation) -> list[tuple[str, str]]:
    verdict = explanation.verdict
    counted = []
    if explanation.counted_tflops:
        text = f"{_number(explanation.counted_tflops, 1)} TFLOP/s"
        counted.append(("from the machine code", text))
    return [
        (
            "predicted",
            f"{_number(verdict.tflops, 1)} of {_number(verdict.peak_tflops, 1)} TFLOP/s, "
            f"{_percent(verdict.share_of_peak)}",
        ),
        *counted,
        (
            "waves",
            f"{_number(verdict.waves)}; the last leaves {_percent(verdict.wave_share)} of the SMs "
            f"busy; {_percent(verdict.full_tile_share)} of whole tiles is real work",
        ),
        (
            "blocks per SM",
            f"{verdict.occupancy.blocks_per_sm}, limited by {verdict.occupancy.limiter}",
        ),
        ("stages to hide DRAM", str(verdict.stages_needed or _NONE)),
    ]


def _inside(verdict: Verdict, compiled: CompiledTile | None) -> Table:
    issue = verdict.issue
    table = _table("per thread, or warp and k-step", "model", "compiler")
    used = compiled
    table.add_row(
        "registers",
        f"{verdict.config.expected_registers} (by hand {verdict.hand_registers})",
        str(used.registers) if used else _NONE,
    )
    table.add_row(
        "shared bytes",
        str(verdict.config.shared_bytes),
        str(used.shared_bytes) if used else _NONE,
    )
    rows = (
        ("FFMA", issue.ffma_per_warp, used.ffma_per_step if used else None),
        (
            f"LDS (the model's of {issue.lds_bits} bits)",
            issue.lds_per_warp,
            used.lds_per_step if used else None,
        ),
        ("other instructions", issue.other_per_warp, used.other_per_step if used else None),
        (
            "bank conflict cycles",
            issue.conflict_cycles_per_warp,
            used.conflict_cycles_per_step if used else None,
        ),
        ("slots in all", issue.slots_per_warp, None),
    )
    for name, model, made in rows:
        table.add_row(name, _number(model, 1), _number(made, 1))
    return table


def search_view(gpu: ChosenGpu, verdicts: Sequence[Verdict], width: int) -> RenderableType:
    """Configurations that fit, the best first, in at most ``width`` characters a line."""
    columns: tuple[Column[Verdict], ...] = (
        Column("configuration", lambda v: str(v.config), justify="left", style="cyan"),
        Column("TFLOP/s", lambda v: _number(v.tflops, 1)),
        Column("of peak", lambda v: _percent(v.share_of_peak), 2),
        Column("binds", lambda v: v.binding.level, 1),
        Column("regs", lambda v: str(v.registers), 3),
        Column("shared", lambda v: _bytes(v.shared_bytes), 4),
        Column("blocks/SM", lambda v: str(v.occupancy.blocks_per_sm), 5),
        Column("FLOP/B", lambda v: _number(v.traffic.flop_per_byte, 1), 6),
    )
    return Group(_heading(gpu), fitted_table(columns, verdicts, width))
