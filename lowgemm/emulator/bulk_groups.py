"""Groups of bulk copies out of shared memory: committed, and waited for, by warps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lowgemm.emulator.batch import Batch
    from lowgemm.emulator.front import Front, Mask

__all__ = ["BulkGroups"]


@dataclass(slots=True)
class _Groups:
    """The last copy's clock of the group that is open, and of those that are committed."""

    open: int = 0
    committed: list[int] = field(default_factory=list)


class BulkGroups:
    """The groups of a batch's warps: who waits for one may write where its copies have read.

    On a GPU they are each thread's; lanes of one warp never race, so a warp's are enough here.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._known: dict[int, _Groups] = {}

    def add(self, warp: int, tick: int) -> None:
        """A warp of the batch has issued a copy, whose clock this is."""
        self._known.setdefault(warp, _Groups()).open = tick

    def commit(self, f: Front, m: Mask) -> None:
        """UTMACMDFLUSH: the copies so far are a group, which may be empty."""
        for warp in f.warp_indices()[f.members(m).any(axis=1)]:
            groups = self._known.setdefault(int(warp), _Groups())
            groups.committed.append(groups.open)
            groups.open = 0

    def wait(self, f: Front, m: Mask, left: int) -> None:
        """DEPBAR.LE: all groups but the last ``left`` have read what they copy."""
        if not self._known:
            return
        clocks = self._batch.shared.clocks
        for warp in f.warp_indices()[f.members(m).any(axis=1)]:
            groups = self._known.get(int(warp), _Groups())
            done = max(0, len(groups.committed) - left)
            row = np.zeros((1, clocks.actors), np.int32)
            row[0, clocks.proxy] = max(groups.committed[:done], default=0)
            del groups.committed[:done]
            domain = self._batch.lane_domain[warp, :1]
            clocks.acquire(domain, self._batch.actor_of_warp[warp : warp + 1], row)
