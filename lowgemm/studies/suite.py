"""sgemm() on many shapes beside cuBLAS: right, the same bits each time, and how fast."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.device import Gpu
from lowgemm.device.stream import DeviceStream
from lowgemm.gemm import Choice, GemmProblem, Layout, Sgemm, SgemmCall, gamma
from lowgemm.measure import TimerSettings, Timing
from lowgemm.runtime import Array, Device
from lowgemm.studies.bench import CallBench, time_recorded
from lowgemm.studies.ladder import Progress, silent
from lowgemm.studies.peers import CublasSgemm

__all__ = [
    "SUITE",
    "CheckedCase",
    "SuiteCase",
    "SuiteCheck",
    "SuiteResult",
    "check_call",
    "check_suite",
    "reduced",
    "run_suite",
    "suite",
]


@dataclass(frozen=True, slots=True)
class SuiteCase:
    """One shape: ``group`` is what it stands for."""

    group: str
    problem: GemmProblem
    transpose_a: bool = False
    transpose_b: bool = False
    batches: int = 1

    @property
    def call(self) -> SgemmCall:
        """The call, on matrices without gaps."""
        return SgemmCall.of(
            self.problem,
            transpose_a=self.transpose_a,
            transpose_b=self.transpose_b,
            batches=self.batches,
        )

    @property
    def name(self) -> str:
        """As BLAS's users write it: ``"NT 1024x1024x1024"``, ``"64 of 256x256x256"``."""
        letters = "".join("T" if each else "N" for each in (self.transpose_a, self.transpose_b))
        batches = f"{self.batches} of " if self.batches > 1 else ""
        return f"{letters} {batches}{self.problem}"


def _cases() -> Iterator[SuiteCase]:
    def of(group: str, *sizes: str, **options: Any) -> Iterator[SuiteCase]:
        for size in sizes:
            yield SuiteCase(group, GemmProblem.parse(size), **options)

    yield from of(
        "square", "128", "256", "384", "512", "768", "1024", "1536", "2048", "3072", "4096",
        "6144", "8192", "16384",
    )  # fmt: skip
    yield from of(
        "odd", "127", "255", "511", "1000", "1023", "2047", "4095", "4096x4097x4095", "35x79x19"
    )
    yield from of(
        "tall", "4096x64x4096", "8192x128x4096", "16384x256x1024", "32768x128x512", "65536x64x64"
    )
    yield from of(
        "wide", "32x8192x4096", "64x4096x4096", "128x4096x4096", "128x8192x1024", "256x65536x64"
    )
    yield from of(
        "thin", "1x1x65536", "1x4096x4096", "4096x1x4096", "1x16384x16384", "16384x1x16384",
        "2x4096x4096", "8x4096x4096", "16x4096x4096", "4096x4x4096", "4096x16x4096",
    )  # fmt: skip
    yield from of(
        "k", "4096x4096x1", "4096x4096x4", "4096x4096x16", "4096x4096x64", "4096x4096x256",
        "1024x1024x8192", "512x512x8192", "256x256x16384", "128x128x65536", "64x64x65536",
        "16x16x65536",
    )  # fmt: skip
    for a, b in ((False, True), (True, False), (True, True)):
        options = {"transpose_a": a, "transpose_b": b}
        yield from of("transposed", "256", "1000", "1024", "2048", "4096", **options)
    yield from of("transposed", "64x4096x4096", "1x4096x4096", transpose_b=True)
    yield from of("transposed", "4096x1x4096", "4096x4096x64", transpose_a=True)
    for size, batches in (
        ("16", 10000), ("32", 4096), ("64", 1024), ("100", 100), ("128", 256), ("256", 64),
        ("512", 16), ("1024", 8),
    ):  # fmt: skip
        yield from of("batched", size, batches=batches)
    yield from of("batched", "128x128x64", batches=256, transpose_b=True)


#: The shapes, by what they stand for.
SUITE: tuple[SuiteCase, ...] = tuple(_cases())


