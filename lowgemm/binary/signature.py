"""What a kernel's binary says of its interface: parameters, limits, static resources.

These records are filled by the cubin reader, refined by the PTX and by the mangled name, and used
by every launch to check its arguments before anything reaches a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["KernelSignature", "Parameter", "ParameterKind"]


class ParameterKind(StrEnum):
    """What a parameter holds, as far as it is known."""

    POINTER = "pointer"
    SIGNED = "signed integer"
    UNSIGNED = "unsigned integer"
    INTEGER = "integer"  # a number that is no float; its sign is not known (PTX ``.u32``)
    FLOAT = "floating point"
    STRUCT = "struct"
    UNKNOWN = "unknown"  # only the width is known


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter.

    ``offset_bytes`` and ``size_bytes`` come from EIATTR_KPARAM_INFO in the cubin and are always
    known. ``kind``, ``type_name`` (C++ spelling, e.g. ``"float const*"``) and ``pointee`` (the
    numpy name of the element type behind a pointer, e.g. ``"float32"``) come from the mangled name
    or the PTX and may be unknown.
    """

    index: int
    offset_bytes: int
    size_bytes: int
    kind: ParameterKind = ParameterKind.UNKNOWN
    type_name: str | None = None
    pointee: str | None = None
    pointee_is_const: bool = False


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """One kernel of a cubin: its (mangled) name, parameters and static resources.

    ``shared_bytes`` is the static shared memory that the kernel itself declares: without the
    1024 bytes which the system reserves per block from sm_90 on. ``max_threads`` is the bound from
    ``__launch_bounds__`` (None where there is none), ``required_block`` the exact block that a
    kernel compiled with ``__block_size__`` or ``.reqntid`` demands. ``required_cluster`` is the
    exact cluster in blocks from ``__cluster_dims__``, ``max_cluster_blocks`` the third figure of
    ``__launch_bounds__``. ``stack_bytes`` is per thread and includes the functions it calls;
    None where the compiler cannot tell it, as in a recursion.
    """

    name: str
    parameters: tuple[Parameter, ...]
    registers: int
    shared_bytes: int
    stack_bytes: int | None
    max_threads: int | None = None
    required_block: tuple[int, int, int] | None = None
    required_cluster: tuple[int, int, int] | None = None
    max_cluster_blocks: int | None = None
