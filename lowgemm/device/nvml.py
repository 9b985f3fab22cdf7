"""NVML, as far as it is there: what it does not tell is None."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from lowgemm.device.gpu import Gpu

__all__ = ["Nvml"]

T = TypeVar("T")


class Nvml:
    """Asks NVML about a GPU.

    Parameters
    ----------
    gpu
        The GPU; NVML knows it by its UUID, whatever CUDA_VISIBLE_DEVICES hides.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        # NVML is a library of its own and may be missing, or forbidden in a container.
        with contextlib.suppress(Exception):
            from cuda.bindings import nvml

            nvml.init_v2()
            self._handle = nvml.device_get_handle_by_uuid(gpu.uuid)
            self._nvml = nvml

    def ask(self, question: Callable[[Any, Any], T]) -> T | None:
        """What a question gives that is put to the library and the GPU's handle, or None."""
        if self._nvml is None:
            return None
        with contextlib.suppress(Exception):
            return question(self._nvml, self._handle)
        return None
