"""Register banks: predictions, patched machine code, and what the loop computes."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest

from lowgemm.analysis.banks import conflict_cycles
from lowgemm.binary.instruction import Instruction
from lowgemm.binary.sass import read_sass
from lowgemm.compiler import Build
from lowgemm.errors import CubinError
from lowgemm.hardware import Architecture, gpu_record
from lowgemm.studies.lab import compile_variants, find_experiment
from lowgemm.studies.lab.ffma_loop import FfmaLoop, read_loop
from lowgemm.studies.lab.register_banks import RegisterBanks

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
THREADS, SIDE, FFMAS = 256, 8, 512
AS_IT_COMES = "8x8, as ptxas has it"
# Modelled cycles beyond one per FFMA, by hand: reads of a bank beyond one an FFMA, on average; with
# both operands and the sum fresh 1.5 where the sum's bank changes and 2 where it does not.
LOST = {
    "a, b constant, reuse": 0,
    "a, b constant": FFMAS // 2,
    "b opposite, reuse": 0,
    "b opposite": FFMAS,
    "b same bank, reuse": FFMAS,
    "all vary": FFMAS // 2,
    "all vary, one bank": 2 * FFMAS,
    "8x8 rows": FFMAS // 16,
    "8x8 rows, checkerboard": FFMAS // 8,
    "8x8 rows, same bank": FFMAS // 8,
    "8x8 snake": 0,
    "8x8 squares": FFMAS // 4,
    "8x8 snake, yield": FFMAS // 8 * 7,
}


@cache
def built(arch: str) -> dict[str, Build]:
    """Every variant's build, patched where it is."""
    variants = compile_variants(RegisterBanks(), Architecture.parse(arch))
    return {name: build for name, (_, build) in variants.items()}


def loop_of(build: Build) -> FfmaLoop:
    """The loop as the experiment reads it."""
    return read_loop(build.cubin, "lab_register_banks", THREADS * 4)


def ffmas(build: Build) -> list[Instruction]:
    """The FFMAs of the kernel in their order."""
    return [i for i in read_sass(build.cubin)[0].instructions if i.name == "FFMA"]


def test_the_rates_are_those_of_the_rule() -> None:
    """On 128 lanes one, a half or a third; an outer product between, the snake in full."""
    found = RegisterBanks().predict(gpu_record("h200"), {})
    for name, lost in LOST.items():
        assert found[name].value == pytest.approx(FFMAS / (FFMAS + lost), rel=0.03), name
    assert found["8x8 rows"].value == pytest.approx(16 / 17, rel=0.01)
    assert found["8x8 squares"].value == pytest.approx(4 / 5, rel=0.01)


def test_on_64_lanes_two_reads_of_a_bank_cost_nothing() -> None:
    """An FFMA takes two cycles there: only three reads of one bank take longer."""
    found = RegisterBanks().predict(gpu_record("a100"), {})
    assert found["8x8 rows"].value == found["a, b constant"].value == 0.5
    assert found["all vary, one bank"].value == pytest.approx(1 / 3, rel=0.01)


@pytest.mark.parametrize("arch", ARCHS)
def test_patched_code_has_the_conflicts_of_its_pattern(arch: str) -> None:
    """Counted in the machine code; the two or three other instructions end a reuse each."""
    builds = built(arch)
    for name, lost in LOST.items():
        assert conflict_cycles(ffmas(builds[name])) == pytest.approx(lost, abs=4), name


@pytest.mark.parametrize("arch", ARCHS)
def test_only_ffmas_differ(arch: str) -> None:
    """Everything but the FFMAs is as the compiler made it, and registers stay in what it took."""
    builds = built(arch)
    (original,) = read_sass(builds[AS_IT_COMES].cubin)
    own = {r.number for i in ffmas(builds[AS_IT_COMES]) for r in i.registers}
    for name, build in builds.items():
        (patched,) = read_sass(build.cubin)
        assert patched.signature == original.signature
        for old, new in zip(original.instructions, patched.instructions, strict=True):
            if old.name != "FFMA":
                assert (old.low, old.high) == (new.low, new.high), (name, hex(old.address))
        assert {r.number for i in ffmas(build) for r in i.registers} <= own, name


