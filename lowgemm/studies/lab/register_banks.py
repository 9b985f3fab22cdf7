"""Register banks: which operands an FFMA can read in one cycle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lowgemm.compiler import Build
from lowgemm.hardware import Architecture, GpuRecord, capability
from lowgemm.hardware.register_banks import read_cycles
from lowgemm.studies.lab.bench import Bench
from lowgemm.studies.lab.bounds import lost_cycles
from lowgemm.studies.lab.experiment import (
    Experiment,
    MachineCode,
    Measurement,
    Prediction,
    Variant,
)
from lowgemm.studies.lab.ffma_loop import Bank, FfmaLoop, Role, Step, read_loop
from lowgemm.studies.lab.setup import Setup
from lowgemm.studies.lab.trial import Trial

__all__ = ["RegisterBanks"]

_KERNEL, _SOURCE = "lab_register_banks", "lab_register_banks.cu"
_THREADS, _SIDE, _FFMAS = 256, 8, 512
_FLOAT = 4
_ROUNDS = 2000
_FULL_RATE_LANES = 128
_UNPATCHED = "8x8, as ptxas has it"


def _a(n: int) -> Role:
    return ("a", n)


def _b(n: int) -> Role:
    return ("b", n)


def _sum(n: int) -> Role:
    return ("sum", n)


@dataclass(frozen=True, slots=True)
class _Pattern:
    """The loop's FFMAs in their order, where registers lie, and in which slots they are kept."""

    what: str
    steps: tuple[Step, ...]
    bank: Bank
    kept: str = ""
    stay: bool = True

    def cycles(self, issue_cycles: int) -> int:
        """Cycles of the FFMAs by the rule of the banks, where one takes the pipe so long."""
        numbers: dict[Role, int] = {}
        held: dict[str, Role] = {}
        reads = []
        for step in self.steps:
            slots = {"a": step.a, "b": step.b, "c": step.total}
            for role in slots.values():
                numbers.setdefault(role, 2 * len(numbers) + self.bank(role))
            reads.append([numbers[role] for slot, role in slots.items() if held.get(slot) != role])
            held = {slot: slots[slot] for slot in self.kept} if self.stay else {}
        return read_cycles(reads, issue_cycles)


def _repeated(steps: list[Step]) -> tuple[Step, ...]:
    """As many of the steps, over and over, as the loop has FFMAs."""
    return tuple(steps[n % len(steps)] for n in range(_FFMAS))


def _stream(sums: int, *, a: int = 1, b: int = 1) -> tuple[Step, ...]:
    """FFMAs that take turns in so many sums and factors."""
    return tuple(Step(_sum(n % sums), _a(n % a), _b(n % b)) for n in range(_FFMAS))


def _product(places: list[tuple[int, int]]) -> tuple[Step, ...]:
    """An outer product 8 x 8, its elements in the order of ``places``."""
    return _repeated([Step(_sum(i * _SIDE + j), _a(i), _b(j)) for i, j in places])


_ALONG = range(_SIDE)
_ROWS = [(i, j) for i in _ALONG for j in _ALONG]
_SNAKE = [(i, _SIDE - 1 - j if i % 2 else j) for i in _ALONG for j in _ALONG]
_SQUARES = [
    (i + down, j + right)
    for i in range(0, _SIDE, 2)
    for j in range(0, _SIDE, 2)
    for down, right in ((0, 0), (0, 1), (1, 1), (1, 0))
]


def _in_banks(a: int, b: int, total: int | None) -> Bank:
    """Each kind of register in a bank of its own; ``total`` None: sums in both in turn."""
    fixed = {"a": a, "b": b, "sum": total}

    def bank(role: Role) -> int:
        chosen = fixed[role[0]]
        return role[1] % 2 if chosen is None else chosen

    return bank


