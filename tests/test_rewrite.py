"""Rewritten hot loops: equal bits, sound control words, and every planted mistake is found."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from control_words import Mutant, mutants, reuse_mutants
from numpy.typing import NDArray

from lowgemm import compile_file, compile_source
from lowgemm.binary.cubin import read_cubin
from lowgemm.binary.instruction import Instruction
from lowgemm.binary.patch import with_code, with_grown_code
from lowgemm.binary.sass import SassKernel, read_sass
from lowgemm.emulator import Emulator, Finding, FindingKind
from lowgemm.emulator.program import compile_program
from lowgemm.errors import (
    ArgumentValueError,
    CubinError,
    EmulationError,
    KernelNotFoundError,
    RewriteError,
)
from lowgemm.gemm import GemmProblem, compile_rung, random_operands, rung
from lowgemm.rewrite import (
    HazardKind,
    RewrittenKernel,
    find_difference,
    find_hazards,
    rewrite_kernel,
    verify_on,
)
from lowgemm.rewrite.body import hot_loop, take_apart
from lowgemm.rewrite.cost import LoopCost
from lowgemm.rewrite.emit import Word
from lowgemm.rewrite.rewriter import _check_faster
from lowgemm.rewrite.schedule import Spread
from lowgemm.runtime.workload import Workload
from lowgemm.studies.ladder import upload_operands

if TYPE_CHECKING:
    from lowgemm.device import Gpu

ACCEPTED = [
    ("ex8", "sm_90"),
    ("ex10", "sm_86"),
    ("two_ideas", "sm_90"),
    ("two_ideas", "sm_120"),
    *(
        pytest.param(*each, marks=pytest.mark.slow)
        for each in (
            ("ex8", "sm_86"), ("ex8", "sm_89"), ("ex8", "sm_120"), ("ex9", "sm_86"),
            ("ex9", "sm_89"), ("ex9", "sm_90"), ("ex10", "sm_89"), ("ex10", "sm_90"),
            ("ex10", "sm_120"), ("ex9", "sm_120"), ("two_ideas", "sm_86"),
            ("two_ideas", "sm_89"),
        )
    ),
]  # fmt: skip


@cache
def original(name: str, arch: str) -> bytes:
    """A rung's cubin."""
    return compile_rung(rung(name, arch), arch).cubin


@cache
def rewritten(name: str, arch: str) -> RewrittenKernel:
    """Its first kernel rewritten: that for aligned rows."""
    cubin = original(name, arch)
    return rewrite_kernel(cubin, read_sass(cubin)[0].name)


def kernel_of(cubin: bytes, name: str) -> SassKernel:
    """One kernel's code."""
    return next(each for each in read_sass(cubin) if each.name == name)


def run(
    cubin: bytes, name: str, arch: str, kernel: str, shape: tuple[int, int, int], *, strict: bool
) -> tuple[NDArray[Any], list[Finding]]:
    """C of a GEMM on the emulator, and what it finds."""
    chosen, p = rung(name, arch), GemmProblem(*shape)
    with Emulator(arch, strict=strict, findings="collect", instructions=40_000) as device:
        a, b = device.empty(p.a_elements), device.empty(p.b_elements)
        c = device.zeros(p.c_elements)
        upload_operands(p, random_operands(p), a, b)
        launch = chosen.launch(device, p, a, b, c)
        device.load(cubin).kernel(kernel).launch(*launch.arguments, **launch.geometry)
        return c.download(), list(device.findings)


# ---- what is accepted


@pytest.mark.parametrize(("name", "arch"), ACCEPTED)
def test_bits_are_those_of_the_original(name: str, arch: str) -> None:
    """In strict mode, at whole tiles and at ragged sizes, after few and after many iterations."""
    made = rewritten(name, arch)
    for shape in ((256, 256, 64), (140, 132, 44), (128, 128, 8)):
        expected, _ = run(original(name, arch), name, arch, made.kernel, shape, strict=False)
        result, found = run(made.cubin, name, arch, made.kernel, shape, strict=True)
        assert not found
        assert np.array_equal(result.view(np.uint32), expected.view(np.uint32))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["ex8", "ex9", "ex10", "two_ideas"])
