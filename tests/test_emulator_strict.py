"""Strict mode: ptxas's own code is clean, and code with a wrong control word is not."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from control_words import with_control
from corpus import ALL, build
from numpy.typing import NDArray
from textbook_cases import CASES

from lowgemm.binary.cubin import read_cubin
from lowgemm.binary.patch import with_code
from lowgemm.binary.sass import SassKernel, read_sass
from lowgemm.compiler import compile_source
from lowgemm.emulator import Emulator, Finding, FindingKind
from lowgemm.emulator.front import Front
from lowgemm.emulator.launch import Launch
from lowgemm.emulator.operation import Operation
from lowgemm.emulator.program import compile_program
from lowgemm.emulator.rules import Rule, Rules
from lowgemm.emulator.word import PT, RZ
from lowgemm.gemm import RUNG_NAMES, GemmProblem, rung
from lowgemm.hardware import Architecture
from lowgemm.isa.latency import Consumer, Producer, fixed_latency
from lowgemm.rewrite import HazardKind, find_hazards
from lowgemm.studies.verification import verify

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")
SHAPES = (GemmProblem(35, 79, 19), GemmProblem(132, 132, 68))
#: Every fifth case on each architecture, another fifth on the next.
SAMPLE = [
    pytest.param(case, arch, id=f"{case.name}-{arch}")
    for shift, arch in enumerate(ARCHS)
    for case in CASES[shift :: len(ARCHS)]
    if Architecture.parse(arch) >= Architecture(*case.min_capability)
]


# ---- code as ptxas makes it


@pytest.mark.parametrize("arch", ARCHS)
def test_rungs_are_clean(arch: str) -> None:
    """Rungs are right and without a hazard: a third here, all with --slow."""
    with Emulator(arch, strict=True) as device:
        chosen = [rung(name, arch) for name in RUNG_NAMES[ARCHS.index(arch) % 3 :: 3]]
        for verdict in verify(device, chosen, SHAPES[:1]):
            assert verdict.result.passed


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
def test_all_rungs_are_clean(arch: str) -> None:
    """The same of all rungs."""
    with Emulator(arch, strict=True) as device:
        for verdict in verify(device, [rung(name, arch) for name in RUNG_NAMES], SHAPES):
            assert verdict.result.passed


@pytest.mark.parametrize(("case", "arch"), SAMPLE)
def test_textbook_kernels_are_clean(case: Any, arch: str) -> None:
    """Kernels as textbooks write them have no hazard."""
    with Emulator(arch, strict=True) as device:
        case.run(device, device.load(case.build(arch)))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
def test_all_textbook_kernels_are_clean(arch: str) -> None:
    """The same of all of them."""
    for case in CASES:
        if Architecture.parse(arch) >= Architecture(*case.min_capability):
            with Emulator(arch, strict=True) as device:
                case.run(device, device.load(case.build(arch)))


def _rules(kernel: SassKernel) -> tuple[Rule | None, ...]:
    """None stands for an instruction that the emulator does not know."""
    program = compile_program(kernel)
    return tuple(
        rule if operation.error is None else None
        for rule, operation in zip(Rules(program).rules, program.operations, strict=True)
    )


@cache
def _kernels(arch: str, *, every: bool = False) -> tuple[SassKernel, ...]:
    """ptxas's own: rungs, some kernels of textbooks or all; all files of the tests as well."""
    cases = list({case.source: case for case in CASES}.values())[:: 1 if every else 5]
    names = (name for name in (ALL if every else RUNG_NAMES) if not name.endswith("_rewritten"))
    cubins = [build(name, arch).cubin for name in names]
    for case in cases:
        if Architecture.parse(arch) >= Architecture(*case.min_capability):
            cubins.append(case.build(arch).cubin)
    return tuple(kernel for cubin in cubins for kernel in read_sass(cubin))


Pair = tuple[Producer, Consumer]


