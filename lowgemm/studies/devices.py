"""A GPU or the emulator: the one line in which a script chooses."""

from __future__ import annotations

from lowgemm.device import Gpu, gpu_available
from lowgemm.emulator import Emulator
from lowgemm.errors import ArgumentValueError
from lowgemm.hardware import Architecture
from lowgemm.runtime import Device

__all__ = ["DEFAULT_EMULATED", "NO_CLOCK", "open_device"]

#: The architecture that is emulated unless another is named.
DEFAULT_EMULATED = "sm_90"
#: Why what the emulator ran was not measured.
NO_CLOCK = "the emulator counts and has no clock: --device gpu on a machine with a GPU"


def open_device(kind: str | None = None, arch: Architecture | str = DEFAULT_EMULATED) -> Device:
    """Something that runs kernels.

    Parameters
    ----------
    kind
        ``"gpu"``, ``"emulator"``, or None for the GPU if there is one, otherwise the emulator.
    arch
        What is emulated; a GPU has its own.

    Raises
    ------
    ArgumentValueError
        There is no such kind.
    DriverNotFoundError, NoGpuError
        A GPU was asked for, and there is none.
    UnknownArchitectureError
        The emulator does not know the architecture.

    Examples
    --------
    >>> open_device("emulator", "sm_80").name
    'emulator of sm_80'
    """
    if kind not in (None, "gpu", "emulator"):
        raise ArgumentValueError(f"a device of kind {kind!r}", "there are 'gpu' and 'emulator'")
    if kind == "gpu" or (kind is None and gpu_available()):
        return Gpu()
    return Emulator(arch)
