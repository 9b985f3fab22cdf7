"""The laboratory: predictions and machine code with no GPU, and what a report keeps."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import lowgemm.cli.lab  # noqa: F401  # registers the command
from lowgemm.cli.common import app
from lowgemm.errors import MeasurementError, UnknownExperimentError
from lowgemm.gemm import kernel_directory
from lowgemm.hardware import GPUS, Architecture, gpu_record
from lowgemm.report.lab import LabProvenance, LabReport, read_lab_report, write_lab_report
from lowgemm.studies.lab import (
    EXPERIMENTS,
    Experiment,
    LabResult,
    LabRow,
    MachineCode,
    Measurement,
    Prediction,
    compile_variants,
    find_experiment,
    run_experiment,
)
from lowgemm.view.lab import lab_index, lab_page, lab_view

NAMES = [experiment.name for experiment in EXPERIMENTS]
ARCHS = ("sm_80", "sm_90", "sm_120")

PROVENANCE = LabProvenance(
    "2026-11-29",
    "lowgemm lab x",
    "0.1.0",
    "13.0.88",
    "NVIDIA H200",
    "9.0",
    132,
    "580",
    "13.0",
    1980,
)


def result() -> LabResult:
    """An experiment with a right, a wrong and an unmeasured variant."""
    code = MachineCode("sm_90", 20, 0, 0, 15, {"LDS.32": 4}, 0)
    seen = Measurement(120.0, True, "sums", 3.0, 2.9, 3.1, 10, {"blocks": 8.0})
    rows = (
        LabRow("good", "so", Prediction(100.0, "because"), code, seen),
        LabRow("bad", "otherwise", Prediction(50.0, "because"), code, Measurement.wrong("sums")),
        LabRow("unseen", "not at all", None, None, None),
    )
    return LabResult("x", "X", "It is so.", "time", "cycles", "H200 SXM", rows)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "arch",
    [arch if arch == "sm_90" else pytest.param(arch, marks=pytest.mark.slow) for arch in ARCHS],
)
def test_every_experiment_predicts_and_shows_machine_code(name: str, arch: str) -> None:
    """With no GPU each variant has a prediction, and machine code where the chip has the means."""
    record = next(gpu for gpu in GPUS if f"sm_{gpu.capability_major}{gpu.capability_minor}" == arch)
    done = run_experiment(find_experiment(name), record)
    assert done.unmeasured is not None
    assert len({row.variant for row in done.rows}) == len(done.rows) >= 2
    for row in done.rows:
        assert row.prediction is not None, row.variant
        assert math.isfinite(row.prediction.value)
        assert row.prediction.reason
        assert row.measurement is None
        assert row.ratio is None
        if "needs compute capability" not in done.unmeasured:
            assert row.code is not None
            assert row.code.arch.startswith(arch)


@pytest.mark.parametrize("name", NAMES)
def test_no_variant_spills(name: str) -> None:
    """A spill would be a second difference between variants."""
    experiment = find_experiment(name)
    major, minor = max(experiment.needs, (9, 0))
    for variant, build in compile_variants(experiment, Architecture(major, minor)).values():
        resources = build.kernel(variant.kernel).resources
        assert (resources.spill_store_bytes, resources.spill_load_bytes) == (0, 0), variant.name


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_tells_its_claim(name: str) -> None:
    """Title, claim, quantity and unit are there, and its kernels' files open with the idea."""
    experiment: Experiment = find_experiment(name)
    assert all((experiment.title, experiment.claim, experiment.quantity, experiment.unit))
    for variant in experiment.variants(Architecture(9, 0)):
        path = kernel_directory() / variant.source
        head = path.read_text(encoding="utf-8").splitlines()
        assert head[0].startswith("// "), path.name
        assert any(line.startswith("// Idea") for line in head[:6]), path.name


def test_every_kernel_file_of_the_laboratory_is_used() -> None:
    """No lab_*.cu file lies without an experiment."""
    arch = Architecture(9, 0)
    used = {variant.source for item in EXPERIMENTS for variant in item.variants(arch)}
    assert used >= {path.name for path in kernel_directory().glob("lab_*.cu")}


