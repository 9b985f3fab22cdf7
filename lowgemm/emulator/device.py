"""The emulator as a device: the interface of :mod:`lowgemm.runtime`, with no GPU behind it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from lowgemm.binary.instruction import decode
from lowgemm.binary.sass import SassKernel, disassemble
from lowgemm.emulator.array import EmulatorArray
from lowgemm.emulator.counts import Counts
from lowgemm.emulator.findings import Finding
from lowgemm.emulator.global_memory import GlobalMemory
from lowgemm.emulator.launch import DRIVER_CODE, Launch
from lowgemm.emulator.program import Program, compile_program
from lowgemm.emulator.rules import Rules
from lowgemm.emulator.tensor_maps import encode_tensor_map
from lowgemm.errors import (
    ArgumentValueError,
    EmulationError,
    EmulatorFindingsError,
    StreamDeviceError,
    ToolFailedError,
    ToolNotFoundError,
    ToolTimeoutError,
    UnknownArchitectureError,
    UnmeasurableError,
)
from lowgemm.hardware import Architecture, capability
from lowgemm.runtime.arguments import pack
from lowgemm.runtime.interface import Device, Event, Kernel, Module, PreparedLaunch, Stream
from lowgemm.runtime.launch import DeviceLimits, LaunchShape, check_launch
from lowgemm.runtime.loading import Loadable
from lowgemm.runtime.shapes import array_layout, host_array, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lowgemm.binary.image import AddressSlot, Image
    from lowgemm.binary.signature import KernelSignature
    from lowgemm.runtime.arguments import PackedArguments
    from lowgemm.runtime.interface import Array, CubinSource, Resource
    from lowgemm.runtime.tensor_map import TensorLayout

__all__ = ["ARCHITECTURES", "Emulator", "EmulatorKernel", "EmulatorModule"]

#: The architectures whose machine code the emulator runs.
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
_DEFAULT_INSTRUCTIONS = 20_000_000
#: The multiprocessors that the emulator claims to have: kernels ask to size their grids.
_MULTIPROCESSORS = 4


class Emulator(Device):
    """Runs the machine code of cubins on the CPU, and sees what goes wrong.

    Parameters
    ----------
    arch
        The architecture whose code it runs: sm_80, sm_86, sm_89, sm_90, sm_100 or sm_120.
    findings
        ``"raise"``: a launch that did something wrong raises when it has ended; ``"collect"``: what
        it did is only added to :attr:`findings`, which keeps those of all launches until it is
        cleared (``findings.clear()``). Those of a kernel's last launch are ``kernel.findings``.
    instructions
        How many instructions all warps of a launch may take, counted once for each group of warps
        that executes one together; a launch that goes on is stopped.
    strict
        Whether registers are used only as the control words of the code allow: a use that comes
        before stall counts or scoreboards say that the value is there is a finding, and computes
        with another value. It takes up to 1.6 times as long (ex9 and ex6 at 256 cubed).

    Raises
    ------
    UnknownArchitectureError
        The emulator does not know that architecture's code.
    ArgumentValueError
        Another word for ``findings``, ``instructions`` is no positive number, or ``strict`` is
        neither True nor False.

    Notes
    -----
    Results are those of a GPU to the last bit, except where approximate functions (MUFU) go in. A
    launch is over when the call returns; streams and events keep the order by themselves. Events
    know no time.
    """

    takes_cuda_arrays = False

    def __init__(
        self,
        arch: Architecture | str = "sm_90",
        *,
        findings: str = "raise",
        instructions: int = _DEFAULT_INSTRUCTIONS,
        strict: bool = False,
    ) -> None:
        parsed = Architecture.parse(arch)
        if f"sm_{parsed.number}" not in ARCHITECTURES:
            raise UnknownArchitectureError(
                f"the emulator does not run code of {parsed}",
                f"it runs {', '.join(ARCHITECTURES)}",
            )
        if not isinstance(findings, str) or findings not in ("raise", "collect"):
            raise ArgumentValueError(
                f"findings={shown(findings)}", "'raise' stops at them, 'collect' goes on"
            )
        if isinstance(instructions, bool) or not isinstance(instructions, int) or instructions < 1:
            raise ArgumentValueError(
                f"instructions={shown(instructions)}", "give a whole number, 1 or more"
            )
        if not isinstance(strict, bool):
            raise ArgumentValueError(f"strict={shown(strict)}", "give True or False")
        self._arch = parsed
        self.raises = findings == "raise"
        self.instructions = instructions
        self.strict = strict
        self.name = f"emulator of {parsed}"
        self.capability = (parsed.major, parsed.minor)
        self.multiprocessors = _MULTIPROCESSORS
        chip = capability(*self.capability)
        self.limits = DeviceLimits(
            capability=self.capability,
            max_threads_per_block=chip.threads_per_block,
            max_shared_bytes_per_block=chip.shared_bytes_per_block_optin,
            reserved_shared_bytes_per_block=chip.shared_bytes_reserved_per_block,
        )
        self.memory = GlobalMemory()
        self.findings: list[Finding] = []
        self._resources: weakref.WeakSet[Resource] = weakref.WeakSet()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Emulator of {self._arch}>"

    @property
    def architecture(self) -> Architecture:
        return self._arch

    # ---- memory

    def empty(self, shape: int | Sequence[int], dtype: object = np.float32) -> EmulatorArray:
        self._check_open()
        array = EmulatorArray(self, *array_layout(shape, dtype))
        self._resources.add(array)
        return array

    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> EmulatorArray:
        host = host_array(host)
        self.check_stream(stream)
        array = self.empty(host.shape, host.dtype)
        array.upload(host)
        return array

    def zeros(self, shape: int | Sequence[int], dtype: object = np.float32) -> EmulatorArray:
        array = self.empty(shape, dtype)
        array.fill_bytes(0)
        return array

    def owns(self, array: Array) -> bool:
        return isinstance(array, EmulatorArray) and array.device is self

    def encode_tensor_map(self, layout: TensorLayout) -> bytes:
        return encode_tensor_map(layout)

    # ---- work

    def stream(self, foreign: object = None) -> EmulatorStream:
        self.check_stream(foreign)
        return EmulatorStream(self)

    def event(self) -> EmulatorEvent:
        return EmulatorEvent(self)

    def load(self, code: CubinSource | bytes) -> EmulatorModule:
        self._check_open()
        module = EmulatorModule(self, code)
        self._resources.add(module)
        return module

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        """Free all arrays that were made with this object, and close its modules."""
        self._closed = True
        for resource in list(self._resources):
            resource.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EmulationError("the emulator has been closed", "make another one")

    def check_stream(self, stream: object) -> None:
        """Refuse a stream that is not of this device.

        Raises
        ------
        StreamDeviceError
            It is none.
        """
        if stream is not None and not (
            isinstance(stream, EmulatorStream) and stream.device is self
        ):
            raise StreamDeviceError(
                f"{shown(stream)} is no stream of this emulator",
                "use device.stream(), or none; it takes no stream of a GPU",
            )

    def check_event(self, event: object) -> None:
        """Refuse an event that is not of this device.

        Raises
        ------
        StreamDeviceError
            It is none.
        """
        if not (isinstance(event, EmulatorEvent) and event.device is self):
            raise StreamDeviceError(
                f"{shown(event)} is no event of this emulator",
                "use device.event() or stream.record()",
            )


class EmulatorStream(Stream):
    """A stream of the emulator: all work in it is done at once."""

    def __init__(self, device: Emulator) -> None:
        self.device = device

    def __repr__(self) -> str:
        return f"<EmulatorStream of {self.device.architecture}>"

    def record(self, event: Event | None = None) -> Event:
        if event is None:
            return EmulatorEvent(self.device)
        self.device.check_event(event)
        return event

    def wait(self, event: Event) -> None:
        self.device.check_event(event)

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass


class EmulatorEvent(Event):
    """An event of the emulator: it orders, and knows no time."""

    def __init__(self, device: Emulator) -> None:
        self.device = device

    def __repr__(self) -> str:
        return f"<EmulatorEvent of {self.device.architecture}>"

    def record(self, stream: object = None) -> None:
        self.device.check_stream(stream)

    def elapsed_us(self, since: Event) -> float:
        self.device.check_event(since)
        raise UnmeasurableError(
            "the emulator's events have no time: it counts, and measures nothing",
            "time the kernel on a GPU, or ask the model (lowgemm model)",
        )

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass


class EmulatorModule(Module):
    """A cubin in the emulator."""

    def __init__(self, device: Emulator, code: CubinSource | bytes) -> None:
        from lowgemm.binary.image import read_image

        self.device: Emulator = device
        self._code = Loadable.of(code)
        self.arch = self._code.arch
        self._code.check_runs_on(device)
        self.image: Image = read_image(self._code.image)
        self._programs: dict[str, Program] = {}
        self._texts = _Texts(self._code.image)
        self._kernels: dict[str, EmulatorKernel] = {}
        self._sections: dict[str, int] = {}
        self._banks: dict[str, dict[int, bytes]] = {}
        by_driver = dict.fromkeys(slot.target for slot in self.image.addresses if slot.by_driver)
        self._driver_places = {name: DRIVER_CODE + 16 * at for at, name in enumerate(by_driver)}
        #: The functions that the driver would bring, by addresses at which no kernel has code.
        self.driver_functions = {place: name for name, place in self._driver_places.items()}
        self._closed = False
        self._place_variables()

    def _place_variables(self) -> None:
        """Put ``__device__`` variables into memory, and the addresses where they are asked for."""
        memory = self.device.memory
        for section in self.image.variables:
            base = memory.allocate(
                section.size_bytes, initialised=True, name="__device__ variables"
            )
            if section.content:
                memory.write(base, np.frombuffer(section.content, np.uint8).copy())
            self._sections[section.name] = base
        for slot in self.image.addresses:
            base = self._sections.get(slot.where, 0)
            if base:
                value = self._value(slot)
                memory.write(base + slot.offset, np.frombuffer(value, np.uint8).copy())

    def _value(self, slot: AddressSlot, kernel: str | None = None) -> bytes:
        """The address of a variable, or of a function as an offset in a kernel's code."""
        if slot.by_driver:
            return self._driver_places[slot.target].to_bytes(8, "little")
        target, addend = slot.target, slot.addend
        base = self._sections.get(target, 0)
        if target.startswith(".text.") and kernel is not None:
            function = target.removeprefix(".text.")
            parts = {part.function: part.start for part in self.image.code[kernel].parts}
            base = parts.get(function, 0)
        return (base + addend & (1 << 64) - 1).to_bytes(8, "little")

    def banks(self, kernel: str) -> dict[int, bytes]:
        """The constant banks of a kernel, with addresses filled in."""
        if kernel not in self._banks:
            self._banks[kernel] = self._filled_banks(kernel)
        return self._banks[kernel]

    def _filled_banks(self, kernel: str) -> dict[int, bytes]:
        found = dict(self.image.banks[kernel])
        for slot in self.image.addresses:
            number, _, owner = slot.where.removeprefix(".nv.constant").partition(".")
            if number.isdecimal() and owner in ("", kernel):
                content = bytearray(found.get(int(number), b""))
                value = self._value(slot, kernel)
                content[slot.offset : slot.offset + 8] = value
                found[int(number)] = bytes(content)
        return found

    @property
    def kernels(self) -> tuple[str, ...]:
        return self._code.kernels

    def __repr__(self) -> str:
        return f"<EmulatorModule {self.arch}: {', '.join(self.kernels)}>"

    def kernel(self, name: str | None = None) -> EmulatorKernel:
        self.check_open()
        signature = self._code.find(name)
        if signature.name not in self._kernels:
            self._kernels[signature.name] = EmulatorKernel(self, signature)
        return self._kernels[signature.name]

    def program(self, name: str) -> Program:
        """A kernel's code, ready to execute."""
        if name not in self._programs:
            code = self.image.code[name]
            kernel = SassKernel(
                self.arch, self._code.signatures[name], decode(code.content, self.arch)
            )
            self._programs[name] = compile_program(kernel, self._texts.of)
        return self._programs[name]

    def check_open(self) -> None:
        """Refuse to go on with a module that has been closed.

        Raises
        ------
        EmulationError
            It has been.
        """
        if self._closed:
            raise EmulationError("the module has been closed", "load it again")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for base in self._sections.values():
                self.device.memory.free(base)


