"""What a device loads: the bytes of a cubin, and the kernels in them by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lowgemm.errors import (
    ArchitectureMismatchError,
    ArgumentTypeError,
    CubinError,
    KernelNotFoundError,
)
from lowgemm.runtime.shapes import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lowgemm.binary.signature import KernelSignature
    from lowgemm.hardware.architecture import Architecture
    from lowgemm.runtime.interface import CubinSource, Device

__all__ = ["Loadable"]


@dataclass(frozen=True, slots=True)
class Loadable:
    """A cubin with the signatures of its kernels.

    ``source`` is the build that it comes from, which knows the names that a programmer uses; None
    for bare bytes.
    """

    image: bytes = field(repr=False)
    arch: Architecture
    signatures: Mapping[str, KernelSignature]
    source: CubinSource | None = None

    @classmethod
    def of(cls, code: CubinSource | bytes) -> Loadable:
        """Of a build or of a cubin's bytes.

        Raises
        ------
        CubinError
            It is neither, or the bytes are no cubin.
        """
        if isinstance(code, (bytes, bytearray, memoryview)):
            from lowgemm.binary.cubin import read_cubin

            image = bytes(code)
            read = read_cubin(image)
            return cls(image, read.arch, {each.name: each for each in read.kernels})
        if not isinstance(getattr(code, "cubin", None), bytes):
            raise CubinError(
                f"a {type(code).__name__} is neither a build nor a cubin's bytes",
                "pass what compile_source() returns, or the bytes of a .cubin file",
            )
        signatures = (kernel.signature for kernel in code.kernels)
        return cls(code.cubin, code.arch, {each.name: each for each in signatures}, code)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels."""
        return tuple(self.signatures)

    def check_runs_on(self, device: Device) -> None:
        """Refuse a device that cannot run the cubin.

        Raises
        ------
        ArchitectureMismatchError
            It cannot.
        """
        if not self.arch.runs_on(*device.capability):
            raise ArchitectureMismatchError(
                f"the cubin is for {self.arch}; {device.name} is {device.architecture}",
                f"compile for {device.architecture}: the architecture of the device",
            )

    def find(self, name: str | None) -> KernelSignature:
        """A kernel by the name that a programmer uses, or its mangled one; None: the only one.

        Raises
        ------
        KernelNotFoundError
            There is none of that name, or no name was given and there are several.
        ArgumentTypeError
            The name is no text.
        """
        known = self.signatures
        if not isinstance(name, (str, type(None))):
            raise ArgumentTypeError(
                f"a kernel cannot be named {shown(name)}", f"give one of: {', '.join(known)}"
            )
        if name is None:
            if len(known) == 1:
                return next(iter(known.values()))
            raise KernelNotFoundError(
                f"the cubin has {len(known)} kernels, and none was named",
                f"name one of: {', '.join(known)}",
                available=self.kernels,
            )
        if name in known:
            return known[name]
        if self.source is not None:
            return self.source.kernel(name).signature
        # A C++ name in a bare cubin: _Z, its length, the name, then the parameters' types.
        mangled = [each for each in known if each.startswith(f"_Z{len(name)}{name}")]
        if len(mangled) == 1:
            return known[mangled[0]]
        raise KernelNotFoundError(
            f"the cubin has {len(mangled) or 'no'} kernel{'s' * (len(mangled) > 1)} named {name!r}",
            f"it has: {', '.join(known)}",
            available=self.kernels,
        )
