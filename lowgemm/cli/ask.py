"""`lowgemm ask`."""

from __future__ import annotations

from typing import Annotated

import typer

from lowgemm.cli.common import Json, app, print_json, show

__all__ = ["ask"]

Numbers = Annotated[
    list[int] | None, typer.Argument(help="Questions, 1 to 10. Default: all of them.")
]
GpuName = Annotated[
    str | None,
    typer.Option("--gpu", help="The GPU to answer for. Default: the one at hand, else an H200."),
]


@app.command()
def ask(numbers: Numbers = None, gpu: GpuName = None, as_json: Json = False) -> None:
    """The ten questions on SGEMM, answered with numbers for a GPU."""
    from lowgemm.studies.modelling import choose_gpu
    from lowgemm.studies.questions import QUESTIONS, answer
    from lowgemm.studies.questions.answer import Subject
    from lowgemm.view.questions import answer_view

    record = choose_gpu(gpu).record
    subject = Subject(record)
    answers = [answer(number, record, subject) for number in numbers or QUESTIONS]
    if as_json:
        print_json(answers)
        return
    for item in answers:
        show(answer_view(item))
