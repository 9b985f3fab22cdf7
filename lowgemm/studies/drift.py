"""What each release of NVRTC makes of the same source, per kernel and loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

from lowgemm.analysis import LoopReport, SassReport, analyse_build
from lowgemm.analysis.difference import kernel_figures, loop_figures, match_loops
from lowgemm.binary import demangle
from lowgemm.binary.sass import disassemble
from lowgemm.compiler import Build
from lowgemm.errors import ArgumentValueError, ToolFailedError
from lowgemm.studies.inspection import inspect_build
from lowgemm.studies.releases import Release, compile_with, find_release

__all__ = ["Drift", "DriftRow", "KernelDrift", "LoopDrift", "drift", "trace_drift"]


@dataclass(frozen=True, slots=True)
class DriftRow:
    """A figure or the count of an instruction, with its value in each release.

    None stands where it is not known, or where a release's kernel has no such loop.
    """

    name: str
    values: tuple[float | None, ...]

    @property
    def changed(self) -> bool:
        """Whether the values that are known differ."""
        return len({value for value in self.values if value is not None}) > 1


@dataclass(frozen=True, slots=True)
class LoopDrift:
    """A loop in each release (None where there is none), and all that can be said of it."""

    loops: tuple[LoopReport | None, ...]
    hot: bool
    rows: tuple[DriftRow, ...]

    @property
    def changed(self) -> bool:
        """Whether a release lacks the loop or differs in anything."""
        return None in self.loops or any(row.changed for row in self.rows)


@dataclass(frozen=True, slots=True)
class KernelDrift:
    """A kernel on an architecture in each release."""

    kernel: str
    arch: str
    rows: tuple[DriftRow, ...]
    loops: tuple[LoopDrift, ...]

    @property
    def changed(self) -> bool:
        """Whether any release differs from another in anything."""
        return any(row.changed for row in self.rows) or any(loop.changed for loop in self.loops)


@dataclass(frozen=True, slots=True)
class Drift:
    """A target's kernels over releases of NVRTC, all read with one nvdisasm."""

    target: str
    nvrtc_versions: tuple[str, ...]
    kernels: tuple[KernelDrift, ...]


def drift(
    target: str,
    nvrtc: Sequence[str],
    archs: Sequence[str],
    *,
    defines: Mapping[str, str | int | float | bool | None] | None = None,
    include_dirs: Sequence[str] = (),
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
) -> Drift:
    """Compile a target with several releases of NVRTC and set the results side by side.

    Parameters
    ----------
    target
        A rung's name or a ``.cu`` file.
    nvrtc
        The releases, in order: ``"12.9"``, ``"13.0"``.
    archs
        The architectures.
    defines, include_dirs, options, name_expressions
        As in :func:`lowgemm.compiler.compile_file`.

    Raises
    ------
    ArgumentValueError
        There are fewer than two releases, or one is no version.
    ToolNotFoundError
        A release is not there and cannot be fetched.
    CompilationError, UnknownArchitectureError, SourceNotFoundError
        A release does not compile the target.
    ToolFailedError, ToolTimeoutError
        A release crashed or did not end.
    """
    wanted = list(dict.fromkeys(nvrtc))
    if len(wanted) < 2:
        raise ArgumentValueError(
            f"{len(wanted)} releases of NVRTC to compare", "name two or more: 12.9,13.0"
        )
    releases = [find_release(name) for name in wanted]

    def reports(release: Release) -> list[SassReport]:
        builds = compile_with(
            release,
            target,
            archs,
            defines=defines,
            include_dirs=include_dirs,
            options=options,
            name_expressions=name_expressions,
        )
        return [report for build in builds for report in _inspect(build)]

    with ThreadPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(reports, releases))
    versions = tuple(release.version for release in releases)
    return Drift(target, versions, trace_drift(found))


def _inspect(build: Build) -> tuple[SassReport, ...]:
    """nvdisasm 13 counts no live registers in cubins of NVRTC 12: these reports go without."""
    try:
        return inspect_build(build)
    except ToolFailedError:
        return analyse_build(build, disassemble(build.cubin, live_registers=False))


def trace_drift(releases: Sequence[Sequence[SassReport]]) -> tuple[KernelDrift, ...]:
    """Follow kernels and their loops through releases, on each architecture.

    Parameters
    ----------
    releases
        The reports of each release. A kernel that one of them lacks is left out.
    """
    by_key = [{_key(report): report for report in reports} for reports in releases]
    everywhere = [key for key in by_key[0] if all(key in reports for reports in by_key)]
    return tuple(_kernel_drift([reports[key] for reports in by_key]) for key in everywhere)


def _key(report: SassReport) -> tuple[str, str]:
    """A kernel's own name: with parameters, as overloads share the rest.

    Releases number an anonymous namespace differently, so the mangled name does not do.
    """
    return demangle(report.symbol) or report.kernel, report.arch


def _kernel_drift(reports: Sequence[SassReport]) -> KernelDrift:
    rows = [
        *_rows([kernel_figures(report) for report in reports]),
        *_rows([report.mix for report in reports], missing=0),
    ]
    loops = tuple(_loop_drift(track, reports) for track in _tracks(reports))
    return KernelDrift(reports[0].kernel, reports[0].arch, tuple(rows), loops)


def _loop_drift(track: Sequence[int | None], reports: Sequence[SassReport]) -> LoopDrift:
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
    return LoopDrift(loops, hot, tuple(rows))


def _tracks(reports: Sequence[SassReport]) -> list[list[int | None]]:
    """The index of each loop in each release: matched from one release to the next."""
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
) -> Iterable[DriftRow]:
    """A row for each name of any column; ``missing`` is the value of a name that a column lacks."""
    names = dict.fromkeys(name for column in columns if column is not None for name in column)
    for name in names:
        values = (None if column is None else column.get(name, missing) for column in columns)
        yield DriftRow(name, tuple(values))
