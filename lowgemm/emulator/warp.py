"""What lanes of a warp tell each other, and what a thread can ask of the machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowgemm.emulator.front import Front, Mask
from lowgemm.emulator.integer import put32, put64, put_predicate
from lowgemm.emulator.operation import Run, maker
from lowgemm.emulator.word import Word

__all__: list[str] = []

U32 = np.uint32
U64 = np.uint64
_LANES = np.arange(32)
_ALL = U32(0xFFFFFFFF)


@maker("VOTE", "VOTEU")
def _vote(w: Word) -> Run:
    kind = w.take(72, 2)
    if kind == 3:
        raise w.unknown("no such vote")
    uniform = w.instruction.name == "VOTEU"
    number = w.destination(16, uniform=uniform)
    found = put_predicate(w, 81, uniform=uniform)
    # VOTEU asks a predicate of the lanes as well.
    predicate = w.predicate(87, uniform=False)

    def run(f: Front, m: Mask) -> None:
        lanes = f.members(m)
        yes = lanes & predicate(f)
        bits = f.mask_bits(yes)
        everyone = f.mask_bits(lanes)
        result = (bits == everyone, bits != 0, (bits == everyone) | (bits == 0))[kind]
        if uniform:
            f.put_uniform(number, bits, None)
            if found is not None:
                found(f, result, None)
            return
        f.put(number, bits, m)
        if found is not None:
            found(f, result, m)

    return run


@maker("SHFL")
def _shfl(w: Word) -> Run:
    mode = w.take(58, 2)
    number, found = w.destination(), put_predicate(w, 81)
    a = w.reader(24)
    form = w.form.value  # which of lane and clamp are immediates
    if form in (1, 2):
        lane: Any = w.reader(32)
    else:
        value = np.full((1, 1), w.take(53, 5), U32)
        lane = lambda f: value  # noqa: E731
    if form in (1, 4):
        clamp: Any = w.reader(64)
    else:
        bits = np.full((1, 1), w.take(40, 13), U32)
        clamp = lambda f: bits  # noqa: E731

    def run(f: Front, m: Mask) -> None:
        source, valid = _source_lanes(mode, lane(f).astype(np.int64), clamp(f).astype(np.int64))
        rows = np.arange(f.count)[:, None]
        values = f.full(a(f))
        f.put(number, values[rows, np.broadcast_to(source, (f.count, 32))], m)
        if found is not None:
            found(f, valid, m)

    return run


def _source_lanes(mode: int, lane: Any, clamp: Any) -> tuple[Any, Any]:
    """PTX's shfl: the lane that each lane reads, and whether it is in range."""
    mask, bound = clamp >> 8 & 31, clamp & 31
    own = _LANES[None, :]
    highest = (own & mask) | (bound & ~mask)
    lowest = own & mask
    by = lane & 31
    if mode == 0:
        source = lowest | (by & ~mask)
        valid = source <= highest
    elif mode == 1:
        source = own - by
        valid = source >= highest
    elif mode == 2:
        source = own + by
        valid = source <= highest
    else:
        source = own ^ by
        valid = source <= highest
    return np.where(valid, source, own) & 31, valid


@maker("MATCH")
def _match(w: Word) -> Run:
    wide, is_any = w.flag(73), w.flag(79)
    number, found = w.destination(), put_predicate(w, 81)
    a: Any = w.reader64(24) if wide else w.reader(24)

    def run(f: Front, m: Mask) -> None:
        lanes, values = f.members(m), f.full(a(f))
        same = (values[:, :, None] == values[:, None, :]) & lanes[:, None, :]
        bits = (same * (U32(1) << _LANES.astype(U32))).sum(axis=2, dtype=U32)
        if is_any:
            f.put(number, bits, m)
            return
        everyone = f.mask_bits(lanes)
        all_same = (np.where(lanes, bits, everyone) == everyone).all(axis=1, keepdims=True)
        f.put(number, np.where(all_same, everyone, U32(0)), m)
        if found is not None:
            found(f, all_same, m)

    return run


