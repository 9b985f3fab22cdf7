"""sgemm(): every kernel with every kind of operand, BLAS's rules, the interface, what is chosen."""

from __future__ import annotations

import gc
import itertools
import json
import math
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from lowgemm import sgemm
from lowgemm.emulator import Emulator
from lowgemm.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ArrayLayoutError,
    DtypeError,
    LowgemmError,
    OutputError,
    OverlapError,
    ProblemSizeError,
    StreamDeviceError,
)
from lowgemm.gemm import (
    Chip,
    Choice,
    Chooser,
    GemmProblem,
    Kind,
    Layout,
    Measured,
    Reference,
    Sgemm,
    SgemmCall,
    Tuned,
    TuningTable,
    random_operands,
)
from lowgemm.gemm.arrays import ArrayReader, reader_of
from lowgemm.gemm.choice import shipped_table, user_table
from lowgemm.gemm.engine import stream_key
from lowgemm.gemm.kernels import KERNELS, SgemmKernel, choices, kernel_named
from lowgemm.report.suite import SuiteReport, SuiteRow, read_suite, write_suite
from lowgemm.runtime import Array, ArrayView, Device, ElementType
from lowgemm.studies.suite import SUITE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lowgemm.device import Gpu

    Floats = NDArray[np.float32]

CHIP = Chip(multiprocessors=4)
STREAM_K = Choice("stream_k")
UNIT_ROUNDOFF = 2.0**-24


# ---- what is right


def bits(array: Floats) -> NDArray[np.uint32]:
    """The array's bits: NaN equals itself, and 0 differs from -0."""
    return np.ascontiguousarray(array).view(np.uint32)


def assert_right(
    result: Floats, a: Floats, b: Floats, c: Floats | None, alpha: float, beta: float
) -> None:
    """By the componentwise bound for a sum of k terms in any order, and C's rounding."""
    k = a.shape[-1]
    want = np.zeros(result.shape)
    bound = np.full(result.shape, 2.0**-126)
    if alpha:
        one, two = a.astype(np.float64), b.astype(np.float64)
        want += alpha * (one @ two)
        bound += (k + 3) * UNIT_ROUNDOFF * abs(alpha) * (abs(one) @ abs(two))
    if beta:
        assert c is not None
        want += beta * c.astype(np.float64)
        bound += 2 * UNIT_ROUNDOFF * abs(beta * c.astype(np.float64))
    wrong = ~(abs(result - want) <= bound)
    assert not wrong.any(), f"{np.count_nonzero(wrong)} wrong, first {np.argwhere(wrong)[0]}"


# ---- matrices in buffers


@dataclass(frozen=True)
class Matrices:
    """Matrices with any strides in a flat buffer on the host; ``first`` is where they begin."""

    buffer: Floats
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def within(self, buffer: Floats) -> Floats:
        """What would be these matrices in another buffer."""
        return as_strided(buffer[self.first :], self.shape, [4 * each for each in self.strides])

    @property
    def values(self) -> Floats:
        """The matrices."""
        return self.within(self.buffer)

    def assert_rest_untouched(self, after: Floats) -> None:
        """Whatever is no element of a matrix has the bits that it had."""
        one, two = self.buffer.copy(), after.copy()
        for each in (one, two):
            self.within(each)[...] = 0
        assert np.array_equal(bits(one), bits(two))


def placed(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    lead: int,
    rng: np.random.Generator,
    *,
    rest: float | None = None,
    behind: int = 0,
) -> Matrices:
    """Random matrices, ``lead`` elements into a buffer; the rest is random, or the one value."""
    reach = [(e - 1) * s for e, s in zip(shape, strides, strict=True) if e]
    first = lead - sum(min(each, 0) for each in reach)
    size = first + sum(max(each, 0) for each in reach) + 1 + behind
    buffer = rng.standard_normal(size, np.float32)
    if rest is not None:
        buffer[...] = rest
    made = Matrices(buffer, first, shape, strides)
    if 0 not in shape:
        made.values[...] = rng.standard_normal(shape, np.float32)
    return made


