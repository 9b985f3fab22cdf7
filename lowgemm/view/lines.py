"""Source, PTX and machine code side by side: for the terminal, Markdown and plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from lowgemm.analysis.lines import KernelLines, LineCode
from lowgemm.binary.instruction import Instruction

__all__ = ["lines_data", "lines_markdown", "render_lines"]

_GUTTER = 7
_BETWEEN = " | "
_LEAST_WIDTH = 40
_NO_LINE = "(no source line)"


def render_lines(
    report: KernelLines, width: int = 160, *, hot_only: bool = False, limit: int | None = None
) -> Text:
    """Each source line with its PTX on the left and its machine code on the right below it.

    Parameters
    ----------
    report
        The kernel, line by line.
    width
        Characters a line; what is longer is cut.
    hot_only
        Whether to show only lines with machine code in the hot loop.
    limit
        The most instructions to show of a line; None for all.
    """
    width = max(width, _LEAST_WIDTH)
    text = Text(no_wrap=True, overflow="ignore")
    text.append(f"{report.kernel}", style="bold cyan").append(f"  {report.arch}\n")
    for file, lines in _by_file(report, hot_only):
        text.append("\n").append(f"{file}\n", style="bold")
        for code in lines:
            _append_line(text, code, width, limit)
    return text


def _by_file(report: KernelLines, hot_only: bool) -> Iterator[tuple[str, list[LineCode]]]:
    shown = [code for code in report.lines if code.in_hot_loop or not hot_only]
    for file, lines in groupby(shown, lambda code: code.line.file if code.line else _NO_LINE):
        yield file, list(lines)


def _append_line(text: Text, code: LineCode, width: int, limit: int | None) -> None:
    counts = _counts(code)
    number = str(code.line.line) if code.line else ""
    room = width - _GUTTER - cell_len(counts) - 2
    source = _fitted(_source(code).expandtabs(4).strip(), max(room, 10))
    text.append(f"{number:>{_GUTTER - 2}}  ", style="dim").append(source, style="bold")
    text.append(f"  {counts}\n", style="green" if code.in_hot_loop else "dim")
    column = (width - _GUTTER - len(_BETWEEN)) // 2
    for left, right in _pairs(code, limit):
        row = f"{_fitted(left, column)}{_BETWEEN}{_fitted(right, column)}".rstrip()
        text.append(f"{' ' * _GUTTER}{row}\n")


def _source(code: LineCode) -> str:
    if code.line is None:
        return ""
    return "(source not found)" if code.text is None else code.text


def _counts(code: LineCode) -> str:
    hot = f", {code.sass_in_hot_loop} in the hot loop" if code.in_hot_loop else ""
    return f"PTX {len(code.ptx)}, SASS {len(code.sass)}{hot}"


def _pairs(code: LineCode, limit: int | None) -> Iterator[tuple[str, str]]:
    ptx = _limited([instruction.text for instruction in code.ptx], limit)
    sass = _limited([_sass(instruction) for instruction in code.sass], limit)
    return zip_longest(ptx, sass, fillvalue="")


def _limited(texts: Sequence[str], limit: int | None) -> list[str]:
    if limit is None or len(texts) <= limit:
        return list(texts)
    return [*texts[:limit], f"... {len(texts) - limit} more"]


def _sass(instruction: Instruction) -> str:
    return f"{instruction.address:#06x}  {instruction.text or instruction.mnemonic}"


def _fitted(text: str, width: int) -> str:
    """Exactly that many cells; nothing that would move the terminal's cursor."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    if cell_len(clean) > width:
        clean = set_cell_size(clean, width - 1) + "…"
    return set_cell_size(clean, width)


def lines_markdown(report: KernelLines, *, hot_only: bool = False, limit: int | None = 8) -> str:
    """A table a file: line, source, PTX, machine code. The parameters are `render_lines`'s."""
    out = [f"### `{report.kernel}`, {report.arch}", ""]
    for file, lines in _by_file(report, hot_only):
        out += [f"`{file}`", "", "| line | source | PTX | SASS | |", "|--:|---|---|---|---|"]
        for code in lines:
            ptx = _limited([instruction.text for instruction in code.ptx], limit)
            sass = _limited([_sass(instruction) for instruction in code.sass], limit)
            number = str(code.line.line) if code.line else ""
            cells = (number, _code(_source(code).strip()), _stack(ptx), _stack(sass), _counts(code))
            out.append(f"| {' | '.join(cells)} |")
        out.append("")
    return "\n".join(out)


def _stack(texts: Sequence[str]) -> str:
    return "<br>".join(map(_code, texts))


def _code(text: str) -> str:
    """Text as code in a cell of a table."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    if not clean.strip():
        return ""
    escaped = clean.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in escaped else f"`{escaped}`"


def lines_data(report: KernelLines) -> list[dict[str, Any]]:
    """The lines as plain data, an object a line."""
    return [
        {
            "kernel": report.kernel,
            "arch": report.arch,
            "file": code.line.file if code.line else None,
            "line": code.line.line if code.line else None,
            "text": code.text,
            "ptx": [instruction.text for instruction in code.ptx],
            "sass": [instruction.text or instruction.mnemonic for instruction in code.sass],
            "ptx_mix": dict(code.ptx_mix),
            "sass_mix": dict(code.sass_mix),
            "ptx_in_hot_loop": code.ptx_in_hot_loop,
            "sass_in_hot_loop": code.sass_in_hot_loop,
        }
        for code in report.lines
    ]
