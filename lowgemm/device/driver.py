"""The CUDA driver: loaded when first needed, each result checked in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lowgemm.device.faults import FAULT_CODES
from lowgemm.errors import DriverError, DriverNotFoundError, LowgemmError, NoGpuError

if TYPE_CHECKING:
    from lowgemm.device.faults import LaunchLog

__all__ = [
    "bindings",
    "call",
    "check",
    "driver_version",
    "gpu_available",
    "gpu_count",
    "initialise",
]

_WITHOUT_GPU = "everything but timing works without one: --device emulator, lowgemm.Emulator"
_NO_DRIVER_REMEDY = f"install the NVIDIA driver on a machine with a GPU; {_WITHOUT_GPU}"
_REMEDIES = {
    "CUDA_ERROR_OUT_OF_MEMORY": "free arrays (close()), or use smaller ones; nvidia-smi shows who "
    "else uses the GPU's memory",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "compile for the device's own architecture",
    "CUDA_ERROR_INVALID_IMAGE": "the bytes are no cubin, or one for a newer driver: compile again",
    "CUDA_ERROR_INVALID_PTX": "load a cubin for the device's own architecture instead of PTX",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "load a cubin instead of PTX, or update the driver",
    "CUDA_ERROR_NOT_PERMITTED": "the operation is not allowed here: a stream may be capturing a "
    "graph, or the system forbids it (profiling counters)",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "launch fewer threads per block, or bound the kernel's "
    "registers with __launch_bounds__",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "libcuda and the kernel module differ: reboot, or "
    "install one driver",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "use a smaller cluster, or less shared memory per block",
}


def bindings() -> Any:
    """The module ``cuda.bindings.driver``.

    Raises
    ------
    DriverNotFoundError
        The package cuda-bindings is not installed.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DriverNotFoundError(
            f"the Python bindings of the CUDA driver cannot be imported: {error}",
            "install cuda-bindings 13",
        ) from error
    return driver


def check(
    result: tuple[Any, ...],
    call: str = "",
    *,
    launches: LaunchLog | None = None,
    api: Any = None,
) -> Any:
    """Take the values out of a driver call's result, or raise what it reports.

    Parameters
    ----------
    result
        What ``cuda.bindings.driver`` returns: the CUresult and the values.
    call
        The function's name, for the message.
    launches
        The launches that may have caused a fault.
    api
        The driver functions that know the error's text.

    Returns
    -------
    None, the one value, or the tuple of values.

    Raises
    ------
    KernelFaultError
        A kernel faulted earlier.
    NoGpuError
        There is no GPU, or not that one.
    DriverError
        Any other failure.
    """
    code, *values = result
    if code != 0:
        raise _error(code, call, launches, api)
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


def _error(code: Any, call: str, launches: LaunchLog | None, api: Any) -> DriverError | NoGpuError:
    name = getattr(code, "name", f"CUresult {int(code)}")
    text = _error_text(code, api)
    if name in FAULT_CODES:
        from lowgemm.device.faults import LaunchLog

        return (launches or LaunchLog()).fault(name, text, call)
    if name in ("CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_INVALID_DEVICE"):
        return NoGpuError(
            f"{call} found no such GPU: {name} ({text})",
            "nvidia-smi lists the GPUs; CUDA_VISIBLE_DEVICES hides those it does not name; "
            + _WITHOUT_GPU,
        )
    return DriverError(
        f"{call} failed: {name} ({text})", _REMEDIES.get(name, ""), code=name, call=call
    )


def _error_text(code: Any, api: Any) -> str:
    if api is not None:
        try:
            status, text = api.cuGetErrorString(code)
            if status == 0 and text:
                return bytes(text).decode(errors="replace")
        except (RuntimeError, TypeError):
            pass
    first, _, _ = (getattr(code, "__doc__", None) or "no description").partition("\n\n")
    return " ".join(first.split())


def call(api: Any, name: str, *args: Any, launches: LaunchLog | None = None) -> Any:
    """Call the driver function ``name`` of ``api`` and check its result.

    Raises
    ------
    DriverNotFoundError
        The driver cannot be loaded.
    DriverError
        The driver is too old to have the function, or the call failed.
    """
    try:
        result = getattr(api, name)(*args)
    except RuntimeError as error:
        # The bindings raise where libcuda is absent, and where it lacks the function.
        if name == "cuInit" or type(error).__name__ == "DynamicLibNotFoundError":
            raise DriverNotFoundError(
                f"the NVIDIA driver cannot be loaded: {error}", _NO_DRIVER_REMEDY
            ) from None
        raise DriverError(
            f"{name} cannot be called: {error}",
            "update the NVIDIA driver to one of CUDA 13",
            code="FUNCTION_NOT_FOUND",
            call=name,
        ) from error
    return check(result, name, launches=launches, api=api)


def initialise(api: Any = None) -> Any:
    """Load and initialise the driver; return its functions.

    Raises
    ------
    DriverNotFoundError
        The driver cannot be loaded.
    NoGpuError
        It is there, but no GPU is.
    """
    api = bindings() if api is None else api
    call(api, "cuInit", 0)
    return api


def driver_version(*, api: Any = None) -> tuple[int, int]:
    """The newest CUDA version that the installed driver knows: (major, minor).

    Raises
    ------
    DriverNotFoundError
        The driver cannot be loaded.
    """
    api = bindings() if api is None else api
    number = int(call(api, "cuDriverGetVersion"))
    return number // 1000, number % 1000 // 10


def gpu_count(*, api: Any = None) -> int:
    """The number of GPUs that this process may use; at least 1.

    Raises
    ------
    DriverNotFoundError
        The driver cannot be loaded.
    NoGpuError
        It is there, but no GPU is.
    """
    api = initialise(api)
    return int(call(api, "cuDeviceGetCount"))


def gpu_available(*, api: Any = None) -> bool:
    """Whether there is a driver and a GPU. Raises nothing of lowgemm's."""
    try:
        return gpu_count(api=api) > 0
    except LowgemmError:
        return False
