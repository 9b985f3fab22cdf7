"""What an answer consists of, and what the questions ask of a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from lowgemm.analysis import SassReport
from lowgemm.binary.flow import sass_flow
from lowgemm.binary.instruction import Instruction
from lowgemm.binary.sass import read_sass
from lowgemm.compiler import Build
from lowgemm.gemm import Rung, compile_rung, ladder
from lowgemm.hardware import Architecture, GpuRecord
from lowgemm.model import Machine
from lowgemm.studies.inspection import inspect_build

__all__ = ["Answer", "AnswerTable", "Subject"]

_OLDEST_TARGET = (7, 5)
_NEAREST_TO_OLDER = (8, 0)


@dataclass(frozen=True, slots=True)
class AnswerTable:
    """A table in an answer: what its columns are called, its rows, and where its numbers are from.

    ``source`` is ``"modelled"``, ``"machine code"`` or ``"measured"`` with what belongs to it.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    source: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one of the ten questions, for one GPU.

    ``picture`` is drawn in fixed-width text.
    """

    number: int
    question: str
    gpu: str
    paragraphs: tuple[str, ...]
    tables: tuple[AnswerTable, ...] = ()
    picture: str = ""


@dataclass(frozen=True)
class Subject:
    """A GPU with all that the answers compute from: its machine, and the ladder compiled for it.

    A GPU that the compiler no longer has a target for is given the machine code of sm_80.
    """

    gpu: GpuRecord
    _builds: dict[str, Build] = field(default_factory=dict, repr=False)

    @cached_property
    def machine(self) -> Machine:
        """The GPU's rates."""
        return Machine.from_gpu(self.gpu)

    @cached_property
    def arch(self) -> Architecture:
        """The architecture whose machine code is shown."""
        own = (self.gpu.capability_major, self.gpu.capability_minor)
        return Architecture(*(own if own >= _OLDEST_TARGET else _NEAREST_TO_OLDER))

    @cached_property
    def rungs(self) -> dict[str, Rung]:
        """The ladder."""
        return {rung.name: rung for rung in ladder(self.arch)}

    def build(self, name: str) -> Build:
        """A rung, compiled."""
        if name not in self._builds:
            self._builds[name] = compile_rung(self.rungs[name], self.arch)
        return self._builds[name]

    def report(self, name: str) -> SassReport:
        """What the machine code of a rung's instance for aligned rows holds."""
        build = self.build(name)
        wanted = build.kernel(self.rungs[name].instance(aligned=True)).name
        return next(report for report in inspect_build(build) if report.symbol == wanted)

    def hot_loop(self, name: str) -> tuple[Instruction, ...]:
        """The instructions of a rung's hot loop, in the order of their addresses."""
        build = self.build(name)
        wanted = build.kernel(self.rungs[name].instance(aligned=True)).name
        kernel = next(kernel for kernel in read_sass(build.cubin) if kernel.name == wanted)
        hot = self.report(name).hot
        flow = sass_flow(kernel)
        loop = next(x for x in flow.loops if hot and (x.start, x.end) == (hot.start, hot.end))
        runs = (flow.blocks[index] for index in sorted(loop.own_blocks))
        return tuple(i for b in runs for i in kernel.instructions[b.first : b.last + 1])