def strides_of(kind: Kind, rows: int, columns: int, *, along_k: bool) -> tuple[int, int, int]:
    """Strides of rows and columns that make a matrix of that kind, and where it begins.

    ``along_k`` says that k runs along its rows, as that of A does.
    """
    if kind is Kind.ANY:
        return -(2 * columns + 1), 2, 0
    along_rows = kind.along_k == along_k
    extent = columns if along_rows else rows
    whole = kind in (Kind.K16, Kind.X16)
    leading = -(-extent // 4) * 4 + 4 if whole else (extent | 1) + 2
    return (leading, 1, 0 if whole else 1) if along_rows else (1, leading, 0 if whole else 1)


def batch_step(row: int, column: int, rows: int, columns: int, *, whole: bool) -> int:
    """From one matrix to the next, with a gap; in whole fours or not."""
    span = -(-(rows * abs(row) + columns * abs(column)) // 4) * 4
    return span if whole else span + 3


@dataclass(frozen=True)
class Sizes:
    """A call's sizes."""

    m: int
    n: int
    k: int
    batches: int = 1


def call_of(sizes: Sizes, a_kind: Kind, b_kind: Kind) -> SgemmCall:
    """The call with operands of these kinds, C in rows with a gap."""
    layouts = []
    for kind, rows, columns, is_a in (
        (a_kind, sizes.m, sizes.k, True),
        (b_kind, sizes.k, sizes.n, False),
    ):
        row, column, lead = strides_of(kind, rows, columns, along_k=is_a)
        batch = batch_step(row, column, rows, columns, whole=not lead)
        layouts.append(Layout(row, column, batch, aligned=not lead))
    ldc = -(-sizes.n // 4) * 4 + 4
    c = Layout(ldc, 1, (sizes.m + 1) * ldc)
    return SgemmCall(sizes.m, sizes.n, sizes.k, layouts[0], layouts[1], c, sizes.batches)


def matrices_of(call: SgemmCall, rng: np.random.Generator) -> tuple[Matrices, Matrices, Matrices]:
    """A and B with NaN in their gaps, which end where their buffers do, and C among numbers."""
    made = []
    for layout, rows, columns in ((call.a, call.m, call.k), (call.b, call.k, call.n)):
        shape, strides = (
            (call.batches, rows, columns),
            (layout.batch, layout.row, layout.column),
        )
        lead = 0 if layout.aligned else 1
        made.append(placed(shape, strides, lead, rng, rest=math.nan))
    shape, strides = (call.batches, call.m, call.n), (call.c.batch, call.c.row, call.c.column)
    made.append(placed(shape, strides, 8, rng, behind=8))
    return made[0], made[1], made[2]


Operands = tuple[Matrices, Matrices, Matrices]


def launched(
    engine: Sgemm,
    call: SgemmCall,
    choice: Choice,
    operands: Operands,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> Floats:
    """The buffer of C after a launch; if C is not to be read it is NaN before."""
    device = engine.device
    a, b, c = operands
    before = c.buffer.copy()
    if beta == 0.0:
        c.within(before)[...] = math.nan
    there = [device.upload(each) for each in (a.buffer, b.buffer, before)]
    to_a, to_b, to_c = (
        array.pointer + 4 * each.first for array, each in zip(there, operands, strict=True)
    )
    engine.prepare(call, choice)(to_c, to_a, to_b, alpha, beta)
    after: Floats = there[2].download()
    c.assert_rest_untouched(after)
    return after


def check(
    engine: Sgemm, call: SgemmCall, choice: Choice, alpha: float = 1.0, beta: float = 0.0
) -> Floats:
    """Compute a call on random matrices, check it, and return C."""
    operands = matrices_of(call, np.random.default_rng(call.m + call.k))
    a, b, c = operands
    result = c.within(launched(engine, call, choice, operands, alpha, beta))
    assert_right(result, a.values, b.values, c.values, alpha, beta)
    return result


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    """An H200 on the CPU, with four multiprocessors."""
    with Emulator("sm_90") as device:
        yield device


@pytest.fixture(scope="module")
def engine(emulator: Emulator) -> Sgemm:
    """The compiler's kernels on it."""
    return Sgemm(emulator, rewritten=False)


# ---- every kernel, every kind of operand


def ragged(kernel: SgemmKernel, a_kind: Kind, b_kind: Kind) -> Sizes:
    """More than a tile and more than its ring of k-tiles, none whole; fours where they must be."""
    m = kernel.bm + (4 if a_kind is Kind.X16 else 3)
    n = 1 if kernel.bn == 1 else kernel.bn + (4 if b_kind is Kind.X16 else 5)
    return Sizes(m, n, max(45, 3 * kernel.bk + 5))


def pairs(kernel: SgemmKernel) -> dict[str, list[tuple[Kind, Kind]]]:
    """The kinds of A and B that a kernel takes, by the instance of it that they have in common."""
    found: dict[str, list[tuple[Kind, Kind]]] = {}
    for kinds in itertools.product(Kind, Kind):
        call = call_of(ragged(kernel, *kinds), *kinds)
        if (call.a_kind, call.b_kind) == kinds and kernel.accepts(call):
            found.setdefault(kernel.plan(call, 1, CHIP).expression, []).append(kinds)
    return found


def telling(kernel: SgemmKernel) -> list[tuple[Kind, Kind]]:
    """Two of them, others for each kernel: all pairs together. All for a single column."""
    number = KERNELS.index(kernel)
    found = list(pairs(kernel).values())
    if kernel.bn == 1:
        return list(itertools.chain(*found))
    # Of 16 instances, one for each two kinds, 5 and 7 lead to other kinds of both operands.
    few = (found[(5 * number + 7 * each) % len(found)] for each in range(2))
    return [each[number % len(each)] for each in few]


def cases() -> Iterator[Any]:
    for kernel in KERNELS:
        quick = telling(kernel)
        for kinds in itertools.chain(*pairs(kernel).values()):
            marks = () if kinds in quick else pytest.mark.slow
            name = "-".join((kernel.name, *(kind.value for kind in kinds)))
            yield pytest.param(kernel, *kinds, marks=marks, id=name)


def any_case(kernel: SgemmKernel) -> tuple[Kind, Kind]:
    """One pair of kinds that a kernel takes."""
    return telling(kernel)[0]


def most_splits(kernel: SgemmKernel, call: SgemmCall, chip: Chip) -> Choice:
    """The kernel with as many blocks a tile as there may be."""
    return Choice(kernel.name, kernel.splits(call, chip)[-1])


def check_kernel(engine: Sgemm, kernel: SgemmKernel, a_kind: Kind, b_kind: Kind) -> None:
    """Ragged edges with C not read; then whole tiles in batches, their sums cut, with factors."""
    call = call_of(ragged(kernel, a_kind, b_kind), a_kind, b_kind)
    check(engine, call, Choice(kernel.name))
    call = call_of(Sizes(kernel.bm, kernel.bn, 4 * kernel.bk, 2), a_kind, b_kind)
    check(engine, call, most_splits(kernel, call, engine.chip), alpha=0.5, beta=-2.25)


@pytest.mark.parametrize(("kernel", "a_kind", "b_kind"), list(cases()))
def test_every_kernel_takes_every_kind_of_operand(
    engine: Sgemm, kernel: SgemmKernel, a_kind: Kind, b_kind: Kind
) -> None:
    """Within the bound, whole and cut, with factors and batches; nothing else is touched."""
    check_kernel(engine, kernel, a_kind, b_kind)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_120"])
def test_every_kernel_on_other_architectures(arch: str, kernel: SgemmKernel) -> None:
    """The same on what the emulator knows beside sm_90."""
    with Emulator(arch) as device:
        check_kernel(Sgemm(device, rewritten=False), kernel, *any_case(kernel))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_infinity_and_nan_go_where_they_should(engine: Sgemm, kernel: SgemmKernel) -> None:
    """They reach their own row of C and no other, as in numpy; padding adds none."""
    kinds = any_case(kernel)
    call = call_of(ragged(kernel, *kinds), *kinds)
    a, b, c = operands = matrices_of(call, np.random.default_rng(7))
    a.values[0, -1, -1] = math.inf
    a.values[0, kernel.bm - 1, 0] = math.nan
    a.values[0, 0, call.k // 2] = -math.inf
    b.values[0, -1, -1] = 0.0
    result = c.within(launched(engine, call, Choice(kernel.name), operands))
    with np.errstate(invalid="ignore"):
        want = a.values.astype(np.float64) @ b.values.astype(np.float64)
    for found in (np.isnan, np.isposinf, np.isneginf):
        assert np.array_equal(found(result), found(want))


@pytest.mark.parametrize(
    "kernel", [each for each in KERNELS if len(each.SPLITS) > 1], ids=lambda kernel: kernel.name
)
def test_a_cut_sum_has_the_same_bits_each_time(engine: Sgemm, kernel: SgemmKernel) -> None:
    """Blocks add up in a fixed order, and leave the workspace as they found it."""
    kinds = any_case(kernel)
    call = call_of(Sizes(kernel.bm, kernel.bn, 4 * kernel.bk, 2), *kinds)
    choice = most_splits(kernel, call, engine.chip)
    assert choice.splits > 1
    operands = matrices_of(call, np.random.default_rng(3))
    one, two, three = (bits(launched(engine, call, choice, operands)) for _ in range(3))
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)


def test_kernels_share_a_workspace(emulator: Emulator) -> None:
    """Each leaves it clean for the others: what comes next has the bits it has on its own."""
    call = SgemmCall.of(GemmProblem(256, 128, 72))
    cut = next(each for each in choices(call, CHIP) if each.splits > 1)
    operands = matrices_of(call, np.random.default_rng(4))
    alone = {
        choice: bits(launched(Sgemm(emulator, rewritten=False), call, choice, operands))
        for choice in (STREAM_K, cut)
    }
    together = Sgemm(emulator, rewritten=False)
    for choice in (STREAM_K, cut, STREAM_K, cut, cut):
        assert np.array_equal(bits(launched(together, call, choice, operands)), alone[choice])


def test_a_kernel_that_does_not_fit_is_refused(engine: Sgemm) -> None:
    """The error names the choice, the call, and what does compute it."""
    small = SgemmCall.of(GemmProblem(255, 128, 64))
    for call, choice in (
        (small, STREAM_K),
        (SgemmCall.of(GemmProblem(256, 128, 64)), Choice("stream_k", 2)),
        (replace(small, m=512, a=Layout(200, 3)), STREAM_K),
        (small, Choice("gemv_k")),
    ):
        with pytest.raises(ArgumentValueError, match=f"{choice} does not compute {call.key}"):
            engine.prepare(call, choice)


def test_what_can_compute_a_call(engine: Sgemm) -> None:
    """Each choice is listed once, the one that is taken unmeasured first."""
    call = SgemmCall.of(GemmProblem(1, 40, 300))
    found = engine.choices(call)
    assert found[0] == engine.choose(call)
    assert len(set(found)) == len(found)
    assert {"gemv_k", "gemv_m"} & {choice.kernel for choice in found} == {"gemv_m"}
    for choice in (found[0], found[-1]):
        check(engine, call, choice)


# ---- the stream-K kernel, and rewriting


#: On four blocks: tiles cut among all of them, a full wave and a rest, less than a k-tile, one tile
#: for all, sizes that fours do not divide.
SHAPES = ((300, 260, 72), (520, 300, 40), (300, 140, 4), (256, 128, 108), (257, 131, 45))


def stream_k_result(device: Device, p: GemmProblem, *, rewritten: bool) -> Floats:
    """C, computed twice: the second launch finds the workspace as the first left it."""
    engine, call = Sgemm(device, rewritten=rewritten), SgemmCall.of(p)
    assert engine.is_rewritten(call, STREAM_K) == rewritten
    operands = random_operands(p)
    a, b = device.upload(operands.a), device.upload(operands.b)
    c = device.zeros(p.c_elements)
    launch = engine.prepare(call, STREAM_K)
    results: list[Floats] = []
    for _ in range(2):
        c.fill(7)
        launch(c.pointer, a.pointer, b.pointer, 1.0, 0.0)
        results.append(c.download())
    assert np.array_equal(bits(results[0]), bits(results[1]))
    return results[0]


@pytest.mark.parametrize(
    "shape",
    [
        *SHAPES[1:-1],
        *(pytest.param(each, marks=pytest.mark.slow) for each in (SHAPES[0], SHAPES[-1])),
    ],
    ids=str,
)
@pytest.mark.parametrize("arch", ["sm_90", pytest.param("sm_86", marks=pytest.mark.slow)])
def test_stream_k_is_right_and_keeps_its_bits_rewritten(
    arch: str, shape: tuple[int, int, int]
) -> None:
    """By the componentwise bound, with no finding in strict mode, and equal to the last bit."""
    p = GemmProblem(*shape)
    with Emulator(arch) as device:
        plain = stream_k_result(device, p, rewritten=False)
    with Emulator(arch, strict=True) as device:
        assert np.array_equal(bits(stream_k_result(device, p, rewritten=True)), bits(plain))
    assert Reference(p, random_operands(p)).check(plain).passed


@pytest.mark.parametrize("kind", [Kind.K16, Kind.X16], ids=lambda kind: kind.value)
def test_stream_k_scales_c_once(engine: Sgemm, kind: Kind) -> None:
    """Its last tiles reach into their neighbours, and leave to those what is theirs."""
    call = call_of(Sizes(300, 140, 20), kind, kind)
    check(engine, call, STREAM_K, alpha=0.5, beta=-2.25)


def rewritten_cases() -> Iterator[Any]:
    found = [
        (kernel, *kinds)
        for kernel in KERNELS
        for kinds in itertools.chain(*pairs(kernel).values())
        if kernel.plan(call_of(ragged(kernel, *kinds), *kinds), 1, CHIP).pays_rewriting
    ]
    smallest = min(found, key=lambda each: each[0].bm * each[0].bn)
    for case in found:
        name = "-".join((case[0].name, *(kind.value for kind in case[1:])))
        marks = () if case is smallest else pytest.mark.slow
        yield pytest.param(*case, marks=marks, id=name)


@pytest.mark.parametrize(("kernel", "a_kind", "b_kind"), list(rewritten_cases()))
def test_rewritten_loops_keep_their_bits(
    engine: Sgemm, kernel: SgemmKernel, a_kind: Kind, b_kind: Kind
) -> None:
    """Every kernel that is worth it is rewritten, strictly right, and equal to the last bit."""
    call = call_of(ragged(kernel, a_kind, b_kind), a_kind, b_kind)
    choice = Choice(kernel.name)
    with Emulator("sm_90", strict=True) as device:
        other = Sgemm(device, rewritten=True)
        assert other.is_rewritten(call, choice)
        rewritten = check(other, call, choice)
    assert np.array_equal(bits(rewritten), bits(check(engine, call, choice)))


def test_rewriting_is_turned_off_in_one_place(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With LOWGEMM_REWRITE=0 the compiler's loop runs, unless a caller asks for the other."""
    call = SgemmCall.of(GemmProblem(256, 128, 64))
    monkeypatch.setenv("LOWGEMM_REWRITE", "0")
    assert not Sgemm(emulator).is_rewritten(call, STREAM_K)
    assert Sgemm(emulator, rewritten=True).is_rewritten(call, STREAM_K)
    monkeypatch.delenv("LOWGEMM_REWRITE")
    assert Sgemm(emulator).is_rewritten(call, STREAM_K)
    assert not Sgemm(emulator, rewritten=False).is_rewritten(call, STREAM_K)


# ---- arrays with any strides on the emulator


class Strided(Array):
    """A part of an emulator's array with any strides, as a torch or CuPy array on a GPU may be."""

    def __init__(
        self, base: Array, first: int, shape: Sequence[int], strides: Sequence[int]
    ) -> None:
        self.device = base.device
        self.shape = tuple(shape)
        self.dtype = base.dtype
        self.base = base
        self.strides_bytes = tuple(4 * stride for stride in strides)
        self.first_byte = 4 * first
        self.frozen = False

    @property
    def pointer(self) -> int:
        return self.base.pointer + self.first_byte

    @property
    def readonly(self) -> bool:
        return self.frozen

    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> None:
        raise NotImplementedError

    def download(self, *, stream: object = None) -> np.ndarray[Any, Any]:
        whole = self.base.download()
        return as_strided(whole.reshape(-1)[self.first_byte // 4 :], self.shape, self.strides_bytes)

    def fill(self, value: complex, *, stream: object = None) -> None:
        raise NotImplementedError

    def fill_bytes(self, value: int, *, stream: object = None) -> None:
        raise NotImplementedError

    def view(self, offset: int, shape: int | Sequence[int]) -> Array:
        raise NotImplementedError

    def close(self) -> None:
        pass


class StridedReader(ArrayReader):
    """How sgemm() reads those."""

    def mark(self, array: Strided) -> tuple[Hashable | None, int]:
        pointer = array.pointer
        mark = (array.device, array.shape, array.strides_bytes, array.frozen, pointer % 16)
        return mark, pointer

    def view(self, array: Strided, stream: int) -> ArrayView:
        dtype = ElementType.of(array.dtype)
        return ArrayView(
            array.pointer, array.shape, array.strides_bytes, dtype, array.frozen, None, None, array
        )


@pytest.fixture(scope="module", autouse=True)
def _strided_arrays() -> Iterator[None]:
    def reader(kind: type) -> ArrayReader:
        return StridedReader() if kind is Strided else reader_of(kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[sgemm.__module__], "reader_of", reader)
        yield


@pytest.fixture(scope="module")
def plain() -> Iterator[Emulator]:
    """An emulator on which sgemm() uses the compiler's loops: they are there sooner."""
    with pytest.MonkeyPatch.context() as patch, Emulator("sm_90") as device:
        patch.setenv("LOWGEMM_REWRITE", "0")
        one = device.zeros((1, 1))
        sgemm(one, one)
        yield device


def on(device: Device, matrices: Matrices) -> Strided:
    """The matrices in the device's memory."""
    return Strided(device.upload(matrices.buffer), matrices.first, matrices.shape, matrices.strides)


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...], *, is_output: bool) -> tuple[Any, ...]:
    """Strides with the axes in any order, gaps, steps and reversals; rows or columns mostly."""
    axes = list(range(len(shape)))
    rows, columns = axes[::-1], [*axes[-2:], *axes[-3::-1]]
    order = draw(st.one_of(st.just(rows), st.just(columns), st.permutations(axes)))
    strides, step = [0] * len(shape), 1
    for axis in order:
        if not is_output and draw(st.integers(0, 15)) == 15:
            continue  # all elements along it are one
        step *= draw(st.sampled_from((1, 1, 1, 1, 1, 2, 3)))
        strides[axis] = step * draw(st.sampled_from((1, 1, 1, 1, 1, -1)))
        step = step * max(shape[axis], 1) + draw(st.sampled_from((0, 0, 0, 1, 4)))
    return tuple(strides), draw(st.sampled_from((0, 0, 0, 4, 1, 2)))


def factors() -> st.SearchStrategy[float]:
    some = st.floats(-4, 4, width=32, allow_subnormal=False)
    return st.one_of(st.sampled_from((0.0, 1.0, -1.0)), some)


@dataclass(frozen=True)
class Drawn:
    """A call of sgemm(): operands as they are handed in, a C if one is."""

    a: Matrices
    b: Matrices
    c: Matrices | None
    transpose_a: bool
    transpose_b: bool
    alpha: float
    beta: float


@st.composite
def calls(draw: st.DrawFn) -> Drawn:
    """Any sizes from 0, with batches that broadcast."""
    size = st.one_of(st.integers(0, 9), st.integers(1, 70))
    m, n, k = draw(size), draw(size), draw(size)
    batch = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 2, 3, 0)), max_size=2)))
    alpha, beta = draw(factors()), draw(factors())
    with_c = beta != 0.0 or draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    made = []
    given = [draw(st.booleans()) for _ in range(2)]
    whole = draw(st.integers(0, 1))  # which of the two has the whole batch
    for number, (rows, columns) in enumerate(((m, k), (k, n))):
        own = batch
        if number != whole:
            own = own[draw(st.integers(0, len(own))) :]
            own = tuple(1 if draw(st.booleans()) else extent for extent in own)
        shape = (*own, *((columns, rows) if given[number] else (rows, columns)))
        strides, lead = draw(layouts(shape, is_output=False))
        made.append(placed(shape, strides, lead, rng, rest=math.nan))
    c = None
    if with_c:
        shape = (*batch, m, n)
        strides, lead = draw(layouts(shape, is_output=True))
        c = placed(shape, strides, lead, rng, behind=4)
        if beta == 0.0 and c.values.size:
            c.values[...] = math.nan
    return Drawn(made[0], made[1], c, given[0], given[1], alpha, beta)


