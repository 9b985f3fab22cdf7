"""Memory with eyes: values as a GPU's, and every wrong access seen, no right one reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lowgemm.emulator import global_memory
from lowgemm.emulator.clocks import Clocks
from lowgemm.emulator.findings import FindingKind, Problem
from lowgemm.emulator.global_memory import ATOMIC_TYPES, GlobalMemory, read_modify_write
from lowgemm.emulator.shared_memory import SharedMemory
from lowgemm.errors import ArgumentValueError, EmulationError

Found = set[tuple[FindingKind, int]]


def found(problems: list[Problem]) -> Found:
    """What is wrong, as pairs of kind and lane."""
    return {(problem.kind, lane) for problem in problems for lane in problem.lanes.tolist()}


def u64(*addresses: int) -> NDArray[np.uint64]:
    """Addresses of lanes."""
    return np.array(addresses, np.uint64)


# ---- findings


def test_faults_are_what_stops_a_gpu() -> None:
    """Wrong places stop a GPU; races and unwritten memory let it run on."""
    faults = {kind for kind in FindingKind if kind.is_fault}
    assert FindingKind.MISALIGNED in faults and FindingKind.USE_AFTER_FREE in faults
    assert not faults & {FindingKind.RACE, FindingKind.UNINITIALISED_SHARED, FindingKind.HAZARD}


# ---- global memory


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32])
def test_lanes_read_what_lanes_wrote(width: int) -> None:
    """A value goes through memory at every width; narrow ones come back extended with zeros."""
    memory = GlobalMemory()
    base = memory.allocate(4096)
    addresses = np.uint64(base) + np.random.default_rng(0).permutation(64).astype(np.uint64) * width
    values = np.random.default_rng(1).integers(0, 2**32, (max(1, width // 4), 64), np.uint32)
    assert memory.store(addresses, width, values) == []
    got, problems = memory.load(addresses, width)
    assert problems == []
    assert np.array_equal(got, values & np.uint32(2 ** min(32, 8 * width) - 1))
    first = memory.read(int(addresses[0]), width)
    assert first.tobytes() == values[:, 0].tobytes()[:width]


def test_allocations_lie_apart() -> None:
    """Between two lie at least 512 bytes and eight times the larger one; all have 47 bits."""
    memory = GlobalMemory()
    sizes = (1, 511, 1 << 20, 513)
    bases = [memory.allocate(nbytes) for nbytes in sizes]
    for number, (base, after) in enumerate(pairwise(bases)):
        gap = after - (base + sizes[number])
        assert base % 512 == 0 and gap >= max(512, *(8 * each for each in sizes[number:][:2]))
    assert bases[-1] < 1 << 47
    for address in (bases[2] + (2 << 20), bases[2] - (1 << 20)):
        assert found(memory.load(u64(address), 4)[1]) == {(FindingKind.GLOBAL_OUT_OF_BOUNDS, 0)}


def test_addresses_run_out_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is given out twice: when none are left, an allocation is refused."""
    monkeypatch.setattr(global_memory, "_END_ADDRESS", global_memory._FIRST_ADDRESS + 4096)
    memory = GlobalMemory()
    memory.allocate(512)
    with pytest.raises(EmulationError, match="no addresses are left for 512 bytes"):
        memory.allocate(512)


def test_out_of_bounds_names_the_allocation() -> None:
    """Only the lane that leaves its allocation is faulty; the others go on."""
    memory = GlobalMemory()
    base = memory.allocate(4096, initialised=True, name="A")
    memory.fill(base, 4096, 7)
    other = memory.allocate(64, initialised=True)
    addresses = u64(base, base + 4096, other + 60, 0, base - 4, 2**64 - 4)
    values, problems = memory.load(addresses, 4)
    assert values.tolist() == [[0x07070707, 0, 0, 0, 0, 0]]
    assert found(problems) == {(FindingKind.GLOBAL_OUT_OF_BOUNDS, lane) for lane in (1, 3, 4, 5)}
    assert problems[0].detail == "right behind the end of an allocation of 4096 bytes (A)"
    _, problems = memory.load(u64(base + 4088), 16)
    assert (
        problems[0].detail == "8 of 16 bytes reach over the end of an allocation of 4096 bytes (A)"
    )
    assert GlobalMemory().load(u64(1 << 40), 4)[1][0].detail == "nothing is allocated"
    assert memory.load(u64(16), 4)[1][0].detail == "a null pointer, or an offset from one"


