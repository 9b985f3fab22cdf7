"""`lowgemm check`: what it catches, what it shows, and the rungs' own expectations."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from corpus import KERNELS, POINTER, takes_long
from typer.testing import CliRunner, Result

import lowgemm.cli.check  # registers the command
import lowgemm.cli.sass  # noqa: F401  # the same
from lowgemm.analysis.expectations import KERNEL_FIGURES, LOOP_FIGURES, parse_expectation
from lowgemm.cli.common import app
from lowgemm.compiler import compile_file, compile_source
from lowgemm.errors import (
    CompilationError,
    EmptyCubinError,
    ExpectationError,
    KernelNotFoundError,
    SourceNotFoundError,
    UnknownArchitectureError,
)
from lowgemm.gemm import RUNG_NAMES, kernel_directory
from lowgemm.studies.checking import CheckReport, check_file
from lowgemm.testing import assert_sass
from lowgemm.view.check import check_data, check_text

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

# A dot product that reads four floats at a time, if the compiler is allowed to.
WIDE = """
// expect wide<4>: hot_loop.LDG.128 == 2; hot_loop.LDG.32 == 0
template <int N> __global__ void wide(const float* a, const float* b, float* c, int k) {
    float sum = 0.0f;
#pragma unroll 1
    for (int i = 0; i < k; i += N) {
#ifdef SCALAR
        for (int j = 0; j < N; ++j) sum += a[i + j] * b[i + j];
#else
        const float4 x = *reinterpret_cast<const float4*>(a + i);
        const float4 y = *reinterpret_cast<const float4*>(b + i);
        sum += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
#endif
    }
    *c = sum;
}
"""

# 64 accumulators, which fit into 255 registers and not into 32.
TILE = """
// expect: spill_store_bytes == 0; spill_load_bytes == 0; mix.STL == 0
__global__ void __launch_bounds__(THREADS, BLOCKS) tile(const float* a, const float* b, float* c,
                                                        int k) {
    float acc[8][8] = {};
    for (int i = 0; i < k; ++i) {
        float x[8], y[8];
        for (int r = 0; r < 8; ++r) x[r] = a[i * 8192 + threadIdx.x * 8 + r];
        for (int r = 0; r < 8; ++r) y[r] = b[i * 8192 + threadIdx.x * 8 + r];
        for (int r = 0; r < 8; ++r)
            for (int s = 0; s < 8; ++s) acc[r][s] += x[r] * y[s];
    }
    for (int r = 0; r < 8; ++r)
        for (int s = 0; s < 8; ++s) c[(r * 8 + s) * 1024 + threadIdx.x] = acc[r][s];
}
"""

UNROLLED = """
// expect: hot_loop.FFMA == 8
__global__ void unrolled(const float* x, float* y, int n) {
    float sum = 0.0f;
#pragma unroll UNROLL
    for (int i = 0; i < n; ++i) sum = sum * 1.5f + x[i];
    *y = sum;
}
"""


def write(folder: Path, text: str) -> Path:
    """A source file."""
    path = folder / "kernel.cu"
    path.write_text(text, encoding="utf-8")
    return path


def failed(report: CheckReport) -> list[str]:
    """The expectations that failed."""
    return [str(finding.verdict.expectation) for finding in report.failures]


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_a_wide_load_turned_into_scalar_loads_is_caught(tmp_path: Path, arch: str) -> None:
    """LDG.128 gone: the failure shows the LDG.32 that stand there, their source and the code."""
    path = write(tmp_path, WIDE)
    assert check_file(path, [arch]).passed
    report = check_file(path, [arch], defines={"SCALAR": None})
    assert failed(report) == ["hot_loop.LDG.128 == 2", "hot_loop.LDG.32 == 0"]
    text = check_text([report])
    assert "hot_loop.LDG.128 is 0" in text
    assert "8 x LDG.32 in the loop" in text
    assert "kernel.cu:8  for (int j = 0; j < N; ++j) sum += a[i + j] * b[i + j];" in text
    assert "kernel.cu:2" in text  # where it is expected
    assert "LDG.E" in text


def test_a_spill_forced_by_a_launch_bound_is_caught(tmp_path: Path) -> None:
    """The bytes spilt and the accesses to local memory, with the lines that they come from."""
    path = write(tmp_path, TILE)
    assert check_file(path, ["sm_90"], defines={"THREADS": 256, "BLOCKS": 1}).passed
    report = check_file(path, ["sm_90"], defines={"THREADS": 1024, "BLOCKS": 2})
    assert failed(report) == ["spill_store_bytes == 0", "spill_load_bytes == 0", "mix.STL == 0"]
    kinds = {e.kind.partition(".")[0] for finding in report.failures for e in finding.evidence}
    assert kinds == {"STL", "LDL"}
    text = check_text([report])
    assert "STL.64 [R1" in text or "STL [R1" in text
    sources = [p.source for f in report.failures for e in f.evidence for p in e.places if p.line]
    assert sources
    assert all(source and source in TILE for source in sources)


def test_a_lost_unroll_is_caught(tmp_path: Path) -> None:
    """One FFMA where eight were: the failure says how many there are and from which line."""
    path = write(tmp_path, UNROLLED)
    assert check_file(path, ["sm_90"], defines={"UNROLL": 8}).passed
    report = check_file(path, ["sm_90"], defines={"UNROLL": 1})
    assert failed(report) == ["hot_loop.FFMA == 8"]
    text = check_text([report])
    assert "hot_loop.FFMA is 1" in text
    assert "1 x FFMA in the loop" in text
    assert "kernel.cu:6" in text


def test_a_loop_that_is_gone_shows_where_its_instructions_went(tmp_path: Path) -> None:
    """A loop of constant length is unrolled whole: there is no hot loop, but the FFMAs are seen."""
    path = write(tmp_path, UNROLLED.replace("i < n", "i < 4"))
    text = check_text([check_file(path, ["sm_90"], defines={"UNROLL": 8})])
    assert "no such loop; it has no loop" in text
    assert "x FFMA in the kernel" in text


def test_registers_show_where_most_are_in_use(tmp_path: Path) -> None:
    """Too many registers: the line at which most are live."""
    path = write(tmp_path, TILE)
    defines = {"THREADS": 256, "BLOCKS": 1}
    report = check_file(path, ["sm_90"], expectations=["registers <= 40"], defines=defines)
    assert failed(report) == ["registers <= 40"]
    assert "registers live in the kernel" in check_text([report])


def test_the_rungs_hold_what_they_promise() -> None:
    """Every rung's own expectations hold on the architectures, and each speaks of its hot loop."""
    wanted = {
        name: tuple(arch for arch in ARCHS if not takes_long(name, arch)) for name in RUNG_NAMES
    }
    reports = [check_file(name, archs) for name, archs in wanted.items()]
    assert all(report.passed for report in reports), check_text(reports)
    for report, archs in zip(reports, wanted.values(), strict=True):
        paths = {finding.verdict.expectation.path for finding in report.findings}
        assert {"registers", "spill_store_bytes", "hot_loop.FFMA"} <= paths
        assert {finding.verdict.arch for finding in report.findings} == set(archs)


