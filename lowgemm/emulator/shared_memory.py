"""Shared memory with eyes: bounds, what was ever written, races, copies still on their way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.clocks import Clocks
from lowgemm.emulator.findings import FindingKind, Problem
from lowgemm.emulator.global_memory import atomic_width, read_modify_write
from lowgemm.errors import ArgumentValueError

__all__ = ["SharedMemory"]

# What a unit's state byte says; a unit's last write is at most one of the last two.
_INITIALISED = 1
_PENDING = 2
_ATOMIC = 4
_BULK = 8
_MBARRIER = 16
_READABLE = _INITIALISED | _PENDING | _BULK
#: Higher than every clock.
_ABOVE_ALL = np.iinfo(np.int32).max

_Index = NDArray[np.intp]
_Words = NDArray[np.uint32]


@dataclass(frozen=True)
class _Access:
    """Lanes that access shared memory, all of them aligned and inside.

    ``row`` counts elements of the width over all domains, ``local`` inside the domain; one row is
    ``units`` units of the metadata.
    """

    clocks: Clocks
    domain: _Index
    actor: _Index
    offset: NDArray[np.int64]
    row: NDArray[np.int64]
    local: NDArray[np.int64]
    width: int
    units: int

    @cached_property
    def slot(self) -> _Index:
        """The row of each lane's actor in tables over domains and actors."""
        slot: _Index = self.domain * self.clocks.actors + self.actor
        return slot

    @cached_property
    def floor(self) -> NDArray[np.int32]:
        return self.clocks.floor.reshape(-1).take(self.slot)

    @cached_property
    def clock(self) -> NDArray[np.int32]:
        return self.clocks.own(self.domain, self.actor)

    def above_floor(self, clocks: NDArray[np.int32]) -> NDArray[np.bool_] | None:
        """Which lanes see a clock that some warp might not have handed to them; None for none."""
        if int(clocks.max()) <= int(self.floor.min()):
            return None
        compared: NDArray[np.bool_] = clocks > self.floor[:, None]
        above: NDArray[np.bool_] = np.asarray(compared.any(axis=1))
        return above if above.any() else None


@dataclass(frozen=True, slots=True)
class _Copies:
    """Asynchronous copies of one instruction that are not complete, by lane; rows as in _Access."""

    row: NDArray[np.int64]
    units: int
    token: NDArray[np.int64]
    domain: _Index
    thread: _Index
    group: NDArray[np.int64]

    def select(self, which: NDArray[np.bool_]) -> _Copies:
        return _Copies(
            self.row[which],
            self.units,
            self.token[which],
            self.domain[which],
            self.thread[which],
            self.group[which],
        )


