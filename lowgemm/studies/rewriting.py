"""Every kernel of a cubin rewritten, or left as it is with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lowgemm.analysis import SassReport
from lowgemm.binary import display_names
from lowgemm.binary.sass import read_sass
from lowgemm.errors import KernelNotFoundError, RewriteError, UnknownInstructionError
from lowgemm.rewrite import LoopCost, RewrittenKernel, loop_cost, rewrite_kernel, verify_on
from lowgemm.runtime import Device
from lowgemm.runtime.workload import Workload
from lowgemm.studies.ladder import CompiledRung

__all__ = ["CubinRewrite", "KernelRewrite", "hot_loop_cost", "rewrite_cubin"]


@dataclass(frozen=True, slots=True)
class KernelRewrite:
    """One kernel: its name for people, and what became of it; ``reason`` where nothing did.

    ``verified_on`` are the devices on which it gave the same bits as the original.
    """

    name: str
    symbol: str
    made: RewrittenKernel | None
    reason: str = ""
    verified_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CubinRewrite:
    """A cubin in which every kernel that can be is rewritten."""

    arch: str
    cubin: bytes = field(repr=False)
    kernels: tuple[KernelRewrite, ...] = ()

    @property
    def any(self) -> bool:
        """Whether there is such a kernel."""
        return any(kernel.made is not None for kernel in self.kernels)


def rewrite_cubin(
    cubin: bytes,
    *,
    names: dict[str, str] | None = None,
    only: str | None = None,
    workload: Workload | None = None,
    devices: Sequence[Device] = (),
) -> CubinRewrite:
    """Rewrite the hot loops of a cubin's kernels.

    Parameters
    ----------
    cubin
        The whole file.
    names
        Names for people by symbol; others are demangled.
    only
        Kernels with this in their name.
    workload, devices
        A launch on which both kernels must give the same bits, on each of these devices.

    Raises
    ------
    CubinError
        The bytes are no cubin.
    KernelNotFoundError
        No kernel has ``only`` in its name.
    RewriteError, EmulatorFindingsError
        A rewritten kernel gives other bits, or the emulator finds something wrong.
    """
    kernels = read_sass(cubin)
    symbols = [kernel.name for kernel in kernels]
    told = display_names(symbols, names or {})
    chosen = [each for each in symbols if only is None or only in told[each] or only in each]
    if not chosen:
        known = ", ".join(told[each] for each in symbols) or "none"
        raise KernelNotFoundError(
            f"no kernel has {only!r} in its name", f"there is {known}", available=tuple(symbols)
        )
    found = []
    for symbol in chosen:
        made, reason = _attempt(cubin, symbol)
        if made is not None and workload is not None:
            for device in devices:
                verify_on(device, cubin, made, workload)
        verified = tuple(d.name for d in devices) if made is not None and workload else ()
        found.append(KernelRewrite(told[symbol], symbol, made, reason, verified))
        cubin = made.cubin if made is not None else cubin
    return CubinRewrite(str(kernels[0].arch), cubin, tuple(found))


def hot_loop_cost(item: CompiledRung, report: SassReport) -> LoopCost:
    """What the model says of the hot loop of a rung's instance for aligned rows."""
    (kernel,) = (each for each in read_sass(item.build.cubin) if each.name == report.symbol)
    assert report.hot is not None
    return loop_cost(kernel.instructions[report.hot.start // 16 : report.hot.end // 16])


def _attempt(cubin: bytes, symbol: str) -> tuple[RewrittenKernel | None, str]:
    try:
        return rewrite_kernel(cubin, symbol), ""
    except (RewriteError, UnknownInstructionError) as error:
        return None, error.what
