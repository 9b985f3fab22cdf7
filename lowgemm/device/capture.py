"""Work recorded into a graph instead of run: to see its kernels, or to launch it at once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from lowgemm.device.context import free
from lowgemm.device.gpu import Gpu
from lowgemm.device.stream import DeviceStream
from lowgemm.runtime.interface import Resource

__all__ = ["RecordedGraph", "captured_kernels"]


def _capture(gpu: Gpu, stream: DeviceStream, enqueue: Callable[[], object]) -> Any:
    """The graph of what a callable enqueues; nothing runs."""
    mode = gpu.context.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    gpu.context.call("cuStreamBeginCapture", stream.handle, mode)
    graph = None
    try:
        enqueue()
    finally:
        graph = gpu.context.call("cuStreamEndCapture", stream.handle)
    return graph


class RecordedGraph(Resource):
    """What a callable enqueues, recorded a number of times, to be launched with one call.

    The host's cost of each launch is paid once: short kernels follow each other as fast as the GPU
    can start them. What they use must stay alive.

    Parameters
    ----------
    gpu
        The stream's GPU.
    stream
        A stream of its own, not a default stream: those cannot be captured. The graph is launched
        in it.
    enqueue
        Enqueues work on the stream. It has run before, so that nothing is left to be loaded.
    repeats
        How many times it is recorded.

    Raises
    ------
    DriverError
        The callable does something that a graph cannot hold.
    """

    def __init__(
        self, gpu: Gpu, stream: DeviceStream, enqueue: Callable[[], object], repeats: int = 1
    ) -> None:
        def all_of_them() -> None:
            for _ in range(repeats):
                enqueue()

        self._context, self._stream = gpu.context, stream
        with gpu.context.current():
            graph = _capture(gpu, stream, all_of_them)
            try:
                self._graph = gpu.context.call("cuGraphInstantiate", graph, 0)
            finally:
                gpu.context.call("cuGraphDestroy", graph)
        self._free = weakref.finalize(self, free, gpu.context, "cuGraphExecDestroy", self._graph)

    def launch(self) -> None:
        """Launch all of it; the host does not wait."""
        self._context.run("cuGraphLaunch", self._graph, self._stream.handle)

    def close(self) -> None:
        self._free()


def captured_kernels(
    gpu: Gpu, stream: DeviceStream, enqueue: Callable[[], object]
) -> tuple[str, ...]:
    """Name the kernels that a callable would launch in a stream.

    Parameters
    ----------
    gpu
        The stream's GPU.
    stream
        A stream of its own, not a default stream: those cannot be captured.
    enqueue
        Enqueues work on the stream. Nothing runs.

    Returns
    -------
    tuple of str
        The (mangled) names, in the order of the graph's nodes.

    Raises
    ------
    DriverError
        The callable does something that a graph cannot hold.
    """
    with gpu.context.current():
        graph = _capture(gpu, stream, enqueue)
        try:
            return tuple(_kernel_names(gpu, graph))
        finally:
            gpu.context.call("cuGraphDestroy", graph)


def _kernel_names(gpu: Gpu, graph: Any) -> list[str]:
    driver = gpu.context.api
    _, count = gpu.context.call("cuGraphGetNodes", graph, 0)
    nodes, _ = gpu.context.call("cuGraphGetNodes", graph, count)
    names = []
    for node in nodes[:count]:
        kind = gpu.context.call("cuGraphNodeGetType", node)
        if kind != driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
            continue
        parameters = gpu.context.call("cuGraphKernelNodeGetParams", node)
        if int(parameters.func):
            name = gpu.context.call("cuFuncGetName", parameters.func)
        else:
            name = gpu.context.call("cuKernelGetName", parameters.kern)
        names.append(bytes(name).decode())
    return names
