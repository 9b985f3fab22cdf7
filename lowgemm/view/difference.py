"""Differences between two builds, as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lowgemm.analysis import LoopReport, SassReport
from lowgemm.analysis.difference import BuildDifference, Change, Difference, LoopDifference

__all__ = ["difference_data", "difference_text", "figure_text", "loop_name"]

_UNKNOWN = "unknown"
_SHARES = ("ffma_share",)


def difference_text(difference: BuildDifference, before: str, after: str) -> str:
    """What came and went, a block a kernel and loop.

    Parameters
    ----------
    difference
        The record.
    before, after
        What was compared, for people.
    """
    lines = [f"- {before}", f"+ {after}"]
    for kernel in difference.kernels:
        lines += ["", *_kernel_lines(kernel)]
    for sign, reports in (("-", difference.gone), ("+", difference.came)):
        lines += [f"{sign} kernel {r.kernel} ({r.arch}, {r.instructions} instructions)"
                  for r in reports]  # fmt: skip
    return "\n".join(lines)


def _kernel_lines(kernel: Difference) -> Iterator[str]:
    yield _kernel_name(kernel.before, kernel.after)
    if not kernel.changed:
        yield "  nothing changed"
        return
    yield from _change_lines(kernel.figures)
    yield from _change_lines(kernel.mix)
    for loop in kernel.loops:
        yield from _loop_lines(loop, kernel)


def _kernel_name(before: SassReport, after: SassReport) -> str:
    name = before.kernel if before.kernel == after.kernel else f"{before.kernel} -> {after.kernel}"
    arch = before.arch if before.arch == after.arch else f"{before.arch} -> {after.arch}"
    return f"{name}  {arch}"


def _loop_lines(loop: LoopDifference, kernel: Difference) -> Iterator[str]:
    before = loop_name(loop.before, kernel.before) if loop.before else ""
    after = loop_name(loop.after, kernel.after) if loop.after else ""
    if loop.before is None:
        yield f"  + {after}, {_size(loop.after)}"
    elif loop.after is None:
        yield f"  - {before}, {_size(loop.before)}"
    elif not loop.changed:
        yield f"  {after}: nothing changed"
    else:
        yield f"  {before}" if before == after else f"  {before} -> {after}"
        yield from _change_lines(loop.figures, "    ")
        yield from _change_lines(loop.mix, "    ")


def _size(loop: LoopReport | None) -> str:
    if loop is None:
        return ""
    return f"{loop.instructions} instructions, {100 * loop.ffma_share:.1f} % FFMA"


def loop_name(loop: LoopReport, report: SassReport) -> str:
    """A loop for people: its number, its addresses, whether it is the hot one."""
    hot = ", hot" if loop.index == report.hot_loop else ""
    return f"loop {loop.index} ({loop.start:#06x}-{loop.end:#06x}{hot})"


def _change_lines(changes: Sequence[Change], indent: str = "  ") -> Iterator[str]:
    for change in changes:
        before, after = (figure_text(change.name, v) for v in (change.before, change.after))
        yield f"{indent}{change.name:<18} {before:>8} -> {after:>8}   {_delta(change)}".rstrip()


def _delta(change: Change) -> str:
    if change.name in _SHARES:
        return f"{100 * change.delta:+.1f} points"
    return f"{change.delta:+g}"


def figure_text(name: str, value: float | None) -> str:
    """A figure as people read it: a share in per cent, a count as it is."""
    if value is None:
        return _UNKNOWN
    return f"{100 * value:.1f} %" if name in _SHARES else f"{value:g}"


def difference_data(difference: BuildDifference) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "changed": difference.changed,
        "kernels": [_kernel_data(kernel) for kernel in difference.kernels],
        "gone": [report.kernel for report in difference.gone],
        "came": [report.kernel for report in difference.came],
    }


def _kernel_data(kernel: Difference) -> dict[str, Any]:
    return {
        "before": {"kernel": kernel.before.kernel, "arch": kernel.before.arch},
        "after": {"kernel": kernel.after.kernel, "arch": kernel.after.arch},
        "changed": kernel.changed,
        "figures": _changes_data(kernel.figures),
        "mix": _changes_data(kernel.mix),
        "loops": [
            {
                "before": _place(loop.before),
                "after": _place(loop.after),
                "figures": _changes_data(loop.figures),
                "mix": _changes_data(loop.mix),
            }
            for loop in kernel.loops
        ],
    }


def _place(loop: LoopReport | None) -> dict[str, int] | None:
    return None if loop is None else {"index": loop.index, "start": loop.start, "end": loop.end}


def _changes_data(changes: Sequence[Change]) -> dict[str, Any]:
    return {c.name: {"before": c.before, "after": c.after} for c in changes}
