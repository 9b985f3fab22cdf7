"""Find NVRTC, its headers, cuobjdump and nvdisasm; say their versions; run them with a time limit.

Nothing is loaded when this module is imported: each function looks when it is called.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from lowgemm.errors import ToolFailedError, ToolNotFoundError, ToolTimeoutError

__all__ = [
    "FIRST_BUNDLED",
    "cache_directory",
    "caching_enabled",
    "cuda_include_dirs",
    "find_tool",
    "nvrtc_full_version",
    "nvrtc_library",
    "nvrtc_version",
    "run_tool",
    "tool_version",
]

_WHEELS = {
    "cuobjdump": "nvidia-cuda-cuobjdump",
    "nvdisasm": "nvidia-cuda-nvdisasm",
}
_NVRTC_REMEDY = "pip install nvidia-cuda-nvrtc (and cuda-bindings of the same CUDA major version)"
# nvrtcInstallBundledHeaders came with NVRTC 13.3.
#: The first NVRTC that brings CUDA's headers.
FIRST_BUNDLED = (13, 3)
_STDERR_TAIL_CHARS = 2000


# ---- directories


def cache_directory() -> Path:
    """Where lowgemm keeps what can be made again: ``LOWGEMM_CACHE_DIR`` or the user's cache.

    The directory need not exist.
    """
    override = os.environ.get("LOWGEMM_CACHE_DIR")
    if override:
        return Path(override).absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("lowgemm"))


def caching_enabled() -> bool:
    """Whether what can be made again is kept: not with ``LOWGEMM_CACHE=0``."""
    chosen = os.environ.get("LOWGEMM_CACHE", "").strip().lower()
    return chosen not in ("0", "off", "no", "false")


# ---- programs


def find_tool(name: str) -> Path:
    """Find a program of the toolchain: in the NVIDIA wheels or the toolkit, then in PATH.

    Raises
    ------
    ToolNotFoundError
        It is in none of these places; the remedy names the wheel that brings it.
    """
    found = _find_nvidia_program(name) or shutil.which(name)
    if found:
        return Path(found)
    wheel = _WHEELS.get(name)
    how = f"pip install {wheel}, or install" if wheel else "install"
    raise ToolNotFoundError(
        f"{name} was found neither in the NVIDIA wheels, nor in a CUDA toolkit, nor in PATH",
        f"{how} the CUDA toolkit and set CUDA_HOME",
    )


def _find_nvidia_program(name: str) -> str | None:
    try:
        from cuda.pathfinder import find_nvidia_binary_utility
    except ImportError:
        return None
    try:
        found: str | None = find_nvidia_binary_utility(name)
    except Exception:  # it refuses names it does not know with an exception type of its own
        return None
    return found


def run_tool(name: str, args: Sequence[str | Path], timeout_s: float = 30) -> str:
    """Run a program of the toolchain and return what it wrote to its standard output.

    Parameters
    ----------
    name
        ``"cuobjdump"``, ``"nvdisasm"`` or another program that :func:`find_tool` finds.
    args
        Its arguments.
    timeout_s
        Time limit in seconds. Both programs have been seen to hang on damaged cubins; at the limit
        the program and all it started are killed.

    Raises
    ------
    ToolNotFoundError
        The program is not installed, or cannot be started.
    ToolFailedError
        It ended with an error or crashed; the message holds the end of its standard error.
    ToolTimeoutError
        It did not end in time.
    """
    command = [str(find_tool(name)), *map(str, args)]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise ToolNotFoundError(
            f"{command[0]} cannot be started: {error}", "reinstall it or correct its permissions"
        ) from error
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise ToolTimeoutError(
            f"{name} did not end within {timeout_s:g} s: {' '.join(command)}",
            "the input may be damaged; otherwise allow more time with timeout_s",
        ) from None
    finally:
        _kill_group(process)
    if process.returncode != 0:
        raise _failure(name, command, process.returncode, err)
    return out.decode("utf-8", errors="replace")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _environment() -> dict[str, str]:
    """The environment, with nvdisasm's folder in PATH: cuobjdump starts nvdisasm from there."""
    environment = dict(os.environ)
    try:
        folder = str(find_tool("nvdisasm").parent)
    except ToolNotFoundError:
        return environment
    environment["PATH"] = folder + os.pathsep + environment.get("PATH", os.defpath)
    return environment


