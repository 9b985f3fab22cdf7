"""Combine what cubin, PTX and mangled name say of a kernel's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

from lowgemm.binary.mangled import ParameterType, parameter_types
from lowgemm.binary.ptx import PtxParameter
from lowgemm.binary.signature import KernelSignature, Parameter, ParameterKind

__all__ = ["refine_signature"]

# PTX tells these apart from a class by value (".b8 x[n]"); a mangled name does not.
_ENUM_LIKE = (ParameterKind.INTEGER, ParameterKind.SIGNED, ParameterKind.UNSIGNED)


def refine_signature(
    signature: KernelSignature, ptx: Sequence[PtxParameter] | None = None
) -> KernelSignature:
    """Add to a cubin's parameters the kinds and types that PTX and the mangled name tell.

    Parameters
    ----------
    signature
        As :func:`lowgemm.binary.read_cubin` gives it. Its count, offsets and sizes are the
        authority and never change.
    ptx
        The kernel's parameters as :func:`lowgemm.binary.entry_parameters` gives them, if there is
        PTX.

    Returns
    -------
    KernelSignature
        With ``kind``, ``type_name``, ``pointee`` and ``pointee_is_const`` where they are known. A
        source that disagrees with the cubin in count or in any size is ignored as a whole.
    """
    sizes = [parameter.size_bytes for parameter in signature.parameters]
    named = parameter_types(signature.name)
    if named is not None and not _fits([p.size_bytes for p in named], sizes):
        named = None
    if ptx is not None and not _fits([p.size_bytes for p in ptx], sizes):
        ptx = None
    from_ptx: Sequence[PtxParameter | None] = list(ptx or repeat(None, len(sizes)))
    from_name: Sequence[ParameterType | None] = list(named or repeat(None, len(sizes)))
    merged = map(_merge, signature.parameters, from_ptx, from_name)
    return replace(signature, parameters=tuple(merged))


def _fits(told: list[int | None] | list[int], sizes: list[int]) -> bool:
    return len(told) == len(sizes) and all(
        size is None or size == actual for size, actual in zip(told, sizes, strict=True)
    )


def _merge(
    parameter: Parameter, ptx: PtxParameter | None, named: ParameterType | None
) -> Parameter:
    kind = parameter.kind
    if ptx is not None and ptx.kind is not ParameterKind.UNKNOWN:
        kind = ptx.kind
    if named is None:
        return replace(parameter, kind=kind)
    if named.kind is not ParameterKind.UNKNOWN:
        kind = named.kind
    elif kind not in (*_ENUM_LIKE, ParameterKind.STRUCT) and parameter.size_bytes > 8:
        kind = ParameterKind.STRUCT  # no enumeration is wider
    return replace(
        parameter,
        kind=kind,
        type_name=named.type_name,
        pointee=named.pointee,
        pointee_is_const=named.pointee_is_const,
    )
