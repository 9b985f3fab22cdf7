"""Check the expectations of a file, on each architecture."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lowgemm.analysis.evidence import Evidence, Place, collect_evidence
from lowgemm.analysis.expectations import (
    Expectation,
    Verdict,
    allows_external,
    allows_unknown,
    instances,
    judge,
    parse_clauses,
    read_expectations,
    select,
)
from lowgemm.analysis.sass import SassReport
from lowgemm.binary.instruction import SourceLine
from lowgemm.binary.sass import SassKernel, disassemble
from lowgemm.compiler import Build, find_own_headers
from lowgemm.errors import ExpectationError, UnknownArchitectureError
from lowgemm.gemm import RUNG_NAMES, rung
from lowgemm.hardware import Architecture
from lowgemm.studies.inspection import inspect_builds
from lowgemm.studies.targets import refuse_cubin, resolve_builds

__all__ = ["CheckReport", "Finding", "check_builds", "check_file"]

Define = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict and, where it is a failure, the instructions that it is about."""

    verdict: Verdict
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All expectations of a target on all architectures asked for.

    ``left_out`` are those for other architectures, which nobody judged.
    """

    target: str
    findings: tuple[Finding, ...]
    left_out: tuple[Expectation, ...] = ()

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that did not pass."""
        return tuple(finding for finding in self.findings if not finding.verdict.passed)

    @property
    def passed(self) -> bool:
        """Whether all expectations hold."""
        return not self.failures


def check_file(
    target: str | Path,
    archs: Sequence[str],
    *,
    expectations: Sequence[str | Expectation] = (),
    defines: Mapping[str, Define] | None = None,
    include_dirs: Sequence[str] = (),
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    nvrtc: str | None = None,
) -> CheckReport:
    """Compile a target and check what its source expects, and what the caller expects besides.

    The source is the file and those headers that it includes from its own folder.

    Parameters
    ----------
    target
        A rung's name or a ``.cu`` file.
    archs
        The architectures.
    expectations
        Further expectations, for every kernel.
    defines, include_dirs, options, name_expressions
        As in :func:`lowgemm.compiler.compile_file`. Instances of templates that expectations name
        (``// expect scale<4>: ...``) are compiled in any case.
    nvrtc
        As in :func:`lowgemm.studies.targets.resolve_builds`.

    Raises
    ------
    ExpectationError
        There are none, or none for one of the architectures; there is no architecture; one cannot
        be read, or names a kernel that is not there.
    SourceNotFoundError, CompilationError, UnknownArchitectureError, ToolNotFoundError
        See :func:`lowgemm.studies.targets.resolve_builds`.
    """
    name = str(target)
    if not archs:
        raise _no_archs(name)
    sources = dict.fromkeys(_source(name, arch) for arch in archs)
    if len(sources) > 1:  # a rung of which some architectures have another kernel
        return _merged(
            name,
            [
                check_file(
                    target,
                    [arch for arch in archs if _source(name, arch) == source],
                    expectations=expectations,
                    defines=defines,
                    include_dirs=include_dirs,
                    options=options,
                    name_expressions=name_expressions,
                    nvrtc=nvrtc,
                )
                for source in sources
            ],
        )
    (source,) = sources
    headers = find_own_headers(source, defines=defines, include_dirs=include_dirs, options=options)
    beside = [item for file in (source, *headers) for item in read_expectations(file)]
    wanted = [*beside, *_parsed(expectations)]
    builds = resolve_builds(
        name,
        archs,
        defines=defines,
        include_dirs=include_dirs,
        options=options,
        name_expressions=_instances(name, wanted, name_expressions),
        nvrtc=nvrtc,
    )
    return check_builds(name, builds, wanted)


