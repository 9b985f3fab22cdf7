"""Hot loops rewritten, kept on disk; what is refused stays as the compiler made it."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace
from pathlib import Path

from lowgemm.binary import read_cubin
from lowgemm.compiler import Build
from lowgemm.compiler.store import Store
from lowgemm.errors import RewriteError, UnknownInstructionError
from lowgemm.rewrite import rewrite_kernel
from lowgemm.toolchain import cache_directory, caching_enabled

__all__ = ["rewritten_build", "rewritten_cubin"]

_REFUSED = b"refused"


@functools.lru_cache(maxsize=64)
def rewritten_cubin(cubin: bytes, kernel: str | None = None) -> bytes | None:
    """The cubin with a kernel's hot loop rewritten, from the disk if it is there; None: refused.

    ``kernel`` is its (mangled) name; None where there is only one.
    """
    store = Store(cache_directory() / "rewritten", "cubin") if caching_enabled() else None
    name = (kernel or "").encode()
    key = hashlib.sha256(b"\0".join((_rewriter_digest(), name, cubin))).hexdigest()
    known = store.load(key) if store is not None else None
    if known is None:
        try:
            known = rewrite_kernel(cubin, kernel).cubin
        except (RewriteError, UnknownInstructionError):
            known = _REFUSED  # the compiler's loop is right as well
        if store is not None:
            store.save(key, known)
    return None if known == _REFUSED else known


def rewritten_build(build: Build, kernel: str) -> Build | None:
    """The build with a kernel's hot loop rewritten, and its registers; None: refused."""
    cubin = rewritten_cubin(build.cubin, kernel)
    if cubin is None:
        return None
    registers = read_cubin(cubin).own_registers
    kernels = tuple(
        replace(
            each,
            signature=replace(each.signature, registers=registers[each.name]),
            resources=replace(each.resources, registers=registers[each.name]),
        )
        for each in build.kernels
    )
    return replace(build, cubin=cubin, kernels=kernels)


@functools.lru_cache(maxsize=1)
def _rewriter_digest() -> bytes:
    """Of what decides how a loop is rewritten: no entry of an earlier version is used."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in ("rewrite", "emulator", "isa", "binary", "hardware"):
        for path in sorted((package / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.digest()
