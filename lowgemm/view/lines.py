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
_HOT_MARK = "> "
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
        Whether to show only lines with machine code in the hot loop, and of these only that code
        with the PTX in the PTX's hot loop; where none of it is, all of the line's PTX.
    limit
        The most instructions to show of a line; None for all.
    """
    width = max(width, _LEAST_WIDTH)
    text = Text(no_wrap=True, overflow="ignore")
    text.append(f"{report.kernel}", style="bold cyan").append(f"  {report.arch}\n")
    text.append(f"{_hot_legend(report, hot_only)}\n")
    for file, lines in _by_file(report, hot_only):
        text.append("\n").append(f"{_shortened(file, width)}\n", style="bold")
        for code in lines:
            _append_line(text, code, width, limit, hot_only)
    return text


def _hot_legend(report: KernelLines, hot_only: bool) -> str:
    if report.hot_loop is None:
        return "this kernel has no loop"
    where = f"the hot loop {report.hot_loop[0]:#06x}-{report.hot_loop[1]:#06x}"
    return f"only {where}" if hot_only else f"{_HOT_MARK.strip()} marks {where}"


def _shortened(file: str, width: int) -> str:
    """The end of a path that is too long for a line."""
    return file if cell_len(file) <= width else "…" + file[-(width - 1) :]


def _by_file(report: KernelLines, hot_only: bool) -> Iterator[tuple[str, list[LineCode]]]:
    shown = [code for code in report.lines if code.in_hot_loop or not hot_only]
    for file, lines in groupby(shown, lambda code: code.line.file if code.line else _NO_LINE):
        yield file, list(lines)


def _append_line(text: Text, code: LineCode, width: int, limit: int | None, hot_only: bool) -> None:
    counts = _counts(code)
    number = str(code.line.line) if code.line else ""
    room = width - _GUTTER - cell_len(counts) - 2
    source = _fitted(_source(code).expandtabs(4).strip(), max(room, 10))
    text.append(f"{number:>{_GUTTER - 2}}  ", style="dim").append(source, style="bold")
    text.append(f"  {counts}\n", style="green" if code.in_hot_loop else "dim")
    column = (width - _GUTTER - len(_BETWEEN)) // 2
    for left, right in zip_longest(*_texts(code, limit, hot_only), fillvalue=""):
        row = f"{_fitted(left, column)}{_BETWEEN}{_fitted(right, column)}".rstrip()
        text.append(f"{' ' * _GUTTER}{row}\n")


def _source(code: LineCode) -> str:
    if code.line is None:
        return ""
    return "(source not found)" if code.text is None else code.text


def _counts(code: LineCode) -> str:
    hot = f", {code.sass_in_hot_loop} in the hot loop" if code.in_hot_loop else ""
    return f"PTX {len(code.ptx)}, SASS {len(code.sass)}{hot}"


def _texts(code: LineCode, limit: int | None, hot_only: bool) -> tuple[list[str], list[str]]:
    """The texts of a line's PTX and machine code, the hot loop's alone or marked."""
    ptx = [(i.text, hot) for i, hot in zip(code.ptx, code.ptx_hot, strict=True)]
    sass = [(_sass(i), hot) for i, hot in zip(code.sass, code.sass_hot, strict=True)]
    if hot_only:
        chosen = [text for text, hot in ptx if hot] or [text for text, _ in ptx]
        return _limited(chosen, limit), _limited([text for text, hot in sass if hot], limit)
    return _limited(_marked(ptx), limit), _limited(_marked(sass), limit)


def _marked(texts: Sequence[tuple[str, bool]]) -> list[str]:
    return [f"{_HOT_MARK if hot else ' ' * len(_HOT_MARK)}{text}" for text, hot in texts]


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
    legend = _hot_legend(report, hot_only)
    out = [f"### `{report.kernel}`, {report.arch}", "", f"{legend[0].upper()}{legend[1:]}.", ""]
    for file, lines in _by_file(report, hot_only):
        out += [f"`{file}`", "", "| line | source | PTX | SASS | |", "|--:|---|---|---|---|"]
        for code in lines:
            ptx, sass = _texts(code, limit, hot_only)
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
            "ptx_hot": list(code.ptx_hot),
            "sass_hot": list(code.sass_hot),
        }
        for code in report.lines
    ]