def test_misaligned_and_read_only_and_freed_are_told_apart() -> None:
    """Each kind of fault has its name, and a faulty lane changes nothing."""
    memory = GlobalMemory()
    first, second = memory.allocate(64, initialised=True), memory.allocate(64, initialised=True)
    ones = np.ones((1, 3), np.uint32)
    memory.set_readonly(second, True)
    problems = memory.store(u64(first + 2, second, first), 4, ones)
    assert found(problems) == {(FindingKind.MISALIGNED, 0), (FindingKind.READ_ONLY, 1)}
    assert memory.read(first, 8).tolist() == [1] + [0] * 7
    assert memory.read(second, 4).tolist() == [0] * 4
    assert memory.load(u64(second), 4)[1] == []
    memory.free(first)
    assert found(memory.load(u64(first), 4)[1]) == {(FindingKind.USE_AFTER_FREE, 0)}
    assert memory.allocate(64) > second


def test_bytes_that_nobody_wrote_are_seen_until_somebody_does() -> None:
    """A read is a finding if one of its bytes was never written by host or lane."""
    memory = GlobalMemory()
    base = memory.allocate(64)
    addresses = u64(base, base + 16)
    memory.write(base, np.arange(16, dtype=np.uint8))
    assert found(memory.load(addresses, 16)[1]) == {(FindingKind.UNINITIALISED_GLOBAL, 1)}
    memory.store(u64(base + 16, base + 20, base + 24), 4, np.zeros((1, 3), np.uint32))
    assert len(memory.load(addresses, 16)[1]) == 1
    memory.store(u64(base + 28), 4, np.zeros((1, 1), np.uint32))
    assert memory.load(addresses, 16)[1] == []
    memory.fill(base, 64, 0)
    assert memory.load(u64(base + 32), 32)[1] == []


def test_of_lanes_at_one_address_the_last_wins() -> None:
    """Lanes store in their order."""
    memory = GlobalMemory()
    base = memory.allocate(64)
    memory.store(u64(base, base, base), 16, np.arange(12, dtype=np.uint32).reshape(4, 3))
    assert memory.load(u64(base), 16)[0][:, 0].tolist() == [2, 5, 8, 11]


def test_the_host_may_touch_only_live_allocations() -> None:
    """Host-side accesses outside, and freeing twice, are refused in words."""
    memory = GlobalMemory()
    base = memory.allocate(16)
    with pytest.raises(ArgumentValueError, match="17 bytes"):
        memory.read(base, 17)
    memory.free(base)
    with pytest.raises(ArgumentValueError, match="no live allocation"):
        memory.free(base)
    with pytest.raises(ArgumentValueError):
        memory.allocate(0)


# ---- atomics


def change(operation: str, old: Any, value: Any, compare: Any) -> Any:
    """What one lane leaves behind."""
    match operation:
        case "ADD":
            return old + value
        case "MIN" | "MAX":
            return min(old, value) if operation == "MIN" else max(old, value)
        case "INC":
            return 0 if old >= value else old + 1
        case "DEC":
            return value if old == 0 or old > value else old - 1
        case "AND":
            return old & value
        case "OR":
            return old | value
        case "XOR":
            return old ^ value
    return value if operation == "EXCH" or old == compare else old


def one_by_one(
    cells: NDArray[Any], index: list[int], values: NDArray[Any], compare: NDArray[Any], name: str
) -> list[Any]:
    """What lanes find that go one after another."""
    old = []
    for where, value, wanted in zip(index, values, compare, strict=True):
        old.append(cells[where])
        with np.errstate(all="ignore"):
            cells[where] = change(name, cells[where], value, wanted)
    return old


