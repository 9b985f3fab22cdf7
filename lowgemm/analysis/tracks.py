"""A kernel and its loops through several builds, side by side: figures and counts of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lowgemm.analysis.difference import kernel_figures, loop_figures, match_loops
from lowgemm.analysis.sass import LoopReport, SassReport
from lowgemm.binary import demangle

__all__ = [
    "KernelTrack",
    "LoopTrack",
    "TrackRow",
    "own_name",
    "track_architectures",
    "track_kernel",
]


@dataclass(frozen=True, slots=True)
class TrackRow:
    """A figure or the count of an instruction, with its value in each build.

    None stands where it is not known, or where a build's kernel has no such loop.
    """

    name: str
    values: tuple[float | None, ...]

    @property
    def changed(self) -> bool:
        """Whether the values that are known differ."""
        return len({value for value in self.values if value is not None}) > 1


@dataclass(frozen=True, slots=True)
class LoopTrack:
    """A loop in each build (None where there is none), and all that can be said of it."""

    loops: tuple[LoopReport | None, ...]
    hot: bool
    rows: tuple[TrackRow, ...]

    @property
    def changed(self) -> bool:
        """Whether a build lacks the loop or differs in anything."""
        return None in self.loops or any(row.changed for row in self.rows)


@dataclass(frozen=True, slots=True)
class KernelTrack:
    """A kernel in each build; ``archs`` are their architectures."""

    kernel: str
    archs: tuple[str, ...]
    rows: tuple[TrackRow, ...]
    loops: tuple[LoopTrack, ...]

    @property
    def changed(self) -> bool:
        """Whether any build differs from another in anything."""
        return any(row.changed for row in self.rows) or any(loop.changed for loop in self.loops)


def own_name(report: SassReport) -> str:
    """The name that tells a kernel from others of its source: with parameters, where it has any.

    Overloads share the rest. Releases number an anonymous namespace differently, so the mangled
    name does not do.
    """
    return demangle(report.symbol) or report.kernel


def track_kernel(reports: Sequence[SassReport]) -> KernelTrack:
    """Follow a kernel and its loops through builds: releases of a compiler, or architectures."""
    rows = [
        *_rows([kernel_figures(report) for report in reports]),
        *_rows([report.mix for report in reports], missing=0),
    ]
    loops = tuple(_loop_track(track, reports) for track in _tracks(reports))
    archs = tuple(report.arch for report in reports)
    return KernelTrack(reports[0].kernel, archs, tuple(rows), loops)


def _loop_track(track: Sequence[int | None], reports: Sequence[SassReport]) -> LoopTrack:
    loops = tuple(
        None if index is None else report.loops[index]
        for index, report in zip(track, reports, strict=True)
    )
    rows = [
        *_rows([{} if loop is None else loop_figures(loop) for loop in loops]),
        *_rows([None if loop is None else loop.mix for loop in loops], missing=0),
    ]
    hot = any(
        index is not None and index == report.hot_loop
        for index, report in zip(track, reports, strict=True)
    )
    return LoopTrack(loops, hot, tuple(rows))


def _tracks(reports: Sequence[SassReport]) -> list[list[int | None]]:
    """The index of each loop in each build: matched from one build to the next."""
    tracks: list[list[int | None]] = [[loop.index] for loop in reports[0].loops]
    for step, (before, after) in enumerate(pairwise(reports), start=1):
        partner = {a: b for a, b in match_loops(before, after) if a is not None}
        for track in tracks:
            last = track[-1]
            track.append(None if last is None else partner.get(last))
        matched = {b for b in partner.values() if b is not None}
        new = [loop.index for loop in after.loops if loop.index not in matched]
        tracks += [[*[None] * step, index] for index in new]
    return tracks


def _rows(
    columns: Sequence[Mapping[str, float | None] | Mapping[str, int] | None],
    missing: float | None = None,
) -> Iterable[TrackRow]:
    """A row for each name of any column; ``missing`` is the value of a name that a column lacks."""
    names = dict.fromkeys(name for column in columns if column is not None for name in column)
    for name in names:
        values = (None if column is None else column.get(name, missing) for column in columns)
        yield TrackRow(name, tuple(values))


def track_architectures(reports: Sequence[SassReport]) -> tuple[KernelTrack, ...]:
    """Follow kernels through the architectures that they were compiled for."""
    by_name: dict[str, list[SassReport]] = {}
    for report in reports:
        by_name.setdefault(own_name(report), []).append(report)
    return tuple(track_kernel(same) for same in by_name.values())
