"""The rungs on a GPU: right on every shape, timed, and within their occupancy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lowgemm.errors import OverlapError
from lowgemm.gemm import (
    RUNG_NAMES,
    GemmProblem,
    Reference,
    RungKernel,
    poisoned,
    random_operands,
    rung,
)
from lowgemm.hardware import capability, occupancy
from lowgemm.studies.verification import SHAPES, verify, verify_far_offsets

if TYPE_CHECKING:
    from lowgemm.device import Gpu

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", RUNG_NAMES)
def test_every_rung_is_right_on_every_shape(gpu: Gpu, name: str) -> None:
    """All shapes, exact and random data: no error, or one within the componentwise bound."""
    wrong = [
        f"{v.problem}, {v.data}: {v.result.reason}"
        for v in verify(gpu, [rung(name, gpu.architecture)], SHAPES)
        if not v.result.passed
    ]
    assert not wrong


@pytest.mark.parametrize("name", RUNG_NAMES)
def test_offsets_beyond_31_bits_are_right(gpu: Gpu, name: str) -> None:
    """Rows 2^20 elements apart: the last ones begin beyond 2^31 elements in A, B and C."""
    free, _ = gpu.memory_bytes()
    if free < 28 << 30:
        pytest.skip(f"needs 28 GiB of free GPU memory, there are {free >> 30}")
    (verdict,) = verify_far_offsets(gpu, [rung(name, gpu.architecture)])
    assert verdict.result.passed, verdict.result.reason


@pytest.mark.parametrize("name", ["ex3", "ex7", "ex8", "ex10"])
def test_operands_off_a_16_byte_boundary_are_right(gpu: Gpu, name: str) -> None:
    """A pointer in the middle of an allocation never meets a float4 load that it cannot take."""
    problem = GemmProblem(130, 72, 40)
    operands = random_operands(problem)
    a = gpu.empty(problem.a_elements + 1).view(1, problem.a_elements)
    b = gpu.empty(problem.b_elements + 3).view(3, problem.b_elements)
    c = gpu.empty(problem.c_elements + 1).view(1, problem.c_elements)
    a.upload(operands.a.ravel())
    b.upload(operands.b.ravel())
    c.upload(poisoned(problem.c_elements))
    RungKernel(gpu, rung(name, gpu.architecture)).prepare(problem, a, b, c).launch()
    result = Reference(problem, operands).check(c.download())
    assert result.passed, result.reason


def test_repeated_runs_give_the_same_bits(gpu: Gpu) -> None:
    """No rung has a race that shows: twenty runs of each are equal to the last bit."""
    problem = GemmProblem(300, 260, 200)
    operands = random_operands(problem)
    a, b = gpu.upload(operands.a.ravel()), gpu.upload(operands.b.ravel())
    c = gpu.empty(problem.c_elements)
    for name in RUNG_NAMES:
        launch = RungKernel(gpu, rung(name, gpu.architecture)).prepare(problem, a, b, c)
        results = set()
        for _ in range(20):
            c.upload(poisoned(problem.c_elements))
            launch()
            results.add(c.download().tobytes())
        assert len(results) == 1, name


def test_torch_matrices_are_multiplied_in_torchs_stream(gpu: Gpu) -> None:
    """Tensors with padded rows go in as they are, in the stream that torch works in."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    stream = torch.cuda.Stream()
    kernel = RungKernel(gpu, rung("ex9", gpu.architecture))
    with torch.cuda.stream(stream):
        a = torch.randn(200, 512, device="cuda")[:, :300]
        b = torch.randn(300, 100, device="cuda")
        c = torch.full((200, 128), float("nan"), device="cuda")[:, :100]
        kernel.prepare_matrices(a, b, c, stream=stream).launch()
        expected = a.double() @ b.double()
    stream.synchronize()
    assert torch.allclose(c.double(), expected, atol=1e-3)
    with pytest.raises(OverlapError):
        kernel.prepare_matrices(a, b, a[:, :100], stream=stream)


@pytest.mark.parametrize("threads", [32, 64, 96, 160, 256, 512, 1024])
@pytest.mark.parametrize("dynamic", [0, 1000, 16 << 10, 48 << 10])
def test_occupancy_equals_the_drivers(gpu: Gpu, threads: int, dynamic: int) -> None:
    """The rules give the blocks per SM that the driver gives, for every rung's resources."""
    cc = capability(*gpu.capability)
    for name in RUNG_NAMES:
        item = rung(name, gpu.architecture)
        kernel = RungKernel(gpu, item)
        instance = item.instance(aligned=True)
        loaded = kernel.kernel(aligned=True)
        if threads > loaded.max_threads:
            continue
        ours = occupancy(
            cc,
            threads=threads,
            registers=loaded.registers,
            shared_bytes=loaded.shared_bytes + dynamic,
            barriers=kernel.build.kernel(instance).resources.barriers,
        )
        assert ours.blocks_per_sm == loaded.occupancy(threads, dynamic), (name, ours)


def test_the_ladder_command_measures(gpu: Gpu, tmp_path: Path) -> None:
    """`lowgemm ladder` on a small problem gives right rungs, rates, a peer and a timings file."""
    output = tmp_path / "timings.json"
    command = [sys.executable, "-m", "lowgemm", "ladder", "--size", "512", "--seconds", "1"]
    done = subprocess.run(
        [*command, "--json", "--output", str(output)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=os.environ,
    )
    rows = json.loads(done.stdout)
    assert [row["rung"] for row in rows] == list(RUNG_NAMES)
    assert all(row["correct"] and row["tflops"] > 0 and row["time_us"] > 0 for row in rows)
    saved = json.loads(output.read_text(encoding="utf-8"))
    assert saved["rows"] == rows
    assert saved["provenance"]["gpu"] == gpu.name
    if saved["provenance"]["cublas"]:
        assert saved["provenance"]["cublas_correct"] is True
        assert saved["provenance"]["cublas_kernels"]
        assert np.isclose(
            rows[0]["ratio_to_cublas"],
            saved["provenance"]["cublas_time_us"] / rows[0]["time_us"],
        )