ALL = ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "CAS")


@settings(deadline=None)
@given(
    st.sampled_from(ALL),
    st.sampled_from(["U32", "S32", "U64", "S64", "F32", "F64"]),
    st.lists(st.integers(0, 5), min_size=1, max_size=40),
    st.integers(0, 2**32),
)
def test_atomics_are_one_after_another(
    operation: str, kind: str, index: list[int], seed: int
) -> None:
    """Results and final values are those of lanes in turn, bit by bit, however many collide."""
    if kind[0] == "F" and operation not in ("ADD", "MIN", "MAX", "EXCH"):
        return
    if kind[0] == "S" and operation in ("INC", "DEC"):
        return
    random = np.random.default_rng(seed)
    dtype = np.dtype(ATOMIC_TYPES[kind])
    if kind[0] == "F":
        start, values, compare = (random.normal(size=n).astype(dtype) for n in (6, len(index), 1))
    else:
        high = 4 if seed % 2 else np.iinfo(dtype).max
        start, values, compare = (random.integers(0, high, n, dtype) for n in (6, len(index), 1))
    compare = np.broadcast_to(compare, len(index))
    memory = start.copy().view(np.uint8)
    words = [
        np.ascontiguousarray(a).view(np.uint32).reshape(len(index), -1).T for a in (values, compare)
    ]
    got = read_modify_write(
        memory,
        np.array(index) * dtype.itemsize,
        words[0],
        operation,
        kind=kind,
        compare=words[1],
    )
    expected = one_by_one(start, index, values, compare, operation)
    assert np.ascontiguousarray(got.T).tobytes() == np.array(expected, dtype).tobytes()
    assert memory.tobytes() == start.tobytes()


def test_halves_are_added_apart() -> None:
    """F16x2 and BF16x2 round each half to its own format."""
    one = np.array([1, 2048], np.float16).view(np.uint8)
    values = np.array([[1, 1]], np.float16).view(np.uint32)
    read_modify_write(one, np.zeros(1, np.int64), values, "ADD", kind="F16x2")
    assert one.view(np.float16).tolist() == [2, 2048]
    # 256 + 1 lies between the bfloat16 256 and 258: the tie goes to the even one.
    brain = np.array([0x4380, 0x3F80], np.uint16)
    values = np.array([0x3F80, 0x3F80], np.uint16).view(np.uint32)[None]
    read_modify_write(brain.view(np.uint8), np.zeros(1, np.int64), values, "ADD", kind="BF16x2")
    assert brain.tolist() == [0x4380, 0x4000]


def test_subnormals_are_flushed_only_where_asked() -> None:
    """F32.FTZ adds as global memory does, F32 as shared memory does."""
    tiny = np.array([1e-40], np.float32)
    for kind, kept in (("F32", True), ("F32.FTZ", False)):
        cell = tiny.copy().view(np.uint8)
        read_modify_write(cell, np.zeros(1, np.int64), tiny.view(np.uint32)[None], "ADD", kind=kind)
        assert bool(cell.view(np.float32)[0] > 0) is kept


def test_global_atomics_keep_out_of_faulty_places() -> None:
    """A faulty lane finds 0 and changes nothing, the others add up."""
    memory = GlobalMemory()
    base = memory.allocate(8)
    memory.write(base, np.zeros(4, np.uint8))
    values = np.ones((1, 4), np.uint32)
    addresses = u64(base, base, base + 8, base + 4)
    old, problems = memory.atomic(addresses, values, "ADD", kind="U32")
    assert old.tolist() == [[0, 1, 0, 0]]
    assert found(problems) == {
        (FindingKind.GLOBAL_OUT_OF_BOUNDS, 2),
        (FindingKind.UNINITIALISED_GLOBAL, 3),
    }
    assert memory.read(base, 8).view(np.uint32).tolist() == [2, 1]
    with pytest.raises(ArgumentValueError):
        memory.atomic(addresses, values, "MUL", kind="U32")
    with pytest.raises(ArgumentValueError):
        memory.atomic(addresses, values, "CAS", kind="B32")


