"""`lowgemm diff`: what came and went, per kernel and loop."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lowgemm.cli.diff  # noqa: F401  # registers the command
from lowgemm.analysis import LoopReport, SassReport
from lowgemm.analysis.difference import (
    Change,
    compare_builds,
    compare_reports,
    match_loops,
)
from lowgemm.cli.common import app
from lowgemm.compiler import compile_source
from lowgemm.errors import SourceNotFoundError
from lowgemm.studies.inspection import inspect_build
from lowgemm.view.difference import difference_data, difference_text

SOURCE = """
extern "C" __global__ void k(const float* x, float* y, int n) {
    __shared__ float s[256];
#pragma unroll 1
    for (int i = threadIdx.x; i < 256; i += 32) s[i] = x[i];
    __syncthreads();
    float sum = 0.0f;
#pragma unroll UNROLL
    for (int i = 0; i < n; ++i) sum = sum * 1.5f + s[(i + threadIdx.x) & 255];
    y[threadIdx.x] = sum;
}
"""


def loop(index: int, mix: dict[str, int], depth: int = 1) -> LoopReport:
    """A loop of a made-up kernel."""
    total = sum(mix.values())
    share = mix.get("FFMA", 0) / total
    return LoopReport(
        index, 256 * index, 256 * index + 16 * total, depth, None, 1, total, mix, share, 0, 0, 9
    )


def kernel(*loops: LoopReport, name: str = "k", hot: int | None = None) -> SassReport:
    """A made-up kernel of these loops."""
    mix: dict[str, int] = {}
    for one in loops:
        for key, count in one.mix.items():
            mix[key] = mix.get(key, 0) + count
    return SassReport(
        kernel=name, arch="sm_90", registers=32, shared_bytes=0, stack_bytes=0,
        spill_store_bytes=0, spill_load_bytes=0, instructions=sum(mix.values()), mix=mix,
        ffma_share=0.5, moves=0, registers_live=9, code_bytes=512, loops=loops, hot_loop=hot,
        irreducible=False, unknown_opcodes={},
    )  # fmt: skip


COPY = {"LDG.32": 4, "STS.32": 4, "BRA": 1}
INNER = {"FFMA": 64, "LDS.128": 4, "BRA": 1}


def test_a_kernel_does_not_differ_from_itself() -> None:
    """No change is found where there is none."""
    same = kernel(loop(0, COPY), loop(1, INNER), hot=1)
    difference = compare_reports(same, same)
    assert not difference.changed
    assert "nothing changed" in difference_text(compare_builds([same], [same]), "a", "b")


def test_overloads_are_compared_each_with_itself() -> None:
    """Kernels of one name are told apart by their parameters."""
    first = replace(kernel(loop(0, COPY), name="k(float*)"), symbol="_Z1kPf")
    second = replace(kernel(loop(0, INNER), name="k(int*, int)"), symbol="_Z1kPii")
    assert not compare_builds([first, second], [second, first]).changed
    # A build that lacks the other shows no parameters.
    pairs = compare_builds([first, second], [replace(second, kernel="k")])
    assert [(pair.before, pair.changed) for pair in pairs.kernels] == [(second, False)]
    assert pairs.gone == (first,)


def test_what_came_and_went_is_counted() -> None:
    """Wide loads that became narrow: LDS.128 went, LDS.32 came, and nothing else is listed."""
    before = kernel(loop(0, INNER), hot=0)
    after = kernel(loop(0, {"FFMA": 64, "LDS.32": 16, "BRA": 1}), hot=0)
    (only,) = compare_reports(before, after).loops
    assert only.mix == (Change("LDS.32", 0, 16), Change("LDS.128", 4, 0))
    assert {change.name for change in only.figures} == {"instructions", "ffma_share"}
    assert only.mix[0].delta == 16


def test_an_unrolled_loop_is_still_the_same_loop() -> None:
    """Loops are matched by the proportions of what they hold, whatever stands around them."""
    before = kernel(loop(0, COPY), loop(1, INNER), hot=1)
    four_times = {name: 4 * count for name, count in INNER.items()}
    after = kernel(loop(0, four_times), loop(1, {"LDG.32": 1, "STS.32": 1, "BRA": 1}), hot=0)
    assert match_loops(before, after) == ((1, 0), (0, 1))


def test_a_loop_that_came_or_went_is_named() -> None:
    """A remainder loop that is no more stands alone, with all that was in it."""
    before = kernel(loop(0, INNER), loop(1, {"MUFU": 3, "BRA": 1}), hot=0)
    after = kernel(loop(0, INNER), hot=0)
    kept, gone = compare_reports(before, after).loops
    assert not kept.changed
    assert gone.after is None
    assert gone.mix == (Change("MUFU", 3, 0), Change("BRA", 1, 0))
    assert compare_reports(after, before).loops[1].before is None
    assert "- loop 1" in difference_text(compare_builds([before], [after]), "a", "b")


def test_what_nobody_knows_is_no_change() -> None:
    """Spills of a bare cubin against a build's: one side is not known, so nothing is said."""
    known = kernel(loop(0, INNER), hot=0)
    bare = replace(known, spill_store_bytes=None, spill_load_bytes=None)
    assert not compare_reports(known, bare).changed
    assert not compare_reports(bare, known).changed


def test_kernels_are_paired_by_name_then_arguments() -> None:
    """`new<true>` is set against `old<true>`; what has no partner came or went."""
    before = [kernel(name="old<true>"), kernel(name="old<false>"), kernel(name="both")]
    after = [kernel(name="both"), kernel(name="new<true>"), kernel(name="new<false>")]
    difference = compare_builds(before, after)
    assert [(k.before.kernel, k.after.kernel) for k in difference.kernels] == [
        ("old<true>", "new<true>"), ("old<false>", "new<false>"), ("both", "both"),
    ]  # fmt: skip
    more = compare_builds(before, [*after, kernel(name="more")])
    assert [report.kernel for report in more.came] == ["more"]
    assert more.changed


