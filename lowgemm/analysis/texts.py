"""The texts of source lines, as their files have them now."""

from __future__ import annotations

from pathlib import Path

from lowgemm.binary.instruction import SourceLine

__all__ = ["SourceTexts"]


class SourceTexts:
    """Lines of source files; each file is read once."""

    def __init__(self) -> None:
        self._files: dict[str, list[str] | None] = {}

    def line(self, line: SourceLine | None) -> str | None:
        """A line's text; None where there is no such file, or it is shorter."""
        if line is None:
            return None
        if line.file not in self._files:
            self._files[line.file] = _read_lines(line.file)
        lines = self._files[line.file]
        if lines is None or not 0 < line.line <= len(lines):
            return None
        return lines[line.line - 1].rstrip("\r")


def _read_lines(file: str) -> list[str] | None:
    path = Path(file)
    try:
        if not path.is_file():  # a pipe or device would never end
            return None
        return path.read_bytes().decode("utf-8", "replace").split("\n")
    except (OSError, ValueError):
        return None
