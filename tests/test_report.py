"""The ladder's records and their views."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lowgemm.errors import MeasurementError
from lowgemm.gemm import CheckResult, GemmProblem
from lowgemm.hardware import Architecture
from lowgemm.measure import Timing
from lowgemm.report import (
    LadderReport,
    Provenance,
    join_ladder,
    plain,
    read_report,
    write_report,
)
from lowgemm.studies.ladder import CompiledRung, LadderRun, PeerRun, compile_ladder
from lowgemm.studies.peers import PeerIdentity
from lowgemm.view import ladder_markdown, ladder_view

NAMES = ("ex3", "ex8", "ex9", "two_ideas")
WHERE = Provenance(
    date="2026-01-02",
    command="lowgemm ladder",
    lowgemm="0.1.0",
    nvrtc="13.5.37",
    gpu="Test GPU",
    compute_capability="9.0",
    multiprocessors=132,
    driver="580.0",
    driver_cuda="13.0",
    clock_mhz=1980,
    cache="hot",
    cublas="13.1.0",
    cublas_kernels=("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8",),
    cublas_time_us=2500.0,
    cublas_tflops=55.0,
    cublas_correct=True,
)


def timing(time_us: float) -> Timing:
    return Timing(time_us, time_us, time_us, 10, 1, "hot", True, 1980)


@pytest.fixture(scope="module")
def compiled() -> tuple[CompiledRung, ...]:
    return compile_ladder(["sm_90", "sm_80"], NAMES)


@pytest.fixture
def run() -> LadderRun:
    """ex8 is wrong; the rest took 20000, 2500 and 4000 us where the peer took 2500."""
    right = CheckResult(True, 1e-5, 0.1)
    wrong = CheckResult(False, 1.0, float("inf"), "element (0, 0) is nan")
    checks = {"ex3": right, "ex8": wrong, "ex9": right, "two_ideas": right}
    timings = {"ex3": timing(20000), "ex9": timing(2500), "two_ideas": timing(4000)}
    peer = PeerRun(PeerIdentity("cuBLAS", "13.1.0", ("ffma",)), right, timing(2500))
    return LadderRun(GemmProblem(4096, 4096, 4096), checks, timings, peer, None, 1980)


@pytest.fixture
def report(compiled: tuple[CompiledRung, ...], run: LadderRun) -> LadderReport:
    return join_ladder(compiled, run, measured_arch="sm_90", provenance=WHERE)


def text_of(report: LadderReport, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(ladder_view(report, width))
    return out.getvalue()


def test_no_rate_is_given_for_a_wrong_result(report: LadderReport) -> None:
    """A rung that failed its check has neither time nor rate, whatever ran."""
    row = next(r for r in report.rows if r.rung == "ex8" and r.arch == "sm_90")
    assert row.correct is False
    assert (row.time_us, row.tflops, row.ratio_to_cublas) == (None, None, None)
    assert row.check == "element (0, 0) is nan"


def test_rates_and_ratios_follow_from_the_times(report: LadderReport) -> None:
    """TFLOP/s is 2 M N K over the time; ratios are of speed; two_ideas follows no rung."""
    rows = {row.rung: row for row in report.rows if row.arch == "sm_90"}
    assert rows["ex9"].tflops == pytest.approx(2 * 4096**3 / 2500e-6 / 1e12)
    assert rows["ex9"].ratio_to_cublas == 1.0
    assert rows["ex9"].ratio_to_ex3 == 8.0
    assert rows["ex9"].ratio_to_previous is None  # ex8 has no time
    assert rows["two_ideas"].ratio_to_previous is None


def test_only_the_rung_before_counts_as_the_one_before(
    compiled: tuple[CompiledRung, ...], run: LadderRun
) -> None:
    """Where rungs were left out, one is not compared with whatever ran before it."""
    right = CheckResult(True, 1e-5, 0.1)
    checks = {**run.checks, "ex8": right}
    timings = {**run.timings, "ex8": timing(3000)}
    every = replace(run, checks=checks, timings=timings)
    report = join_ladder(compiled, every, measured_arch="sm_90", provenance=WHERE)
    rows = {row.rung: row for row in report.rows if row.arch == "sm_90"}
    assert rows["ex8"].ratio_to_previous is None  # ex7 did not run
    assert rows["ex9"].ratio_to_previous == pytest.approx(3000 / 2500)


def test_other_architectures_stay_unmeasured(report: LadderReport) -> None:
    """What ran on sm_90 says nothing of sm_80."""
    assert all(r.correct is None and r.time_us is None for r in report.rows if r.arch == "sm_80")


def test_the_json_has_the_promised_keys(report: LadderReport) -> None:
    """Each object has at least the documented fields, null where nothing was measured."""
    keys = {
        "rung", "arch", "registers", "shared_bytes", "spill_store_bytes", "occupancy", "correct",
        "time_us", "tflops", "ratio_to_cublas",
    }  # fmt: skip
    for row in json.loads(json.dumps(report.rows_as_json())):
        assert keys <= set(row)


def test_a_report_survives_its_file(report: LadderReport, tmp_path: Path) -> None:
    """Writing and reading gives the same rows and provenance."""
    path = tmp_path / "deep" / "h200.json"
    write_report(report, path)
    again = read_report(path)
    assert (again.rows, again.provenance) == (report.rows, report.provenance)


def test_a_report_without_measurements_is_not_written(
    compiled: tuple[CompiledRung, ...], tmp_path: Path
) -> None:
    """A timings file without timings is refused, and the error says why there are none."""
    bare = join_ladder(compiled, unmeasured="no GPU")
    with pytest.raises(MeasurementError, match="no GPU"):
        write_report(bare, tmp_path / "x.json")


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"schema": 99, "rows": []}', '{"schema": 1}', "[" * 100_000, "\0\x7fELF"],
    ids=range(6),
)
def test_a_file_that_is_no_report_is_named(content: str, tmp_path: Path) -> None:
    """Reading something else is an error with the file's name."""
    path = tmp_path / "broken.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(MeasurementError, match=r"broken\.json"):
        read_report(path)


