"""Which kernels does a call launch? Record it into a graph instead of running it, and look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowgemm.device.gpu import Gpu
from lowgemm.device.stream import DeviceStream

__all__ = ["captured_kernels"]


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
    driver = gpu.context.api
    with gpu.context.current():
        gpu.context.call(
            "cuStreamBeginCapture",
            stream.handle,
            driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        )
        try:
            enqueue()
        finally:
            graph = gpu.context.call("cuStreamEndCapture", stream.handle)
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
