"""Memory levels: predictions, machine code, the walks and sums, and the record they become."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lowgemm.errors import ArgumentValueError, MeasurementError
from lowgemm.hardware import GPUS, gpu_record, record_with_measurements
from lowgemm.hardware.memory_levels import L2_PORT_BYTES_PER_CYCLE, LEVELS, bandwidth, latency
from lowgemm.studies.lab import (
    LabResult,
    LabRow,
    Measurement,
    find_experiment,
    measured_record,
    run_experiment,
)
from lowgemm.studies.lab.memory_levels import expected_sums, pointer_chain
from lowgemm.studies.measured_gpu import measured_gpu_path, read_gpu_record, write_gpu_record

EXPERIMENT = find_experiment("memory-levels")


def test_the_figures_are_those_of_the_gpu() -> None:
    """The seed's 13.39 bytes a cycle for an A100's DRAM; latencies from the table."""
    a100 = gpu_record("a100")
    assert bandwidth(a100, "dram").value == pytest.approx(13.39, abs=0.005)
    assert bandwidth(a100, "shared").value == 128
    assert bandwidth(gpu_record("h200"), "l2").value == pytest.approx(10200 / 132 / 1.98)
    assert [latency(a100, level).value for level in LEVELS] == [29, 33, 205, 552]
    assert latency(a100, "dram").note == bandwidth(a100, "l2").note == ""


def test_what_a_record_lacks_comes_from_the_others() -> None:
    """Every GPU of the table has a figure for each level, nearer levels being faster."""
    for gpu in GPUS:
        waits = [latency(gpu, level).value for level in LEVELS]
        rates = [bandwidth(gpu, level).value for level in LEVELS]
        assert waits == sorted(waits), gpu.name
        assert rates == sorted(rates, reverse=True), gpu.name
        assert rates[2] <= L2_PORT_BYTES_PER_CYCLE
    with pytest.raises(ArgumentValueError, match="l3"):
        latency(GPUS[0], "l3")
    with pytest.raises(ArgumentValueError, match="l3"):
        bandwidth(GPUS[0], "l3")


def test_a_borrowed_figure_names_its_owner() -> None:
    """It is the nearest GPU's, in that one's own cycles and SMs."""
    waiting, rate = latency(gpu_record("3090"), "dram"), bandwidth(gpu_record("h100"), "l2")
    assert (waiting.value, waiting.note) == (556, " (that of the A40)")
    assert "556 cycles (that of the A40)" in waiting.origin
    assert (rate.value, rate.note) == (
        bandwidth(gpu_record("h200"), "l2").value,
        " (that of the H200 SXM)",
    )
    assert latency(gpu_record("h200"), "shared").note == " (as on A100 and H100)"


@pytest.mark.parametrize("name", ["v100", "3090", "h100", "b200", "rtx 5080"])
def test_the_laboratory_has_one_value_for_a_figure_that_a_gpu_lacks(name: str) -> None:
    """Every experiment that predicts from it names the same GPU's, or gives the value."""
    gpu = gpu_record(name)
    borrowed = {
        "L2 rate": bandwidth(gpu, "l2").note,
        "L2 latency": latency(gpu, "l2").note,
        "DRAM latency": latency(gpu, "dram").note,
    }
    users = {
        "L2 rate": {
            "clusters": ["alone"],
            "cp-async": ["load and store, copies alone"],
            "global-vectors": ["LDG.128, L2"],
            "pipeline-depth": ["L2, 2 stages"],
            "rasterisation": ["rows"],
            "shared-a-batch": ["separate launches"],
            "memory-levels": ["L2 bandwidth"],
        },
        "L2 latency": {
            "clusters": ["alone"],
            "cp-async": ["load and store, copies alone"],
            "global-vectors": ["LDG.128, L2"],
            "pipeline-depth": ["L2, 2 stages"],
            "memory-levels": ["L2 latency"],
        },
        "DRAM latency": {
            "gemv": ["row per warp"],
            "global-vectors": ["LDG.128, DRAM"],
            "pipeline-depth": ["DRAM, 2 stages"],
            "memory-levels": ["DRAM latency"],
        },
    }
    for figure, experiments in users.items():
        for experiment, variants in experiments.items():
            found = find_experiment(experiment).predict(gpu, {})
            for variant in variants:
                assert borrowed[figure] in found[variant].reason, (figure, experiment)


