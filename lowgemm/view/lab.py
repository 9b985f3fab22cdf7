"""Experiments: a table for the terminal, and the committed page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowgemm.report.lab import LabProvenance, LabReport
from lowgemm.studies.lab import Experiment, LabResult, LabRow
from lowgemm.view.columns import WHOLE, Column, fitted_table

__all__ = ["experiments_view", "lab_index", "lab_page", "lab_view"]

_NONE = "–"
_RESULT_COLUMNS = 4  # variant, predicted, measured, ratio
_EMULATED = (
    "right",
    "warp instructions",
    "FFMA threads",
    "wavefronts",
    "fewest wavefronts",
    "sectors",
    "fewest sectors",
    "worst conflict",
)


def experiments_view(experiments: Sequence[Experiment]) -> RenderableType:
    """The names and titles of experiments."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("what it shows", overflow="fold")
    for experiment in experiments:
        table.add_row(experiment.name, experiment.title)
    return table


def lab_view(report: LabReport, width: int = WHOLE) -> RenderableType:
    """Claim, and a row a variant: predicted, measured, their ratio, what the machine code shows.

    Parameters
    ----------
    report
        The experiment.
    width
        Characters a line; columns without room are told below the table.
    """
    result = report.result
    parts: list[RenderableType] = [
        Text(f"{result.title}  ({result.experiment})", style="bold"),
        Text(result.claim),
        Text(f"{result.quantity}, {result.unit}; predictions for {result.gpu}"),
        fitted_table(_columns(result), result.rows, width, empty=_NONE),
        *(Text(f"  {line}", style="dim") for line in _reasons(result)),
    ]
    if result.unmeasured:
        parts.append(Text(f"not measured: {result.unmeasured}", style="yellow"))
    wrong = [r.variant for r in result.rows if r.measurement and not r.measurement.correct]
    if wrong:
        parts.append(Text(f"WRONG RESULT, so no figure: {', '.join(wrong)}", style="bold red"))
    parts += [Text(line, style="bold red") for line in _faults(result)]
    return Group(*parts, Text())


def _faults(result: LabResult) -> list[str]:
    """What the emulator found wrong."""
    lines = []
    for row in result.rows:
        if row.emulation is None:
            continue
        if row.emulation.stopped:
            lines.append(f"{row.variant}: not run to its end: {row.emulation.stopped}")
        elif not row.emulation.correct:
            lines.append(f"{row.variant}: WRONG RESULT")
        lines += [f"{row.variant}: {finding}" for finding in row.emulation.findings]
    return lines


def _columns(result: LabResult) -> list[Column[LabRow]]:
    """Those of the page; with little room the last ones go first, the four of the result never."""

    def column(index: int, header: str) -> Column[LabRow]:
        rank = max(0, index - _RESULT_COLUMNS + 1)
        justify: Literal["left", "right"] = "right" if index else "left"
        return Column(header, lambda row: _cells(result, row)[index], rank, justify)

    return [column(index, header) for index, header in enumerate(_headers(result))]


def _reasons(result: LabResult) -> list[str]:
    """Why each value is predicted; variants with one reason share a line."""
    shared: dict[str, list[str]] = {}
    for row in result.rows:
        if row.prediction is not None:
            shared.setdefault(row.prediction.reason, []).append(row.variant)
    return [f"{'; '.join(variants)}: {reason}" for reason, variants in shared.items()]


def lab_page(report: LabReport, note: str) -> str:
    """The page of an experiment as Markdown.

    Parameters
    ----------
    report
        What was measured.
    note
        What it shows, and why measurement and prediction differ where they do; Markdown.
    """
    result = report.result
    headers = _headers(result)
    lines = [f"# {result.title}", "", result.claim, ""]
    lines += [f"**{result.quantity}**, {result.unit}; predictions for {result.gpu}.", ""]
    lines += ["| " + " | ".join(headers) + " |", "|---" + "|--:" * (len(headers) - 1) + "|"]
    lines += ["| " + " | ".join(_cells(result, row)) + " |" for row in result.rows]
    lines += ["", "| variant | what differs | why that is predicted |", "|---|---|---|"]
    for row in result.rows:
        reason = row.prediction.reason if row.prediction else _NONE
        lines.append(f"| {row.variant} | {row.what} | {reason} |")
    lines += ["", note.strip(), ""]
    checks = dict.fromkeys(r.measurement.checked for r in result.rows if r.measurement)
    if checks:
        lines += [f"Checked: {'; '.join(checks)}.", ""]
    lines += [_origin(report.provenance) if report.provenance else f"Not measured: "
              f"{result.unmeasured}.", ""]  # fmt: skip
    return "\n".join(lines)