class SharedMemory:
    """The shared memory of many CTAs, by domains of CTAs that see each other's.

    Parameters
    ----------
    domains
        How many domains there are: clusters, or CTAs where there are no clusters.
    ranks
        CTAs of one domain.
    bytes_per_cta
        Bytes of shared memory of one CTA.
    actors
        Warps of one domain, and one more for the asynchronous proxy.
    granularity
        Bytes per unit of the metadata: 4, or 1 for a kernel with accesses of 1 or 2 bytes.

    Attributes
    ----------
    data
        uint8[domains, ranks * stride]: the bytes. CTA r's start at r * ``stride``.
    stride
        ``bytes_per_cta`` rounded up to 16.
    clocks
        Who is ordered behind whom. Barriers, releases and acquires are told to it.

    Raises
    ------
    ArgumentValueError
        The granularity is neither 1 nor 4.

    Notes
    -----
    Lane-side accesses take ``domain``, ``actor``, ``rank`` (intp[n]) and ``offset`` (int64[n], the
    byte inside that CTA's shared memory); with one rank, ``rank`` is not looked at. They give what
    they found wrong; they report nothing. Lanes of one actor never race with each other, atomics
    never with atomics.

    An access is checked in full only if it fails two sufficient tests: no clock at its units is
    above what its warp has from every other warp (``Clocks.floor``), and its units' state is usual.
    """

    def __init__(
        self, domains: int, ranks: int, bytes_per_cta: int, actors: int, *, granularity: int = 4
    ) -> None:
        if granularity not in (1, 4):
            raise ArgumentValueError(f"a granularity of {granularity} bytes", "1 or 4")
        self.bytes_per_cta = bytes_per_cta
        self.ranks = ranks
        self.granularity = granularity
        self.stride = -(-bytes_per_cta // 16) * 16
        self.clocks = Clocks(domains, actors)
        self.data = np.zeros((domains, ranks * self.stride), np.uint8)
        self._domain_bytes = ranks * self.stride
        self._domain_units = self._domain_bytes // granularity
        units = domains * self._domain_units
        # numpy's zeros are pages that cost nothing until they are touched.
        self._state = np.zeros(units, np.uint8)
        self._write_actor = np.zeros(units, np.int32)
        self._write_clock = np.zeros(units, np.int32)
        self._read_top = np.zeros(units, np.int32)
        self._read_clock = np.zeros(units * actors, np.int32)
        self._token = np.empty(0, np.int64)
        self._location_clock = np.empty((0, actors), np.int32)
        self._next_token = 1
        self._copies: list[_Copies] = []
        self._read_by_proxy = False

    # ---- plain accesses

    def load(
        self,
        domain: _Index,
        actor: _Index,
        rank: _Index,
        offset: NDArray[np.int64],
        width: int,
        *,
        atomic: bool = False,
    ) -> tuple[_Words, list[Problem]]:
        """Read one element per lane.

        Parameters
        ----------
        domain, actor, rank, offset
            Who reads where; see the class.
        width
            Bytes per lane: 1, 2, 4, 8 or 16.
        atomic
            Whether it may race with atomics, as where a compare-and-swap notices a stale value, or
            a thread waits for a phase of an mbarrier: it is ordered behind those who arrived.

        Returns
        -------
        tuple
            uint32[max(1, width / 4), n], perhaps a transposed view: narrow elements are extended
            with zeros, a faulty lane reads 0; and what is wrong.
        """
        lanes, problems = self._faults(rank, offset, width)
        if lanes is not None:
            values = np.zeros((max(1, width // 4), offset.size), np.uint32)
            if lanes.size:
                values[:, lanes], inner = self.load(
                    domain[lanes], actor[lanes], rank[lanes], offset[lanes], width, atomic=atomic
                )
                problems += _relabel(inner, lanes)
            return values, problems
        if not offset.size:
            return np.zeros((max(1, width // 4), 0), np.uint32), []
        access = self._access(domain, actor, rank, offset, width)
        if atomic:
            self._acquire_arrivals(access)
        suspects = self._suspects(access, _READABLE, _INITIALISED, after_reads=False)
        if suspects is not None:
            part = self._part(access, suspects)
            found = self._judge_write(part, atomic=atomic) + self._judge_uninitialised(part)
            problems = _relabel(found, suspects)
        if not atomic:
            self._note_read(access)
        return self._take(access), problems

    def store(
        self,
        domain: _Index,
        actor: _Index,
        rank: _Index,
        offset: NDArray[np.int64],
        width: int,
        values: _Words,
    ) -> list[Problem]:
        """Write one element per lane; of lanes at one place the last wins.

        Parameters
        ----------
        domain, actor, rank, offset
            Who writes where; see the class.
        width
            Bytes per lane: 1, 2, 4, 8 or 16.
        values
            uint32[max(1, width / 4), n]; of a narrow element the lower bits.

        Returns
        -------
        list of Problem
            What is wrong; a lane out of bounds or misaligned stores nothing.
        """
        lanes, problems = self._faults(rank, offset, width)
        if lanes is not None:
            inner = self.store(
                domain[lanes], actor[lanes], rank[lanes], offset[lanes], width, values[:, lanes]
            )
            return problems + _relabel(inner, lanes)
        if not offset.size:
            return []
        access = self._access(domain, actor, rank, offset, width)
        problems = self._check_store(access)
        self._put(access, values)
        return problems + self._note_write(access, _INITIALISED)

    # ---- atomics

    def atomic(
        self,
        domain: _Index,
        actor: _Index,
        rank: _Index,
        offset: NDArray[np.int64],
        values: _Words,
        operation: str,
        *,
        kind: str,
        compare: _Words | None = None,
    ) -> tuple[_Words, list[Problem]]:
        """Do an atomic operation of each lane, in the order of the lanes.

        It orders its actor behind all earlier atomics on the same place. Operands are those of
        `lowgemm.emulator.global_memory.read_modify_write`, and ARRIVE is one at an mbarrier.

        Returns
        -------
        tuple
            uint32[words, n], what each lane found (a faulty lane 0); and what is wrong.
        """
        width = atomic_width(kind)
        lanes, problems = self._faults(rank, offset, width)
        if lanes is not None:
            old = np.zeros((width // 4, offset.size), np.uint32)
            old[:, lanes], inner = self.atomic(
                domain[lanes],
                actor[lanes],
                rank[lanes],
                offset[lanes],
                values[:, lanes],
                operation,
                kind=kind,
                compare=None if compare is None else compare[:, lanes],
            )
            return old, problems + _relabel(inner, lanes)
        if not offset.size:
            return np.zeros((width // 4, 0), np.uint32), []
        access = self._access(domain, actor, rank, offset, width)
        state = _INITIALISED | _ATOMIC
        if operation == "ARRIVE":
            state |= _MBARRIER
            old = self._arrive(access)
        else:
            old = read_modify_write(
                self.data.reshape(-1),
                access.row * width,
                values,
                operation,
                kind=kind,
                compare=compare,
            )
        clock, problems = self._synchronise(access, reads=operation != "EXCH")
        self._put_rows(self._write_clock, access, clock)
        self._put_rows(self._write_actor, access, access.actor)
        self._put_rows(self._state, access, np.uint8(state))
        return old, problems

    def _arrive(self, access: _Access) -> _Words:
        """Arrive at mbarriers that are words of memory, one lane after the other."""
        words = self.data.reshape(-1).view(np.uint64)
        old = np.empty(access.row.size, np.uint64)
        for lane, row in enumerate(access.row):
            old[lane] = words[row]
            words[row] = _after_arrival(int(words[row]))
        return old.view(np.uint32).reshape(-1, 2).T

    def _acquire_arrivals(self, access: _Access) -> None:
        """Order lanes that look at mbarriers behind those who have arrived there."""
        seen = np.flatnonzero((self._rows(self._state, access) & _MBARRIER).any(axis=1))
        if not seen.size:
            return
        access = self._part(access, seen)
        units = 8 // self.granularity
        unit = access.row * access.units // units * units
        for lanes in _turns(access):
            clocks = self._location_clock[unit[lanes]]
            self.clocks.acquire(access.domain[lanes], access.actor[lanes], clocks)

    def _synchronise(
        self, access: _Access, *, reads: bool
    ) -> tuple[NDArray[np.int32], list[Problem]]:
        """Let each actor in turn acquire its places, be checked, and release them.

        Actors of a domain go in the order of their first lanes. Returns the clock at which each
        lane's atomic happened.
        """
        if not self._location_clock.size:
            shape = (self._state.size, self.clocks.actors)
            self._location_clock = np.zeros(shape, np.int32)
        clock = np.empty(access.row.size, np.int32)
        problems: list[Problem] = []
        for lanes in _turns(access):
            part = self._part(access, lanes)
            unit = part.row * part.units
            self.clocks.acquire(part.domain, part.actor, self._location_clock[unit])
            clock[lanes] = part.clock
            found = self._judge_write(part, atomic=True) + self._judge_reads(part)
            if reads:
                found += self._judge_uninitialised(part)
            problems += _relabel(found, lanes)
            rows = self.clocks.release(part.domain, part.actor)
            # A lane's row holds all that its actor acquired, so rows of one place and actor agree.
            self._location_clock[unit] = np.maximum(self._location_clock[unit], rows)
        return clock, problems

    # ---- asynchronous copies

    def copy_async(
        self,
        domain: _Index,
        actor: _Index,
        thread: _Index,
        rank: _Index,
        offset: NDArray[np.int64],
        width: int,
        values: _Words,
        group: NDArray[np.int64],
    ) -> list[Problem]:
        """Write as cp.async does: no one may touch the bytes before the thread's group is complete.

        Parameters
        ----------
        domain, actor, rank, offset, width, values
            As for `store`; the width is 4, 8 or 16.
        thread
            Number of the issuing thread, unique in its domain.
        group
            Number of the group of copies that this one belongs to, counted up from 0 by thread.

        Returns
        -------
        list of Problem
            What is wrong at the time of issue.
        """
        lanes, problems = self._faults(rank, offset, width)
        if lanes is not None:
            inner = self.copy_async(
                domain[lanes],
                actor[lanes],
                thread[lanes],
                rank[lanes],
                offset[lanes],
                width,
                values[:, lanes],
                group[lanes],
            )
            return problems + _relabel(inner, lanes)
        if not offset.size:
            return []
        access = self._access(domain, actor, rank, offset, width)
        problems = self._check_store(access)
        self._put(access, values)
        problems += self._note_write(access, _INITIALISED | _PENDING)
        self._remember(access, thread, group)
        return problems

    def _remember(self, access: _Access, thread: _Index, group: NDArray[np.int64]) -> None:
        if not self._token.size:
            self._token = np.zeros(self._state.size, np.int64)
        token = np.arange(self._next_token, self._next_token + access.row.size)
        self._next_token += access.row.size
        self._put_rows(self._token, access, token)
        copies = _Copies(access.row, access.units, token, access.domain, thread, group)
        self._copies.append(copies)

    def complete(
        self, thread: _Index, group_count: NDArray[np.int64], domain: _Index, actor: _Index
    ) -> None:
        """Note that threads waited: their copies count as written by their warps now.

        A barrier between issue and wait thus orders nothing; one after the wait does.

        Parameters
        ----------
        thread
            The threads that waited, each once.
        group_count
            For each, the groups with numbers below this are complete.
        domain, actor
            The domain and the warp of each.
        """
        if not self._copies or not thread.size:
            return
        size = int(thread.max()) + 1
        # Who did not wait now completes nothing now: its groups were resolved when it waited.
        count = np.zeros((self.clocks.domains, size), np.int64)
        count[domain, thread] = group_count
        clock = np.zeros((self.clocks.domains, size), np.int32)
        clock[domain, thread] = self.clocks.own(domain, actor)
        left = []
        for copies in self._copies:
            known = np.minimum(copies.thread, size - 1)
            done = copies.group < count[copies.domain, known]
            done &= copies.thread < size
            if done.all():
                self._resolve(copies, clock)
            elif done.any():
                self._resolve(copies.select(done), clock)
                left.append(copies.select(~done))
            else:
                left.append(copies)
        self._copies = left

    def _resolve(self, copies: _Copies, clock: NDArray[np.int32]) -> None:
        at = clock[copies.domain, copies.thread]
        # A unit that was overwritten since holds another token, or is pending no more.
        state = self._rows(self._state, copies)
        mine = self._rows(self._token, copies) == copies.token[:, None]
        mine &= (state & _PENDING) != 0
        if mine.all():
            self._put_rows(self._write_clock, copies, at)
            self._put_rows(self._state, copies, np.uint8(_INITIALISED))
            return
        unit = (copies.row[:, None] * copies.units + np.arange(copies.units))[mine]
        self._write_clock[unit] = np.broadcast_to(at[:, None], mine.shape)[mine]
        self._state[unit] = _INITIALISED

    # ---- bulk copies

    def store_bulk(
        self, domain: int, issuer: int, rank: int, offset: int, data: NDArray[np.uint8]
    ) -> tuple[int, list[Problem]]:
        """Write as a bulk copy (TMA) does: through the asynchronous proxy.

        Parameters
        ----------
        domain, issuer
            The domain, and the warp that issues the copy: it must be ordered behind all earlier
            accesses to these bytes.
        rank, offset
            The CTA and the first byte inside its shared memory.
        data
            uint8[nbytes].

        Returns
        -------
        tuple
            The copy's clock: who reads must have it in its row at the proxy's place, which an
            mbarrier hands on; and what is wrong, the lanes being indices into ``data``.
        """
        first = rank * self.stride + offset
        tick = self.clocks.tick_proxy(domain)
        problem = self._bulk_fault(rank, offset, data.size)
        if problem is not None:
            return tick, [problem]
        if not data.size:
            return tick, []
        begin = first // self.granularity
        end = -(-(first + data.size) // self.granularity)
        problems = self._judge_bulk(domain, issuer, offset, begin, end)
        self.data[domain, first : first + data.size] = data
        units = slice(domain * self._domain_units + begin, domain * self._domain_units + end)
        self._write_actor[units] = self.clocks.proxy
        self._write_clock[units] = tick
        self._state[units] = _INITIALISED | _BULK
        return tick, problems

    def load_bulk(
        self, domain: int, issuer: int, rank: int, offset: int, nbytes: int
    ) -> tuple[NDArray[np.uint8], int, list[Problem]]:
        """Read as a bulk copy (TMA) does; the parameters are those of `store_bulk`.

        Returns
        -------
        tuple
            uint8[nbytes], zeros out of bounds; the copy's clock, without which nobody may write to
            these bytes, and which a wait for the copy's group gives; and what is wrong.
        """
        first = rank * self.stride + offset
        tick = self.clocks.tick_proxy(domain)
        problem = self._bulk_fault(rank, offset, nbytes)
        if problem is not None:
            return np.zeros(nbytes, np.uint8), tick, [problem]
        begin = first // self.granularity
        end = -(-(first + nbytes) // self.granularity)
        problems = self._judge_bulk(domain, issuer, offset, begin, end, writes=False)
        reads = self._read_clock.reshape(self.clocks.domains, self.clocks.actors, -1)
        reads[domain, self.clocks.proxy, begin:end] = tick
        base = domain * self._domain_units
        # No warp's floor holds the proxy's steps: who writes here is checked in full.
        self._read_top[base + begin : base + end] = _ABOVE_ALL
        self._read_by_proxy = True
        return self.data[domain, first : first + nbytes].copy(), tick, problems

    def _bulk_fault(self, rank: int, offset: int, nbytes: int) -> Problem | None:
        if 0 <= rank < self.ranks and 0 <= offset <= self.bytes_per_cta - nbytes:
            return None
        kind = FindingKind.SHARED_OUT_OF_BOUNDS
        place = np.array([offset], np.int64).view(np.uint64)
        return Problem(kind, np.zeros(1, np.intp), place, self._bounds_text(nbytes, offset, rank))

    def _judge_bulk(
        self, domain: int, issuer: int, offset: int, begin: int, end: int, *, writes: bool = True
    ) -> list[Problem]:
        """Hold a bulk copy against the accesses before it: all of them, or if it reads, writes."""
        row = self.clocks.vc[domain, issuer]
        base = domain * self._domain_units
        units = slice(base + begin, base + end)
        state, writer = self._state[units], self._write_actor[units]
        late = self._write_clock[units] > row[writer]
        waiting = ((state & _PENDING) != 0) | (late & ((state & _BULK) != 0))
        reads = self._read_clock.reshape(self.clocks.domains, self.clocks.actors, -1)
        racing = reads[domain, :, begin:end] > row[:, None]
        if not writes:
            racing = np.zeros_like(racing)
        by_proxy, racing = racing[-1], racing[:-1]
        bare = (state & _INITIALISED) == 0 if not writes else np.zeros_like(late)
        reader = racing.argmax(axis=0) if len(racing) else None
        step = self.granularity
        found: list[Problem] = []
        for kind, bad, other, verb in (
            (FindingKind.ASYNC_NOT_WAITED, waiting, None, "an earlier copy"),
            (FindingKind.ASYNC_NOT_WAITED, by_proxy, None, _READ_BY_COPY),
            (FindingKind.UNINITIALISED_SHARED, bare, None, "never written"),
            (FindingKind.RACE, late & ~waiting, writer, "written by warp {}" + _UNORDERED),
            (FindingKind.RACE, racing.any(axis=0), reader, "read by warp {}" + _UNORDERED),
        ):
            lanes = np.flatnonzero(bad)
            if lanes.size:
                who = None if other is None else other[lanes].astype(np.intp)
                text = verb if who is None else verb.format(int(who[0]))
                place = (offset + lanes * step).astype(np.uint64)
                found.append(Problem(kind, lanes * step, place, text, who))
        return found

    # ---- places

    def _faults(
        self, rank: _Index, offset: NDArray[np.int64], width: int
    ) -> tuple[_Index | None, list[Problem]]:
        """The lanes that are sound, None if all are; and what is wrong with the others."""
        if width < self.granularity:
            raise ArgumentValueError(
                f"an access of {width} bytes, metadata of {self.granularity}", "use granularity 1"
            )
        if not offset.size:
            return None, []
        limit = self.bytes_per_cta - width
        if (
            int(offset.min()) >= 0
            and int(offset.max()) <= limit
            and not int(np.bitwise_or.reduce(offset)) & (width - 1)
            and (self.ranks == 1 or (int(rank.min()) >= 0 and int(rank.max()) < self.ranks))
        ):
            return None, []
        outside = (offset < 0) | (offset > limit)
        if self.ranks > 1:
            outside |= (rank < 0) | (rank >= self.ranks)
        askew = ~outside & ((offset & (width - 1)) != 0)
        problems = []
        addresses = offset.view(np.uint64)
        lanes = np.flatnonzero(outside)
        if lanes.size:
            detail = self._bounds_text(width, int(offset[lanes[0]]), int(rank[lanes[0]]))
            kind = FindingKind.SHARED_OUT_OF_BOUNDS
            problems.append(Problem(kind, lanes, addresses[lanes], detail))
        lanes = np.flatnonzero(askew)
        if lanes.size:
            detail = f"no multiple of the access's {width} bytes"
            problems.append(Problem(FindingKind.MISALIGNED, lanes, addresses[lanes], detail))
        return np.flatnonzero(~outside & ~askew), problems

    def _bounds_text(self, width: int, offset: int, rank: int) -> str:
        if self.ranks > 1 and not 0 <= rank < self.ranks:
            return f"rank {rank} of a cluster of {self.ranks} CTAs"
        hint = "" if self.bytes_per_cta else ": launch it with shared_bytes= (dynamic memory)"
        return f"{width} bytes at {offset} of {self.bytes_per_cta} bytes of shared memory{hint}"

    def _access(
        self, domain: _Index, actor: _Index, rank: _Index, offset: NDArray[np.int64], width: int
    ) -> _Access:
        place = offset if self.ranks == 1 else offset + rank * self.stride
        shift = width.bit_length() - 1
        local = place >> shift
        row = local + domain * (self._domain_bytes >> shift)
        units = width // self.granularity
        return _Access(self.clocks, domain, actor, offset, row, local, width, units)

    def _part(self, access: _Access, lanes: _Index) -> _Access:
        """Some of the lanes, in their order."""
        if lanes.size == access.row.size:
            return access
        return _Access(
            self.clocks,
            access.domain[lanes],
            access.actor[lanes],
            access.offset[lanes],
            access.row[lanes],
            access.local[lanes],
            access.width,
            access.units,
        )

    def _rows(self, table: NDArray[Any], access: _Access | _Copies) -> NDArray[Any]:
        """The metadata of each lane's units: [n, units]."""
        rows: NDArray[Any] = table.reshape(-1, access.units).take(access.row, axis=0)
        return rows

    def _put_rows(
        self,
        table: NDArray[Any],
        access: _Access | _Copies,
        values: NDArray[Any] | np.generic,
        row: NDArray[np.int64] | None = None,
    ) -> NDArray[Any]:
        """Set the metadata of each lane's units to the lane's value; returns it by unit."""
        # Through items of the whole row: numpy scatters them ten times as fast as rows.
        item = np.dtype(f"V{access.units * table.itemsize}")
        rows = np.empty((access.row.size, access.units), table.dtype)
        rows[:] = values if values.ndim == 0 else np.asarray(values)[:, None]
        table.view(item)[access.row if row is None else row] = rows.view(item)[:, 0]
        return rows

    def _take(self, access: _Access) -> _Words:
        data = self.data.reshape(-1).view(f"u{min(access.width, 4)}")
        if access.width <= 4:
            return data.take(access.row).astype(np.uint32, copy=False)[None]
        words: _Words = data.reshape(-1, access.width // 4).take(access.row, axis=0).T
        return words

    def _put(self, access: _Access, values: _Words) -> None:
        data = self.data.reshape(-1)
        if access.width <= 4:
            narrow = data.view(f"u{access.width}")
            narrow[access.row] = values[0].astype(narrow.dtype, copy=False)
            return
        item = np.dtype(f"V{access.width}")
        contiguous = np.ascontiguousarray(values[: access.width // 4].T)
        data.view(item)[access.row] = contiguous.view(item)[:, 0]

    # ---- checks

    def _suspects(
        self, access: _Access, mask: int, usual: int, *, after_reads: bool
    ) -> _Index | None:
        """Lanes that the sufficient tests do not clear, None if they clear all.

        ``usual`` is what the bits ``mask`` of a unit's state must be.
        """
        odd: NDArray[np.bool_] | None = None
        item = min(access.units, 8)
        state = self._state.view(f"u{item}").reshape(-1, access.units // item)
        state = state.take(access.row, axis=0)
        spread = int.from_bytes(b"\1" * item, "little")
        unusual = (state & state.dtype.type(mask * spread)) != state.dtype.type(usual * spread)
        if unusual.any():
            odd = unusual.any(axis=1)
        tables = [self._write_clock, self._read_top] if after_reads else [self._write_clock]
        for table in tables:
            above = access.above_floor(self._rows(table, access))
            if above is not None:
                odd = above if odd is None else odd | above
        return None if odd is None else np.flatnonzero(odd)

    def _check_store(self, access: _Access) -> list[Problem]:
        suspects = self._suspects(access, _PENDING | _BULK, 0, after_reads=True)
        if suspects is None:
            return []
        part = self._part(access, suspects)
        found = self._judge_write(part, atomic=False) + self._judge_reads(part)
        return _relabel(found, suspects)

    def _judge_write(self, access: _Access, *, atomic: bool) -> list[Problem]:
        """Hold each lane against the last write of its units."""
        state = self._rows(self._state, access)
        writer = self._rows(self._write_actor, access)
        seen = self.clocks.vc.reshape(-1).take(access.slot[:, None] * self.clocks.actors + writer)
        late: NDArray[np.bool_] = self._rows(self._write_clock, access) > seen
        if atomic:
            late &= (state & _ATOMIC) == 0
        pending: NDArray[np.bool_] = (state & _PENDING) != 0
        if not (late.any() or pending.any()):
            return []
        bulk = late & ~pending & ((state & _BULK) != 0)
        race = late & ~pending & ~bulk
        kind = FindingKind.ASYNC_NOT_WAITED
        found = _problem(kind, access, pending, "a copy that warp {} issued", writer)
        found += _problem(kind, access, bulk, "a bulk copy", None)
        text = "written by warp {}" + _UNORDERED
        return found + _problem(FindingKind.RACE, access, race, text, writer)

    def _judge_reads(self, access: _Access) -> list[Problem]:
        """Hold each writing lane against all warps' last reads of its units."""
        lanes = access.above_floor(self._rows(self._read_top, access))
        if lanes is None:
            return []
        where = np.flatnonzero(lanes)
        part = self._part(access, where)
        actors = self.clocks.actors
        block = self._domain_units // access.units
        row = (part.domain[:, None] * actors + np.arange(actors)) * block + part.local[:, None]
        reads = self._read_clock.reshape(-1, access.units).take(row, axis=0)
        later = reads > self.clocks.vc[part.domain, part.actor][:, :, None]
        racing: NDArray[np.bool_] = np.asarray(later.any(axis=2))
        by_copy = racing[:, -1:].copy()
        racing[:, -1] = False
        reader = np.broadcast_to(np.arange(actors), racing.shape)
        text = "read by warp {}" + _UNORDERED
        found = _problem(FindingKind.RACE, part, racing, text, reader)
        found += _problem(FindingKind.ASYNC_NOT_WAITED, part, by_copy, _READ_BY_COPY, None)
        return _relabel(found, where)

    def _judge_uninitialised(self, access: _Access) -> list[Problem]:
        bare = (self._rows(self._state, access) & _INITIALISED) == 0
        return _problem(FindingKind.UNINITIALISED_SHARED, access, bare, "never written", None)

    # ---- notes

    def _note_read(self, access: _Access) -> None:
        block = self._domain_units // access.units
        row = access.slot * block + access.local
        self._put_rows(self._read_clock, access, access.clock, row)
        # No lower than any reader's own step, and never falling: one number stands for all readers.
        top = self.clocks.top.take(access.domain)
        if self._read_by_proxy:
            top = np.maximum(top, self._rows(self._read_top, access).max(axis=1))
        self._put_rows(self._read_top, access, top)

    def _note_write(self, access: _Access, state: int) -> list[Problem]:
        """Note who wrote; finds lanes of different actors that wrote one unit."""
        self._put_rows(self._write_clock, access, access.clock)
        self._put_rows(self._state, access, np.uint8(state))
        mine = self._put_rows(self._write_actor, access, access.actor)
        last = self._rows(self._write_actor, access)
        differs: NDArray[np.bool_] = np.asarray(last != mine)
        text = "written by warp {} with the same instruction"
        return _problem(FindingKind.RACE, access, differs, text, last)


def _after_arrival(word: int) -> int:
    """An mbarrier before sm_90 after an arrival.

    Bit 63 is the phase's parity. Bits 32-62 hold 2^31 less the arrivals that are missing, bits 0-29
    2^30 less those of the next phase: the last arrival overflows into the parity.
    """
    expected, high = word & 0xFFFFFFFF, (word >> 32) + 1 & 0xFFFFFFFF
    if high & 0x7FFFFFFF == 0:
        high |= (expected & 0x3FFFFFFF) + 0x40000000
    return high << 32 | expected


_UNORDERED = " since the last barrier"
_READ_BY_COPY = "a bulk copy may still read it"


def _turns(access: _Access) -> Iterator[_Index]:
    """The lanes of each domain's first actor, then those of its second, and so on."""
    slots, first, which = np.unique(access.slot, return_index=True, return_inverse=True)
    domain = slots // access.clocks.actors
    order = np.lexsort((first, domain))
    turn = np.empty(slots.size, np.intp)
    turn[order] = np.arange(slots.size) - np.searchsorted(domain, domain)
    for number in range(int(turn.max()) + 1):
        yield np.flatnonzero(turn[which] == number)


def _problem(
    kind: FindingKind,
    access: _Access,
    bad: NDArray[np.bool_],
    text: str,
    other: NDArray[Any] | None,
) -> list[Problem]:
    """A problem of the lanes with a bad column; ``other`` names a warp for each column."""
    if not bad.any():
        return []
    lanes = np.flatnonzero(bad.any(axis=1))
    who: _Index | None = None
    if other is not None:
        who = other[lanes, bad[lanes].argmax(axis=1)].astype(np.intp)
        text = text.format(int(who[0]))
    addresses = access.offset.view(np.uint64)[lanes]
    return [Problem(kind, lanes, addresses, text, who if kind is FindingKind.RACE else None)]


def _relabel(problems: list[Problem], lanes: _Index) -> list[Problem]:
    """The problems of some lanes, by their numbers among all lanes."""
    return [replace(problem, lanes=lanes[problem.lanes]) for problem in problems]
