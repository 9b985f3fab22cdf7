"""`lowgemm drift`: other releases of NVRTC, fetched, loaded apart, and set side by side."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import lowgemm.cli.check  # registers the command
import lowgemm.cli.drift  # the same
import lowgemm.cli.sass  # noqa: F401  # the same
from lowgemm.analysis import LoopReport, SassReport
from lowgemm.analysis.tracks import track_architectures
from lowgemm.cli.common import app
from lowgemm.compiler import compile_file
from lowgemm.errors import (
    ArgumentValueError,
    CompilationError,
    SourceNotFoundError,
    ToolFailedError,
    ToolNotFoundError,
)
from lowgemm.studies.drift import Drift, drift, trace_drift
from lowgemm.studies.releases import Release, compile_with, find_release, unpack_wheel
from lowgemm.studies.targets import resolve_builds
from lowgemm.toolchain import cache_directory, nvrtc_full_version, nvrtc_library
from lowgemm.view.drift import drift_data, drift_view
from lowgemm.view.sass import compared_view

SOURCE = """
extern "C" __global__ void k(const float* x, float* y, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum = sum * 1.5f + x[i];
    *y = sum;
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file with one kernel and one loop."""
    path = tmp_path / "k.cu"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def installed() -> Release:
    """The NVRTC that is installed."""
    return Release(nvrtc_full_version(), nvrtc_library())


def loop(index: int, mix: dict[str, int]) -> LoopReport:
    """A loop of a made-up kernel."""
    total = sum(mix.values())
    share = mix.get("FFMA", 0) / total
    return LoopReport(index, 0, 16 * total, 1, None, 1, total, mix, share, 0, 0, None)


def kernel(*loops: LoopReport, name: str = "k", live: int | None = 9) -> SassReport:
    """A made-up kernel whose first loop is hot."""
    return SassReport(
        kernel=name, arch="sm_90", registers=32, shared_bytes=0, stack_bytes=0,
        spill_store_bytes=0, spill_load_bytes=0, instructions=80, mix={"FFMA": 64},
        ffma_share=0.5, moves=0, registers_live=live, code_bytes=512, loops=loops,
        hot_loop=0 if loops else None, irreducible=False, unknown_opcodes={},
    )  # fmt: skip


def text_of(result: Drift, width: int = 200) -> str:
    """What a terminal without colour shows."""
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(drift_view(result, width))
    return capture.get()


def wheel(folder: Path, name: str, members: dict[str, bytes]) -> Path:
    """A made-up wheel."""
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return path


# ---- what is shown


def test_a_row_has_a_value_for_each_release() -> None:
    """Three releases: the mix of the hot loop in each, and a loop that only the last has."""
    hot = {"FFMA": 64, "LDS.128": 4}
    narrow = {"FFMA": 64, "LDS.32": 16}
    (traced,) = trace_drift(
        [
            [kernel(loop(0, hot))],
            [kernel(loop(0, hot))],
            [kernel(loop(0, narrow), loop(1, {"MUFU": 3}))],
        ]
    )
    first, new = traced.loops
    rows = {row.name: row for row in first.rows}
    assert first.hot
    assert rows["LDS.128"].values == (4, 4, 0)
    assert rows["LDS.32"].values == (0, 0, 16)
    assert not rows["FFMA"].changed
    assert new.loops[:2] == (None, None)
    assert {row.name: row for row in new.rows}["MUFU"].values == (None, None, 3)
    text = text_of(Drift("k.cu", ("12.9", "13.0", "13.5"), (traced,)))
    assert ["NVRTC", "12.9", "13.0", "13.5"] in [line.split() for line in text.splitlines()]
    assert "LDS.128" in text
    assert "of 3 instructions: only in 13.5" in text
    assert "FFMA " not in text


def test_overloads_are_followed_each_on_its_own() -> None:
    """Two kernels of one name are two; releases may number an anonymous namespace differently."""
    first = replace(kernel(name="k(float*)"), symbol="_Z1kPf")
    second = replace(kernel(name="k(int*, int)"), symbol="_Z1kPii")
    hidden = [
        replace(kernel(name="q"), symbol=f"_ZN12_GLOBAL__N_{number}1qEv") for number in (1, 2)
    ]
    traced = trace_drift([[first, second, hidden[0]], [second, first, hidden[1]]])
    assert [one.kernel for one in traced] == ["k(float*)", "k(int*, int)", "q"]


def test_releases_that_agree_are_a_line() -> None:
    """Nothing changed is said in a line; a figure that one release does not tell is no change."""
    same = [[kernel(loop(0, {"FFMA": 4}), live=live)] for live in (None, 9)]
    result = Drift("k.cu", ("12.9", "13.0"), trace_drift(same))
    assert not result.kernels[0].changed
    assert "the same in NVRTC 12.9, 13.0" in text_of(result)
    assert json.dumps(drift_data(result))


def test_many_loops_that_vanish_are_a_line() -> None:
    """Slow paths that a release no longer needs are counted by their length, not listed."""
    slow = [loop(i, {"MUFU": 15, "BRA": 1}) for i in range(1, 65)]
    hot = loop(0, {"FFMA": 64})
    result = Drift("k.cu", ("12.9", "13.5"), trace_drift([[kernel(hot, *slow)], [kernel(hot)]]))
    text = text_of(result)
    assert "64 loops, the first loop " in text
    assert "of 16 instructions: only in 12.9" in text
    assert len(text.splitlines()) < 12


def test_loops_that_differ_alike_are_a_table() -> None:
    """The same change in many loops is shown once, with their number."""
    hot = loop(0, {"FFMA": 64})
    old = [loop(i, {"MUFU": 2, "BRA": 1}) for i in range(1, 9)]
    new = [loop(i, {"MUFU": 3, "BRA": 1}) for i in range(1, 9)]
    traced = trace_drift([[kernel(hot, *old)], [kernel(hot, *new)]])
    text = text_of(Drift("k.cu", ("12.9", "13.5"), traced))
    assert "and 7 more that differ alike" in text
    assert sum(line.split()[:1] == ["MUFU"] for line in text.splitlines()) == 1


def test_columns_that_do_not_fit_go_below() -> None:
    """Six releases in a narrow terminal are two tables; no figure is cut."""
    versions = tuple(f"13.{i}.{i}88" for i in range(6))
    traced = trace_drift([[kernel(loop(0, {"FFMA": 64 + i}))] for i in range(6)])
    text = text_of(Drift("k.cu", versions, traced), 60)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 60
    assert all(version in text for version in versions)


def test_architectures_are_set_side_by_side() -> None:
    """One source on several architectures: a column each, also what does not differ."""
    reports = [
        replace(kernel(loop(0, {"FFMA": 64, "BRA": n})), arch=f"sm_{80 + n}") for n in (1, 2)
    ]
    (track,) = track_architectures(reports)
    assert track.archs == ("sm_81", "sm_82")
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        console.print(compared_view([track], 80))
    lines = [line.split() for line in capture.get().splitlines()]
    assert ["sm_81", "sm_82"] in lines
    assert ["FFMA", "64", "64"] in lines
    assert ["BRA", "1", "2"] in lines


def test_the_command_sets_architectures_side_by_side(source: Path) -> None:
    """`lowgemm sass --compare` takes one target and shows or gives all its architectures."""
    asked = ["sass", str(source), "-a", "80", "-a", "90", "--compare"]
    done = CliRunner().invoke(app, [*asked, "--json"])
    assert done.exit_code == 0, done.output
    (track,) = json.loads(done.output)
    assert (track["kernel"], track["archs"]) == ("k", ["sm_80", "sm_90"])
    assert CliRunner().invoke(app, [*asked, "--text"]).exit_code == 2


# ---- releases


@pytest.mark.parametrize("name", ["", "13", "latest", "11.8", "13.0.0.1", "../13.0", "13.0; x"])
def test_what_is_no_release_is_refused(name: str) -> None:
    """Only versions from 12.0 on; nothing else reaches pip or the disk."""
    with pytest.raises(ArgumentValueError, match="no release"):
        find_release(name)


def test_the_installed_release_is_not_fetched() -> None:
    """Its major and minor version or its full one name it."""
    version = nvrtc_full_version()
    assert find_release(version) == installed()
    assert find_release(".".join(version.split(".")[:2])) == installed()


def test_a_release_that_cannot_be_fetched_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without an index: what was looked for, and what to do."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(ToolNotFoundError) as caught:
        find_release("12.1")
    assert "NVRTC 12.1" in caught.value.what
    assert "nvidia-cuda-nvrtc-cu12==12.1.*" in caught.value.remedy


def test_a_wheel_gives_its_libraries_alone(tmp_path: Path) -> None:
    """Libraries are unpacked under the version, whatever folders the wheel has; once."""
    store = tmp_path / "store"
    path = wheel(
        tmp_path,
        "nvidia_cuda_nvrtc-13.0.88-py3-none-manylinux2010_x86_64.whl",
        {
            "nvidia/cu13/lib/libnvrtc.so.13": b"library",
            "nvidia/cu13/lib/libnvrtc-builtins.so.13.0": b"builtins",
            "nvidia/cu13/lib/libnvrtc.alt.so.13": b"not this",
            "../../libnvrtc.so.99/../evil": b"nor this",
            "nvidia/cu13/include/nvrtc.h": b"nor this",
        },
    )
    release = unpack_wheel(path, store)
    assert release == Release("13.0.88", store / "13.0.88" / "libnvrtc.so.13")
    assert sorted(f.name for f in release.library.parent.iterdir()) == [
        "libnvrtc-builtins.so.13.0",
        "libnvrtc.so.13",
    ]
    assert unpack_wheel(path, store) == release
    assert [folder.name for folder in store.iterdir()] == ["13.0.88"]


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("nvidia_cuda_nvrtc-13.0.88-py3-none-any.whl", {"readme": b""}),
        ("nvidia_cuda_nvrtc-x.y-py3-none-any.whl", {"libnvrtc.so.13": b""}),
        ("something.whl", {"libnvrtc.so.13": b""}),
    ],
)
def test_another_wheel_is_refused(tmp_path: Path, name: str, members: dict[str, bytes]) -> None:
    """A wheel without NVRTC or without its version leaves nothing behind."""
    with pytest.raises(ToolFailedError, match="no wheel of NVRTC"):
        unpack_wheel(wheel(tmp_path, name, members), tmp_path / "store")
    assert list((tmp_path / "store").iterdir()) == []


def test_a_kept_release_is_found_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was unpacked once is there without a network; the newest of a minor version wins."""
    monkeypatch.setenv("LOWGEMM_CACHE_DIR", str(tmp_path))
    for version in ("12.3.9", "12.3.10"):
        library = cache_directory() / "nvrtc" / version / "libnvrtc.so.12"
        library.parent.mkdir(parents=True)
        library.write_bytes(b"")
    assert find_release("12.3").version == "12.3.10"
    assert find_release("12.3.9").version == "12.3.9"


# ---- compiling in a process of its own


def test_a_release_compiles_in_its_own_process(source: Path) -> None:
    """The installed NVRTC, loaded by path in a child, gives the build that it gives here."""
    (build,) = compile_with(installed(), str(source), ["sm_90"])
    assert build == compile_file(source, arch="sm_90")


def test_a_target_can_be_built_with_a_release(source: Path) -> None:
    """What `--nvrtc` does: the same builds, whose version is the release's."""
    (build,) = resolve_builds(str(source), ["sm_90"], nvrtc=nvrtc_full_version())
    assert build == compile_file(source, arch="sm_90")
    asked = ["check", str(source), "-a", "90", "--nvrtc", nvrtc_full_version()]
    done = CliRunner().invoke(app, [*asked, "-e", "hot_loop.FFMA >= 1"])
    assert done.exit_code == 0, done.output


def test_errors_cross_the_process(source: Path, tmp_path: Path) -> None:
    """A source that does not compile, or is not there: the same error as here, with the release."""
    source.write_text("__global__ void k() { nonsense; }", encoding="utf-8")
    with pytest.raises(CompilationError, match=f"with NVRTC {installed().version}") as caught:
        compile_with(installed(), str(source), ["sm_90"])
    assert "nonsense" in caught.value.log
    with pytest.raises(SourceNotFoundError):
        compile_with(installed(), str(tmp_path / "no.cu"), ["sm_90"])


def test_a_library_that_is_not_what_it_is_called_is_found_out(source: Path, tmp_path: Path) -> None:
    """Another version under a release's name, and a file that is no library: typed errors."""
    with pytest.raises(ToolFailedError, match=r"was loaded where 12\.0\.1 was meant"):
        compile_with(Release("12.0.1", nvrtc_library()), str(source), ["sm_90"])
    broken = tmp_path / "libnvrtc.so.12"
    broken.write_bytes(b"no library")
    with pytest.raises(ToolFailedError, match=r"NVRTC 12\.0\.1 ended with status"):
        compile_with(Release("12.0.1", broken), str(source), ["sm_90"])


def test_one_release_is_nothing_to_compare(source: Path) -> None:
    """Two releases at least."""
    with pytest.raises(ArgumentValueError, match="1 releases"):
        drift(str(source), ["13.5"], ["sm_90"])


@pytest.mark.network
def test_two_releases_are_set_side_by_side(source: Path) -> None:
    """NVRTC 12.9 from its wheel beside the installed one, through the command."""
    try:
        old = find_release("12.9")
    except ToolNotFoundError as error:
        pytest.skip(error.what)
    names = f"12.9,{nvrtc_full_version()}"
    done = CliRunner().invoke(app, ["drift", str(source), "--nvrtc", names, "-a", "90", "--json"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.output)
    assert data["nvrtc"] == [old.version, nvrtc_full_version()]
    (hot,) = [loop for loop in data["kernels"][0]["loops"] if loop["hot"]]
    ffmas = next(row["values"] for row in hot["figures"] if row["name"] == "FFMA")
    assert all(ffmas)
