"""`lowgemm diff`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lowgemm.cli.common import (
    CompilerArguments,
    Defines,
    Includes,
    Instances,
    Json,
    Options,
    app,
    compiler_arguments,
    default_archs,
    print_json,
)

if TYPE_CHECKING:
    from lowgemm.analysis import SassReport

__all__ = ["diff"]

First = Annotated[str, typer.Argument(help="A rung, a .cu file or a .cubin file.")]
Second = Annotated[
    str | None, typer.Argument(help="What to compare it with. Default: the same, built otherwise.")
]
Arch = Annotated[str | None, typer.Option("--arch", "-a", help="The architecture (sm_90).")]
ArchB = Annotated[str | None, typer.Option(help="B's architecture, if it is another.")]
DefinesB = Annotated[list[str] | None, typer.Option(help="A macro for B alone. Repeatable.")]
OptionsB = Annotated[list[str] | None, typer.Option(help="An NVRTC option for B alone.")]
Status = Annotated[bool, typer.Option("--exit-code", help="Exit status 1 if anything differs.")]


@app.command()
def diff(
    a: First,
    b: Second = None,
    arch: Arch = None,
    arch_b: ArchB = None,
    define: Defines = None,
    define_b: DefinesB = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    option_b: OptionsB = None,
    exit_code: Status = False,
    as_json: Json = False,
) -> None:
    """What came and went between two builds, per loop."""
    from lowgemm.analysis.difference import compare_builds
    from lowgemm.view.difference import difference_data, difference_text

    second = b or a
    first_arch = arch or default_archs()[0]
    second_arch = arch_b or first_arch
    own = compiler_arguments(define, include, option, kernel)
    other = compiler_arguments(
        _joined(define, define_b), include, _joined(option, option_b), kernel
    )
    before = _reports(a, first_arch, own)
    after = _reports(second, second_arch, other)
    difference = compare_builds(before, after)
    if as_json:
        print_json(difference_data(difference))
    else:
        label_a = _label(a, first_arch, define, option)
        label_b = _label(second, second_arch, _joined(define, define_b), _joined(option, option_b))
        print(difference_text(difference, label_a, label_b))
    if exit_code and difference.changed:
        raise typer.Exit(1)


def _joined(common: Sequence[str] | None, own: Sequence[str] | None) -> list[str]:
    return [*(common or ()), *(own or ())]


def _label(
    target: str, arch: str, defines: Sequence[str] | None, options: Sequence[str] | None
) -> str:
    from lowgemm.studies.targets import is_cubin

    if is_cubin(target):
        return target
    return " ".join([target, arch, *(f"-D{text}" for text in defines or ()), *(options or ())])


def _reports(target: str, arch: str, arguments: CompilerArguments) -> tuple[SassReport, ...]:
    from lowgemm.studies.inspection import inspect_build, inspect_cubin
    from lowgemm.studies.targets import is_cubin, load_cubin, resolve_builds

    if is_cubin(target):
        return inspect_cubin(load_cubin(target))
    (build,) = resolve_builds(target, [arch], **arguments)
    return inspect_build(build)
