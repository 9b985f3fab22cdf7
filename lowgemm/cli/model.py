"""`lowgemm model`: the machine model on the command line."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowgemm.cli.common import Json, OneSize, app, print_json, show, show_fitted

if TYPE_CHECKING:
    from lowgemm.model import Machine, TileConfig, Verdict
    from lowgemm.studies.modelling import ChosenGpu

__all__ = ["model"]

model = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The machine model: levels, tiles, rasterisation, occupancy, GEMV, verdicts.",
)
app.add_typer(model, name="model")

GpuName = Annotated[
    str | None,
    typer.Option("--gpu", "-g", help="A GPU of the table. Default: the one here, else H200."),
]
DramRate = Annotated[
    float | None,
    typer.Option("--bytes-per-cycle", help="DRAM bytes per cycle and SM instead of the GPU's."),
]
Tile = Annotated[str | None, typer.Option("--tile", "-t", help="A block tile: 128 or BMxBN.")]


@model.command()
def levels(gpu: GpuName = None, as_json: Json = False) -> None:
    """What each level delivers and how often the lanes must use a byte of it."""
    from lowgemm.model import Machine, in_flight, level_needs, ridge_fma_per_byte
    from lowgemm.studies.modelling import choose_gpu
    from lowgemm.view.model import levels_view

    chosen = choose_gpu(gpu)
    machine = Machine.from_gpu(chosen.record)
    needs, flight = level_needs(machine), in_flight(machine)
    ridge = ridge_fma_per_byte(machine)
    if not as_json:
        show(levels_view(chosen, machine, needs, flight, ridge))
        return
    print_json(
        {
            **_about(chosen),
            "sms": machine.sms,
            "clock_ghz": machine.clock_ghz,
            "ffma_lanes_per_sm": machine.ffma_lanes_per_sm,
            "need_bytes_per_cycle_per_sm": machine.need_bytes_per_cycle_per_sm,
            "peak_tflops": machine.peak_tflops,
            "ridge_fma_per_byte": ridge,
            "levels": [asdict(level) for level in machine.levels()],
            "needs": [asdict(need) for need in needs],
            "in_flight": [asdict(item) for item in flight],
            "sources": chosen.record.sources(),
        }
    )


@model.command()
def tile(
    gpu: GpuName = None,
    bytes_per_cycle: DramRate = None,
    size: OneSize = "4096",
    block: Tile = None,
    as_json: Json = False,
) -> None:
    """How large tiles must be, and what a given one gives."""
    from lowgemm.gemm import GemmProblem
    from lowgemm.model import (
        largest_accumulator_tile,
        multicast_share,
        register_tile_requirement,
        reuse_factors,
        shared_tile_requirement,
        tile_traffic,
    )
    from lowgemm.studies.modelling import choose_gpu
    from lowgemm.view.model import tile_view

    chosen = choose_gpu(gpu)
    machine = _machine(chosen, bytes_per_cycle)
    shared, registers = shared_tile_requirement(machine), register_tile_requirement(machine)
    factors = reuse_factors(machine)
    row = {
        **_about(chosen),
        **asdict(shared),
        "register_amplification": registers.amplification,
        "register_tile": registers.min_tile,
        "local_l1_exact": factors.l1_exact,
        "local_l1": factors.l1,
        "local_l2": factors.l2,
        "global_reuse": factors.shared_tile,
        "largest_tile": (largest := largest_accumulator_tile(machine)),
        "multicast_for_largest": multicast_share(
            shared.amplification, largest, largest
        ).multicast_needed,
    }
    given = None
    if block is not None:
        bm, bn = _pair(block, "--tile")
        problem = GemmProblem.parse(size)
        traffic = tile_traffic(problem.m, problem.n, problem.k, bm, bn)
        missing = multicast_share(shared.amplification, bm, bn).multicast_needed
        row["tile"] = {**asdict(traffic), "bm": bm, "bn": bn, "multicast_needed": missing}
        given = (f"{bm} x {bn}", traffic, missing)
    if as_json:
        print_json(row)
    else:
        limit = (largest, row["multicast_for_largest"])
        show(tile_view(chosen, shared, registers, factors, limit, given))


@model.command()
def raster(
    grid: Annotated[str, typer.Option("--grid", help="Blocks of the grid: 4x4.")] = "32x32",
    sms: Annotated[int | None, typer.Option("--sms", help="SMs. Default: the GPU's.")] = None,
    order: Annotated[
        str,
        typer.Option("--order", "-o", help="row, column, grouped:G, blocks:HxW, diagonal, morton."),
    ] = "row",
    block: Annotated[str, typer.Option("--tile", "-t", help="128 or BMxBN.")] = "128",
    k: Annotated[int, typer.Option("--k", help="Steps along k.")] = 4096,
    blocks_per_sm: Annotated[int, typer.Option(help="Resident blocks of an SM.")] = 1,
    gpu: GpuName = None,
    as_json: Json = False,
) -> None:
    """What blocks that run together have in common, for an order and those beside it."""
    from lowgemm.model import RASTER_CANDIDATES, best_rasters, rasterise
    from lowgemm.model.values import count
    from lowgemm.studies.modelling import choose_gpu
    from lowgemm.view.model import raster_view

    chosen = choose_gpu(gpu)
    rows, columns = _pair(grid, "--grid")
    bm, bn = _pair(block, "--tile")
    machine = _machine(chosen, None)
    at_once = count("--sms", sms if sms is not None else machine.sms) * count(
        "--blocks-per-sm", blocks_per_sm
    )
    sizes = (count("--grid", rows) * bm, count("--grid", columns) * bn, k, bm, bn)
    report = rasterise(order, *sizes, blocks_per_wave=at_once, l2_bytes=machine.l2_bytes)
    orders = tuple(dict.fromkeys((order, *RASTER_CANDIDATES)))
    choices = best_rasters(
        *sizes, blocks_per_wave=at_once, l2_bytes=machine.l2_bytes, candidates=orders
    )
    if not as_json:
        show(raster_view(chosen, order, report, choices))
        return
    print_json(
        {
            **_about(chosen),
            "order": order,
            "multicast_factor": report.multicast_factor,
            "dram_factor": report.dram_factor,
            "largest_factor": report.largest_factor,
            "grid_rows": rows,
            "grid_columns": columns,
            "blocks_per_wave": at_once,
            "requested_bytes": report.requested_bytes,
            "unique_bytes": report.unique_bytes,
            "dram_bytes": report.dram_bytes,
            "waves": [
                asdict(wave) | {"multicast_factor": wave.multicast_factor} for wave in report.waves
            ],
            "orders": [asdict(choice) for choice in choices],
        }
    )


@model.command()
def occupancy(
    registers: Annotated[int, typer.Option("--registers", "-r", help="Registers per thread.")],
    threads: Annotated[int, typer.Option("--threads", "-t", help="Threads per block.")],
    shared: Annotated[int, typer.Option("--shared", help="Bytes of a block.")] = 0,
    barriers: Annotated[int, typer.Option(help="Named barriers of the kernel.")] = 1,
    arch: Annotated[
        str | None, typer.Option("--arch", "-a", help="An architecture: sm_80.")
    ] = None,
    gpu: GpuName = None,
    as_json: Json = False,
) -> None:
    """Resident blocks, what limits them, and how far it is to one more."""
    from lowgemm.hardware import Architecture, capability
    from lowgemm.model import occupancy_report
    from lowgemm.studies.modelling import choose_gpu
    from lowgemm.view.model import occupancy_view

    if arch and gpu:
        raise typer.BadParameter("name an architecture or a GPU, not both")
    if arch:
        target = Architecture.parse(arch)
        limits, where = capability(target.major, target.minor), str(target)
    else:
        chosen = choose_gpu(gpu)
        limits, where = chosen.record.capability, f"{chosen.record.name}, {chosen.chosen}"
    report = occupancy_report(
        limits, threads=threads, registers=registers, shared_bytes=shared, barriers=barriers
    )
    if as_json:
        print_json({"capability": str(limits), "where": where, **asdict(report)})
    else:
        show(occupancy_view(where, report))


@model.command()
def gemv(
    m: Annotated[int, typer.Option("--m", help="Rows.")] = 4096,
    n: Annotated[int, typer.Option("--n", help="Columns.")] = 4096,
    batch: Annotated[int, typer.Option("--batch", help="Vectors at once.")] = 1,
    gpu: GpuName = None,
    bytes_per_cycle: DramRate = None,
    as_json: Json = False,
) -> None:
    """A GEMV without and with the L2's multicast."""
    from lowgemm.model import gemv as estimate_gemv
    from lowgemm.studies.modelling import choose_gpu
    from lowgemm.view.model import gemv_view

    chosen = choose_gpu(gpu)
    estimate = estimate_gemv(_machine(chosen, bytes_per_cycle), m, n, batch)
    if as_json:
        print_json({**_about(chosen), **asdict(estimate)})
    else:
        show(gemv_view(chosen, estimate))


