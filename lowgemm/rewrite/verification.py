"""Whether a rewritten kernel gives the same bits as the original, on a workload and a device."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from lowgemm.errors import ArgumentValueError, RewriteError
from lowgemm.rewrite.rewriter import RewrittenKernel

if TYPE_CHECKING:
    from lowgemm.runtime import Device
    from lowgemm.runtime.workload import Workload

__all__ = ["verify_on"]


def verify_on(
    device: Device,
    original: bytes,
    rewritten: RewrittenKernel,
    workload: Workload,
    *,
    seed: int = 0,
) -> None:
    """Run both kernels and compare every array that they were given.

    On an emulator in strict mode a register that is used too early is a finding as well.

    Parameters
    ----------
    device
        Where they run: a GPU, or ``Emulator(arch, strict=True)``.
    original
        The cubin that the rewritten one was made of.
    rewritten
        What :func:`lowgemm.rewrite.rewrite_kernel` made of it.
    workload
        The launch and its inputs.
    seed
        Of random inputs.

    Raises
    ------
    ArgumentValueError
        The rewritten cubin was made of another one.
    RewriteError
        An array differs.
    EmulatorFindingsError
        The emulator found something wrong.
    """
    if hashlib.sha256(original).hexdigest() != rewritten.original:
        raise ArgumentValueError(
            f"the rewritten kernel {rewritten.kernel} was made of another cubin",
            "rewrite this one: what is right for one cubin need not be for another",
        )
    runs = []
    for cubin in (original, rewritten.cubin):
        kernel = device.load(cubin).kernel(rewritten.kernel)
        arrays = workload.launch(kernel, device, seed=seed)
        device.synchronize()
        runs.append([np.ascontiguousarray(array.download()).view(np.uint8) for array in arrays])
    for number, (one, other) in enumerate(zip(*runs, strict=True)):
        if not np.array_equal(one, other):
            place = int(np.flatnonzero(one.reshape(-1) != other.reshape(-1))[0])
            raise RewriteError(
                f"on {device.name} array {number} of the launch differs from byte {place} on",
                "keep the original, and report this loop",
            )
