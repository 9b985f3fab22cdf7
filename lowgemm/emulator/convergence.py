"""Where lanes of a warp meet again: convergence barriers, and waits for lanes of the warp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.emulator.front import Front, Mask, lane_bits
from lowgemm.emulator.states import AT_WARPSYNC, EXITED, RUNNING, SYNCHRONISING
from lowgemm.hardware.shared_memory import WARP_LANES

if TYPE_CHECKING:
    from lowgemm.emulator.batch import Batch
    from lowgemm.emulator.word import Bits32, Predicates

__all__ = ["Convergence"]

U32 = np.uint32
_BARRIERS = 16
#: YIELDs after which others of the warp no longer wait for a lane at a convergence point.
_PATIENCE = 16


class Convergence:
    """The convergence barriers of a batch's warps, and the lanes that wait for others of theirs.

    Parameters
    ----------
    batch
        The batch.

    Notes
    -----
    A convergence barrier is a register that holds lanes as bits. Paths that have parted use one
    register for barriers of their own, so each lane has its copy: lanes whose copies are equal are
    the members of one barrier.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        lanes = (batch.warps, WARP_LANES)
        self._members = np.zeros((_BARRIERS, *lanes), U32)
        self._number = np.zeros(lanes, np.int8)
        self._wanted = np.zeros(lanes, U32)
        self._yields = np.zeros(lanes, np.int8)
        # Of WARPSYNC.EXCLUSIVE and .COLLECTIVE: who waits for its turn, and whose turn it is.
        self._in_line = np.zeros(lanes, bool)
        self._alone = np.zeros(lanes, bool)
        self._someone_alone = False

    # ---- convergence barriers

    def members(self, f: Front, number: int) -> Bits32:
        """The copies of a barrier that the lanes of a front have, as (warps, 32)."""
        return f.rows(self._members[number])

    def set_members(self, f: Front, number: int, words: Bits32, mask: Mask) -> None:
        """Set the copies of the lanes of a mask."""
        f.put_rows(self._members[number], words, mask)

    def open(self, f: Front, number: int, mask: Mask) -> None:
        """BSSY: the executing lanes will meet again."""
        self.set_members(f, number, f.mask_bits(mask), mask)

    def leave(self, f: Front, number: int, mask: Mask) -> None:
        """BREAK: the lanes of a mask will not come to the meeting."""
        members = self.members(f, number)
        left = f.members(mask).copy()
        while left.any():
            barrier, group = _first_group(members, left)
            left &= ~group
            members = np.where(members == barrier, members & ~lane_bits(group), members)
        self.set_members(f, number, members, None)
        if (self._batch.status == SYNCHRONISING).any():
            self._batch.settle()
            f.limit = 0  # who was let go may stand anywhere

    def meet(self, f: Front, number: int, mask: Mask, after: int) -> int | None:
        """BSYNC: wait for the other members."""
        f.put_rows(self._yields, np.zeros((1, 1), np.int8), mask)
        if not self._misses(f, self.members(f, number), mask):
            self._end_turn(f, mask)
            return after
        f.put_rows(self._number, np.full((1, 1), number, np.int8), mask)
        self._batch.wait(f, mask, after, SYNCHRONISING)
        return None

    def _misses(self, f: Front, wanted: Bits32, mask: Mask) -> bool:
        """Whether a lane of the mask wants one of its warp that is alive and not in the mask."""
        if mask is None:
            return False
        elsewhere = self._batch.alive_bits(f) & ~f.mask_bits(mask)
        return bool(((wanted & elsewhere != 0) & mask).any()) if elsewhere.any() else False

    def _settle_members(self) -> None:
        status = self._batch.status
        rows = np.flatnonzero((status == SYNCHRONISING).any(axis=1))
        state, numbers = status[rows], self._number[rows]
        waiting = state == SYNCHRONISING
        awaited = lane_bits((state != EXITED) & (self._yields[rows] < _PATIENCE))
        for number in np.unique(numbers[waiting]):
            members = self._members[number][rows]
            left = waiting & (numbers == number)
            while left.any():
                barrier, group = _first_group(members, left)
                left &= ~group
                complete = barrier & awaited & ~lane_bits(group) == 0
                go = group & complete
                state[go] = RUNNING
                # Those for whom they did not wait must not wait for them.
                members = np.where(members == barrier, members & ~lane_bits(go), members)
            self._members[number][rows] = members
        status[rows] = state

    def yielded(self, f: Front) -> bool:
        """Count a YIELD of a front; returns whether others no longer wait for a lane of it.

        So a thread that holds a lock goes on though others of its warp spin for it: a convergence
        barrier counts as reached by those who have yielded often.
        """
        yields = np.minimum(f.rows(self._yields) + 1, _PATIENCE).astype(np.int8)
        f.put_rows(self._yields, yields, f.active)
        return bool((yields >= _PATIENCE).any())

    # ---- waits for lanes of a mask

    def synchronise(
        self, f: Front, mask: Mask, wanted: Bits32, after: int, *, exclusive: bool
    ) -> int | None:
        """WARPSYNC: wait for the lanes of a mask in a register.

        With ``exclusive`` the lanes of one mask go on at a time: a vote behind it is among them
        alone, though lanes with another mask have come along. Their turn ends where they meet
        others (BSYNC), wait otherwise or leave.
        """
        self._end_turn(f, mask)
        if not self._misses(f, wanted, mask) and not (
            exclusive and self._must_stand_in_line(f, mask, wanted)
        ):
            if exclusive:
                self._go_alone(f, mask)
            return after
        f.put_rows(self._wanted, wanted, mask)
        f.put_rows(self._in_line, np.full((1, 1), exclusive), mask)
        self._batch.wait(f, mask, after, AT_WARPSYNC)
        return None

    def _must_stand_in_line(self, f: Front, mask: Mask, wanted: Bits32) -> bool:
        """Whether lanes of a mask want others than their warp's first, or it is others' turn."""
        if self._someone_alone and f.rows(self._alone).any():
            return True
        _, first = _first_group(f.full(wanted), f.members(mask))
        return bool((f.members(mask) & ~first).any())

    def _go_alone(self, f: Front, mask: Mask) -> None:
        f.put_rows(self._alone, np.ones((1, 1), bool), mask)
        self._someone_alone = True

    def _end_turn(self, f: Front, mask: Mask) -> None:
        """The lanes of a mask let others do what they did alone."""
        if not self._someone_alone:
            return
        f.put_rows(self._alone, np.zeros((1, 1), bool), mask)
        self._someone_alone = bool(self._alone.any())
        if (self._batch.status == AT_WARPSYNC).any():
            self._batch.settle()
            f.limit = 0  # who was let go may stand anywhere

    def _settle_wanted(self) -> None:
        status = self._batch.status
        rows = np.flatnonzero((status == AT_WARPSYNC).any(axis=1))
        state, wanted = status[rows], self._wanted[rows]
        waiting = state == AT_WARPSYNC
        elsewhere = lane_bits((state != EXITED) & ~waiting)
        go = waiting & (wanted & elsewhere == 0)
        in_line = go & self._in_line[rows]
        if in_line.any():
            alone = self._alone[rows]
            _, first = _first_group(wanted, in_line)
            turn = first & ~alone.any(axis=1, keepdims=True)
            self._alone[rows] = alone | turn
            self._someone_alone = bool(self._alone.any())
            go = go & ~in_line | turn
        state[go] = RUNNING
        status[rows] = state

    def settle(self) -> None:
        """Let go who has waited for what has happened."""
        status = self._batch.status
        if (status == SYNCHRONISING).any():
            self._settle_members()
        if self._someone_alone:
            self._alone &= status == RUNNING
        if (status == AT_WARPSYNC).any():
            self._settle_wanted()


def _first_group(words: Bits32, lanes: Predicates) -> tuple[Bits32, Predicates]:
    """The word of each warp's lowest of some lanes, and which of them have the same."""
    first: NDArray[Any] = np.argmax(lanes, axis=1)[:, None]
    word = np.take_along_axis(words, first, axis=1)
    return word, lanes & (words == word)