# ---- clocks


def test_a_barrier_orders_its_members_only() -> None:
    """What a warp did before a barrier is behind its members, not behind others or later steps."""
    clocks = Clocks(2, 4)
    clocks.barrier(np.array([1]), np.array([[True, True, False, False]]))
    assert clocks.vc[1, 0].tolist() == [2, 1, 0, 0]
    assert clocks.vc[1, 1].tolist() == [1, 2, 0, 0]
    assert clocks.vc[1, 2].tolist() == [0, 0, 1, 0]
    assert clocks.floor[1].tolist() == [0, 0, 0, 0]
    assert clocks.vc[0].tolist() == np.eye(4, dtype=int).tolist()


def test_what_is_released_can_be_acquired() -> None:
    """A row hands on what came before it; several rows for one actor join."""
    clocks = Clocks(1, 4)
    zero = np.zeros(2, np.intp)
    rows = clocks.release(zero, np.array([0, 1]))
    clocks.acquire(zero, np.array([2, 2]), rows)
    assert clocks.vc[0, 2].tolist() == [1, 1, 1, 0]
    assert clocks.vc[0, 0, 0] == clocks.vc[0, 1, 1] == 2
    assert clocks.floor[0].tolist() == [0, 0, 1, 0]


# ---- shared memory


WARPS = 3


