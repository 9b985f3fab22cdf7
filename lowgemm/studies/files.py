"""Measured records as JSON files: written whole, read with a typed error for anything else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lowgemm.errors import MeasurementError

__all__ = ["read_json", "write_json"]


def write_json(data: Mapping[str, Any], path: Path, *, list_a_line: bool = False) -> None:
    """Write plain data, making its folder where there is none.

    Parameters
    ----------
    data
        The data.
    path
        The file.
    list_a_line
        Whether each list of numbers or texts takes one line, instead of one for each element.

    Raises
    ------
    MeasurementError
        The file cannot be written.
    """
    text = json.dumps(data, indent=1, allow_nan=False)
    if list_a_line:
        text = re.sub(r"\[[^\[\]{}]*\]", lambda match: " ".join(match[0].split()), text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise MeasurementError(
            f"{path} cannot be written: {error.strerror}", "name a file that can be written"
        ) from error


def read_json(path: Path, schema: int, kind: str, remedy: str) -> dict[str, Any]:
    """Read what :func:`write_json` wrote.

    Parameters
    ----------
    path
        The file.
    schema
        The number that its ``schema`` must be.
    kind
        What it should be, for messages: "ladder report".
    remedy
        How to get one.

    Raises
    ------
    MeasurementError
        The file is not there, is no JSON, or is of another schema.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MeasurementError(f"{path} cannot be read: {error.strerror}", remedy) from error
    except (ValueError, RecursionError) as error:
        raise MeasurementError(f"{path} is not JSON", remedy) from error
    found = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(data, dict) or found != schema:
        raise MeasurementError(f"{path} is no {kind} of schema {schema} (it has {found})", remedy)
    return data
