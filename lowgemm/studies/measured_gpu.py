"""A GPU's record with measured figures, as a small file that the model can read."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lowgemm.errors import MeasurementError
from lowgemm.hardware import GpuRecord
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
    text = json.dumps({"schema": SCHEMA, **asdict(record)}, indent=1, allow_nan=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise MeasurementError(
            f"{path} cannot be written: {error.strerror}", "name a folder that can be written to"
        ) from error


def read_gpu_record(path: Path) -> GpuRecord:
    """Read a record that :func:`write_gpu_record` wrote.

    Raises
    ------
    MeasurementError
        The file is not there or holds something else.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MeasurementError(f"{path} cannot be read: {error.strerror}", _MEASURE) from error
    except (ValueError, RecursionError) as error:
        raise MeasurementError(f"{path} is not JSON", _MEASURE) from error
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise MeasurementError(f"{path} is no GPU's record of schema {SCHEMA}", _MEASURE)
    try:
        return _record(data)
    except (KeyError, TypeError, ValueError) as error:
        raise MeasurementError(f"{path} is no GPU's record: {error}", _MEASURE) from error


def _record(data: dict[str, Any]) -> GpuRecord:
    aliases = tuple(str(alias) for alias in data.pop("aliases"))
    sources = tuple((str(field), str(source)) for field, source in data.pop("own_sources"))
    return GpuRecord(**data, aliases=aliases, own_sources=sources)
