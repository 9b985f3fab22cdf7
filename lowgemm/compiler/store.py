"""A directory of checked entries by key, shared by any number of processes."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import time
import warnings
from pathlib import Path

from lowgemm.errors import OutputError

__all__ = ["Store"]

_CHECKSUM_BYTES = 32
_SCRATCH = ".writing-"
# What a killed process left half written is nobody's after this time.
_ABANDONED_AFTER_S = 3600


class Store:
    """Bytes by key, one file an entry, checked when read, written by rename.

    Parameters
    ----------
    directory
        Where the entries lie; made when the first one is stored.
    kind
        What the entries are: the ending of their files. A change of their format is a new kind.
    max_bytes
        Size above which the entries used least recently are deleted.
    """

    _warned = False

    def __init__(self, directory: str | Path, kind: str, *, max_bytes: int = 512 << 20) -> None:
        self.directory = Path(directory)
        self.max_bytes = max_bytes
        self._suffix = f".{kind}"

    def load(self, key: str) -> bytes | None:
        """The entry of that key; None if there is none or it is damaged."""
        path = self._path(key)
        try:
            blob = path.read_bytes()
        except OSError:
            return None
        if blob[:_CHECKSUM_BYTES] != _checksum(key, blob[_CHECKSUM_BYTES:]):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # marks it as used, for trimming
        return blob[_CHECKSUM_BYTES:]

    def save(self, key: str, content: bytes) -> None:
        """Write an entry, replacing any of that key.

        A directory that cannot be written gives one warning per process and is otherwise without
        consequence.
        """
        scratch = None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle, scratch = tempfile.mkstemp(prefix=_SCRATCH, dir=self.directory)
            with open(handle, "wb") as file:  # noqa: PTH123  # a descriptor, not a path
                file.write(_checksum(key, content) + content)
            os.replace(scratch, self._path(key))  # noqa: PTH105
            self._trim()
        except OSError as error:
            if scratch is not None:
                Path(scratch).unlink(missing_ok=True)
            self._warn(error)

    def clear(self) -> None:
        """Delete all entries.

        Raises
        ------
        OutputError
            One cannot be deleted.
        """
        try:
            for path, _, _ in self._files():
                path.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(
                f"the cache {self.directory} cannot be emptied: {error}",
                "check the permissions of that directory",
            ) from error

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}{self._suffix}"

    def _warn(self, error: OSError) -> None:
        if not Store._warned:
            Store._warned = True
            text = (
                f"lowgemm's cache {self.directory} cannot be written ({error}); what it "
                "would hold is made anew each time. Set LOWGEMM_CACHE_DIR, or LOWGEMM_CACHE=0 for "
                "no cache."
            )
            try:
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            except RuntimeWarning:  # where warnings are errors; the result is there all the same
                logging.getLogger("lowgemm").warning(text)

    def _files(self) -> list[tuple[Path, float, int]]:
        """Own files with time of last use and size; other processes may be deleting them."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                own = entry.name.endswith(self._suffix) or entry.name.startswith(_SCRATCH)
                with contextlib.suppress(OSError):
                    if own and not entry.is_dir(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        found.append((Path(entry.path), status.st_mtime, status.st_size))
        return found

    def _trim(self) -> None:
        files = self._files()
        stale = time.time() - _ABANDONED_AFTER_S
        total = sum(size for _, _, size in files)
        for path, used, size in sorted(files, key=lambda file: file[1]):
            abandoned = path.name.startswith(_SCRATCH) and used < stale
            if abandoned or (total > self.max_bytes and path.name.endswith(self._suffix)):
                path.unlink(missing_ok=True)
                total -= size


def _checksum(key: str, content: bytes) -> bytes:
    """Over the key as well: a file that was renamed or copied is no entry."""
    return hashlib.sha256(key.encode() + b"\0" + content).digest()