def test_a_field_of_another_type_is_named(report: LadderReport, tmp_path: Path) -> None:
    """A number that is a text is refused when it is read, not when it is shown."""
    path = tmp_path / "edited.json"
    write_report(report, path)
    data = json.loads(path.read_text(encoding="utf-8"))
    data["rows"][0]["registers"] = "many"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(MeasurementError, match="registers is 'many'"):
        read_report(path)


def test_what_json_lacks_becomes_null() -> None:
    """NaN and infinity of a failed check are null, so that every reader takes the output."""
    verdict = CheckResult(False, float("nan"), float("inf"), "element (0, 0) is nan")
    text = json.dumps(plain({"results": (verdict,)}), allow_nan=False)
    assert json.loads(text)["results"][0]["error_over_bound"] is None


def test_the_table_shows_right_wrong_and_the_peer(report: LadderReport) -> None:
    """The terminal's table has a row a rung, cuBLAS last, and the reason of a failure below."""
    text = text_of(report)
    assert "FP32 GEMM ladder on Test GPU (sm_90), 4096x4096x4096" in text
    assert "ex8: element (0, 0) is nan" in text
    lines = [line for line in text.splitlines() if "version 13.1.0" in line]
    assert "55.0" in lines[0]
    assert "TF32 off: sm80_xmma" in text


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_the_table_fits_the_terminal(report: LadderReport, width: int) -> None:
    """Columns are left out where the terminal is narrow; none is cut short."""
    text = text_of(report, width)
    for line in text.splitlines():
        assert len(line) <= width
    assert "…" not in text
    assert "TFLOP/s" in text


def test_a_table_without_a_gpu_says_why(compiled: tuple[CompiledRung, ...]) -> None:
    """The time columns are there, empty, with the reason below."""
    text = text_of(join_ladder(compiled, unmeasured="the NVIDIA driver cannot be loaded"))
    assert "TFLOP/s" in text
    assert "not measured: the NVIDIA driver cannot be loaded" in text
    assert "compiled for sm_80" in text


def test_markdown_carries_the_provenance(report: LadderReport) -> None:
    """The Markdown table names GPU, driver, clock, toolchain, date and command."""
    own = replace(report, rows=tuple(r for r in report.rows if r.arch == "sm_90"))
    text = ladder_markdown(own)
    for word in ("Test GPU", "580.0", "1980 MHz", "13.5.37", "2026-01-02", "`lowgemm ladder`"):
        assert word in text
    assert text.count("\n| ex") == 3


def test_architectures_are_grouped(report: LadderReport) -> None:
    """Each architecture has one table, in the order in which they were asked for."""
    text = text_of(report)
    assert text.index("sm_90") < text.index("compiled for sm_80")
    assert str(Architecture(9, 0)) == "sm_90"
