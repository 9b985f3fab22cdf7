"""The ladder: compile every rung, and on a GPU check and time each beside cuBLAS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from lowgemm.compiler import Build, Cache, CompiledKernel
from lowgemm.device import Gpu
from lowgemm.device.clock import SmClock
from lowgemm.device.stream import DeviceStream
from lowgemm.emulator import (
    ARCHITECTURES,
    Emulator,
    EmulatorKernel,
    ExecutedTotals,
    Finding,
)
from lowgemm.errors import ToolNotFoundError
from lowgemm.gemm import (
    CheckResult,
    GemmProblem,
    GuardedOutput,
    Operands,
    Reference,
    Rung,
    RungKernel,
    compile_rung,
    exact_operands,
    is_rewritten,
    ladder,
    random_operands,
    rung,
)
from lowgemm.hardware import Architecture, Occupancy, capability, occupancy
from lowgemm.measure import TimerSettings, Timing, measure, median_clock_mhz
from lowgemm.runtime import Array, Device, PreparedLaunch, Stream
from lowgemm.studies.peers import CublasSgemm, PeerIdentity
from lowgemm.studies.workers import worker_processes

__all__ = [
    "EMULATED_PROBLEM",
    "CompiledRung",
    "EmulatedRung",
    "LadderRun",
    "PeerRun",
    "Progress",
    "compile_ladder",
    "emulate_ladder",
    "emulate_rung",
    "run_ladder",
    "silent",
]

#: The emulator's problem unless another is asked for: 2 x 2 tiles of 128, 4 k-tiles of 64.
EMULATED_PROBLEM = GemmProblem(256, 256, 256)

#: Told what is being done, how many steps are done, and how many there are.
Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """No progress."""


@dataclass(frozen=True, slots=True)
class CompiledRung:
    """A rung's build for one architecture, and what it says of the instance for aligned rows.

    ``is_rewritten`` says whether that has a hot loop of :mod:`lowgemm.rewrite`; None where the rung
    wants none.
    """

    rung: Rung
    arch: Architecture
    build: Build
    kernel: CompiledKernel
    occupancy: Occupancy
    is_rewritten: bool | None = None

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, static and dynamic."""
        return self.kernel.resources.shared_bytes + self.rung.shared_bytes


@dataclass(frozen=True, slots=True)
class PeerRun:
    """cuBLAS in the same run: what it is, whether it was right, how fast."""

    identity: PeerIdentity
    check: CheckResult
    timing: Timing | None


@dataclass(frozen=True, slots=True)
class LadderRun:
    """What a GPU said of the rungs: by the rung's name, a check and, where right, a timing.

    ``no_peer`` says why there is no peer, where there is none; ``clock_mhz`` is the median of the
    SM clocks at which the rungs ran.
    """

    problem: GemmProblem
    checks: Mapping[str, CheckResult]
    timings: Mapping[str, Timing]
    peer: PeerRun | None
    no_peer: str | None
    clock_mhz: int | None


def compile_ladder(
    archs: Sequence[Architecture | str],
    names: Sequence[str] = (),
    *,
    progress: Progress = silent,
) -> tuple[CompiledRung, ...]:
    """Compile rungs for architectures.

    Parameters
    ----------
    archs
        The architectures.
    names
        The rungs; all of them if empty.
    progress
        Told after each compilation.

    Raises
    ------
    UnknownRungError, UnknownArchitectureError, CompilationError, ToolNotFoundError
        As the names say.
    """
    work: list[tuple[Rung, Architecture]] = []
    for arch in dict.fromkeys(Architecture.parse(spelling) for spelling in archs):
        chosen = [rung(name, arch) for name in names] if names else ladder(arch)
        work += [(item, arch) for item in chosen]
    results = []
    with ThreadPoolExecutor(max_workers=2) as pool:
        for done, compiled in enumerate(pool.map(_compile, work), start=1):
            results.append(compiled)
            progress(f"compiled {compiled.rung.name} for {compiled.arch}", done, len(work))
    return tuple(results)


