"""The GEMM ladder as data, its problems, and the check of its results."""

from lowgemm.gemm.blas import sgemm
from lowgemm.gemm.call import Kind, Layout, SgemmCall
from lowgemm.gemm.choice import Chooser, Measured, Tuned, TuningTable
from lowgemm.gemm.engine import Sgemm
from lowgemm.gemm.kernel import RungKernel, compile_rung, is_rewritten
from lowgemm.gemm.kernels import Chip, Choice
from lowgemm.gemm.output import GuardedOutput
from lowgemm.gemm.problem import GemmProblem, Operands, exact_operands, random_operands
from lowgemm.gemm.reference import CheckResult, Reference, gamma, poisoned
from lowgemm.gemm.rungs import (
    RUNG_NAMES,
    Rung,
    check_names,
    kernel_directory,
    ladder,
    rung,
)

__all__ = [
    "RUNG_NAMES",
    "CheckResult",
    "Chip",
    "Choice",
    "Chooser",
    "GemmProblem",
    "GuardedOutput",
    "Kind",
    "Layout",
    "Measured",
    "Operands",
    "Reference",
    "Rung",
    "RungKernel",
    "Sgemm",
    "SgemmCall",
    "Tuned",
    "TuningTable",
    "check_names",
    "compile_rung",
    "exact_operands",
    "gamma",
    "is_rewritten",
    "kernel_directory",
    "ladder",
    "poisoned",
    "random_operands",
    "rung",
    "sgemm",
]
