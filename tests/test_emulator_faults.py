"""Planted faults: the emulator finds each and names its place, and finds none in the fixed twin."""

from __future__ import annotations

import pytest
from fault_cases import CASES, FAULTS, FaultCase

from lowgemm.emulator import Emulator, Finding
from lowgemm.errors import EmulatorFindingsError

ARCHS = ("sm_80", "sm_90", "sm_120")
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
by_arch = pytest.mark.parametrize("arch", ARCHS)


def test_cases_are_complete() -> None:
    """Each source has its case, and each marked line its finding."""
    assert {case.source for case in CASES} == set(FAULTS.glob("*.cu"))
    for case in CASES:
        assert {expected.mark for expected in case.expected} == set(range(len(case.lines)))


@by_name
@by_arch
def test_fault_is_found(case: FaultCase, arch: str) -> None:
    """A fault is found with its kind, source line, CTA and thread, and nothing else is."""
    with Emulator(arch, findings="collect") as device:
        case.run(device, device.load(case.build(arch)))
        found = device.findings
    places = {(f.kind, f.line.line if f.line else None): f for f in reversed(found)}
    wanted = {(e.kind, case.lines[e.mark]): e for e in case.expected}
    assert places.keys() == wanted.keys()
    for place, expected in wanted.items():
        finding = places[place]
        assert finding.line is not None and finding.line.file.endswith(case.source.name)
        assert expected.cta in (None, finding.cta)
        assert expected.thread in (None, finding.thread)
        assert finding.count >= 1


@by_name
@by_arch
def test_fixed_twin_has_no_finding(case: FaultCase, arch: str) -> None:
    """Without its fault the same kernel gives no finding."""
    with Emulator(arch, findings="collect") as device:
        case.run(device, device.load(case.build(arch, fixed=True)))
        assert not device.findings


@by_name
def test_fault_raises(case: FaultCase) -> None:
    """Unless findings are collected, the launch raises them, and the message names the line."""
    with Emulator() as device:
        module = device.load(case.build(str(device.architecture)))
        with pytest.raises(EmulatorFindingsError) as error:
            case.run(device, module)
    found = [f for f in error.value.findings if isinstance(f, Finding)]
    assert {f.kind for f in found} == {e.kind for e in case.expected}
    assert any(f"{case.source.name}:{line}" in str(error.value) for line in case.lines)