def check_call(device: Device, x: Drawn) -> None:
    a, b = on(device, x.a), on(device, x.b)
    out = None if x.c is None else on(device, x.c)
    result = sgemm(
        a, b, out, alpha=x.alpha, beta=x.beta, transpose_a=x.transpose_a, transpose_b=x.transpose_b
    )
    for matrices, array in ((x.a, a), (x.b, b)):
        assert np.array_equal(bits(matrices.buffer), bits(array.base.download()))
    if out is not None:
        assert result is out
        assert x.c is not None
        x.c.assert_rest_untouched(out.base.download())
    one = x.a.values.swapaxes(-1, -2) if x.transpose_a else x.a.values
    two = x.b.values.swapaxes(-1, -2) if x.transpose_b else x.b.values
    batch = np.broadcast_shapes(one.shape[:-2], two.shape[:-2])
    assert result.shape == (*batch, one.shape[-2], two.shape[-1])
    c = None if x.c is None else x.c.values
    assert_right(result.download(), one, two, c, x.alpha, x.beta)


@settings(max_examples=30, deadline=None)
@given(calls())
def test_any_call_is_right(plain: Emulator, drawn: Drawn) -> None:
    """Whatever the sizes, strides, batches and factors; and nothing else is read or written."""
    check_call(plain, drawn)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(calls())
def test_many_calls_are_right(emulator: Emulator, drawn: Drawn) -> None:
    """The same with more of them, with rewritten loops."""
    check_call(emulator, drawn)


@pytest.mark.parametrize("odd", range(3))
def test_batches_that_begin_between_16_bytes(plain: Emulator, odd: int) -> None:
    """A batch of batches, of which only the first begins on 16 bytes: of A, of B, or of C."""
    rng = np.random.default_rng(odd)
    made = [
        placed((2, 2, 8, 8), (133 if number == odd else 132, 64, 8, 1), 0, rng)
        for number in range(3)
    ]
    check_call(plain, Drawn(made[0], made[1], made[2], False, True, 1.0, 1.0))


# ---- BLAS's rules


def ones(*shape: int) -> Floats:
    return np.ones(shape, np.float32)


