"""Loads, stores, copies and atomics: where they go and what they count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.front import Front, Mask
from lowgemm.emulator.integer import put_predicate
from lowgemm.emulator.operation import Run, maker
from lowgemm.emulator.wavefronts import PatternCache
from lowgemm.emulator.word import PT, RZ, Word

if TYPE_CHECKING:
    from lowgemm.emulator.batch import Batch

__all__ = ["GENERIC_CAS", "LOCAL_WINDOW", "SHARED_CAS", "SHARED_WINDOW", "Site"]

U32 = np.uint32
U64 = np.uint64
Lanes = NDArray[np.intp] | None

#: Where generic addresses of shared and of local memory begin. A GPU's are others.
SHARED_WINDOW = 0x7A00_0000_0000
LOCAL_WINDOW = 0x7B00_0000_0000
_WINDOW_BYTES = U64(1 << 32)
#: The CTA's rank in its cluster stands above the 24 bits of an address in shared memory.
_RANK_SHIFT = 24
_OFFSET_MASK = np.int64((1 << _RANK_SHIFT) - 1)
_WIDTH_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}
_SIGNED_BITS = {1: 8, 3: 16}


@dataclass(slots=True)
class Site:
    """One instruction that accesses memory: its place, its width and its pattern's memory.

    ``passes`` is how often an atomic operation on shared memory goes through it, 0 for what is
    none; ``bypass`` says that an asynchronous copy goes around L1.
    """

    index: int
    width: int
    store: bool
    merge: bool = True
    passes: int = 0
    bypass: bool = False
    cache: PatternCache = field(default_factory=PatternCache)


def _site(w: Word, width: int, *, store: bool, **settings: Any) -> Site:
    return Site(w.instruction.address // 16, width, store, **settings)


def _size(w: Word) -> tuple[int, int | None]:
    """Bytes of an access (bits 73-75), and the bits that are extended with their sign."""
    code = w.take(73, 3)
    if code not in _WIDTH_BYTES:
        raise w.unknown("an access of unknown width")
    return _WIDTH_BYTES[code], _SIGNED_BITS.get(code)


def _sign_extended(values: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    shift = np.int32(32 - bits)
    return (values.view(np.int32) << shift >> shift).view(U32)


# ---- addresses

Address = Callable[[Front, Lanes], Any]


def _global_address(w: Word, offset_at: int = 40, offset_bits: int = 24, at: int = 24) -> Address:
    """A 64-bit address in a pair of registers and an immediate."""
    if w.flag(72):
        pair = w.reader64(at)
    else:
        narrow = w.reader(at)
        pair = lambda f: narrow(f).astype(U64)  # noqa: E731
    offset = U64(w.signed(offset_at, offset_bits) & (1 << 64) - 1)
    return lambda f, lanes: f.chosen(pair(f), lanes) + offset


def _ignore_hints(w: Word) -> None:
    """Scope (77-80), eviction (84-86), prefetch size (68-69): nothing that changes a value."""
    w.ignore(77, 4)
    w.ignore(84, 3)


def _ignore_descriptor(w: Word, at: int, offset_flag: int) -> None:
    """A memory descriptor in a uniform register: the rights and caching of an address space."""
    if not w.has_uniform:
        return
    w.ignore(at, 8)
    w.ignore(90)
    w.ignore(101)
    if not w.flag(offset_flag):
        raise w.unknown("an address with a uniform offset")


def _shared_address(w: Word, uniform_at: int | None) -> Address:
    """An address in shared memory: a register, perhaps scaled, a uniform register, an immediate."""
    base = w.reader(24, uniform=False)
    scale = w.take(78, 2)
    offset = w.signed(40, 24)
    extra = None
    if uniform_at is not None and w.has_uniform:
        extra = w.reader(uniform_at, uniform=True)
    shift = U32((0, 2, 3, 4)[scale])
    added = U32(offset & 0xFFFFFFFF)

    def address(f: Front, lanes: Lanes) -> Any:
        value = base(f)
        if scale:
            value = value << shift
        if extra is not None:
            value = value + extra(f)
        return (f.chosen(value, lanes) + added).astype(np.int64)

    return address


# ---- loads and stores

#: What a batch does for a load, and for a store.
Load = Callable[["Batch"], Callable[[Site, Front, Lanes, Any], NDArray[np.uint32]]]
Store = Callable[["Batch"], Callable[[Site, Front, Lanes, Any, NDArray[np.uint32]], None]]


def _load(
    w: Word, address: Address, number: int, width: int, signed: int | None, load: Load
) -> Run:
    """Run a load: its values, extended with their sign where they have one, into registers."""
    site = _site(w, width, store=False)

    def run(f: Front, m: Mask) -> None:
        lanes = f.lanes(m)
        values = load(f.batch)(site, f, lanes, address(f, lanes))
        f.put_words(number, _sign_extended(values, signed) if signed else values, lanes)

    return run


def _store(w: Word, address: Address, number: int, width: int, store: Store) -> Run:
    """Run a store of registers."""
    site, count = _site(w, width, store=True), max(1, width // 4)

    def run(f: Front, m: Mask) -> None:
        lanes = f.lanes(m)
        store(f.batch)(site, f, lanes, address(f, lanes), f.words(number, count, lanes))

    return run


# ---- global, generic


@maker("LDG", "LD")
def _ldg(w: Word) -> Run:
    generic = w.instruction.name == "LD"
    if w.instruction.low & 0x1FF == 0x17E:
        return _load_256(w)
    width, signed = _size(w)
    if generic and not w.has_uniform:
        address = _global_address(w, 32, 32)
    else:
        address = _global_address(w)
        _ignore_descriptor(w, 32, 76)
    _ignore_hints(w)
    w.ignore(68, 2)
    w.ignore(70, 2)
    if w.take(64, 4) not in (0, PT):
        raise w.unknown("a load's predicate")
    if w.take(81, 3) not in (0, PT):
        raise w.unknown("a load's predicate")
    number = w.destination(count=max(1, width // 4))
    return _load(
        w, address, number, width, signed,
        lambda batch: batch.load_generic if generic else batch.load_global,
    )  # fmt: skip


@maker("STG", "ST")
def _stg(w: Word) -> Run:
    generic = w.instruction.name == "ST"
    if w.instruction.low & 0x1FF == 0x17F:
        return _store_256(w)
    width, _ = _size(w)
    if generic and not w.has_uniform:
        address, data_at = _global_address(w, 32, 32), 64
    else:
        address, data_at = _global_address(w), 32
        _ignore_descriptor(w, 64, 76)
    _ignore_hints(w)
    w.ignore(87, 4)
    number = w.register(data_at, count=max(1, width // 4))
    return _store(
        w, address, number, width,
        lambda batch: batch.store_generic if generic else batch.store_global,
    )  # fmt: skip


def _address_256(w: Word, bits: int, mask: tuple[tuple[int, int], ...]) -> Address:
    """The address of 256 bits: the immediate counts in 32 bytes; a mask of words is all set."""
    w.ignore(72)
    pair = w.reader64(24)
    offset = U64(32 * w.signed(40, bits) & (1 << 64) - 1)
    for at, width in mask:
        if w.take(at, width) != (1 << width) - 1:
            raise w.unknown("an access to some of 256 bits")
    return lambda f, lanes: f.chosen(pair(f), lanes) + offset


def _load_256(w: Word) -> Run:
    w.ignore(73, 3)
    w.ignore(81, 3)
    address = _address_256(w, 17, ((57, 7),))
    _ignore_descriptor(w, 32, 76)
    _ignore_hints(w)
    w.ignore(87, 4)
    low, high = w.destination(16, count=4), w.destination(64, count=4)
    site = _site(w, 32, store=False)

    def run(f: Front, m: Mask) -> None:
        lanes = f.lanes(m)
        values = f.batch.load_global(site, f, lanes, address(f, lanes))
        f.put_words(low, values[:4], lanes)
        f.put_words(high, values[4:], lanes)

    return run


def _store_256(w: Word) -> Run:
    w.ignore(73, 3)
    w.ignore(81, 3)
    address = _address_256(w, 19, ((59, 5),))
    w.ignore(76)
    w.ignore(88, 3)
    _ignore_hints(w)
    w.ignore(87)
    w.ignore(101)
    w.ignore(64, 8)
    low, high = w.register(32, count=4), w.register(16, count=4)
    site = _site(w, 32, store=True)

    def run(f: Front, m: Mask) -> None:
        lanes = f.lanes(m)
        words = np.concatenate([f.words(each, 4, lanes) for each in (low, high)])
        f.batch.store_global(site, f, lanes, address(f, lanes), words)

    return run


# ---- shared, local, constant


@maker("LDS")
def _lds(w: Word) -> Run:
    width, signed = _size(w)
    address = _shared_address(w, 32)
    w.ignore(76, 2)
    number = w.destination(count=max(1, width // 4))
    return _load(w, address, number, width, signed, lambda batch: batch.load_shared)


@maker("STS")
def _sts(w: Word) -> Run:
    width, _ = _size(w)
    address = _shared_address(w, 64)
    w.ignore(76, 2)
    number = w.register(32, uniform=False, count=max(1, width // 4))
    return _store(w, address, number, width, lambda batch: batch.store_shared)


@maker("LDL")
def _ldl(w: Word) -> Run:
    width, signed = _size(w)
    address = _shared_address(w, 32)
    _ignore_hints(w)
    number = w.destination(count=max(1, width // 4))
    return _load(w, address, number, width, signed, lambda batch: batch.load_local)


@maker("STL")
def _stl(w: Word) -> Run:
    width, _ = _size(w)
    address = _shared_address(w, 64)
    _ignore_hints(w)
    number = w.register(32, uniform=False, count=max(1, width // 4))
    return _store(w, address, number, width, lambda batch: batch.store_local)


@maker("LDC")
def _ldc(w: Word) -> Run:
    width, signed = _size(w)
    if w.take(78, 2) or w.has_uniform:
        raise w.unknown("a constant bank through a descriptor")
    bank, offset = w.take(54, 5), w.signed(38, 16)
    index = w.reader(24)
    number = w.destination(count=max(1, width // 4))

    def run(f: Front, m: Mask) -> None:
        lanes = f.lanes(m)
        at = f.chosen(index(f), lanes).astype(np.int64) + offset
        values = f.batch.constants.gather(bank, at & 0xFFFFFFFF, width)
        f.put_words(number, _sign_extended(values, signed) if signed else values, lanes)

    return run


@maker("ULDC", "LDCU")
def _uldc(w: Word) -> Run:
    width, signed = _size(w)
    is_new = w.instruction.name == "LDCU"
    operation = w.instruction.low & 0x1FF
    index = None
    if is_new:
        if w.form.name not in ("Rc",):
            raise w.unknown("a constant bank through a descriptor")
        offset, index = w.signed(37, 17), w.reader(24, uniform=True)
    else:
        if operation == 0x0B8 or (operation == 0x0B9 and w.has_uniform):
            raise w.unknown("a constant bank through a descriptor")
        offset = w.signed(38, 16)
        if operation == 0x0BB:
            index = w.reader(24, uniform=True)
        w.ignore(24, 8)
    bank = w.take(54, 5)
    w.ignore(59)
    count = max(1, width // 4)
    number = w.destination(uniform=True, count=count)

    def run(f: Front, m: Mask) -> None:
        base = np.zeros((1, 1), np.int64) if index is None else index(f).astype(np.int64)
        at = np.broadcast_to(base + offset, (f.count, 1)).reshape(-1)
        values = f.batch.constants.gather(bank, at & 0xFFFFFFFF, width)
        if signed:
            values = _sign_extended(values, signed)
        for word in range(count):
            f.put_uniform(number + word if number != RZ else RZ, values[word][:, None], m)

    return run


# ---- asynchronous copies


@maker("LDGSTS")
def _ldgsts(w: Word) -> Run:
    new = w.arch.major >= 10
    code = w.take(74, 2) if new else w.take(73, 3)
    widths = {0: 4, 1: 8, 2: 16} if new else {4: 4, 5: 8, 6: 16}
    if code not in widths:
        raise w.unknown("a copy of unknown width")
    width = widths[code]
    w.ignore(72 if new else 71, 2)
    pair, offset = w.reader64(24), U64(w.signed(32, 12) & (1 << 64) - 1)
    shared = w.reader(16)
    shared_offset = w.signed(44, 20)
    w.ignore(64, 8 if new else 6)
    w.ignore(70)
    w.ignore(101)
    if not w.flag(76):
        raise w.unknown("an address with a uniform offset")
    w.ignore(77, 4)
    bypass = not w.flag(81)
    partial = w.flag(82)
    w.ignore(83, 4)
    predicate = w.predicate(87, uniform=False)
    site = _site(w, width, store=True, merge=False, bypass=bypass)
    loads = _site(w, width, store=False, bypass=bypass)

    def run(f: Front, m: Mask) -> None:
        lanes = f.lanes(m)
        where = (f.chosen(shared(f), lanes) + U32(shared_offset & 0xFFFFFFFF)).astype(np.int64)
        source = f.chosen(pair(f), lanes) + offset
        reads = f.chosen(predicate(f), lanes)
        f.batch.copy_async((site, loads), f, lanes, where, source, reads, partial)

    return run


@maker("LDGDEPBAR")
def _ldgdepbar(w: Word) -> Run:
    def run(f: Front, m: Mask) -> None:
        f.batch.commit_copies(f, f.lanes(m))

    return run


@maker("DEPBAR")
def _depbar(w: Word) -> Run:
    waits_for_copies = w.flag(47)
    w.ignore(32, 6)
    left = w.take(38, 6)
    if not waits_for_copies:
        return lambda f, m: None
    if w.take(44, 3):
        raise w.unknown("copies counted on a scoreboard other than SB0")

    def run(f: Front, m: Mask) -> None:
        f.batch.wait_for_copies(f, f.lanes(m), left)
        f.batch.bulk_groups.wait(f, m, left)

    return run


# ---- atomics

#: The opcode of ATOMS.CAS and ATOMS.CAST.
SHARED_CAS = 0x18D
#: That of ATOMS.POPC.INC and ATOMS.ARRIVE.
SHARED_ARRIVE = 0x18C
_ARRIVE = 9
#: That of ATOM.CAS.
GENERIC_CAS = 0x18B
_COMPARED_TYPES = {0: "B32", 1: "B32", 2: "B64"}
_OPERATIONS = ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH")
_OLD_TYPES = {0: "U32", 1: "S32", 2: "U64", 3: "F32", 4: "F16x2", 5: "S64", 6: "F64"}
_NEW_TYPES = {0: "U32", 1: "S32", 2: "U64", 3: "S64"}
_FLOAT_TYPES = {0: "F16x2", 3: "BF16x2", 9: "F32", 12: "F32", 15: "F64"}
_BYTES = {"U32": 4, "S32": 4, "U64": 8, "S64": 8, "F32": 4, "F16x2": 4, "BF16x2": 4, "F64": 8}


def _atomic_kind(w: Word, *, floating: bool) -> tuple[str, str]:
    """Operation (bits 87-90) and type (73-76) of an atomic; bit 90 of REDG is set always."""
    operations: tuple[str, ...] = _OPERATIONS
    if floating:
        code, number = w.take(73, 4), w.take(87, 3)
        kinds, operations = _FLOAT_TYPES, ("ADD", "", "MIN", "", "MAX", "", "", "")
        w.ignore(90)
    elif w.instruction.name in ("RED", "REDG"):
        code, number = w.take(73, 3), w.take(87, 3)
        kinds = _NEW_TYPES if w.arch.major >= 9 else _OLD_TYPES
        w.ignore(76)
        w.ignore(90)
    else:
        code, number = w.take(73, 3), w.take(87, 4)
        kinds = _NEW_TYPES if w.arch.major >= 9 else _OLD_TYPES
        w.ignore(76)
    if number >= len(operations) or not operations[number] or code not in kinds:
        raise w.unknown("an atomic of unknown kind")
    return operations[number], kinds[code]


@maker("ATOM", "ATOMG", "RED", "REDG")
def _atomic(w: Word) -> Run:
    number = w.instruction.low & 0x1FF
    generic = w.instruction.name == "ATOM"
    if number in (GENERIC_CAS, 0x1A9):
        return _compare_and_swap(w, generic)
    reduces = w.instruction.name in ("RED", "REDG")
    floating = number in (0x1A2, 0x1A3, 0x1A6)
    operation, kind = _atomic_kind(w, floating=floating)
    count = _BYTES[kind] // 4
    # With a descriptor from sm_100 on, bit 63 belongs to it.
    short = w.arch.major >= 10 and w.has_uniform and not reduces
    address = _global_address(w, 40, 23 if short else 24)
    data = w.register(32, uniform=False, count=count)
    _atomic_descriptor(w)
    destination = RZ
    done = None
    if not reduces:
        destination = w.destination(count=count)
        done = put_predicate(w, 81)
        if done is not None and not generic:
            raise w.unknown("the predicate of an atomic")
    else:
        w.ignore(81, 3)
    w.ignore(77, 4)
    w.ignore(84, 3)
    site = _site(w, _BYTES[kind], store=True)

    def run(f: Front, m: Mask) -> None:
        lanes = f.lanes(m)
        if done is not None:
            # Of a generic address the operation is done in global memory alone: the predicate
            # says so, and where it is false the code goes on to do it otherwise.
            here = ~np.logical_or(*spaces(address(f, None))).reshape(f.count, 32)
            done(f, here, m)
            lanes = f.lanes(here if m is None else here & m)
            if lanes is not None and not len(lanes):
                return
        old = f.batch.atomic_global(
            site, f, lanes, address(f, lanes), f.words(data, count, lanes),
            (operation, kind, None), generic=generic,
        )  # fmt: skip
        f.put_words(destination, old, lanes)

    return run


def _atomic_descriptor(w: Word) -> None:
    if not w.has_uniform:
        return
    if w.arch.major >= 10:
        w.ignore(63, 9)
        w.ignore(76)
    else:
        w.ignore(64, 6)
        if not w.flag(71):
            raise w.unknown("an address with a uniform offset")
        w.ignore(70)
    w.ignore(101)


def _compared_type(w: Word) -> str:
    """What a compare-and-swap compares (bits 73-75)."""
    code = w.take(73, 3)
    if code not in _COMPARED_TYPES:
        raise w.unknown("a comparison of this width")
    return _COMPARED_TYPES[code]


def _compare_and_swap(w: Word, generic: bool) -> Run:
    kind = _compared_type(w)
    tests = w.take(87, 2)  # CAST: a predicate or 1 says that it swapped
    w.ignore(89, 2)
    count = 2 if kind == "B64" else 1
    address = _global_address(w)
    compare = w.register(32, uniform=False, count=count)
    swap = w.register(64, uniform=False, count=count)
    if w.take(81, 3) != PT:
        raise w.unknown("the predicate of an atomic")
    w.ignore(76, 5)
    w.ignore(84, 3)
    destination = w.destination(count=count)
    site = _site(w, 4 * count, store=True)

    def run(f: Front, m: Mask) -> None:
        lanes = f.lanes(m)
        expected = f.words(compare, count, lanes)
        old = f.batch.atomic_global(
            site, f, lanes, address(f, lanes), f.words(swap, count, lanes),
            ("CAS", kind, expected), generic=generic,
        )  # fmt: skip
        f.put_words(destination, _whether(old, expected) if tests & 1 else old, lanes)

    return run


@maker("ATOMS")
def _atoms(w: Word) -> Run:
    number = w.instruction.low & 0x1FF
    if number == SHARED_CAS:
        return _shared_compare_and_swap(w)
    if w.form.value == 7:
        return _population_increment(w)
    code, operation = w.take(73, 3), w.take(87, 4)
    kinds = {0: "U32", 1: "S32", 2: "U64"}
    if code not in kinds or operation >= len(_OPERATIONS):
        raise w.unknown("an atomic of unknown kind")
    kind, name = kinds[code], _OPERATIONS[operation]
    count = _BYTES[kind] // 4
    address = _shared_address(w, 64)
    data = w.register(32, uniform=False, count=count)
    destination = w.destination(count=count)
    w.ignore(76, 2)
    w.ignore(81, 6)
    site = _site(w, 4 * count, store=True, passes=1)

    def run(f: Front, m: Mask) -> None:
        lanes = f.lanes(m)
        old = f.batch.atomic_shared(
            site, f, lanes, address(f, lanes), f.words(data, count, lanes), (name, kind, None)
        )
        f.put_words(destination, old, lanes)

    return run


def _population_increment(w: Word) -> Run:
    """ATOMS.POPC.INC: each executing lane adds one; ATOMS.ARRIVE.64: mbarrier.arrive before sm_90.

    Both give the value before.
    """
    size, operation = w.take(73, 3), w.take(87, 4)
    addend: tuple[int, ...]
    if is_memory_arrival(w.instruction.low, w.instruction.high):
        addend, act = (0, 0), ("ARRIVE", "U64", None)
    elif size == 0 and operation in (10, 11):
        addend, act = (1,), ("ADD", "U32", None)
    else:
        raise w.unknown("an atomic of unknown kind")
    address = _shared_address(w, 64)
    w.ignore(70, 2)
    w.ignore(76, 2)
    w.ignore(81, 6)
    w.ignore(32, 8)
    destination = w.destination(count=len(addend))
    site = _site(w, 4 * len(addend), store=True, passes=1)

    def run(f: Front, m: Mask) -> None:
        lanes = f.lanes(m)
        where = address(f, lanes)
        operand = np.repeat(np.array(addend, U32)[:, None], len(where), axis=1)
        old = f.batch.atomic_shared(site, f, lanes, where, operand, act)
        f.put_words(destination, old, lanes)

    return run


def is_memory_arrival(low: int, high: int) -> bool:
    """Whether an instruction is ATOMS.ARRIVE.64."""
    return low & 0x1FF == SHARED_ARRIVE and high >> 23 & 15 == _ARRIVE and high >> 9 & 7 == 2


def _whether(old: NDArray[np.uint32], expected: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """CAST: 1 if swapped, otherwise 0, as wide as what was compared."""
    answer = np.zeros_like(old)
    answer[0] = (old == expected).all(axis=0)
    return answer


def _shared_compare_and_swap(w: Word) -> Run:
    kind = _compared_type(w)
    count = 2 if kind == "B64" else 1
    tests = w.take(87, 2)
    w.ignore(89, 2)
    address = _shared_address(w, None)
    compare = w.register(32, uniform=False, count=count)
    swap = w.register(64, uniform=False, count=count)
    w.ignore(76, 2)
    found = put_predicate(w, 81) if w.form.value == 2 else None
    w.ignore(81, 6)
    destination = RZ if w.form.value == 2 else w.destination(count=count)
    w.ignore(16, 8)
    site = _site(w, 4 * count, store=True, passes=2)

    def run(f: Front, m: Mask) -> None:
        lanes = f.lanes(m)
        expected = f.words(compare, count, lanes)
        old = f.batch.atomic_shared(
            site, f, lanes, address(f, lanes), f.words(swap, count, lanes), ("CAS", kind, expected)
        )
        f.put_words(destination, _whether(old, expected) if tests & 1 else old, lanes)
        if found is not None:
            full = np.zeros(f.count * 32, bool)
            full[slice(None) if lanes is None else lanes] = (old == expected).all(axis=0)
            found(f, full.reshape(f.count, 32), m)

    return run


@maker("QSPC")
def _qspc(w: Word) -> Run:
    """Whether a generic address lies in a space: 0 global, 1 local, 2 shared, 3 distributed."""
    space = w.take(73, 2)
    address = _global_address(w)
    found = put_predicate(w, 81)
    w.destination()
    w.ignore(32, 8)
    if w.has_uniform:
        raise w.unknown("an address with a uniform offset")

    def run(f: Front, m: Mask) -> None:
        where = address(f, None).reshape(f.count, 32)
        shared, local = spaces(where)
        answer = (~shared & ~local, local, shared, shared)[space]
        if found is not None:
            found(f, answer, m)

    return run


def spaces(where: NDArray[np.uint64]) -> tuple[Any, Any]:
    """Which generic addresses are of shared and which of local memory."""
    return where - U64(SHARED_WINDOW) < _WINDOW_BYTES, where - U64(LOCAL_WINDOW) < _WINDOW_BYTES


def rank_and_offset(
    address: NDArray[np.int64], base: int
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """The CTA's rank in its cluster, and the byte behind what the system reserves."""
    return address >> _RANK_SHIFT, (address & _OFFSET_MASK) - base
