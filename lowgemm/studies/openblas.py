"""The OpenBLAS that numpy uses: where it is, the cores it has kernels for, which one runs here.

OpenBLAS is built for many cores at once. For each it has a table ``gotoblas_<core>`` with pointers
to its kernels, and with the sizes of the panels into which A and B are packed for the SGEMM kernel
(``SGEMM_UNROLL_M``, ``SGEMM_UNROLL_N``): seven integers that stand right before the pointer to
``samax_k``. All of that is read from the file, so that any core's kernel can be looked at on any
machine; only which core runs here is asked of the library, loaded.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from pathlib import Path

from lowgemm.binary.host import HostLibrary, HostSymbol
from lowgemm.errors import HostLibraryError, SymbolNotFoundError

__all__ = ["OpenBlasKernel", "numpy_openblas", "openblas_kernels", "pick_kernel", "selected_core"]

_TABLE = "gotoblas_"
_KERNEL = "sgemm_kernel"
_BEFORE = "samax_k_"
# From SGEMM_UNROLL_M to the pointer: M, N, MN, exclusive_cache and four bytes of padding.
_SIZES = struct.Struct("<3i")
_SIZES_BEFORE_POINTER = 20
_LARGEST_PANEL = 256


@dataclass(frozen=True, slots=True)
class OpenBlasKernel:
    """The SGEMM kernel of a core.

    ``panel_rows`` and ``panel_columns`` are how many rows of A and columns of B OpenBLAS packs
    together for it, as the core's table states; None where the table could not be read. A kernel
    may take several panels at once.
    """

    core: str
    symbol: str
    panel_rows: int | None
    panel_columns: int | None


def openblas_kernels(library: HostLibrary) -> tuple[OpenBlasKernel, ...]:
    """The SGEMM kernels of an OpenBLAS, in the order of their addresses.

    One that is built for a single core has one, whose ``core`` is empty.
    """
    prefix = f"{_KERNEL}_"
    cores = [name[len(prefix) :] for name in library.symbols if name.startswith(prefix)]
    known = [core for core in cores if _TABLE + core in library.symbols]
    known.sort(key=lambda core: library.symbols[prefix + core].address)
    if not known and _KERNEL in library.symbols:
        return (OpenBlasKernel("", _KERNEL, None, None),)
    return tuple(OpenBlasKernel(core, prefix + core, *_panels(library, core)) for core in known)


def pick_kernel(library: HostLibrary, core: str) -> OpenBlasKernel:
    """The SGEMM kernel of a core, by its name in any case.

    Raises
    ------
    HostLibraryError
        The library is no OpenBLAS.
    SymbolNotFoundError
        It has no kernel for that core.
    """
    kernels = openblas_kernels(library)
    if not kernels:
        raise _no_openblas(library.path)
    found = next((kernel for kernel in kernels if kernel.core.lower() == core.lower()), None)
    if found is None:
        names = tuple(kernel.core for kernel in kernels)
        raise SymbolNotFoundError(
            f"{library.path} has no SGEMM kernel for the core {core!r}",
            f"it has {', '.join(names)}" if any(names) else "name a function of the library",
            available=names,
        )
    return found


def _no_openblas(path: str | Path) -> HostLibraryError:
    return HostLibraryError(
        f"{path} is no OpenBLAS: it has no SGEMM kernel", "name a function of the library"
    )


def _panels(library: HostLibrary, core: str) -> tuple[int | None, int | None]:
    table = library.symbols[_TABLE + core]
    after = library.symbols.get(_BEFORE + core)
    place = _pointer_to(library, table, after) if after else None
    if place is None or place < _SIZES_BEFORE_POINTER:
        return None, None
    try:
        contents = library.contents(table.name)
    except HostLibraryError:
        return None, None
    rows, columns, _ = _SIZES.unpack_from(contents, place - _SIZES_BEFORE_POINTER)
    if not (0 < rows <= _LARGEST_PANEL and 0 < columns <= _LARGEST_PANEL):
        return None, None
    return rows, columns


def _pointer_to(library: HostLibrary, table: HostSymbol, target: HostSymbol) -> int | None:
    pointers = range(0, table.size_bytes, 8)
    at = library.relocations
    return next((p for p in pointers if at.get(table.address + p) == target.address), None)


def numpy_openblas() -> Path:
    """The file of the OpenBLAS that numpy has loaded.

    Raises
    ------
    HostLibraryError
        numpy uses another library, or the system does not tell what it has loaded.
    """
    import numpy

    beside = Path(numpy.__file__).parent.parent / "numpy.libs"
    found = sorted(beside.glob("*openblas*.so*")) or _loaded("openblas")
    if not found:
        raise HostLibraryError(
            f"numpy {numpy.__version__} has loaded no OpenBLAS as an ELF library",
            "name a library and a function of it",
        )
    return found[0]


def _loaded(part: str) -> list[Path]:
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    paths = (line.split(maxsplit=5)[5:] for line in maps.splitlines())
    return sorted({Path(path[0]) for path in paths if path and part in path[0]})


def selected_core(path: Path, library: HostLibrary) -> str:
    """The core whose kernels an OpenBLAS uses on this CPU, asked of the library, loaded.

    Raises
    ------
    HostLibraryError
        It is no OpenBLAS, cannot be loaded here, or does not say.
    """
    cores = [kernel.core for kernel in openblas_kernels(library)]
    if not cores:
        raise _no_openblas(path)
    if cores == [""]:
        return ""
    try:
        loaded = ctypes.CDLL(str(path))
        chosen = ctypes.c_void_p.in_dll(loaded, "gotoblas").value
        tables = {core: _address(loaded, _TABLE + core) for core in cores}
    except (OSError, ValueError) as error:
        raise HostLibraryError(
            f"{path} does not tell which core it uses here: {error}",
            f"name one with --core: {', '.join(cores)}",
        ) from error
    core = next((core for core, address in tables.items() if address == chosen), None)
    if core is None:
        raise HostLibraryError(
            f"{path} uses a core here that has no table of its own",
            f"name one with --core: {', '.join(cores)}",
        )
    return core


def _address(loaded: ctypes.CDLL, name: str) -> int:
    return ctypes.addressof(ctypes.c_char.in_dll(loaded, name))
