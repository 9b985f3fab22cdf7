"""A batch of blocks that run side by side: their state, and who goes on when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.access import LOCAL_WINDOW, SHARED_WINDOW, Site, rank_and_offset, spaces
from lowgemm.emulator.barriers import BlockBarriers, ClusterBarriers
from lowgemm.emulator.bulk_groups import BulkGroups
from lowgemm.emulator.convergence import Convergence
from lowgemm.emulator.findings import FindingKind, Problem
from lowgemm.emulator.front import Front, Mask, lane_bits
from lowgemm.emulator.local_memory import LocalMemory
from lowgemm.emulator.mbarriers import Mbarriers
from lowgemm.emulator.shared_memory import SharedMemory
from lowgemm.emulator.states import (
    AT_BARRIER,
    AT_WARPSYNC,
    EXITED,
    IN_CLUSTER,
    RUNNING,
    SYNCHRONISING,
)

if TYPE_CHECKING:
    from lowgemm.emulator.launch import Launch

__all__ = ["Batch"]

U32 = np.uint32
U64 = np.uint64
_LANES = 32
_FAR = np.int64(1) << 62

#: Instructions that a front may execute while others of the batch could, before it gives way.
_TURN = 250
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
        self.convergence = Convergence(self)
        self.barriers = BlockBarriers(self)
        self.cluster_barriers = ClusterBarriers(self)
        self.mbarriers = Mbarriers(self)
        self.bulk_groups = BulkGroups(self)
        self.copies_committed = np.zeros(lanes, np.int64)
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

    @property
    def has_shared(self) -> bool:
        """Whether the shared memory has been used."""
        return self._shared is not None

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
        self.put_lanes(self.pc, f, f.active, pc)

    def grow_old(self, f: Front) -> None:
        """Let others go first until they have had as many turns."""
        f.put_rows(self.age, f.rows(self.age) + 1, f.active)

    def spends_its_turn(self, f: Front) -> bool:
        """Whether a front has gone on long enough while others could."""
        return f.crowded and self.executed - f.started > _TURN

    def put_lanes(self, array: NDArray[Any], f: Front, mask: Mask, value: Any) -> None:
        """Write an array of all lanes in those of a front's mask."""
        f.put_rows(array, np.asarray(value, array.dtype), mask)

    def wait(self, f: Front, mask: Mask, after: int, state: int) -> None:
        """Put a front down: the lanes of a mask wait, to go on at an address when they may."""
        self.save(f, after)
        self.put_lanes(self.status, f, mask, state)
        self.settle()

    def settle(self) -> bool:
        """Let go who has waited for what has happened; returns whether anyone goes on."""
        before = np.count_nonzero(self.status == RUNNING)
        self.convergence.settle()
        if (self.status == AT_BARRIER).any():
            self.barriers.settle()
        if (self.status == IN_CLUSTER).any():
            self.cluster_barriers.settle()
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
        self.put_lanes(self.pc, f, taken, target)
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
        self.put_lanes(self.pc, f, taken, targets)
        return None

    def give_way(self, f: Front, after: int) -> int | None:
        """YIELD: others first, also those who wait for this front at a convergence point."""
        impatient = self.convergence.yielded(f) and self.settle()
        if not f.crowded and not impatient:
            return after
        self.save(f, after)
        self.grow_old(f)
        return None

    def leave(self, f: Front, mask: Mask, after: int) -> int | None:
        """EXIT of the lanes of a mask."""
        self.wait(f, mask, after, EXITED)
        return None

    def alive_bits(self, f: Front) -> NDArray[np.uint32]:
        """The lanes of each warp that have not left, as bits."""
        return lane_bits(f.rows(self.status) != EXITED)

    # ---- bulk copies

    def bulk_copy(
        self, f: Front, row: int, source: int, to: int, barrier: int, nbytes: int,
        blocks: int | None,
    ) -> None:  # fmt: skip
        """UBLKCP: bytes from global memory into shared memory, told to an mbarrier."""
        warp = int(f.warp_indices()[row])
        domain, issuer = int(self.lane_domain[warp, 0]), int(self.actor_of_warp[warp])
        base = self.launch.shared_base
        rank, offset = (int(x[0]) for x in rank_and_offset(np.array([to]), base))
        site = Site(f.pc >> 4, _COPY_PIECE, store=False)
        addresses = U64(source) + np.arange(0, nbytes, _COPY_PIECE, dtype=U64)
        words, problems = self.memory.load(addresses, _COPY_PIECE)
        self.tell_of_copy(f, row, site, problems)
        data = np.ascontiguousarray(words.T).reshape(-1).view(np.uint8)
        for problems in self.deliver(domain, issuer, rank, offset, data, barrier, blocks):
            self.tell_of_copy(f, row, site, problems)

    def deliver(
        self, domain: int, issuer: int, rank: int, offset: int, data: NDArray[np.uint8],
        barrier: int, blocks: int | None,
    ) -> Iterator[list[Problem]]:  # fmt: skip
        """Write what a bulk copy brings, and tell the mbarrier; with a mask, in several blocks.

        Yields the problems of each block before its mbarrier is told.
        """
        ranks = [rank] if blocks is None else [r for r in range(self.ranks) if blocks >> r & 1]
        for target in ranks:
            tick, problems = self.shared.store_bulk(domain, issuer, target, offset, data)
            yield problems
            remote = barrier & 0xFFFFFF | target << 24 if blocks is not None else barrier
            self.mbarriers.complete_bytes(domain, remote, len(data), tick)

    def tell_of_copy(self, f: Front, row: int, site: Site, problems: list[Problem]) -> None:
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
        reads: Any, partial: bool,
    ) -> None:  # fmt: skip
        """LDGSTS: global to shared memory; a lane that does not read writes zeros.

        With ``partial`` (.ZFILL) the source's offset from a multiple of the width is the number of
        bytes that are not read: zeros behind those that are.
        """
        site, loads = sites
        every = np.arange(f.count * _LANES) if lanes is None else lanes
        if not len(every):
            return
        rank, offset = rank_and_offset(address, self.launch.shared_base)
        omitted = np.zeros(len(every), np.int64)
        if partial:
            omitted = (source & U64(site.width - 1)).astype(np.int64)
            source = source - omitted.view(U64)
        present = np.where(reads, site.width - omitted, 0)
        values = self._copied_words(loads, f, every, source, present, offset)
        domain, actor = self._who(f, every)
        self.launch.count_shared(site, f, every, offset, source=source)
        where = f.positions(every)
        problems = self.shared.copy_async(
            domain, actor, self.lane_thread.reshape(-1)[where], rank, offset, site.width, values,
            self.copies_committed.reshape(-1)[where],
        )  # fmt: skip
        self._tell(f, every, site, problems)

    def _copied_words(
        self, site: Site, f: Front, lanes: Any, source: Any, present: Any, offset: Any
    ) -> NDArray[np.uint32]:
        """The words of copies from global memory, zeros where less than all bytes are present."""
        if (present == site.width).all():
            self.launch.count_global(site, f, lanes, source, place=offset)
            values, problems = self.memory.load(source, site.width)
            self._tell(f, lanes, site, problems)
            return values
        reading = present > 0
        if reading.any():
            self.launch.count_global(
                site, f, lanes[reading], source[reading], place=offset[reading]
            )
        content = np.zeros((len(lanes), site.width), np.uint8)
        for index in range(site.width):
            here = np.flatnonzero(present > index)
            if len(here):
                byte, problems = self.memory.load(source[here] + U64(index), 1)
                self._tell(f, lanes[here], site, problems)
                content[here, index] = byte[0]
        return content.view("<u4").T

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
