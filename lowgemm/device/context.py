"""A GPU's primary context: the one that torch and CuPy use too, so that their memory is valid."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any

from lowgemm.device.driver import call
from lowgemm.device.faults import LaunchLog
from lowgemm.errors import DriverError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "LEGACY_STREAM",
    "PER_THREAD_STREAM",
    "WRONG_CONTEXT",
    "Context",
    "free",
    "is_special_stream",
    "same_stream",
]

LEGACY_STREAM = 1
PER_THREAD_STREAM = 2

_EVENT_DISABLE_TIMING = 2

# What a call answers when another library's context, or none, is current in this thread. The call
# has then done nothing.
WRONG_CONTEXT = frozenset({"CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_HANDLE"})


def is_special_stream(handle: int) -> bool:
    """Whether a handle names a default stream of whatever context is current."""
    return handle in (0, LEGACY_STREAM, PER_THREAD_STREAM)


def same_stream(a: int, b: int) -> bool:
    """Whether two handles name the same stream; 0 and 1 are both the legacy default stream."""
    return (a or LEGACY_STREAM) == (b or LEGACY_STREAM)


class Context:
    """The retained primary context of one GPU, and its driver functions.

    Whatever must be freed holds the context, so that it is released last.
    """

    def __init__(self, api: Any, ordinal: int) -> None:
        self.api = api
        self.ordinal = ordinal
        self.launches = LaunchLog()
        self.device = call(api, "cuDeviceGet", ordinal)
        self.handle = call(api, "cuDevicePrimaryCtxRetain", self.device)
        self.address = int(self.handle)
        self._release = weakref.finalize(self, _release, api, self.device)

    @property
    def alive(self) -> bool:
        """Whether the context is still retained."""
        return self._release.alive

    def release(self) -> None:
        """Release the context. Doing so twice does nothing."""
        self._release()

    def call(self, name: str, *args: Any) -> Any:
        """Call a driver function as it is, whatever context is current."""
        return call(self.api, name, *args, launches=self.launches)

    def run(self, name: str, *args: Any) -> Any:
        """Call a driver function with this context current."""
        with self.current():
            return self.call(name, *args)

    def attempt(self, name: str, *args: Any) -> Any:
        """Call a driver function that fails, without effect, under another context; then retry.

        For functions whose handles belong to this context. It spares them asking the driver which
        context is current.
        """
        if not self.alive:
            raise _closed(self.ordinal)
        try:
            return self.call(name, *args)
        except DriverError as error:
            if error.code not in WRONG_CONTEXT:
                raise
        return self.run(name, *args)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make this context current in this thread.

        Where another context is current, it is so again afterwards; where none is, this one stays
        (as the CUDA runtime does it).
        """
        if not self.alive:
            raise _closed(self.ordinal)
        now = int(self.call("cuCtxGetCurrent"))
        if now == self.address:
            yield
        elif now == 0:
            self.call("cuCtxSetCurrent", self.handle)
            yield
        else:
            self.call("cuCtxPushCurrent", self.handle)
            try:
                yield
            finally:
                self.api.cuCtxPopCurrent()

    def synchronize(self) -> None:
        """Wait for all work in the context.

        Raises
        ------
        KernelFaultError
            A kernel faulted.
        """
        count = len(self.launches)
        self.run("cuCtxSynchronize")
        self.launches.confirm(count)

    def synchronize_stream(self, handle: int) -> None:
        """Wait for the work in one stream."""
        count = len(self.launches)
        # A special handle names the current context's stream; another is good in any.
        (self.run if is_special_stream(handle) else self.attempt)("cuStreamSynchronize", handle)
        self.launches.confirm(count, handle)

    def settle(self, consumer: int | None) -> None:
        """Wait for launches that a consumer's stream would not wait for by itself."""
        launches = self.launches
        foreign = any(consumer is None or not same_stream(s, consumer) for s in launches.streams)
        if foreign or launches.full:
            self.synchronize()

    def order(self, after: int, then: int) -> None:
        """Let later work in the stream ``then`` wait for the work so far in ``after``."""
        if same_stream(after, then):
            return
        with self.current():
            event = self.call("cuEventCreate", _EVENT_DISABLE_TIMING)
            try:
                self.call("cuEventRecord", event, after)
                self.call("cuStreamWaitEvent", then, event, 0)
            finally:
                # The driver frees it when the stream has passed it.
                self.api.cuEventDestroy(event)


def _closed(ordinal: int) -> DriverError:
    return DriverError(
        f"the Gpu object of GPU {ordinal} has been closed",
        "make a new Gpu, and new arrays and modules with it",
        code="CLOSED",
    )


def _release(api: Any, device: Any) -> None:
    # At exit or after a fault the driver may refuse; there is nothing left to do then.
    with contextlib.suppress(Exception):
        api.cuDevicePrimaryCtxRelease(device)


def free(context: Context, name: str, handle: Any) -> None:
    """Free a resource with the driver function ``name``; errors of a lost context are ignored."""
    if context.alive:
        with contextlib.suppress(Exception), context.current():
            getattr(context.api, name)(handle)
