"""Every exception of lowgemm: what happened, the offending value, what to do about it.

All classes derive from :class:`LowgemmError`. Where a built-in exception means the same thing
(``TypeError``, ``ValueError``, ``FileNotFoundError``) the class derives from it as well, so that
callers who know nothing of lowgemm catch what they expect.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ArchitectureMismatchError",
    "ArgumentCountError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "ArrayLayoutError",
    "BlockSizeError",
    "CompilationError",
    "CubinError",
    "DriverError",
    "DriverNotFoundError",
    "DtypeError",
    "EmptyCubinError",
    "EmulationError",
    "EmulatorFindingsError",
    "EncodingError",
    "ExpectationError",
    "GridSizeError",
    "HostLibraryError",
    "KernelFaultError",
    "KernelNotFoundError",
    "LaunchError",
    "LowgemmError",
    "MeasurementError",
    "NoGpuError",
    "OutputError",
    "OverlapError",
    "ProblemSizeError",
    "PtxError",
    "RewriteError",
    "SharedMemoryError",
    "SourceNotFoundError",
    "StreamDeviceError",
    "SymbolNotFoundError",
    "ToolFailedError",
    "ToolNotFoundError",
    "ToolTimeoutError",
    "UnknownArchitectureError",
    "UnknownExperimentError",
    "UnknownGpuError",
    "UnknownInstructionError",
    "UnknownRungError",
    "UnmeasurableError",
    "VerificationError",
]


class LowgemmError(Exception):
    """Base of all errors raised on purpose by lowgemm.

    Parameters
    ----------
    what
        One or more sentences: what happened, with the offending value in it.
    remedy
        What the reader can do about it.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}\n  remedy: {self.remedy}" if self.remedy else self.what


# ---- toolchain


class ToolNotFoundError(LowgemmError, FileNotFoundError):
    """A program or library of the toolchain (NVRTC, cuobjdump, nvdisasm, headers) is not there."""

    # FileNotFoundError formats itself from errno fields; keep lowgemm's text.
    __str__ = LowgemmError.__str__


class ToolFailedError(LowgemmError):
    """A program of the toolchain ended with an error or crashed."""


class ToolTimeoutError(LowgemmError, TimeoutError):
    """A program of the toolchain did not end within its time limit."""

    __str__ = LowgemmError.__str__


# ---- hardware


class UnknownArchitectureError(LowgemmError, ValueError):
    """The architecture is not one that this NVRTC or lowgemm's tables know."""


class UnknownGpuError(LowgemmError, ValueError):
    """The GPU's name is not in lowgemm's table."""


# ---- compiling and reading


class SourceNotFoundError(LowgemmError, FileNotFoundError):
    """The ``.cu`` file is not there or cannot be read."""

    __str__ = LowgemmError.__str__


class CompilationError(LowgemmError):
    """NVRTC refused the source. ``log`` holds NVRTC's own messages, with file and line."""

    def __init__(self, what: str, remedy: str = "", *, log: str = "") -> None:
        super().__init__(what, remedy)
        self.log = log


class EmptyCubinError(LowgemmError):
    """The compilation succeeded but the cubin holds no kernel."""


class KernelNotFoundError(LowgemmError, LookupError):
    """The cubin has no kernel of that name. ``available`` lists those it has."""

    def __init__(self, what: str, remedy: str = "", *, available: tuple[str, ...] = ()) -> None:
        super().__init__(what, remedy)
        self.available = available


class CubinError(LowgemmError, ValueError):
    """The bytes are not a cubin that lowgemm can read."""


class PtxError(LowgemmError, ValueError):
    """The text is no PTX that lowgemm can read; the message names the line."""


class EncodingError(LowgemmError, ValueError):
    """Bits that are no instruction, or a field that does not fit its bits."""


class ExpectationError(LowgemmError, ValueError):
    """An expectation of machine code that cannot be read, or names what there is not."""


class HostLibraryError(LowgemmError, ValueError):
    """The file is no library of a CPU that lowgemm can read."""


