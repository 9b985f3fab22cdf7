"""An experiment's result with where it comes from, as a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowgemm.device import Gpu
from lowgemm.errors import MeasurementError
from lowgemm.report.plain import plain
from lowgemm.report.provenance import run_facts
from lowgemm.studies.files import read_json, write_json
from lowgemm.studies.lab import LabResult, LabRow, MachineCode, Measurement, Prediction

__all__ = ["LabProvenance", "LabReport", "lab_provenance", "read_lab_report", "write_lab_report"]

SCHEMA = 1
_WRITE_ONE = "write one with lowgemm lab NAME --output FOLDER"


@dataclass(frozen=True, slots=True)
class LabProvenance:
    """Where an experiment's measurements come from."""

    date: str
    command: str
    lowgemm: str
    nvrtc: str
    gpu: str
    compute_capability: str
    multiprocessors: int
    driver: str | None
    driver_cuda: str
    clock_mhz: int | None


@dataclass(frozen=True, slots=True)
class LabReport:
    """A result; ``provenance`` is None where nothing was measured."""

    result: LabResult
    provenance: LabProvenance | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data, each row with its ratio of measured to predicted."""
        data: dict[str, Any] = plain(self.result)
        for row, plain_row in zip(self.result.rows, data["rows"], strict=True):
            plain_row["ratio"] = row.ratio
            if row.emulation is None:
                del plain_row["emulation"]  # a file of measurements has none
        return {"schema": SCHEMA, "provenance": plain(self.provenance), **data}


def lab_provenance(gpu: Gpu, command: str, clock_mhz: int | None) -> LabProvenance:
    """Say where measurements that were just made come from."""
    from lowgemm.toolchain import nvrtc_full_version

    return LabProvenance(
        **run_facts(gpu, command),
        nvrtc=nvrtc_full_version(),
        clock_mhz=clock_mhz,
    )


def write_lab_report(report: LabReport, path: Path) -> None:
    """Write a report as JSON.

    Raises
    ------
    MeasurementError
        Nothing was measured, or the file cannot be written.
    """
    if report.provenance is None:
        raise MeasurementError(
            f"there is nothing measured to write to {path}",
            report.result.unmeasured or "run the experiment on a GPU",
        )
    write_json(report.as_json(), path)


def read_lab_report(path: Path) -> LabReport:
    """Read a report that :func:`write_lab_report` wrote.

    Raises
    ------
    MeasurementError
        The file is not there or holds something else.
    """
    data = read_json(path, SCHEMA, "experiment's report", _WRITE_ONE)
    try:
        return _report(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise MeasurementError(
            f"{path} does not have the fields of an experiment's report: {error}", _WRITE_ONE
        ) from error


def _report(data: dict[str, Any]) -> LabReport:
    fields = dict(data)
    del fields["schema"]
    provenance = LabProvenance(**fields.pop("provenance"))
    rows = tuple(_row(row) for row in fields.pop("rows"))
    return LabReport(LabResult(**fields, rows=rows), provenance)


def _row(row: dict[str, Any]) -> LabRow:
    def part(name: str, kind: Callable[..., Any]) -> Any:
        return None if row[name] is None else kind(**row[name])

    return LabRow(
        variant=row["variant"],
        what=row["what"],
        prediction=part("prediction", Prediction),
        code=part("code", MachineCode),
        measurement=part("measurement", Measurement),
    )