def _distances(kernel: SassKernel) -> Iterator[tuple[Pair, int]]:
    """The stall counts between results of fixed latency and their uses, in straight-line code."""
    made: dict[int, tuple[int, Producer]] = {}
    now = 0
    for rule, instruction in zip(_rules(kernel), kernel.instructions, strict=True):
        if rule is None or (instruction.target is not None and not instruction.is_conditional):
            made = {}
        if rule is None:
            continue
        for use in (*rule.reads, *((rule.guard,) if rule.guard else ())):
            if use.key in made:
                time, producer = made[use.key]
                yield (producer, use.consumer), now - time
        for key, result in rule.results:
            made.pop(key, None)
            if result is not None:
                made[key] = now, result
        now += rule.stall


EVERY = pytest.param(True, marks=pytest.mark.slow, id="all")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("every", [False, EVERY])
def test_latencies_are_what_ptxas_leaves(arch: str, every: bool) -> None:
    """No use comes sooner than the table says, and what is often used comes as soon (-s: table)."""
    fewest: dict[Pair, int] = {}
    uses: Counter[Pair] = Counter()
    for kernel in _kernels(arch, every=every):
        for pair, cycles in _distances(kernel):
            uses[pair] += 1
            fewest[pair] = min(cycles, fewest.get(pair, cycles))
    major = Architecture.parse(arch).major
    print(f"\n{arch}: producer, consumer, cycles of the table, fewest seen, uses")
    for pair, cycles in sorted(fewest.items()):
        needed = fixed_latency(*pair, major)
        print(f"{pair[0]:32} {pair[1]:48} {needed:3} {cycles:3} {uses[pair]:6}")
        assert cycles >= needed, pair
        if every and uses[pair] >= 150:
            assert cycles <= needed + 1, pair


# ---- what an instruction reads and writes


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("every", [False, EVERY])
def test_operands_are_those_of_the_opcode_table(arch: str, every: bool) -> None:
    """Makers and opcode table agree on every register and predicate, found independently."""
    for kernel in _kernels(arch, every=every):
        for operation in compile_program(kernel).operations:
            if operation.error is not None or operation.never:
                continue
            item = operation.instruction
            if item.name in ("P2R", "R2P", "CALL"):
                continue  # of the first two the mask says which; a call's target may need a linker
            for written, mine, mine_too in (
                (False, operation.reads, operation.reads_predicates),
                (True, operation.writes, operation.writes_predicates),
            ):
                table = {(r.number, r.uniform) for r in item.registers if r.written == written}
                assert {(first, uniform) for first, _, uniform in mine} == table, item
                known = {(p.number, p.uniform) for p in item.predicates if p.written == written}
                if item.name == "P2R":
                    known &= set(mine_too)  # its mask says which
                assert set(mine_too) == known, item


class _Recorder:
    """What an operation really touches in the arrays of registers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: set[tuple[str, int]] = set()
        self.written: set[tuple[str, int]] = set()
        for name, kind, count in (
            ("register", "R", 1), ("uniform_register", "UR", 1),
            ("predicate", "P", 1), ("uniform_predicate", "UP", 1), ("words", "R", 0),
        ):  # fmt: skip
            self._wrap(monkeypatch, name, kind, count, self.read)
        for name, kind, count in (
            ("put", "R", 1), ("put64", "R", 2), ("put_uniform", "UR", 1),
            ("put_uniform64", "UR", 2), ("put_predicate", "P", 1),
            ("put_uniform_predicate", "UP", 1), ("put_words", "R", -1),
        ):  # fmt: skip
            self._wrap(monkeypatch, name, kind, count, self.written)

    def _wrap(
        self, monkeypatch: pytest.MonkeyPatch, name: str, kind: str, count: int,
        into: set[tuple[str, int]],
    ) -> None:  # fmt: skip
        inner: Callable[..., Any] = getattr(Front, name)

        def call(f: Front, number: int, *rest: Any) -> Any:
            if number != (PT if kind in ("P", "UP") else RZ):
                width = count if count > 0 else rest[0] if count == 0 else len(rest[0])
                into.update((kind, number + word) for word in range(width))
            return inner(f, number, *rest)

        monkeypatch.setattr(Front, name, call)


def _declared(operation: Operation) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    def registers(each: tuple[tuple[int, int, bool], ...]) -> set[tuple[str, int]]:
        return {("UR" if u else "R", n + i) for n, count, u in each for i in range(count)}

    def predicates(each: tuple[tuple[int, bool], ...]) -> set[tuple[str, int]]:
        return {("UP" if u else "P", n) for n, u in each}

    return (
        registers(operation.reads) | predicates(operation.reads_predicates),
        registers(operation.writes) | predicates(operation.writes_predicates),
    )


@pytest.mark.parametrize("arch", [pytest.param("sm_80", marks=pytest.mark.slow), "sm_120"])
def test_widths_are_what_is_touched(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No operation reads or writes a register that it does not declare."""
    recorder = _Recorder(monkeypatch)

    def checked(operation: Operation) -> Operation:
        inner = operation.run
        if inner is None or operation.error is not None:
            return operation
        reads, writes = _declared(operation)

        def run(f: Front, m: Any) -> None:
            recorder.read.clear()
            recorder.written.clear()
            inner(f, m)
            assert recorder.read <= reads, operation.instruction
            assert recorder.written <= writes, operation.instruction

        return replace(operation, run=run)

    made = Launch.__init__

    def make(self: Launch, *args: Any, **settings: Any) -> None:
        made(self, *args, **settings)
        self._operations = tuple(checked(each) for each in self._operations)

    monkeypatch.setattr(Launch, "__init__", make)
    for case in CASES[::2]:
        if Architecture.parse(arch) >= Architecture(*case.min_capability):
            with Emulator(arch) as device:
                case.run(device, device.load(case.build(arch)))


