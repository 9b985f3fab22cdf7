"""`lowgemm check`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from lowgemm.cli.common import (
    Archs,
    Defines,
    Includes,
    Instances,
    Json,
    Nvrtc,
    Only,
    Options,
    app,
    chosen,
    compiler_arguments,
    default_archs,
    print_json,
)

__all__ = ["check"]

Targets = Annotated[list[str], typer.Argument(help="Rungs or .cu files with // expect: lines.")]
Expected = Annotated[
    list[str] | None,
    typer.Option("--expect", "-e", help="Further expectations: 'registers <= 128; mix.STL == 0'."),
]


@app.command()
def check(
    targets: Targets,
    arch: Archs = None,
    expect: Expected = None,
    define: Defines = None,
    include: Includes = None,
    kernel: Instances = None,
    option: Options = None,
    nvrtc: Nvrtc = None,
    only: Only = None,
    as_json: Json = False,
) -> None:
    """Check the expectations that stand beside a kernel: exit status 1 if one does not hold.

    They are comments in the source, or in headers of its folder, or given with --expect:

    \b
      // expect: spill_store_bytes == 0; registers <= 128
      // expect scale<4>: hot_loop.LDS.128 == 4     this kernel; compiled if an instance
      // expect: [sm_80, sm_86] registers <= 168    on these, instead of what holds for all

    \b
    What may stand before a comparison (== != <= >= < >) and a number:
      of a kernel: registers, registers_live, shared_bytes, stack_bytes,
        spill_store_bytes, spill_load_bytes, instructions, ffma_share, moves,
        code_bytes, loops, unknown_opcodes, external_calls
      of a loop without those inside it, hot_loop or loops[0], loops[1], ...:
        hot_loop.instructions, .ffma_share, .moves, .conflict_cycles,
        .registers_live, .blocks, .depth
      an instruction, by its width in bits or of any width:
        mix.LDG.128 in the kernel, hot_loop.LDS.128 or loops[0].FFMA in a loop

    The hot loop is the one with the most FFMAs; without FFMAs the innermost, then the longest.
    """
    from lowgemm.studies.checking import check_file
    from lowgemm.view.check import check_data, check_text

    archs = arch or default_archs()
    reports = [
        check_file(
            target,
            archs,
            expectations=expect or (),
            nvrtc=nvrtc,
            **compiler_arguments(define, include, option, kernel),
        )
        for target in targets
    ]
    if only is not None:
        findings = [finding for report in reports for finding in report.findings]
        kept = chosen([f.verdict.kernel for f in findings], only, str)
        reports = [
            replace(report, findings=tuple(f for f in report.findings if f.verdict.kernel in kept))
            for report in reports
        ]
    if as_json:
        print_json(check_data(reports))
    else:
        print(check_text(reports))
    if not all(report.passed for report in reports):
        raise typer.Exit(1)
