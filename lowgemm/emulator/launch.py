"""One launch of a kernel: its shape, its constants, its loop, what it found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.access import LOCAL_WINDOW, SHARED_WINDOW, Site
from lowgemm.emulator.batch import Batch
from lowgemm.emulator.constants import Constants
from lowgemm.emulator.counts import Counts
from lowgemm.emulator.findings import Finding, FindingKind, Problem
from lowgemm.emulator.front import Front, Mask
from lowgemm.emulator.rules import Rules
from lowgemm.emulator.strict import Strict
from lowgemm.emulator.wavefronts import (
    atomic_wavefronts,
    copied_lanes,
    copy_sectors,
    copy_wavefronts,
    global_sectors,
    ideal_global_sectors,
    ideal_shared_wavefronts,
    shared_conflict_ways,
    shared_wavefronts,
)
from lowgemm.emulator.worst import WorstAccess
from lowgemm.errors import EmulationError, UnknownInstructionError

if TYPE_CHECKING:
    from lowgemm.emulator.global_memory import GlobalMemory
    from lowgemm.emulator.operation import Operation
    from lowgemm.emulator.program import Program
    from lowgemm.emulator.word import ReadPredicate
    from lowgemm.runtime.launch import LaunchShape

__all__ = ["DRIVER_CODE", "Launch"]

_LANES = 32
#: Lanes of a batch: enough that numpy's cost per call is small, few enough for the CPU's caches.
_BATCH_LANES = 4096
#: Instructions that a batch executes before others may.
_SLICE = 50_000
#: Where functions that the driver brings are said to lie: behind all code.
DRIVER_CODE = 0x7000_0000
_RESERVED_BYTES = 1024
#: Where bank 0 tells of clusters, by major version; from sm_100 on at SR_CgaSize times -0xa0 more,
#: which is 0 here.
_CLUSTER_PLACES = {
    9: (0x140, 0x144, 0x150, 0x15C, 0x188),
    10: (0x36C, 0x2A0, 0x2B0, 0x2C0, 0x2CC),
}
#: Where bank 0 holds the address of the parameters, by which a kernel names those that it declares
#: ``__grid_constant__``; found by compiling kernels that give such an address away.
_PARAMETERS_ADDRESS = {9: 0x198, 10: 0x348}


class Launch:
    """A kernel with its parameters and shape, run to its end by :meth:`run`."""

    def __init__(
        self,
        program: Program,
        memory: GlobalMemory,
        shape: LaunchShape,
        banks: dict[int, bytes],
        parameters: tuple[int, bytes],
        counts: Counts,
        *,
        multiprocessors: int,
        instructions: int,
        rules: Rules | None = None,
        driver_functions: Mapping[int, str],
    ) -> None:
        signature = program.kernel.signature
        self.driver_functions = driver_functions
        self.program = program
        self.memory = memory
        self.shape = shape
        self.counts = counts
        self.multiprocessors = multiprocessors
        self.instructions = instructions
        self.registers = signature.registers
        major = program.kernel.arch.major
        self.shared_base = _RESERVED_BYTES if major >= 9 else 0
        self.shared_bytes = signature.shared_bytes + shape.shared_bytes
        self.shared_granularity = program.shared_granularity
        stack = signature.stack_bytes
        self.local_bytes = 65536 if stack is None else -(-stack // 16) * 16
        self.cluster = shape.cluster or signature.required_cluster or (1, 1, 1)
        self.cluster_blocks = math.prod(self.cluster)
        self.constants = Constants(banks)
        self._shown_bank: int | None = None
        self._fill_constants(major, parameters)
        self.findings: dict[tuple[Any, ...], Finding] = {}
        self._operations = program.operations
        if rules is not None:
            self._operations = Strict(self, rules).operations()

    def _fill_constants(self, major: int, parameters: tuple[int, bytes]) -> None:
        """What the driver writes into bank 0; found by compiling kernels that read it."""
        put, shape = self.constants.put, self.shape
        stack = self.local_bytes.to_bytes(4, "little")
        block = b"".join(size.to_bytes(4, "little") for size in shape.block)
        grid = b"".join(size.to_bytes(4, "little") for size in shape.grid)
        local = LOCAL_WINDOW.to_bytes(8, "little")
        if major >= 10:
            places = {0x360: block, 0x370: grid, 0x37C: stack, 0x2F8: local}
        else:
            shared = SHARED_WINDOW.to_bytes(8, "little")
            places = {0x0: block, 0xC: grid, 0x28: stack, 0x20: local, 0x18: shared}
        if major >= 9:
            names = _CLUSTER_PLACES[9 if major == 9 else 10]
            places |= dict(zip(names, self._cluster_constants(), strict=True))
        for offset, content in places.items():
            put(0, offset, content)
        put(0, *parameters)
        if major >= 9:
            at = _PARAMETERS_ADDRESS[9 if major == 9 else 10]
            self.constants.defer(0, at, lambda: self._parameters_address(parameters[0]))

    def _parameters_address(self, offset: int) -> bytes:
        """The address of the parameters: a GPU shows bank 0 in global memory as well."""
        bank = np.frombuffer(self.constants.content(0), np.uint8)
        base = self.memory.allocate(len(bank), initialised=True, name="the kernel's parameters")
        self.memory.write(base, bank)
        self.memory.set_readonly(base, True)
        self._shown_bank = base
        return (base + offset).to_bytes(8, "little")

    def _cluster_constants(self) -> tuple[bytes, ...]:
        """Whether there are clusters, their size, its inverse, how many, and blocks of each."""
        sizes = np.array(self.cluster, np.uint32)
        explicit = self.shape.cluster is not None or self.cluster_blocks > 1
        count = np.array(self.shape.grid, np.uint32) // sizes
        return (
            np.uint32(explicit).tobytes(),
            sizes.tobytes(),
            (np.float32(1) / sizes.astype(np.float32)).astype(np.float32).tobytes(),
            count.tobytes(),
            np.uint32(self.cluster_blocks).tobytes(),
        )

    # ---- running

    def run(self) -> None:
        """Run all blocks, batch by batch, each with its turn.

        Raises
        ------
        UnknownInstructionError
            A warp came to an instruction that the emulator does not know.
        EmulationError
            The launch went over its limit of instructions.
        """
        try:
            self._run_batches()
        finally:
            if self._shown_bank is not None:
                self.memory.free(self._shown_bank)

    def _run_batches(self) -> None:
        clusters = self.shape.blocks // self.cluster_blocks
        lanes = self.cluster_blocks * -(-self.shape.threads_per_block // _LANES) * _LANES
        step = max(1, _BATCH_LANES // lanes)
        waiting = [(first, min(step, clusters - first)) for first in range(0, clusters, step)]
        waiting.reverse()
        live: list[Batch] = []
        executed = 0
        with np.errstate(all="ignore"):
            while waiting or live:
                # A new batch only when those before have ended or wait for one that comes later.
                if waiting:
                    live.append(Batch(self, *waiting.pop()))
                for batch in list(live):
                    before = batch.executed
                    if batch.run(_SLICE):
                        live.remove(batch)
                    executed += batch.executed - before
                if executed > self.instructions:
                    raise EmulationError(
                        f"kernel {self.name} executed more than {self.instructions} "
                        "instructions (one that many warps execute together counts once)",
                        "it may not end; if it does, raise the limit: Emulator(instructions=...)",
                        kernel=self.name,
                    )

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.program.kernel.name

    def execute(self, f: Front) -> None:
        """Execute a front until it splits, waits or ends."""
        operations, batch = self._operations, f.batch
        warps, threads = self.counts.warps, self.counts.threads
        index, active = f.pc >> 4, f.active
        active_lanes = f.count * _LANES if active is None else int(np.count_nonzero(active))
        count = f.count
        limit = f.limit
        f.started = batch.executed
        while True:
            if not 0 <= index < len(operations):
                raise self._left(index << 4)
            operation = operations[index]
            batch.executed += 1
            warps[index] += count
            mask, lanes = active, active_lanes
            if operation.guard is not None:
                mask, lanes = self._guarded(f, operation, operation.guard)
            elif operation.uniform:
                mask = None
            if lanes == 0 or operation.never:
                index += 1
            else:
                threads[index] += lanes
                f.pc = index << 4
                if operation.run is not None:
                    operation.run(f, mask)
                    index += 1
                    limit = f.limit
                else:
                    assert operation.control is not None
                    goes = operation.control(f, mask)
                    if goes is None:
                        return
                    back = goes >> 4 <= index
                    index = goes >> 4
                    limit = f.limit
                    if back and batch.spends_its_turn(f):
                        batch.save(f, index << 4)
                        batch.grow_old(f)
                        return
                    if back and batch.executed - f.started > _SLICE:
                        batch.save(f, index << 4)
                        return
            if index << 4 >= limit:
                batch.save(f, index << 4)
                return

    @staticmethod
    def _guarded(f: Front, operation: Operation, guard: ReadPredicate) -> tuple[Mask, int]:
        """The lanes (of a uniform operation, the warps) whose guard holds, and how many threads."""
        holds = guard(f)
        if operation.uniform:
            by_warp = np.broadcast_to(holds, (f.count, 1))
            here = f.guarded(np.broadcast_to(by_warp, (f.count, _LANES)))
            return by_warp, int(np.count_nonzero(here))
        mask = f.guarded(np.broadcast_to(holds, (f.count, _LANES)))
        lanes = int(np.count_nonzero(mask))
        return (None if lanes == f.count * _LANES else mask), lanes

    def unknown(self, address: int, why: str) -> UnknownInstructionError:
        """The error for an instruction that turned out to be unknown when it ran."""
        return UnknownInstructionError(
            f"kernel {self.name}, at {address:#06x}: {why}",
            "take this part out of the kernel, or run it on a GPU",
            kernel=self.name,
            address=address,
        )

    def _left(self, address: int) -> EmulationError:
        name = self.driver_functions.get(address)
        if name is None:
            return self.unknown(address, "control left the kernel's code")
        return EmulationError(
            f"kernel {self.name} calls {name}, which the driver brings and the emulator lacks",
            "compile it without (printf, malloc, free and assert are such calls)",
            kernel=self.name,
        )

    def located(self, error: UnknownInstructionError) -> UnknownInstructionError:
        """The same error with the kernel's name and nvdisasm's text of the instruction."""
        address = error.address or 0
        text = self.program.described(address).text
        why = error.what.rpartition(": ")[2]
        return UnknownInstructionError(
            f"kernel {self.name}, at {address:#06x}: {text or error.what}: {why}",
            error.remedy,
            kernel=self.name,
            address=error.address,
        )

    def block_coordinates(
        self, cluster: NDArray[np.intp], rank: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], ...]:
        """The block's x, y and z of each linear cluster number and rank in it."""
        x, y, _ = (grid // size for grid, size in zip(self.shape.grid, self.cluster, strict=True))
        cx, cy, _ = self.cluster
        where = (cluster % x, cluster // x % y, cluster // (x * y))
        inside = (rank % cx, rank // cx % cy, rank // (cx * cy))
        return tuple(w * size + i for w, size, i in zip(where, self.cluster, inside, strict=True))

    # ---- counting

    def note_divergence(self, f: Front, taken: Any) -> None:
        """A branch that parts of warps take."""
        active = f.members(f.active)
        some, others = taken.any(axis=1), (active & ~taken).any(axis=1)
        self.counts.divergent[f.pc >> 4] += int(np.count_nonzero(some & others))

    def _by_warp(self, f: Front, lanes: Any, values: Any, fill: Any) -> tuple[Any, Any]:
        """Values of lanes as (warps, 32), and which lanes they are."""
        if lanes is None:
            return values.reshape(f.count, _LANES), f.members(None)
        where = np.full(f.count * _LANES, fill, values.dtype)
        where[lanes] = values
        active = np.zeros(f.count * _LANES, bool)
        active[lanes] = True
        return where.reshape(f.count, _LANES), active.reshape(f.count, _LANES)

    def count_global(
        self, site: Site, f: Front, lanes: Any, where: Any, *, place: Any = None
    ) -> None:
        """An access to global memory: requests and sectors.

        A copy to shared memory says the places there.
        """
        addresses, active = self._by_warp(f, lanes, where, 0)
        counts, index = self.counts, site.index
        moving = per_warp = np.count_nonzero(active, axis=1)
        if place is None:
            sectors = global_sectors(addresses, active, site.width, cache=site.cache)
        else:
            offsets, _ = self._by_warp(f, lanes, place, 0)
            moving = copied_lanes(offsets, active, bypass=site.bypass)
            sectors = copy_sectors(
                addresses, offsets, active, site.width, bypass=site.bypass, cache=site.cache
            )
        ideal = np.minimum(sectors, ideal_global_sectors(moving, site.width))
        counts.global_requests[index] += int(np.count_nonzero(per_warp))
        counts.global_bytes[index] += int(per_warp.sum()) * site.width
        counts.global_sectors[index] += int(sectors.sum())
        counts.ideal_global_sectors[index] += int(ideal.sum())

    def count_shared(
        self, site: Site, f: Front, lanes: Any, offset: Any, *, source: Any = None
    ) -> None:
        """An access to shared memory: wavefronts, and the worst of them.

        A copy from global memory says the addresses there.
        """
        offsets, active = self._by_warp(f, lanes, offset, 0)
        if ((offsets < 0) | (offsets % site.width != 0)).any():
            return  # a fault: it is reported, and goes nowhere
        counts, index = self.counts, site.index
        per_warp = np.count_nonzero(active, axis=1)
        moving = per_warp
        if source is not None:
            addresses, _ = self._by_warp(f, lanes, source, 0)
            moving = copied_lanes(offsets, active, bypass=site.bypass)
            passes = copy_wavefronts(
                addresses, offsets, active, site.width, bypass=site.bypass, cache=site.cache
            )
        elif site.passes:
            passes = atomic_wavefronts(
                offsets, active, site.width, compare=site.passes == 2, cache=site.cache
            )
        else:
            passes = shared_wavefronts(
                offsets, active, site.width, store=site.store, merge=site.merge, cache=site.cache
            )
        times = max(1, site.passes)
        ideal = np.minimum(passes, times * ideal_shared_wavefronts(moving, site.width))
        counts.shared_wavefronts[index] += int(passes.sum())
        counts.ideal_shared_wavefronts[index] += int(ideal.sum())
        counts.shared_bytes[index] += int(per_warp.sum()) * site.width
        if (passes > ideal).any():
            self._keep_worst(site, offsets, active, passes)

    def _keep_worst(self, site: Site, offsets: Any, active: Any, passes: Any) -> None:
        worst = int(np.argmax(passes))
        known = self.counts.worst.get(site.index)
        if known is not None and known.wavefronts >= passes[worst]:
            return
        ways = shared_conflict_ways(
            offsets[worst : worst + 1], active[worst : worst + 1], site.width,
            store=site.store, merge=site.merge, atomic=site.passes > 0,
        )  # fmt: skip
        if ways[0] < 2:
            return
        lanes = np.where(active[worst], offsets[worst], -1)
        self.counts.worst[site.index] = WorstAccess(
            site.index,
            site.width,
            int(ways[0]),
            int(passes[worst]),
            tuple(int(x) for x in lanes),
            site.passes > 0,
            self.program.described,
        )

    # ---- reporting

    def report_problems(
        self, batch: Batch, f: Front, lanes: Any, site: Site, problems: list[Problem]
    ) -> None:
        """What a memory access found."""
        where = f.positions(lanes)
        for problem in problems:
            every = problem.lanes if where is None else where[problem.lanes]
            detail = problem.detail
            self._report(
                batch, problem.kind, every, site.index * 16, detail, int(problem.addresses[0])
            )

    def report_lanes(
        self,
        batch: Batch,
        kind: FindingKind,
        lanes: NDArray[np.intp],
        detail: str,
        *,
        at: int,
        about: str = "",
    ) -> None:
        """Something that lanes of the batch did at an instruction, once for what it is about."""
        self._report(batch, kind, lanes, int(at), detail, None, about)

    def _report(
        self,
        batch: Batch,
        kind: FindingKind,
        lanes: NDArray[np.intp],
        address: int,
        detail: str,
        memory_address: int | None,
        about: str = "",
    ) -> None:
        key = (kind, address, about)
        known = self.findings.get(key)
        if known is not None:
            self.findings[key] = known.seen_again(len(lanes))
            return
        lane = int(lanes[0])
        warp, place = divmod(lane, _LANES)
        instruction = self.program.described(address)
        self.findings[key] = Finding(
            kind=kind,
            kernel=self.name,
            address=address,
            text=instruction.text or instruction.mnemonic,
            line=instruction.line,
            cta=tuple(int(axis[warp]) for axis in batch.coordinates),
            thread=tuple(int(axis[warp, place]) for axis in batch.tid),
            memory_address=memory_address,
            count=len(lanes),
            detail=detail,
        )
