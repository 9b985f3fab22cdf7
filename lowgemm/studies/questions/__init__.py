"""The ten questions that the first text asks, answered with numbers for a GPU."""

from __future__ import annotations

from collections.abc import Callable

from lowgemm.errors import ArgumentValueError
from lowgemm.hardware import GpuRecord
from lowgemm.studies.questions.answer import Answer, AnswerTable, Subject
from lowgemm.studies.questions.limits import (
    bank_conflicts,
    bottlenecks,
    registers_and_occupancy,
    stall_reasons,
)
from lowgemm.studies.questions.reuse import (
    intensity,
    outer_product,
    steps_of_a_kernel,
    warp_tiles,
)
from lowgemm.studies.questions.schedule import async_copies, overlap

__all__ = ["QUESTIONS", "Answer", "AnswerTable", "answer"]

_ANSWERS: tuple[Callable[[Subject], Answer], ...] = (
    intensity,
    bottlenecks,
    steps_of_a_kernel,
    outer_product,
    overlap,
    stall_reasons,
    bank_conflicts,
    warp_tiles,
    registers_and_occupancy,
    async_copies,
)
#: The numbers of the questions.
QUESTIONS = range(1, len(_ANSWERS) + 1)


def answer(number: int, gpu: GpuRecord, subject: Subject | None = None) -> Answer:
    """Answer a question with the numbers of a GPU.

    Parameters
    ----------
    number
        1 to 10, as the text numbers them.
    gpu
        The GPU.
    subject
        What an earlier answer for the same GPU computed, to be used again.

    Raises
    ------
    ArgumentValueError
        There is no such question.
    CompilationError, ToolNotFoundError
        The ladder, whose machine code some answers show, does not compile here.
    """
    if number not in QUESTIONS:
        raise ArgumentValueError(
            f"there is no question {number}", f"ask 1 to {len(_ANSWERS)}; none lists them all"
        )
    return _ANSWERS[number - 1](subject or Subject(gpu))
