"""Constant banks: parameters and shape of the launch, `__constant__` data, large immediates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.errors import EmulationError

__all__ = ["Constants"]

_BANK_BYTES = 1 << 16


class Constants:
    """The banks of one launch.

    Parameters
    ----------
    banks
        The contents of each bank by its number; what lies behind it up to 64 KiB reads as zero.
    """

    def __init__(self, banks: dict[int, bytes]) -> None:
        self._banks: dict[int, NDArray[np.uint8]] = {}
        for number, content in banks.items():
            array = np.zeros(max(_BANK_BYTES, -(-len(content) // 16) * 16), np.uint8)
            array[: len(content)] = np.frombuffer(content, np.uint8)
            self._banks[number] = array
        self._words: dict[tuple[int, int, int], Any] = {}
        self._deferred: dict[int, tuple[int, Callable[[], bytes]]] = {}

    def content(self, bank: int) -> bytes:
        """The bytes of a bank."""
        return self._array(bank, 0).tobytes()

    def defer(self, bank: int, offset: int, make: Callable[[], bytes]) -> None:
        """Write 8 bytes into a bank only when they are read; one place a bank."""
        self._deferred[bank] = (offset, make)

    def _settle(self, bank: int, first: int, last: int) -> None:
        """Write what was deferred and lies in a range of bytes."""
        offset, make = self._deferred.get(bank, (last, None))
        if make is not None and first < offset + 8 and offset < last:
            del self._deferred[bank]
            self.put(bank, offset, make())

    def put(self, bank: int, offset: int, content: bytes) -> None:
        """Write bytes into a bank."""
        if bank not in self._banks:
            self._banks[bank] = np.zeros(_BANK_BYTES, np.uint8)
        self._banks[bank][offset : offset + len(content)] = np.frombuffer(content, np.uint8)
        self._words.clear()

    def _array(self, bank: int, last: int) -> NDArray[np.uint8]:
        array = self._banks.get(bank)
        if array is None or last > len(array):
            raise EmulationError(
                f"the kernel reads byte {last - 1} of constant bank {bank}, which is not there",
                "compile the file again, or report the kernel",
            )
        return array

    def word(self, bank: int, offset: int) -> NDArray[np.uint32]:
        """A word, as an array of shape (1, 1)."""
        return self._fixed(bank, offset, 4)  # type: ignore[no-any-return]

    def double_word(self, bank: int, offset: int) -> NDArray[np.uint64]:
        """Two words, as an array of shape (1, 1)."""
        return self._fixed(bank, offset, 8)  # type: ignore[no-any-return]

    def _fixed(self, bank: int, offset: int, width: int) -> Any:
        key = (bank, offset, width)
        found = self._words.get(key)
        if found is None:
            self._settle(bank, offset, offset + width)
            content = self._array(bank, offset + width)[offset : offset + width]
            dtype = np.uint32 if width == 4 else np.uint64
            found = np.frombuffer(content.tobytes(), dtype).reshape(1, 1)
            self._words[key] = found
        return found

    def gather(self, bank: int, at: NDArray[np.int64], width: int) -> NDArray[np.uint32]:
        """Elements at byte offsets, as (words, n); narrow ones are extended with zeros.

        Raises
        ------
        EmulationError
            An offset lies outside of the bank.
        """
        last = int(at.max(initial=0)) + width
        if bank in self._deferred:
            self._settle(bank, int(at.min(initial=last)), last)
        array = self._array(bank, last)
        if width < 4:
            narrow = array[at].astype(np.uint32)
            if width == 2:
                narrow |= array[at + 1].astype(np.uint32) << np.uint32(8)
            return narrow[None]
        words = array.view(np.uint32)
        first = at >> 2
        return words[np.arange(width // 4)[:, None] + first]
