"""What the commands share: the application, options, output, progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar

import typer

from lowgemm.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lowgemm.gemm import GemmProblem
    from lowgemm.studies.ladder import Progress

T = TypeVar("T")

__all__ = [
    "ARCHS_WITHOUT_GPU",
    "Archs",
    "Cold",
    "CompilerArguments",
    "CubinFile",
    "Defines",
    "DeviceChoice",
    "Emulated",
    "Far",
    "Includes",
    "Instances",
    "Json",
    "LadderSize",
    "Log",
    "Markdown",
    "Nvrtc",
    "OnDevice",
    "OneSize",
    "Only",
    "Options",
    "Output",
    "PtxFile",
    "Run",
    "RungNames",
    "Saved",
    "Seconds",
    "Sizes",
    "app",
    "choose_device",
    "chosen",
    "compiler_arguments",
    "console",
    "cubin_of",
    "default_archs",
    "emulated_problem",
    "print_json",
    "progress_bar",
    "show",
    "show_fitted",
    "write_bytes",
]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Compile, launch, check and time CUDA kernels: FP32 GEMM on CUDA cores.",
)

_PIPE_WIDTH = 200


class DeviceChoice(StrEnum):
    """What runs a kernel."""

    GPU = "gpu"
    EMULATOR = "emulator"


def choose_device(choice: DeviceChoice | None) -> DeviceChoice:
    """The device asked for; the GPU, if there is one, where none was.

    Raises
    ------
    DriverNotFoundError, NoGpuError
        A GPU was asked for, and there is none.
    """
    from lowgemm.device import Gpu, gpu_available

    if choice is DeviceChoice.GPU:
        Gpu().close()
    if choice is None:
        return DeviceChoice.GPU if gpu_available() else DeviceChoice.EMULATOR
    return choice


#: Products of the largest problem that the emulator is given: 2048 x 2048 x 2048.
_MOST_PRODUCTS = 2**33
#: Of the fastest rung on one core, checked on two sets of data; the slowest takes ten times that.
_SECONDS_OF_2_30_PRODUCTS = 20


def emulated_problem(text: str | None) -> GemmProblem:
    """The problem asked for, or one of seconds, to be run on the emulator.

    Raises
    ------
    ProblemSizeError
        The text is no problem, or one of hours.
    """
    from lowgemm.errors import ProblemSizeError
    from lowgemm.gemm import GemmProblem
    from lowgemm.studies.ladder import EMULATED_PROBLEM

    problem = GemmProblem.parse(text) if text else EMULATED_PROBLEM
    products = problem.m * problem.n * problem.k
    if products > _MOST_PRODUCTS:
        minutes = _SECONDS_OF_2_30_PRODUCTS * products / 2**30 / 60
        raise ProblemSizeError(
            f"{problem} takes the emulator about {minutes:,.0f} minutes for the fastest rung and "
            "ten times that for the slowest",
            "choose a --size of 2048 or less, or --device gpu on a machine with a GPU",
        )
    return problem


ARCHS_WITHOUT_GPU = ("sm_80", "sm_90", "sm_120")

Emulated = Annotated[str, typer.Option("--arch", "-a", help="The emulator's architecture.")]
OnDevice = Annotated[
    DeviceChoice | None,
    typer.Option(
        "--device",
        "-d",
        help="Run on the GPU or on the emulator. Default: the GPU, if there is one.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Archs = Annotated[
    list[str] | None,
    typer.Option(
        "--arch",
        "-a",
        help="An architecture, such as sm_90. Repeatable. Default: the GPU's own; without a GPU "
        "sm_80, sm_90 and sm_120.",
    ),
]
RungNames = Annotated[
    list[str] | None, typer.Argument(help="Rungs, from ex3 to two_ideas. Default: all.")
]
Sizes = Annotated[
    list[str] | None, typer.Option("--size", "-s", help="The GEMM: 4096 or MxNxK. Repeatable.")
]
Cold = Annotated[bool, typer.Option("--cold", help="Overwrite the L2 before each sample.")]
Defines = Annotated[
    list[str] | None, typer.Option("--define", "-D", help="NAME or NAME=VALUE; may be repeated.")
]
Includes = Annotated[
    list[Path] | None,
    typer.Option(
        "--include", "-I", help="A folder of headers. Repeatable.", exists=True, file_okay=False
    ),
]
Instances = Annotated[
    list[str] | None, typer.Option("--kernel", "-k", help="A template's instance: 'ex8<true>'.")
]
Options = Annotated[
    list[str] | None, typer.Option("--option", "-o", help="A further option for NVRTC.")
]
Only = Annotated[str | None, typer.Option("--only", help="Only kernels with this in their name.")]
Nvrtc = Annotated[
    str | None,
    typer.Option(
        help="Compile with this release of NVRTC (12.9); one that is not installed is fetched with "
        "pip, once."
    ),
]
CubinFile = Annotated[Path | None, typer.Option(help="Write the cubin here (one architecture).")]
PtxFile = Annotated[Path | None, typer.Option(help="Write the PTX here (one architecture).")]
Log = Annotated[bool, typer.Option("--log", help="Print the compiler's log as well.")]
Far = Annotated[bool, typer.Option("--far", help="Also element offsets beyond 2^31 (26 GB).")]
Seconds = Annotated[float, typer.Option(min=0.0, help="Longest timing of a size.")]
Run = Annotated[bool, typer.Option(help="Run the kernels, or only compile them.")]
OneSize = Annotated[str, typer.Option("--size", "-s", help="The GEMM: 4096 or MxNxK.")]
LadderSize = Annotated[
    str | None,
    typer.Option("--size", "-s", help="The GEMM: N or MxNxK. Default: 4096; on the emulator 256."),
]
Saved = Annotated[
    Path | None, typer.Option("--from", help="Show this timings file instead of measuring.")
]
Output = Annotated[Path | None, typer.Option(help="Write the timings with provenance here.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of a table.")]


# ---- output


def console(*, stderr: bool = False) -> Console:
    """A console that neither colours nor wraps what goes into a pipe, but for ``COLUMNS``."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        width=None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH,
        highlight=False,
        markup=False,  # texts such as lowgemm[peers] are meant as they stand
        emoji=False,
    )