def test_bits_are_those_of_the_original_on_a_gpu(name: str, gpu: Gpu) -> None:
    """At whole tiles and at ragged sizes, over many iterations and blocks."""
    arch = str(gpu.architecture)
    try:
        made, chosen = rewritten(name, arch), rung(name, arch)
    except RewriteError as error:
        pytest.skip(f"stays as it is on {arch}: {error.what}")
    for shape in ((2048, 1024, 1000), (1540, 700, 1236)):
        p = GemmProblem(*shape)
        a, b = gpu.empty(p.a_elements), gpu.empty(p.b_elements)
        upload_operands(p, random_operands(p), a, b)
        results = []
        for cubin in (original(name, arch), made.cubin):
            c = gpu.zeros(p.c_elements)
            launch = chosen.launch(gpu, p, a, b, c)
            gpu.load(cubin).kernel(made.kernel).launch(*launch.arguments, **launch.geometry)
            results.append(c.download().view(np.uint32))
        assert np.array_equal(results[0], results[1]), shape


@pytest.mark.parametrize(("name", "arch"), ACCEPTED)
def test_a_rewritten_loop_costs_less(name: str, arch: str) -> None:
    """By the model, with as many blocks on an SM, and its new place told."""
    made = rewritten(name, arch)
    assert made.after.cycles < 0.95 * made.before.cycles
    assert made.after.ffmas == made.before.ffmas
    assert made.after.bank_cycles < 0.5 * made.before.bank_cycles
    assert made.after.latency <= made.before.latency
    signature = read_sass(original(name, arch))[0].signature
    assert made.registers <= {64: 168, 256: 128}[signature.max_threads or 0]
    assert made.new_loop.start >= 16 * len(read_sass(original(name, arch))[0].instructions)
    assert made.new_loop.start % 128 == 0


@pytest.mark.parametrize(("name", "arch"), ACCEPTED)
def test_other_kernels_of_the_cubin_stay(name: str, arch: str) -> None:
    """The other instance keeps its code and resources."""
    before, after = (
        read_sass(cubin)[1] for cubin in (original(name, arch), rewritten(name, arch).cubin)
    )
    assert before == after


# ---- what is refused

LOOP = """
extern "C" __global__ void k(float* out, const float* a, int n) {
    __shared__ float s[64];
    float sum = 0;
    s[threadIdx.x % 64] = a[threadIdx.x];
    __syncthreads();
    for (int i = 0; i < n; ++i) { BODY }
    out[threadIdx.x] = sum;
}
"""
REFUSED = {
    "sum += a[i];": "no loop with an FFMA",
    "sum = sum * a[i] + s[i % 64];": "adds to an accumulator",
}


@pytest.mark.parametrize("body", REFUSED)
def test_a_loop_that_is_no_outer_product_is_refused(body: str) -> None:
    """With the reason, and nothing is written."""
    cubin = compile_source(LOOP.replace("BODY", body), arch="sm_90").cubin
    with pytest.raises(RewriteError, match=REFUSED[body]):
        rewrite_kernel(cubin)


def test_a_loop_that_reads_the_time_is_refused() -> None:
    """Its instructions would change their places between two readings."""
    body = 'unsigned t; asm volatile("mov.u32 %0, %%clock;" : "=r"(t)); sum += a[i] * s[t % 64];'
    cubin = compile_source(LOOP.replace("BODY", body), arch="sm_90").cubin
    with pytest.raises(RewriteError, match="reads the time"):
        rewrite_kernel(cubin)


CALLED = """
__device__ __noinline__ float part(const float* a, const float* b, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}
extern "C" __global__ void k(float* out, const float* a, int n) {
    const float first = part(a, out, n);
    out[threadIdx.x] = part(a + n, out + n, n) * first;
}
"""


@pytest.mark.parametrize("arch", ["sm_86", "sm_90", "sm_120"])
def test_a_loop_of_a_function_that_is_called_is_refused(arch: str) -> None:
    """What its callers keep in registers cannot be seen from the loop."""
    cubin = compile_source(CALLED, arch=arch).cubin
    with pytest.raises(RewriteError, match="stands in a function that is called"):
        rewrite_kernel(cubin)


def test_a_loop_that_cannot_gain_is_refused() -> None:
    """The compiler's stays, and the refusal names the cycles."""
    with pytest.raises(RewriteError, match="shared memory takes all of the loop's 544 cycles"):
        rewritten("ex5", "sm_90")


