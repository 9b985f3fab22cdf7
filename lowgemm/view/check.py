"""Checks of expectations, as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from lowgemm.analysis.evidence import Evidence, Place
from lowgemm.studies.checking import CheckReport, Finding

__all__ = ["check_data", "check_text"]

_MOST_PLACES = 3


def check_text(reports: Sequence[CheckReport]) -> str:
    """A line a kernel and architecture where all holds; below it what does not, and why."""
    return "\n".join(line for report in reports for line in _report_lines(report))


def _report_lines(report: CheckReport) -> Iterator[str]:
    def group(finding: Finding) -> tuple[str, str]:
        return finding.verdict.arch, finding.verdict.kernel

    for (arch, kernel), found in groupby(report.findings, group):
        findings = list(found)
        held = sum(finding.verdict.passed for finding in findings)
        yield f"{report.target}  {arch}  {kernel}: {held} of {len(findings)} expectations hold"
        for finding in findings:
            if not finding.verdict.passed:
                yield from _failure_lines(finding)
    if report.left_out:
        many = len(report.left_out)
        archs = dict.fromkeys(str(arch) for item in report.left_out for arch in item.archs)
        what = f"{many} {'expectation' if many == 1 else 'expectations'} left out"
        yield f"{report.target}: {what}, for other architectures alone: {', '.join(archs)}"


def _failure_lines(finding: Finding) -> Iterator[str]:
    verdict = finding.verdict
    origin = verdict.expectation.origin
    yield f"  FAILED {verdict.expectation}: {verdict.reason}"
    if origin is not None:
        yield f"    expected at {origin.short}"
    for evidence in finding.evidence:
        yield from _evidence_lines(evidence)


def _evidence_lines(evidence: Evidence) -> Iterator[str]:
    yield f"    {evidence.count} x {evidence.kind} {evidence.where}"
    for place in evidence.places[:_MOST_PLACES]:
        yield f"      {_place(place)}"
        yield f"        {place.address:#06x}  {place.text}"
    rest = len(evidence.places) - _MOST_PLACES
    if rest > 0:
        yield f"      and from {rest} further lines"


def _place(place: Place) -> str:
    if place.line is None:
        return f"{place.count} x (no line)"
    source = f"  {place.source}" if place.source else ""
    return f"{place.count} x {place.line.short}{source}"


def check_data(reports: Sequence[CheckReport]) -> list[dict[str, Any]]:
    """Each verdict as plain data."""
    return [_finding_data(report, finding) for report in reports for finding in report.findings]


def _finding_data(report: CheckReport, finding: Finding) -> dict[str, Any]:
    verdict = finding.verdict
    origin = verdict.expectation.origin
    return {
        "target": report.target,
        "kernel": verdict.kernel,
        "arch": verdict.arch,
        "expectation": str(verdict.expectation),
        "origin": None if origin is None else str(origin),
        "actual": verdict.actual,
        "passed": verdict.passed,
        "reason": verdict.reason,
        "evidence": [_evidence_data(evidence) for evidence in finding.evidence],
    }


def _evidence_data(evidence: Evidence) -> dict[str, Any]:
    return {
        "kind": evidence.kind,
        "where": evidence.where,
        "count": evidence.count,
        "places": [
            {
                "line": None if place.line is None else str(place.line),
                "source": place.source,
                "count": place.count,
                "address": place.address,
                "instruction": place.text,
            }
            for place in evidence.places
        ],
    }