def random(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("n", [20, 1])
def test_beta_of_zero_does_not_read_c(plain: Emulator, n: int) -> None:
    """C may hold NaN, or nothing yet."""
    a, b = random(30, 17), random(17, n)
    out = plain.upload(np.full((30, n), math.nan, np.float32))
    fresh = plain.empty((30, n))
    for each in (out, fresh):
        sgemm(plain.upload(a), plain.upload(b), each, alpha=2.0)
        assert_right(each.download(), a, b, None, 2.0, 0.0)


@pytest.mark.parametrize("alpha", [0.0, -0.0, 0, np.float32(0)])
def test_alpha_of_zero_reads_neither_a_nor_b(plain: Emulator, alpha: float) -> None:
    """They may hold NaN, or nothing yet: C is multiplied by beta, exactly."""
    c = random(6, 7)
    nothing = [
        (plain.empty((6, 5)), plain.empty((5, 7))),
        (plain.upload(np.full((6, 5), math.nan, np.float32)), plain.zeros((5, 7))),
    ]
    for a, b in nothing:
        there = plain.upload(c)
        sgemm(a, b, there, alpha=alpha, beta=-0.75)
        assert np.array_equal(there.download(), np.float32(-0.75) * c)
        there.fill(math.nan)
        sgemm(a, b, there, alpha=alpha)
        assert np.array_equal(there.download(), np.zeros((6, 7)))
        assert np.array_equal(sgemm(a, b, alpha=alpha).download(), np.zeros((6, 7)))


def test_an_alpha_that_rounds_to_zero_is_zero(plain: Emulator) -> None:
    """Factors are rounded to FP32 before anything is decided by them."""
    a, c = np.full((6, 5), math.nan, np.float32), random(6, 7)
    there = plain.upload(c)
    sgemm(plain.upload(a), plain.upload(random(5, 7)), there, alpha=1e-60, beta=2.0)
    assert np.array_equal(there.download(), 2 * c)


def test_a_sum_without_terms_is_zero(plain: Emulator) -> None:
    """With k = 0 C is multiplied by beta, or set to 0."""
    c = random(4, 3)
    a, b, there = plain.empty((4, 0)), plain.empty((0, 3)), plain.upload(c)
    sgemm(a, b, there, alpha=math.nan, beta=0.5)
    assert np.array_equal(there.download(), c / 2)
    assert np.array_equal(sgemm(a, b).download(), np.zeros((4, 3)))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((0, 5), (5, 3)),
        ((4, 5), (5, 0)),
        ((0, 0), (0, 0)),
        ((0, 4, 5), (5, 3)),
        ((2, 0, 4, 5), (2, 1, 5, 3)),
    ],
    ids=str,
)
def test_an_empty_c_is_nothing_to_do(
    plain: Emulator, a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    """No rows, no columns or no batch: an empty array comes back, for any factors."""
    shape = np.matmul(np.empty(a), np.empty(b)).shape
    one, two, out = plain.empty(a), plain.empty(b), plain.empty(shape)
    assert sgemm(one, two).shape == shape
    assert sgemm(one, two, out, alpha=2.0, beta=3.0) is out
    host = np.empty(shape, np.float32)
    assert sgemm(np.empty(a, "f4"), np.empty(b, "f4"), host, beta=3.0) is host
    assert sgemm(np.empty(a, "f4"), np.empty(b, "f4")).shape == shape


def test_factors_that_are_no_numbers_go_through(plain: Emulator) -> None:
    """NaN and infinity are factors as others are."""
    a, b = plain.upload(ones(3, 2)), plain.upload(np.array([[1, -1, 0], [1, -1, 0]], np.float32))
    assert np.isnan(sgemm(a, b, alpha=math.nan).download()).all()
    row = sgemm(a, b, alpha=math.inf).download()[0]
    assert row[0] == math.inf
    assert row[1] == -math.inf
    assert np.isnan(row[2])
    c = plain.upload(ones(3, 3))
    assert np.isposinf(sgemm(a, b, c, beta=math.inf).download()).all()


# ---- the interface: numpy


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_numpy_arrays_in_and_out(transpose_a: bool, transpose_b: bool) -> None:
    """A new array, or the given one: alpha op(A) op(B) + beta C."""
    a, b, c = random(7, 9), random(9, 5), random(7, 5, seed=1)
    one = np.ascontiguousarray(a.T) if transpose_a else a
    two = np.ascontiguousarray(b.T) if transpose_b else b
    made = sgemm(one, two, alpha=2, transpose_a=transpose_a, transpose_b=transpose_b)
    assert type(made) is np.ndarray
    assert made.dtype == np.float32
    assert_right(made, a, b, None, 2.0, 0.0)
    out = c.copy()
    returned = sgemm(
        one, two, out, alpha=-1, beta=0.5, transpose_a=transpose_a, transpose_b=transpose_b
    )
    assert returned is out
    assert_right(out, a, b, c, -1.0, 0.5)


def test_the_documented_example() -> None:
    """The docstring's example gives what it shows."""
    result = sgemm(np.eye(2, dtype="f4"), np.array([[1, 2], [3, 4]], "f4"), alpha=2)
    assert np.array_equal(result, [[2, 4], [6, 8]])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), ()),
        ((), (3,)),
        ((2, 3), (3,)),
        ((2, 1), (1, 3)),
        ((2, 1, 3), (4, 1)),
        ((1,), (1,)),
    ],
    ids=str,
)
def test_batches_broadcast_as_in_numpy(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Dimensions before the last two, as numpy.matmul has them; into a given array too."""
    one, two = random(*a, 4, 6), random(*b, 6, 5)
    made = sgemm(one, two)
    assert made.shape == np.matmul(one, two).shape
    assert_right(made, one, two, None, 1.0, 0.0)
    c = random(*made.shape, seed=2)
    out = c.copy()
    sgemm(one, two, out, beta=1.0)
    assert_right(out, one, two, c, 1.0, 1.0)


def test_numpy_views_are_as_good_as_arrays() -> None:
    """Steps, reversals, columns, read-only inputs, an out that is a part: the rest stays."""
    a, b = random(20, 30)[::2, ::-3], random(8, 10).T
    a.flags.writeable = False
    whole = random(30, 40)
    before = whole.copy()
    out = whole[5:25:2, 3:19:2]
    assert sgemm(a, b, out, alpha=3.0) is out
    assert_right(out, a, b, None, 3.0, 0.0)
    before[5:25:2, 3:19:2] = out
    assert np.array_equal(whole, before)
    columns = np.asfortranarray(random(10, 8))
    c = columns.copy()
    assert sgemm(a, b, columns, beta=1.0) is columns
    assert_right(columns, a, b, c, 1.0, 1.0)


def test_fields_of_numpy_records() -> None:
    """They lie between floats, and are copied as other views are, with an out or without."""
    records = np.zeros((3, 3), np.dtype([("x", "f4"), ("y", "i2")]))
    field = records["x"]
    field[...] = random(3, 3)
    a, c = random(3, 3, seed=1), random(3, 3, seed=2)
    assert_right(sgemm(a, field), a, field, None, 1.0, 0.0)
    out = c.copy()
    sgemm(a, field, out, beta=1.0)
    assert_right(out, a, field, c, 1.0, 1.0)
    b = field.copy()
    assert sgemm(a, b, field) is field
    assert_right(field, a, b, None, 1.0, 0.0)
    assert not records["y"].any()


def unchanged(array: Any) -> Callable[[], bool]:
    """Asks later whether an array still has its bits; what is on a device is read there."""
    host = getattr(array, "download", lambda: array)
    before = bits(host()).copy()
    return lambda: np.array_equal(bits(host()), before)


Wrong = tuple[type[LowgemmError], str, tuple[Any, ...], dict[str, Any]]


def wrong_inputs() -> list[Wrong]:
    """The error, a part of its text, and what sgemm() was called with."""
    a, b, c = ones(4, 5), ones(5, 6), ones(4, 6)
    frozen = ones(4, 6)
    frozen.flags.writeable = False
    same = np.ones(40, np.float32)
    square = ones(5, 5)
    return [
        (ProblemSizeError, r"4 x 5 and op\(b\) 6 x 5", (a, b), {"transpose_b": True}),
        (ProblemSizeError, r"5 x 4 and op\(b\) 5 x 6", (a, b, c), {"transpose_a": True}),
        (ProblemSizeError, r"out has shape \(6, 4\)", (a, b, ones(6, 4)), {}),
        (ProblemSizeError, r"out has shape \(1, 4, 6\)", (a, b, ones(1, 4, 6)), {}),
        (ProblemSizeError, r"a has shape \(5,\)", (ones(5), b), {}),
        (ProblemSizeError, r"b has shape \(5,\)", (a, ones(5)), {}),
        (ProblemSizeError, r"out has shape \(24,\)", (a, b, ones(24)), {}),
        (ProblemSizeError, r"a has shape \(\)", (np.ones((), "f4"), b), {}),
        (ProblemSizeError, r"\(2,\), and of b, \(3,\)", (ones(2, 4, 5), ones(3, 5, 6)), {}),
        (DtypeError, "a holds float64", (a.astype("f8"), b), {}),
        (DtypeError, "b holds float16", (a, b.astype("f2")), {}),
        (DtypeError, "out holds complex64", (a, b, c.astype("c8")), {}),
        (DtypeError, "a holds", (a.astype(">f4"), b), {}),
        (DtypeError, "a holds int32", (a.astype("i4"), b, c), {}),
        (ArrayLayoutError, "read-only", (a, b, frozen), {}),
        (ArrayLayoutError, "out share memory", (a, b, as_strided(same, (4, 6), (0, 4))), {}),
        (ArrayLayoutError, "out share memory", (a, b, as_strided(same, (4, 6), (8, 4))), {}),
        (OverlapError, "with a", (square, ones(5, 5), square), {}),
        (OverlapError, "with b", (a, square, square[:4]), {}),
        (OverlapError, "with a", (same[:20].reshape(4, 5), b, same[12:36].reshape(4, 6)), {}),
        (OverlapError, "with a", (square, ones(5, 5), square.T), {"beta": 1.0}),
        (ArrayLayoutError, "masked", (np.ma.masked_array(a, mask=True), b), {}),
        (ArrayLayoutError, "a is a numpy array and b is", (a, [[1.0]]), {}),
        (ArrayLayoutError, "a is a numpy array and b is None", (a, None), {}),
        (ArrayLayoutError, "a is a numpy array and out is", (a, b, [[1.0]]), {}),
        (ArrayLayoutError, "no array on a device", ([[1.0]], b), {}),
        (ArrayLayoutError, "no array on a device", (None, None), {}),
    ]


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=f"{number}-{error.__name__}")
        for number, (error, *_) in enumerate(wrong_inputs())
    ],
)
def test_inputs_that_do_not_fit_are_refused(number: int) -> None:
    """A typed error that names what and how, and all arrays are as they were."""
    error, text, arrays, options = wrong_inputs()[number]
    checks = [unchanged(each) for each in arrays if isinstance(each, np.ndarray)]
    with pytest.raises(error, match=text):
        sgemm(*arrays, **options)
    assert all(each() for each in checks)


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("1", ArgumentTypeError),
        (None, ArgumentTypeError),
        (True, ArgumentTypeError),
        (np.bool_(True), ArgumentTypeError),
        (1j, ArgumentTypeError),
        ([1.0], ArgumentTypeError),
        (np.ones(1, np.float32), ArgumentTypeError),
        (1e39, ArgumentValueError),
        (-3.5e38, ArgumentValueError),
        (np.float64(1e300), ArgumentValueError),
        (10**39, ArgumentValueError),
        pytest.param(10**400, ArgumentValueError, id="10**400"),
        pytest.param(Fraction(10**400), ArgumentValueError, id="Fraction(10**400)"),
    ],
    ids=lambda value: getattr(value, "__name__", None) or repr(value),
)
def test_what_is_no_factor_is_refused(
    name: str, value: Any, error: type[ArgumentTypeError | ArgumentValueError]
) -> None:
    """No number, or one that overflows FP32: a typed error with the factor's name."""
    out = ones(2, 2)
    with pytest.raises(error, match=name):
        sgemm(ones(2, 2), ones(2, 2), out, **{name: value})
    assert np.array_equal(out, ones(2, 2))


@pytest.mark.parametrize(
    "value", [2, 2.0, np.float32(2), np.float64(2), np.int8(2), Fraction(2)], ids=repr
)
def test_any_real_number_is_a_factor(value: Any) -> None:
    """Python's numbers and numpy's; the largest FP32 number does not overflow."""
    out = ones(1, 1)
    sgemm(ones(1, 1), ones(1, 1), out, alpha=value, beta=value)
    assert out[0, 0] == 4
    largest = float(np.finfo(np.float32).max)
    assert sgemm(ones(1, 1), ones(1, 1), alpha=largest)[0, 0] == largest


def test_beta_needs_a_c(emulator: Emulator) -> None:
    """Without one there is nothing to multiply by it."""
    for one in (ones(2, 2), emulator.zeros((2, 2))):
        with pytest.raises(ArgumentValueError, match=r"beta = 0\.5 without a C"):
            sgemm(one, one, beta=0.5)
        assert sgemm(one, one, beta=0).shape == (2, 2)


def test_columns_between_columns_may_be_written() -> None:
    """An out that shares a buffer with A or B, but no element, is as good as another."""
    whole = random(6, 12)
    a, out, b = whole[:, ::2], whole[:, 1::2], random(6, 6, seed=1)
    before = whole.copy()
    sgemm(a, b, out)
    assert_right(out, before[:, ::2], b, None, 1.0, 0.0)
    assert np.array_equal(whole[:, ::2], before[:, ::2])


def test_numpy_arrays_from_several_threads() -> None:
    """Each thread gets its own product."""
    a, b = random(20, 300), random(300, 20)
    want = sgemm(a, b)
    wrong: list[object] = []

    def compute(number: int) -> None:
        factor = np.float32(2**number)
        try:
            for _ in range(3):
                if not np.array_equal(sgemm(a * factor, b), want * factor):
                    wrong.append(number)
        except LowgemmError as error:
            wrong.append(error)

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- the interface: arrays on a device


def test_a_devices_own_arrays(plain: Emulator) -> None:
    """A new array of that device, or the given one; parts of one too."""
    a, b = random(9, 12), random(12, 5)
    one, two = plain.upload(a), plain.upload(b)
    made = sgemm(one, two)
    assert made.device is plain
    assert_right(made.download(), a, b, None, 1.0, 0.0)
    odd = plain.upload(random(200))
    part = odd.view(3, (9, 12))
    into = odd.view(150, (9, 5))
    assert sgemm(part, two, into) is into
    assert_right(into.download(), part.download(), b, None, 1.0, 0.0)


def test_a_call_is_repeated_on_other_arrays(plain: Emulator) -> None:
    """Arrays of one layout are computed by one plan: each call has its own pointers and factors."""
    for seed, (alpha, beta) in enumerate(((1.0, 0.0), (2.0, 1.0), (-1.0, 0.5), (0.0, 2.0))):
        a, b, c = (random(8, 8, seed=3 * seed + each) for each in range(3))
        for lead in (0, 1, 4):
            there = [plain.upload(np.zeros(80, "f4")).view(lead, (8, 8)) for _ in range(3)]
            for array, host in zip(there, (a, b, c), strict=True):
                array.upload(host)
            sgemm(*there, alpha=alpha, beta=beta)
            assert_right(there[2].download(), a, b, c, alpha, beta)


def test_a_devices_arrays_that_do_not_fit_are_refused(plain: Emulator) -> None:
    """Other devices, numpy among them, shared memory, what cannot be written: C is as it was."""
    a, b, c = (plain.upload(ones(5, 5)) for _ in range(3))
    host = ones(5, 5)
    flat = plain.upload(ones(60))
    frozen = on(plain, placed((5, 5), (5, 1), 0, np.random.default_rng(0)))
    frozen.frozen = True
    odd = on(plain, placed((5, 5), (6, 1), 0, np.random.default_rng(0)))
    odd.first_byte = 2
    between = on(plain, placed((5, 5), (6, 1), 0, np.random.default_rng(0)))
    between.strides_bytes = (22, 4)
    with Emulator("sm_90") as other:
        elsewhere = other.upload(ones(5, 5))
        wrong: list[tuple[type[LowgemmError], str, tuple[Any, ...]]] = [
            (ArrayLayoutError, "a lies on the emulator of sm_90 and b on", (a, elsewhere, c)),
            (ArrayLayoutError, "and out on the emulator", (a, b, elsewhere)),
            (ArrayLayoutError, "numpy", (a, host)),
            (ArrayLayoutError, "numpy", (a, b, host)),
            (ArrayLayoutError, "a is a numpy array", (host, b)),
            (ArrayLayoutError, "a is a numpy array", (host, host, c)),
            (ArrayLayoutError, "no array on a device", (a, [[1.0]])),
            (DtypeError, "a holds float64", (plain.zeros((5, 5), "f8"), b, c)),
            (DtypeError, "b holds int32", (a, plain.zeros((5, 5), "i4"), c)),
            (DtypeError, "out holds uint32", (a, b, plain.zeros((5, 5), "u4"))),
            (ProblemSizeError, r"b has shape \(25,\)", (a, b.view(0, 25), c)),
            (ProblemSizeError, r"out has shape \(5, 4\)", (a, b, c.view(0, (5, 4)))),
            (OverlapError, "with a", (a, b, a)),
            (OverlapError, "with b", (a, b, b)),
            (OverlapError, "with a", (flat.view(0, (5, 5)), b, flat.view(24, (5, 5)))),
            (OverlapError, "with b", (a, flat.view(24, (5, 5)), flat.view(0, (5, 5)))),
            (ArrayLayoutError, "read-only", (a, b, frozen)),
            (ArrayLayoutError, "between two floats", (odd, b, c)),
            (ArrayLayoutError, "22 bytes apart", (a, between, c)),
            (ArrayLayoutError, "out share memory", (a, b, Strided(flat, 0, (5, 5), (0, 1)))),
            (ArrayLayoutError, "out share memory", (a, b, Strided(flat, 0, (5, 5), (3, 1)))),
            (ArrayLayoutError, "out share memory", (a, b, Strided(flat, 20, (5, 5), (4, -2)))),
        ]
        for error, text, arrays in wrong:
            for _ in range(2):  # an error is not remembered as a plan
                checks = [unchanged(each) for each in (a, b, c, flat, elsewhere, host)]
                with pytest.raises(error, match=text):
                    sgemm(*arrays)
                assert all(each() for each in checks)


def test_an_out_may_lie_between_the_operands_elements(plain: Emulator) -> None:
    """Columns of one buffer that share no element, or neighbours; a shared one is refused."""
    buffer = random(6, 12)
    b = random(6, 6, seed=1)
    flat, two = plain.upload(buffer.reshape(-1)), plain.upload(b)
    even, odd = (Strided(flat, first, (6, 6), (12, 2)) for first in (0, 1))
    sgemm(even, two, odd)
    assert_right(odd.download(), buffer[:, ::2], b, None, 1.0, 0.0)
    assert np.array_equal(even.download(), buffer[:, ::2])
    reversed_columns = Strided(flat, 11, (6, 6), (12, -2))
    reversed_rows = Strided(flat, 60, (6, 6), (-12, 1))
    for one, out in ((odd, reversed_columns), (flat.view(0, (6, 6)), reversed_rows)):
        with pytest.raises(OverlapError):
            sgemm(one, two, out)
    sgemm(even, two, reversed_columns)
    assert_right(reversed_columns.download(), buffer[:, ::2], b, None, 1.0, 0.0)
    sgemm(flat.view(0, (6, 6)), two, flat.view(36, (6, 6)))


def test_a_devices_streams(plain: Emulator) -> None:
    """A stream of the arrays' device is taken, any other is refused."""
    a, b, c = (plain.upload(ones(3, 3)) for _ in range(3))
    with Emulator("sm_90") as other:
        for stream in (other.stream(), 5, "text", True):
            check_c = unchanged(c)
            with pytest.raises(StreamDeviceError):
                sgemm(a, b, c, stream=stream)
            assert check_c()
    sgemm(a, b, c, stream=plain.stream())
    assert np.array_equal(c.download(), np.full((3, 3), 3))


def test_a_device_that_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was planned for it does not keep it, nor its memory."""
    monkeypatch.setenv("LOWGEMM_REWRITE", "0")
    device = Emulator("sm_90")
    one = device.upload(ones(2, 2))
    sgemm(one, one)
    gone = weakref.ref(device)
    del device, one
    gc.collect()
    assert gone() is None


# ---- a call on paper


@pytest.mark.parametrize(
    ("strides", "sizes", "aligned", "kind"),
    [
        ((64, 1), (8, 64), True, Kind.K16),
        ((68, 1), (7, 63), True, Kind.K16),
        ((64, 1), (8, 64), False, Kind.K4),
        ((65, 1), (8, 64), True, Kind.K4),
        ((0, 1), (8, 64), True, Kind.K16),
        ((-64, 1), (8, 64), True, Kind.K16),
        ((1, 8), (8, 64), True, Kind.X16),
        ((1, 12), (8, 63), True, Kind.X16),
        ((1, 0), (8, 64), True, Kind.X16),
        ((1, 8), (7, 64), True, Kind.X4),
        ((1, 9), (8, 64), True, Kind.X4),
        ((1, 8), (8, 64), False, Kind.X4),
        ((64, 2), (8, 64), True, Kind.ANY),
        ((2, 64), (8, 64), True, Kind.ANY),
        ((64, -1), (8, 64), True, Kind.ANY),
        ((-1, 64), (8, 64), True, Kind.ANY),
        ((0, 0), (8, 64), True, Kind.ANY),
        ((1, 1), (8, 64), True, Kind.K4),
        ((64, 1), (1, 64), True, Kind.K16),
        ((7, 1), (1, 64), True, Kind.K16),
        ((1, 5), (1, 64), True, Kind.X4),
        ((1, 4), (1, 64), True, Kind.X4),
        ((1, 7), (8, 1), True, Kind.X16),
        ((1, 7), (7, 1), True, Kind.X4),
        ((4, 7), (8, 1), True, Kind.K16),
        ((3, 7), (8, 1), True, Kind.K4),
        ((9, 9), (1, 1), True, Kind.K16),
        ((9, 9), (1, 1), False, Kind.K4),
    ],
    ids=str,
)
def test_how_an_operand_is_copied(
    strides: tuple[int, int], sizes: tuple[int, int], aligned: bool, kind: Kind
) -> None:
    """By 16 bytes along k or across where rows are aligned and fours whole; of B as of A^T."""
    m, k = sizes
    call = SgemmCall(m, 4, k, Layout(*strides, aligned=aligned), Layout(4, 1), Layout(4, 1))
    assert call.a_kind is kind
    assert call.transposed.b_kind is kind


@pytest.mark.parametrize(
    ("batch", "batches", "kinds"),
    [
        (64, 3, (Kind.K16, Kind.X16)),
        (63, 3, (Kind.K4, Kind.X4)),
        (63, 1, (Kind.K16, Kind.X16)),
        (0, 3, (Kind.K16, Kind.X16)),
    ],
)
def test_a_batch_must_be_aligned_too(batch: int, batches: int, kinds: tuple[Kind, Kind]) -> None:
    """Every matrix of it begins on 16 bytes, or none is copied so."""
    each = Layout(8, 1, batch)
    call = SgemmCall(8, 8, 8, each, each, Layout(8, 1, 64), batches)
    assert (call.a_kind, call.b_kind) == kinds
    assert replace(call, c=each).has_vector_c == (batch % 4 == 0)


@pytest.mark.parametrize(
    ("c", "n", "vectors"),
    [
        (Layout(8, 1, 32), 8, True),
        (Layout(12, 1, 36), 4, True),
        (Layout(8, 1, 32), 7, False),
        (Layout(9, 1, 36), 8, False),
        (Layout(8, 1, 33), 8, False),
        (Layout(8, 1, 32, aligned=False), 8, False),
        (Layout(8, 2, 64), 4, False),
        (Layout(1, 8, 64), 8, False),
    ],
    ids=str,
)
def test_when_c_is_written_by_16_bytes(c: Layout, n: int, vectors: bool) -> None:
    """Where all rows of all of a batch begin on 16 bytes and are whole fours."""
    call = SgemmCall(4, n, 8, Layout(8, 1), Layout(n, 1), c, 3)
    assert call.has_vector_c == vectors


small = st.integers(1, 9)
stride = st.integers(-9, 9)


@given(small, small, stride, stride, stride, st.integers(1, 3), st.booleans())
def test_a_kind_promises_what_is_so(
    x: int, k: int, row: int, column: int, batch: int, batches: int, aligned: bool
) -> None:
    """Neighbours are neighbours in memory, and 16 bytes lie on 16 bytes, or ANY is said."""
    call = SgemmCall(
        x, 4, k, Layout(row, column, batch, aligned), Layout(4, 1), Layout(4, 1), batches
    )
    kind = call.a_kind
    along_x, along_k = x == 1 or row == 1, k == 1 or column == 1
    if kind is Kind.ANY:
        assert not along_x
        assert not along_k
        return
    assert along_k if kind.along_k else along_x
    if kind in (Kind.K16, Kind.X16):
        assert aligned
        across, other = (x, row) if kind is Kind.K16 else (k, column)
        assert batches == 1 or batch % 4 == 0
        assert across == 1 or other % 4 == 0
        assert kind is Kind.K16 or x % 4 == 0


def test_a_canonical_call_has_rows_and_a_narrow_side_as_n() -> None:
    """C in columns is C^T in rows, one row is one column; A and B change places with it."""
    rows = SgemmCall.of(GemmProblem(8, 12, 16))
    assert rows.canonical == rows
    columns = replace(rows, c=Layout(1, 8))
    turned = columns.canonical
    assert (turned.m, turned.n, turned.k) == (12, 8, 16)
    assert turned.a == rows.b.transposed == Layout(1, 12)
    assert turned.b == rows.a.transposed == Layout(1, 16)
    assert turned.c == Layout(8, 1)
    assert turned.canonical == turned
    assert turned.transposed == columns
    row = SgemmCall.of(GemmProblem(1, 12, 16))
    assert (row.canonical.m, row.canonical.n) == (12, 1)
    column = SgemmCall.of(GemmProblem(12, 1, 16))
    assert column.canonical == column
    one = SgemmCall.of(GemmProblem(1, 1, 16))
    assert one.canonical == one
    strange = replace(rows, c=Layout(50, 2))
    assert strange.canonical == strange


def test_the_key_of_a_call() -> None:
    """Sizes and kinds, and how many of them if there are several."""
    p = GemmProblem(64, 32, 16)
    assert SgemmCall.of(p).key == "64x32x16 K16 X16"
    assert SgemmCall.of(p, transpose_a=True, transpose_b=True).key == "64x32x16 X16 K16"
    assert SgemmCall.of(p, batches=3).key == "64x32x16 b3 K16 X16"
    assert SgemmCall.of(GemmProblem(3, 5, 7), batches=2).key == "3x5x7 b2 K4 X4"


def test_calls_count_their_work() -> None:
    """Two operations a term, and each matrix moved once."""
    call = SgemmCall.of(GemmProblem(3, 5, 7), batches=2)
    assert call.flop == 2 * 3 * 5 * 7 * 2
    assert call.bytes_moved == 4 * (3 * 7 + 7 * 5 + 3 * 5) * 2


@pytest.mark.parametrize("name", ["m", "n", "k", "batches"])
@pytest.mark.parametrize("size", [0, -1, 2**31])
def test_sizes_beyond_an_int_are_refused(name: str, size: int) -> None:
    """The error names the size."""
    sizes: dict[str, Any] = {name: size}
    with pytest.raises(ProblemSizeError, match=f"{name} = {size}"):
        replace(SgemmCall.of(GemmProblem(4, 4, 4)), **sizes)


# ---- choices


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_choice_is_read_as_it_is_written(kernel: SgemmKernel) -> None:
    """A kernel's name, and a number if more than one block shares a tile."""
    assert str(Choice(kernel.name)) == kernel.name
    assert str(Choice(kernel.name, 12)) == f"{kernel.name}/12"
    for choice in (Choice(kernel.name), Choice(kernel.name, 12)):
        assert Choice.parse(str(choice)) == choice
    assert kernel_named(kernel.name) is kernel


@pytest.mark.parametrize(
    "text",
    ["", "nothing", "nothing/2", "/2", "stream_k/0", "stream_k/-1", "stream_k/1.5", "stream_k/2/2"],
)
def test_text_that_is_no_choice_is_refused(text: str) -> None:
    """An unknown kernel, or a number that is none."""
    with pytest.raises(ArgumentValueError):
        Choice.parse(text)


def measured(choice: Choice, median: float, spread: float = 0.1) -> Measured:
    return Measured(choice, median, median - spread, median + spread)


def tuned(call: SgemmCall, *times: Measured) -> Tuned:
    return Tuned(call.key, tuple(sorted(times, key=lambda each: each.median_us)))


def chooser_of(*entries: Tuned) -> Chooser:
    return Chooser([TuningTable("a GPU", {each.key: each for each in entries})])


CALL = SgemmCall.of(GemmProblem(512, 512, 512))


def test_without_measurements_the_model_chooses() -> None:
    """The first of what can compute the call."""
    assert Chooser().choose(CALL, Chip()) == choices(CALL, Chip())[0]


def test_what_was_fastest_is_chosen() -> None:
    """Whatever the model says."""
    last = choices(CALL, Chip())[-1]
    first = choices(CALL, Chip())[0]
    chooser = chooser_of(tuned(CALL, measured(last, 5.0), measured(first, 6.0)))
    assert chooser.choose(CALL, Chip()) == last
    assert chooser.choose(CALL, Chip()) == last


def test_of_what_cannot_be_told_apart_the_model_chooses() -> None:
    """Where quartiles reach each other, the median decides nothing."""
    first, second, *_, last = choices(CALL, Chip())
    near = tuned(CALL, measured(last, 5.0), measured(second, 5.15), measured(first, 5.3))
    assert near.best == (last, second)
    assert chooser_of(near).choose(CALL, Chip()) == second


def test_a_call_near_a_measured_one_is_computed_as_that() -> None:
    """The nearest counts: sizes within a doubling all together, and other kinds are further."""
    found = choices(CALL, Chip())
    one, two = found[-1], found[-2]
    near = SgemmCall.of(GemmProblem(512, 500, 500))
    less_near = SgemmCall.of(GemmProblem(512, 512, 800))
    far = SgemmCall.of(GemmProblem(512, 512, 1100))
    assert chooser_of(tuned(near, measured(one, 5.0))).choose(CALL, Chip()) == one
    both = (tuned(near, measured(one, 5.0)), tuned(less_near, measured(two, 5.0)))
    assert chooser_of(*both).choose(CALL, Chip()) == one
    assert chooser_of(*reversed(both)).choose(CALL, Chip()) == one
    assert chooser_of(tuned(less_near, measured(two, 5.0))).choose(CALL, Chip()) == two
    assert chooser_of(tuned(far, measured(two, 5.0))).choose(CALL, Chip()) == found[0]
    other = SgemmCall.of(GemmProblem(512, 512, 512), transpose_a=True)
    assert chooser_of(tuned(other, measured(two, 5.0))).choose(CALL, Chip()) == two
    kinds = (tuned(other, measured(two, 5.0)), tuned(near, measured(one, 5.0)))
    assert chooser_of(*kinds).choose(CALL, Chip()) == one
    batches = SgemmCall.of(GemmProblem(512, 512, 512), batches=8)
    assert chooser_of(tuned(batches, measured(two, 5.0))).choose(CALL, Chip()) == found[0]


def test_what_does_not_fit_the_call_is_not_chosen() -> None:
    """A kernel near by may take other splits here, or not take this call at all."""
    small = SgemmCall.of(GemmProblem(255, 512, 64))
    near = SgemmCall.of(GemmProblem(256, 512, 64))
    found = choices(small, Chip())
    assert chooser_of(tuned(near, measured(STREAM_K, 1.0))).choose(small, Chip()) == found[0]
    cut = max(found, key=lambda each: each.splits)
    entry = tuned(near, measured(replace(cut, splits=1000), 1.0))
    chosen = chooser_of(entry).choose(small, Chip())
    assert chosen.kernel == cut.kernel
    assert chosen in found


def test_earlier_tables_count_before_later_ones() -> None:
    """The user's own before those that lowgemm brings."""
    one, two = choices(CALL, Chip())[-2:]
    first, second = (
        TuningTable("a GPU", {CALL.key: tuned(CALL, measured(choice, 5.0))})
        for choice in (one, two)
    )
    assert Chooser([first, second]).choose(CALL, Chip()) == one
    assert Chooser([second, first]).choose(CALL, Chip()) == two


def test_a_devices_measurements_are_used(emulator: Emulator) -> None:
    """An engine takes what its chooser says, for the transposed call as for the call."""
    call = SgemmCall.of(GemmProblem(40, 30, 64))
    last = choices(call, Sgemm(emulator).chip)[-1]
    engine = Sgemm(emulator, chooser=chooser_of(tuned(call, measured(last, 1.0))))
    assert engine.choose(call) == engine.choose(call.transposed) == last
    check(engine, call, engine.choose(call))


# ---- tables of measurements


def table() -> TuningTable:
    one = SgemmCall.of(GemmProblem(64, 64, 64))
    two = SgemmCall.of(GemmProblem(3, 5, 7), batches=2)
    found = choices(one, Chip())[:3]
    return TuningTable(
        'GPU "one"',
        {
            one.key: tuned(one, *(measured(each, 5.0 - n) for n, each in enumerate(found))),
            two.key: tuned(two, measured(choices(two, Chip())[0], 1.5)),
        },
    )


def test_a_table_is_read_as_it_was_saved(tmp_path: Path) -> None:
    """The GPU, the calls, the fastest first; folders are made, and a second save replaces it."""
    path = tmp_path / "deep" / "table.json"
    for _ in range(2):
        table().save(path)
        assert TuningTable.load(path) == table()
    assert [each.name for each in path.parent.iterdir()] == ["table.json"]


def test_an_empty_table_is_a_table(tmp_path: Path) -> None:
    """Nothing measured yet."""
    path = tmp_path / "table.json"
    TuningTable("x").save(path)
    assert TuningTable.load(path) == TuningTable("x")


def test_no_table_is_none(tmp_path: Path) -> None:
    """No file, or one of another format, is as if nothing had been measured."""
    path = tmp_path / "table.json"
    assert TuningTable.load(path) is None
    assert TuningTable.load(tmp_path) is None
    table().save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 0}))
    assert TuningTable.load(path) is None


