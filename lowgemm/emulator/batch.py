"""A batch of blocks that run side by side: their state, and who goes on when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.access import LOCAL_WINDOW, SHARED_WINDOW, Site, rank_and_offset, spaces
from lowgemm.emulator.findings import FindingKind, Problem
from lowgemm.emulator.front import Front, Mask, bits_to_lanes, lane_bits
from lowgemm.emulator.local_memory import LocalMemory
from lowgemm.emulator.mbarriers import Mbarriers
from lowgemm.emulator.shared_memory import SharedMemory

if TYPE_CHECKING:
    from lowgemm.emulator.launch import Launch

__all__ = ["Batch"]

U32 = np.uint32
U64 = np.uint64
_LANES = 32
_FAR = np.int64(1) << 62

RUNNING, SYNCHRONISING, AT_BARRIER, AT_WARPSYNC, IN_CLUSTER, EXITED = range(6)
#: Instructions that a front may execute while others of the batch could, before it gives way.
_TURN = 250
#: YIELDs after which others of the warp no longer wait for a lane at a convergence point.
_PATIENCE = 16
#: A bulk copy reads global memory in pieces of 16 bytes, of which its size is a multiple.
_COPY_PIECE = 16


class Batch:
    """Some blocks of a launch, all threads of them lanes of one set of arrays.

    Parameters
    ----------
    launch
        What is run.
    first
        The first cluster (or block, without clusters) of the batch, by its linear number.
    domains
        How many clusters (or blocks).
    """

    def __init__(self, launch: Launch, first: int, domains: int) -> None:
        self.launch = launch
        self.constants = launch.constants
        self.memory = launch.memory
        shape = launch.shape
        self.ranks = launch.cluster_blocks
        self.domains = domains
        self.blocks = domains * self.ranks
        self.block_warps = -(-shape.threads_per_block // _LANES)
        self.warps = self.blocks * self.block_warps
        self.all_warps = np.arange(self.warps)
        self.lane_numbers = np.arange(self.warps * _LANES).reshape(self.warps, _LANES)
        self._place(first)
        lanes = (self.warps, _LANES)
        self.registers = np.zeros((launch.registers + 8, *lanes), U32)
        self.uniform_registers = np.zeros((256, self.warps, 1), U32)
        self.predicates = np.zeros((8, *lanes), bool)
        self.predicates[7] = True
        self.uniform_predicates = np.zeros((8, self.warps, 1), bool)
        self.uniform_predicates[7] = True
        self.status = np.where(self.is_thread, RUNNING, EXITED).astype(np.uint8)
        self.pc = np.zeros(lanes, np.int64)
        self.age = np.zeros(lanes, np.int32)
        self.slot = np.zeros(lanes, np.int16)
        self.expected = np.zeros(lanes, np.int32)
        self.wanted = np.zeros(lanes, U32)
        self.told = np.zeros(lanes, bool)
        self.reduction = 0
        self.convergence = np.zeros((16, *lanes), bool)
        self.barrier_results = np.zeros((self.warps, 1), U32)
        self.arrivals = np.zeros((self.blocks, 16), np.int32)
        self.arrival_rows: dict[tuple[int, int], NDArray[np.int32]] = {}
        self.copies_committed = np.zeros(lanes, np.int64)
        self.cluster_arrivals = np.zeros(lanes, np.int32)
        self.cluster_rows: dict[tuple[int, int], NDArray[np.int32]] = {}
        self.mbarriers = Mbarriers(self)
        self.yields = np.zeros(lanes, np.int16)
        self.local = LocalMemory(self.warps * _LANES, launch.local_bytes)
        self._shared: SharedMemory | None = None
        self.executed: int = 0

    def _place(self, first: int) -> None:
        """Which block, warp and thread each lane is."""
        shape, launch = self.launch.shape, self.launch
        warp = np.arange(self.warps)
        self.block_of_warp = warp // self.block_warps
        self.warp_in_block = warp % self.block_warps
        domain, rank = self.block_of_warp // self.ranks, self.block_of_warp % self.ranks
        self.coordinates = launch.block_coordinates(first + domain, rank)
        thread = self.warp_in_block[:, None] * _LANES + np.arange(_LANES)
        x, y, _ = shape.block
        self.is_thread = thread < shape.threads_per_block
        self.thread_in_block = thread
        self.tid = (thread % x, thread // x % y, thread // (x * y))
        self.rank_of_warp = rank
        self.actor_of_warp = rank * self.block_warps + self.warp_in_block
        broadcast = (self.warps, _LANES)
        self.lane_domain = np.ascontiguousarray(np.broadcast_to(domain[:, None], broadcast))
        self.lane_actor = np.ascontiguousarray(
            np.broadcast_to(self.actor_of_warp[:, None], broadcast)
        )
        self.lane_thread = rank[:, None] * self.block_warps * _LANES + thread

    @property
    def shared(self) -> SharedMemory:
        """The shared memory of the blocks, made at its first use."""
        if self._shared is None:
            launch = self.launch
            self._shared = SharedMemory(
                self.domains,
                self.ranks,
                launch.shared_bytes,
                self.ranks * self.block_warps + 1,
                granularity=launch.shared_granularity,
            )
        return self._shared

    # ---- who goes on

    def run(self, instructions: int) -> bool:
        """Run until all threads have left, or for about so many instructions.

        Returns
        -------
        bool
            Whether all threads have left.
        """
        end = self.executed + instructions
        while self.executed < end:
            front = self._next_front()
            if front is None:
                return True
            self.launch.execute(front)
        return False

    def _next_front(self) -> Front | None:
        """The warps at the lowest address of those whose turn it is; None when all have left."""
        while True:
            running = self.status == RUNNING
            if running.any():
                return self._front_of(running)
            if (self.status == EXITED).all():
                return None
            if not self.settle():
                self._report_deadlock()
                return None

    def _front_of(self, running: NDArray[np.bool_]) -> Front:
        if self.age.any():
            turn = self.age[running].min()
            self.age -= turn
            mine = running & (self.age == 0)
        else:
            mine = running
        pc = int(self.pc[mine].min())
        chosen = running & (self.pc == pc)
        rest = running & ~chosen
        warps = np.flatnonzero(chosen.any(axis=1))
        everyone = len(warps) == self.warps
        active = chosen if everyone else chosen[warps]
        front = Front(self, pc, None if everyone else warps, None if active.all() else active)
        ahead = self.pc[rest & (self.pc > pc)]
        front.limit = int(ahead.min()) if len(ahead) else int(_FAR)
        front.crowded = bool(rest.any())
        return front

    def save(self, f: Front, pc: int) -> None:
        """Put a front's lanes down at an address, to be taken up again."""
        self._each(self.pc, f, f.active, pc)

    def grow_old(self, f: Front) -> None:
        """Let others go first until they have had as many turns."""
        f.put_rows(self.age, f.rows(self.age) + 1, f.active)

    def spends_its_turn(self, f: Front) -> bool:
        """Whether a front has gone on long enough while others could."""
        return f.crowded and self.executed - f.started > _TURN

    def _each(self, array: NDArray[Any], f: Front, mask: Mask, value: Any) -> None:
        f.put_rows(array, np.asarray(value, array.dtype), mask)

    def settle(self) -> bool:
        """Let go who has waited for what has happened; returns whether anyone goes on."""
        before = np.count_nonzero(self.status == RUNNING)
        if (self.status == SYNCHRONISING).any():
            self._settle_convergence()
        if (self.status == AT_WARPSYNC).any():
            self._settle_warps()
        if (self.status == AT_BARRIER).any():
            self._settle_barriers()
        if (self.status == IN_CLUSTER).any():
            self._settle_clusters()
        return bool(np.count_nonzero(self.status == RUNNING) > before)

    # ---- branches

    def branch(self, f: Front, taken: Mask, target: int, after: int) -> int | None:
        """Send the lanes of a mask to the target; the others go on behind the branch."""
        if taken is None:
            return target
        active = f.active
        count = np.count_nonzero(taken)
        if count == 0:
            return after
        if count == (taken.size if active is None else np.count_nonzero(active)):
            return target
        self.launch.note_divergence(f, taken)
        self.save(f, after)
        self._each(self.pc, f, taken, target)
        return None

    def branch_to(
        self, f: Front, taken: Mask, targets: NDArray[np.int64], after: int
    ) -> int | None:
        """Send each lane of a mask to a target of its own."""
        lanes = f.members(taken)
        goals = np.unique(targets[lanes])
        everyone = taken is None or np.count_nonzero(taken) == (
            taken.size if f.active is None else np.count_nonzero(f.active)
        )
        if len(goals) == 1 and everyone:
            return int(goals[0])
        self.save(f, after)
        self._each(self.pc, f, taken, targets)
        return None

    def give_way(self, f: Front, after: int) -> int | None:
        """YIELD: others first, also those who wait for this front to come to a convergence point.

        So a thread that holds a lock goes on though others of its warp spin for it: a convergence
        barrier counts as reached by those who have yielded often.
        """
        yields = f.rows(self.yields) + 1
        self._each(self.yields, f, f.active, np.minimum(yields, _PATIENCE))
        impatient = bool((yields >= _PATIENCE).any()) and self.settle()
        if not f.crowded and not impatient:
            return after
        self.save(f, after)
        self.grow_old(f)
        return None

    def leave(self, f: Front, mask: Mask, after: int) -> int | None:
        """EXIT of the lanes of a mask."""
        self.save(f, after)
        self._each(self.status, f, mask, EXITED)
        self.settle()
        return None

    def alive_bits(self, f: Front) -> NDArray[np.uint32]:
        """The lanes of each warp that have not left, as bits."""
        return lane_bits(f.rows(self.status) != EXITED)

    # ---- convergence

    def set_convergence(self, f: Front, number: int, mask: Mask) -> None:
        """BSSY: the executing lanes will meet again."""
        lanes = f.members(mask)
        self.set_convergence_lanes(f, number, lanes)

    def set_convergence_lanes(self, f: Front, number: int, lanes: NDArray[np.bool_]) -> None:
        """Set the members of a convergence barrier."""
        if f.warps is None:
            self.convergence[number][...] = lanes
        else:
            self.convergence[number][f.warps] = lanes

    def convergence_of(self, f: Front, number: int) -> NDArray[np.bool_]:
        """The members of a convergence barrier."""
        return f.rows(self.convergence[number])

    def leave_convergence(self, f: Front, number: int, mask: Mask) -> None:
        """BREAK: the lanes of a mask will not come to the meeting."""
        self._each(self.convergence[number], f, mask, False)
        if (self.status == SYNCHRONISING).any():
            self.settle()
            f.limit = 0  # who was let go may stand anywhere

    def converge(self, f: Front, number: int, mask: Mask, after: int) -> int | None:
        """BSYNC: wait for the other members."""
        self._each(self.yields, f, mask, 0)
        members = self.convergence_of(f, number) & (f.rows(self.status) != EXITED)
        here = f.members(mask)
        if not (members & ~here).any():
            return after
        self.save(f, after)
        self._each(self.status, f, mask, SYNCHRONISING)
        self._each(self.slot, f, mask, number)
        self.settle()
        return None

    def _settle_convergence(self) -> None:
        waiting = self.status == SYNCHRONISING
        alive = (self.status != EXITED) & (self.yields < _PATIENCE)
        for number in np.unique(self.slot[waiting]):
            here = waiting & (self.slot == number)
            missing = (self.convergence[number] & alive & ~here).any(axis=1)
            go = here & ~missing[:, None]
            self.status[go] = RUNNING
            # Those for whom they did not wait must not wait for them.
            self.convergence[number] &= ~go

    def synchronise_warp(
        self, f: Front, mask: Mask, wanted: NDArray[np.uint32], after: int
    ) -> int | None:
        """WARPSYNC: wait for the lanes of a mask in a register."""
        here = f.members(mask)
        alive = f.rows(self.status) != EXITED
        needed = bits_to_lanes(wanted) & alive
        if not (needed & ~here).any():
            return after
        self.save(f, after)
        self._each(self.status, f, mask, AT_WARPSYNC)
        self._each(self.wanted, f, mask, wanted)
        self.settle()
        return None

    def _settle_warps(self) -> None:
        waiting = self.status == AT_WARPSYNC
        here = lane_bits(waiting)
        alive = lane_bits(self.status != EXITED)
        missing = (self.wanted & alive & ~here) != 0
        self.status[waiting & ~missing] = RUNNING

    # ---- barriers of a block

    def barrier(
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
        self.save(f, after)
        self._each(self.status, f, mask, AT_BARRIER)
        self._each(self.slot, f, mask, f.full(which))
        self._each(self.expected, f, mask, f.full(threads))
        if reduction is not None:
            self.reduction, value = reduction
            self._each(self.told, f, mask, f.full(value))
        self.settle()
        return None

    def _check_whole_warps(self, f: Front, mask: Mask) -> None:
        """A barrier is for whole warps: all threads of one must come to it together."""
        if mask is None:
            return
        here = np.broadcast_to(mask, (f.count, _LANES))
        missing = f.rows(self.is_thread) & ~here
        at = np.flatnonzero(missing.any(axis=1) & here.any(axis=1))
        if len(at):
            warps = f.warp_indices()[at]
            lane = np.argmax(here[at], axis=1)
            self.launch.report_lanes(
                self,
                FindingKind.DIVERGENT_BARRIER,
                warps * _LANES + lane,
                f"{np.count_nonzero(missing[at[0]])} threads of the warp are not there",
                at=f.pc,
            )

    def _all_at_once(self, f: Front, mask: Mask, which: Any, threads: Any) -> bool:
        """Whether all threads of all blocks come to one barrier together, as they mostly do."""
        if f.warps is not None or which.size > 1 or self.arrival_rows:
            return False
        if mask is not None and np.count_nonzero(mask) != np.count_nonzero(self.is_thread):
            return False
        if threads.size > 1 or threads[0, 0] not in (0, self.block_warps * _LANES):
            return False
        self._order(np.ones((self.blocks, self.block_warps), bool))
        return True

    def _order(self, members: NDArray[np.bool_]) -> None:
        """Tell the shared memory that warps of blocks have met: (blocks, warps of a block)."""
        if self._shared is None:
            return
        blocks = np.flatnonzero(members.any(axis=1))
        actors = np.zeros((len(blocks), self.ranks * self.block_warps + 1), bool)
        rank = blocks % self.ranks
        for index in range(self.block_warps):
            actors[np.arange(len(blocks)), rank * self.block_warps + index] = members[blocks, index]
        self.shared.clocks.barrier(blocks // self.ranks, actors)

    def _arrive(self, f: Front, mask: Mask, which: Any, threads: Any) -> None:
        here = f.members(mask)
        for row in np.flatnonzero(here.any(axis=1)):
            warp = int(f.warp_indices()[row])
            lane = int(np.argmax(here[row]))
            block, number = int(self.block_of_warp[warp]), int(which[row, lane])
            self.arrivals[block, number] += _LANES
            key = (block, number)
            clocks = self.shared.clocks
            one = clocks.release(
                np.array([block // self.ranks]), self.actor_of_warp[warp : warp + 1]
            )[0]
            known = self.arrival_rows.get(key)
            self.arrival_rows[key] = one if known is None else np.maximum(known, one)
        self.settle()
        f.limit = 0

    def _settle_barriers(self) -> None:
        by_block = (self.blocks, self.block_warps, _LANES)
        waiting = (self.status == AT_BARRIER).reshape(by_block)
        slots = self.slot.reshape(by_block)
        expected = self.expected.reshape(by_block)
        exited = (self.status == EXITED).reshape(by_block)
        threads = self.is_thread.reshape(by_block)
        alive = (~exited).any(axis=2).sum(axis=1) * _LANES
        for number in np.unique(slots[waiting]):
            here = waiting & (slots == number)
            warps = here.any(axis=2)
            arrived = warps.sum(axis=1) * _LANES + self.arrivals[:, number]
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
        told = self.told.reshape(here.shape) & here
        yes, all_of = told.sum(axis=(1, 2)), here.sum(axis=(1, 2))
        result = (
            yes,
            np.where(yes == all_of, U32(0xFFFFFFFF), 0),
            np.where(yes > 0, U32(0xFFFFFFFF), 0),
        )[min(self.reduction, 2)]
        results = self.barrier_results.reshape(self.blocks, self.block_warps)
        results[...] = np.where(complete[:, None], result[:, None].astype(U32), results)
        self._order(np.asarray(here.any(axis=2)))
        for block in np.flatnonzero(complete):
            self.arrivals[block, number] = 0
            rows = self.arrival_rows.pop((int(block), int(number)), None)
            if rows is not None:
                actors = (
                    np.flatnonzero(here[block].any(axis=1))
                    + (block % self.ranks) * self.block_warps
                )
                self.shared.clocks.acquire(
                    np.full(len(actors), block // self.ranks),
                    actors,
                    np.tile(rows, (len(actors), 1)),
                )
        self.status.reshape(here.shape)[here] = RUNNING

    def barrier_result(self, f: Front) -> NDArray[np.uint32]:
        """What the last reducing barrier gave each warp."""
        return f.rows(self.barrier_results)

    # ---- clusters

    def arrive_in_cluster(self, f: Front, mask: Mask) -> None:
        """UCGABAR_ARV: arrive at the barrier of the cluster."""
        arrivals = f.rows(self.cluster_arrivals) + 1
        self._each(self.cluster_arrivals, f, mask, arrivals)
        here = f.members(mask)
        rows = np.flatnonzero(here.any(axis=1))
        warps = f.warp_indices()[rows]
        domains = self.lane_domain[warps, 0]
        clocks = self.shared.clocks.release(domains, self.actor_of_warp[warps])
        generations = arrivals[rows, np.argmax(here[rows], axis=1)]
        for domain, generation, row in zip(domains, generations, clocks, strict=True):
            key = (int(domain), int(generation))
            known = self.cluster_rows.get(key)
            self.cluster_rows[key] = row.copy() if known is None else np.maximum(known, row)
        self.settle()
        f.limit = 0

    def wait_for_cluster(self, f: Front, mask: Mask, after: int) -> int | None:
        """UCGABAR_WAIT: wait until all threads of the cluster have arrived."""
        self.save(f, after)
        self._each(self.status, f, mask, IN_CLUSTER)
        self.settle()
        return None

    def _settle_clusters(self) -> None:
        by_domain = (self.domains, -1)
        waiting = (self.status == IN_CLUSTER).reshape(by_domain)
        alive = (self.status != EXITED).reshape(by_domain)
        arrivals = self.cluster_arrivals.reshape(by_domain)
        fewest = np.where(alive, arrivals, np.iinfo(np.int32).max).min(axis=1, keepdims=True)
        passes = (waiting & (arrivals <= fewest)).reshape(self.status.shape)
        warps = np.flatnonzero(passes.any(axis=1))
        if not len(warps):
            return
        domains = self.lane_domain[warps, 0]
        generations = self.cluster_arrivals[warps, np.argmax(passes[warps], axis=1)]
        rows = np.array(
            [self.cluster_rows[int(d), int(g)] for d, g in zip(domains, generations, strict=True)]
        )
        self.shared.clocks.acquire(domains, self.actor_of_warp[warps], rows)
        self.status[passes] = RUNNING

    def bulk_copy(
        self, f: Front, row: int, source: int, to: int, barrier: int, nbytes: int,
        blocks: int | None,
    ) -> None:  # fmt: skip
        """UBLKCP: bytes from global memory into shared memory, told to an mbarrier."""
        warp = int(f.warp_indices()[row])
        domain, issuer = int(self.lane_domain[warp, 0]), int(self.actor_of_warp[warp])
        base = self.launch.shared_base
        rank, offset = (int(x[0]) for x in rank_and_offset(np.array([to]), base))
        ranks = [rank] if blocks is None else [r for r in range(self.ranks) if blocks >> r & 1]
        site = Site(f.pc >> 4, _COPY_PIECE, store=False)
        addresses = U64(source) + np.arange(0, nbytes, _COPY_PIECE, dtype=U64)
        words, problems = self.memory.load(addresses, _COPY_PIECE)
        self._tell_of_copy(f, row, site, problems)
        data = np.ascontiguousarray(words.T).reshape(-1).view(np.uint8)
        for target in ranks:
            tick, problems = self.shared.store_bulk(domain, issuer, target, offset, data)
            self._tell_of_copy(f, row, site, problems)
            remote = barrier & 0xFFFFFF | target << 24 if blocks is not None else barrier
            self.mbarriers.complete_bytes(domain, remote, nbytes, tick)

    def _tell_of_copy(self, f: Front, row: int, site: Site, problems: list[Problem]) -> None:
        """Problems of a bulk copy, each told once, of its warp's first lane."""
        first = np.zeros(1, np.intp)
        told = [Problem(each.kind, first, each.addresses[:1], each.detail) for each in problems]
        self._tell(f, np.array([row * _LANES]), site, told)

    def report_trap(self, f: Front, mask: Mask, address: int) -> None:
        """Threads have executed BPT.TRAP."""
        lanes = f.positions(np.flatnonzero(f.members(mask)))
        assert lanes is not None
        text = "__trap() was executed; a GPU would end the kernel here"
        self.launch.report_lanes(self, FindingKind.TRAP, lanes, text, at=address)

    def _report_early(self, here: NDArray[np.bool_]) -> None:
        """Threads have left without a barrier that all of the block should reach."""
        lanes = np.flatnonzero(here.reshape(-1))
        self.launch.report_lanes(
            self,
            FindingKind.BARRIER_NOT_REACHED,
            lanes[:1],
            "threads of the block had ended before",
            at=self.pc.reshape(-1)[lanes[0]] - 16,
        )

    def _report_deadlock(self) -> None:
        waiting = np.flatnonzero(self.status != EXITED)
        at = int(self.pc.reshape(-1)[waiting[0]]) - 16
        kind = {
            SYNCHRONISING: "at a convergence point",
            AT_BARRIER: "at a barrier",
            AT_WARPSYNC: "for lanes of their warp",
            IN_CLUSTER: "for blocks of their cluster",
        }[int(self.status.reshape(-1)[waiting[0]])]
        self.launch.report_lanes(
            self,
            FindingKind.DEADLOCK,
            waiting,
            f"{len(waiting)} threads wait {kind} for ever",
            at=at,
        )
        self.status[...] = EXITED

    # ---- special registers

    def special(self, number: int, f: Front, *, wide: bool = False) -> NDArray[Any]:
        """A special register of every lane, by its number in the instruction."""
        value = self._special(number, f)
        if value is None:
            name = f"special register {number}"
            raise self.launch.unknown(f.pc, f"the emulator has no {name}")
        array = np.asarray(value)
        if array.ndim == 0:
            array = array.reshape(1, 1)
        array = array.astype(np.int64).view(U64)
        return array if wide else (array & U64(0xFFFFFFFF)).astype(U32)

    def _special(self, number: int, f: Front) -> Any:
        if number in (33, 34, 35):
            return f.rows(self.tid[number - 33])
        if number in (37, 38, 39):
            return f.rows(self.coordinates[number - 37])[:, None]
        if number == 0:
            return np.arange(_LANES)[None, :]
        if number == 255:
            return 0
        if number == 32:  # SR_TID: all three in one word
            x, y, z = (f.rows(each) for each in self.tid)
            return x | y << 16 | z << 26
        if number in (1, 80, 81, 82, 83):
            # Time is the number of instructions executed: it moves on, and is no measurement.
            return self.executed >> (32 if number in (81, 83) else 0)
        if number in range(56, 61):
            return self._lane_masks()[number - 56]
        if number == 136:
            return f.rows(self.rank_of_warp)[:, None]
        if number == 138:  # SR_CgaSize
            return 0
        if number == 47:
            return SHARED_WINDOW >> 32
        if number == 46:
            return LOCAL_WINDOW >> 32
        if number == 50:
            return self.launch.shared_bytes
        if number == 3:  # SR_VIRTID: the warp's number above eight bits
            return f.rows(self.warp_in_block)[:, None] << 8
        if number == 67:
            return f.rows(self.block_of_warp)[:, None] % self.launch.multiprocessors
        if number == 2:
            return 64 << 8
        return None

    def _lane_masks(self) -> list[NDArray[np.int64]]:
        """Lanes equal to, below, up to, above and from each lane on."""
        lane = np.arange(_LANES, dtype=np.int64)[None, :]
        equal = np.int64(1) << lane
        below = equal - 1
        every = np.int64(0xFFFFFFFF)
        return [equal, below, below | equal, every & ~(below | equal), every & ~below]

    # ---- memory

    def _who(self, f: Front, lanes: Any) -> tuple[Any, Any]:
        if f.warps is None and lanes is None:
            return self.lane_domain.reshape(-1), self.lane_actor.reshape(-1)
        where = f.positions(lanes)
        return self.lane_domain.reshape(-1)[where], self.lane_actor.reshape(-1)[where]

    def _tell(self, f: Front, lanes: Any, site: Site, problems: list[Problem]) -> None:
        if problems:
            self.launch.report_problems(self, f, lanes, site, problems)

    def load_global(self, site: Site, f: Front, lanes: Any, where: Any) -> NDArray[np.uint32]:
        """LDG."""
        self.launch.count_global(site, f, lanes, where)
        values, problems = self.memory.load(where, site.width)
        self._tell(f, lanes, site, problems)
        return values

    def store_global(self, site: Site, f: Front, lanes: Any, where: Any, words: Any) -> None:
        """STG."""
        self.launch.count_global(site, f, lanes, where)
        self._tell(f, lanes, site, self.memory.store(where, site.width, words))

    def atomic_global(
        self, site: Site, f: Front, lanes: Any, where: Any, words: Any,
        what: tuple[str, str, Any], *, generic: bool,
    ) -> NDArray[np.uint32]:  # fmt: skip
        """ATOMG, RED; with ``generic`` ATOM, whose lanes may name shared memory."""
        operation, kind, compare = what
        if generic:
            shared, local = spaces(where)
            if local.any():
                raise self.launch.unknown(f.pc, "an atomic on local memory")
            if shared.all():
                return self.atomic_shared(
                    site, f, lanes, (where - U64(SHARED_WINDOW)).astype(np.int64), words, what
                )
            if shared.any():
                raise self.launch.unknown(f.pc, "an atomic on shared and global memory at once")
        self.launch.count_global(site, f, lanes, where)
        # PTX: atom.add.f32 on global memory flushes subnormals.
        kind = "F32.FTZ" if kind == "F32" else kind
        old, problems = self.memory.atomic(where, words, operation, kind=kind, compare=compare)
        self._tell(f, lanes, site, problems)
        return old

    def load_shared(self, site: Site, f: Front, lanes: Any, address: Any) -> NDArray[np.uint32]:
        """LDS."""
        domain, actor = self._who(f, lanes)
        rank, offset = rank_and_offset(address, self.launch.shared_base)
        self.launch.count_shared(site, f, lanes, offset)
        atomic = site.index in self.launch.program.compared_loads
        values, problems = self.shared.load(domain, actor, rank, offset, site.width, atomic=atomic)
        self._tell(f, lanes, site, problems)
        return values

    def store_shared(self, site: Site, f: Front, lanes: Any, address: Any, words: Any) -> None:
        """STS."""
        domain, actor = self._who(f, lanes)
        rank, offset = rank_and_offset(address, self.launch.shared_base)
        self.launch.count_shared(site, f, lanes, offset)
        problems = self.shared.store(domain, actor, rank, offset, site.width, words)
        self._tell(f, lanes, site, problems)

    def atomic_shared(
        self, site: Site, f: Front, lanes: Any, address: Any, words: Any, what: tuple[str, str, Any]
    ) -> NDArray[np.uint32]:
        """ATOMS."""
        operation, kind, compare = what
        domain, actor = self._who(f, lanes)
        rank, offset = rank_and_offset(address, self.launch.shared_base)
        self.launch.count_shared(site, f, lanes, offset)
        old, problems = self.shared.atomic(
            domain, actor, rank, offset, words, operation, kind=kind, compare=compare
        )
        self._tell(f, lanes, site, problems)
        return old

    def load_local(self, site: Site, f: Front, lanes: Any, address: Any) -> NDArray[np.uint32]:
        """LDL."""
        who = f.positions(lanes)
        values, problems = self.local.load(who, address, site.width)
        self._tell(f, lanes, site, problems)
        return values

    def store_local(self, site: Site, f: Front, lanes: Any, address: Any, words: Any) -> None:
        """STL."""
        who = f.positions(lanes)
        self._tell(f, lanes, site, self.local.store(who, address, site.width, words))

    def load_generic(self, site: Site, f: Front, lanes: Any, where: Any) -> NDArray[np.uint32]:
        """LD: each lane's address says which memory."""
        values = np.zeros((max(1, site.width // 4), len(where)), U32)
        for sub, chosen, at, (load, _) in self._by_space(lanes, where):
            values[:, sub] = load(site, f, chosen, at)
        return values

    def store_generic(self, site: Site, f: Front, lanes: Any, where: Any, words: Any) -> None:
        """ST."""
        for sub, chosen, at, (_, store) in self._by_space(lanes, where):
            store(site, f, chosen, at, words[:, sub])

    def _by_space(self, lanes: Any, where: Any) -> Iterator[tuple[Any, Any, Any, tuple[Any, Any]]]:
        """For each memory that generic addresses name: which of them, their lanes, the addresses
        in it, and how to load and store there."""
        shared, local = spaces(where)
        for part, functions, base in (
            (~shared & ~local, (self.load_global, self.store_global), None),
            (shared, (self.load_shared, self.store_shared), SHARED_WINDOW),
            (local, (self.load_local, self.store_local), LOCAL_WINDOW),
        ):
            if part.any():
                sub = np.flatnonzero(part)
                at = where[sub] if base is None else (where[sub] - U64(base)).astype(np.int64)
                yield sub, sub if lanes is None else lanes[sub], at, functions

    # ---- asynchronous copies

    def copy_async(
        self, sites: tuple[Site, Site], f: Front, lanes: Any, address: Any, source: Any,
        wanted: Any, zero_fill: bool,
    ) -> None:  # fmt: skip
        """LDGSTS: global to shared memory; a lane whose predicate is false copies nothing."""
        site, loads = sites
        every = np.arange(f.count * _LANES) if lanes is None else lanes
        if not wanted.all():
            if zero_fill:
                raise self.launch.unknown(f.pc, "a copy that fills with zeros")
            every, address, source = every[wanted], address[wanted], source[wanted]
        if not len(every):
            return
        rank, offset = rank_and_offset(address, self.launch.shared_base)
        self.launch.count_global(loads, f, every, source, place=offset)
        values, problems = self.memory.load(source, site.width)
        self._tell(f, every, loads, problems)
        domain, actor = self._who(f, every)
        self.launch.count_shared(site, f, every, offset, source=source)
        where = f.positions(every)
        problems = self.shared.copy_async(
            domain, actor, self.lane_thread.reshape(-1)[where], rank, offset, site.width, values,
            self.copies_committed.reshape(-1)[where],
        )  # fmt: skip
        self._tell(f, every, site, problems)

    def commit_copies(self, f: Front, lanes: Any) -> None:
        """LDGDEPBAR: the copies so far are a group."""
        where = f.positions(lanes)
        flat = self.copies_committed.reshape(-1)
        if where is None:
            flat += 1
        else:
            flat[where] += 1

    def wait_for_copies(self, f: Front, lanes: Any, left: int) -> None:
        """DEPBAR.LE: all groups but the last ``left`` are complete."""
        every = np.arange(f.count * _LANES) if lanes is None else lanes
        where = f.positions(every)
        domain, actor = self._who(f, every)
        done = self.copies_committed.reshape(-1)[where] - left
        self.shared.complete(self.lane_thread.reshape(-1)[where], done, domain, actor)
