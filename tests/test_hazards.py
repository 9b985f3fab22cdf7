"""The checker of control words: silent on the compiler's code, and never behind strict mode."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from control_words import (
    Mutant,
    hazards_of_a_run,
    mutants,
    overwrites_what_it_keeps,
    reuse_mutants,
    with_control,
)
from corpus import ALL, build, takes_long

from lowgemm import compile_file, compile_source
from lowgemm.binary.cubin import read_cubin
from lowgemm.binary.flow import Loop, sass_flow
from lowgemm.binary.patch import with_code
from lowgemm.binary.sass import SassKernel, read_sass
from lowgemm.emulator import Emulator
from lowgemm.emulator.program import compile_program
from lowgemm.errors import UnknownInstructionError
from lowgemm.gemm import RUNG_NAMES, compile_rung, kernel_directory, rung
from lowgemm.rewrite import Hazard, HazardKind, find_hazards

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")
#: Kernels of the other files that hold nothing which the emulator does not know, per architecture.
FEWEST = 40


@pytest.mark.parametrize("arch", ARCHS)
def test_rungs_have_no_hazard(arch: str) -> None:
    """What ptxas makes of the ladder is sound on every way through it."""
    # Of a rewritten loop the rewriter itself finds that there is none.
    for name in (each for each in RUNG_NAMES if not takes_long(each, arch)):
        for kernel in read_sass(compile_rung(rung(name, arch), arch).cubin):
            assert not find_hazards(kernel), (name, kernel.name)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
def test_other_kernels_have_no_hazard(arch: str) -> None:
    """Nor has other code: calls, recursion, divergence, atomics, asynchronous copies."""
    checked = 0
    for name in ALL:
        for kernel in read_sass(build(name, arch).cubin):
            program = compile_program(kernel)
            if not program.unknown:
                assert not find_hazards(program), (name, kernel.name)
                checked += 1
    assert checked > FEWEST


def test_a_call_from_which_nothing_returns_is_a_jump() -> None:
    """Before sm_90 ptxas leaves loops by such calls; ways through them are not multiplied."""
    path = kernel_directory() / "sgemm_stream_k.cu"
    build = compile_file(path, arch="sm_80", name_expressions=("sgemm_stream_k<K16, X16>",))
    kernel = read_sass(build.cubin)[0]
    assert any(each.name == "CALL" for each in kernel.instructions)
    assert not find_hazards(kernel)


def test_a_predicate_that_a_mask_leaves_out_may_be_under_way() -> None:
    """On sm_120 a P2R takes P6 one cycle behind the comparison that makes P4."""
    source = Path(__file__).parent / "kernels" / "guarded_prefetch.cu"
    kernel = read_sass(compile_file(source, arch="sm_120").cubin)[0]
    names = [each.name for each in kernel.instructions]
    assert any(one == "ISETP" and other == "P2R" for one, other in pairwise(names))
    assert not find_hazards(kernel)


def test_an_instruction_that_nobody_knows_is_refused() -> None:
    """Without its operands nothing can be said."""
    source = (
        'extern "C" __global__ void k(unsigned* p) { unsigned d; '
        'asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(p[1])); *p = d; }'
    )
    kernel = read_sass(compile_source(source, arch="sm_90").cubin)[0]
    with pytest.raises(UnknownInstructionError):
        find_hazards(kernel)


# ---- planted


class _Code:
    """A kernel whose control words can be changed."""

    def __init__(self, source: str, arch: str) -> None:
        self.cubin = compile_source(source, arch=arch).cubin
        self.kernel = read_sass(self.cubin)[0]
        self.code = read_cubin(self.cubin).code[self.kernel.name].content

    def index(self, name: str, nth: int = 0) -> int:
        return [i for i, each in enumerate(self.kernel.instructions) if each.name == name][nth]

    def hazards(self, index: int, **fields: int | None) -> tuple[Hazard, ...]:
        control = replace(self.kernel.instructions[index].control, **fields)  # type: ignore[arg-type]
        mutant = Mutant("", index, control)
        return find_hazards(read_sass(mutant.cubin(self.cubin, self.kernel.name, self.code))[0])


CHAIN = """
extern "C" __global__ void k(float* out, const float* in) {
    float x = in[0], y = in[1], a = out[threadIdx.x];
    a = a * x + y;
    a = a * x + y;
    out[threadIdx.x] = a;
}
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_a_stall_count_too_low_is_named(arch: str) -> None:
    """Which register, of which instruction, and how many cycles are missing."""
    code = _Code(CHAIN, arch)
    assert not find_hazards(code.kernel)
    first, second = code.index("FFMA"), code.index("FFMA", 1)
    (hazard,) = code.hazards(first, stall=1)
    register = code.kernel.instructions[first].register("d")
    assert hazard == Hazard(16 * second, 16 * first, str(register), HazardKind.TOO_EARLY, 3)
    assert "3 cycles too few" in str(hazard)


