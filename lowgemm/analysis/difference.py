"""What came and went between two pieces of machine code, per kernel and per loop.

Loops are matched by what they consist of, however often it is unrolled, and by where they stand.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lowgemm.analysis.sass import LoopReport, SassReport

__all__ = [
    "BuildDifference",
    "Change",
    "Difference",
    "LoopDifference",
    "compare_builds",
    "compare_reports",
    "kernel_figures",
    "loop_figures",
    "match_loops",
    "per_thousand",
]

_KERNEL_FIGURES = (
    "registers",
    "registers_live",
    "shared_bytes",
    "stack_bytes",
    "spill_store_bytes",
    "spill_load_bytes",
    "instructions",
    "ffma_share",
    "moves",
    "code_bytes",
)
_LOOP_FIGURES = ("instructions", "ffma_share", "moves", "conflict_cycles", "registers_live")
# Of the resemblance of two loops; less than the last is none.
_WEIGHT_MIX, _WEIGHT_HOT, _WEIGHT_PLACE, _WEIGHT_DEPTH = 0.6, 0.15, 0.15, 0.1
_LEAST_RESEMBLANCE = 0.5


@dataclass(frozen=True, slots=True)
class Change:
    """A figure, or the count of an instruction, before and after."""

    name: str
    before: float
    after: float

    @property
    def delta(self) -> float:
        """After minus before."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class LoopDifference:
    """A loop before and after, or one that only one side has; ``changes`` has what differs.

    ``figures`` are those that changed, ``mix`` the instructions whose counts did. A loop that came
    or went has all its instructions in ``mix``.

    Where ``unit``, an instruction of both, occurs more or less often, ``per_thousand`` compares the
    others by 1000 of it: what is left of the difference when a loop was only unrolled otherwise.
    ``unit`` is FFMA if both have it, else the most frequent of both, else empty.
    """

    before: LoopReport | None
    after: LoopReport | None
    figures: tuple[Change, ...]
    mix: tuple[Change, ...]
    unit: str = ""
    per_thousand: tuple[Change, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything differs but where the loop stands."""
        return bool(self.figures or self.mix)


@dataclass(frozen=True, slots=True)
class Difference:
    """A kernel before and after."""

    before: SassReport
    after: SassReport
    figures: tuple[Change, ...]
    mix: tuple[Change, ...]
    loops: tuple[LoopDifference, ...]

    @property
    def changed(self) -> bool:
        """Whether anything differs."""
        return bool(self.figures or self.mix or any(loop.changed for loop in self.loops))


@dataclass(frozen=True, slots=True)
class BuildDifference:
    """All kernels of two builds: those in both, and those in one alone."""

    kernels: tuple[Difference, ...]
    gone: tuple[SassReport, ...] = ()
    came: tuple[SassReport, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything differs."""
        return bool(self.gone or self.came or any(kernel.changed for kernel in self.kernels))


def kernel_figures(report: SassReport) -> dict[str, float | None]:
    """A kernel's figures by name."""
    return {name: getattr(report, name) for name in _KERNEL_FIGURES}


def loop_figures(loop: LoopReport) -> dict[str, float | None]:
    """A loop's figures by name."""
    return {name: getattr(loop, name) for name in _LOOP_FIGURES}


def compare_builds(before: Sequence[SassReport], after: Sequence[SassReport]) -> BuildDifference:
    """Compare the same kernels; else those of one name, template, or arguments, or the only ones.

    Of kernels that no such rule pairs, those before went and those after came.
    """
    pairs: list[tuple[SassReport, SassReport]] = []
    gone, came = list(before), list(after)
    for key in (_symbol, _name, _template, _arguments, lambda report: ""):
        for report in list(gone):
            same = [other for other in came if key(other) == key(report)]
            alike = [other for other in gone if key(other) == key(report)]
            if len(same) == len(alike) == 1:
                pairs.append((report, same[0]))
                gone.remove(report)
                came.remove(same[0])
    pairs.sort(key=lambda pair: before.index(pair[0]))
    kernels = tuple(compare_reports(*pair) for pair in pairs)
    return BuildDifference(kernels, tuple(gone), tuple(came))


def _symbol(report: SassReport) -> str:
    return report.symbol or report.kernel


def _name(report: SassReport) -> str:
    return report.kernel


def _template(report: SassReport) -> str:
    return report.kernel.partition("<")[0]


def _arguments(report: SassReport) -> str:
    return report.kernel.partition("<")[2]


def compare_reports(before: SassReport, after: SassReport) -> Difference:
    """Compare two kernels."""
    loops = tuple(
        _compare_loops(
            None if a is None else before.loops[a], None if b is None else after.loops[b]
        )
        for a, b in match_loops(before, after)
    )  # fmt: skip
    return Difference(
        before,
        after,
        _changes(kernel_figures(before), kernel_figures(after)),
        _mix_changes(before.mix, after.mix),
        loops,
    )


def _compare_loops(before: LoopReport | None, after: LoopReport | None) -> LoopDifference:
    figures: tuple[Change, ...] = ()
    if before is not None and after is not None:
        figures = _changes(loop_figures(before), loop_figures(after))
    old, new = before.mix if before else {}, after.mix if after else {}
    unit = _unit(old, new)
    rates: tuple[Change, ...] = ()
    if unit and old[unit] != new[unit]:
        rates = _mix_changes(_tenths(per_thousand(old, unit)), _tenths(per_thousand(new, unit)))
    return LoopDifference(before, after, figures, _mix_changes(old, new), unit, rates)


def _unit(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """The instruction by which loops that were unrolled otherwise compare."""
    common = [name for name in before if name in after]
    if "FFMA" in common:
        return "FFMA"
    return max(common, key=lambda name: min(before[name], after[name]), default="")


def per_thousand(mix: Mapping[str, int], unit: str) -> dict[str, float]:
    """How often each instruction occurs by 1000 of one of them; empty without it."""
    count = mix.get(unit, 0)
    return {name: 1000 * n / count for name, n in mix.items()} if count else {}


def _tenths(rates: Mapping[str, float]) -> dict[str, float]:
    return {name: round(rate, 1) for name, rate in rates.items()}


def _changes(
    before: Mapping[str, float | None], after: Mapping[str, float | None]
) -> tuple[Change, ...]:
    """The figures that differ; one that nobody knows on a side is no change."""
    pairs = ((name, old, after[name]) for name, old in before.items())
    return tuple(
        Change(name, old, new)
        for name, old, new in pairs
        if old is not None and new is not None and old != new
    )


def _mix_changes(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Change, ...]:
    """The instructions whose counts differ, the largest difference first."""
    changes = [
        Change(name, before.get(name, 0), after.get(name, 0))
        for name in dict.fromkeys((*before, *after))
        if before.get(name, 0) != after.get(name, 0)
    ]
    return tuple(sorted(changes, key=lambda change: (-abs(change.delta), change.name)))


# ---- which loop is which


def match_loops(before: SassReport, after: SassReport) -> tuple[tuple[int | None, int | None], ...]:
    """Pairs of loops' indices, best resemblance first taken, in the order of the loops after.

    None stands for a loop that only the other side has; those that went come last.
    """
    candidates = sorted(
        (
            (_resemblance(before, a, after, b), -abs(a.index - b.index), a.index, b.index)
            for a in before.loops
            for b in after.loops
        ),
        reverse=True,
    )
    partner: dict[int, int] = {}
    for score, _, a, b in candidates:
        if score >= _LEAST_RESEMBLANCE and b not in partner and a not in partner.values():
            partner[b] = a
    gone = [a.index for a in before.loops if a.index not in partner.values()]
    return (
        *((partner.get(b.index), b.index) for b in after.loops),
        *((a, None) for a in gone),
    )


def _resemblance(before: SassReport, a: LoopReport, after: SassReport, b: LoopReport) -> float:
    """Between 0 and 1; the mix counts by its proportions, so that unrolling changes little."""
    place_a, place_b = (
        loop.index / max(1, len(report.loops) - 1) for report, loop in ((before, a), (after, b))
    )
    same_heat = (a.index == before.hot_loop) == (b.index == after.hot_loop)
    return (
        _WEIGHT_MIX * _cosine(_by_name(a.mix), _by_name(b.mix))
        + _WEIGHT_HOT * same_heat
        + _WEIGHT_PLACE * (1 - abs(place_a - place_b))
        + _WEIGHT_DEPTH * (a.depth == b.depth)
    )


def _by_name(mix: Mapping[str, int]) -> Counter[str]:
    """Counts without widths: wide loads that became narrow are still loads."""
    counts: Counter[str] = Counter()
    for name, count in mix.items():
        counts[name.partition(".")[0]] += count
    return counts


def _cosine(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    length = _length(a.values()) * _length(b.values())
    return sum(count * b.get(name, 0) for name, count in a.items()) / length if length else 0.0


def _length(counts: Iterable[int]) -> float:
    return math.sqrt(sum(count * count for count in counts))