def test_unrolling_changes_the_hot_loop_alone() -> None:
    """On real code: eight FFMAs for one in the hot loop, and the copying loop is as it was."""
    one, eight = (
        inspect_build(compile_source(SOURCE, arch="sm_90", defines={"UNROLL": n}))[0]
        for n in (1, 8)
    )
    difference = compare_reports(one, eight)
    loops = {item.after.index: item for item in difference.loops if item.before and item.after}
    assert eight.hot_loop is not None
    assert Change("FFMA", 1, 8) in loops[eight.hot_loop].mix
    copying = next(item for item in loops.values() if item.after and "STS.32" in item.after.mix)
    assert not {"LDG.32", "STS.32", "FFMA"} & {change.name for change in copying.mix}
    assert json.dumps(difference_data(compare_builds([one], [eight])))


def test_the_command_compares_a_file_built_in_two_ways(tmp_path: Path) -> None:
    """`--define-b` and `--arch-b` are for the second side; `--exit-code` makes a difference 1."""
    path = tmp_path / "k.cu"
    path.write_text(SOURCE, encoding="utf-8")
    asked = ["diff", str(path), "-a", "sm_90", "-D", "UNROLL=1"]
    done = CliRunner().invoke(app, [*asked, "--define-b", "UNROLL=8"])
    assert done.exit_code == 0, done.output
    assert f"- {path} sm_90 -DUNROLL=1\n" in done.output
    assert "FFMA" in done.output
    same = CliRunner().invoke(app, [*asked, "--arch-b", "sm_90", "--exit-code"])
    assert (same.exit_code, "nothing changed" in same.output) == (0, True)
    other = CliRunner().invoke(app, [*asked, "--arch-b", "sm_120", "--exit-code", "--json"])
    assert other.exit_code == 1
    data = json.loads(other.output)
    assert data["kernels"][0]["after"] == {"kernel": "k", "arch": "sm_120"}


def test_the_command_compares_cubins(tmp_path: Path) -> None:
    """A cubin against another, or against a source: neither needs to be what lowgemm built."""
    source = tmp_path / "k.cu"
    source.write_text(SOURCE, encoding="utf-8")
    cubin = tmp_path / "k.cubin"
    cubin.write_bytes(compile_source(SOURCE, arch="sm_90", defines={"UNROLL": 8}).cubin)
    for sides in ([str(cubin), str(source)], [str(source), str(cubin)]):
        # The source is compiled for the cubin's architecture.
        done = CliRunner().invoke(app, ["diff", *sides, "-D", "UNROLL=8", "--exit-code"])
        assert done.exit_code == 0, done.output
    with pytest.raises(SourceNotFoundError):
        CliRunner().invoke(app, ["diff", str(tmp_path / "no.cubin"), "ex3"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["ex3"], "nothing to compare"),
        (["ex3", "-a", "sm_80"], "nothing to compare"),
        (["k.cubin", "--arch-b", "sm_80"], "nothing to compare"),
        (["ex3", "-a", "sm_80", "-a", "sm_90"], "--arch-b"),
    ],
)
def test_one_build_is_nothing_to_compare(asked: list[str], said: str) -> None:
    """Without a second side, or with two architectures for one side, nothing is "unchanged"."""
    done = CliRunner().invoke(app, ["diff", *asked])
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_loops_unrolled_otherwise_compare_by_their_work() -> None:
    """Twice of everything is twice the FFMAs; by 1000 of them only what else changed is left."""
    before = kernel(loop(0, INNER), hot=0)
    twice = {"FFMA": 128, "LDS.128": 8, "BRA": 1}
    (only,) = compare_reports(before, kernel(loop(0, twice), hot=0)).loops
    assert only.unit == "FFMA"
    assert [change.name for change in only.per_thousand] == ["BRA"]
    text = difference_text(compare_builds([before], [kernel(loop(0, twice), hot=0)]), "a", "b")
    assert "by 1000 FFMA (64 -> 128)" in text
    none = compare_reports(kernel(loop(0, {"MUFU": 2}), hot=0), kernel(loop(0, {"LDG": 2}), hot=0))
    assert all(item.per_thousand == () for item in none.loops)


def test_shares_that_look_the_same_are_not_listed() -> None:
    """0.52 % and 0.54 % are one number to a reader."""
    before = replace(kernel(loop(0, INNER), hot=0), ffma_share=0.5002)
    after = replace(before, ffma_share=0.5004, registers=33)
    text = difference_text(compare_builds([before], [after]), "a", "b")
    assert "registers" in text
    assert "ffma_share" not in text


def test_many_loops_that_went_are_a_line() -> None:
    """Those of one length are counted, not listed."""
    slow = [loop(i, {"MUFU": 2, "BRA": 1}) for i in range(1, 65)]
    before, after = kernel(loop(0, INNER), *slow, hot=0), kernel(loop(0, INNER), hot=0)
    text = difference_text(compare_builds([before], [after]), "a", "b")
    assert "- 64 loops, the first loop 1 " in text
    assert len(text.splitlines()) < 12


def test_moves_under_other_names_are_told() -> None:
    """HFMA2s that only move a constant are no half arithmetic."""
    before = kernel(loop(0, {"FFMA": 64, "HFMA2": 1}), hot=0)
    many = replace(loop(0, {"FFMA": 64, "HFMA2": 9}), move_mix={"HFMA2": 9})
    text = difference_text(compare_builds([before], [kernel(many, hot=0)]), "a", "b")
    assert "(moves 0 -> 9)" in text
