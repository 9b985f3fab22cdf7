"""An instruction made ready to execute, and the table of what makes it so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lowgemm.emulator.word import ReadPredicate, Word

if TYPE_CHECKING:
    from lowgemm.binary.instruction import Instruction
    from lowgemm.emulator.front import Front, Mask
    from lowgemm.errors import UnknownInstructionError

__all__ = ["MAKERS", "Control", "Operation", "Run", "maker"]

#: Executes an instruction for the lanes of a mask.
Run = Callable[["Front", "Mask"], None]
#: Executes one that decides where the front goes on: an address, or None where the front ends.
Control = Callable[["Front", "Mask"], "int | None"]
#: Makes the one or the other of an instruction's bits.
Maker = Callable[[Word], "Run | Flow"]


@dataclass(frozen=True, slots=True)
class Flow:
    """Marks what a maker returns as a decision over the front's way.

    With ``sees_guard`` it is taken for lanes whose guard is false too.
    """

    control: Control
    sees_guard: bool = False


@dataclass(slots=True)
class Operation:
    """One instruction, ready.

    ``guard`` reads the predicate in front of it, None if it always executes. ``run`` or ``control``
    is what it does; neither for one that does nothing. ``error`` says why it cannot be executed.
    ``reads`` and ``writes`` are its registers: the first, how many, and whether they are uniform;
    ``reads_predicates`` and ``writes_predicates`` its predicates but for the guard: which, and
    whether it is uniform.
    """

    instruction: Instruction
    run: Run | None = None
    control: Control | None = None
    guard: ReadPredicate | None = None
    never: bool = False
    error: UnknownInstructionError | None = None
    uniform: bool = False
    reads: tuple[tuple[int, int, bool], ...] = ()
    writes: tuple[tuple[int, int, bool], ...] = ()
    reads_predicates: tuple[tuple[int, bool], ...] = ()
    writes_predicates: tuple[tuple[int, bool], ...] = ()
    uniform_guard: bool = False
    next: int = field(default=0)


MAKERS: dict[str, Maker] = {}


def maker(*names: str) -> Callable[[Maker], Maker]:
    """Enter a maker for operations of these names."""

    def enter(function: Maker) -> Maker:
        for name in names:
            MAKERS[name] = function
        return function

    return enter
