"""Records as plain data that every JSON reader takes."""

from __future__ import annotations

import math
from dataclasses import asdict, is_dataclass
from typing import Any

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """Dataclasses to dicts, tuples to lists, and numbers that JSON does not have to None."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