# ---- one wrong control word


SOURCE = """
extern "C" __global__ void twice(float* out, const float* in) {
    float x = in[0], y = in[1], a = out[threadIdx.x];
    a = a * x + y;
    a = a * x + y;
    out[threadIdx.x] = a;
}"""


@dataclass
class _Twice:
    """The machine code of a kernel with a load, two dependent FFMAs and a store."""

    arch: str

    def __post_init__(self) -> None:
        self.cubin = compile_source(SOURCE, arch=self.arch).cubin
        (kernel,) = read_sass(self.cubin)
        self.instructions = kernel.instructions
        self.code = read_cubin(self.cubin).code["twice"].content
        self.ffmas = [i for i, each in enumerate(self.instructions) if each.name == "FFMA"]

    def run(self, code: bytes) -> tuple[list[Finding], NDArray[np.float32]]:
        with Emulator(self.arch, strict=True, findings="collect") as device:
            out = device.upload(np.full(32, 5, np.float32))
            given = device.upload(np.array([3, 2], np.float32))
            kernel = device.load(with_code(self.cubin, "twice", code)).kernel("twice")
            kernel.launch(out, given, grid=1, block=32)
            return list(device.findings), out.download()


@pytest.mark.parametrize("arch", ARCHS)
def test_a_stall_count_too_low(arch: str) -> None:
    """The finding names instruction, register, producer and cycles; the result is another."""
    twice = _Twice(arch)
    first, second = twice.ffmas
    right, result = twice.run(twice.code)
    assert not right
    assert (result == (5 * 3 + 2) * 3 + 2).all()
    control = twice.instructions[first].control
    found, result = twice.run(with_control(twice.code, first, replace(control, stall=1)))
    assert (result != (5 * 3 + 2) * 3 + 2).all()
    (finding,) = found
    register = twice.instructions[first].register("d")
    assert finding.kind is FindingKind.HAZARD
    assert finding.address == 16 * second
    assert finding.count == 32
    assert f"{register} is read 3 cycles too early" in finding.detail
    assert f"FFMA {register}," in finding.detail and "in 4 cycles" in finding.detail


EXCHANGE = """
extern "C" __global__ void exchange(float* out) {
    __shared__ float shared[64];
    shared[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = shared[63 - threadIdx.x];
}"""


