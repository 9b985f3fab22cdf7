"""Compile with any release of NVRTC: each from its wheel, in a folder and a process of its own.

Two NVRTCs do not share a process, so a child loads the library that it is told to before anything
looks for one, and then compiles as usual. Wheels are fetched with pip, once.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import lowgemm
from lowgemm import errors
from lowgemm.compiler import Build
from lowgemm.errors import (
    ArgumentValueError,
    CompilationError,
    LowgemmError,
    ToolFailedError,
    ToolNotFoundError,
    ToolTimeoutError,
)
from lowgemm.toolchain import cache_directory, nvrtc_full_version, nvrtc_library

__all__ = ["Release", "compile_with", "find_release", "unpack_wheel"]

_RELEASE = re.compile(r"[0-9]{2}\.[0-9]{1,2}(?:\.[0-9]{1,4})?")
_LIBRARY = re.compile(r"libnvrtc(?:-builtins)?\.so\.[0-9.]+")
_FIRST_MAJOR = 12
_DOWNLOAD_LIMIT_S = 600
_COMPILE_LIMIT_S = 300


@dataclass(frozen=True, slots=True)
class Release:
    """An NVRTC: its full version and its library, beside which lies libnvrtc-builtins."""

    version: str
    library: Path


def find_release(wanted: str) -> Release:
    """Find a release of NVRTC; one that is neither installed nor kept is fetched with pip.

    Parameters
    ----------
    wanted
        ``"13.0"``, or exactly ``"13.0.88"``.

    Raises
    ------
    ArgumentValueError
        It is no version, or one before 12.0.
    ToolNotFoundError
        There is no such release, or no network, or no pip.
    """
    if not _RELEASE.fullmatch(wanted) or int(wanted[:2]) < _FIRST_MAJOR:
        raise ArgumentValueError(
            f"{wanted!r} is no release of NVRTC that lowgemm can use",
            "write 12.9, 13.0 or exactly 13.0.88; the first is 12.0",
        )
    return _installed(wanted) or _kept(wanted) or _fetched(wanted)


def _is_release(version: str, wanted: str) -> bool:
    return version == wanted or version.startswith(f"{wanted}.")


def _installed(wanted: str) -> Release | None:
    try:
        version, library = nvrtc_full_version(), nvrtc_library()
    except ToolNotFoundError:
        return None
    return Release(version, library) if _is_release(version, wanted) else None


def _store() -> Path:
    return cache_directory() / "nvrtc"


def _kept(wanted: str) -> Release | None:
    folders = [f for f in _store().glob("[0-9]*") if _is_release(f.name, wanted)]
    for folder in sorted(folders, key=lambda f: [int(n) for n in f.name.split(".")], reverse=True):
        library = _library(folder)
        if library is not None:
            return Release(folder.name, library)
    return None


def _library(folder: Path) -> Path | None:
    found = [f for f in sorted(folder.glob("libnvrtc*")) if "builtins" not in f.name]
    return found[0] if found else None


# ---- fetch


def _fetched(wanted: str) -> Release:
    major, exact = wanted.split(".")[0], wanted.count(".") == 2
    package = "nvidia-cuda-nvrtc" if int(major) > _FIRST_MAJOR else f"nvidia-cuda-nvrtc-cu{major}"
    requirement = f"{package}=={wanted}" + ("" if exact else ".*")
    with tempfile.TemporaryDirectory(prefix="lowgemm-") as scratch:
        _download(requirement, Path(scratch))
        wheels = list(Path(scratch).glob("*.whl"))
        if len(wheels) != 1:
            raise _not_available(requirement, "pip brought no wheel")
        return unpack_wheel(wheels[0], _store())


def _download(requirement: str, folder: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise _not_available(requirement, f"{sys.executable} has no pip")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "--no-input"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(folder), requirement],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _not_available(requirement, f"not there after {_DOWNLOAD_LIMIT_S} s") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise _not_available(requirement, said[-1] if said else done.stderr.strip()[-500:])


def _not_available(requirement: str, why: str) -> ToolNotFoundError:
    return ToolNotFoundError(
        f"NVRTC {requirement.partition('==')[2]} cannot be fetched: {why}",
        f"connect to a package index and check the release; or put the libraries of the wheel "
        f"{requirement!r} into {_store()}/VERSION by hand",
    )


def unpack_wheel(wheel: Path, store: Path) -> Release:
    """Unpack the libraries of an NVRTC wheel as ``store/VERSION``.

    Parameters
    ----------
    wheel
        The wheel; its name tells the version.
    store
        The folder of releases.

    Raises
    ------
    ToolFailedError
        It is no wheel of NVRTC.
    """
    version = wheel.name.split("-")[1] if wheel.name.count("-") >= 4 else ""
    target = store / version
    store.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".unpack-", dir=store))
    try:
        if not _RELEASE.fullmatch(version) or not _unpack(wheel, scratch):
            raise _no_wheel(wheel)
        if _library(target) is None:
            shutil.rmtree(target, ignore_errors=True)
            scratch.rename(target)
    except OSError:
        if _library(target) is None:  # else another process was faster
            raise
    except zipfile.BadZipFile as error:
        raise _no_wheel(wheel) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    library = _library(target)
    if library is None:
        raise _no_wheel(wheel)
    return Release(version, library)


def _unpack(wheel: Path, folder: Path) -> bool:
    """The libraries alone, without the variants that wheels call ``alt``; whether there is one."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            name = member.filename.rpartition("/")[2]
            if _LIBRARY.fullmatch(name):
                with archive.open(member) as source, (folder / name).open("wb") as copy:
                    shutil.copyfileobj(source, copy)
    return _library(folder) is not None