def test_a_table_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    """Wherever it ends, it is never read as less than it was."""
    path = tmp_path / "table.json"
    table().save(path)
    text = path.read_text().rstrip()
    for end in range(len(text)):
        path.write_text(text[:end])
        with pytest.raises(ArgumentValueError, match=r"table\.json is no table.*\n.*tune anew"):
            TuningTable.load(path)


@pytest.mark.parametrize(
    "entries",
    [
        None,
        [],
        {"64 K16 X16": {"stream_k": [1, 1, 1]}},
        {"64x64x64 K16 X16": {}},
        {"64x64x64 K16 X16": None},
        {"64x64x64 K16 X16": {"stream_k": [1, 1]}},
        {"64x64x64 K16 X16": {"stream_k": [1, 1, 1, 1]}},
        {"64x64x64 K16 X16": {"stream_k": ["one", 1, 1]}},
        {"64x64x64 K16 X16": {"stream_k": 1}},
        {"64x64x64 K16 X16": {"stream_k/0": [1, 1, 1]}},
    ],
    ids=str,
)
def test_a_damaged_table_is_refused(tmp_path: Path, entries: object) -> None:
    """The error names the file and says what to do."""
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"format": 1, "gpu": "x", "entries": entries}))
    with pytest.raises(ArgumentValueError, match=r"table\.json"):
        TuningTable.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArgumentValueError, match=r"table\.json"):
        TuningTable.load(path)


