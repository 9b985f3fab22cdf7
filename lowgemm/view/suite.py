"""The suite of sgemm() as a table and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from lowgemm.view.columns import plain_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lowgemm.report.suite import SuiteReport, SuiteRow
    from lowgemm.studies.suite import CheckedCase

__all__ = ["checked_view", "suite_markdown", "suite_view"]

_COLUMNS = ("us", "TFLOP/s", "cuBLAS us", "ratio", "error/bound")


def suite_view(report: SuiteReport) -> RenderableType:
    """A line a shape; below, the geometric mean and the worst."""
    table = plain_table()
    table.add_column("shape", style="cyan")
    table.add_column("kernel")
    for name in _COLUMNS:
        table.add_column(name, justify="right")
    for row in report.rows:
        table.add_row(row.name, row.choice, *_cells(row), style="" if row.passed else "red")
    return Group(table, *(Text(line) for line in _summary(report)))


def checked_view(checked: Sequence[CheckedCase]) -> RenderableType:
    """A line a shape that was judged and not timed."""
    table = plain_table()
    for name in ("shape", "kernel", "exact", "same bits"):
        table.add_column(name)
    table.add_column("error/bound", justify="right")
    for each in checked:
        check = each.check
        words = ["yes" if good else "NO" for good in (check.exact, check.same_bits)]
        table.add_row(
            each.case.name,
            each.choice,
            *words,
            f"{check.error_over_bound:.3f}",
            style="" if check.passed else "red",
        )
    wrong = sum(not each.check.passed for each in checked)
    return Group(table, Text(f"{len(checked)} shapes, {wrong} wrong"))


def suite_markdown(report: SuiteReport) -> str:
    """A table a group, for a page."""
    parts = []
    for group in dict.fromkeys(row.group for row in report.rows):
        rows = [row for row in report.rows if row.group == group]
        head = "| shape | kernel | " + " | ".join(_COLUMNS) + " |"
        line = "|---|---|" + "---:|" * len(_COLUMNS)
        body = [f"| {row.name} | {row.choice} | {' | '.join(_cells(row))} |" for row in rows]
        parts.append("\n".join([f"**{group}**", "", head, line, *body, ""]))
    return "\n".join([*parts, "  \n".join(_summary(report)), ""])


def _cells(row: SuiteRow) -> tuple[str, ...]:
    error = "-" if row.error_over_bound is None else f"{row.error_over_bound:.3f}"
    if not row.passed:
        error = "WRONG"
    return (
        f"{row.time_us:,.2f}" if row.time_us < 100 else f"{row.time_us:,.0f}",
        f"{row.tflops:.1f}",
        f"{row.cublas_us:,.2f}" if row.cublas_us < 100 else f"{row.cublas_us:,.0f}",
        f"{row.ratio:.3f}",
        error,
    )


def _summary(report: SuiteReport) -> list[str]:
    if not report.rows:
        return ["no shape"]
    worst = min(report.rows, key=lambda row: row.ratio)
    below = [f"{row.name} {row.ratio:.2f}" for row in report.rows if row.ratio < 1]
    lines = [
        f"{len(report.rows)} shapes; cuBLAS's time over ours: geometric mean "
        f"{report.geometric_mean:.3f}, worst {worst.ratio:.3f} ({worst.name})"
    ]
    if below:
        lines.append(f"below 1: {', '.join(below)}")
    facts = report.facts
    if facts:
        lines.append(
            f"{facts.get('gpu')}, driver {facts.get('driver')}, cuBLAS {facts.get('cublas')}, "
            f"{facts.get('date')}: {facts.get('command')}"
        )
    return lines
