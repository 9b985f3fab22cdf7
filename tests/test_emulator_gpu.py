"""The emulator against a GPU: one cubin, the same operands, the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lowgemm.emulator import ARCHITECTURES, Emulator
from lowgemm.gemm import (
    RUNG_NAMES,
    GemmProblem,
    RungKernel,
    compile_rung,
    poisoned,
    random_operands,
    rung,
)
from lowgemm.runtime import Device
from lowgemm.studies.lab import EXPERIMENTS, SmallSetup, compile_variants, find_experiment
from lowgemm.studies.ladder import upload_operands

if TYPE_CHECKING:
    from lowgemm.compiler import Build
    from lowgemm.device import Gpu

pytestmark = pytest.mark.gpu

#: Whole tiles; ragged on every side; odd leading dimensions.
SHAPES = (
    GemmProblem(256, 256, 256),
    GemmProblem(131, 77, 95),
    GemmProblem(150, 130, 70, lda=71, ldb=133, ldc=137),
)
SCALES = (1, 2, 3)


@pytest.fixture
def emulator(gpu: Gpu) -> Emulator:
    """One that runs the GPU's own code; it stops at a finding."""
    if str(gpu.architecture) not in ARCHITECTURES:
        pytest.skip(f"the emulator does not run code of {gpu.architecture}")
    return Emulator(gpu.architecture, instructions=200_000_000)


def bits(values: NDArray[Any]) -> NDArray[np.uint32]:
    """An array's words."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint32)


def difference(ours: NDArray[Any], theirs: NDArray[Any]) -> str:
    """Where two results differ; nothing if they do not."""
    a, b = bits(ours), bits(theirs)
    if np.array_equal(a, b):
        return ""
    where = np.flatnonzero(a != b)
    first = int(where[0])
    return f"{len(where)} of {a.size} words, first {first}: {a[first]:#x} for {b[first]:#x}"


def rung_result(device: Device, name: str, build: Build, problem: GemmProblem) -> NDArray[Any]:
    """C with its gaps, on random operands; persistent rungs share the work as a GPU's blocks do."""
    a, b = device.empty(problem.a_elements), device.empty(problem.b_elements)
    upload_operands(problem, random_operands(problem), a, b)
    c = device.upload(poisoned(problem.c_elements))
    RungKernel(device, rung(name, device.architecture), build).prepare(problem, a, b, c).launch()
    return c.download()


@pytest.mark.parametrize("problem", SHAPES, ids=str)
@pytest.mark.parametrize("name", RUNG_NAMES)
def test_rungs_give_the_bits_of_a_gpu(
    gpu: Gpu, emulator: Emulator, name: str, problem: GemmProblem
) -> None:
    """Every element of C, rounded as the GPU rounds it; what lies between rows is untouched."""
    build = compile_rung(rung(name, gpu.architecture), gpu.architecture)
    emulator.multiprocessors = gpu.multiprocessors
    ours, theirs = (rung_result(each, name, build, problem) for each in (emulator, gpu))
    assert not difference(ours, theirs)


def lab_results(device: Device, name: str, variants: Any, scale: int) -> Mapping[str, NDArray[Any]]:
    """What each trial of an experiment writes."""
    trials = find_experiment(name).trials(SmallSetup(device, variants, scale))
    return {variant: trial.run() for variant, trial in trials.items()}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", [experiment.name for experiment in EXPERIMENTS])
def test_experiments_give_the_bits_of_a_gpu(
    gpu: Gpu, emulator: Emulator, name: str, scale: int
) -> None:
    """Every kernel of the laboratory, by variant."""
    experiment = find_experiment(name)
    if gpu.capability < experiment.needs:
        pytest.skip(f"{gpu.architecture} is below what {name} needs")
    variants = compile_variants(experiment, gpu.architecture)
    ours, theirs = (lab_results(each, name, variants, scale) for each in (emulator, gpu))
    found = {variant: difference(ours[variant], theirs[variant]) for variant in theirs}
    assert not {variant: text for variant, text in found.items() if text}