TENSOR_COPIES = """
struct alignas(64) TensorMap { unsigned long long words[16]; };
extern "C" __global__ void k(const __grid_constant__ TensorMap map, unsigned to, unsigned barrier,
                             const int* x, int n) {
    if (threadIdx.x != 0) return;
#pragma unroll 1
    for (int i = 0; i < n; ++i)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx"
                     "::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(x[i]), "r"(i),
                     "r"(barrier) : "memory");
}
"""


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_a_tensor_copy_reads_its_uniform_registers_late(arch: str) -> None:
    """They may be written again when its read scoreboard says so; ptxas waits for that."""
    code = _Code(TENSOR_COPIES, arch)
    assert not find_hazards(code.kernel)
    found = code.hazards(code.index("UTMALDG"), read_scoreboard=None)
    assert {each.kind for each in found} == {HazardKind.SOURCE_OVERWRITTEN}
    assert {each.register[:2] for each in found} == {"UR"}


@pytest.mark.parametrize("arch", ARCHS)
def test_a_wait_or_a_scoreboard_that_is_missing_is_named(arch: str) -> None:
    """A load that nobody waits for, and one that names no scoreboard."""
    code = _Code(CHAIN, arch)
    first = code.index("FFMA")
    assert {each.kind for each in code.hazards(first, wait_mask=0)} >= {HazardKind.NOT_WAITED}
    for nth in range(3):
        load = code.index("LDG", nth)
        found = code.hazards(load, write_scoreboard=None)
        assert any(
            each.producer == 16 * load and each.kind is HazardKind.NOT_WAITED for each in found
        )


#: MOV R9, R8: it reads slot B alone.
MOVE = (0x7202 | 9 << 16 | 8 << 32, 0xF00)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    ("slot", "stay", "stale"), [("a", True, True), ("a", False, False), ("b", True, False)]
)
def test_what_the_reuse_cache_has_lasts_until_its_slot_is_read(
    arch: str, slot: str, stay: bool, stale: bool
) -> None:
    """A copy into a kept register makes it stale, unless it reads the slot or one yields."""
    code = _Code(CHAIN, arch)
    last = code.index("FFMA", 1)
    words = list(struct.iter_unpack("<QQ", code.code))
    low, high = words[last]
    at = {"a": 24, "b": 32}[slot]
    reads = low & ~(255 << at) | 9 << at
    control = replace(code.kernel.instructions[last].control, stay=stay, stall=5)
    keeps = replace(control, reuse=1 << "ab".index(slot))
    words[last - 2 : last + 1] = [
        (reads, keeps.encode(high)),
        (MOVE[0], replace(control, stay=True, reuse=0, wait_mask=0).encode(MOVE[1])),
        (reads, high),
    ]
    cubin = with_code(code.cubin, "k", b"".join(struct.pack("<QQ", *each) for each in words))
    found = {(e.address, e.producer, e.kind) for e in find_hazards(read_sass(cubin)[0])}
    assert ((16 * last, 16 * last - 32, HazardKind.STALE_REUSE) in found) == stale


