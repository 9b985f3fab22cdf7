"""The disk cache of compilations: one file an entry, checked when read, written by rename.

An entry holds what NVRTC gave, as plain bytes behind a checksum; nothing in it is ever executed.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from pathlib import Path

from lowgemm.compiler.store import Store
from lowgemm.toolchain import cache_directory, caching_enabled

__all__ = ["DEFAULT", "Cache", "CachedOutput", "DefaultCache"]


class DefaultCache(enum.Enum):
    """The type of `DEFAULT`."""

    DEFAULT = "default"


DEFAULT = DefaultCache.DEFAULT
"""The user's cache, where the environment puts it: see `Cache.default`."""


@dataclass(frozen=True, slots=True)
class CachedOutput:
    """NVRTC's outputs for one program; ``lowered`` pairs name expressions with mangled names."""

    cubin: bytes
    ptx: str
    log: str
    lowered: tuple[tuple[str, str], ...]


class Cache:
    """A directory of compiled programs that any number of processes may use at once.

    Parameters
    ----------
    directory
        Where the entries lie; made when the first one is stored.
    max_bytes
        Size above which the entries used least recently are deleted.
    """

    def __init__(self, directory: str | Path, *, max_bytes: int = 512 << 20) -> None:
        self._store = Store(directory, "build", max_bytes=max_bytes)

    @property
    def directory(self) -> Path:
        """Where the entries lie."""
        return self._store.directory

    def __repr__(self) -> str:
        return f"Cache({str(self.directory)!r})"

    @classmethod
    def default(cls) -> Cache | None:
        """The user's cache; None if the environment says ``LOWGEMM_CACHE=0``.

        It lies in ``LOWGEMM_CACHE_DIR`` if that is set, else in the platform's directory for
        caches.
        """
        return cls(cache_directory() / "builds") if caching_enabled() else None

    def load(self, key: str) -> CachedOutput | None:
        """The entry of that key; None if there is none or it is damaged."""
        content = self._store.load(key)
        return None if content is None else _decode(content)

    def store(self, key: str, output: CachedOutput) -> None:
        """Write an entry, replacing any of that key.

        A directory that cannot be written gives one warning per process and is otherwise without
        consequence.
        """
        self._store.save(key, _encode(output))

    def clear(self) -> None:
        """Delete all entries.

        Raises
        ------
        OutputError
            One cannot be deleted.
        """
        self._store.clear()


def _encode(output: CachedOutput) -> bytes:
    texts = json.dumps({"ptx": output.ptx, "log": output.log, "lowered": output.lowered}).encode()
    return len(texts).to_bytes(8, "little") + texts + output.cubin


def _decode(content: bytes) -> CachedOutput | None:
    end = 8 + int.from_bytes(content[:8], "little")
    try:
        texts = json.loads(content[8:end])
        lowered = tuple((str(expression), str(name)) for expression, name in texts["lowered"])
        return CachedOutput(content[end:], str(texts["ptx"]), str(texts["log"]), lowered)
    except (ValueError, KeyError, TypeError):
        return None