def lab_index(reports: Sequence[LabReport], waiting: Sequence[Experiment]) -> str:
    """The laboratory's index: each experiment, and how far measurement and prediction agree."""
    lines = ["# The laboratory", ""]
    lines += ["Each page: a claim, a prediction, kernels that differ in that one thing, and the"]
    lines += ["measurement. `lowgemm lab NAME` repeats it on the GPU at hand.", ""]
    lines += ["| experiment | claim | measured / predicted |", "|---|---|--:|"]
    for report in reports:
        result = report.result
        link = f"[{result.experiment}]({result.experiment}.md)"
        lines.append(f"| {link} | {result.claim} | {_range(result)} |")
    for experiment in waiting:
        lines.append(f"| {experiment.name} | {experiment.claim} | not measured yet |")
    return "\n".join([*lines, ""])


def _range(result: LabResult) -> str:
    ratios = [row.ratio for row in result.rows if row.ratio is not None]
    if not ratios:
        return _NONE
    low, high = _number(min(ratios)), _number(max(ratios))
    return low if low == high else f"{low} to {high}"


def _headers(result: LabResult) -> tuple[str, ...]:
    seen = _EMULATED if result.is_emulated else ("measured", "ratio")
    return ("variant", "predicted", *seen, "registers", *_counted(result), *_details(result))


def _cells(result: LabResult, row: LabRow) -> tuple[str, ...]:
    mix = row.code.mix if row.code else {}
    details = row.measurement.details if row.measurement else {}
    measured = (_number(row.measurement.value if row.measurement else None), _number(row.ratio))
    return (
        row.variant,
        _number(row.prediction.value if row.prediction else None),
        *(_emulated(row) if result.is_emulated else measured),
        str(row.code.registers) if row.code else _NONE,
        *(str(mix[name]) if name in mix else _NONE for name in _counted(result)),
        *(_number(details.get(name)) for name in _details(result)),
    )


def _emulated(row: LabRow) -> tuple[str, ...]:
    """The cells of a run on the emulator."""
    if row.emulation is None or row.emulation.executed is None:
        return (_NONE,) * len(_EMULATED)
    executed = row.emulation.executed
    return (
        "yes" if row.emulation.correct else "NO",
        f"{executed.instructions:,}",
        f"{executed.ffma_threads:,}",
        f"{executed.shared_wavefronts:,}",
        f"{executed.ideal_shared_wavefronts:,}",
        f"{executed.global_sectors:,}",
        f"{executed.ideal_global_sectors:,}",
        f"{executed.worst_conflict_ways} ways" if executed.worst_conflict_ways > 1 else "none",
    )


def _counted(result: LabResult) -> tuple[str, ...]:
    """The instructions that some variant has."""
    found = (name for row in result.rows if row.code for name, n in row.code.mix.items() if n)
    return tuple(dict.fromkeys(found))


def _details(result: LabResult) -> tuple[str, ...]:
    found = (name for row in result.rows if row.measurement for name in row.measurement.details)
    return tuple(dict.fromkeys(found))


def _number(value: float | None) -> str:
    """Three significant digits, or all before the point."""
    if value is None:
        return _NONE
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _origin(provenance: LabProvenance) -> str:
    p = provenance
    clock = f", {p.clock_mhz} MHz" if p.clock_mhz else ""
    return (
        f"{p.gpu}, driver {p.driver}, CUDA {p.driver_cuda}{clock}; NVRTC {p.nvrtc}; medians, "
        f"interleaved; {p.date}  \nCommand: `{p.command}`"
    )