@maker("REDUX", "CREDUX")
def _redux(w: Word) -> Run:
    kind, signed = w.take(78, 3), w.flag(73)
    number = w.destination(16, uniform=True)
    a = w.reader(24, uniform=False)
    if kind > 5 or w.instruction.name == "CREDUX":
        raise w.unknown("a reduction of floats")

    def run(f: Front, m: Mask) -> None:
        lanes, values = f.members(m), f.full(a(f))
        f.put_uniform(number, _reduced(kind, signed, values, lanes), None)

    return run


def _reduced(kind: int, signed: bool, values: Any, lanes: Any) -> Any:
    settings: dict[str, Any] = {"axis": 1, "keepdims": True}
    if kind == 0:
        return np.bitwise_and.reduce(np.where(lanes, values, _ALL), **settings)
    if kind == 1:
        return np.bitwise_or.reduce(np.where(lanes, values, U32(0)), **settings)
    if kind == 2:
        return np.bitwise_xor.reduce(np.where(lanes, values, U32(0)), **settings)
    if kind == 3:
        return np.add.reduce(np.where(lanes, values, U32(0)), dtype=U32, **settings)
    whole = values.view(np.int32) if signed else values
    information = np.iinfo(whole.dtype)
    if kind == 4:
        return np.where(lanes, whole, whole.dtype.type(information.max)).min(**settings).view(U32)
    return np.where(lanes, whole, whole.dtype.type(information.min)).max(**settings).view(U32)


@maker("R2UR")
def _r2ur(w: Word) -> Run:
    """A general register's value in the warp's first executing lane.

    Its predicate says that lanes hold other values than that. The compiler puts it
    in front of BRA.DIV and BRA.CONV with a mask that lanes may not agree on, whose other way is
    right for any masks: a GPU that sets it more often computes the same.
    """
    number = w.destination(16, uniform=True)
    a = w.reader(24, uniform=False)
    differs = put_predicate(w, 81, uniform=False)
    if w.take(84):
        raise w.unknown("R2UR.OR")
    w.ignore(85, 6)

    def run(f: Front, m: Mask) -> None:
        values = f.full(a(f))
        first = np.take_along_axis(values, f.first_lane(m)[:, None], 1)
        f.put_uniform(number, first, None)
        if differs is not None:
            others = f.members(m) & (values != first)
            differs(f, f.full(others.any(axis=1, keepdims=True)), m)

    return run


@maker("ELECT")
def _elect(w: Word) -> Run:
    found = put_predicate(w, 81, uniform=False)
    number = w.destination(16, uniform=True)
    w.ignore(85)
    if not w.predicate_is_true(87):
        raise w.unknown("a membership mask")

    def run(f: Front, m: Mask) -> None:
        first = f.first_lane(m)
        f.put_uniform(number, first.astype(U32)[:, None], None)
        if found is not None:
            found(f, _LANES[None, :] == first[:, None], m)

    return run


@maker("S2R", "S2UR", "CS2R", "CS2UR")
def _s2r(w: Word) -> Run:
    uniform = w.instruction.name in ("S2UR", "CS2UR")
    source = w.take(72, 8)
    wide = w.instruction.name in ("CS2R", "CS2UR") and w.flag(80)
    w.uniform = uniform
    put = put64(w) if wide else put32(w)

    def run(f: Front, m: Mask) -> None:
        value = f.batch.special(source, f, wide=wide)
        if uniform:
            value = np.take_along_axis(f.full(value), f.first_lane(m)[:, None], 1)
            put(f, value, None)
        else:
            put(f, value, m)

    return run


@maker("LEPC")
def _lepc(w: Word) -> Run:
    """The address of the next instruction, from sm_90 on with a distance (bits 24-31)."""
    distance = w.take(24, 8)
    if w.arch.major >= 9 and w.take(32, 50):
        raise w.unknown("a distance beyond eight bits")
    w.ignore(32, 50)
    put = put64(w)
    here = np.full((1, 1), w.instruction.address + 16 + distance, U64)
    return lambda f, m: put(f, here, m)