class _Texts:
    """nvdisasm's text and source lines of a cubin, asked for once and only where a finding is."""

    def __init__(self, image: bytes) -> None:
        self._image = image
        self._kernels: dict[str, SassKernel] | None = None

    def of(self, kernel: str) -> SassKernel | None:
        """A kernel with its texts; None where nvdisasm cannot be had."""
        if self._kernels is None:
            try:
                read = disassemble(self._image, live_registers=False)
            except (ToolNotFoundError, ToolFailedError, ToolTimeoutError):
                read = ()
            self._kernels = {each.name: each for each in read}
        return self._kernels.get(kernel)


class EmulatorKernel(Kernel):
    """A kernel in the emulator.

    ``counts`` is what its launches have counted so far, by instruction; ``findings`` is what the
    last of them did wrong.
    """

    def __init__(self, module: EmulatorModule, signature: KernelSignature) -> None:
        self.module = module
        self.signature = signature
        self.program = module.program(signature.name)
        self.registers = signature.registers
        self.shared_bytes = signature.shared_bytes
        self.local_bytes = signature.stack_bytes or 0
        self.max_threads = signature.max_threads or module.device.limits.max_threads_per_block
        self.counts = Counts.of(self.program.kernel)
        self.findings: tuple[Finding, ...] = ()
        self.rules = Rules(self.program) if module.device.strict else None

    def __repr__(self) -> str:
        return f"<EmulatorKernel {self.name}: {self.registers} registers>"

    def reset_counts(self) -> None:
        """Count from zero again."""
        self.counts = Counts.of(self.program.kernel)

    def prepare(
        self,
        *args: object,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared_bytes: int = 0,
        cluster: int | Sequence[int] | None = None,
        stream: object = None,
    ) -> EmulatorPreparedLaunch:
        device = self.module.device
        self.module.check_open()
        shape = LaunchShape.of(grid, block, cluster, shared_bytes)
        check_launch(self.signature, shape, device.limits)
        device.check_stream(stream)
        packed = pack(self.signature, args, device=device)
        return EmulatorPreparedLaunch(self, shape, packed)


