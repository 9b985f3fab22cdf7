"""Every kernel of a cubin rewritten, or left as it is with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lowgemm.binary import display_names
from lowgemm.binary.sass import read_sass
from lowgemm.errors import KernelNotFoundError, RewriteError, UnknownInstructionError
from lowgemm.rewrite import RewrittenKernel, rewrite_kernel

__all__ = ["CubinRewrite", "KernelRewrite", "rewrite_cubin"]


@dataclass(frozen=True, slots=True)
class KernelRewrite:
    """One kernel: its name for people, and what became of it; ``reason`` where nothing did."""

    name: str
    symbol: str
    made: RewrittenKernel | None
    reason: str = ""


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
    progress: Callable[[str], None] = lambda _: None,
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
    progress
        Is told each kernel's name before it is rewritten.

    Raises
    ------
    CubinError
        The bytes are no cubin.
    KernelNotFoundError
        No kernel has ``only`` in its name.
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
        progress(told[symbol])
        made, reason = _attempt(cubin, symbol)
        found.append(KernelRewrite(told[symbol], symbol, made, reason))
        cubin = made.cubin if made is not None else cubin
    return CubinRewrite(str(kernels[0].arch), cubin, tuple(found))


def _attempt(cubin: bytes, symbol: str) -> tuple[RewrittenKernel | None, str]:
    try:
        return rewrite_kernel(cubin, symbol), ""
    except (RewriteError, UnknownInstructionError) as error:
        return None, error.what
