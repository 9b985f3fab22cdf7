"""Processes that work at the same time and outlive neither their task nor their parent."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread

__all__ = ["worker_processes"]


@contextmanager
def worker_processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes for the time of a block; an exception in it, such as ``^C``, ends them at once.

    Each starts Python anew and imports the caller's main module. They end as well when the parent
    is gone, whatever ended it.

    Parameters
    ----------
    count
        How many.
    """
    context = get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    with (
        theirs,
        ours,
        ProcessPoolExecutor(
            count, mp_context=context, initializer=_end_with, initargs=(theirs,)
        ) as pool,
    ):
        try:
            yield pool
        except BaseException:
            ours.close()
            raise


def _end_with(pipe: Connection) -> None:
    """Leave ``^C`` to the parent, and end where the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_wait, args=(pipe,), daemon=True).start()


def _wait(pipe: Connection) -> None:
    pipe.poll(None)  # nobody writes: it returns when the pipe is closed
    os._exit(1)
