"""`lowgemm lab`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowgemm.cli.common import (
    DeviceChoice,
    Json,
    OnDevice,
    Run,
    Seconds,
    app,
    choose_device,
    print_json,
    progress_bar,
    show,
    show_fitted,
)

if TYPE_CHECKING:
    from lowgemm.device import Gpu
    from lowgemm.hardware import GpuRecord
    from lowgemm.report.lab import LabReport
    from lowgemm.studies.lab import Experiment, LabRow

__all__ = ["lab"]

_GPU_WITHOUT_ONE = "h200"
#: The experiment whose measurements become the GPU's record.
_LEVELS = "memory-levels"

Names = Annotated[list[str] | None, typer.Argument(help="Experiments. Default: all.")]
GpuName = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        help="The GPU that predictions are for, and whose code the emulator runs. Default: the one "
        "at hand, else an H200.",
    ),
]
Folder = Annotated[
    Path | None, typer.Option(help="Write each measured experiment to a file in this folder.")
]
List = Annotated[bool, typer.Option("--list", help="Only name the experiments.")]


@app.command()
def lab(
    names: Names = None,
    gpu: GpuName = None,
    device: OnDevice = None,
    seconds: Seconds = 2.0,
    run: Run = True,
    output: Folder = None,
    only_list: List = False,
    as_json: Json = False,
) -> None:
    """Experiments: a claim, a prediction, and the measurement; without a GPU what is executed."""
    from lowgemm.errors import MeasurementError
    from lowgemm.report.lab import write_lab_report
    from lowgemm.studies.lab import EXPERIMENTS, find_experiment
    from lowgemm.view.lab import lab_view

    chosen = [find_experiment(name) for name in names] if names else list(EXPERIMENTS)
    if only_list:
        _list(chosen, as_json=as_json)
        return
    reports = []
    kind = choose_device(device) if run else None
    at_hand = _gpu(kind)
    if output and at_hand is None:
        raise MeasurementError(
            f"there is nothing measured to write to {output}: nothing runs on a GPU here",
            "leave out --output, or run on a GPU",
        )
    for experiment in chosen:
        record = _record(gpu, at_hand)
        if kind is DeviceChoice.EMULATOR:
            report = _emulated(experiment, record)
        else:
            report = _report(experiment, record, at_hand, seconds)
        reports.append(report)
        if not as_json:
            show_fitted(partial(lab_view, report))
        if output and report.provenance:
            stem = report.provenance.gpu.lower().replace("nvidia", "").strip().replace(" ", "_")
            write_lab_report(report, output / f"{stem}_{experiment.name}.json")
        if report.provenance and at_hand and experiment.name == _LEVELS:
            _keep_record(report, at_hand)
    if as_json:
        print_json([report.as_json() for report in reports])
    rows = [row for report in reports for row in report.result.rows]
    if any(_is_wrong(row) for row in rows):
        raise typer.Exit(1)


def _is_wrong(row: LabRow) -> bool:
    measured, emulated = row.measurement, row.emulation
    return bool((measured and not measured.correct) or (emulated and not emulated.passed))


def _list(experiments: Sequence[Experiment], *, as_json: bool) -> None:
    from lowgemm.view.lab import experiments_view

    if as_json:
        fields = ("name", "title", "claim", "quantity", "unit")
        print_json([{field: getattr(item, field) for field in fields} for item in experiments])
    else:
        show(experiments_view(experiments))


def _gpu(kind: DeviceChoice | None) -> Gpu | None:
    from lowgemm.device import Gpu

    return Gpu() if kind is DeviceChoice.GPU else None


def _record(name: str | None, device: Gpu | None) -> GpuRecord:
    from lowgemm.hardware import gpu_record

    if name is None and device is not None:
        return device.attributes.as_record()
    return gpu_record(name or _GPU_WITHOUT_ONE)


def _report(
    experiment: Experiment, record: GpuRecord, device: Gpu | None, seconds: float
) -> LabReport:
    from lowgemm.measure import TimerSettings
    from lowgemm.report.lab import LabReport, lab_provenance
    from lowgemm.studies.lab import run_experiment

    settings = TimerSettings(max_seconds=seconds)
    with progress_bar() as tell:
        result = run_experiment(experiment, record, device, settings=settings, progress=tell)
    if device is None or result.unmeasured:
        return LabReport(result)
    return LabReport(result, lab_provenance(device, _command(), result.clock_mhz))


def _emulated(experiment: Experiment, record: GpuRecord) -> LabReport:
    from lowgemm.report.lab import LabReport
    from lowgemm.studies.lab import emulate_experiment

    with progress_bar() as tell:
        return LabReport(emulate_experiment(experiment, record, progress=tell))


def _keep_record(report: LabReport, device: Gpu) -> None:
    """Leave the measured figures where the model looks for this GPU's."""
    from lowgemm.studies.lab import measured_record
    from lowgemm.studies.measured_gpu import measured_gpu_path, write_gpu_record

    record = measured_record(report.result, device.attributes.as_record())
    write_gpu_record(record, measured_gpu_path(record.name))


def _command() -> str:
    return shlex.join(["lowgemm", *sys.argv[1:]])
