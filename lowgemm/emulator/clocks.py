"""Vector clocks: which accesses of which warps are ordered by synchronisation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clocks"]


class Clocks:
    """Vector clocks of all actors of many domains at once.

    A domain is a set of CTAs that see each other's shared memory. Its actors are its warps and, as
    the last one, the asynchronous proxy, which stands for all bulk copies.

    Parameters
    ----------
    domains
        How many domains there are.
    actors
        Actors of one domain: its warps and the proxy.

    Attributes
    ----------
    vc
        ``vc[d, i, j]``: the last step of actor j in domain d that actor i is ordered behind. The
        methods keep ``floor`` and ``top`` in step with it; change it through them alone.
    floor
        ``floor[d, i]``: the step up to which actor i is ordered behind every warp (the proxy left
        out). What has a clock of no more than that cannot race with i.
    top
        ``top[d]``: the highest own step of any warp; it never falls.

    Notes
    -----
    Two accesses race if neither happens before the other; an access with clock c of actor j happens
    before what actor i does next if and only if ``c <= vc[d, i, j]`` (FastTrack, PLDI 2009).
    """

    def __init__(self, domains: int, actors: int) -> None:
        self.domains = domains
        self.actors = actors
        self.vc = np.zeros((domains, actors, actors), np.int32)
        own = np.arange(actors)
        self.vc[:, own, own] = 1
        self.floor = np.zeros((domains, actors), np.int32)
        self.top = np.ones(domains, np.int32)
        self._refresh(np.arange(domains))

    @property
    def proxy(self) -> int:
        """The number of the pseudo-actor that stands for bulk copies."""
        return self.actors - 1

    def own(self, domain: NDArray[np.intp], actor: NDArray[np.intp]) -> NDArray[np.int32]:
        """Each actor's own step: the clock of what it does next."""
        return self.vc.reshape(-1).take((domain * self.actors + actor) * self.actors + actor)

    def barrier(self, domain: NDArray[np.intp], members: NDArray[np.bool_]) -> None:
        """Order all members of each barrier behind all that its members did.

        Parameters
        ----------
        domain
            The domain of each of k barriers.
        members
            bool[k, actors]: who takes part. Barriers of one call have no member in common.
        """
        rows = np.where(members[:, :, None], self.vc[domain], 0).max(axis=1)
        which, actor = np.nonzero(members)
        where = domain[which]
        self.vc[where, actor] = rows[which]
        self.vc[where, actor, actor] += 1
        self._refresh(domain)

    def release(self, domain: NDArray[np.intp], actor: NDArray[np.intp]) -> NDArray[np.int32]:
        """Take what each actor is ordered behind, its own steps included, to hand to others.

        Each actor's own step then goes up by one, so that what it does next is not handed over.

        Returns
        -------
        NDArray[np.int32]
            [n, actors]: a row for each.
        """
        rows = self.vc[domain, actor]
        self.vc[domain, actor, actor] = rows[np.arange(len(rows)), actor] + 1
        self._refresh(domain)
        return rows

    def acquire(
        self, domain: NDArray[np.intp], actor: NDArray[np.intp], rows: NDArray[np.int32]
    ) -> None:
        """Order each actor behind what the row says; an actor may be named more than once."""
        if not domain.size:
            return
        slot = domain * self.actors + actor
        order = np.argsort(slot, kind="stable")
        slot = slot[order]
        starts = np.flatnonzero(np.r_[True, slot[1:] != slot[:-1]])
        flat = self.vc.reshape(-1, self.actors)
        distinct = slot[starts]
        joined = np.maximum.reduceat(rows[order], starts, axis=0)
        flat[distinct] = np.maximum(flat[distinct], joined)
        self._refresh(domain)

    def tick_proxy(self, domain: int) -> int:
        """Start one more bulk copy; returns its clock, which a reader's row must reach."""
        self.vc[domain, -1, -1] += 1
        return int(self.vc[domain, -1, -1])

    def _refresh(self, domain: NDArray[np.intp]) -> None:
        if self.actors == 1:
            return
        domain = np.unique(domain)
        vc = self.vc[domain, :, :-1]
        self.floor[domain] = vc.min(axis=2)
        # Nobody is ahead of a warp's own step, so the highest entry is a warp's own.
        self.top[domain] = vc.max(axis=(1, 2))
