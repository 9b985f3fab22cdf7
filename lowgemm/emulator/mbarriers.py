"""The mbarriers of a batch: arrivals, bytes that are awaited, phases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.access import rank_and_offset
from lowgemm.errors import EmulationError

if TYPE_CHECKING:
    from lowgemm.emulator.batch import Batch
    from lowgemm.emulator.front import Front, Mask

__all__ = ["Mbarriers"]

_COUNT_MASK = (1 << 20) - 1


@dataclass(slots=True)
class _Mbarrier:
    """One mbarrier: arrivals of a phase and still missing, bytes awaited, the phase's number.

    ``arriving`` is what those who arrived in this phase are ordered behind, ``ended`` those of the
    phases that ended.
    """

    expected: int
    pending: int
    arriving: NDArray[np.int32]
    ended: NDArray[np.int32]
    awaited_bytes: int = 0
    phase: int = 0

    def state(self) -> int:
        """The 64 bits that an arrival gives: the phase's parity is bit 63.

        Bits 43-62 hold 2^20 less the arrivals that are missing, bits 1-20 the same of a phase's.
        """
        missing, next_phase = (-each & _COUNT_MASK for each in (self.pending, self.expected))
        return (self.phase & 1) << 63 | missing << 43 | next_phase << 1

    def settle(self) -> None:
        """End the phase when nothing is missing."""
        if self.pending == 0 and self.awaited_bytes == 0:
            self.phase += 1
            self.pending = self.expected
            np.maximum(self.ended, self.arriving, out=self.ended)


class Mbarriers:
    """The mbarriers in the shared memory of a batch's blocks, by domain, rank and offset."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._known: dict[tuple[int, int, int], _Mbarrier] = {}

    def _key(self, domain: int, address: int) -> tuple[int, int, int]:
        rank, offset = rank_and_offset(np.array([address]), self._batch.launch.shared_base)
        return domain, int(rank[0]), int(offset[0])

    def _at(self, domain: int, address: int) -> _Mbarrier:
        key = self._key(domain, address)
        if key not in self._known:
            raise EmulationError(
                f"kernel {self._batch.launch.name} uses an mbarrier at byte {key[2]} of shared "
                "memory that nothing has initialised",
                "initialise it and let a barrier follow, before it is used",
                kernel=self._batch.launch.name,
            )
        return self._known[key]

    def initialise(self, f: Front, row: int, address: int, count: int) -> None:
        """mbarrier.init by a warp of a front."""
        batch = self._batch
        warp = int(f.warp_indices()[row])
        actors = batch.shared.clocks.vc.shape[1]
        none = np.zeros(actors, np.int32)
        key = self._key(int(batch.lane_domain[warp, 0]), address)
        self._known[key] = _Mbarrier(count, count, none, none.copy())

    def arrive(
        self,
        f: Front,
        lanes: NDArray[np.intp],
        addresses: NDArray[np.int64],
        counts: NDArray[np.int64],
        awaited: NDArray[np.int64],
        *,
        leaves: bool,
    ) -> NDArray[np.uint64]:
        """Arrivals of lanes of a front, and bytes that their barriers are to wait for.

        Who ``leaves`` is not expected in the phases to come. Returns the states before.
        """
        batch = self._batch
        where = f.positions(lanes)
        where = lanes if where is None else where
        domains = batch.lane_domain.reshape(-1)[where]
        actors = batch.lane_actor.reshape(-1)[where]
        rows = batch.shared.clocks.release(domains, actors)
        states = np.empty(len(lanes), np.uint64)
        for index in range(len(lanes)):
            barrier = self._at(int(domains[index]), int(addresses[index]))
            np.maximum(barrier.arriving, rows[index], out=barrier.arriving)
            states[index] = barrier.state()
            barrier.pending -= int(counts[index])
            barrier.expected -= int(counts[index]) if leaves else 0
            barrier.awaited_bytes += int(awaited[index])
            barrier.settle()
        return states

    def complete_bytes(self, domain: int, address: int, nbytes: int, tick: int) -> None:
        """Bytes of a bulk copy have come; ``tick`` is the copy's clock."""
        barrier = self._at(domain, address)
        barrier.arriving[-1] = max(barrier.arriving[-1], tick)
        barrier.awaited_bytes -= nbytes
        barrier.settle()

    def ended(
        self, f: Front, mask: Mask, addresses: NDArray[Any], parity: NDArray[np.uint32]
    ) -> NDArray[np.bool_]:
        """Whether the phase of a parity has ended, for each lane; who sees it is behind it."""
        batch = self._batch
        active = f.members(mask)
        answer = np.zeros((f.count, 32), bool)
        warps = f.warp_indices()
        for row in np.flatnonzero(active.any(axis=1)):
            warp = int(warps[row])
            domain = int(batch.lane_domain[warp, 0])
            lanes = np.flatnonzero(active[row])
            for address in np.unique(addresses[row, lanes]):
                barrier = self._at(domain, int(address))
                here = lanes[addresses[row, lanes] == address]
                done = (barrier.phase & 1) != parity[row, here]
                answer[row, here] = done
                if done.any():
                    actor = batch.actor_of_warp[warp : warp + 1]
                    batch.shared.clocks.acquire(np.array([domain]), actor, barrier.ended[None, :])
        return answer