ZERO_FILL = """
extern "C" __global__ void k(float* out, const float* in, int n) {
    __shared__ float tile[64];
    unsigned at = (unsigned)__cvta_generic_to_shared(tile) + 4 * threadIdx.x;
    unsigned bytes = threadIdx.x < n ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(at), "l"(in + threadIdx.x), "r"(bytes));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_a_copy_that_comes_too_soon_behind_its_predicate_is_named(arch: str) -> None:
    """An LDGSTS reads the predicate that says what is zeros as late as a branch does."""
    code = _Code(ZERO_FILL, arch)
    copy, compare = code.index("LDGSTS"), code.index("ISETP")
    assert compare < copy
    assert not find_hazards(code.kernel)
    words = bytearray(code.code)
    for index in range(compare, copy):
        control = replace(code.kernel.instructions[index].control, stall=1)
        words[:] = with_control(bytes(words), index, control)
    close = with_code(code.cubin, code.kernel.name, bytes(words))
    found = find_hazards(read_sass(close)[0])
    missing = 13 - (copy - compare)
    assert missing > 0
    assert any(
        (each.address, each.producer, each.missing) == (16 * copy, 16 * compare, missing)
        for each in found
    )


def test_every_way_counts() -> None:
    """A wait that only one side of a branch needs is missed although the other runs."""
    source = """
    extern "C" __global__ void k(float* out, const float* in, int n) {
        float x = in[threadIdx.x];
        if (n > 5) { out[0] = 1; __syncthreads(); out[1] = 2; __syncthreads(); out[3] = x; }
    }
    """
    code = _Code(source, "sm_90")
    store = code.index("STG", 2)
    waits = [
        index
        for index in range(store + 1)
        if code.kernel.instructions[index].control.wait_mask
        and any(each.kind is HazardKind.NOT_WAITED for each in code.hazards(index, wait_mask=0))
    ]
    assert waits


#: Code whose protection is of a rarer kind: IMAD.HI's late addend, S2UR and B2R in their order,
#: predicated FP64, and code for a debugger, which drains the pipes at each instruction.
RARE = {
    "quotient": "unsigned __int128 x = t + 7; x = x << 64 | 99; o[t] = x / (o[t] + 3);",
    "grid": "unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * 2 + blockIdx.x; o[b] = b;",
    "votes": "int c = __syncthreads_count(t % 3), r = __syncthreads_or(t == 5); o[t] = c * 9 + r;",
    "sine": "o[t] = __double_as_longlong(sin(o[t] + t * 1.5));",
    "debug": "unsigned long long s = 0; for (int i = 0; i < t; ++i) s += i / 3; o[t] = s;",
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", RARE)
def test_rarer_protection_is_known(name: str, arch: str) -> None:
    """The compiler's code is sound for the checker and in a strict run."""
    source = (
        'extern "C" __global__ void k(unsigned long long* o) { int t = threadIdx.x; '
        f"{RARE[name]} }}"
    )
    options = ["--device-int128", *(["-G"] if name == "debug" else [])]
    built = compile_source(source, arch=arch, options=options)
    assert not find_hazards(read_sass(built.cubin)[0])
    with Emulator(arch, strict=True) as device:
        grid = (2, 3, 4) if name == "grid" else 1
        device.load(built).kernel("k").launch(device.zeros(64, np.uint64), grid=grid, block=32)


# ---- against strict mode

#: A wait is needed on one of these ways, in tiles of K, or on none.
DEPTHS = (2.4, 3, 0, 1, 8.3, 0.5, 2, 16.4, 5, 3.9, 7)


def _compare(
    name: str,
    arch: str,
    depths: tuple[float, ...],
    *,
    make: Callable[[SassKernel, int, int], Iterable[Mutant]] = mutants,
    only: Callable[[SassKernel, Mutant], bool] = lambda _, mutant: True,
) -> Counter[str]:
    """Mutants of a rung: how many each of the two finds."""
    cubin = compile_rung(rung(name, arch), arch).cubin
    kernel = read_sass(cubin)[0]
    code = read_cubin(cubin).code[kernel.name].content
    told: Counter[str] = Counter()
    for mutant in make(kernel, 0, len(kernel.instructions) - 1):
        if not only(kernel, mutant):
            continue
        patched = mutant.cubin(cubin, kernel.name, code)
        static = bool(find_hazards(read_sass(patched)[0]))
        dynamic = bool(hazards_of_a_run(patched, name, arch, kernel.name, depths))
        assert static or not dynamic, mutant
        told[mutant.what] += 1
        told[f"{mutant.what}, found"] += static
        told[f"{mutant.what}, found in a run"] += dynamic
    return told