def _compile(item: tuple[Rung, Architecture]) -> CompiledRung:
    chosen, arch = item
    build = compile_rung(chosen, arch)
    kernel = build.kernel(chosen.instance(aligned=True))
    fits = occupancy(
        capability(arch.major, arch.minor),
        threads=chosen.threads,
        registers=kernel.resources.registers,
        shared_bytes=kernel.resources.shared_bytes + chosen.shared_bytes,
        barriers=kernel.resources.barriers,
    )
    return CompiledRung(chosen, arch, build, kernel, fits, is_rewritten(chosen, build))


def run_ladder(
    gpu: Gpu,
    compiled: Sequence[CompiledRung],
    problem: GemmProblem,
    *,
    cold: bool = False,
    settings: TimerSettings | None = None,
    progress: Progress = silent,
) -> LadderRun:
    """Check and time rungs on a GPU, interleaved with cuBLAS.

    Parameters
    ----------
    gpu
        The GPU.
    compiled
        The rungs, compiled for its architecture.
    problem
        The sizes.
    cold
        Overwrite the L2 before each sample.

    Raises
    ------
    KernelFaultError
        A rung faulted.
    DriverError
        The GPU's memory does not hold the operands, for example.
    """
    stream = gpu.stream()
    bench = _Bench(gpu, stream, problem)
    launches = {
        item.rung.name: bench.prepare(RungKernel(gpu, item.rung, item.build)) for item in compiled
    }
    peer, no_peer = _peer(gpu, stream)
    calls: dict[str, Callable[[], object]] = dict(launches)
    peer_call = None
    if peer is not None:
        peer_call = calls["cuBLAS"] = peer.prepare(problem, bench.a, bench.b, bench.output.c)
    checks = bench.check(calls, progress)
    right = {name: call for name, call in calls.items() if checks[name].passed}
    clock = SmClock(gpu)
    progress("timing", len(calls), len(calls) + 1)
    timings = (
        measure(
            right,
            stream=stream,
            new_event=gpu.event,
            flush=partial(bench.flush, gpu.attributes.l2_bytes) if cold else None,
            read_clock_mhz=clock.read_mhz,
            settings=settings,
        )
        if right
        else {}
    )
    progress("timed", len(calls) + 1, len(calls) + 1)
    peer_run = None
    if peer is not None and peer_call is not None:
        identity = peer.identify(peer_call)
        peer_run = PeerRun(identity, checks.pop("cuBLAS"), timings.pop("cuBLAS", None))
        peer.close()
    clock_mhz = median_clock_mhz(timing.clock_mhz for timing in timings.values())
    return LadderRun(problem, checks, timings, peer_run, no_peer, clock_mhz)


@dataclass(frozen=True, slots=True)
class EmulatedRung:
    """What the emulator said of a rung: a check, what one launch executed, what it did wrong."""

    problem: GemmProblem
    check: CheckResult
    executed: ExecutedTotals
    findings: tuple[Finding, ...]


def emulate_ladder(
    compiled: Sequence[CompiledRung],
    problem: GemmProblem = EMULATED_PROBLEM,
    *,
    workers: int = 1,
    progress: Progress = silent,
) -> dict[tuple[str, str], EmulatedRung]:
    """Check rungs on the emulator and count what they execute; those it knows the code of.

    Parameters
    ----------
    compiled
        The rungs, for any number of architectures.
    problem
        The sizes.
    workers
        Processes that emulate at the same time. Each starts Python anew and imports the caller's
        main module: from more than one on that must be safe.
    progress
        Told what is being emulated: at the start and after each rung.

    Returns
    -------
    dict
        By rung and architecture.

    Raises
    ------
    UnknownArchitectureError
        It knows none of the architectures.
    """
    known = [item for item in compiled if f"sm_{item.arch.number}" in ARCHITECTURES]
    if compiled and not known:
        Emulator(compiled[0].arch)  # says so
    names = [f"{item.rung.name} for {item.arch}" for item in known]
    results: dict[tuple[str, str], EmulatedRung] = {}

    def tell() -> None:
        at_work = names[len(results) :][:workers]
        what = f"emulating {', '.join(at_work)}" if at_work else "emulated"
        progress(what, len(results), len(known))

    tell()
    with _emulated(known, problem, workers) as emulated:
        for item, result in zip(known, emulated, strict=True):
            results[item.rung.name, str(item.arch)] = result
            tell()
    return results


