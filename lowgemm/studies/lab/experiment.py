"""What an experiment is: a claim, kernels that differ in one thing, a prediction, a measurement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from lowgemm.emulator import ExecutedTotals, Finding
from lowgemm.hardware import Architecture, GpuRecord

if TYPE_CHECKING:
    from lowgemm.compiler import Build
    from lowgemm.measure import Timing
    from lowgemm.studies.lab.bench import Bench
    from lowgemm.studies.lab.setup import Setup
    from lowgemm.studies.lab.trial import Trial

__all__ = [
    "Emulation",
    "Experiment",
    "LabResult",
    "LabRow",
    "MachineCode",
    "Measurement",
    "Prediction",
    "Variant",
]


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel of an experiment.

    ``what`` says how it differs from the others. ``source`` is a file among the project's kernels,
    ``kernel`` a kernel in it or a template's instance (``lab_k<true>``). ``target`` is the suffix
    of the architecture where it needs one (``a`` for TMA's and the tensor cores' own instructions).
    """

    name: str
    what: str
    source: str
    kernel: str
    defines: Mapping[str, str | int] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    target: str = ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says before anything ran: a value in the experiment's unit, and its reason."""

    value: float
    reason: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was seen on a GPU.

    ``value`` is in the experiment's unit and None where the result was wrong. ``checked`` says what
    the result was compared with. The times are of one launch and None where the kernel counted
    cycles itself. ``details`` are further figures by name, with the unit in the name.
    """

    value: float | None
    correct: bool
    checked: str
    time_us: float | None = None
    time_q1_us: float | None = None
    time_q3_us: float | None = None
    samples: int | None = None
    details: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def timed(cls, value: float, timing: Timing, checked: str, **details: float) -> Measurement:
        """A right result with the time that its value comes from."""
        return cls(
            value,
            True,
            checked,
            timing.median_us,
            timing.q1_us,
            timing.q3_us,
            timing.samples,
            details,
        )

    @classmethod
    def wrong(cls, checked: str) -> Measurement:
        """A result that was not right: no figure is given for it."""
        return cls(None, False, checked)


@dataclass(frozen=True, slots=True)
class Emulation:
    """What a small launch did on the emulator: it counts and knows no time.

    ``executed`` is None where the launch could not be run to its end; ``stopped`` then says why.
    """

    correct: bool
    executed: ExecutedTotals | None
    findings: tuple[Finding, ...] = ()
    stopped: str | None = None

    @property
    def passed(self) -> bool:
        """Whether it ran to its end with the right result and did nothing wrong on the way."""
        return self.correct and not self.findings


@dataclass(frozen=True, slots=True)
class MachineCode:
    """What the compiler made of a variant: figures of the kernel, and counts of its hot loop.

    Where there is no loop the counts are those of the kernel. ``mix`` holds the instructions that
    the experiment is about. ``conflict_cycles`` is modelled.
    """

    arch: str
    registers: int
    shared_bytes: int
    spill_bytes: int
    instructions: int
    mix: Mapping[str, int]
    conflict_cycles: int | None


@dataclass(frozen=True, slots=True)
class LabRow:
    """One variant: what was predicted, what the machine code shows, what was seen of a run."""

    variant: str
    what: str
    prediction: Prediction | None
    code: MachineCode | None
    measurement: Measurement | None
    emulation: Emulation | None = None

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None where either is missing or wrong."""
        measured = self.measurement.value if self.measurement else None
        if measured is None or self.prediction is None or self.prediction.value == 0:
            return None
        return measured / self.prediction.value


@dataclass(frozen=True, slots=True)
class LabResult:
    """One experiment on one GPU, or without one.

    ``gpu`` is the GPU that the predictions are for. ``unmeasured`` says why there are no
    measurements, where there are none; ``clock_mhz`` is the median of the SM clocks at which the
    variants timed last ran.
    """

    experiment: str
    title: str
    claim: str
    quantity: str
    unit: str
    gpu: str
    rows: tuple[LabRow, ...]
    unmeasured: str | None = None
    clock_mhz: int | None = None

    @property
    def is_emulated(self) -> bool:
        """Whether the emulator ran the variants."""
        return any(row.emulation for row in self.rows)


class Experiment(ABC):
    """A claim about the machine that kernels can show to be right or wrong.

    Attributes
    ----------
    name
        As on the command line.
    title, claim
        A heading, and in a sentence or two what is claimed and where it comes from.
    quantity, unit
        What is predicted and measured.
    counted
        The instructions to count in the machine code, with widths (``LDS.128``) or without for all.
    needs
        The lowest compute capability on which it runs.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    claim: ClassVar[str]
    quantity: ClassVar[str]
    unit: ClassVar[str]
    counted: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[int, int]] = (8, 0)

    @abstractmethod
    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """The kernels, in the order in which they are shown."""

    def patch(self, variant: Variant, build: Build) -> bytes | None:
        """The cubin to run instead of the compiler's, for what CUDA C++ cannot say.

        None, as by default, leaves the build as it is. Resources and signatures must stay.

        Raises
        ------
        CubinError
            The machine code is not such as can be changed.
        """
        return None

    @abstractmethod
    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """What each variant should show on a GPU, by variant.

        Parameters
        ----------
        gpu
            The GPU.
        codes
            What the compiler made of the variants, where it compiled them.
        """

    @abstractmethod
    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """Each variant on its operands, by variant; beside them what they are compared with."""

    @abstractmethod
    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """Run the variants, check their results, and measure; by variant."""
