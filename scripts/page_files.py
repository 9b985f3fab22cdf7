"""Written pages: only those whose text changes are touched, and a check says which would be."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ROOT", "update"]

ROOT = Path(__file__).resolve().parents[1]


def update(pages: Mapping[Path, str], remedy: str) -> int:
    """Write what changed; with ``--check`` on the command line only say it. The exit status."""
    stale = []
    for path, text in pages.items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"not up to date: {', '.join(stale)}; run {remedy}", file=sys.stderr)
        return 1
    if stale:
        print(f"wrote {', '.join(stale)}")
    return 0