def _failure(name: str, command: list[str], status: int, stderr: bytes) -> ToolFailedError:
    how = f"ended with status {status}" if status > 0 else f"crashed ({_signal_name(-status)})"
    tail = stderr.decode("utf-8", errors="replace").strip()[-_STDERR_TAIL_CHARS:]
    what = f"{name} {how}: {' '.join(command)}"
    return ToolFailedError(
        f"{what}\n{tail}" if tail else what,
        "if the program refuses its input, check that the file is an undamaged cubin",
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def tool_version(name: str) -> str:
    """Version of a program, such as ``"13.5.37"``.

    Raises
    ------
    ToolNotFoundError, ToolFailedError, ToolTimeoutError
        As :func:`run_tool`; ToolFailedError also if the program names no version.
    """
    return _version_of(name, find_tool(name))


@lru_cache(maxsize=32)
def _version_of(name: str, path: Path) -> str:
    text = run_tool(name, ["--version"])
    match = re.search(r"\bV(\d+(?:\.\d+)+)", text) or re.search(r"release (\d+(?:\.\d+)+)", text)
    if match is None:
        raise ToolFailedError(f"{path} --version names no version: {text[:200]!r}", "reinstall it")
    return match[1]


# ---- NVRTC


def nvrtc_version() -> tuple[int, int]:
    """Major and minor version of NVRTC.

    Raises
    ------
    ToolNotFoundError
        libnvrtc or its Python bindings are not installed.
    """
    return _nvrtc()[0]


def nvrtc_library() -> Path:
    """Path of the libnvrtc that is loaded.

    Raises
    ------
    ToolNotFoundError
        As :func:`nvrtc_version`.
    """
    return _nvrtc()[1]


@lru_cache(maxsize=1)
def nvrtc_full_version() -> str:
    """NVRTC's version as exactly as it can be told, such as ``"13.5.37"``; else ``"13.5"``.

    The library itself tells major and minor; the rest comes from the wheel that owns the library,
    or from the library's file name in a toolkit.

    Raises
    ------
    ToolNotFoundError
        As :func:`nvrtc_version`.
    """
    (major, minor), library = _nvrtc()
    short = f"{major}.{minor}"
    for text in (_wheel_version(library), os.path.realpath(library).rpartition(".so.")[2]):
        if re.fullmatch(re.escape(short) + r"\.\d+", text):
            return text
    return short


def _wheel_version(library: Path) -> str:
    from importlib import metadata

    for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12"):
        try:
            wheel = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if library.is_relative_to(Path(str(wheel.locate_file("")))):
            return wheel.version
    return ""


@lru_cache(maxsize=1)
def _nvrtc() -> tuple[tuple[int, int], Path]:
    try:
        from cuda.bindings import nvrtc
        from cuda.pathfinder import load_nvidia_dynamic_lib

        library = load_nvidia_dynamic_lib("nvrtc").abs_path
        status, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:  # the bindings raise types of several modules, some private
        raise ToolNotFoundError(f"NVRTC cannot be loaded: {error}", _NVRTC_REMEDY) from error
    if int(status) != 0:
        raise ToolNotFoundError(f"NVRTC does not tell its version: {status}", _NVRTC_REMEDY)
    return (int(major), int(minor)), Path(library or "libnvrtc")


# ---- headers


def cuda_include_dirs() -> tuple[Path, ...]:
    """Directories with cuda_fp16.h, mma.h, cooperative_groups.h and CCCL, in the order to pass.

    From NVRTC 13.3 on these are the headers bundled in NVRTC, which fit it exactly; the first call
    on a machine unpacks them into the cache (26 MB, 2 s), and so does one that finds files missing
    or cut. For an older NVRTC they are those of the ``nvidia-cuda-runtime`` and
    ``nvidia-cuda-cccl`` wheels or of a toolkit. Empty if there are none.

    Raises
    ------
    ToolNotFoundError
        As :func:`nvrtc_version`.
    """
    if nvrtc_version() >= FIRST_BUNDLED:
        bundled = _bundled_headers(cache_directory() / "headers" / f"nvrtc-{nvrtc_full_version()}")
        if bundled is not None:
            return (bundled, bundled / "cccl")
    return _installed_headers()


class _Size(NamedTuple):
    """Of a tree of files."""

    files: int
    size_bytes: int


def _installed_headers() -> tuple[Path, ...]:
    from cuda.pathfinder import find_nvidia_header_directory

    # The compiler's directory has crt/, which mma.h and others of the runtime's include.
    names = ("cudart", "cccl", "nvcc")
    found = dict.fromkeys(find_nvidia_header_directory(name) for name in names)
    return tuple(Path(directory) for directory in found if directory)


# Where this process has them instead if the cache cannot be written.
_instead: dict[Path, Path] = {}
_unpacking = threading.Lock()


def _bundled_headers(target: Path) -> Path | None:
    """Unpack NVRTC's headers as ``target`` unless they are there; None if it brings none.

    They are looked at each time: someone may have emptied the cache meanwhile.
    """
    expected = _bundled_size()
    if expected is None:
        return None
    with _unpacking:
        for place in (target, _instead.get(target)):
            if place is not None and _is_whole(place, expected):
                return place
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=".unpack-", dir=target.parent))
        except OSError:
            return _unpack(_process_place(target))
        try:
            fresh = _unpack(scratch / "headers")
            return None if fresh is None else _publish(fresh, target, expected)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _publish(fresh: Path, target: Path, expected: _Size) -> Path:
    """Rename ``fresh`` to ``target``; another process may do the same at the same time."""
    for _ in range(3):
        try:
            fresh.rename(target)
            return target
        except OSError:
            if _is_whole(target, expected):
                return target
            # Someone removed or emptied files of it: put it aside, where it will be deleted.
            aside = fresh.parent / f"incomplete-{os.urandom(4).hex()}"
            try:
                target.rename(aside)
            except OSError:
                continue
    kept = _process_place(target)
    shutil.move(str(fresh), kept)
    return kept