def _by_place(of_sum: Callable[[int, int], int]) -> Bank:
    """Factors in both banks in turn, the sum of row i and column j where ``of_sum`` says."""

    def bank(role: Role) -> int:
        kind, n = role
        return of_sum(n // _SIDE, n % _SIDE) % 2 if kind == "sum" else n % 2

    return bank


_OPPOSITE = _by_place(lambda i, j: j + 1)

_PATTERNS = {
    "a, b constant, reuse": _Pattern(
        "one a, one b, both kept", _stream(64), _in_banks(0, 1, None), kept="ab"
    ),
    "a, b constant": _Pattern(
        "the same, nothing kept: three reads", _stream(64), _in_banks(0, 1, None)
    ),
    "b opposite, reuse": _Pattern(
        "one a, kept; b in the bank opposite to the sum",
        _stream(32, b=8),
        _in_banks(0, 0, 1),
        kept="a",
    ),
    "b opposite": _Pattern("the same, a not kept", _stream(32, b=8), _in_banks(0, 0, 1)),
    "b same bank, reuse": _Pattern(
        "one a, kept; b in the bank of the sum", _stream(32, b=8), _in_banks(0, 1, 1), kept="a"
    ),
    "all vary": _Pattern(
        "eight a in one bank, eight b in the other, nothing kept",
        _stream(64, a=8, b=8),
        _in_banks(0, 1, None),
    ),
    "all vary, one bank": _Pattern(
        "a, b and the sum in one bank, nothing kept", _stream(24, a=8, b=8), _in_banks(0, 0, 0)
    ),
    "8x8 rows": _Pattern(
        "row after row, a kept; sums opposite to b", _product(_ROWS), _OPPOSITE, kept="a"
    ),
    "8x8 rows, checkerboard": _Pattern(
        "the same, sum (i, j) in bank (i + j) mod 2",
        _product(_ROWS),
        _by_place(lambda i, j: i + j),
        kept="a",
    ),
    "8x8 rows, same bank": _Pattern(
        "the same, each sum in the bank of its b",
        _product(_ROWS),
        _by_place(lambda i, j: j),
        kept="a",
    ),
    "8x8 snake": _Pattern(
        "at a row's end b is kept while a changes", _product(_SNAKE), _OPPOSITE, kept="ab"
    ),
    "8x8 squares": _Pattern(
        "2 x 2 at a time, each like a snake", _product(_SQUARES), _OPPOSITE, kept="ab"
    ),
    "8x8 snake, yield": _Pattern(
        "the snake with stay = 0: the kept operands are lost",
        _product(_SNAKE),
        _OPPOSITE,
        kept="ab",
        stay=False,
    ),
}


class RegisterBanks(Experiment):
    """A loop of FFMAs with registers, reuse and stay bits chosen in the machine code."""

    name = "register-banks"
    title = "Register banks, .reuse, and the order of FFMAs"
    claim = (
        "The register file gives one row a bank and cycle, Rn lying in bank n mod 2, and each bank "
        "holds one read more; what .reuse keeps is not read. So a second fresh operand of a bank "
        "costs a cycle unless the next FFMAs leave the bank idle, and an 8 x 8 outer product "
        "reaches full rate only when walked like a snake."
    )
    quantity = "FFMA rate"
    unit = "FFMA per cycle and SM partition"
    counted = ("FFMA",)

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """One kernel, patched in as many ways as there are patterns, and as it comes."""
        told = {name: pattern.what for name, pattern in _PATTERNS.items()}
        told[_UNPATCHED] = "the same outer product, order and registers of the compiler"
        return tuple(Variant(name, what, _SOURCE, _KERNEL) for name, what in told.items())

    def patch(self, variant: Variant, build: Build) -> bytes | None:
        """Give the loop the registers of the pattern."""
        pattern = _PATTERNS.get(variant.name)
        if pattern is None:
            return None
        return _loop(build).rewrite(
            build.cubin,
            pattern.steps,
            pattern.bank,
            kept=pattern.kept,
            stall=_issue_cycles(build.arch.major, build.arch.minor),
            stay=pattern.stay,
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """By the rule of the banks, and an issue slot for each instruction that is no FFMA."""
        issue_cycles = _issue_cycles(gpu.capability_major, gpu.capability_minor)
        predictions = {}
        for name in (*_PATTERNS, _UNPATCHED):
            code = codes.get(name)
            if name in _PATTERNS:
                cycles = _PATTERNS[name].cycles(issue_cycles)
            elif code is None or code.conflict_cycles is None:
                continue
            else:
                cycles = _FFMAS * issue_cycles + round(lost_cycles(gpu, code))
            # Where an FFMA takes two cycles, others issue in between.
            others = code.instructions - _FFMAS if code and issue_cycles == 1 else 0
            reason = f"{_FFMAS} FFMAs: {cycles} cycles for pipe and operands"
            reason += f", {others} issue slots for other instructions" if others else ""
            predictions[name] = Prediction(_FFMAS / (cycles + others), reason)
        return predictions

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """A block of eight warps on every SM; what it stores must be what its FFMAs say."""
        rng = np.random.default_rng(0)
        registers = len(_loop(setup.build(_UNPATCHED)).registers)
        host = rng.integers(0, 8, (registers, _THREADS)).astype(np.float32)
        source = setup.device.upload(host)
        blocks, rounds = setup.multiprocessors, setup.pick(_ROUNDS, setup.scale)
        trials = {}
        for name in (*_PATTERNS, _UNPATCHED):
            out = setup.device.empty((blocks, registers, _THREADS))
            launch = setup.kernel(name).prepare(
                source, out, rounds, grid=blocks, block=_THREADS, stream=setup.stream
            )
            wanted = _loop(setup.build(name)).results(host, rounds)
            trials[name] = Trial.of(launch, out, wanted, stream=setup.stream)
        return trials

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """FFMAs of a partition in a cycle."""
        checked = "every register of every thread against the FFMAs of the machine code"
        found = {name: Measurement.wrong(checked) for name in (*_PATTERNS, _UNPATCHED)}
        per_partition = _ROUNDS * _FFMAS * _THREADS // 32 / 4
        flop = 2 * _ROUNDS * _FFMAS * _THREADS * bench.multiprocessors
        for name, timing in bench.time_right(self.trials(bench)).items():
            found[name] = Measurement.timed(
                per_partition / bench.cycles(timing),
                timing,
                checked,
                tflops=flop / timing.median_us / 1e6,
            )
        return found


def _loop(build: Build) -> FfmaLoop:
    return read_loop(build.cubin, build.kernel(_KERNEL).name, _THREADS * _FLOAT)


def _issue_cycles(major: int, minor: int) -> int:
    """Cycles for which an FFMA of a warp occupies its partition's pipe."""
    return _FULL_RATE_LANES // capability(major, minor).ffma_lanes_per_sm
