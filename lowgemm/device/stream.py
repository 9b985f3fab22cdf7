"""Streams and events of a GPU, its own and other libraries'."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from lowgemm.device.context import free, is_special_stream
from lowgemm.errors import DriverError, StreamDeviceError
from lowgemm.runtime.interchange import foreign_stream_handle
from lowgemm.runtime.interface import Event, Stream
from lowgemm.runtime.shapes import shown

if TYPE_CHECKING:
    from lowgemm.device.context import Context

__all__ = ["DeviceEvent", "DeviceStream", "stream_handle"]

_STREAM_NON_BLOCKING = 1
_EVENT_DEFAULT = 0  # with timing


def stream_handle(context: Context, stream: object) -> int:
    """The handle of a stream that belongs to this context; None is the default stream, 0.

    The handle of a stream that has been destroyed, or a number that never was one, cannot be told
    from a good one: the driver's answer to it is not defined.

    Raises
    ------
    StreamDeviceError
        The object is no stream, or belongs to another GPU or context.
    """
    if stream is None:
        return 0
    if isinstance(stream, DeviceStream) and stream.context.address == context.address:
        return stream.handle
    handle = foreign_stream_handle(stream)
    if not is_special_stream(handle):
        _check_owner(context, handle)
    return handle


def _check_owner(context: Context, handle: int) -> None:
    owner = context.attempt("cuStreamGetCtx", handle)
    if int(owner) == context.address:
        return
    context.call("cuCtxPushCurrent", owner)
    try:
        ordinal = int(context.call("cuCtxGetDevice"))
    finally:
        context.api.cuCtxPopCurrent()
    place = f"GPU {ordinal}" if ordinal != context.ordinal else "another context of the same GPU"
    raise StreamDeviceError(
        f"the stream 0x{handle:x} belongs to {place}; the launch is for GPU {context.ordinal}'s "
        "primary context",
        "use a stream of the GPU on which the kernel was loaded",
    )


def _own_event(event: object) -> DeviceEvent:
    if not isinstance(event, DeviceEvent):
        raise StreamDeviceError(
            f"{shown(event)} is no event of a GPU", "use gpu.event() or stream.record()"
        )
    return event


class DeviceStream(Stream):
    """A stream of a GPU: one of its own, or another library's, which is never destroyed here.

    Its own streams do not wait for the legacy default stream.
    """

    def __init__(self, context: Context, foreign: object = None, *, handle: int | None = None):
        self.context = context
        self._foreign = foreign
        self._free: weakref.finalize[..., DeviceStream] | None = None
        if handle is not None:
            self._handle: int | None = handle
        elif foreign is not None:
            self._handle = stream_handle(context, foreign)
        else:
            own = context.run("cuStreamCreate", _STREAM_NON_BLOCKING)
            self._handle = int(own)
            self._free = weakref.finalize(self, free, context, "cuStreamDestroy", own)

    @property
    def handle(self) -> int:
        """The driver's handle: 0 is the legacy default stream."""
        if self._handle is None:
            raise DriverError("the stream has been closed", "make a new one", code="CLOSED")
        return self._handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"0x{self._handle:x}"
        return f"<DeviceStream {state} of GPU {self.context.ordinal}>"

    def record(self, event: Event | None = None) -> Event:
        recorded = DeviceEvent(self.context) if event is None else _own_event(event)
        recorded.record(self)
        return recorded

    def wait(self, event: Event) -> None:
        event = _own_event(event)
        run = self.context.run if is_special_stream(self.handle) else self.context.attempt
        run("cuStreamWaitEvent", self.handle, event.handle, 0)

    def synchronize(self) -> None:
        self.context.synchronize_stream(self.handle)

    def close(self) -> None:
        self._handle = None
        if self._free is not None:
            self._free()


class DeviceEvent(Event):
    """An event of a GPU, with timing."""

    def __init__(self, context: Context):
        self.context = context
        self._event = context.run("cuEventCreate", _EVENT_DEFAULT)
        self._free = weakref.finalize(self, free, context, "cuEventDestroy", self._event)

    @property
    def handle(self) -> int:
        """The driver's handle."""
        if not self._free.alive:
            raise DriverError("the event has been closed", "make a new one", code="CLOSED")
        return int(self._event)

    def __repr__(self) -> str:
        return f"<DeviceEvent of GPU {self.context.ordinal}>"

    def record(self, stream: object = None) -> None:
        # Under another context the event's handle is refused, also for the default stream.
        self.context.attempt("cuEventRecord", self.handle, stream_handle(self.context, stream))

    def elapsed_us(self, since: Event) -> float:
        since = _own_event(since)
        self.synchronize()
        milliseconds = self.context.attempt("cuEventElapsedTime", since.handle, self.handle)
        return float(milliseconds) * 1e3

    def synchronize(self) -> None:
        self.context.attempt("cuEventSynchronize", self.handle)

    def close(self) -> None:
        self._free()
