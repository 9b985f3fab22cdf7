"""The barriers of blocks and of clusters: who has arrived, and who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.findings import FindingKind
from lowgemm.emulator.states import AT_BARRIER, EXITED, IN_CLUSTER, RUNNING
from lowgemm.hardware.shared_memory import WARP_LANES

if TYPE_CHECKING:
    from lowgemm.emulator.batch import Batch
    from lowgemm.emulator.front import Front, Mask

__all__ = ["BlockBarriers", "ClusterBarriers"]

U32 = np.uint32
_BARRIERS = 16


class BlockBarriers:
    """The sixteen barriers of each block of a batch (BAR).

    Parameters
    ----------
    batch
        The batch.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        lanes = (batch.warps, WARP_LANES)
        self._number = np.zeros(lanes, np.int16)
        self._expected = np.zeros(lanes, np.int32)
        self._told = np.zeros(lanes, bool)
        self._reduction = 0
        self._results = np.zeros((batch.warps, 1), U32)
        self._arrivals = np.zeros((batch.blocks, _BARRIERS), np.int32)
        self._arrival_rows: dict[tuple[int, int], NDArray[np.int32]] = {}

    def come(
        self,
        f: Front,
        mask: Mask,
        which: Any,
        threads: Any,
        after: int,
        only_arrives: bool,
        reduction: tuple[int, Any] | None,
    ) -> int | None:
        """BAR: arrive, and wait unless ``only_arrives``."""
        self._check_whole_warps(f, mask)
        if only_arrives:
            self._arrive(f, mask, f.full(which), f.full(threads))
            return after
        if reduction is None and self._all_at_once(f, mask, which, threads):
            return after
        put = self._batch.put_lanes
        put(self._number, f, mask, f.full(which))
        put(self._expected, f, mask, f.full(threads))
        if reduction is not None:
            self._reduction, value = reduction
            put(self._told, f, mask, f.full(value))
        self._batch.wait(f, mask, after, AT_BARRIER)
        return None

    def _check_whole_warps(self, f: Front, mask: Mask) -> None:
        """A barrier is for whole warps: all threads of one must come to it together."""
        batch = self._batch
        if mask is None:
            return
        here = np.broadcast_to(mask, (f.count, WARP_LANES))
        missing = f.rows(batch.is_thread) & ~here
        at = np.flatnonzero(missing.any(axis=1) & here.any(axis=1))
        if len(at):
            warps = f.warp_indices()[at]
            lane = np.argmax(here[at], axis=1)
            batch.launch.report_lanes(
                batch,
                FindingKind.DIVERGENT_BARRIER,
                warps * WARP_LANES + lane,
                f"{np.count_nonzero(missing[at[0]])} threads of the warp are not there",
                at=f.pc,
            )

    def _all_at_once(self, f: Front, mask: Mask, which: Any, threads: Any) -> bool:
        """Whether all threads of all blocks come to one barrier together, as they mostly do."""
        batch = self._batch
        if f.warps is not None or which.size > 1 or self._arrival_rows:
            return False
        if mask is not None and np.count_nonzero(mask) != np.count_nonzero(batch.is_thread):
            return False
        if threads.size > 1 or threads[0, 0] not in (0, batch.block_warps * WARP_LANES):
            return False
        self._order(np.ones((batch.blocks, batch.block_warps), bool))
        return True

    def _order(self, members: NDArray[np.bool_]) -> None:
        """Tell the shared memory that warps of blocks have met: (blocks, warps of a block)."""
        batch = self._batch
        if not batch.has_shared:
            return
        blocks = np.flatnonzero(members.any(axis=1))
        actors = np.zeros((len(blocks), batch.ranks * batch.block_warps + 1), bool)
        rank = blocks % batch.ranks
        for index in range(batch.block_warps):
            actors[np.arange(len(blocks)), rank * batch.block_warps + index] = members[
                blocks, index
            ]
        batch.shared.clocks.barrier(blocks // batch.ranks, actors)

    def _arrive(self, f: Front, mask: Mask, which: Any, threads: Any) -> None:
        batch = self._batch
        here = f.members(mask)
        for row in np.flatnonzero(here.any(axis=1)):
            warp = int(f.warp_indices()[row])
            lane = int(np.argmax(here[row]))
            block, number = int(batch.block_of_warp[warp]), int(which[row, lane])
            self._arrivals[block, number] += WARP_LANES
            key = (block, number)
            clocks = batch.shared.clocks
            one = clocks.release(
                np.array([block // batch.ranks]), batch.actor_of_warp[warp : warp + 1]
            )[0]
            known = self._arrival_rows.get(key)
            self._arrival_rows[key] = one if known is None else np.maximum(known, one)
        batch.settle()
        f.limit = 0

    def settle(self) -> None:
        """Let go those at barriers that are complete."""
        batch = self._batch
        by_block = (batch.blocks, batch.block_warps, WARP_LANES)
        waiting = (batch.status == AT_BARRIER).reshape(by_block)
        slots = self._number.reshape(by_block)
        expected = self._expected.reshape(by_block)
        exited = (batch.status == EXITED).reshape(by_block)
        threads = batch.is_thread.reshape(by_block)
        alive = (~exited).any(axis=2).sum(axis=1) * WARP_LANES
        for number in np.unique(slots[waiting]):
            here = waiting & (slots == number)
            warps = here.any(axis=2)
            arrived = warps.sum(axis=1) * WARP_LANES + self._arrivals[:, number]
            asked = np.where(here, expected, 0).max(axis=(1, 2))
            complete = warps.any(axis=1) & np.where(
                asked > 0, arrived >= asked, (arrived >= alive) & ~((~exited & ~here).any((1, 2)))
            )
            for_all = complete & (asked == 0)
            early = (exited & threads & for_all[:, None, None]).any(axis=(1, 2))
            if early.any():
                self._report_early(here & early[:, None, None])
            if complete.any():
                self._release(number, here & complete[:, None, None], complete)

    def _release(self, number: int, here: NDArray[np.bool_], complete: NDArray[np.bool_]) -> None:
        batch = self._batch
        told = self._told.reshape(here.shape) & here
        yes, all_of = told.sum(axis=(1, 2)), here.sum(axis=(1, 2))
        result = (
            yes,
            np.where(yes == all_of, U32(0xFFFFFFFF), 0),
            np.where(yes > 0, U32(0xFFFFFFFF), 0),
        )[min(self._reduction, 2)]
        results = self._results.reshape(batch.blocks, batch.block_warps)
        results[...] = np.where(complete[:, None], result[:, None].astype(U32), results)
        self._order(np.asarray(here.any(axis=2)))
        for block in np.flatnonzero(complete):
            self._arrivals[block, number] = 0
            rows = self._arrival_rows.pop((int(block), int(number)), None)
            if rows is not None:
                actors = (
                    np.flatnonzero(here[block].any(axis=1))
                    + (block % batch.ranks) * batch.block_warps
                )
                batch.shared.clocks.acquire(
                    np.full(len(actors), block // batch.ranks),
                    actors,
                    np.tile(rows, (len(actors), 1)),
                )
        batch.status.reshape(here.shape)[here] = RUNNING

    def result(self, f: Front) -> NDArray[np.uint32]:
        """What the last reducing barrier gave each warp."""
        return f.rows(self._results)

    def _report_early(self, here: NDArray[np.bool_]) -> None:
        """Threads have left without a barrier that all of the block should reach."""
        batch = self._batch
        lanes = np.flatnonzero(here.reshape(-1))
        batch.launch.report_lanes(
            batch,
            FindingKind.BARRIER_NOT_REACHED,
            lanes[:1],
            "threads of the block had ended before",
            at=batch.pc.reshape(-1)[lanes[0]] - 16,
        )


class ClusterBarriers:
    """The barrier of each cluster of a batch.

    Parameters
    ----------
    batch
        The batch.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._arrivals = np.zeros((batch.warps, WARP_LANES), np.int32)
        self._rows: dict[tuple[int, int], NDArray[np.int32]] = {}

    def arrive(self, f: Front, mask: Mask) -> None:
        """UCGABAR_ARV: arrive at the barrier of the cluster."""
        batch = self._batch
        arrivals = f.rows(self._arrivals) + 1
        batch.put_lanes(self._arrivals, f, mask, arrivals)
        here = f.members(mask)
        rows = np.flatnonzero(here.any(axis=1))
        warps = f.warp_indices()[rows]
        domains = batch.lane_domain[warps, 0]
        clocks = batch.shared.clocks.release(domains, batch.actor_of_warp[warps])
        generations = arrivals[rows, np.argmax(here[rows], axis=1)]
        for domain, generation, row in zip(domains, generations, clocks, strict=True):
            key = (int(domain), int(generation))
            known = self._rows.get(key)
            self._rows[key] = row.copy() if known is None else np.maximum(known, row)
        batch.settle()
        f.limit = 0

    def wait(self, f: Front, mask: Mask, after: int) -> int | None:
        """UCGABAR_WAIT: wait until all threads of the cluster have arrived."""
        self._batch.wait(f, mask, after, IN_CLUSTER)
        return None

    def settle(self) -> None:
        """Let go those whose cluster has arrived."""
        batch = self._batch
        by_domain = (batch.domains, -1)
        waiting = (batch.status == IN_CLUSTER).reshape(by_domain)
        alive = (batch.status != EXITED).reshape(by_domain)
        arrivals = self._arrivals.reshape(by_domain)
        fewest = np.where(alive, arrivals, np.iinfo(np.int32).max).min(axis=1, keepdims=True)
        passes = (waiting & (arrivals <= fewest)).reshape(batch.status.shape)
        warps = np.flatnonzero(passes.any(axis=1))
        if not len(warps):
            return
        domains = batch.lane_domain[warps, 0]
        generations = self._arrivals[warps, np.argmax(passes[warps], axis=1)]
        rows = np.array(
            [self._rows[int(d), int(g)] for d, g in zip(domains, generations, strict=True)]
        )
        batch.shared.clocks.acquire(domains, batch.actor_of_warp[warps], rows)
        batch.status[passes] = RUNNING
