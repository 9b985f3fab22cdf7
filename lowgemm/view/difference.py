"""Differences between two builds, as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lowgemm.analysis import LoopReport, SassReport
from lowgemm.analysis.difference import BuildDifference, Change, Difference, LoopDifference

__all__ = ["NAMED_MOVES", "difference_data", "difference_text", "figure_text", "loop_name"]

_UNKNOWN = "unknown"
_SHARES = ("ffma_share",)
_MOST_RATES = 8
#: Instructions whose name says that they move.
NAMED_MOVES = ("MOV", "UMOV", "CS2R")


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
    yield from _mix_lines(kernel.mix, kernel.before, kernel.after)
    for loop in kernel.loops:
        if loop.before is not None and loop.after is not None:
            yield from _loop_lines(loop.before, loop.after, loop, kernel)
    for sign, loops, report in (
        ("-", [loop.before for loop in kernel.loops if loop.after is None], kernel.before),
        ("+", [loop.after for loop in kernel.loops if loop.before is None], kernel.after),
    ):
        yield from _single_lines(sign, [loop for loop in loops if loop is not None], report)


def _kernel_name(before: SassReport, after: SassReport) -> str:
    name = before.kernel if before.kernel == after.kernel else f"{before.kernel} -> {after.kernel}"
    arch = before.arch if before.arch == after.arch else f"{before.arch} -> {after.arch}"
    return f"{name}  {arch}"


def _loop_lines(
    before: LoopReport, after: LoopReport, loop: LoopDifference, kernel: Difference
) -> Iterator[str]:
    names = loop_name(before, kernel.before), loop_name(after, kernel.after)
    if not loop.changed:
        yield f"  {names[1]}: nothing changed"
        return
    yield f"  {' -> '.join(dict.fromkeys(names))}"
    yield from _change_lines(loop.figures, "    ")
    yield from _mix_lines(loop.mix, before, after, "    ")
    if loop.unit and before.mix[loop.unit] != after.mix[loop.unit]:
        yield f"    by 1000 {loop.unit} ({before.mix[loop.unit]} -> {after.mix[loop.unit]})"
        yield from _change_lines(loop.per_thousand[:_MOST_RATES], "      ")
        if not loop.per_thousand:
            yield "      nothing changed"
        elif len(loop.per_thousand) > _MOST_RATES:
            yield f"      and {len(loop.per_thousand) - _MOST_RATES} smaller changes"


def _single_lines(sign: str, loops: Sequence[LoopReport], report: SassReport) -> Iterator[str]:
    """Loops that only one side has; those of one length as one line."""
    by_length: dict[int, list[LoopReport]] = {}
    for loop in loops:
        by_length.setdefault(loop.instructions, []).append(loop)
    for alike in by_length.values():
        name = loop_name(alike[0], report)
        if len(alike) > 1:
            yield f"  {sign} {len(alike)} loops, the first {name}, {_size(alike[0])}"
        else:
            yield f"  {sign} {name}, {_size(alike[0])}"


def _size(loop: LoopReport) -> str:
    return f"{loop.instructions} instructions, {100 * loop.ffma_share:.1f} % FFMA"


def loop_name(loop: LoopReport, report: SassReport) -> str:
    """A loop for people: its number, its addresses, whether it is the hot one."""
    hot = ", hot" if loop.index == report.hot_loop else ""
    return f"loop {loop.index} ({loop.start:#06x}-{loop.end:#06x}{hot})"


def _change_lines(changes: Sequence[Change], indent: str = "  ") -> Iterator[str]:
    """A line a change that can be seen: a share may differ by less than is shown."""
    for change in changes:
        before, after = (figure_text(change.name, v) for v in (change.before, change.after))
        if before != after:
            line = f"{indent}{change.name:<18} {before:>8} -> {after:>8}   {_delta(change)}"
            yield line.rstrip()


def _mix_lines(
    changes: Sequence[Change],
    before: SassReport | LoopReport,
    after: SassReport | LoopReport,
    indent: str = "  ",
) -> Iterator[str]:
    """The same of instructions; of those that may stand for moves, how many do."""
    for change in changes:
        (line,) = _change_lines([change], indent)
        moves = [report.move_mix.get(change.name, 0) for report in (before, after)]
        is_said = change.name in NAMED_MOVES or not any(moves)
        yield line if is_said else f"{line}   (moves {moves[0]} -> {moves[1]})"


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
                "unit": loop.unit or None,
                "per_thousand": _changes_data(loop.per_thousand),
            }
            for loop in kernel.loops
        ],
    }


def _place(loop: LoopReport | None) -> dict[str, int] | None:
    return None if loop is None else {"index": loop.index, "start": loop.start, "end": loop.end}


def _changes_data(changes: Sequence[Change]) -> dict[str, Any]:
    return {c.name: {"before": c.before, "after": c.after} for c in changes}