def suite(only: str | None = None, most_products: int | None = None) -> tuple[SuiteCase, ...]:
    """Cases with a text in their group or name, and at most so many multiplications."""
    return tuple(
        case
        for case in SUITE
        if (only is None or only in case.group or only in case.name)
        and (most_products is None or case.call.flop // 2 <= most_products)
    )


@dataclass(frozen=True, slots=True)
class SuiteCheck:
    """Whether a call computes what it should.

    ``exact`` says that on numbers whose sums FP32 holds all of C was right (by products of C with
    random vectors, in FP64, Freivalds' check); ``error_over_bound`` is the largest ratio of error
    to the componentwise bound over the elements looked at, on random numbers; ``same_bits`` that a
    second launch gave the same.
    """

    exact: bool
    error_over_bound: float
    same_bits: bool

    @property
    def passed(self) -> bool:
        """Whether all is as it should be."""
        return self.exact and self.error_over_bound <= 1 and self.same_bits


#: A long size becomes this and what it leaves over; a batch so many.
_REDUCED, _REDUCED_BATCHES, _REMAINDER = 384, 3, 128


def reduced(case: SuiteCase) -> SuiteCase:
    """The case with its sizes cut to what the emulator or a sanitizer does in a second.

    What a size leaves over of 128 stays: odd ones stay odd, and the last tiles ragged.
    """
    p = case.problem
    sizes = (
        size if size <= _REDUCED + _REMAINDER else _REDUCED + size % _REMAINDER
        for size in (p.m, p.n, p.k)
    )
    return replace(case, problem=GemmProblem(*sizes), batches=min(case.batches, _REDUCED_BATCHES))


@dataclass(frozen=True, slots=True)
class CheckedCase:
    """A case that was judged and not timed: which kernel, and what came of it."""

    case: SuiteCase
    choice: str
    check: SuiteCheck


def check_suite(
    device: Device, cases: Sequence[SuiteCase] = SUITE, *, progress: Progress = silent
) -> Iterator[CheckedCase]:
    """Judge cases at reduced size on a device, by the kernels of the full size where they can.

    Parameters
    ----------
    device
        A GPU, or the emulator.
    cases
        The shapes, at full size.
    progress
        Told what is judged.

    Yields
    ------
    CheckedCase
        One for each that differs from those before.
    """
    engine = Sgemm(device)
    seen = set()
    for done, case in enumerate(cases):
        progress(case.name, done, len(cases))
        small = reduced(case)
        call, wanted = small.call, engine.choose(case.call)
        choices = engine.choices(call)
        same = [each for each in choices if each.kernel == wanted.kernel]
        # The number of splits may be too large for the small problem.
        same.sort(key=lambda each: abs(each.splits - wanted.splits))
        choice = same[0] if same else choices[0]
        if (call.key, choice) in seen:
            continue
        seen.add((call.key, choice))
        yield CheckedCase(small, str(choice), check_call(device, engine, call, choice=choice))
    progress("done", len(cases), len(cases))


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """One case: which kernel, right or not, and the times per call; ``peer`` is cuBLAS."""

    case: SuiteCase
    choice: str
    check: SuiteCheck | None
    timing: Timing
    peer: Timing | None

    @property
    def tflops(self) -> float:
        """10^12 floating-point operations a second."""
        return self.case.call.flop / self.timing.median_us / 1e6

    @property
    def ratio(self) -> float | None:
        """cuBLAS's time over ours."""
        return None if self.peer is None else self.peer.median_us / self.timing.median_us


_SETTINGS = TimerSettings(
    warm_up_s=0.02, min_samples=15, max_samples=60, max_seconds=2.0, sample_us=0.0
)


def run_suite(
    gpu: Gpu,
    cases: Sequence[SuiteCase] = SUITE,
    *,
    check: bool = True,
    settings: TimerSettings = _SETTINGS,
    progress: Progress = silent,
) -> Iterator[SuiteResult]:
    """Check and time cases, each interleaved with cuBLAS, as graphs: the host has no part in it.

    Parameters
    ----------
    gpu
        The GPU.
    cases
        The shapes.
    check
        Whether results are judged as well.
    settings
        How long to measure.
    progress
        Told what is measured.

    Raises
    ------
    ToolNotFoundError
        cuBLAS is not installed.
    """
    engine = Sgemm(gpu)
    stream = gpu.stream()
    peer = CublasSgemm(gpu, stream)
    for done, case in enumerate(cases):
        progress(case.name, done, len(cases))
        call = case.call
        bench = CallBench(gpu, call)
        launch = engine.prepare(call, stream=stream)
        timings = time_recorded(
            gpu,
            stream,
            {
                "ours": partial(launch, *bench.pointers, 1.0, 0.0),
                "cuBLAS": peer.prepare(call, bench.a, bench.b, bench.c),
            },
            settings,
        )
        judged = check_call(gpu, engine, call, stream) if check else None
        choice = str(engine.choose(call))
        yield SuiteResult(case, choice, judged, timings["ours"], timings["cuBLAS"])
    progress("done", len(cases), len(cases))
    peer.close()


#: Rows and columns of C that are computed anew on random numbers, for some of a batch.
_ROWS, _BATCHES, _VECTORS = 40, 3, 2
#: As :func:`lowgemm.gemm.exact_operands`: wide columns of A and rows of B among 1024 k-steps.
_WIDE_STEPS = 1024


def check_call(
    device: Device,
    engine: Sgemm,
    call: SgemmCall,
    stream: DeviceStream | None = None,
    choice: Choice | None = None,
) -> SuiteCheck:
    """Judge what a call computes.

    Parameters
    ----------
    device, engine
        Where it runs, and what computes it.
    call
        The call, its matrices without gaps.
    stream
        The stream; None: the default one.
    choice
        The kernel; None: the one that is chosen.
    """
    rng = np.random.default_rng(call.m + call.n + call.k)
    a, b, c = (device.empty(_elements(call, which)) for which in "abc")
    launch = engine.prepare(call, choice, stream=stream)

    def computed() -> NDArray[np.float32]:
        c.fill_bytes(0xFF)  # NaN
        launch(c.pointer, a.pointer, b.pointer, 1.0, 0.0)
        device.synchronize()
        return _matrices(c.download(), call, "c")

    exact = _check_exactly(call, rng, a, b, computed)
    host = [rng.random(array.size, np.float32) * 2 - 1 for array in (a, b)]
    a.upload(host[0])
    b.upload(host[1])
    got = computed()
    again = computed()
    same = np.array_equal(got.view(np.uint32), again.view(np.uint32))
    error = _error_over_bound(call, rng, host[0], host[1], got)
    return SuiteCheck(exact, error, same)


def _elements(call: SgemmCall, which: str) -> int:
    rows, columns = _shape(call, which)
    return rows * columns * call.batches


def _shape(call: SgemmCall, which: str) -> tuple[int, int]:
    return {"a": (call.m, call.k), "b": (call.k, call.n), "c": (call.m, call.n)}[which]


def _matrices(flat: NDArray[Any], call: SgemmCall, which: str) -> NDArray[Any]:
    """The batch as an array of three dimensions, without a copy."""
    rows, columns = _shape(call, which)
    layout: Layout = getattr(call, which)
    strides = (layout.batch if call.batches > 1 else 0, layout.row, layout.column)
    bytes_each = tuple(flat.itemsize * each for each in strides)
    return np.lib.stride_tricks.as_strided(flat, (call.batches, rows, columns), bytes_each)


def _check_exactly(
    call: SgemmCall,
    rng: np.random.Generator,
    a: Array,
    b: Array,
    computed: Callable[[], NDArray[np.float32]],
) -> bool:
    """Whether C x = A (B x) for random vectors x, all of it without rounding."""
    host = {}
    steps = rng.permutation(call.k)[:_WIDE_STEPS]
    for which, array in (("a", a), ("b", b)):
        flat = (rng.integers(0, 2, array.size, np.int8) * 2 - 1).astype(np.float32)
        # Odd numbers of 13 bits where the other operand has signs: products of 13, sums of 24.
        matrices = _matrices(flat, call, which)
        wide = steps[0::2] if which == "a" else steps[1::2]
        part = matrices[:, :, wide] if which == "a" else matrices[:, wide, :]
        odd = rng.integers(2**11, 2**12, part.shape) * 2 + 1
        if which == "a":
            matrices[:, :, wide] = part * odd
        else:
            matrices[:, wide, :] = part * odd
        array.upload(flat)
        host[which] = matrices
    c = computed()
    for _ in range(_VECTORS):
        x = rng.integers(-8, 9, (call.n, 1)).astype(np.float64)
        right = _times(host["a"], _times(host["b"], x))
        if not np.array_equal(_times(c, x), right):
            return False
    return True


def _times(matrices: NDArray[Any], x: NDArray[Any]) -> NDArray[np.float64]:
    """Matrices times vectors in FP64, a part at a time: a copy of all would be large."""
    vectors = np.broadcast_to(x, (len(matrices), *x.shape[-2:]))
    rows = max(1, 2**24 // max(matrices.shape[2], 1))
    out = np.empty((len(matrices), matrices.shape[1], 1))
    for n in range(len(matrices)):
        for first in range(0, matrices.shape[1], rows):
            part = matrices[n, first : first + rows].astype(np.float64)
            out[n, first : first + rows] = part @ vectors[n]
    return out


def _error_over_bound(
    call: SgemmCall,
    rng: np.random.Generator,
    a: NDArray[np.float32],
    b: NDArray[np.float32],
    c: NDArray[np.float32],
) -> float:
    """The largest error of some rows and columns, over its bound; infinity for NaN."""
    worst = 0.0
    one, two = _matrices(a, call, "a"), _matrices(b, call, "b")
    for n in rng.permutation(call.batches)[:_BATCHES]:
        rows, columns = _some(rng, call.m), _some(rng, call.n)
        x, y = one[n][rows].astype(np.float64), two[n][:, columns].astype(np.float64)
        right, bound = x @ y, gamma(call.k) * (np.abs(x) @ np.abs(y))
        error = np.abs(c[n][np.ix_(rows, columns)] - right)
        ratio = float(np.max(error / bound))
        worst = max(worst, math.inf if math.isnan(ratio) else ratio)
    return worst


def _some(rng: np.random.Generator, extent: int) -> NDArray[np.int64]:
    """Some indices, the first and the last among them."""
    return np.unique(np.concatenate([rng.permutation(extent)[:_ROWS], [0, extent - 1]]))
