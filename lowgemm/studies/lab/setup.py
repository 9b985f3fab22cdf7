"""Where trials are made: a device with an experiment's kernels, and how large they are to be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeVar

from lowgemm.compiler import Build
from lowgemm.hardware import ComputeCapability, capability
from lowgemm.runtime import Device, Kernel, Module, Stream
from lowgemm.studies.lab.experiment import Variant

__all__ = ["Setup", "SmallSetup"]

T = TypeVar("T")

_SMALL_L2_BYTES, _SMALL_ARRAY_BYTES = 64 << 10, 1 << 20


class Setup(ABC):
    """A device with an experiment's kernels on it.

    Attributes
    ----------
    stream
        The stream in which trials are launched.
    scale
        0 for the sizes made for timing; 1 or more for small ones that grow with it.
    """

    stream: Stream
    scale: int = 0
    _variants: Mapping[str, tuple[Variant, Build]]
    _modules: dict[int, Module]

    @property
    @abstractmethod
    def device(self) -> Device:
        """Where the kernels run."""

    @property
    @abstractmethod
    def multiprocessors(self) -> int:
        """How many multiprocessors to fill."""

    @property
    @abstractmethod
    def l2_bytes(self) -> int:
        """How much the L2 is taken to hold."""

    @property
    @abstractmethod
    def most_bytes(self) -> int:
        """How much memory one array may take."""

    @property
    def chip(self) -> ComputeCapability:
        """The limits of the device's compute capability."""
        return capability(*self.device.capability)

    def kernel(self, variant: str) -> Kernel:
        """A variant's kernel, loaded."""
        chosen, build = self._variants[variant]
        if id(build) not in self._modules:
            self._modules[id(build)] = self.device.load(build)
        return self._modules[id(build)].kernel(chosen.kernel)

    def build(self, variant: str) -> Build:
        """What a variant's kernel was compiled to, patched where it is."""
        return self._variants[variant][1]

    def blocks_per_sm(self, variant: str, threads: int) -> int:
        """Blocks of a variant that a multiprocessor holds at once; one in a small setup."""
        return 1 if self.scale else self.kernel(variant).occupancy(threads) or 1

    def pick(self, full: T, small: T) -> T:
        """What suits the setup: a size made for timing, or a small one."""
        return small if self.scale else full


class SmallSetup(Setup):
    """A setup whose trials take little work and are the same on every device.

    Parameters
    ----------
    device
        A GPU or an emulator.
    variants
        The experiment's variants with their builds.
    scale
        1 for the smallest sizes, 2 or more for larger ones.
    """

    def __init__(
        self, device: Device, variants: Mapping[str, tuple[Variant, Build]], scale: int = 1
    ) -> None:
        self._device = device
        self._variants = variants
        self._modules = {}
        self.scale = scale
        self.stream = device.stream()

    @property
    def device(self) -> Device:
        return self._device

    @property
    def multiprocessors(self) -> int:
        return self.scale + 1

    @property
    def l2_bytes(self) -> int:
        return _SMALL_L2_BYTES

    @property
    def most_bytes(self) -> int:
        return _SMALL_ARRAY_BYTES
