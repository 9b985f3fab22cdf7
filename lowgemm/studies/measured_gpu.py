"""A GPU's record with measured figures, as a small file that the model can read."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lowgemm.errors import MeasurementError
from lowgemm.hardware import GpuRecord
from lowgemm.studies.files import read_json, write_json
from lowgemm.toolchain import cache_directory

__all__ = ["measured_gpu_path", "read_gpu_record", "write_gpu_record"]

SCHEMA = 1
_MEASURE = "measure one with lowgemm lab memory-levels"


def measured_gpu_path(name: str) -> Path:
    """Where the record of a GPU of that name is kept, whether or not it was measured yet."""
    stem = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return cache_directory() / "gpus" / f"{stem}.json"


def write_gpu_record(record: GpuRecord, path: Path) -> None:
    """Write a record as JSON.

    Raises
    ------
    MeasurementError
        The file cannot be written.
    """
    write_json({"schema": SCHEMA, **asdict(record)}, path)


def read_gpu_record(path: Path) -> GpuRecord:
    """Read a record that :func:`write_gpu_record` wrote.

    Raises
    ------
    MeasurementError
        The file is not there or holds something else.
    """
    data = read_json(path, SCHEMA, "GPU's record", _MEASURE)
    del data["schema"]
    try:
        return _record(data)
    except (KeyError, TypeError, ValueError) as error:
        raise MeasurementError(f"{path} is no GPU's record: {error}", _MEASURE) from error


def _record(data: dict[str, Any]) -> GpuRecord:
    aliases = tuple(str(alias) for alias in data.pop("aliases"))
    sources = tuple((str(field), str(source)) for field, source in data.pop("own_sources"))
    return GpuRecord(**data, aliases=aliases, own_sources=sources)
