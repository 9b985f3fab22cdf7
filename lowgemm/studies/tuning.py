"""Measure which kernel of sgemm() is the fastest for which call, into a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from lowgemm.device import Gpu
from lowgemm.device.stream import DeviceStream
from lowgemm.errors import ArgumentValueError
from lowgemm.gemm import Choice, Measured, Sgemm, SgemmCall, Tuned, TuningTable
from lowgemm.gemm.engine import make_sgemm
from lowgemm.gemm.kernels import priced_choices
from lowgemm.measure import TimerSettings
from lowgemm.studies.bench import CallBench, time_recorded
from lowgemm.studies.ladder import Progress, silent
from lowgemm.studies.workers import worker_processes
from lowgemm.toolchain import caching_enabled

__all__ = ["tune", "tuned_call"]

#: Choices that the model gives more than this many times the time of the best one are not tried.
_HOPELESS = 3.0
#: A first look at all, then the ones near the best once more and longer.
_FIRST = TimerSettings(warm_up_s=0.0, min_samples=4, max_samples=5, max_seconds=0.2, sample_us=0.0)
_SECOND = TimerSettings(
    warm_up_s=0.005, min_samples=12, max_samples=40, max_seconds=1.0, sample_us=0.0
)
_NEAR = 1.15


def tune(
    gpu: Gpu,
    calls: Sequence[SgemmCall],
    path: Path,
    *,
    again: bool = False,
    workers: int = 1,
    progress: Progress = silent,
) -> Iterator[Tuned]:
    """Measure calls and keep what was found after each: what is in the table already is left.

    Parameters
    ----------
    gpu
        The GPU.
    calls
        What to measure.
    path
        The table's file; made where there is none. After each call it holds all that is known, so
        that a run which is interrupted is taken up by the next.
    again
        Measure as well what the table has already.
    workers
        Processes that compile and rewrite ahead, into the cache on disk.
    progress
        Told what is measured.

    Yields
    ------
    Tuned
        What was measured for a call.

    Raises
    ------
    ArgumentValueError
        The file is there and no table of this GPU.
    OutputError
        The table cannot be written.
    """
    table = TuningTable.load(path)
    if table is None and path.exists():
        raise ArgumentValueError(f"{path} is no table of tuning", "name another file")
    if table is not None and table.gpu != gpu.name:
        raise ArgumentValueError(
            f"{path} is the table of {table.gpu}, not of {gpu.name}", "name another file"
        )
    table = table or TuningTable(gpu.name)
    engine = Sgemm(gpu)
    stream = gpu.stream()
    work = {call.canonical.key: call for call in calls}
    left = [call for key, call in work.items() if again or key not in table.entries]
    _compile_ahead(engine, left, workers, progress)
    for done, call in enumerate(left):
        progress(call.canonical.key, done, len(left))
        tuned = tuned_call(gpu, engine, call, stream)
        table.entries[tuned.key] = tuned
        table.save(path)
        yield tuned
    progress("done", len(left), len(left))


def _compile_ahead(
    engine: Sgemm, calls: Sequence[SgemmCall], workers: int, progress: Progress
) -> None:
    if workers < 2 or not caching_enabled():
        return
    plans = {
        (plan.source, plan.expression): plan
        for call in calls
        for plan in (engine.plan(call, choice) for choice in _candidates(engine, call))
    }
    if not plans:
        return
    make = partial(make_sgemm, arch=str(engine.device.architecture), rewritten=engine.rewritten)
    with worker_processes(min(workers, len(plans))) as pool:
        for done, _ in enumerate(pool.map(make, plans.values())):
            progress("compiling", done + 1, len(plans))


def tuned_call(gpu: Gpu, engine: Sgemm, call: SgemmCall, stream: DeviceStream) -> Tuned:
    """Time what can compute a call; the fastest first."""
    bench = CallBench(gpu, call)
    launches = {
        str(choice): partial(engine.prepare(call, choice, stream=stream), *bench.pointers, 1.0, 0.0)
        for choice in _candidates(engine, call)
    }
    first = time_recorded(gpu, stream, launches, _FIRST)
    fastest = min(timing.median_us for timing in first.values())
    near = {
        name: launches[name]
        for name, timing in first.items()
        if timing.median_us <= fastest * _NEAR
    }
    timings = {**first, **time_recorded(gpu, stream, near, _SECOND)}
    measured = [
        Measured(Choice.parse(name), timing.median_us, timing.q1_us, timing.q3_us)
        for name, timing in timings.items()
    ]
    return Tuned(call.canonical.key, tuple(sorted(measured, key=lambda each: each.median_us)))


def _candidates(engine: Sgemm, call: SgemmCall) -> list[Choice]:
    """What the model does not rule out."""
    priced = priced_choices(call.canonical, engine.chip)
    limit = _HOPELESS * priced[0][0]
    return [choice for cost, choice in priced if cost <= limit]