def _no_wheel(wheel: Path) -> ToolFailedError:
    return ToolFailedError(f"{wheel.name} is no wheel of NVRTC", "fetch it again")


# ---- compile, in a child


def compile_with(
    release: Release,
    target: str,
    archs: Sequence[str],
    *,
    defines: Mapping[str, str | int | float | bool | None] | None = None,
    include_dirs: Sequence[str] = (),
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
) -> tuple[Build, ...]:
    """Compile a target with a release of NVRTC, in a process of its own.

    Parameters
    ----------
    release
        The release.
    target, archs, defines, include_dirs, options, name_expressions
        As in :func:`lowgemm.studies.targets.resolve_builds`.

    Raises
    ------
    ToolFailedError, ToolTimeoutError
        The process crashed, loaded another NVRTC, or did not end.
    SourceNotFoundError, CompilationError, UnknownArchitectureError
        As from :func:`lowgemm.studies.targets.resolve_builds`, with the release in the text.
    """
    request = {
        "library": str(release.library),
        "version": release.version,
        "target": target,
        "archs": [str(arch) for arch in archs],
        "defines": dict(defines or {}),
        "include_dirs": [str(Path(folder).absolute()) for folder in include_dirs],
        "options": list(options),
        "name_expressions": list(name_expressions),
    }
    with tempfile.TemporaryDirectory(prefix="lowgemm-") as scratch:
        answer = Path(scratch) / "answer"
        _run_child(request, answer, release)
        # Written by our own child, into a folder that no one else can write to.
        kind, value = pickle.loads(answer.read_bytes())
    if kind == "error":
        _raise(value, release)
    return tuple(replace(build, nvrtc_version=release.version) for build in value)


def _run_child(request: Mapping[str, Any], answer: Path, release: Release) -> None:
    program = f"from {__name__} import _child; _child()"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, str(answer)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            errors="replace",
            env=_environment(release),
            timeout=_COMPILE_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolTimeoutError(
            f"NVRTC {release.version} did not end within {_COMPILE_LIMIT_S} s",
            "compile a smaller source, or leave this release out",
        ) from None
    if done.returncode != 0 or not answer.is_file():
        raise ToolFailedError(
            f"NVRTC {release.version} ended with status {done.returncode}: "
            f"{done.stderr.strip()[-1000:]}",
            f"delete {release.library.parent}, so that it is fetched again",
        )


def _environment(release: Release) -> dict[str, str]:
    """The loader finds the release's builtins, Python finds this lowgemm."""
    environment = dict(os.environ)
    package = str(Path(lowgemm.__file__).resolve().parent.parent)
    for name, folder in (
        ("LD_LIBRARY_PATH", str(release.library.parent)),
        ("PYTHONPATH", package),
    ):
        environment[name] = os.pathsep.join(filter(None, [folder, environment.get(name)]))
    return environment


def _raise(error: Mapping[str, str], release: Release) -> NoReturn:
    what = f"with NVRTC {release.version}: {error['what']}"
    kind = getattr(errors, error["kind"], LowgemmError)
    if issubclass(kind, CompilationError):
        raise CompilationError(what, error["remedy"], log=error["log"])
    raise kind(what, error["remedy"])


def _child() -> None:
    """What the child runs: load the library, compile what stdin asks for, write the answer."""
    request = json.load(sys.stdin)
    answer = Path(sys.argv[1])
    ctypes.CDLL(request.pop("library"), mode=ctypes.RTLD_GLOBAL)
    try:
        result: tuple[str, Any] = ("builds", _builds(request))
    except LowgemmError as error:
        log = getattr(error, "log", "")
        kind = type(error).__name__
        result = (
            "error",
            {"kind": kind, "what": error.what, "remedy": error.remedy, "log": log},
        )
    answer.write_bytes(pickle.dumps(result))


def _builds(request: dict[str, Any]) -> tuple[Build, ...]:
    from lowgemm.studies.targets import resolve_builds

    version = request.pop("version")
    if not _is_release(version, nvrtc_full_version()):
        raise ToolFailedError(
            f"NVRTC {nvrtc_full_version()} was loaded where {version} was meant",
            "the folder holds another release: delete it, so that it is fetched again",
        )
    return resolve_builds(request.pop("target"), request.pop("archs"), **request)