@pytest.mark.parametrize("arch", ARCHS)
def test_patched_code_keeps_the_latencies(arch: str) -> None:
    """Sums are used again after four cycles at the earliest, others are as far apart as before."""
    builds = built(arch)
    original = loop_of(builds[AS_IT_COMES])
    first, last = original.places[0], original.places[-1]
    old = original.kernel.instructions[first : last + 1]
    for name, build in builds.items():
        code = read_sass(build.cubin)[0].instructions[first : last + 1]
        starts = [0, *itertools.accumulate(i.control.stall for i in code)]
        written: dict[int, int] = {}
        for instruction, start in zip(code, starts, strict=False):
            for register in instruction.registers:
                if instruction.name == "FFMA" and register.slot in "abc":
                    assert start - written.get(register.number, -9) >= 4, (name, instruction)
            if instruction.name == "FFMA":
                written[instruction.registers[0].number] = start
        others = [n for n, i in enumerate(code) if i.name != "FFMA"]
        before = [0, *itertools.accumulate(i.control.stall for i in old)]
        for a, b in itertools.pairwise([-1, *others, len(code)]):
            wanted = before[b] - before[a + 1]
            assert starts[b] - starts[a + 1] >= min(wanted, 20), (name, a, b)


@pytest.mark.parametrize("arch", ARCHS)
def test_patched_code_waits_for_its_loads(arch: str) -> None:
    """The first FFMA waits for every scoreboard that a load sets."""
    for name, build in built(arch).items():
        loop = loop_of(build)
        code = loop.kernel.instructions
        loads = {i.control.write_scoreboard for i in code[: loop.places[0]] if i.name == "LDG"}
        assert loads <= set(code[loop.places[0]].control.waits_for), name


@pytest.mark.parametrize("arch", ARCHS)
def test_results_computed_from_machine_code_are_those_of_the_source(arch: str) -> None:
    """For the unpatched loop: double-buffered outer products, as the source says."""
    host = np.random.default_rng(1).integers(0, 8, (96, THREADS)).astype(np.float32)
    found = loop_of(built(arch)[AS_IT_COMES]).results(host, 10)
    a, b = host[:16].reshape(2, SIDE, 1, THREADS), host[16:32].reshape(2, 1, SIDE, THREADS)
    sums = host[32:] + 10 * 4 * (a * b).sum(axis=0).reshape(64, THREADS)
    assert (found == np.concatenate([host[:32], sums])).all()


def test_patched_loops_compute_what_their_patterns_say() -> None:
    """The snake changes 64 registers, each by the products of one a and one b."""
    host = np.arange(1, 97, dtype=np.float32)[:, None] * np.ones(THREADS, np.float32)
    changed = (loop_of(built("sm_90")["8x8 snake"]).results(host, 1) - host)[:, 0]
    kept = host[changed == 0, 0]
    assert (changed != 0).sum() == 64
    assert set(changed) <= {0, *(8 * kept[:, None] * kept).flat}


def test_a_kernel_of_another_kind_is_refused() -> None:
    """Without FFMAs, or with sums elsewhere than it loaded them, registers cannot be chosen."""
    variants = compile_variants(find_experiment("bank-conflicts"), Architecture(9, 0))
    _, build = variants["plain"]
    with pytest.raises(CubinError, match="no FFMA"):
        read_loop(build.cubin, build.kernels[0].name, 4)
    with pytest.raises(CubinError, match="FFMAs for the"):
        pattern = built("sm_90")["8x8 rows"]
        loop_of(pattern).rewrite(pattern.cubin, (), lambda role: 0, kept="", stall=1, stay=True)