@pytest.fixture
def quick_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No texts of nvdisasm in findings: they would take most of the time."""
    monkeypatch.setattr("lowgemm.emulator.device.disassemble", lambda *_, **__: ())


@pytest.mark.parametrize("arch", [pytest.param("sm_80", marks=pytest.mark.slow), "sm_90"])
@pytest.mark.usefixtures("quick_texts")
def test_what_strict_mode_finds_is_found(arch: str) -> None:
    """Of wrong control words anywhere in a rung, all that show in a run are found without one."""
    told = _compare("ex4_16", arch, DEPTHS[:3])
    print(f"\nex4_16 {arch}: {dict(told)}")
    for what in ("wait", "stall", "scoreboard"):
        assert told[f"{what}, found in a run"] > 0.5 * told[f"{what}, found"] > 0


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow, id="all")])
@pytest.mark.usefixtures("quick_texts")
def test_stale_operands_that_strict_mode_finds_are_found(every: bool) -> None:
    """Each reuse flag of a rung flipped: those on registers that their instruction writes, or all.

    A flag cleared is never wrong: it costs a read.
    """
    only = (lambda *_: True) if every else overwrites_what_it_keeps
    told = _compare("ex4_32", "sm_86", DEPTHS[:1], make=reuse_mutants, only=only)
    print(f"\nex4_32 sm_86: {dict(told)}")
    assert told["reuse flag set, found in a run"] > 0
    assert told["reuse flag cleared, found"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", RUNG_NAMES)
@pytest.mark.usefixtures("quick_texts")
def test_each_wait_is_needed_or_shown_to_be_redundant(name: str, arch: str) -> None:
    """Each wait bit of each rung deleted, one at a time: a run reports it, or no way needs it.

    Of 2,943, runs at eleven depths report 2,799; 134 are redundant; the other 10 guard ways that
    no launch takes, and the checker reports them.
    """
    told = _compare(name, arch, DEPTHS, only=lambda _, mutant: mutant.what == "wait")
    print(f"\n{name} {arch}: {dict(told)}")
    assert told["wait, found"] - told["wait, found in a run"] <= 4


LOOPS = (("ex4_16", "sm_80"), ("ex5", "sm_90"), ("ex7", "sm_120"))


@pytest.mark.parametrize(
    ("name", "arch"),
    [LOOPS[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in LOOPS[1:])],
)
@pytest.mark.usefixtures("quick_texts")
def test_both_find_the_same_in_a_loop(name: str, arch: str) -> None:
    """In a hot loop, which every launch goes through, a run finds what the checker does.

    The number of wrong mutants of those made is printed (-s).
    """
    cubin = compile_rung(rung(name, arch), arch).cubin
    kernel = read_sass(cubin)[0]
    code = read_cubin(cubin).code[kernel.name].content
    loop = max(sass_flow(kernel).loops, key=lambda each: _ffmas(kernel, each))
    first, last = loop.start // 16, loop.end // 16 - 1
    made: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for mutant in mutants(kernel, first, last):
        patched = mutant.cubin(cubin, kernel.name, code)
        run = hazards_of_a_run(patched, name, arch, kernel.name)
        places = {each.address // 16 for each in run}
        static = {each.address // 16 for each in find_hazards(read_sass(patched)[0])}
        inside = set(range(first, last + 1))
        assert bool(places & inside) == bool(static & inside), mutant
        made[mutant.what] += 1
        wrong[mutant.what] += bool(places & inside)
    print(f"\n{name} {arch}: mutants {dict(made)}, of which wrong and found {dict(wrong)}")
    assert all(wrong[what] for what in ("wait", "stall", "scoreboard"))


def _ffmas(kernel: SassKernel, loop: Loop) -> int:
    return sum(
        each.name == "FFMA" for each in kernel.instructions[loop.start // 16 : loop.end // 16]
    )
