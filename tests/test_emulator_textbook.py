"""Kernels as textbooks write them: the emulator's results are numpy's, without a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from textbook_cases import CASES, Case

from lowgemm.emulator import Emulator
from lowgemm.hardware import Architecture

if TYPE_CHECKING:
    from lowgemm.device import Gpu

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")
#: The compiler's code for it is that for sm_86.
_SAME = {"sm_89": [pytest.mark.slow]}
EMULATED = [
    pytest.param(case, arch, id=f"{case.name}-{arch}", marks=_SAME.get(arch, []))
    for case in CASES
    for arch in ARCHS
    if Architecture.parse(arch) >= Architecture(*case.min_capability)
]


@pytest.mark.parametrize(("case", "arch"), EMULATED)
def test_emulated(case: Case, arch: str) -> None:
    """A kernel that is right runs without a finding, and its result is right."""
    with Emulator(arch) as device:
        case.run(device, device.load(case.build(arch)))


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_on_a_gpu(case: Case, gpu: Gpu) -> None:
    """The same kernels, launches and expectations hold on a GPU."""
    if gpu.capability < case.min_capability:
        pytest.skip(f"{case.name} needs compute capability {case.min_capability}")
    case.run(gpu, gpu.load(case.build(gpu.architecture)))
