"""What of the toolchain is found where, in which version, and how to get what is missing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

from lowgemm import toolchain
from lowgemm.device import Gpu, driver_version, gpu_count
from lowgemm.device.clock import SmClock
from lowgemm.emulator import ARCHITECTURES
from lowgemm.errors import DriverNotFoundError, LowgemmError
from lowgemm.gemm import kernel_directory

__all__ = ["Finding", "examine"]

_GPU_PURPOSE = "timing, and running on a GPU"


@dataclass(frozen=True, slots=True)
class Finding:
    """One component.

    ``needed_for`` says what does not work without it; ``required`` whether lowgemm's work without a
    GPU needs it. ``remedy`` is empty where it was found.
    """

    component: str
    found: bool
    version: str
    where: str
    needed_for: str
    required: bool
    remedy: str = ""


def examine() -> tuple[Finding, ...]:
    """Look for everything that lowgemm uses. Raises nothing."""
    return (
        Finding("Python", True, platform.python_version(), sys.executable, "everything", True),
        _look("cuda-bindings", _package("cuda-bindings"), "NVRTC and the driver", True),
        _look("NVRTC", _nvrtc, "compiling", True),
        _look("cuobjdump", _tool("cuobjdump"), "register counts from cubins", True),
        _look("nvdisasm", _tool("nvdisasm"), "machine code as text", True),
        _look("kernels", _kernels, "the ladder", True),
        _look("CUDA headers", _headers, "cuda_fp16.h, mma.h and the like", False),
        _look("cache", _cache, "not compiling twice", False),
        Finding("emulator", True, "", f"runs {', '.join(ARCHITECTURES)}", "running", True),
        _look("driver", _driver, _GPU_PURPOSE, False),
        *_gpus(),
        _look("cuBLAS", _cublas, "the ratio to cuBLAS", False),
    )


def _look(
    component: str, probe: Callable[[], tuple[str, str]], needed_for: str, required: bool
) -> Finding:
    try:
        version, where = probe()
    except LowgemmError as error:
        return Finding(component, False, "", error.what, needed_for, required, error.remedy)
    return Finding(component, True, version, where, needed_for, required)


def _package(name: str) -> Callable[[], tuple[str, str]]:
    def probe() -> tuple[str, str]:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise LowgemmError(
                f"the package {name} is not installed", f"pip install {name}"
            ) from None
        return distribution.version, str(distribution.locate_file(""))

    return probe


def _nvrtc() -> tuple[str, str]:
    return toolchain.nvrtc_full_version(), str(toolchain.nvrtc_library())


def _tool(name: str) -> Callable[[], tuple[str, str]]:
    return lambda: (toolchain.tool_version(name), str(toolchain.find_tool(name)))


def _kernels() -> tuple[str, str]:
    directory = kernel_directory()
    return f"{len(list(directory.glob('*.cu')))} files", str(directory)


def _headers() -> tuple[str, str]:
    if toolchain.nvrtc_version() >= toolchain.FIRST_BUNDLED:
        return toolchain.nvrtc_full_version(), "in NVRTC, unpacked when a source needs them"
    found = toolchain.cuda_include_dirs()
    if not found:
        raise LowgemmError(
            "no CUDA headers were found",
            "pip install nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt, or NVRTC 13.3",
        )
    return "", ", ".join(map(str, found))


def _cache() -> tuple[str, str]:
    directory = toolchain.cache_directory()
    probe = directory
    while not probe.exists():
        probe = probe.parent
    if not os.access(probe, os.W_OK):
        raise LowgemmError(
            f"{directory} cannot be written", "name a directory in LOWGEMM_CACHE_DIR"
        )
    size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    return f"{size / 2**20:.1f} MiB", str(directory)


def _driver() -> tuple[str, str]:
    major, minor = driver_version()
    return f"CUDA {major}.{minor}", "libcuda"


def _gpus() -> tuple[Finding, ...]:
    purpose = _GPU_PURPOSE
    try:
        count = gpu_count()
    except DriverNotFoundError:
        return (Finding("GPU", False, "", "needs the driver", purpose, False),)
    except LowgemmError as error:
        return (Finding("GPU", False, "", error.what, purpose, False, error.remedy),)
    findings = []
    for ordinal in range(count):
        with Gpu(ordinal) as gpu:
            release = SmClock(gpu).driver_release()
            where = f"{gpu.name}, {gpu.multiprocessors} SMs" + (
                f", driver {release}" if release else ""
            )
            findings.append(
                Finding(f"GPU {ordinal}", True, str(gpu.architecture), where, purpose, False)
            )
    return tuple(findings)


def _cublas() -> tuple[str, str]:
    from lowgemm.studies.peers import find_cublas

    path = find_cublas()
    return "", path