def test_a_loop_whose_few_warps_would_wait_longer_is_refused() -> None:
    """As measured on an H200, with two warps a scheduler; four hide what one waits longer."""
    before = LoopCost(128, 163, 38, 18.0, 0, 264.0)
    after = LoopCost(128, 163, 5, 18.0, 0, 267.0)
    with pytest.raises(RewriteError, match="each of 2 warps of a scheduler would take 267 cycles"):
        _check_faster(before, after, 2)
    _check_faster(before, after, 4)
    _check_faster(before, replace(after, latency=264.0), 2)


def test_a_loop_that_would_need_more_registers_is_refused() -> None:
    """Loads as early as this keep more values on their way than there are registers."""
    cubin = original("ex8", "sm_90")
    with pytest.raises(RewriteError, match="registers are needed, 64 for accumulators"):
        rewrite_kernel(cubin, read_sass(cubin)[0].name, spread=Spread(400, 1.0))


@pytest.mark.parametrize(("name", "arch"), [("ex9", "sm_120"), ("two_ideas", "sm_120")])
def test_where_registers_are_few_loads_come_later(name: str, arch: str) -> None:
    """ptxas leaves these kernels fewer registers there; no block less fits on an SM."""
    made = rewritten(name, arch)
    before = read_sass(original(name, arch))[0].signature
    assert (
        made.registers
        <= 65536 // (before.max_threads or 0) // {64: 8, 256: 2}[before.max_threads or 0]
    )
    assert made.after.together(4) < 0.9 * made.before.together(4)


ONE_WARP = """
#define ALL _Pragma("unroll") for
extern "C" __global__ void __launch_bounds__(32)
    one_warp(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
             int m, int n, int k) {
    __shared__ __align__(16) float as[4][32], bs[4][64];
    const int t = threadIdx.x, tx = t % 8, ty = t / 8, m0 = blockIdx.y * 32, n0 = blockIdx.x * 64;
    float next_a[4], next_b[8], sums[8][8] = {};
#pragma unroll 1
    for (int k0 = 0; k0 < k; k0 += 4) {
        ALL (int i = 0; i < 4; ++i) {
            const int at = t + i * 32;
            next_a[i] = a[(m0 + at / 4) * k + k0 + at % 4];
        }
        ALL (int i = 0; i < 8; ++i) {
            const int at = t + i * 32;
            next_b[i] = b[(k0 + at / 64) * n + n0 + at % 64];
        }
        ALL (int i = 0; i < 4; ++i) as[(t + i * 32) % 4][(t + i * 32) / 4] = next_a[i];
        ALL (int i = 0; i < 8; ++i) bs[(t + i * 32) / 64][(t + i * 32) % 64] = next_b[i];
        __syncthreads();
        ALL (int step = 0; step < 4; ++step) {
            float x[8], y[8];
            ALL (int i = 0; i < 8; i += 4) *(float4*)&x[i] = *(float4*)&as[step][ty * 8 + i];
            ALL (int j = 0; j < 8; j += 2) *(float2*)&y[j] = *(float2*)&bs[step][tx * 8 + j];
            ALL (int i = 0; i < 8; ++i)
                ALL (int j = 0; j < 8; ++j) sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 8; ++j) c[(m0 + ty * 8 + i) * n + n0 + tx * 8 + j] = sums[i][j];
}
"""


@pytest.mark.parametrize("arch", ["sm_86", "sm_89"])
@pytest.mark.parametrize("spread", [Spread(24, 1.0), Spread(16, 1.0)])
def test_a_loop_that_begins_with_moves_is_compared(arch: str, spread: Spread) -> None:
    """Moves of the loop itself are none of those on the way in."""
    cubin = compile_source(ONE_WARP, arch=arch).cubin
    made = rewrite_kernel(cubin, spread=spread)
    results = []
    for each, strict in ((cubin, False), (made.cubin, True)):
        with Emulator(arch, strict=strict) as device:
            p = GemmProblem(32, 64, 16)
            a, b, c = device.empty(p.a_elements), device.empty(p.b_elements), device.zeros(32 * 64)
            upload_operands(p, random_operands(p), a, b)
            device.load(each).kernel("one_warp").launch(a, b, c, 32, 64, 16, grid=1, block=32)
            results.append(c.download().view(np.uint32))
    assert np.array_equal(results[0], results[1])