@pytest.mark.parametrize("arch", ARCHS)
def test_an_access_that_passes_a_barrier(arch: str) -> None:
    """Six cycles go by before a barrier holds the warp; on an H200 a sooner store passed it."""
    cubin = compile_source(EXCHANGE, arch=arch).cubin
    (kernel,) = read_sass(cubin)
    (barrier,) = (i for i, each in enumerate(kernel.instructions) if each.name == "BAR")
    code = read_cubin(cubin).code["exchange"].content
    for stall, sound in ((6, True), (5, False), (1, False)):
        control = replace(kernel.instructions[barrier].control, stall=stall)
        changed = with_code(cubin, "exchange", with_control(code, barrier, control))
        hazards = find_hazards(read_sass(changed)[0])
        assert {each.kind for each in hazards} == (set() if sound else {HazardKind.BARRIER_PASSED})
        assert all(each.producer == 16 * barrier for each in hazards)
        with Emulator(arch, strict=True, findings="collect") as device:
            out = device.upload(np.arange(64, dtype=np.float32))
            device.load(changed).kernel("exchange").launch(out, grid=1, block=64)
            assert bool(device.findings) is not sound
            if not sound:
                told = f"{6 - stall} cycle{'s' if stall < 5 else ''} too early: BAR"
                assert told in device.findings[0].detail


def test_a_load_without_its_scoreboard() -> None:
    """A load that names no scoreboard is never waited for; one that nobody waits for is not."""
    twice = _Twice("sm_90")
    loads = [i for i, each in enumerate(twice.instructions) if each.name == "LDG"]
    for load in loads:
        control = twice.instructions[load].control
        found, _ = twice.run(
            with_control(twice.code, load, replace(control, write_scoreboard=None))
        )
        assert any("names no scoreboard" in each.detail for each in found)
    first = twice.ffmas[0]
    control = twice.instructions[first].control
    found, result = twice.run(with_control(twice.code, first, replace(control, wait_mask=0)))
    assert any("nothing has waited for SB" in each.detail for each in found)
    assert (result != 53).all()


def _with_fields(code: bytes, index: int, fields: dict[int, int]) -> bytes:
    """The code with other registers, by the first bit of their fields."""
    changed = bytearray(code)
    low, high = struct.unpack_from("<QQ", code, 16 * index)
    for at, number in fields.items():
        low = low & ~(255 << at) | number << at
    struct.pack_into("<QQ", changed, 16 * index, low, high)
    return bytes(changed)


def _accumulating(twice: _Twice) -> tuple[bytes, int]:
    """Both FFMAs with the sum in one register, which both read in the same slot (a: 0, b: 1)."""
    one, two = (
        {each.slot: each.number for each in twice.instructions[index].registers}
        for index in twice.ffmas
    )
    slot, factor_slot = ("a", "b") if two["a"] == one["d"] else ("b", "a")
    assert two[slot] == one["d"]
    factor = two[factor_slot]
    total = one["a"] if one["b"] == factor else one["b"]
    places = {"a": 24, "b": 32}
    fields = {16: total, places[slot]: total, places[factor_slot]: factor}
    code = _with_fields(twice.code, twice.ffmas[0], fields)
    return _with_fields(code, twice.ffmas[1], {places[slot]: total}), "ab".index(slot)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_reused_operand_that_has_been_overwritten(arch: str) -> None:
    """The next instruction gets the value that the reuse cache has kept, and that is a finding."""
    twice = _Twice(arch)
    first, second = twice.ffmas
    assert second == first + 1
    code, slot = _accumulating(twice)
    found, result = twice.run(code)
    assert not found and (result == 53).all()
    control = replace(twice.instructions[first].control, reuse=1 << slot, stay=True)
    found, result = twice.run(with_control(code, first, control))
    (finding,) = found
    assert finding.kind is FindingKind.HAZARD and "keeps it for reuse" in finding.detail
    assert (result == 5 * 3 + 2).all()
    yields = replace(control, stay=False)
    found, result = twice.run(with_control(code, first, yields))
    assert not found and (result == 53).all()


def test_a_finding_stops_a_launch() -> None:
    """A hazard raises as other findings do, and without strict mode it is none."""
    twice = _Twice("sm_90")
    control = twice.instructions[twice.ffmas[0]].control
    cubin = with_code(
        twice.cubin, "twice", with_control(twice.code, twice.ffmas[0], replace(control, stall=1))
    )
    for strict in (True, False):
        with Emulator("sm_90", strict=strict) as device:
            out, given = device.zeros(32), device.zeros(2)
            kernel = device.load(cubin).kernel("twice")
            if strict:
                with pytest.raises(Exception, match="too early"):
                    kernel.launch(out, given, grid=1, block=32)
            else:
                kernel.launch(out, given, grid=1, block=32)