def _process_place(target: Path) -> Path:
    """A place that lives as long as this process, for when the cache cannot be written."""
    directory = tempfile.mkdtemp(prefix="lowgemm-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    _instead[target] = Path(directory) / target.name
    return _instead[target]


@lru_cache(maxsize=1)
def _bundled_size() -> _Size | None:
    from cuda.bindings import nvrtc

    try:
        status, info, *_ = nvrtc.nvrtcGetBundledHeadersInfo()
    except (AttributeError, RuntimeError):  # bindings or library too old
        return None
    if int(status) != 0 or not info.available or not info.numFiles:
        return None
    return _Size(int(info.numFiles), int(info.uncompressedSize))


def _is_whole(directory: Path, expected: _Size) -> bool:
    size = _size_of(directory)
    return size.files >= expected.files and size.size_bytes >= expected.size_bytes


def _size_of(directory: Path) -> _Size:
    """Of all files but the hidden ones, which NVRTC's figures leave out."""
    sizes = []
    for folder, _, names in os.walk(directory):
        for name in names:
            if not name.startswith("."):
                with contextlib.suppress(OSError):  # someone may be deleting it
                    sizes.append(os.lstat(f"{folder}/{name}").st_size)
    return _Size(len(sizes), sum(sizes))


def _unpack(directory: Path) -> Path | None:
    from cuda.bindings import nvrtc

    status: Any = nvrtc.nvrtcInstallBundledHeaders(os.fsencode(directory), 0)[0]
    return directory if int(status) == 0 else None
