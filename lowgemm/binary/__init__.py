"""Read machine code, write it back, and judge nothing."""

from lowgemm.binary.cubin import Cubin, read_cubin
from lowgemm.binary.interface import refine_signature
from lowgemm.binary.mangled import (
    ParameterType,
    base_name,
    demangle,
    display_names,
    function_name,
    parameter_types,
    spellings,
)
from lowgemm.binary.ptx import PtxParameter, entry_parameters
from lowgemm.binary.signature import KernelSignature, Parameter, ParameterKind

__all__ = [
    "Cubin",
    "KernelSignature",
    "Parameter",
    "ParameterKind",
    "ParameterType",
    "PtxParameter",
    "base_name",
    "demangle",
    "display_names",
    "entry_parameters",
    "function_name",
    "parameter_types",
    "read_cubin",
    "refine_signature",
    "spellings",
]