def show(view: RenderableType) -> None:
    console().print(view)


def show_fitted(view: Callable[[int], RenderableType]) -> None:
    """Show a view that is made for a width."""
    out = console()
    out.print(view(out.width))


def print_json(data: Any) -> None:
    from lowgemm.report import plain

    print(json.dumps(plain(data), indent=1, default=str, allow_nan=False))


def write_bytes(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}", "name a file that can be written"
        ) from error


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress bar on stderr; in a pipe nothing."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    quiet = not sys.stderr.isatty()
    with Progress(*columns, console=console(stderr=True), transient=True, disable=quiet) as bars:
        task = bars.add_task("starting", total=None)

        def tell(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total)

        yield tell


def cubin_of(target: str, archs: Sequence[str] | None) -> bytes:
    """Read a cubin; refuse one that is for none of the architectures that were asked for."""
    from lowgemm.binary import read_cubin
    from lowgemm.hardware import Architecture
    from lowgemm.studies.targets import load_cubin

    cubin = load_cubin(target)
    if archs:
        there = read_cubin(cubin).arch
        # A cubin does not tell that it is for a family: sm_100f reads as sm_100.
        wanted = [str(Architecture.parse(arch)).removesuffix("f") for arch in archs]
        if str(there) not in wanted:
            raise typer.BadParameter(f"{target} is for {there}: leave out --arch, or name that one")
    return cubin


def default_archs() -> list[str]:
    """The GPU's own architecture; without one, three that differ."""
    from lowgemm.device import Gpu, gpu_available

    if not gpu_available():
        return list(ARCHS_WITHOUT_GPU)
    with Gpu() as gpu:
        return [str(gpu.architecture)]


def chosen(items: Sequence[T], only: str | None, *names: Callable[[T], str]) -> list[T]:
    """The items with a text in one of their names; without a text all of them.

    Raises
    ------
    KernelNotFoundError
        None of them has it; the error lists them by the first name.
    """
    from lowgemm.errors import KernelNotFoundError

    found = [i for i in items if only is None or any(only in name(i) for name in names)]
    if items and not found:
        available = tuple(dict.fromkeys(names[0](item) for item in items))
        raise KernelNotFoundError(
            f"no kernel has {only!r} in its name",
            f"there is {', '.join(available)}",
            available=available,
        )
    return found


class CompilerArguments(TypedDict):
    """What the compiling functions take beside the source and its architectures."""

    defines: dict[str, str | int | float | bool | None]
    include_dirs: list[str]
    options: list[str]
    name_expressions: list[str]


def compiler_arguments(
    define: Sequence[str] | None,
    include: Sequence[Path] | None,
    option: Sequence[str] | None,
    kernel: Sequence[str] | None,
) -> CompilerArguments:
    """The options of a command line as keyword arguments of the compiling functions."""
    return CompilerArguments(
        defines=dict(_parse_define(text) for text in define or ()),
        include_dirs=[str(path) for path in include or ()],
        options=[*(option or ())],
        name_expressions=[*(kernel or ())],
    )


def _parse_define(text: str) -> tuple[str, str | None]:
    """Split ``NAME=VALUE``; a name alone has no value."""
    name, equals, value = text.partition("=")
    return name, value if equals else None
