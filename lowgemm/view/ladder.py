"""The ladder as a table: for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowgemm.report import LadderReport, LadderRow, Provenance, by_architecture
from lowgemm.view.columns import WHOLE, Column, fitting, plain_table

__all__ = ["ladder_markdown", "ladder_view"]

_BAR_CELLS = 16
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_NONE = "–"
_SHARED_EXCESS, _GLOBAL_EXCESS = "shared/ideal", "global/ideal"
#: What a column shows, where its header does not say it.
_LEGEND = {
    "hot loop": "its instructions",
    "FFMA": "their share in the hot loop",
    "LDS.128": "in the hot loop",
    "bank": "modelled cycles of register-bank conflicts in the hot loop",
    "executed": "instructions of all warps",
    "FFMA exec": "their share of those",
    "wavefronts": "passes through shared memory",
    _SHARED_EXCESS: "passes through shared memory over the fewest possible",
    "sectors": "32-byte pieces of global memory",
    _GLOBAL_EXCESS: "32-byte pieces of global memory over the fewest possible",
}


def ladder_view(report: LadderReport, width: int = WHOLE) -> RenderableType:
    """A table per architecture, at most ``width`` characters wide, and what the numbers are."""
    tables = [
        _table(arch, rows, report, width) for arch, rows in by_architecture(report.rows).items()
    ]
    shown = {str(column.header) for table in tables for column in table.columns}
    return Group(*tables, _footer(report, shown))


def _table(arch: str, rows: Sequence[LadderRow], report: LadderReport, width: int) -> Table:
    measured = any(row.correct is not None for row in rows)
    emulated = any(row.is_emulated for row in rows)
    provenance = report.provenance if measured and not emulated else None
    all_rows = [*rows, _peer_row(rows[0], provenance)] if provenance else list(rows)
    rates = [row.tflops or 0.0 for row in all_rows if row is not None]
    columns = _STATIC + _dynamic_columns(rows, rates, measured)
    table = plain_table(_title(arch, rows, provenance))
    shown, _ = fitting(columns, [row for row in all_rows if row is not None], width)
    for column in shown:
        table.add_column(column.header, justify=column.justify, style=column.style, no_wrap=True)
    for row in all_rows:
        if row is None:
            continue
        if row.rung == _PEER:
            table.add_section()
        table.add_row(*(c.cell(row) for c in shown), style="dim" if row.rung == _PEER else "")
    return table


def _title(arch: str, rows: Sequence[LadderRow], provenance: Provenance | None) -> str:
    problem = next((row.problem for row in rows if row.problem), "")
    if any(row.is_emulated for row in rows):
        return f"FP32 GEMM ladder on the emulator ({arch}), {problem}"
    if provenance is None:
        return f"FP32 GEMM ladder, compiled for {arch}"
    return f"FP32 GEMM ladder on {provenance.gpu} ({arch}), {problem}"


def _peer_row(like: LadderRow, p: Provenance) -> LadderRow | None:
    """cuBLAS as one more row of the table."""
    if p.cublas is None:
        return None
    empty = dict.fromkeys(_STATIC_NUMBERS, 0)
    return replace(
        like,
        **empty,  # type: ignore[arg-type]
        rung=_PEER,
        idea=f"version {p.cublas}",
        correct=p.cublas_correct,
        time_us=p.cublas_time_us,
        tflops=p.cublas_tflops,
        ratio_to_cublas=1.0,
        ratio_to_ex3=None,
        ratio_to_previous=None,
    )


def _static(cell: Callable[[LadderRow], str | Text]) -> Callable[[LadderRow], str | Text]:
    """What is known of the rungs alone; empty for the peer."""
    return lambda row: "" if row.rung == _PEER else cell(row)


def _idea(row: LadderRow) -> str:
    """What a rung teaches; where a loop was to be rewritten and was not, that."""
    return f"{row.idea}: refused, the compiler's" if row.is_rewritten is False else row.idea


def _shared(row: LadderRow) -> str:
    return f"{row.shared_bytes / 1024:g} KiB" if row.shared_bytes else "0"


def _spills(row: LadderRow) -> str | Text:
    spills = row.spill_store_bytes + row.spill_load_bytes
    return Text(f"{spills} B", style="red") if spills else "0"


def _number(value: int | None) -> str:
    return _NONE if value is None else str(value)


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.0f} %"


_PEER = "cuBLAS"
_STATIC_NUMBERS = ("registers", "shared_bytes", "spill_store_bytes", "spill_load_bytes")
_STATIC: tuple[Column[LadderRow], ...] = (
    Column("rung", lambda row: row.rung, justify="left", style="cyan"),
    Column("idea", _idea, rank=5, justify="left"),
    Column(
        "tile",
        _static(lambda row: "x".join(map(str, row.block_tile))),
        rank=6,
        justify="left",
    ),
    Column("thread", _static(lambda row: "x".join(map(str, row.thread_tile))), rank=7),
    Column("regs", _static(lambda row: str(row.registers))),
    Column("shared", _static(_shared), rank=1),
    Column("spills", _static(_spills), rank=2),
    Column("hot loop", _static(lambda row: _number(row.hot_loop_instructions)), rank=10),
    Column("FFMA", _static(lambda row: _percent(row.hot_loop_ffma_share)), rank=4),
    Column("LDS.128", _static(lambda row: _number(row.hot_loop_lds_128)), rank=11),
    Column("bank", _static(lambda row: _number(row.hot_loop_conflict_cycles)), rank=12),
    Column("occup.", _static(lambda row: f"{100 * row.occupancy:.0f} %"), rank=3),
)
_UNMEASURED: tuple[Column[LadderRow], ...] = tuple(
    Column(name, lambda row: _NONE, rank=rank, style="dim")
    for name, rank in (("ms", 8), ("TFLOP/s", 1), ("/ cuBLAS", 9))
)


def _dynamic_columns(
    rows: Sequence[LadderRow], rates: Sequence[float], measured: bool
) -> tuple[Column[LadderRow], ...]:
    """What a run gave: times, or of the emulator counts."""
    if any(row.is_emulated for row in rows):
        return _EXECUTED
    return _measured_columns(rates) if measured else _UNMEASURED


def _right(row: LadderRow) -> Text:
    if row.correct is None:
        return Text(_NONE)
    return Text("yes", style="green") if row.correct else Text("NO", style="bold red")


def _thousands(value: int | None) -> str:
    return f"{value / 1e3:,.0f} k" if value else _NONE


def _excess(actual: int | None, ideal: int | None) -> str:
    """How many times the fewest possible."""
    return f"{actual / ideal:.2f}" if actual is not None and ideal else _NONE


_EXECUTED: tuple[Column[LadderRow], ...] = (
    Column("right", _right, justify="center"),
    Column("executed", lambda row: _thousands(row.executed_instructions)),
    Column("FFMA exec", lambda row: _percent(row.executed_ffma_share), rank=1),
    Column("wavefronts", lambda row: _thousands(row.executed_shared_wavefronts), rank=2),
    Column(
        _SHARED_EXCESS,
        lambda row: _excess(row.executed_shared_wavefronts, row.executed_shared_wavefronts_ideal),
    ),
    Column("sectors", lambda row: _thousands(row.executed_global_sectors), rank=2),
    Column(
        _GLOBAL_EXCESS,
        lambda row: _excess(row.executed_global_sectors, row.executed_global_sectors_ideal),
    ),
)


def _measured_columns(rates: Sequence[float]) -> tuple[Column[LadderRow], ...]:
    scale = max(rates, default=0.0)
    return (
        Column("right", _right, justify="center"),
        Column("ms", lambda row: _NONE if row.time_us is None else f"{row.time_us / 1e3:.3f}"),
        Column("TFLOP/s", lambda row: _NONE if row.tflops is None else f"{row.tflops:.1f}"),
        Column("", lambda row: _bar(row.tflops, scale), rank=8, justify="left", style="green"),
        Column("/ ex3", lambda row: _ratio(row.ratio_to_ex3), rank=4),
        Column("/ before", lambda row: _ratio(row.ratio_to_previous), rank=9),
        Column("/ cuBLAS", lambda row: _ratio(row.ratio_to_cublas)),
    )


def _ratio(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"


def _bar(value: float | None, scale: float) -> str:
    if not scale or value is None:
        return ""
    eighths = round(8 * _BAR_CELLS * value / scale)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def _footer(report: LadderReport, shown: Container[str]) -> Text:
    legend = [f"{header}: {text}" for header, text in _LEGEND.items() if header in shown]
    lines = ["; ".join(legend)] if legend else []
    if report.provenance is not None:
        lines += _provenance_lines(report.provenance)
    lines += [
        f"{row.rung}: {row.check}" for row in report.rows if row.correct is False and row.check
    ]
    if report.unmeasured:
        lines.append(f"not measured: {report.unmeasured}")
    return Text("\n".join(lines), style="dim")


def _provenance_lines(p: Provenance) -> list[str]:
    driver = f"driver {p.driver}, " if p.driver else ""
    clock = f"{p.clock_mhz} MHz" if p.clock_mhz else "clock not readable"
    lines = [
        f"{p.gpu}, {driver}CUDA {p.driver_cuda}, {clock}; NVRTC {p.nvrtc}; {p.cache} L2, random "
        f"data, medians, interleaved; {p.date}",
    ]
    if p.cublas:
        lines.append(f"cuBLAS {p.cublas}, TF32 off: {', '.join(p.cublas_kernels)}")
    else:
        lines.append("no cuBLAS found: lowgemm doctor says how to get it")
    return lines


def ladder_markdown(report: LadderReport) -> str:
    """The measured ladder as a Markdown table with its provenance below."""
    head = "| rung | idea | registers | shared | occupancy | ms | TFLOP/s | / ex3 | / cuBLAS |"
    lines = [head, "|---|---|--:|--:|--:|--:|--:|--:|--:|"]
    for row in report.rows:
        rate = _NONE if row.tflops is None else f"{row.tflops:.1f}"
        time_ms = _NONE if row.time_us is None else f"{row.time_us / 1e3:.2f}"
        lines.append(
            f"| {row.rung} | {_idea(row)} | {row.registers} | {row.shared_bytes / 1024:g} KiB | "
            f"{100 * row.occupancy:.0f} % | {time_ms} | {rate} | {_ratio(row.ratio_to_ex3)} | "
            f"{_ratio(row.ratio_to_cublas)} |"
        )
    p = report.provenance
    if p is not None:
        if p.cublas_tflops and p.cublas_time_us:
            lines.append(
                f"| cuBLAS | {p.cublas} | | | | {p.cublas_time_us / 1e3:.2f} | "
                f"{p.cublas_tflops:.1f} | | 1.00 |"
            )
        lines += ["", *(f"{line}  " for line in _provenance_lines(p)), f"Command: `{p.command}`"]
    return "\n".join(lines) + "\n"
