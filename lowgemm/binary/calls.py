"""Which function of a cubin calls which, from its section ``.nv.callgraph``.

In relocatable code (``-rdc=true``) and in code for a debugger (``-G``) a device function has a
section of its own; elsewhere ptxas puts those of a kernel behind it, and the section says nothing.
It is a list of pairs of symbols. A pair whose first is symbol 0 begins a group, and its second says
of what: calls; functions whose address is taken; functions that call through a pointer.
Established on cubins of NVRTC 13.5 for sm_75 to sm_120.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["CallGraph", "read_calls"]

_CALLS, _TAKEN, _INDIRECT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD


@dataclass(frozen=True, slots=True)
class CallGraph:
    """Calls between symbols, by their index.

    ``taken`` are functions whose address is taken, ``indirect`` those that call through a pointer:
    each of these may call each of those.
    """

    calls: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    taken: tuple[int, ...] = ()
    indirect: frozenset[int] = frozenset()

    def callees(self, symbol: int) -> tuple[int, ...]:
        """What a function may call itself."""
        return self.calls.get(symbol, ()) + (self.taken if symbol in self.indirect else ())

    def reached(self, symbol: int) -> tuple[int, ...]:
        """What a function may call, itself or through others; the function only if it recurs."""
        found: dict[int, None] = {}
        waiting = [symbol]
        while waiting:
            for callee in self.callees(waiting.pop()):
                if callee not in found:
                    found[callee] = None
                    waiting.append(callee)
        return tuple(found)

    def stack_bytes(self, symbol: int, frames: Mapping[int, int | None]) -> int | None:
        """The stack of a function with all that it calls; None for a recursion or a frame unknown.

        Parameters
        ----------
        symbol
            The function.
        frames
            What each function needs itself.
        """
        deepest: dict[int, int] = {}
        waiting = [*reversed(self.reached(symbol)), symbol]  # callees first, as far as may be
        while waiting:
            left = []
            for function in waiting:
                frame, callees = frames.get(function), self.callees(function)
                if frame is None:
                    return None
                if all(callee in deepest for callee in callees):
                    deepest[function] = frame + max((deepest[c] for c in callees), default=0)
                else:
                    left.append(function)
            if len(left) == len(waiting):
                return None
            waiting = left
        return deepest[symbol]


def read_calls(content: bytes) -> CallGraph:
    """Read ``.nv.callgraph``; what is in no group that is known is passed over."""
    calls: dict[int, dict[int, None]] = {}
    taken: dict[int, None] = {}
    indirect: set[int] = set()
    group = 0
    for first, second in struct.iter_unpack("<II", content[: len(content) // 8 * 8]):
        if first == 0:
            group = second
        elif group == _CALLS:
            calls.setdefault(first, {})[second] = None
        elif group == _TAKEN:
            taken[first] = None
        elif group == _INDIRECT:
            indirect.add(first)
    return CallGraph(
        {caller: tuple(callees) for caller, callees in calls.items()},
        tuple(taken),
        frozenset(indirect),
    )