@pytest.mark.parametrize(
    ("load", "strong"), [("ld", False), ("ld.volatile", True), ("ld.relaxed.gpu", True)]
)
def test_strong_loads_keep_their_order(load: str, strong: bool) -> None:
    """Others may watch it; of two weak loads it does not matter which comes first."""
    source = Path(__file__).parent / "kernels" / "guarded_prefetch.cu"
    text = source.read_text().replace("ld.global", f"{load}.global")
    cubin = compile_source(text, arch="sm_90").cubin
    made = rewrite_kernel(cubin)
    before, after = (kernel_of(each, made.kernel) for each in (cubin, made.cubin))
    assert find_difference(before, after) is None
    code = list(after.instructions)
    places = range(made.new_loop.start // 16, made.new_loop.stop // 16)
    others = [i for i in places if code[i].name not in ("FFMA", "LDS", "MOV")]
    first, second = next(
        pair for pair in pairwise(others) if {code[i].name for i in pair} == {"LDG"}
    )
    code[first], code[second] = (
        replace(code[second], address=16 * first),
        replace(code[first], address=16 * second),
    )
    exchanged = find_difference(before, replace(after, instructions=tuple(code)))
    assert (exchanged is not None) == strong


def test_loads_are_waited_for_where_their_data_is_used() -> None:
    """Not where an address is computed anew: no wait comes while a load is younger than L2 takes.

    Loads of a loop that stores them at once are all on their way before the first wait.
    """
    for name in ("ex8", "two_ideas"):
        made = rewritten(name, "sm_90")
        code = kernel_of(made.cubin, made.kernel).instructions
        loop = code[made.new_loop.start // 16 : made.new_loop.stop // 16]
        loads = [place for place, each in enumerate(loop) if each.name == "LDG"]
        boards = {loop[place].control.write_scoreboard for place in loads}
        waits = [n for n, each in enumerate(loop) if boards & set(each.control.waits_for)]
        first = next(n for n in waits if n > loads[-1])
        assert loop[first].name == "STS", name
        early = [n for n in waits if loads[0] < n < loads[-1]]
        # Scoreboards serve others as well, but none that a load has set before.
        for n in early:
            older = {loop[p].control.write_scoreboard for p in loads if p < n}
            assert not older & set(loop[n].control.waits_for), name


def test_a_kernel_that_is_not_there_is_named() -> None:
    """Of several kernels one must be chosen."""
    with pytest.raises(KernelNotFoundError, match="no kernel alone"):
        rewrite_kernel(original("ex8", "sm_90"))
    with pytest.raises(KernelNotFoundError, match="nope"):
        rewrite_kernel(original("ex8", "sm_90"), "nope")


# ---- planted mistakes

NAME, ARCH = "ex10", "sm_90"


def changed(change: Callable[[list[tuple[int, int]], range], None]) -> SassKernel:
    """The rewritten kernel with its words changed, given where its loop stands among them."""
    made = rewritten(NAME, ARCH)
    code = read_cubin(made.cubin).code[made.kernel].content
    words = list(struct.iter_unpack("<QQ", code))
    change(words, range(made.new_loop.start // 16, made.new_loop.stop // 16))
    new = b"".join(struct.pack("<QQ", *word) for word in words)
    return kernel_of(with_code(made.cubin, made.kernel, new), made.kernel)


def find(name: str, nth: int = 0) -> int:
    """The index of an instruction of the new loop."""
    made = rewritten(NAME, ARCH)
    instructions = kernel_of(made.cubin, made.kernel).instructions
    loop = range(made.new_loop.start // 16, made.new_loop.stop // 16)
    return [index for index in loop if instructions[index].name == name][nth]


def the_original() -> SassKernel:
    """The kernel as the compiler made it."""
    return read_sass(original(NAME, ARCH))[0]


def test_the_rewritten_kernel_is_equal_and_sound() -> None:
    """Before anything is planted."""
    kernel = changed(lambda words, loop: None)
    assert find_difference(the_original(), kernel) is None
    assert not find_hazards(kernel)


def test_two_accumulators_that_are_swapped() -> None:
    """The addends of two FFMAs."""
    first, second = find("FFMA", 5), find("FFMA", 6)

    def swap(words: list[tuple[int, int]], loop: range) -> None:
        (a, b), (c, d) = words[first], words[second]
        words[first] = a, b & ~255 | d & 255
        words[second] = c, d & ~255 | b & 255

    assert "does not hold" in str(find_difference(the_original(), changed(swap)))


def test_a_load_on_the_other_side_of_the_barrier() -> None:
    """An LDS and the barrier change places."""
    barrier = find("BAR")
    load = next(each for each in (find("LDS", n) for n in range(9)) if each > barrier)

    def move(words: list[tuple[int, int]], loop: range) -> None:
        words[load], words[barrier] = words[barrier], words[load]

    assert find_difference(the_original(), changed(move)) is not None


def test_a_move_on_the_way_out_that_is_missing() -> None:
    """Behind the loop an accumulator is where the old code looks for it."""

    def drop(words: list[tuple[int, int]], loop: range) -> None:
        words[loop.stop + 3] = words[loop.stop + 4]

    assert "does not hold" in str(find_difference(the_original(), changed(drop)))


def test_another_instruction_outside_the_loop() -> None:
    """What is not the loop stays as it was."""

    def change(words: list[tuple[int, int]], loop: range) -> None:
        words[7] = words[8]

    assert "outside the loop" in str(find_difference(the_original(), changed(change)))


def _with(words: list[tuple[int, int]], index: int, **fields: Any) -> None:
    made = rewritten(NAME, ARCH)
    control = kernel_of(made.cubin, made.kernel).instructions[index].control
    words[index] = words[index][0], replace(control, **fields).encode(words[index][1])


def test_a_wait_that_is_dropped() -> None:
    """The first FFMA that waits for its operands no more does."""
    made = rewritten(NAME, ARCH)
    instructions = kernel_of(made.cubin, made.kernel).instructions
    waiting = next(
        index
        for index in range(made.new_loop.start // 16, made.new_loop.stop // 16)
        if instructions[index].name == "FFMA" and instructions[index].control.wait_mask
    )
    kernel = changed(lambda words, loop: _with(words, waiting, wait_mask=0))
    assert HazardKind.NOT_WAITED in {each.kind for each in find_hazards(kernel)}


def test_a_chain_of_ffmas_too_close() -> None:
    """An FFMA behind the one that it adds to, with a stall count of 1."""
    first = find("FFMA", 10)

    def repeat(words: list[tuple[int, int]], loop: range) -> None:
        words[first + 1] = words[first]

    kernel = changed(repeat)
    kinds = {each.kind for each in find_hazards(kernel)}
    assert HazardKind.TOO_EARLY in kinds
    assert find_difference(the_original(), kernel) is not None


def test_a_reuse_flag_on_a_register_that_is_overwritten() -> None:
    """The next instruction would get the value of before."""
    made = rewritten(NAME, ARCH)
    instructions = kernel_of(made.cubin, made.kernel).instructions
    ffma = find("FFMA", 20)
    target = instructions[ffma].register("d")
    assert target is not None

    def plant(words: list[tuple[int, int]], loop: range) -> None:
        # A := D with .reuse, and the next FFMA reads D in slot A as well.
        low, high = words[ffma]
        words[ffma] = low & ~(255 << 24) | target.number << 24, high | 1 << 58
        low, high = words[ffma + 1]
        words[ffma + 1] = low & ~(255 << 24) | target.number << 24, high

    kinds = {each.kind for each in find_hazards(changed(plant))}
    assert HazardKind.STALE_REUSE in kinds


@pytest.fixture
def quick_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No texts of nvdisasm in findings: they would take most of the time."""
    monkeypatch.setattr("lowgemm.emulator.device.disassemble", lambda *_, **__: ())


SHAPE = (128, 128, 40)


def _of_loop(
    make: Callable[[SassKernel, int, int], Iterable[Mutant]],
) -> tuple[SassKernel, list[Mutant]]:
    made = rewritten(NAME, ARCH)
    kernel = kernel_of(made.cubin, made.kernel)
    first, last = made.new_loop.start // 16, made.new_loop.stop // 16 - 1
    return kernel, list(make(kernel, first, last))


def _kills(chosen: Iterable[Mutant]) -> Counter[str]:
    """What of mutants shows in a strict run, and what the checker finds: all of the former.

    One shows by a hazard, by other bits of C, or by having no end.
    """
    made = rewritten(NAME, ARCH)
    code = read_cubin(made.cubin).code[made.kernel].content
    expected, _ = run(made.cubin, NAME, ARCH, made.kernel, SHAPE, strict=False)
    told: Counter[str] = Counter()
    for mutant in chosen:
        patched = mutant.cubin(made.cubin, made.kernel, code)
        static = bool(find_hazards(kernel_of(patched, made.kernel)))
        try:
            result, found = run(patched, NAME, ARCH, made.kernel, SHAPE, strict=True)
            dynamic = any(each.kind is FindingKind.HAZARD for each in found)
            dynamic |= not np.array_equal(result.view(np.uint32), expected.view(np.uint32))
        except EmulationError:
            dynamic = True
        assert static or not dynamic, mutant
        told[mutant.what] += 1
        told[f"{mutant.what}, in a run"] += dynamic
        told[f"{mutant.what}, found"] += static
    print(f"\n{NAME} {ARCH}: {dict(told)}")
    return told


@pytest.mark.slow
@pytest.mark.usefixtures("quick_texts")
def test_every_mutant_that_shows_is_found() -> None:
    """Each wait, stall count and scoreboard of the new loop: what a strict run reports is found.

    The numbers are printed (-s).
    """
    told = _kills(_of_loop(mutants)[1])
    for what in ("wait", "scoreboard"):
        assert told[f"{what}, in a run"] > 0


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow, id="all")])
@pytest.mark.usefixtures("quick_texts")
def test_every_reuse_flag_that_shows_is_found(every: bool) -> None:
    """Each of the new loop's flags flipped: what a strict run shows is found without one.

    None shows: a flag too few costs a read, and one too many matters only where its register is
    written before the slot is read again, which no single flip brings about here.
    """
    _, flips = _of_loop(reuse_mutants)
    told = _kills(flips if every else flips[:: len(flips) // 8])
    assert told["reuse flag cleared"] and told["reuse flag set"]
    assert told["reuse flag cleared, found"] == 0


# ---- on a workload

LAUNCH = Workload.parse(
    "grid=1 block=256 args=128,128,64,f32[8192],64,f32[8192],128,f32[16384]:zeros,128"
)


def test_a_workload_gives_the_same_bits() -> None:
    """Every array of a launch is compared; another cubin than the original is refused."""
    made = rewritten(NAME, ARCH)
    with Emulator(ARCH, strict=True) as device:
        verify_on(device, original(NAME, ARCH), made, LAUNCH)
        with pytest.raises(ArgumentValueError, match="made of another cubin"):
            verify_on(device, original("ex8", ARCH), made, LAUNCH)


@pytest.mark.parametrize("arch", ["sm_90", pytest.param("sm_86", marks=pytest.mark.slow)])
def test_a_kernel_with_guarded_loads_is_rewritten(arch: str) -> None:
    """As many are written: the next tile comes under guards into registers; ragged sizes too."""
    source = Path(__file__).parent / "kernels" / "guarded_prefetch.cu"
    cubin = compile_file(source, arch=arch).cubin
    made = rewrite_kernel(cubin)
    assert made.after.cycles < made.before.cycles
    assert made.after.latency < made.before.latency
    # A load that waited for the one before it would cost a trip to memory each.
    code = read_sass(made.cubin)[0].instructions
    loads = [each.control for each in code[made.new_loop.start // 16 :] if each.name == "LDG"]
    assert len(loads) == 8
    for control in loads:
        assert control.write_scoreboard not in control.waits_for
    workload = Workload.parse(
        "grid=1 block=256 args=f32[2400],f32[2880],f32[12000]:zeros,100,120,24"
    )
    with Emulator(arch, strict=True) as device:
        verify_on(device, cubin, made, workload)


def test_a_loop_in_which_a_warp_waits_longer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait for loads that have just been issued costs their latency, whatever slots are saved."""

    def wait_at_once(words: list[Word], loop: Sequence[Instruction], first: int) -> bool:
        loads = [place for place, each in enumerate(loop) if each.name == "LDG"]
        board, behind = loop[loads[0]].control.write_scoreboard, loads[-1] + 2
        assert board is not None
        control = loop[behind].control
        late = replace(control, wait_mask=control.wait_mask | 1 << board)
        words[first + behind] = words[first + behind][0], late.encode(words[first + behind][1])
        return True

    monkeypatch.setattr("lowgemm.rewrite.rewriter.without_early_waits", wait_at_once)
    with pytest.raises(RewriteError, match="4 warps of a scheduler would take"):
        kernel = rewritten("ex8", "sm_90").kernel
        rewrite_kernel(original("ex8", "sm_90"), kernel, spread=Spread(24, 1.0))


def test_other_bits_are_seen() -> None:
    """A rewritten kernel that computes something else does not pass."""
    first, second = find("FFMA", 5), find("FFMA", 6)
    made = rewritten(NAME, ARCH)
    code = bytearray(read_cubin(made.cubin).code[made.kernel].content)
    # The addends and results of two FFMAs change places.
    for at in (2, 8):
        code[16 * first + at], code[16 * second + at] = (
            code[16 * second + at],
            code[16 * first + at],
        )
    wrong = replace(made, cubin=with_code(made.cubin, made.kernel, bytes(code)))
    with Emulator(ARCH) as device, pytest.raises(RewriteError, match="array 2 of the launch"):
        verify_on(device, original(NAME, ARCH), wrong, LAUNCH)


# ---- longer code


def test_longer_code_keeps_what_was_there() -> None:
    """The kernel begins with its old code, has the new registers, and other sections stay."""
    cubin = original("ex4_16", "sm_90")
    kernel = read_sass(cubin)[0]
    code = read_cubin(cubin).code[kernel.name].content
    nop = struct.pack("<QQ", 0x7918, 0x000FC00000000000)
    grown = with_grown_code(cubin, kernel.name, code + 3 * nop, 99)
    after = kernel_of(grown, kernel.name)
    assert after.instructions[: len(kernel.instructions)] == kernel.instructions
    assert {each.name for each in after.instructions[len(kernel.instructions) :]} == {"NOP"}
    assert after.signature.registers == 99
    assert after.signature.parameters == kernel.signature.parameters
    shape = (40, 24, 16)
    results = [
        run(each, "ex4_16", "sm_90", kernel.name, shape, strict=True)[0] for each in (cubin, grown)
    ]
    assert np.array_equal(results[0], results[1])


def test_shorter_code_is_refused() -> None:
    """As is a kernel that the cubin does not have."""
    cubin = original("ex4_16", "sm_90")
    kernel = read_sass(cubin)[0]
    with pytest.raises(CubinError, match="0 bytes of code"):
        with_grown_code(cubin, kernel.name, b"")
    with pytest.raises(KernelNotFoundError):
        with_grown_code(cubin, "nope", b"")


# ---- what lies under guarded writes

GUARDED = """
extern "C" __global__ void k(float* out, const float* in, int n, int stop, unsigned t) {
    extern __shared__ float shared[];
    float sum = 0, value = 0;
    unsigned v = threadIdx.x, s = 8 * threadIdx.x;
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
        v += i;
        asm volatile("{ .reg .pred p; .reg .b64 q; setp.lt.s32 p, %3, %4;" BODY "}"
                     : "+f"(value), "+r"(v)
                     : "l"(in), "r"(i), "r"(stop), "l"(4ll * i * i), "r"(t), "r"(s)
                     : "memory");
        sum = sum * value + 1;
    }
    out[threadIdx.x] = sum + v;
}
"""


@pytest.mark.parametrize(
    ("body", "name", "dropped"),
    [
        ("@p add.u64 q, %2, %5; @p ld.global.f32 %0, [q];", "MOV", True),
        ("@p xor.b32 %1, %1, %6; st.shared.b32 [%7], %1; @!p shl.b32 %1, %1, 3;", "LOP3", False),
        ("@p xor.b32 %1, %1, %6; @p shl.b32 %1, %1, 3; st.shared.b32 [%7], %1;", "LOP3", False),
    ],
)
def test_old_values_count_where_somebody_may_see_them(body: str, name: str, dropped: bool) -> None:
    """Without the guard, or through another guarded write; not where only that guard looks."""
    source = GUARDED.replace("BODY", f'"{body}"')
    program = compile_program(read_sass(compile_source(source, arch="sm_90").cubin)[0])
    parts = take_apart(program, hot_loop(program), by_guards=True)
    guarded = [each for each in parts.items if each.name == name and "old" in each.reads]
    assert guarded
    assert all((not each.reads["old"]) == dropped for each in guarded)
