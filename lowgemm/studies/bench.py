"""Calls of SGEMM timed against each other on a GPU, without the host's part in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from lowgemm.device import Gpu
from lowgemm.device.capture import RecordedGraph
from lowgemm.device.stream import DeviceStream
from lowgemm.gemm import SgemmCall
from lowgemm.measure import TimerSettings, Timing, measure
from lowgemm.runtime import Array

__all__ = ["CallBench", "time_recorded"]

_SAMPLE_US, _MOST_REPEATS = 400.0, 50


class CallBench:
    """The operands of a call on a GPU: random, the same for each kernel.

    Parameters
    ----------
    gpu
        The GPU.
    call
        The sizes and strides. The arrays begin on 16 bytes where the call says so, otherwise 4
        bytes further.
    seed
        Of the random numbers, uniform in [-1, 1).
    """

    def __init__(self, gpu: Gpu, call: SgemmCall, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.call = call
        shapes = ((call.m, call.k), (call.k, call.n), (call.m, call.n))
        arrays: list[Array] = []
        for layout, (rows, columns) in zip((call.a, call.b, call.c), shapes, strict=True):
            reach = (rows - 1) * layout.row + (columns - 1) * layout.column
            elements = reach + (call.batches - 1) * layout.batch + 1
            host = rng.random(elements + 1, np.float32) * 2 - 1
            array = gpu.upload(host)
            begin = 0 if layout.aligned or not elements else 1
            arrays.append(array.view(begin, elements))
        self.a, self.b, self.c = arrays

    @property
    def pointers(self) -> tuple[int, int, int]:
        """The addresses of C, A and B."""
        return self.c.pointer, self.a.pointer, self.b.pointer


def time_recorded(
    gpu: Gpu,
    stream: DeviceStream,
    candidates: Mapping[str, Callable[[], object]],
    settings: TimerSettings | None = None,
) -> dict[str, Timing]:
    """Time candidates, each recorded into a graph as often as makes a sample of some length.

    Parameters
    ----------
    gpu, stream
        Where they run.
    candidates
        Name to a callable that enqueues one launch on the stream.
    settings
        For :func:`lowgemm.measure.measure`.
    """
    graphs: dict[str, RecordedGraph] = {}
    repeats: dict[str, int] = {}
    try:
        for name, enqueue in candidates.items():
            repeats[name] = _repeats(gpu, stream, enqueue)
            graphs[name] = RecordedGraph(gpu, stream, enqueue, repeats[name])
        timings = measure(
            {name: graph.launch for name, graph in graphs.items()},
            stream=stream,
            new_event=gpu.event,
            settings=settings,
        )
    finally:
        for graph in graphs.values():
            graph.close()
    return {name: timing.per(repeats[name]) for name, timing in timings.items()}


def _repeats(gpu: Gpu, stream: DeviceStream, enqueue: Callable[[], object]) -> int:
    enqueue()
    first, last = gpu.event(), gpu.event()
    stream.record(first)
    enqueue()
    stream.record(last)
    time_us = max(last.elapsed_us(first), 1.0)
    return max(1, min(_MOST_REPEATS, math.ceil(_SAMPLE_US / time_us)))
