"""lowgemm: compile, launch, check and time CUDA kernels from Python, and see what they use.

Nothing heavy is loaded by importing this package: neither numpy nor NVRTC nor the driver. Each
public name loads its module at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowgemm.compiler import Build, compile_file, compile_source
    from lowgemm.device import Gpu, gpu_available, gpu_count
    from lowgemm.emulator import Emulator
    from lowgemm.errors import LowgemmError
    from lowgemm.gemm import GemmProblem, sgemm
    from lowgemm.hardware import Architecture
    from lowgemm.studies.devices import open_device

__version__ = "0.1.0"

_HOME = {
    "Architecture": "lowgemm.hardware",
    "Build": "lowgemm.compiler",
    "Emulator": "lowgemm.emulator",
    "GemmProblem": "lowgemm.gemm",
    "Gpu": "lowgemm.device",
    "LowgemmError": "lowgemm.errors",
    "compile_file": "lowgemm.compiler",
    "compile_source": "lowgemm.compiler",
    "gpu_available": "lowgemm.device",
    "gpu_count": "lowgemm.device",
    "open_device": "lowgemm.studies.devices",
    "sgemm": "lowgemm.gemm",
}

__all__ = [
    "Architecture",
    "Build",
    "Emulator",
    "GemmProblem",
    "Gpu",
    "LowgemmError",
    "__version__",
    "compile_file",
    "compile_source",
    "gpu_available",
    "gpu_count",
    "open_device",
    "sgemm",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lowgemm' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
