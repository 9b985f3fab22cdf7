"""What each release of NVRTC makes of the same source, per kernel and loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lowgemm.analysis import SassReport
from lowgemm.analysis.tracks import KernelTrack, own_name, track_kernel
from lowgemm.errors import ArgumentValueError
from lowgemm.studies.inspection import inspect_build
from lowgemm.studies.releases import Release, compile_with, find_release
from lowgemm.studies.targets import refuse_cubin

__all__ = ["Drift", "drift", "trace_drift"]


@dataclass(frozen=True, slots=True)
class Drift:
    """A target's kernels over releases of NVRTC, all read with one nvdisasm."""

    target: str
    nvrtc_versions: tuple[str, ...]
    kernels: tuple[KernelTrack, ...]


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
    refuse_cubin(target)
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
        return [report for build in builds for report in inspect_build(build)]

    with ThreadPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(reports, releases))
    versions = tuple(release.version for release in releases)
    return Drift(target, versions, trace_drift(found))


def trace_drift(releases: Sequence[Sequence[SassReport]]) -> tuple[KernelTrack, ...]:
    """Follow kernels and their loops through releases, on each architecture.

    Parameters
    ----------
    releases
        The reports of each release. A kernel that one of them lacks is left out.
    """
    by_key = [{(own_name(r), r.arch): r for r in reports} for reports in releases]
    everywhere = [key for key in by_key[0] if all(key in reports for reports in by_key)]
    return tuple(track_kernel([reports[key] for reports in by_key]) for key in everywhere)
