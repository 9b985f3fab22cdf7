"""The disk cache of compilations: one file an entry, checked when read, written by rename.

An entry holds what NVRTC gave, as plain bytes behind a checksum; nothing in it is ever executed.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
import os
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from lowgemm.toolchain import cache_directory

__all__ = ["DEFAULT", "Cache", "CachedOutput", "DefaultCache"]

_MAGIC = b"lowgemm-build-1\n"
_SUFFIX = ".build"
_CHECKSUM_BYTES = 32
# What a killed process left half written is nobody's after this time.
_ABANDONED_AFTER_S = 3600


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

    _warned = False

    def __init__(self, directory: str | Path, *, max_bytes: int = 512 << 20) -> None:
        self.directory = Path(directory)
        self.max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"Cache({str(self.directory)!r})"

    @classmethod
    def default(cls) -> Cache | None:
        """The user's cache; None if the environment says ``LOWGEMM_CACHE=0``.

        It lies in ``LOWGEMM_CACHE_DIR`` if that is set, else in the platform's directory for
        caches.
        """
        if os.environ.get("LOWGEMM_CACHE", "").strip().lower() in ("0", "off", "no", "false"):
            return None
        return cls(cache_directory() / "builds")

    def load(self, key: str) -> CachedOutput | None:
        """The entry of that key; None if there is none or it is damaged."""
        path = self._path(key)
        try:
            blob = path.read_bytes()
        except OSError:
            return None
        output = _decode(blob, key)
        if output is not None:
            with contextlib.suppress(OSError):
                os.utime(path)  # marks it as used, for trimming
        return output

    def store(self, key: str, output: CachedOutput) -> None:
        """Write an entry, replacing any of that key.

        A directory that cannot be written gives one warning per process and is otherwise without
        consequence.
        """
        scratch = None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle, scratch = tempfile.mkstemp(prefix=".writing-", dir=self.directory)
            with open(handle, "wb") as file:  # noqa: PTH123  # a descriptor, not a path
                file.write(_encode(key, output))
            os.replace(scratch, self._path(key))  # noqa: PTH105
            self._trim()
        except OSError as error:
            if scratch is not None:
                Path(scratch).unlink(missing_ok=True)
            self._warn(error)

    def clear(self) -> None:
        """Delete all entries."""
        for path, _, _ in self._files():
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}{_SUFFIX}"

    def _warn(self, error: OSError) -> None:
        if not Cache._warned:
            Cache._warned = True
            warnings.warn(
                f"lowgemm's compile cache {self.directory} cannot be written ({error}); every "
                "compilation is done anew. Set LOWGEMM_CACHE_DIR, or LOWGEMM_CACHE=0 for no cache.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _files(self) -> list[tuple[Path, float, int]]:
        """Own files with time of last use and size; other processes may be deleting them."""
        found = []
        try:
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    if entry.name.endswith(_SUFFIX) or entry.name.startswith(".writing-"):
                        status = entry.stat()
                        found.append((Path(entry.path), status.st_mtime, status.st_size))
        except OSError:
            pass
        return found

    def _trim(self) -> None:
        files = self._files()
        stale = time.time() - _ABANDONED_AFTER_S
        total = sum(size for _, _, size in files)
        for path, used, size in sorted(files, key=lambda file: file[1]):
            abandoned = path.name.startswith(".writing-") and used < stale
            if abandoned or (total > self.max_bytes and path.name.endswith(_SUFFIX)):
                path.unlink(missing_ok=True)
                total -= size


def _encode(key: str, output: CachedOutput) -> bytes:
    texts = json.dumps(
        {"key": key, "ptx": output.ptx, "log": output.log, "lowered": output.lowered}
    ).encode()
    body = len(texts).to_bytes(8, "little") + texts + output.cubin
    return _MAGIC + hashlib.sha256(body).digest() + body


def _decode(blob: bytes, key: str) -> CachedOutput | None:
    checksum_at = len(_MAGIC)
    body = blob[checksum_at + _CHECKSUM_BYTES :]
    if not blob.startswith(_MAGIC):
        return None
    if hashlib.sha256(body).digest() != blob[checksum_at : checksum_at + _CHECKSUM_BYTES]:
        return None
    end = 8 + int.from_bytes(body[:8], "little")
    try:
        texts = json.loads(body[8:end])
        if texts["key"] != key:  # the file was renamed or copied
            return None
        lowered = tuple((str(expression), str(name)) for expression, name in texts["lowered"])
        return CachedOutput(body[end:], str(texts["ptx"]), str(texts["log"]), lowered)
    except (ValueError, KeyError, TypeError):
        return None
