"""Answers to the ten questions: for the terminal and as a page."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowgemm.studies.questions import Answer, AnswerTable

__all__ = ["answer_view", "questions_page"]


def answer_view(answer: Answer) -> RenderableType:
    """An answer with its tables and its picture."""
    parts: list[RenderableType] = [
        Text(f"{answer.number}. {answer.question}", style="bold"),
        Text(f"   for {answer.gpu}\n", style="dim"),
    ]
    for paragraph in answer.paragraphs:
        parts.append(Text(paragraph + "\n"))
    if answer.picture:
        parts.append(Text(answer.picture + "\n", style="cyan"))
    for item in answer.tables:
        parts.append(_table(item))
    return Group(*parts)


def _table(item: AnswerTable) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for index, header in enumerate(item.headers):
        table.add_column(header, justify="right" if index and _is_number(item, index) else "left")
    for row in item.rows:
        table.add_row(*row)
    table.caption = item.source
    table.caption_justify = "left"
    return table


def _is_number(item: AnswerTable, column: int) -> bool:
    return all(row[column][:1].isdigit() or row[column] == "–" for row in item.rows)


def questions_page(answers: Sequence[Answer], nvrtc: str) -> str:
    """All answers as one Markdown page.

    Parameters
    ----------
    answers
        In the order of the questions.
    nvrtc
        The compiler whose machine code they show.
    """
    gpu = answers[0].gpu
    lines = [
        "# Ten questions on SGEMM",
        "",
        "The first of the two texts behind this project ends with ten questions. Here they are",
        f"answered with numbers for {gpu} and machine code of NVRTC {nvrtc}. `lowgemm ask N`",
        "answers them for the GPU at hand, `lowgemm ask N --gpu NAME` for another.",
        "",
    ]
    for answer in answers:
        lines += [f"## {answer.number}. {answer.question}", ""]
        for paragraph in answer.paragraphs:
            lines += [paragraph, ""]
        if answer.picture:
            lines += ["```", answer.picture, "```", ""]
        for item in answer.tables:
            lines += _markdown(item)
    return "\n".join(lines)


def _markdown(item: AnswerTable) -> list[str]:
    rules = ["--:" if i and _is_number(item, i) else "---" for i in range(len(item.headers))]
    return [
        "| " + " | ".join(item.headers) + " |",
        "|" + "|".join(rules) + "|",
        *("| " + " | ".join(row) + " |" for row in item.rows),
        "",
        f"({item.source})",
        "",
    ]