def test_a_save_that_fails_leaves_the_table_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk or an interruption costs the new measurements, not the old ones."""
    path = tmp_path / "table.json"
    table().save(path)

    def fails(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", fails)
        with pytest.raises(OutputError, match="the disk is full"):
            TuningTable("other").save(path)
    assert TuningTable.load(path) == table()
    assert [each.name for each in tmp_path.iterdir()] == ["table.json"]
    with pytest.raises(OutputError):
        table().save(path / "below" / "a.json")


def test_a_users_table_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies in the cache directory, and is that of one GPU alone."""
    monkeypatch.setenv("LOWGEMM_CACHE_DIR", str(tmp_path))
    assert not Chooser.of('GPU "one"').entries
    table().save(user_table('GPU "one"'))
    assert Chooser.of('GPU "one"').entries == table().entries
    assert user_table("GPU one") == user_table('GPU "one"')
    assert not Chooser.of("GPU one").entries


# ---- on a GPU


@pytest.fixture
def torch(gpu: Gpu) -> Any:
    """PyTorch with CUDA."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return module


@pytest.fixture
def cupy(gpu: Gpu) -> Any:
    """CuPy."""
    return pytest.importorskip("cupy")


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_kernel_on_a_gpu(gpu: Gpu, kernel: SgemmKernel) -> None:
    """A few hundred in size, rewritten and cut where it can be: right, and the same bits."""
    kinds = any_case(kernel)
    sizes = ragged(kernel, *kinds)
    m, n = (sizes.m + 4 * kernel.bm, sizes.n if sizes.n == 1 else sizes.n + 2 * kernel.bn)
    call = call_of(Sizes(m, n, 20 * sizes.k, 2), *kinds)
    for rewritten in (False, True):
        engine = Sgemm(gpu, rewritten=rewritten)
        for choice in {Choice(kernel.name), most_splits(kernel, call, engine.chip)}:
            one = check(engine, call, choice, alpha=0.5, beta=-2.25)
            for _ in range(5):
                assert np.array_equal(bits(one), bits(check(engine, call, choice, 0.5, -2.25)))


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "a_kind", "b_kind"),
    [
        pytest.param(kernel, *kinds, id="-".join((kernel.name, *(kind.value for kind in kinds))))
        for kernel in KERNELS
        for kinds in itertools.chain(*pairs(kernel).values())
    ],
)
def test_every_kind_of_operand_on_a_gpu(
    gpu: Gpu, kernel: SgemmKernel, a_kind: Kind, b_kind: Kind
) -> None:
    """What holds on the emulator holds on a GPU, rewritten."""
    check_kernel(Sgemm(gpu, rewritten=True), kernel, a_kind, b_kind)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [*SHAPES, (2048, 1408, 520), (4096, 4224, 256)], ids=str)
def test_a_gpu_computes_the_same_bits_rewritten(gpu: Gpu, shape: tuple[int, int, int]) -> None:
    """stream_k, with as many blocks as there are multiprocessors."""
    p = GemmProblem(*shape)
    one, two = (stream_k_result(gpu, p, rewritten=each) for each in (False, True))
    assert np.array_equal(bits(one), bits(two))


@pytest.mark.gpu
@settings(max_examples=100, deadline=None)
@given(calls())
def test_any_call_on_a_gpu(gpu: Gpu, drawn: Drawn) -> None:
    """Whatever the sizes, strides, batches and factors."""
    check_call(gpu, drawn)


@pytest.mark.gpu
def test_numpy_arrays_and_own_arrays_on_a_gpu(gpu: Gpu) -> None:
    """numpy's go to the GPU and back; own arrays stay there, in a stream of the device."""
    a, b, c = random(200, 300), random(300, 100), random(200, 100, seed=1)
    assert_right(sgemm(a, b), a, b, None, 1.0, 0.0)
    with gpu.stream() as stream:
        one, two, there = (gpu.upload(each, stream=stream) for each in (a, b, c))
        sgemm(one, two, there, alpha=2.0, beta=-1.0, stream=stream)
        assert_right(there.download(stream=stream), a, b, c, 2.0, -1.0)


