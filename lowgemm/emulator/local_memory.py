"""Local memory: a stack of each thread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.findings import FindingKind, Problem

__all__ = ["LocalMemory"]


class LocalMemory:
    """The local memory of the threads of a batch.

    Parameters
    ----------
    threads
        How many threads.
    nbytes
        Bytes of each, rounded up to 16.
    """

    def __init__(self, threads: int, nbytes: int) -> None:
        self.nbytes = -(-nbytes // 16) * 16
        self._data = np.zeros((threads, self.nbytes), np.uint8)

    def _faults(
        self, address: NDArray[np.int64], width: int
    ) -> tuple[NDArray[np.bool_], list[Problem]]:
        outside = (address < 0) | (address + width > self.nbytes)
        misaligned = ~outside & (address % width != 0)
        problems = [
            Problem(
                kind,
                np.flatnonzero(wrong),
                address[wrong].view(np.uint64),
                f"{width} bytes, of a stack of {self.nbytes} bytes",
            )
            for kind, wrong in (
                (FindingKind.LOCAL_OUT_OF_BOUNDS, outside),
                (FindingKind.MISALIGNED, misaligned),
            )
            if wrong.any()
        ]
        return ~(outside | misaligned), problems

    def _elements(self, width: int) -> NDArray[np.generic]:
        dtype = {1: np.uint8, 2: np.uint16}.get(width, np.uint32)
        return self._data.view(dtype)

    def load(
        self, thread: NDArray[np.intp] | None, address: NDArray[np.int64], width: int
    ) -> tuple[NDArray[np.uint32], list[Problem]]:
        """Read an element per lane, as (words, n); a faulty lane reads 0.

        Parameters
        ----------
        thread
            Each lane's thread; None for all in their order.
        address
            Byte addresses.
        width
            Bytes: 1, 2, 4, 8 or 16.
        """
        good, problems = self._faults(address, width)
        rows = np.arange(len(address)) if thread is None else thread
        words = max(1, width // 4)
        values = np.zeros((words, len(address)), np.uint32)
        elements, size = self._elements(width), min(width, 4)
        lanes = slice(None) if not problems else np.flatnonzero(good)
        first = address[lanes] // size
        for word in range(words):
            values[word, lanes] = elements[rows[lanes], first + word]
        return values, problems

    def store(
        self,
        thread: NDArray[np.intp] | None,
        address: NDArray[np.int64],
        width: int,
        values: NDArray[np.uint32],
    ) -> list[Problem]:
        """Write an element per lane; a faulty lane stores nothing."""
        good, problems = self._faults(address, width)
        rows = np.arange(len(address)) if thread is None else thread
        elements, size = self._elements(width), min(width, 4)
        lanes = slice(None) if not problems else np.flatnonzero(good)
        first = address[lanes] // size
        for word in range(max(1, width // 4)):
            elements[rows[lanes], first + word] = values[word, lanes].astype(elements.dtype)
        return problems