class EmulatorPreparedLaunch(PreparedLaunch):
    """A launch in the emulator, ready to be repeated; each is over when the call returns."""

    def __init__(self, kernel: EmulatorKernel, shape: LaunchShape, packed: PackedArguments) -> None:
        self.kernel = kernel
        self.shape = shape
        self._packed = packed

    def __repr__(self) -> str:
        return f"<EmulatorPreparedLaunch of {self.kernel.name}>"

    @property
    def parameters(self) -> memoryview:
        return memoryview(self._packed.buffer).cast("B")

    def launch(self, stream: object = None) -> None:
        kernel, device = self.kernel, self.kernel.module.device
        device.check_stream(stream)
        module = kernel.module
        module.check_open()
        launch = Launch(
            kernel.program,
            device.memory,
            self.shape,
            module.banks(kernel.name),
            (module.image.parameter_offset[kernel.name], bytes(self._packed.buffer)),
            kernel.counts,
            multiprocessors=device.multiprocessors,
            instructions=device.instructions,
            rules=kernel.rules,
            driver_functions=module.driver_functions,
        )
        try:
            launch.run()
        finally:
            found = kernel.findings = tuple(launch.findings.values())
            device.findings += found
        if found and device.raises:
            raise findings_error(kernel.name, found)


def findings_error(kernel: str, found: tuple[Finding, ...]) -> EmulatorFindingsError:
    """The error that says what a launch did wrong."""
    listed = "\n".join(f"  {finding}" for finding in found)
    count = f"{len(found)} finding{'s' * (len(found) > 1)}"
    return EmulatorFindingsError(
        f"kernel {kernel}: {count}\n{listed}",
        "mend the kernel; Emulator(findings='collect') only collects them",
        kernel=kernel,
        findings=found,
    )