def test_an_expectation_names_the_instance_to_compile(tmp_path: Path) -> None:
    """A template needs no -k where an expectation names its instance; without one it does."""
    path = write(tmp_path, WIDE)
    assert check_file(path, ["sm_90"]).findings[0].verdict.kernel == "wide<4>"
    with pytest.raises(EmptyCubinError):
        check_file(write(tmp_path, WIDE.replace("wide<4>", "wide")), ["sm_90"])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("// expect: hot_loop.FFMA == 8", "", "expects nothing"),
        ("expect:", "expect rolled:", "there is unrolled"),
        ("hot_loop.FFMA", "hot_loop.FMA", "FFMA"),
    ],
)
def test_what_cannot_be_checked_does_not_pass(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    """No expectations, a kernel that is not there, or a misspelt name: an error, never a pass."""
    path = write(tmp_path, UNROLLED.replace(old, new))
    with pytest.raises(ExpectationError, match=said):
        check_file(path, ["sm_90"], defines={"UNROLL": 8})


def test_the_plain_data_can_be_written_as_json(tmp_path: Path) -> None:
    """One object a verdict, with what it is about."""
    report = check_file(write(tmp_path, UNROLLED), ["sm_80", "sm_90"], defines={"UNROLL": 1})
    rows = json.loads(json.dumps(check_data([report])))
    assert [(row["arch"], row["passed"]) for row in rows] == [("sm_80", False), ("sm_90", False)]
    assert rows[0]["actual"] == 1
    assert rows[0]["evidence"][0]["kind"] == "FFMA"
    assert rows[0]["evidence"][0]["places"][0]["line"].endswith("kernel.cu:6")


def test_the_command_tells_by_its_status(tmp_path: Path) -> None:
    """Exit status 0 when all holds, 1 when anything fails; text or JSON on stdout."""
    path = str(write(tmp_path, UNROLLED))
    good = CliRunner().invoke(app, ["check", path, "-a", "sm_90", "-D", "UNROLL=8"])
    assert good.exit_code == 0, good.output
    assert "unrolled: 1 of 1 expectations hold" in good.output
    bad = CliRunner().invoke(app, ["check", path, "-a", "sm_90", "-D", "UNROLL=1"])
    assert bad.exit_code == 1
    assert "FAILED hot_loop.FFMA == 8: hot_loop.FFMA is 1" in bad.output
    asked = ["check", path, "-a", "sm_90", "-D", "UNROLL=8", "-e", "registers <= 2", "--json"]
    more = CliRunner().invoke(app, asked)
    assert more.exit_code == 1
    assert [row["passed"] for row in json.loads(more.output)] == [True, False]


def test_a_users_test_file_needs_one_call(tmp_path: Path) -> None:
    """`assert_sass` takes a file, a rung or a text; its error is what `lowgemm check` prints."""
    path = write(tmp_path, UNROLLED)
    assert_sass(path, "registers <= 40", arch="sm_80", defines={"UNROLL": 8})
    assert_sass("ex3", "hot_loop.FFMA == 16", arch="sm_90")
    assert_sass(WIDE, "wide<4>: registers <= 40", arch=["sm_80", "sm_90"])
    with pytest.raises(AssertionError) as caught:
        assert_sass(path, defines={"UNROLL": 1})
    assert str(caught.value) == check_text([check_file(path, ["sm_90"], defines={"UNROLL": 1})])


def test_an_assertion_on_a_text_shows_its_lines() -> None:
    """Source lines come from the text where there is no file."""
    with pytest.raises(AssertionError) as caught:
        assert_sass(UNROLLED, defines={"UNROLL": 1})
    assert "sum = sum * 1.5f + x[i];" in str(caught.value)


def test_every_kernel_file_carries_expectations() -> None:
    """Each `.cu` of the ladder has `// expect` lines in its opening comment."""
    for path in kernel_directory().glob("ex*.cu"):
        head = path.read_text(encoding="utf-8").partition("#include")[0]
        assert "// expect: " in head, path.name


def test_an_architecture_without_a_verdict_is_an_error(tmp_path: Path) -> None:
    """Nothing expected on an architecture, or no architecture at all, is never a pass."""
    path = write(tmp_path, UNROLLED.replace("expect: ", "expect: [sm_80] "))
    define = {"UNROLL": 8}
    assert check_file(path, ["sm_80"], defines=define).passed
    for archs in (["sm_90"], ["sm_80", "sm_90"], []):
        with pytest.raises(ExpectationError):
            check_file(path, archs, defines=define)
        with pytest.raises(ExpectationError):
            assert_sass(path.read_text("utf-8"), arch=archs, defines=define)
    with pytest.raises(ExpectationError):
        check_file("ex3", [])
    result = CliRunner().invoke(app, ["check", str(path), "-a", "sm_90", "-D", "UNROLL=8"])
    assert result.exit_code == 1
    assert isinstance(result.exception, ExpectationError)


def test_a_bound_for_an_architecture_leaves_others_standing(tmp_path: Path) -> None:
    """An upper bound still fails beside a lower bound of an architecture."""
    more = ["registers <= 1", "[sm_90] registers >= 1"]
    path = write(tmp_path, UNROLLED)
    report = check_file(path, ["sm_90"], expectations=more, defines={"UNROLL": 8})
    assert failed(report) == ["registers <= 1"]


@pytest.mark.parametrize("name", ["k.cuh", "t.CU", "x.cubin", "some where/k.cpp", "gone.cu"])
def test_a_files_name_is_no_source(name: str) -> None:
    """A line that ends as a file's name is a file, and an error if there is none."""
    with pytest.raises(SourceNotFoundError, match=re.escape(name)):
        assert_sass(name, "registers <= 1")


def test_machine_code_is_no_source(tmp_path: Path) -> None:
    """A cubin that is there is refused in words."""
    path = tmp_path / "x.cubin"
    path.write_bytes(b"\x7fELF")
    with pytest.raises(SourceNotFoundError, match="machine code"):
        assert_sass(str(path), "registers <= 1")


def test_a_list_is_no_expectation() -> None:
    """Expectations are texts, each an argument; anything else is an error of lowgemm."""
    for source in (UNROLLED, "ex3"):
        with pytest.raises(ExpectationError, match="list"):
            assert_sass(source, ["registers <= 99"])  # type: ignore[arg-type]


def sass(path: Path, *options: str) -> Result:
    """What `lowgemm sass` says of it."""
    fixed = ["-a", "sm_90", "-D", "UNROLL=8"]
    return CliRunner().invoke(app, ["sass", str(path), *fixed, *options])


@pytest.mark.parametrize("how", ["--text", "--control"])
def test_a_listing_can_be_json(tmp_path: Path, how: str) -> None:
    """One object an instruction, with its address, text, control word and line."""
    rows = json.loads(sass(write(tmp_path, UNROLLED), how, "--json").output)
    assert [row["address"] for row in rows] == list(range(0, 16 * len(rows), 16))
    assert {row["kernel"] for row in rows} == {"unrolled"}
    assert sum(row["text"].startswith("FFMA") for row in rows) >= 8
    assert all(row["control"] for row in rows)
    assert any((row["line"] or "").endswith("kernel.cu:6") for row in rows)


def test_source_side_by_side_can_be_json_and_markdown(tmp_path: Path) -> None:
    """The lines as objects or as a table, those of the hot loop alone if asked for."""
    path = write(tmp_path, UNROLLED)
    rows = json.loads(sass(path, "--source", "--json").output)
    hot = json.loads(sass(path, "--source", "--hot", "--json").output)
    assert hot == [row for row in rows if row["sass_in_hot_loop"]]
    assert 0 < len(hot) < len(rows)
    text = sass(path, "--source", "--markdown").output
    assert text.startswith("### `unrolled`, sm_90")
    assert "| line | source | PTX | SASS | |" in text


@pytest.mark.parametrize(
    "options",
    [
        ["--hot"], ["--text", "--hot"], ["--text", "--source"], ["--control", "--source"],
        ["--text", "--markdown"], ["--markdown", "--json"], ["x.cubin", "--source"],
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, options: list[str]) -> None:
    """No option is passed over in silence."""
    assert sass(write(tmp_path, UNROLLED), *options).exit_code == 2


@pytest.mark.parametrize("how", [[], ["--json"], ["--text"], ["--source"]])
def test_a_name_that_no_kernel_has_is_an_error(tmp_path: Path, how: list[str]) -> None:
    """`--only` lists the kernels there are if it matches none; instances go by their own name."""
    result = sass(write(tmp_path, UNROLLED), "--only", "zzz", *how)
    assert result.exit_code == 1
    assert isinstance(result.exception, KernelNotFoundError)
    assert "unrolled" in str(result.exception)
    found = sass(write(tmp_path, WIDE), "-k", "wide<4>", "--only", "wide<4>", *how)
    assert found.exit_code == 0
    assert "wide" in found.output


# ---- headers, functions behind pointers


def test_expectations_in_a_header_beside_the_source_count(tmp_path: Path) -> None:
    """A kernel in a header keeps its expectations there, and a failure names the header's line."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "unrolled.cuh").write_text(UNROLLED, encoding="utf-8")
    path = write(tmp_path, '#include "parts/unrolled.cuh"\n')
    assert check_file(path, ["sm_90"], defines={"UNROLL": 8}).passed
    report = check_file(path, ["sm_90"], defines={"UNROLL": 4})
    assert failed(report) == ["hot_loop.FFMA == 8"]
    assert "unrolled.cuh:2" in check_text([report])


def test_headers_from_elsewhere_expect_nothing(tmp_path: Path) -> None:
    """What another project's header says in its comments is none of the kernel's."""
    (tmp_path / "far").mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "far" / "far.cuh").write_text("// expect: registers <= 1\n", encoding="utf-8")
    path = write(tmp_path / "own", '#include "far.cuh"\n' + UNROLLED)
    include = [str(tmp_path / "far")]
    assert check_file(path, ["sm_90"], defines={"UNROLL": 8}, include_dirs=include).passed


def test_a_failure_shows_the_loop_that_only_a_pointer_reaches(tmp_path: Path) -> None:
    """The instructions concerned are found in functions that no call names."""
    path = write(tmp_path, POINTER)
    report = check_file(path, ["sm_90"], expectations=["hot_loop.FFMA == 0"])
    shown = check_text([report])
    assert failed(report) == ["hot_loop.FFMA == 0"]
    assert "sum = sum * p[i] + 1.0f" in shown
    assert "in the loop" in shown


# ---- how expectations are given


def test_several_expectations_may_be_one_text(tmp_path: Path) -> None:
    """`;` separates them for `-e` and `assert_sass` as it does in comments."""
    path = write(tmp_path, UNROLLED)
    asked = "registers <= 1; hot_loop.FFMA == 8; unrolled: mix.STL == 0; registers >= 99"
    report = check_file(path, ["sm_90"], expectations=[asked], defines={"UNROLL": 8})
    assert failed(report) == ["registers <= 1", "registers >= 99"]
    assert [f.verdict.expectation.kernel for f in report.findings][-2:] == ["unrolled"] * 2
    with pytest.raises(AssertionError, match="registers <= 1"):
        assert_sass(UNROLLED, "mix.STL == 0; registers <= 1", defines={"UNROLL": 8})


def test_an_architecture_in_the_place_of_a_kernel_is_explained(tmp_path: Path) -> None:
    """`sm_90: registers <= 40` is answered with the way to write it."""
    path = write(tmp_path, UNROLLED)
    with pytest.raises(ExpectationError, match="there is no kernel") as caught:
        check_file(path, ["sm_90"], expectations=["sm_90: registers <= 40"], defines={"UNROLL": 8})
    assert "[sm_90] registers <= 40" in caught.value.remedy


@pytest.mark.parametrize("path", ["HMMA.16816", "LDSM.128", "HMMA.F32"])
def test_a_shape_is_answered_with_what_can_be_said(path: str) -> None:
    """The remedy says that only widths of accesses are told apart."""
    with pytest.raises(ExpectationError) as caught:
        parse_expectation(f"{path} == 0")
    assert "shapes, types and other modifiers" in caught.value.remedy


def test_help_tells_all_that_may_be_expected() -> None:
    """Every figure, loops by number, architectures and kernels stand in `check --help`."""
    shown = CliRunner().invoke(app, ["check", "--help"]).output
    for word in (*KERNEL_FIGURES, *LOOP_FIGURES, "loops[0]", "[sm_80", "scale<4>:", "mix.LDG.128"):
        assert word in shown, word


def test_an_array_is_not_taken_for_a_spill(tmp_path: Path) -> None:
    """Where nothing is spilled the accesses to local memory are said to be an array's."""
    array = KERNELS / "local_array.cu"
    report = check_file(array, ["sm_90"], expectations=["stack_bytes == 0"])
    assert "nothing is spilled" in check_text([report])
    report = check_file(write(tmp_path, TILE), ["sm_90"], defines={"THREADS": 1024, "BLOCKS": 2})
    assert "for spills" in check_text([report])


# Local memory, multiply-adds and loops that stand in a function of the kernel's.
BEHIND = """
// expect: mix.STL == 0; mix.FFMA == 0; stack_bytes == 0; loops == 0; spill_store_bytes == 0
__device__ __noinline__ float behind(const float* x, int n) {
    float a[32], s = 0;
    for (int i = 0; i < n; ++i) a[i] = x[i];
    for (int i = 0; i < n; ++i) s = __fmaf_rn(s, a[i], 2.0f);
    return s;
}
__global__ void k(float* o, int n) { o[threadIdx.x] = behind(o, n); }
"""


@pytest.mark.parametrize("option", ["-G", "-rdc=true", "--fmad=true"])
def test_functions_that_a_kernel_calls_are_checked(option: str, tmp_path: Path) -> None:
    """What a device function does counts for its kernels, wherever the compiler puts it."""
    source = tmp_path / "behind.cu"
    source.write_text(BEHIND, encoding="utf-8")
    report = check_file(source, ["sm_90"], options=[option])
    failed = {finding.verdict.expectation.path for finding in report.failures}
    assert {"mix.STL", "mix.FFMA", "stack_bytes", "loops"} <= failed
    shown = {finding.verdict.expectation.path: finding.evidence for finding in report.failures}
    assert shown["mix.STL"][0].places[0].line.line in range(3, 8)  # type: ignore[union-attr]


def test_a_bound_does_not_pass_where_functions_are_linked_in_later() -> None:
    """Nobody knows what a function of another file does: bounds above hold only if it may."""
    text = """
extern __device__ float elsewhere(float);
__global__ void k(float* o) { o[0] = elsewhere(o[1]); }
"""
    options = ("-rdc=true",)
    with pytest.raises(AssertionError, match="linked in later: _Z9elsewheref"):
        assert_sass(text, "mix.STL == 0", options=options)
    with pytest.raises(AssertionError, match="linked in later"):
        assert_sass(text, "registers <= 255", options=options)
    assert_sass(text, "mix.STL == 0", "external_calls == 1", options=options)
    assert_sass(text, "mix.LDG >= 1", options=options)


NAMES = """
namespace { __global__ void hidden(float* x) { x[0] = 2; } }
__global__ void k(float* x) { x[0] = 1; }
__global__ void k(int* x, int n) { for (int i = 0; i < n; ++i) x[i * i] += i; }
template <typename T> __global__ void t(T* x) { x[0] = 1; }
"""


def test_a_kernel_may_be_named_in_any_way_that_means_it() -> None:
    """Spellings of one instance, overloads alone or together, an anonymous namespace left out."""
    expects = """
// expect t<unsigned>: mix.STG == 1
// expect t<unsigned int>: loops == 0
// expect hidden: mix.STG == 1
// expect (anonymous namespace)::hidden: loops == 0
// expect k(float*): loops == 0; k(int*, int): loops >= 1; k: mix.STG >= 1
"""
    assert_sass(expects + NAMES)


def test_what_a_failure_shows_comes_from_its_own_overload(tmp_path: Path) -> None:
    """Evidence is taken from the kernel that failed, not from another one of its name."""
    source = tmp_path / "names.cu"
    source.write_text(NAMES, encoding="utf-8")
    report = check_file(source, ["sm_90"], expectations=["k: loops == 0", "k: mix.LDG == 0"])
    shown = {(f.verdict.kernel, f.verdict.expectation.path): f.evidence for f in report.failures}
    assert shown.keys() == {("k(int*, int)", "loops"), ("k(int*, int)", "mix.LDG")}
    assert shown["k(int*, int)", "mix.LDG"][0].places[0].line.line == 4  # type: ignore[union-attr]


def test_a_family_target_is_judged_as_such() -> None:
    """The architecture is that of the build: a cubin does not tell sm_100f from sm_100."""
    text = "// expect: [sm_100f] registers <= 1; registers <= 200\n__global__ void k() {}"
    assert_sass(text, arch="sm_100")
    with pytest.raises(AssertionError, match="registers is"):
        assert_sass(text, arch="sm_100f")


SMALL = "__global__ void small(float* x) { x[0] = 1; }\n"


def test_what_is_for_other_architectures_is_counted(tmp_path: Path) -> None:
    """The text says how many expectations nobody judged, and for which architectures they are."""
    path = write(tmp_path, f"// expect: moves <= 99; [sm_80] moves <= 1; [sm_90] STL == 0\n{SMALL}")
    text = check_text([check_file(path, ["sm_90"])])
    assert "1 expectation left out, for other architectures alone: sm_80" in text
    assert "left out" not in check_text([check_file(path, ["sm_80", "sm_90"])])


def test_a_bound_does_not_pass_beside_a_call_through_a_pointer() -> None:
    """What a pointer of relocatable code leads to may be anything."""
    text = """
typedef float (*F)(float);
__global__ void k2(float* o, F* f) { o[0] = (*f)(o[1]); }
"""
    with pytest.raises(AssertionError, match="a function through a pointer"):
        assert_sass(text, "mix.FFMA == 0; loops == 0", options=("-rdc=true",))


def test_the_architecture_of_a_cubin_is_not_chosen(tmp_path: Path) -> None:
    """Another one than the cubin's own is refused, and its own taken."""
    path = tmp_path / "s.cubin"
    path.write_bytes(compile_source(SMALL, arch="sm_80").cubin)
    assert CliRunner().invoke(app, ["sass", str(path), "-a", "sm_80"]).exit_code == 0
    refused = CliRunner().invoke(app, ["sass", str(path), "-a", "sm_90"])
    assert refused.exit_code == 2
    assert "sm_80" in refused.output


def test_a_library_is_no_source(tmp_path: Path) -> None:
    """An ELF file is called one."""
    path = tmp_path / "x.so"
    path.write_bytes(b"\x7fELF\0\0")
    with pytest.raises(CompilationError, match="ELF"):
        compile_file(path, arch="sm_90")


def test_what_is_no_source_and_no_architecture_is_a_typed_error() -> None:
    """A number in the place of a source, or None in that of an architecture."""
    with pytest.raises(SourceNotFoundError, match="int"):
        assert_sass(5, "moves <= 1")  # type: ignore[arg-type]
    with pytest.raises(UnknownArchitectureError, match="none"):
        assert_sass(SMALL, "moves <= 1", arch=None)  # type: ignore[arg-type]
