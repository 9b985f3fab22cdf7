"""A trial: one variant ready to be launched, what it writes, and whether that is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.gemm import GuardedOutput, Reference
from lowgemm.runtime import Array

__all__ = ["Trial", "gemm_trial"]

_NOT_WRITTEN = 0xFF


@dataclass(frozen=True, slots=True)
class Trial:
    """A variant on its operands.

    Attributes
    ----------
    launch
        Launches it; may be repeated.
    clear
        Marks what it writes as not written.
    read
        What it has written, as it must be on every device (addresses count from their array).
    judge
        Whether that is right.
    keeps
        What must live as long as the trial: the launch's stream, and memory that the kernel knows
        by addresses alone.
    """

    launch: Callable[[], object]
    clear: Callable[[], object]
    read: Callable[[], NDArray[Any]]
    judge: Callable[[NDArray[Any]], bool]
    keeps: tuple[object, ...]

    @classmethod
    def of(
        cls,
        launch: Callable[[], object],
        output: Array,
        wanted: object,
        *,
        stream: object,
        within: Array | None = None,
    ) -> Trial:
        """A trial whose output must equal an array, or each element a number.

        Parameters
        ----------
        launch
            The launch.
        output
            What it writes, all of it.
        wanted
            What it must write.
        stream
            The launch's stream.
        within
            The array that pointers in the output point into: they are read as bytes from its start.
        """
        origin = within.pointer if within else 0

        def read() -> NDArray[Any]:
            found = output.download(stream=stream)
            return found - found.dtype.type(origin) if origin else found

        return cls(
            launch,
            lambda: output.fill_bytes(_NOT_WRITTEN, stream=stream),
            read,
            lambda found: bool(np.all(found == wanted)),
            (stream, within),
        )

    def run(self) -> NDArray[Any]:
        """Clear, launch, and give what was written."""
        self.clear()
        self.launch()
        return self.read()

    def is_right(self) -> bool:
        """Run it and judge what it wrote."""
        return self.judge(self.run())


def gemm_trial(
    launch: Callable[[], object], output: GuardedOutput, reference: Reference, *, stream: object
) -> Trial:
    """A trial that writes C between guards."""
    return Trial(
        launch,
        output.poison,
        output.c.download,
        lambda _: output.judge(reference).passed,
        (stream,),
    )