@pytest.mark.gpu
def test_torch_tensors(gpu: Gpu, torch: Any) -> None:
    """In and out, as views of any strides, and out=None gives a tensor of the same device."""
    whole = torch.randn(3, 200, 320, device="cuda")
    b = torch.randn(320, 72, device="cuda")
    for a, transpose in (
        (whole[1], False),
        (whole[:, :, ::2][..., :150].contiguous().mT, True),
        (whole[1, ::3], False),
        (whole[:, 7:107, 1:301:2], False),
        (whole.mT, True),
        (whole[0, :, 5:6].expand(200, 64), False),
        (whole[:1].expand(4, 200, 320), False),
    ):
        rows = a.mT if transpose else a
        right = b[: rows.shape[-1]]
        one, two = (each.cpu().numpy() for each in (rows, right))
        made = sgemm(a, right, transpose_a=transpose)
        assert isinstance(made, torch.Tensor)
        assert made.device == a.device
        assert_right(made.cpu().numpy(), one, two, None, 1.0, 0.0)
        columns = torch.randn(*made.shape[:-2], made.shape[-1], made.shape[-2], device="cuda").mT
        before = columns.cpu().numpy()
        returned = sgemm(a, right, columns, alpha=0.5, beta=2.0, transpose_a=transpose)
        assert returned is columns
        assert_right(columns.cpu().numpy(), one, two, before, 0.5, 2.0)


@pytest.mark.gpu
def test_a_torch_view_that_is_written_leaves_the_rest(gpu: Gpu, torch: Any) -> None:
    """Every second column of a part: what lies between stays as it is."""
    a, b = torch.randn(50, 60, device="cuda"), torch.randn(60, 40, device="cuda")
    whole = torch.randn(64, 100, device="cuda")
    before = whole.clone()
    out = whole[3:53, 1:81:2]
    sgemm(a, b, out)
    assert_right(out.cpu().numpy(), a.cpu().numpy(), b.cpu().numpy(), None, 1.0, 0.0)
    before[3:53, 1:81:2] = out
    assert torch.equal(whole, before)
    with pytest.raises(OverlapError):
        sgemm(whole[:50, :60], b, out)
    with pytest.raises(ArrayLayoutError, match="share memory"):
        sgemm(a, b, whole[0, :40].expand(50, 40))


