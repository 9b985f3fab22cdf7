"""A tile configuration as text and as a record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lowgemm.errors import ArgumentValueError
from lowgemm.model.issue import ThreadWork
from lowgemm.model.levels import FLOAT_BYTES
from lowgemm.model.multicast import check_cluster
from lowgemm.model.raster import parse_raster
from lowgemm.model.values import count

__all__ = ["TileConfig"]

_TILES = re.compile(
    r"(\d{1,5})x(\d{1,5})x(\d{1,5})/(\d{1,4})x(\d{1,4})(?:@(\d{1,5}))?((?:,[^,]+=[^,]+)*)"
)
_NUMBERS = {"stages": "stages", "vector": "vector", "conflicts": "store_conflict_ways"}
_WORDS = ("lanes", "walk", "copy", "raster")
_KEYS = ", ".join(f"{key}=" for key in (*_NUMBERS, *_WORDS, "cluster"))

# Registers beside accumulators, fragments and the copies in flight: addresses, sizes, the loop.
_OTHER_REGISTERS = 14


@dataclass(frozen=True, slots=True)
class TileConfig:
    """How a GEMM kernel is tiled, and how it moves its tiles.

    ``bm`` x ``bn`` x ``bk`` is the block tile, ``tm`` x ``tn`` the thread tile, ``stages`` the
    k-tiles under way or in use (1: load, wait, compute; 2: one loads while one is computed),
    ``vector`` the floats of a load, ``cluster_m`` x ``cluster_n`` the blocks whose loads are
    multicast, which only the tensor memory accelerator does (``copy="tma"``). ``lanes``, ``walk``,
    ``copy`` and ``store_conflict_ways`` are those of
    :class:`lowgemm.model.issue.ThreadWork`, ``raster`` a name of :mod:`lowgemm.model.raster`.

    Raises
    ------
    ArgumentValueError
        Sizes below 1, threads that do not make the block tile, an unknown order, walk or copy, or a
        cluster that is too large or has no multicast.

    Examples
    --------
    >>> TileConfig.parse("128x128x8/8x8").threads
    256
    """

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    threads: int
    stages: int = 1
    vector: int = 4
    cluster_m: int = 1
    cluster_n: int = 1
    raster: str = "row"
    lanes: str = "rows"
    walk: str = "ptxas"
    copy: str = "ldg"
    store_conflict_ways: int = 1

    def __post_init__(self) -> None:
        count("stages", self.stages)
        check_cluster(self.cluster_m, self.cluster_n)
        parse_raster(self.raster)
        self.work()
        if self.cluster_m * self.cluster_n > 1 and self.copy != "tma":
            raise ArgumentValueError(
                f"a cluster of {self.cluster_m} x {self.cluster_n} blocks with copy={self.copy}, "
                "which cannot multicast",
                "use copy=tma, or no cluster",
            )

    @classmethod
    def parse(cls, text: str) -> TileConfig:
        """Read ``BMxBNxBK/TMxTN[@THREADS][,key=value...]``.

        The keys are stages, vector, conflicts, lanes, walk, copy, raster and cluster (``2x1``).
        Without ``@THREADS`` the block has as many threads as the tiles say.

        Raises
        ------
        ArgumentValueError
            The text is none, or the configuration impossible.
        """
        match = _TILES.fullmatch("".join(str(text).lower().split()))
        if match is None:
            raise ArgumentValueError(
                f"{str(text)[:80]!r} is no tile configuration",
                f"write 128x128x8/8x8@256, and behind it any of {_KEYS}, as in "
                "128x256x16/8x16@256,stages=2,copy=cp.async",
            )
        bm, bn, bk, tm, tn = (count("a size", int(part)) for part in match.groups()[:5])
        threads = int(match[6]) if match[6] else max(1, bm * bn // (tm * tn))
        options: dict[str, Any] = {}
        for option in filter(None, match[7].split(",")):
            options |= _option(*option.split("=", 1))
        return cls(bm, bn, bk, tm, tn, threads, **options)

    def work(self) -> ThreadWork:
        """The part that the inside of an SM sees."""
        return ThreadWork(
            self.bm, self.bn, self.bk, self.tm, self.tn, self.threads,
            vector=self.vector, lanes=self.lanes, walk=self.walk, copy=self.copy,
            store_conflict_ways=self.store_conflict_ways,
        )  # fmt: skip

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: a k-tile of A and of B for each stage."""
        return FLOAT_BYTES * self.stages * self.bk * (self.bm + self.bn)

    @property
    def least_registers(self) -> int:
        """Registers without which the accumulators and one set of fragments do not fit."""
        return self.tm * self.tn + self.tm + self.tn + _OTHER_REGISTERS

    @property
    def expected_registers(self) -> int:
        """Registers with two sets of fragments and the copies that pass through registers."""
        copied = {"ldg": self.bm + self.bn, "cp.async": self.bm, "tma": 0}[self.copy]
        in_flight = copied * self.bk // self.threads if self.stages > 1 else 0
        return self.least_registers + self.tm + self.tn + in_flight

    def __str__(self) -> str:
        tiles = f"{self.bm}x{self.bn}x{self.bk}/{self.tm}x{self.tn}@{self.threads}"
        named = {
            "stages": self.stages, "vector": self.vector, "conflicts": self.store_conflict_ways,
            "lanes": self.lanes, "walk": self.walk, "copy": self.copy, "raster": self.raster,
            "cluster": f"{self.cluster_m}x{self.cluster_n}",
        }  # fmt: skip
        return ",".join([tiles, *(f"{k}={v}" for k, v in named.items() if v != _DEFAULTS[k])])


_DEFAULTS = {
    "stages": 1, "vector": 4, "conflicts": 1, "lanes": "rows", "walk": "ptxas", "copy": "ldg",
    "raster": "row", "cluster": "1x1",
}  # fmt: skip


def _option(key: str, value: str) -> dict[str, Any]:
    if key in _NUMBERS and value.isdecimal():
        return {_NUMBERS[key]: int(value[:10])}
    if key in _WORDS:
        return {key: value}
    cluster = re.fullmatch(r"(\d{1,3})x(\d{1,3})", value)
    if key == "cluster" and cluster:
        return {"cluster_m": int(cluster[1]), "cluster_n": int(cluster[2])}
    raise ArgumentValueError(f"{key}={value} in a tile configuration", f"the keys are {_KEYS}")