def test_an_unknown_experiment_is_an_error() -> None:
    """The message names those that there are."""
    with pytest.raises(UnknownExperimentError, match="bank-conflicts"):
        find_experiment("nothing")


def test_the_layouts_of_the_bank_experiment_have_the_textbook_conflicts() -> None:
    """A column of an unpadded tile takes 32 passes a warp, of a padded or swizzled one 1."""
    found = find_experiment("bank-conflicts").predict(gpu_record("h200"), {})
    assert found["plain"].value == 8 * (4 + 4 * 32)
    for cured in ("padded", "swizzled", "transposed, a row a lane"):
        assert found[cured].value == 8 * (4 + 4)
    assert found["padded by 4"].value == 8 * (4 + 4 * 4)
    assert found["transposed"].value == 8 * (4 * 8 + 4)


# ---- reports


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    """What was written is read back the same, ratios included."""
    report = LabReport(result(), PROVENANCE)
    write_lab_report(report, tmp_path / "folder" / "x.json")
    again = read_lab_report(tmp_path / "folder" / "x.json")
    assert again.as_json() == report.as_json()
    assert again.as_json()["rows"][0]["ratio"] == 1.2
    assert again.as_json()["rows"][1]["ratio"] is None


def test_only_measurements_are_written(tmp_path: Path) -> None:
    """A report without a GPU behind it becomes no file."""
    with pytest.raises(MeasurementError, match="no GPU"):
        report = LabReport(replace(result(), unmeasured="there is no GPU here"))
        write_lab_report(report, tmp_path / "x.json")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', '{"schema": 2}', "null"])
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    """Whatever else it holds is a typed error."""
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(MeasurementError):
        read_lab_report(path)
    with pytest.raises(MeasurementError):
        read_lab_report(tmp_path / "nothing.json")


def test_a_page_gives_no_figure_for_a_wrong_result() -> None:
    """The wrong variant's cell is empty, the right one's has its ratio."""
    page = lab_page(LabReport(result(), PROVENANCE), "Why it is so.")
    rows = [line for line in page.splitlines() if line.startswith(("| good", "| bad"))]
    assert "| 1.2 |" in rows[0]
    assert rows[1].startswith("| bad | 50 | – | – |")
    assert "Why it is so." in page
    assert "driver 580" in page
    assert "| [x](x.md) | It is so. | 1.2 |" in lab_index([LabReport(result(), PROVENANCE)], [])


def test_a_narrow_terminal_loses_no_figure() -> None:
    """Columns without room are told below the table; each line keeps to the width."""
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(lab_view(LabReport(result(), PROVENANCE), 60))
    shown = console.export_text()
    assert "good: LDS.32 4; blocks 8" in shown
    for header in ("variant", "predicted", "measured", "ratio"):
        assert header in shown
    assert max(map(len, shown.splitlines())) <= 60


# ---- the command


def test_the_command_works_with_no_gpu() -> None:
    """Predictions and machine code as JSON, with the reason for what is missing."""
    done = CliRunner().invoke(app, ["lab", "bank-conflicts", "--no-run", "--gpu", "a100", "--json"])
    assert done.exit_code == 0
    (data,) = json.loads(done.output)
    assert data["gpu"] == "A100 80GB SXM"
    assert data["rows"][0]["prediction"]["value"] == 1056
    assert data["rows"][0]["code"]["arch"] == "sm_80"
    assert "no GPU" in data["unmeasured"]


def test_the_command_lists_the_experiments() -> None:
    """Each by its name, as a table or as objects."""
    output = CliRunner().invoke(app, ["lab", "--list"]).output
    assert all(name in output for name in NAMES)
    rows = json.loads(CliRunner().invoke(app, ["lab", "--list", "--json"]).output)
    assert [row["name"] for row in rows] == NAMES
    assert all(row["claim"] for row in rows)


def test_writing_what_was_not_measured_is_an_error(tmp_path: Path) -> None:
    """Without a run on a GPU there is no file, and the command says so."""
    done = CliRunner().invoke(app, ["lab", "gemv", "--no-run", "--output", str(tmp_path / "x")])
    assert isinstance(done.exception, MeasurementError)
    assert not (tmp_path / "x").exists()