@contextmanager
def _emulated(
    items: Sequence[CompiledRung], problem: GemmProblem, workers: int
) -> Iterator[Iterator[EmulatedRung]]:
    if workers == 1 or Cache.default() is None:  # a process would compile all again
        yield (emulate_rung(item.rung, item.build, problem)[0] for item in items)
        return
    work = [(item.rung.name, str(item.arch), problem) for item in items]
    with worker_processes(workers) as pool:
        yield pool.map(_emulated_by_name, work)


def _emulated_by_name(work: tuple[str, str, GemmProblem]) -> EmulatedRung:
    name, arch, problem = work
    chosen = rung(name, arch)
    return emulate_rung(chosen, compile_rung(chosen, arch), problem)[0]


def emulate_rung(
    rung: Rung, build: Build, problem: GemmProblem
) -> tuple[EmulatedRung, EmulatorKernel]:
    """Check a rung on the emulator; the kernel has the counts of the last launch, on random data.

    Raises
    ------
    EmulationError
        It cannot be run to its end.
    """
    with Emulator(build.arch, findings="collect") as device:
        bench = _Bench(device, device.stream(), problem)
        kernel = RungKernel(device, rung, build)
        launch = bench.prepare(kernel)
        counted = kernel.kernel(aligned=problem.allows_float4())
        assert isinstance(counted, EmulatorKernel)

        def counting() -> None:
            counted.reset_counts()
            launch.launch()

        check = bench.check({rung.name: counting}, silent)[rung.name]
        totals = counted.counts.totals()
        return EmulatedRung(problem, check, totals, tuple(device.findings)), counted


def _peer(gpu: Gpu, stream: DeviceStream) -> tuple[CublasSgemm | None, str | None]:
    try:
        return CublasSgemm(gpu, stream), None
    except ToolNotFoundError as error:
        return None, str(error)


class _Bench:
    """Operands on a device and the reference for them."""

    def __init__(self, gpu: Device, stream: Stream, problem: GemmProblem) -> None:
        self.gpu = gpu
        self.stream = stream
        self.problem = problem
        self.a: Array = gpu.empty(problem.a_elements)
        self.b: Array = gpu.empty(problem.b_elements)
        self.output = GuardedOutput(gpu, problem)
        self._flush_buffer: Array | None = None

    def prepare(self, kernel: RungKernel) -> PreparedLaunch:
        return kernel.prepare(self.problem, self.a, self.b, self.output.c, stream=self.stream)

    def check(
        self, calls: Mapping[str, Callable[[], object]], progress: Progress
    ) -> dict[str, CheckResult]:
        """Each call on exact data, then on random data, which stays for the timing."""
        results: dict[str, CheckResult] = {}
        for operands in self._operand_sets():
            reference = Reference(self.problem, operands)
            upload_operands(self.problem, operands, self.a, self.b)
            for done, (name, call) in enumerate(calls.items(), start=1):
                earlier = results.get(name)
                if earlier is None or earlier.passed:
                    results[name] = self._check_one(reference, call)
                progress(f"checked {name}", done, len(calls) + 1)
        return results

    def _operand_sets(self) -> Iterator[Operands]:
        exact = exact_operands(self.problem)
        if exact.exact:
            yield exact
        yield random_operands(self.problem)

    def _check_one(self, reference: Reference, call: Callable[[], object]) -> CheckResult:
        self.output.poison()
        call()
        self.stream.synchronize()
        return self.output.judge(reference)

    def flush(self, l2_bytes: int) -> None:
        """Overwrite as much memory as the L2 holds, on the stream."""
        if self._flush_buffer is None:
            self._flush_buffer = self.gpu.empty(l2_bytes, "uint8")
        self._flush_buffer.fill_bytes(0, stream=self.stream)


def upload_operands(problem: GemmProblem, operands: Operands, a: Array, b: Array) -> None:
    """Lay operands out with the problem's leading dimensions; what lies in the gaps is NaN."""
    import numpy as np

    for array, matrix, ld in ((a, operands.a, problem.lda), (b, operands.b, problem.ldb)):
        rows, columns = matrix.shape
        flat = np.full((rows - 1) * ld + columns, np.nan, dtype=np.float32)
        np.lib.stride_tricks.as_strided(flat, matrix.shape, (ld * 4, 4))[...] = matrix
        array.upload(flat)