@model.command()
def explain(
    config: Annotated[
        str, typer.Argument(help="A rung (ex8) or a tile configuration (128x128x8/8x8@256).")
    ],
    gpu: GpuName = None,
    size: OneSize = "4096",
    as_json: Json = False,
) -> None:
    """What binds a kernel, and what the compiler made of it."""
    from lowgemm.gemm import GemmProblem
    from lowgemm.studies.modelling import choose_gpu
    from lowgemm.studies.modelling import explain as explain_target
    from lowgemm.view.model import explain_view

    chosen = choose_gpu(gpu)
    found = explain_target(config, chosen.record, GemmProblem.parse(size))
    if not as_json:
        show(explain_view(chosen, found))
        return
    compiled = asdict(found.compiled) if found.compiled else None
    row = {"name": found.name, **_row(found.verdict), "compiled": compiled}
    row["counted_tflops"] = found.counted_tflops
    print_json({**_about(chosen), **row, "notes": list(found.notes)})


@model.command()
def search(
    gpu: GpuName = None,
    size: OneSize = "4096",
    top: Annotated[int, typer.Option("--top", help="How many.")] = 10,
    walk: Annotated[
        str, typer.Option(help="FFMAs: ptxas, ptxas-snake, placed, rows, no-reuse.")
    ] = "ptxas",
    lanes: Annotated[str, typer.Option(help="Lanes of a warp: rows or z.")] = "rows",
    tma: Annotated[bool, typer.Option("--tma", help="Also kernels that TMA feeds.")] = False,
    as_json: Json = False,
) -> None:
    """The best tile configurations that fit."""
    from lowgemm.gemm import GemmProblem
    from lowgemm.model import search_tiles
    from lowgemm.studies.modelling import choose_gpu
    from lowgemm.view.model import search_view

    chosen = choose_gpu(gpu)
    problem = GemmProblem.parse(size)
    copies = ("ldg", "cp.async", "tma") if tma else ("ldg", "cp.async")
    found = search_tiles(
        _machine(chosen, None), problem.m, problem.n, problem.k,
        top=top, copies=copies, walk=walk, lanes=lanes,
    )  # fmt: skip
    if as_json:
        print_json({**_about(chosen), "configurations": [_row(verdict) for verdict in found]})
    else:
        show_fitted(lambda width: search_view(chosen, found, width))


def _about(chosen: ChosenGpu) -> dict[str, str]:
    return {"gpu": chosen.record.name, "gpu_chosen": chosen.chosen}


def _machine(chosen: ChosenGpu, bytes_per_cycle: float | None) -> Machine:
    from lowgemm.model import Machine

    machine = Machine.from_gpu(chosen.record)
    return (
        machine.with_dram_bytes_per_cycle(bytes_per_cycle)
        if bytes_per_cycle is not None
        else machine
    )


def _pair(text: str, option: str) -> tuple[int, int]:
    """Read ``128`` (a square) or ``AxB``."""
    match = re.fullmatch(r"\s*(\d{1,7})(?:\s*[x,]\s*(\d{1,7}))?\s*", text.lower())
    if match is None:
        raise typer.BadParameter(f"{option} is a number or two with an x between them: 4x4")
    return int(match[1]), int(match[2] or match[1])


def _row(verdict: Verdict) -> dict[str, Any]:
    config: TileConfig = verdict.config
    return asdict(verdict) | {"config": str(config), "binding": verdict.binding.level}
