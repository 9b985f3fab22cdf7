"""SGEMM on one device: kernels compiled, rewritten, loaded, and launched."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import replace

from lowgemm.compiler import compile_file
from lowgemm.errors import ArgumentValueError
from lowgemm.gemm.call import SgemmCall
from lowgemm.gemm.choice import Chooser
from lowgemm.gemm.kernels import (
    FLAGS,
    PARTIAL_BYTES_PER_MULTIPROCESSOR,
    Chip,
    Choice,
    LaunchPlan,
    choices,
    kernel_named,
)
from lowgemm.gemm.rewritten import rewritten_cubin
from lowgemm.gemm.rungs import kernel_directory
from lowgemm.hardware import Architecture, capability
from lowgemm.rewrite import is_enabled
from lowgemm.runtime import Array, Device, Kernel, PreparedLaunch, foreign_stream_handle

__all__ = ["Sgemm", "SgemmLaunch", "chip_of", "compile_sgemm", "make_sgemm", "stream_key"]

#: As ``struct Sgemm`` in ``cu/sgemm.cuh``: c, a, b, partial, flags; nine strides; m, n, k, batches,
#: splits, vector_c; alpha, beta.
_ARGUMENTS = struct.Struct("<5Q9q6i2f")
_POINTERS, _FACTORS = struct.Struct("<3Q"), struct.Struct("<2f")
_FACTORS_OFFSET = _ARGUMENTS.size - _FACTORS.size
_SCALE_BLOCKS, _SCALE_THREADS = 4, 256


class SgemmLaunch:
    """A call of SGEMM with its kernel chosen, to be repeated on any arrays of that layout."""

    __slots__ = ("_keeps", "_lock", "_parameters", "_run")

    def __init__(self, prepared: PreparedLaunch, keeps: object = None) -> None:
        self._parameters = prepared.parameters
        self._run = prepared.launch
        self._keeps = keeps  # the workspace, whose addresses alone the kernel knows
        self._lock = threading.Lock()

    def launch(self, c: int, a: int, b: int, alpha: float, beta: float) -> None:
        """Launch with these pointers; the host does not wait."""
        with self._lock:  # the driver reads the parameters before it returns
            _POINTERS.pack_into(self._parameters, 0, c, a, b)
            _FACTORS.pack_into(self._parameters, _FACTORS_OFFSET, alpha, beta)
            self._run()


class Sgemm:
    """C = alpha A B + beta C on a device.

    Parameters
    ----------
    device
        Where it runs; kernels are compiled for its architecture when they are first needed.
    rewritten
        Whether hot loops are to be rewritten; None: as :func:`lowgemm.rewrite.is_enabled` says.
        Where one cannot be, the compiler's stays.
    chooser
        What picks a kernel for a call; None: by the measurements of this device, see
        :class:`Chooser`.
    """

    def __init__(
        self, device: Device, *, rewritten: bool | None = None, chooser: Chooser | None = None
    ) -> None:
        self.device = device
        self.rewritten = is_enabled() if rewritten is None else rewritten
        self.chip = chip_of(device)
        self.chooser = chooser if chooser is not None else Chooser.of(device.name)
        self._kernels: dict[tuple[str, str], Kernel] = {}
        self._workspaces: dict[object, tuple[Array, Array]] = {}
        self._lock = threading.RLock()

    def choices(self, call: SgemmCall) -> tuple[Choice, ...]:
        """What can compute a call, the one that should be fastest first."""
        return choices(call.canonical, self.chip)

    def choose(self, call: SgemmCall) -> Choice:
        """What computes a call: the fastest that was measured, else the cheapest by the model."""
        return self.chooser.choose(call.canonical, self.chip)

    def prepare(
        self, call: SgemmCall, choice: Choice | None = None, *, stream: object = None
    ) -> Callable[[int, int, int, float, float], None]:
        """Check and pack a call, to be made with pointers of matrices that have its layout.

        Calls of one stream share a workspace; calls in several streams do not.

        Parameters
        ----------
        call
            The sizes and strides.
        choice
            The kernel; None: the one that is chosen for it.
        stream
            The stream to launch in.

        Returns
        -------
        callable
            To be called with the addresses of C, A and B, alpha and beta.

        Raises
        ------
        ArgumentValueError
            The kernel does not take this call.
        """
        plain = call.canonical
        chosen = self.choose(call) if choice is None else choice
        kernel = kernel_named(chosen.kernel)
        if not kernel.accepts(plain) or chosen.splits not in kernel.splits(plain, self.chip):
            known = ", ".join(str(each) for each in self.choices(call))
            raise ArgumentValueError(f"{chosen} does not compute {plain.key}", f"these do: {known}")
        plan = kernel.plan(plain, chosen.splits, self.chip)
        launch = SgemmLaunch(self._prepared(plain, plan, stream), self._workspaces).launch
        if plain == call:
            return launch
        return lambda c, a, b, alpha, beta: launch(c, b, a, alpha, beta)

    def prepare_scale(
        self, call: SgemmCall, *, stream: object = None
    ) -> Callable[[int, int, int, float, float], None]:
        """As :meth:`prepare`, of C = beta C: what is left of a call where nothing is added."""
        plan = LaunchPlan(
            "sgemm_scale.cu", "", _SCALE_BLOCKS * self.device.multiprocessors, _SCALE_THREADS, 0, 1
        )  # fmt: skip
        return SgemmLaunch(self._prepared(call, plan, stream)).launch

    def plan(self, call: SgemmCall, choice: Choice) -> LaunchPlan:
        """How a choice is launched for a call."""
        return kernel_named(choice.kernel).plan(call.canonical, choice.splits, self.chip)

    def is_rewritten(self, call: SgemmCall, choice: Choice) -> bool:
        """Whether the hot loop of the kernel that computes a call so is rewritten."""
        plan = self.plan(call, choice)
        return make_sgemm(plan, self.device.architecture, rewritten=self.rewritten)[1]

    def _prepared(self, call: SgemmCall, plan: LaunchPlan, stream: object) -> PreparedLaunch:
        flags, partial = self._workspace(stream) if plan.needs_workspace else (None, None)
        a, b, c = call.a, call.b, call.c
        if call.k == 1:  # nothing is read a step further, but an address there must be aligned
            a, b = replace(a, column=0), replace(b, row=0)
        arguments = _ARGUMENTS.pack(
            *(0, 0, 0, partial.pointer if partial else 0, flags.pointer if flags else 0),
            *(a.row, a.column, a.batch, b.row, b.column, b.batch, c.row, c.column, c.batch),
            *(call.m, call.n, call.k, call.batches, plan.splits, call.has_vector_c),
            *(1.0, 0.0),
        )
        return self._kernel(plan).prepare(
            arguments,
            grid=plan.blocks,
            block=plan.threads,
            shared_bytes=plan.shared_bytes,
            stream=stream,
        )

    def _kernel(self, plan: LaunchPlan) -> Kernel:
        key = (plan.source, plan.expression)
        with self._lock:
            if key not in self._kernels:
                cubin, _ = make_sgemm(plan, self.device.architecture, rewritten=self.rewritten)
                self._kernels[key] = self.device.load(cubin).kernel()
            return self._kernels[key]

    def _workspace(self, stream: object) -> tuple[Array, Array]:
        """Flags of zeros, and partial sums, for launches that follow each other in one stream."""
        on_gpu = self.device.takes_cuda_arrays and stream is not None
        key = stream_key(foreign_stream_handle(stream) if on_gpu else None)
        with self._lock:
            if key not in self._workspaces:
                partial = PARTIAL_BYTES_PER_MULTIPROCESSOR // 4 * self.device.multiprocessors
                self._workspaces[key] = (
                    self.device.zeros(FLAGS, "uint32"),
                    self.device.empty(partial),
                )
            return self._workspaces[key]


def stream_key(handle: object) -> object:
    """What tells streams apart: the default stream has two names, and its per-thread one many."""
    if handle is None or handle == _LEGACY_STREAM:
        return 0
    return (handle, threading.get_ident()) if handle == _PER_THREAD_STREAM else handle


_LEGACY_STREAM, _PER_THREAD_STREAM = 1, 2


def chip_of(device: Device) -> Chip:
    """What the choice of kernels needs to know of a device."""
    major, minor = device.capability
    lanes = capability(major, minor).ffma_lanes_per_sm
    return Chip(multiprocessors=device.multiprocessors, ffma_lanes=lanes)


def compile_sgemm(plan: LaunchPlan, arch: Architecture | str) -> bytes:
    """The cubin of one instance of a kernel, as the compiler made it.

    Raises
    ------
    CompilationError, UnknownArchitectureError, ToolNotFoundError
        See :func:`lowgemm.compiler.compile_file`.
    """
    build = compile_file(
        kernel_directory() / plan.source,
        arch=arch,
        name_expressions=(plan.expression,) if plan.expression else (),
    )
    return build.cubin


def make_sgemm(
    plan: LaunchPlan, arch: Architecture | str, *, rewritten: bool
) -> tuple[bytes, bool]:
    """The cubin of one instance, and whether its hot loop is rewritten; both are cached on disk.

    Raises
    ------
    CompilationError, UnknownArchitectureError, ToolNotFoundError
        See :func:`lowgemm.compiler.compile_file`.
    """
    cubin = compile_sgemm(plan, arch)
    made = rewritten_cubin(cubin) if rewritten and plan.pays_rewriting else None
    return (cubin, False) if made is None else (made, True)