@pytest.mark.parametrize("gpu", ["a100", "h200", "rtx 5080"])
def test_the_machine_code_holds_the_loads(gpu: str) -> None:
    """Sixteen loads a turn of a walk and nothing else of memory; eight of 16 bytes of a stream."""
    rows = {row.variant: row.code for row in run_experiment(EXPERIMENT, gpu_record(gpu)).rows}
    for name, code in rows.items():
        assert code is not None
        loads = {kind: n for kind, n in code.mix.items() if n and kind != "FADD"}
        wide = "LDS" if name.startswith("shared") else "LDG"
        if name.endswith("bandwidth"):
            assert loads == {f"{wide}.128": 8}, name
            assert code.mix["FADD"] == 32
        else:
            assert loads == {"LDS.32" if wide == "LDS" else "LDG.64": 16}, name
            assert code.instructions <= 20


def test_a_walk_visits_every_line_once() -> None:
    """Following the pointers leads through all lines, and back to the first."""
    memory, places = pointer_chain(np.random.default_rng(0), 1 << 40, 64 << 10, 100)
    at, seen = int(places[0]), []
    for _ in range(100):
        seen.append(at)
        at = int(memory[(at - (1 << 40)) // 8])
    assert at == places[0]
    assert seen == list(places)
    assert len(set(seen)) == 100
    assert all(place % 128 == 0 for place in seen)


@pytest.mark.parametrize(("blocks", "chunks"), [(4, 4), (6, 16), (264, 2048)])
def test_sums_are_those_of_the_kernels_indices(blocks: int, chunks: int) -> None:
    """As the kernel counts: in bytes, modulo 2^32, behind a mask."""
    stride, rounds, threads = blocks | 1, 24, 3
    sums = np.random.default_rng(0).integers(0, 32, (chunks, threads)).astype(np.float64)
    found = expected_sums(sums, blocks, stride, rounds)
    for block in (0, 1, blocks - 1):
        at, total = block * 8192, np.zeros(threads)
        for _ in range(rounds):
            total += sums[(at & (chunks * 8192 - 1)) // 8192]
            at = (at + stride * 8192) % 2**32
        assert (found[block] == total).all()
    uniform = expected_sums(sums[:, :1], blocks, stride, rounds)
    assert (uniform[:, 0] == found[:, 0]).all()


# ---- the record


def measured(**values: float) -> LabResult:
    """A result with these measurements; a NaN stands for a wrong one."""
    rows = tuple(
        LabRow(
            name.replace("_", " "),
            "",
            None,
            None,
            Measurement.wrong("sums")
            if value != value
            else Measurement(value, True, "sums", details={"gb_per_s": 100 * value}),
        )
        for name, value in values.items()
    )
    return LabResult("memory-levels", "T", "C.", "q", "u", "H200 SXM", rows)


def test_measurements_become_the_gpus_record() -> None:
    """Latencies and bandwidths replace the published ones; what was wrong does not."""
    record = gpu_record("h200")
    result = measured(
        shared_latency=23.0, L2_latency=262.0, DRAM_latency=float("nan"), L2_bandwidth=50.0
    )
    found = measured_record(result, record)
    assert (found.shared_latency_cycles, found.l2_latency_cycles) == (23, 262)
    assert found.l2_gb_per_s == 5000
    assert found.source("l2_gb_per_s") == found.source("shared_latency_cycles") == "measured here"
    assert found.dram_latency_cycles == record.dram_latency_cycles
    assert found.source("dram_latency_cycles") == "public microbenchmark"
    assert found.source("l2_mib") == "read from the device"
    assert latency(found, "shared").origin == "23 cycles, measured here"


def test_only_figures_can_be_measured() -> None:
    """Another field, or no positive number, is an error."""
    with pytest.raises(ArgumentValueError, match="name"):
        record_with_measurements(gpu_record("h200"), name=1.0)
    with pytest.raises(ArgumentValueError, match="l2_gb_per_s"):
        record_with_measurements(gpu_record("h200"), l2_gb_per_s=0.0)


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    """What was written is read back the same."""
    record = record_with_measurements(gpu_record("h200"), l2_latency_cycles=262.5)
    path = tmp_path / "gpus" / "h200.json"
    write_gpu_record(record, path)
    assert read_gpu_record(path) == record
    assert measured_gpu_path("NVIDIA H200").name == "nvidia_h200.json"


@pytest.mark.parametrize("change", ["", "[]", "{}", '{"schema": 1}', None])
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, change: str | None) -> None:
    """A missing file, other JSON, and figures that no GPU has are typed errors."""
    path = tmp_path / "x.json"
    with pytest.raises(MeasurementError, match="cannot be read"):
        read_gpu_record(path)
    write_gpu_record(replace(gpu_record("a100"), tdp_w=None), path)
    if change is None:
        data = json.loads(path.read_text())
        path.write_text(json.dumps(data | {"sms": -1}))
    else:
        path.write_text(change)
    with pytest.raises(MeasurementError, match=r"record|JSON"):
        read_gpu_record(path)