def check_builds(
    target: str,
    builds: Sequence[Build],
    expectations: Sequence[str | Expectation],
    *,
    text: str | None = None,
) -> CheckReport:
    """Check expectations on builds that are there.

    Parameters
    ----------
    target
        What they are builds of, for people.
    builds
        One an architecture.
    expectations
        What shall hold.
    text
        The source, where it stands in no file.

    Raises
    ------
    ExpectationError
        There are none, or none for one of the architectures; there is no architecture; one cannot
        be read, or names a kernel that is not there.
    """
    wanted = _parsed(expectations)
    if not wanted:
        raise ExpectationError(
            f"{target} expects nothing",
            "write comments such as // expect: spill_store_bytes == 0; hot_loop.LDS.128 == 4",
        )
    if not builds:
        raise _no_archs(target)
    findings: list[Finding] = []
    for build, reports in zip(builds, inspect_builds(builds), strict=True):
        _check_names(wanted, reports)
        found = _findings(build, reports, wanted, text)
        if not found:
            raise ExpectationError(
                f"{target} expects nothing on {build.arch}",
                "expect something without architectures, or leave out this one",
            )
        findings += found
    left_out = [e for e in wanted if not any(e.holds_on(str(build.arch)) for build in builds)]
    return CheckReport(target, tuple(findings), tuple(left_out))


def _no_archs(target: str) -> ExpectationError:
    return ExpectationError(
        f"{target} is to be checked on no architecture", "name at least one, such as sm_90"
    )


def _merged(target: str, reports: Sequence[CheckReport]) -> CheckReport:
    return CheckReport(
        target,
        tuple(finding for report in reports for finding in report.findings),
        tuple(item for report in reports for item in report.left_out),
    )


def _source(target: str, arch: str) -> Path:
    if target.lower() in RUNG_NAMES:
        return rung(target, arch).path
    refuse_cubin(target)
    return Path(target)


def _instances(
    target: str, expectations: Sequence[Expectation], given: Sequence[str]
) -> tuple[str, ...]:
    """The instances asked for and, of a file, those that its expectations name."""
    if target.lower() in RUNG_NAMES:
        return tuple(given)
    return tuple(dict.fromkeys([*given, *instances(expectations)]))


def _parsed(expectations: Sequence[str | Expectation]) -> list[Expectation]:
    return [
        item
        for e in expectations
        for item in ((e,) if isinstance(e, Expectation) else parse_clauses(e))
    ]


def _check_names(expectations: Sequence[Expectation], reports: Sequence[SassReport]) -> None:
    for expectation in expectations:
        if not any(expectation.speaks_of(report) for report in reports):
            there = ", ".join(report.kernel for report in reports)
            origin = f"{expectation.origin}: " if expectation.origin else ""
            raise ExpectationError(
                f"{origin}there is no kernel {expectation.kernel!r}",
                f"there is {there}{_meant_architecture(expectation)}",
            )


def _meant_architecture(expectation: Expectation) -> str:
    """What to write where an architecture stands in the place of a kernel."""
    try:
        arch = Architecture.parse(expectation.kernel or "")
    except UnknownArchitectureError:
        return ""
    said = f"{expectation.path} {expectation.comparison} {expectation.wanted}"
    return f"; for an architecture write // expect: [{arch}] {said}"


# ---- what a failure shows


def _findings(
    build: Build,
    reports: Sequence[SassReport],
    expectations: Sequence[Expectation],
    text: str | None,
) -> list[Finding]:
    judged = [
        (report, judge(item, report, unknown_allowed=unknown, external_allowed=external))
        for report in reports
        for chosen in (select(expectations, report),)
        for unknown, external in ((allows_unknown(chosen), allows_external(chosen)),)
        for item in chosen
    ]
    failed = [verdict for _, verdict in judged if not verdict.passed]
    if not failed:
        return [Finding(verdict) for _, verdict in judged]
    live = any("registers" in verdict.expectation.path for verdict in failed)
    code = {k.name: k for k in disassemble(build.cubin, live_registers=live)}
    return [
        Finding(verdict)
        if verdict.passed
        else Finding(verdict, _evidence(verdict, report, code[report.symbol], text))
        for report, verdict in judged
    ]


def _evidence(
    verdict: Verdict, report: SassReport, kernel: SassKernel, text: str | None
) -> tuple[Evidence, ...]:
    found = collect_evidence(verdict.expectation.path, report, kernel)
    return tuple(
        replace(item, places=tuple(_with_source(place, text) for place in item.places))
        for item in found
    )


def _with_source(place: Place, text: str | None) -> Place:
    return place if place.line is None else replace(place, source=_line(place.line, text))


def _line(line: SourceLine, text: str | None) -> str:
    if text is not None and not Path(line.file).is_file():
        lines = text.splitlines()
        return lines[line.line - 1].strip() if line.line <= len(lines) else ""
    linecache.checkcache(line.file)
    return linecache.getline(line.file, line.line).strip()