@pytest.mark.gpu
def test_torch_in_a_stream_of_its_own(gpu: Gpu, torch: Any) -> None:
    """The product is computed in torch's current stream, after what was begun there."""
    streams = [torch.cuda.Stream() for _ in range(2)]
    results = []
    for number, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            x = torch.randn(1024, 1024, device="cuda")
            for _ in range(20):
                x = torch.tanh(x @ x.mT / 32) + number
            y = torch.randn(1024, 256, device="cuda")
            results.append((x, y, sgemm(x, y) + 1))
    torch.cuda.synchronize()
    for x, y, made in results:
        one, two = (each.cpu().numpy() for each in (x, y))
        assert_right(made.cpu().numpy(), one, two, np.ones(made.shape, np.float32), 1.0, 1.0)
    x, y, _ = results[0]
    with torch.cuda.stream(streams[1]):
        late = torch.zeros_like(x)
        torch.cuda._sleep(20_000_000)
        late.copy_(x)
    made = sgemm(late, y, stream=streams[1])
    streams[1].synchronize()
    one, two = (each.cpu().numpy() for each in (x, y))
    assert_right(made.cpu().numpy(), one, two, None, 1.0, 0.0)


@pytest.mark.gpu
def test_torch_tensors_that_do_not_fit(gpu: Gpu, torch: Any) -> None:
    """Other types, the CPU, gradients: a typed error with a remedy."""
    a = torch.ones(4, 4, device="cuda")
    for error, text, other in (
        (DtypeError, "bfloat16", a.bfloat16()),
        (DtypeError, "float64", a.double()),
        (ArrayLayoutError, "the CPU", a.cpu()),
        (ArrayLayoutError, "detach", a.clone().requires_grad_()),
        (ArrayLayoutError, "numpy", a.cpu().numpy()),
        (ProblemSizeError, r"\(4,\)", a[0]),
        (LowgemmError, "", a.to_sparse()),
    ):
        with pytest.raises(error, match=text):
            sgemm(a, other)
        with pytest.raises(error):
            sgemm(a, a, other)
    with pytest.raises(LowgemmError):
        sgemm(a.cpu(), a)


@pytest.mark.gpu
def test_cupy_arrays(gpu: Gpu, cupy: Any) -> None:
    """In and out, with negative strides too, in CuPy's current stream."""
    whole = cupy.random.standard_normal((200, 320), dtype=cupy.float32)
    b = cupy.random.standard_normal((320, 72), dtype=cupy.float32)
    for a in (whole, whole[::-2], whole[:, ::-1], cupy.asfortranarray(whole)):
        one, two = (cupy.asnumpy(each) for each in (a, b))
        made = sgemm(a, b)
        assert isinstance(made, cupy.ndarray)
        assert_right(cupy.asnumpy(made), one, two, None, 1.0, 0.0)
        out = cupy.ones(made.shape, cupy.float32)[:, ::-1]
        assert sgemm(a, b, out, beta=1.0) is out
        assert_right(cupy.asnumpy(out), one, two, np.ones(made.shape, np.float32), 1.0, 1.0)
    with cupy.cuda.Stream(non_blocking=True):
        a = cupy.tanh(whole @ whole.T)
        made = sgemm(a, a) + 1
        one = cupy.asnumpy(a)
        assert_right(cupy.asnumpy(made), one, one, np.ones(made.shape, np.float32), 1.0, 1.0)


@pytest.mark.gpu
def test_arrays_of_several_libraries_on_a_gpu(gpu: Gpu, torch: Any) -> None:
    """Any mixture on one GPU; without an out the product is of the library of a."""
    a, b = random(40, 30), random(30, 20)
    own, foreign = gpu.upload(a), torch.from_numpy(b).cuda()
    torch.cuda.synchronize()
    made = sgemm(own, foreign)
    assert isinstance(made, Array)
    assert_right(made.download(), a, b, None, 1.0, 0.0)

    class Bare:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__

    made = sgemm(Bare(foreign.mT), Bare(torch.from_numpy(a).cuda().mT))
    assert isinstance(made, Array)
    assert_right(made.download(), b.T, a.T, None, 1.0, 0.0)


@pytest.mark.gpu
def test_several_threads_on_a_gpu(gpu: Gpu) -> None:
    """Each thread gets its own product, from one device in one stream."""
    a, b = random(64, 2000), random(2000, 64)
    want = sgemm(gpu.upload(a), gpu.upload(b)).download()
    wrong: list[object] = []

    def compute(number: int) -> None:
        factor = np.float32(2**number)
        try:
            one, two = gpu.upload(a * factor), gpu.upload(b)
            for _ in range(50):
                if not np.array_equal(sgemm(one, two).download(), want * factor):
                    wrong.append(number)
        except LowgemmError as error:
            wrong.append(error)

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_flags_are_no_letters() -> None:
    """BLAS's "N" would be true: it is refused, as is a stream for what has none."""
    a = ones(2, 2)
    with pytest.raises(ArgumentTypeError, match="'N' is neither True nor False"):
        sgemm(a, a, transpose_a="N")  # type: ignore[arg-type]
    with pytest.raises(StreamDeviceError, match="with numpy arrays"):
        sgemm(a, a, stream=0)
    assert np.array_equal(sgemm(a, a, transpose_b=np.True_), sgemm(a, a))  # type: ignore[arg-type]


def test_an_out_whose_elements_interleave_is_taken() -> None:
    """Strides that meet no element twice will do, whatever their order."""
    memory = np.zeros(8, np.float32)
    out = as_strided(memory, (2, 3), (12, 8))
    assert sgemm(ones(2, 4), ones(4, 3), out) is out
    assert np.array_equal(memory, [4, 0, 4, 4, 4, 4, 0, 4])


def test_a_kernel_that_is_gone_is_left_out_of_a_table(tmp_path: Path) -> None:
    """A table of an earlier release stays of use; what it says of other kernels counts."""
    path = tmp_path / "table.json"
    rows = {
        "64x64x64 K16 X16": {"retired9x9": [1, 1, 1], "stream_k": [2, 2, 2]},
        "32x32x32 K16 X16": {"retired9x9/2": [1, 1, 1]},
    }
    path.write_text(json.dumps({"format": 1, "gpu": "any", "entries": rows}))
    table = TuningTable.load(path)
    assert table is not None
    (tuned,) = table.entries.values()
    assert [str(each.choice) for each in tuned.measured] == ["stream_k"]


def test_the_model_alone_chooses_well() -> None:
    """Of what was measured on an H200 for the suite, its choices take 3 % more than the best."""
    table = TuningTable.load(shipped_table("NVIDIA H200"))
    assert table is not None
    ratios = []
    for case in SUITE:
        call = case.call.canonical
        tuned = table.entries[call.key]
        times = {each.choice: each.median_us for each in tuned.measured}
        choice = Chooser().choose(call, Chip())
        # What was not even measured had been ruled out as hopeless by the first model.
        ratios.append(tuned.measured[0].median_us / times.get(choice, 3 * max(times.values())))
    assert math.exp(sum(map(math.log, ratios)) / len(ratios)) > 0.97
    assert min(ratios) > 0.75


def test_streams_are_told_apart_as_the_driver_does() -> None:
    """The default stream has two names; the per-thread one is another in each thread."""
    assert stream_key(None) == stream_key(0) == stream_key(1) != stream_key(7)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(stream_key(2)))
    thread.start()
    thread.join()
    assert found != [stream_key(2)]
    assert stream_key(2) == stream_key(2)


def test_a_choice_is_not_kept_for_other_strides(emulator: Emulator) -> None:
    """Strides beyond 2^31 elements are for the kernels that take any; sizes alone do not tell."""
    engine = Sgemm(emulator, rewritten=False)
    near = SgemmCall(4096, 4096, 64, Layout(1, 4096), Layout(4096, 1), Layout(4096, 1))
    far = replace(near, a=Layout(1, 2**31))
    assert near.key == far.key
    for call in (near, far, near):
        choice = engine.choose(call)
        assert kernel_named(choice.kernel).accepts(call.canonical)


@pytest.mark.parametrize(
    "entries",
    [
        {"0x1x1 K4 K4": {"stream_k": [1, 1, 1]}},
        {f"{'9' * 5000}x1x1 K4 K4": {"stream_k": [1, 1, 1]}},
        {"1x1x1 K4 K4": {"stream_k": [float("nan"), 1, 1]}},
        {"1x1x1 K4 K4": {"stream_k": [0, 1, 1]}},
        {"1x1x1 K4 K4": {"stream_k": "123"}},
        {"1x1x1 K4 K4": {"stream_k": [1, 1]}},
    ],
    ids=["zero", "digits", "nan", "no time", "text", "two"],
)
def test_what_no_measurement_can_be_is_a_damaged_table(
    tmp_path: Path, entries: dict[str, object]
) -> None:
    """A size of zero or of thousands of digits, times that are none."""
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"format": 1, "gpu": "any", "entries": entries}))
    with pytest.raises(ArgumentValueError, match="no table of tuning"):
        TuningTable.load(path)


def test_a_report_keeps_what_was_wrong(tmp_path: Path) -> None:
    """A result that was judged wrong is wrong when the file is read again; damage is an error."""
    row = SuiteRow(
        "odd",
        "NN 1x1x1",
        1,
        1,
        1,
        1,
        "stream_k",
        1.0,
        1.0,
        1.0,
        2.0,
        2.0,
        2.0,
        True,
        math.inf,
        True,
    )
    path = tmp_path / "suite.json"
    for error in (math.inf, 1.000001):
        write_suite(SuiteReport({}, (replace(row, error_over_bound=error),)), path)
        (again,) = read_suite(path).rows
        assert not again.passed
        assert again.ratio == 2
    for key, value in (("time_us", 0), ("time_us", "x"), ("cublas_us", -1), ("name", 5), ("m", 0)):
        content = json.loads(path.read_text())
        content["rows"][0][key] = value
        broken = tmp_path / "broken.json"
        broken.write_text(json.dumps(content))
        with pytest.raises(OutputError, match="no timings file"):
            read_suite(broken)
