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
    Only,
    Options,
    app,
    chosen,
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
Arch = Annotated[
    list[str] | None,
    typer.Option(
        "--arch",
        "-a",
        help="The architecture. Default: the .cubin's, else the GPU's own, without a GPU sm_80.",
    ),
]
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
    only: Only = None,
    exit_code: Status = False,
    as_json: Json = False,
) -> None:
    """What came and went between two builds, per loop.

    A and B are each a rung, a .cu file or a .cubin file; without B, A is built a second time as
    --arch-b, --define-b and --option-b say.
    """
    from lowgemm.analysis.difference import compare_builds
    from lowgemm.studies.targets import is_cubin
    from lowgemm.view.difference import difference_data, difference_text

    if arch and len(arch) > 1:
        raise typer.BadParameter(f"--arch names one architecture, not {len(arch)}: B's is --arch-b")
    if b is None and (is_cubin(a) or not (arch_b or define_b or option_b)):
        raise typer.BadParameter(
            "nothing to compare: name a second target, or, for a source, what B is built with: "
            "--arch-b, --define-b, --option-b"
        )
    second = b or a
    first_arch, second_arch = _architectures(a, second, arch or [], arch_b)
    own = compiler_arguments(define, include, option, kernel)
    other = compiler_arguments(
        _joined(define, define_b), include, _joined(option, option_b), kernel
    )
    before = _reports(a, first_arch, own)
    after = _reports(second, second_arch, other)
    names = [report.kernel for report in chosen([*before, *after], only, lambda r: r.kernel)]
    before, after = ([r for r in reports if r.kernel in names] for reports in (before, after))
    difference = compare_builds(before, after)
    if as_json:
        print_json(difference_data(difference))
    else:
        label_a = _label(a, first_arch, define, option)
        label_b = _label(second, second_arch, _joined(define, define_b), _joined(option, option_b))
        print(difference_text(difference, label_a, label_b))
    if exit_code and difference.changed:
        raise typer.Exit(1)


def _architectures(a: str, b: str, given: Sequence[str], given_b: str | None) -> tuple[str, str]:
    """What each side is compiled for: as asked for, else as the cubin on the other side is."""
    from lowgemm.binary.cubin import read_cubin
    from lowgemm.studies.targets import is_cubin, load_cubin

    if len(given) > 1:
        raise typer.BadParameter(
            f"--arch names one architecture, not {len(given)}: B's is --arch-b"
        )
    cubins = [target for target in (a, b) if is_cubin(target)]
    if given:
        first = given[0]
    elif cubins:
        first = str(read_cubin(load_cubin(cubins[0])).arch)
    else:
        first = default_archs()[0]
    return first, given_b or first


def _joined(common: Sequence[str] | None, own: Sequence[str] | None) -> list[str]:
    return [*(common or ()), *(own or ())]


def _label(
    target: str, arch: str, defines: Sequence[str] | None, options: Sequence[str] | None
) -> str:
    from lowgemm.studies.targets import is_cubin

    if is_cubin(target):
        return target
    return " ".join([target, arch, *(f"-D{text}" for text in defines or ()), *(options or ())])


def _reports(target: str, arch: str, arguments: CompilerArguments) -> list[SassReport]:
    from lowgemm.studies.inspection import inspect_build, inspect_cubin
    from lowgemm.studies.targets import is_cubin, load_cubin, resolve_builds

    if is_cubin(target):
        return [*inspect_cubin(load_cubin(target))]
    (build,) = resolve_builds(target, [arch], **arguments)
    return [*inspect_build(build)]