class SymbolNotFoundError(LowgemmError, LookupError):
    """The library has no such symbol or core. ``available`` lists some that it has."""

    def __init__(self, what: str, remedy: str = "", *, available: tuple[str, ...] = ()) -> None:
        super().__init__(what, remedy)
        self.available = available


class ArchitectureMismatchError(LowgemmError):
    """The device cannot run the cubin's architecture, or its own lacks what is asked for."""


# ---- arguments, arrays, launches


class ArgumentCountError(LowgemmError, TypeError):
    """A launch has more or fewer arguments than the kernel has parameters."""


class ArgumentTypeError(LowgemmError, TypeError):
    """An argument's type or width does not fit the kernel's parameter."""


class ArgumentValueError(LowgemmError, ValueError):
    """An argument has the right type and an impossible value."""


class DtypeError(LowgemmError, TypeError):
    """An array has an element type that the operation does not take."""


class ArrayLayoutError(LowgemmError, ValueError):
    """An array's shape, strides, contiguity or device is not what the operation takes."""


class OverlapError(LowgemmError, ValueError):
    """An output shares memory with an input."""


class ProblemSizeError(LowgemmError, ValueError):
    """A dimension or leading dimension of a GEMM is impossible."""


class LaunchError(LowgemmError):
    """A launch configuration that the kernel or the device cannot run."""


class BlockSizeError(LaunchError, ValueError):
    """The block has too many threads, or not those that the kernel was compiled for."""


class GridSizeError(LaunchError, ValueError):
    """The grid or cluster is empty or larger than the device allows."""


class SharedMemoryError(LaunchError, ValueError):
    """The kernel's shared memory exceeds what a block may have on the device."""


class StreamDeviceError(LaunchError, ValueError):
    """The stream belongs to another device or context, or is no stream."""


# ---- driver


class DriverNotFoundError(LowgemmError):
    """The NVIDIA driver is not installed or cannot be loaded."""


class NoGpuError(LowgemmError):
    """The driver is there, but the GPU asked for is not."""


class DriverError(LowgemmError):
    """A driver call failed. ``code`` is the CUresult's name, ``call`` the function's."""

    def __init__(self, what: str, remedy: str = "", *, code: str = "", call: str = "") -> None:
        super().__init__(what, remedy)
        self.code = code
        self.call = call


class KernelFaultError(DriverError):
    """A kernel faulted while it ran. ``kernels`` names those launched since the last success."""

    def __init__(
        self,
        what: str,
        remedy: str = "",
        *,
        code: str = "",
        call: str = "",
        kernels: tuple[str, ...] = (),
    ) -> None:
        super().__init__(what, remedy, code=code, call=call)
        self.kernels = kernels


# ---- rewriting


class RewriteError(LowgemmError):
    """A loop that the rewriter leaves as it is, and why."""


# ---- emulating


class EmulationError(LowgemmError):
    """The emulator cannot go on with a kernel. ``kernel`` is its name."""

    def __init__(self, what: str, remedy: str = "", *, kernel: str = "") -> None:
        super().__init__(what, remedy)
        self.kernel = kernel


class UnknownInstructionError(EmulationError):
    """An instruction that the emulator does not know; it stands at ``address``."""

    def __init__(
        self, what: str, remedy: str = "", *, kernel: str = "", address: int | None = None
    ) -> None:
        super().__init__(what, remedy, kernel=kernel)
        self.address = address


class EmulatorFindingsError(EmulationError):
    """A kernel ran to its end and did something wrong. ``findings`` says what, where and who."""

    def __init__(
        self,
        what: str,
        remedy: str = "",
        *,
        kernel: str = "",
        findings: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(what, remedy, kernel=kernel)
        self.findings = findings


# ---- checking and measuring


class VerificationError(LowgemmError):
    """A kernel's result is wrong."""


class MeasurementError(LowgemmError):
    """A measurement could not be made, or was asked for in a way that means nothing."""


class UnmeasurableError(MeasurementError):
    """The machine does not tell what the measurement needs."""


class OutputError(LowgemmError):
    """A result cannot be written where it should go."""


class UnknownExperimentError(LowgemmError, LookupError):
    """No experiment of the laboratory has that name."""


class UnknownRungError(LowgemmError, LookupError):
    """No rung of the ladder has that name."""
