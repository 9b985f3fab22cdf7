"""What a compilation gives: the `Build` and its kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lowgemm.binary import (
    KernelSignature,
    base_name,
    demangle,
    display_names,
    entry_parameters,
    read_cubin,
    refine_signature,
    spellings,
)
from lowgemm.binary.mangled import ANONYMOUS
from lowgemm.compiler.log import KernelResources, parse_log
from lowgemm.errors import CubinError, KernelNotFoundError
from lowgemm.hardware import Architecture

__all__ = ["Build", "CompiledKernel", "KernelResources", "assemble_kernels"]


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """One kernel of a build.

    ``name_expression`` is the C++ spelling under which it was asked for (``"ex8<true>"``), None
    for a kernel that needs none; ``name_expressions`` are all that were given and mean it.
    ``display_name`` is a name for people, unique in the build: the name expression, or the C++ name
    without its parameters; overloads have them.
    """

    name_expressions: tuple[str, ...]
    signature: KernelSignature
    resources: KernelResources
    display_name: str

    @property
    def name(self) -> str:
        """The (mangled) name in the cubin."""
        return self.signature.name

    @property
    def name_expression(self) -> str | None:
        """The first of the name expressions."""
        return self.name_expressions[0] if self.name_expressions else None


@dataclass(frozen=True, slots=True)
class Build:
    """One source compiled for one architecture.

    Two builds are equal if everything but ``log`` and ``from_cache`` is. ``options`` are those that
    NVRTC was given, in order. ``source`` is None for a text that came from no file.
    """

    source: Path | None
    arch: Architecture
    cubin: bytes = field(repr=False)
    ptx: str = field(repr=False)
    log: str = field(repr=False, compare=False)  # holds times
    kernels: tuple[CompiledKernel, ...]
    nvrtc_version: str
    options: tuple[str, ...]
    from_cache: bool = field(default=False, compare=False)

    def __repr__(self) -> str:
        origin = str(self.source) if self.source else "text"
        names = ", ".join(kernel.display_name for kernel in self.kernels)
        cached = ", from cache" if self.from_cache else ""
        return f"<Build of {origin} for {self.arch}: {names}; {len(self.cubin)} bytes{cached}>"

    def kernel(self, name: str | None = None) -> CompiledKernel:
        """Find a kernel.

        Parameters
        ----------
        name
            A name expression (``"ex8<true>"``), a mangled name, or a plain C++ name if only one
            kernel has it (``"ex8"``), an overload's with its parameters (``"ex8(float*)"``). An
            anonymous namespace may be left out, as may all if there is only one kernel.

        Raises
        ------
        KernelNotFoundError
            There is none of that name, or more than one; the error lists what is there.
        """
        found = list(self.kernels) if name is None else self._named(name)
        if len(found) == 1:
            return found[0]
        available = tuple(kernel.display_name for kernel in self.kernels)
        what = "no name was given" if name is None else f"no kernel is named {name!r}"
        if name is not None and found:
            what = f"{len(found)} kernels are named {name!r}"
        raise KernelNotFoundError(
            f"{what}; the build for {self.arch} has {', '.join(available)}",
            "name one of these" if name is None or found else _remedy(name),
            available=available,
        )

    def _named(self, name: str) -> list[CompiledKernel]:
        wanted = _squeezed(name)
        tests = (
            lambda k: k.name == name,
            lambda k: wanted in map(_squeezed, k.name_expressions),
            lambda k: wanted in map(_squeezed, (k.display_name, *spellings(k.name))),
            lambda k: _squeezed(demangle(k.name)) == wanted,
            lambda k: wanted in (name := base_name(k.name), name.replace(ANONYMOUS, "")),
        )
        for test in tests:
            found = [kernel for kernel in self.kernels if test(kernel)]
            if found:
                return found
        return []


def _remedy(name: str) -> str:
    if "<" in name:
        return (
            f"name one of these, or compile it with name_expressions=({name!r},) "
            f"(lowgemm compile: -k {name!r})"
        )
    return "name one of these; a template must be compiled with name_expressions"


def _squeezed(name: str) -> str:
    return re.sub(r"\s+", "", name)


def assemble_kernels(
    cubin: bytes, ptx: str, log: str, lowered: Sequence[tuple[str, str]], arch: Architecture
) -> tuple[CompiledKernel, ...]:
    """Join what cubin, PTX and log say of each kernel.

    Parameters
    ----------
    cubin, ptx, log
        NVRTC's outputs.
    lowered
        Pairs of name expression and mangled name.
    arch
        The architecture that was asked for.

    Raises
    ------
    CubinError
        The cubin is damaged or for another architecture, or the log disagrees with it: a register
        count that is not the cubin's would be a wrong number in every report.
    """
    expressions: dict[str, list[str]] = {}
    for expression, mangled in lowered:
        expressions.setdefault(mangled, []).append(expression)
    parameters = entry_parameters(ptx)
    told = parse_log(log)
    read = read_cubin(cubin)
    # A family target ("f") is marked nowhere in a cubin.
    if (read.arch.number, read.arch.suffix) != (arch.number, arch.suffix.replace("f", "")):
        raise CubinError(
            f"NVRTC made a cubin for {read.arch}; {arch} was asked for",
            "name the architecture with arch= alone; else this is a fault in lowgemm: report it",
        )
    # The first part of a kernel's code is its own.
    called = {k: [part.function for part in code.parts[1:]] for k, code in read.code.items()}
    shown = display_names(
        [kernel.name for kernel in read.kernels],
        {mangled: names[0] for mangled, names in expressions.items()},
    )
    kernels = []
    for plain in read.kernels:
        resources = told.resources(plain.name, read.separate_functions, called[plain.name])
        registers = read.own_registers[plain.name]
        if resources is None or resources.registers != registers:
            count = "nothing" if resources is None else f"{resources.registers} registers"
            raise CubinError(
                f"ptxas's log says {count} of kernel {plain.name!r}, "
                f"the cubin {registers} registers",
                "keep --ptxas-options=-v in effect; else this is a fault in lowgemm: report it",
            )
        signature = refine_signature(plain, parameters.get(plain.name))
        given = tuple(expressions.get(plain.name, ()))
        kernels.append(CompiledKernel(given, signature, resources, shown[plain.name]))
    return tuple(kernels)
