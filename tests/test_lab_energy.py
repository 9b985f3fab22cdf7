"""The energy experiment: what the model adds up, and what happens where NVML tells nothing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import lowgemm.studies.lab.run as run_module
from lowgemm.errors import UnmeasurableError
from lowgemm.hardware import Architecture, GpuRecord, gpu_record
from lowgemm.studies.lab import MachineCode, find_experiment, run_experiment
from lowgemm.studies.lab.energy import EnergyModel, _work

EXPERIMENT = find_experiment("energy")
EX8 = MachineCode(
    "sm_90", 127, 8192, 0, 569, {"FFMA": 512, "LDS.128": 32, "STS.32": 4, "STS.128": 1,
                                 "LDG.128": 2, "LDS.32": 0, "LDG.32": 0}, 113,
)  # fmt: skip


def test_the_model_of_an_h200() -> None:
    """A quarter of 700 W stands; the rest over 132 x 4 instructions a cycle at 1.98 GHz."""
    model = EnergyModel.of(gpu_record("h200"))
    assert model.static_w == 175
    assert model.instruction_nj == pytest.approx(525 / (132 * 4 * 1.98))


def test_a_gemm_of_ex8_adds_up() -> None:
    """4096^3 / 32 multiply-adds, 569 instructions for 512 of them, tiles of 128."""
    gpu = gpu_record("h200")
    work = _work(gpu, "ex8", EX8)
    ffmas = 4096**3 / 32
    assert work.instructions == pytest.approx(ffmas * 569 / 512)
    assert work.shared_bytes == pytest.approx(ffmas * 128 * (3 * 32 + 4 + 4 + 8) / 512)
    assert work.l2_bytes == 4 * (4096**3 / 64 + 4096**2)
    # 113 cycles of bank conflicts; 32 loads write four registers each, 0.35 cycles a register.
    slots = 569 + 113 + 32 * 4 * 0.35
    assert work.time_s == pytest.approx(ffmas / 132 * slots / 512 / 4 / 1.98e9)
    parts = work.parts_j(EnergyModel.of(gpu))
    assert parts["static"] == pytest.approx(175 * work.time_s)
    assert parts["DRAM"] == pytest.approx(3.92 * 8 * 12 * 4096**2 / 1e12)


def test_a_gemm_loses_no_cycles_where_an_ffma_takes_two() -> None:
    """On 64 lanes conflicts and loads' registers hide behind the FFMAs, as in every experiment."""
    work = _work(gpu_record("a100"), "ex8", EX8)
    assert work.time_s == pytest.approx(4096**3 / 64 / 108 / 1.41e9)
    pressed = replace(EX8, conflict_cycles=1000)
    assert _work(gpu_record("a100"), "ex8", pressed).time_s == work.time_s


def test_an_unknown_tdp_is_that_of_the_nearest_gpu() -> None:
    """A GPU that the table does not have is given the figure of its class, and the reason says."""
    unknown = replace(gpu_record("h200"), name="X", tdp_w=None)
    assert EnergyModel.of(unknown) == EnergyModel.of(gpu_record("h200"))
    assert "TDP (that of the H100 SXM)" in EXPERIMENT.predict(unknown, {"ex8": EX8})["ex8"].reason


@pytest.mark.parametrize("name", ["a100", "h200", "b200", "rtx 5090"])
def test_larger_tiles_are_predicted_to_take_less(name: str) -> None:
    """The claim, on each generation; and no GPU is predicted to draw more than its TDP."""
    gpu: GpuRecord = gpu_record(name)
    rows = run_experiment(EXPERIMENT, gpu).rows
    values = [row.prediction.value for row in rows if row.prediction]
    assert len(values) == 4
    assert values == sorted(values, reverse=True)
    assert gpu.tdp_w is not None
    for row in rows:
        assert row.code is not None
        work = _work(gpu, row.variant, row.code)
        assert sum(work.parts_j(EnergyModel.of(gpu)).values()) / work.time_s < gpu.tdp_w


def test_what_the_machine_does_not_tell_becomes_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where NVML gives nothing the result says so, and keeps its predictions."""

    def refuse(bench: Any) -> Any:
        raise UnmeasurableError("NVML tells nothing", "ask it")

    monkeypatch.setattr(run_module, "Bench", lambda *_: SimpleNamespace(clock_mhz=None))
    monkeypatch.setattr(type(EXPERIMENT), "measure", lambda self, bench: refuse(bench))
    gpu: Any = SimpleNamespace(architecture=Architecture(9, 0))
    result = run_experiment(EXPERIMENT, gpu_record("h200"), gpu)
    assert result.unmeasured == "NVML tells nothing"
    assert all(row.prediction and row.measurement is None for row in result.rows)