@dataclass
class Lanes:
    """Calls into shared memory with plain lists."""

    memory: SharedMemory

    def load(self, actor: list[int], offset: list[int], width: int = 4) -> Found:
        """Who reads where in domain 0."""
        return found(self.memory.load(*self.places(actor, offset), width)[1])

    def store(self, actor: list[int], offset: list[int], width: int = 4) -> Found:
        """Who writes where in domain 0."""
        values = np.zeros((max(1, width // 4), len(actor)), np.uint32)
        return found(self.memory.store(*self.places(actor, offset), width, values))

    def add(self, actor: list[int], offset: list[int]) -> Found:
        """Who adds one where in domain 0."""
        values = np.ones((1, len(actor)), np.uint32)
        places = self.places(actor, offset)
        return found(self.memory.atomic(*places, values, "ADD", kind="U32")[1])

    def copy(self, actor: list[int], offset: list[int], group: int) -> Found:
        """Thread 32 * warp of each warp copies one word asynchronously."""
        domain, who, rank, where = self.places(actor, offset)
        values = np.zeros((1, len(actor)), np.uint32)
        groups = np.full(len(actor), group)
        return found(self.memory.copy_async(domain, who, who * 32, rank, where, 4, values, groups))

    def wait(self, actor: int, groups: int) -> None:
        """Thread 32 * warp waits for its first groups."""
        who = np.array([actor], np.intp)
        self.memory.complete(who * 32, np.array([groups]), np.zeros(1, np.intp), who)

    def barrier(self, *members: int) -> None:
        """These warps meet; all, if none is named."""
        flags = np.zeros((1, WARPS + 1), np.bool_)
        flags[0, list(members or range(WARPS))] = True
        self.memory.clocks.barrier(np.zeros(1, np.intp), flags)

    @staticmethod
    def places(
        actor: list[int], offset: list[int]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
        """Domain, actor, rank and offset."""
        zero = np.zeros(len(actor), np.intp)
        return zero, np.array(actor, np.intp), zero, np.array(offset, np.int64)


@pytest.fixture
def lanes() -> Lanes:
    """Three warps of one CTA with 256 bytes, all written, behind a barrier."""
    lanes = Lanes(SharedMemory(1, 1, 256, WARPS + 1))
    assert lanes.store([0] * 16, [16 * i for i in range(16)], 16) == set()
    lanes.barrier()
    return lanes


RACE, WAIT = FindingKind.RACE, FindingKind.ASYNC_NOT_WAITED


def test_a_barrier_between_a_store_and_a_load_is_enough(lanes: Lanes) -> None:
    """Without one it is a race, of the reading lane; the writing warp itself may read."""
    assert lanes.store([0], [32]) == set()
    assert lanes.load([1, 0, 1], [32, 32, 36]) == {(RACE, 0)}
    lanes.barrier()
    assert lanes.load([1, 2], [32, 32]) == set()


def test_a_barrier_of_others_is_not_enough(lanes: Lanes) -> None:
    """Only the barrier's members are ordered."""
    lanes.store([0], [32])
    lanes.barrier(0, 1)
    assert lanes.load([1, 2], [32, 32]) == {(RACE, 1)}


def test_a_store_races_with_an_earlier_load(lanes: Lanes) -> None:
    """A buffer may be overwritten only behind a barrier after its last read; it says whose."""
    lanes.load([0, 1], [64, 64], 16)
    problems = lanes.memory.store(*lanes.places([1], [72]), 8, np.zeros((2, 1), np.uint32))
    assert found(problems) == {(RACE, 0)}
    assert problems[0].detail == "read by warp 0 since the last barrier"
    assert problems[0].other is not None and problems[0].other.tolist() == [0]
    lanes.barrier()
    assert lanes.store([2], [64]) == set()


def test_one_instruction_of_two_warps_can_race(lanes: Lanes) -> None:
    """Two warps that store to one word at once race; lanes of one warp do not."""
    assert lanes.store([1, 1], [16, 16]) == set()
    lanes.barrier()
    assert {kind for kind, _ in lanes.store([1, 2], [16, 16])} == {RACE}
    lanes.barrier()
    assert lanes.store([1, 2], [16, 20]) == set()


def test_unwritten_shared_memory_is_seen() -> None:
    """Reading a word that nobody wrote is a finding, also inside a wide load."""
    lanes = Lanes(SharedMemory(1, 1, 64, WARPS + 1))
    lanes.store([0, 0, 0], [0, 4, 8])
    assert lanes.load([0, 0], [0, 0], 8) == set()
    assert lanes.load([0], [0], 16) == {(FindingKind.UNINITIALISED_SHARED, 0)}


def test_shared_bounds_are_those_of_the_cta() -> None:
    """Neither the padding behind a CTA's bytes nor the next CTA's may be reached by an offset."""
    memory = SharedMemory(2, 2, 20, WARPS + 1)
    lanes = Lanes(memory)
    outside = FindingKind.SHARED_OUT_OF_BOUNDS
    got = lanes.store([0] * 5, [16, 20, -4, 2, 2**40])
    assert got == {(outside, 1), (outside, 2), (FindingKind.MISALIGNED, 3), (outside, 4)}
    one = np.ones(1, np.intp)
    values, problems = memory.load(one * 0, one, one * 2, one * 0, 4)
    assert values.tolist() == [[0]] and problems[0].detail == "rank 2 of a cluster of 2 CTAs"
    assert memory.store(one, one, one, one * 16, 4, np.full((1, 1), 9, np.uint32)) == []
    assert memory.data[1, 32 + 16] == 9 and int(memory.data.sum()) == 9


def test_metadata_of_words_refuses_bytes() -> None:
    """A kernel with narrow accesses needs a granularity of 1, which keeps neighbours apart."""
    with pytest.raises(ArgumentValueError, match="granularity"):
        Lanes(SharedMemory(1, 1, 64, WARPS + 1)).store([0], [0], 1)
    fine = Lanes(SharedMemory(1, 1, 64, WARPS + 1, granularity=1))
    assert fine.store([0, 1], [0, 1], 1) == set()
    assert fine.load([0], [0], 2) == {(RACE, 0)}


def test_atomics_race_with_plain_accesses_only(lanes: Lanes) -> None:
    """All warps may add to one word at once; reading the sum needs a barrier."""
    assert lanes.add([0, 1, 2, 0], [0, 0, 0, 0]) == set()
    assert lanes.add([1], [0]) == set()
    assert lanes.load([0], [0]) == {(RACE, 0)}
    lanes.barrier()
    assert lanes.load([0], [0]) == set()
    assert int(lanes.memory.data[0, 0]) == 5
    assert lanes.add([1], [0]) == {(RACE, 0)}


def test_a_lock_orders_what_it_guards(lanes: Lanes) -> None:
    """What one warp wrote before an atomic is behind another's atomic on the same word."""
    lanes.add([0], [0])
    lanes.store([0], [64])
    lanes.add([0], [0])
    lanes.add([1], [0])
    assert lanes.load([1], [64]) == set()
    lanes.add([2], [4])
    assert lanes.load([2], [64]) == {(RACE, 0)}


def test_a_copy_must_be_waited_for(lanes: Lanes) -> None:
    """Its own thread must wait; other warps need a barrier after that wait, not before."""
    assert lanes.copy([0, 1], [0, 4], 0) == set()
    assert lanes.load([0, 1], [0, 8]) == {(WAIT, 0)}
    lanes.barrier()
    assert lanes.store([1, 2], [4, 12]) == {(WAIT, 0)}
    lanes.copy([0], [16], 1)
    lanes.wait(0, 1)
    assert lanes.load([0, 0], [0, 16]) == {(WAIT, 1)}
    assert lanes.load([2], [0]) == {(RACE, 0)}
    lanes.barrier()
    assert lanes.load([2, 1], [0, 4]) == set()


def test_a_bulk_copy_needs_its_mbarrier(lanes: Lanes) -> None:
    """Who has the copy's clock may read, others not; its issuer must be behind earlier reads."""
    data = np.arange(64, dtype=np.uint8)
    lanes.load([1], [0])
    tick, problems = lanes.memory.store_bulk(0, 0, 0, 0, data)
    assert found(problems) == {(RACE, 0)}
    assert lanes.load([1], [32]) == {(WAIT, 0)}
    row = np.zeros((1, WARPS + 1), np.int32)
    row[0, -1] = tick
    lanes.memory.clocks.acquire(np.zeros(1, np.intp), np.array([1]), row)
    assert lanes.load([1, 2], [32, 36]) == {(WAIT, 1)}
    again, problems = lanes.memory.store_bulk(0, 1, 0, 128, data)
    assert problems == [] and again == tick + 1
    _, problems = lanes.memory.store_bulk(0, 1, 0, 224, data)
    assert found(problems) == {(FindingKind.SHARED_OUT_OF_BOUNDS, 0)}


# ---- against a model that goes byte by byte


@dataclass
class Unit:
    """What a plain model knows of one unit."""

    written: bool = False
    writer: int = 0
    clock: int = 0
    atomic: bool = False
    bulk: bool = False
    pending: tuple[int, int] | None = None
    reads: dict[int, int] = field(default_factory=dict)
    lock: dict[int, int] = field(default_factory=dict)


class Model:
    """Happens-before by the book, one lane and one unit at a time, for one domain."""

    def __init__(self, actors: int, granularity: int) -> None:
        self.rows = [[int(i == j) for j in range(actors)] for i in range(actors)]
        self.granularity = granularity
        self.units: dict[int, Unit] = {}

    def of(self, offset: int, width: int) -> list[Unit]:
        """The units of an access."""
        first, last = offset // self.granularity, (offset + width) // self.granularity
        return [self.units.setdefault(number, Unit()) for number in range(first, last)]

    def barrier(self, members: list[int]) -> None:
        """Join the members' rows."""
        joined = [max(self.rows[m][j] for m in members) for j in range(len(self.rows))]
        for member in members:
            self.rows[member] = joined.copy()
            self.rows[member][member] += 1

    def against_write(self, actor: int, unit: Unit, *, atomic: bool = False) -> set[FindingKind]:
        """Hold an access against the last write."""
        if unit.pending is not None:
            return {WAIT}
        if unit.clock <= self.rows[actor][unit.writer] or (atomic and unit.atomic):
            return set()
        return {WAIT if unit.bulk else RACE}

    def load(self, actor: list[int], offset: list[int], width: int) -> Found:
        """Plain reads."""
        out: Found = set()
        for lane, (who, where) in enumerate(zip(actor, offset, strict=True)):
            for unit in self.of(where, width):
                out |= {(kind, lane) for kind in self.against_write(who, unit)}
                if not unit.written:
                    out.add((FindingKind.UNINITIALISED_SHARED, lane))
                unit.reads[who] = self.rows[who][who]
        return out

    def changes(self, who: int, unit: Unit, *, atomic: bool = False) -> set[FindingKind]:
        """Hold a write against the last write and all reads."""
        kinds = self.against_write(who, unit, atomic=atomic)
        if any(clock > self.rows[who][other] for other, clock in unit.reads.items()):
            kinds.add(RACE)
        return kinds

    def store(
        self,
        actor: list[int],
        offset: list[int],
        width: int,
        pending: list[tuple[int, int]] | None = None,
    ) -> Found:
        """Plain writes and, with a thread and a group for each lane, asynchronous copies."""
        out: Found = set()
        places = [self.of(where, width) for where in offset]
        for lane, who in enumerate(actor):
            for unit in places[lane]:
                out |= {(kind, lane) for kind in self.changes(who, unit)}
        for lane, who in enumerate(actor):
            for unit in places[lane]:
                unit.written, unit.writer, unit.clock = True, who, self.rows[who][who]
                unit.atomic = unit.bulk = False
                unit.pending = None if pending is None else pending[lane]
        for lane, who in enumerate(actor):
            if any(unit.writer != who for unit in places[lane]):
                out.add((RACE, lane))
        return out

    def atomic(self, actor: list[int], offset: list[int]) -> Found:
        """Atomic additions to words, actor by actor."""
        out: Found = set()
        places = [self.of(where, 4) for where in offset]
        when = [0] * len(actor)
        for who in dict.fromkeys(actor):
            mine = [lane for lane, other in enumerate(actor) if other == who]
            row = self.rows[who]
            for lane in mine:
                for other, clock in places[lane][0].lock.items():
                    row[other] = max(row[other], clock)
            for lane in mine:
                when[lane] = row[who]
                for unit in places[lane]:
                    out |= {(kind, lane) for kind in self.changes(who, unit, atomic=True)}
                    if not unit.written:
                        out.add((FindingKind.UNINITIALISED_SHARED, lane))
            for lane in mine:
                lock = places[lane][0].lock
                lock.update({j: max(lock.get(j, 0), clock) for j, clock in enumerate(row)})
            row[who] += 1
        for lane, who in enumerate(actor):
            for unit in places[lane]:
                unit.written, unit.writer, unit.clock = True, who, when[lane]
                unit.atomic, unit.bulk, unit.pending = True, False, None
        return out

    def complete(self, thread: int, groups: int, actor: int) -> None:
        """A thread waited."""
        for unit in self.units.values():
            if unit.pending is not None and unit.pending[0] == thread and unit.pending[1] < groups:
                unit.pending, unit.clock = None, self.rows[actor][actor]

    def bulk(self, issuer: int, offset: int, nbytes: int) -> tuple[int, set[FindingKind]]:
        """A bulk copy."""
        proxy = len(self.rows) - 1
        self.rows[proxy][proxy] += 1
        kinds: set[FindingKind] = set()
        for unit in self.of(offset, nbytes):
            kinds |= self.changes(issuer, unit)
            unit.written, unit.writer, unit.clock = True, proxy, self.rows[proxy][proxy]
            unit.bulk, unit.atomic, unit.pending = True, False, None
        return self.rows[proxy][proxy], kinds


@dataclass
class Race:
    """One random program, run by the shared memory and by a model for each of its domains."""

    random: np.random.Generator
    granularity: int
    groups: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory = SharedMemory(2, 1, 64, WARPS + 1, granularity=self.granularity)
        self.models = [Model(WARPS + 1, self.granularity) for _ in range(2)]

    def step(self) -> None:
        """One instruction of some lanes, or one synchronisation."""
        choice = int(self.random.integers(10))
        if choice < 7:
            self.access(("load", "load", "load", "store", "store", "atomic", "copy")[choice])
        elif choice == 7:
            self.meet()
        elif choice == 8:
            self.wait()
        else:
            self.bulk()

    def access(self, name: str) -> None:
        """Lanes of both domains access at once."""
        n = int(self.random.integers(1, 6))
        domain = np.sort(self.random.integers(0, 2, n))
        actor = self.random.integers(0, WARPS, n)
        narrow = [1, 2] if self.granularity == 1 and name in ("load", "store") else []
        width = 4 if name == "atomic" else int(self.random.choice([*narrow, 4, 8, 16]))
        offset = self.random.integers(0, 64 // width, n) * width
        values = self.random.integers(0, 2**32, (max(1, width // 4), n), np.uint32)
        places = (domain, actor, np.zeros(n, np.intp), offset)
        group = np.array([self.groups.get((d, a), 0) for d, a in zip(domain, actor, strict=True)])
        match name:
            case "load":
                _, problems = self.memory.load(*places, width)
            case "store":
                problems = self.memory.store(*places, width, values)
            case "atomic":
                _, problems = self.memory.atomic(*places, values, "ADD", kind="U32")
            case _:
                problems = self.memory.copy_async(
                    domain, actor, actor * 32, places[2], offset, width, values, group
                )
        expected: Found = set()
        for number, model in enumerate(self.models):
            mine = np.flatnonzero(domain == number)
            who, where = actor[mine].tolist(), offset[mine].tolist()
            match name:
                case "load":
                    inner = model.load(who, where, width)
                case "store":
                    inner = model.store(who, where, width)
                case "atomic":
                    inner = model.atomic(who, where)
                case _:
                    tags = [(w * 32, g) for w, g in zip(who, group[mine].tolist(), strict=True)]
                    inner = model.store(who, where, width, tags)
            expected |= {(kind, int(mine[lane])) for kind, lane in inner}
        assert found(problems) == expected

    def meet(self) -> None:
        """Some warps of one domain, or all warps of both."""
        flags = np.zeros((2, WARPS + 1), np.bool_)
        flags[:, :WARPS] = True if self.random.integers(2) else self.random.integers(0, 2, WARPS)
        self.memory.clocks.barrier(np.arange(2), flags)
        for model, members in zip(self.models, flags, strict=True):
            if members.any():
                model.barrier(np.flatnonzero(members).tolist())

    def wait(self) -> None:
        """A warp commits, and waits for all its groups or all but the last."""
        domain, actor = int(self.random.integers(2)), int(self.random.integers(WARPS))
        count = self.groups.get((domain, actor), 0) + 1
        self.groups[domain, actor] = count
        count -= int(self.random.integers(2))
        who = np.array([actor], np.intp)
        self.memory.complete(who * 32, np.array([count]), np.array([domain], np.intp), who)
        self.models[domain].complete(actor * 32, count, actor)

    def bulk(self) -> None:
        """A bulk copy, which some warp may wait for."""
        domain, issuer, reader = (int(self.random.integers(top)) for top in (2, WARPS, WARPS))
        offset = int(self.random.integers(3)) * 16
        tick, problems = self.memory.store_bulk(domain, issuer, 0, offset, np.zeros(16, np.uint8))
        expected, kinds = self.models[domain].bulk(issuer, offset, 16)
        assert tick == expected and {problem.kind for problem in problems} == kinds
        if self.random.integers(2):
            row = np.zeros((1, WARPS + 1), np.int32)
            row[0, -1] = tick
            self.memory.clocks.acquire(np.array([domain]), np.array([reader]), row)
            self.models[domain].rows[reader][-1] = max(self.models[domain].rows[reader][-1], tick)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from([1, 4]))
def test_random_programs_are_judged_as_by_the_book(seed: int, granularity: int) -> None:
    """Shortcuts neither hide a race nor invent one."""
    race = Race(np.random.default_rng(seed), granularity)
    for _ in range(60):
        race.step()
