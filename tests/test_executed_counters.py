"""The exact counters of Nsight Compute: its pages read, what it lacks told, and the file."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lowgemm.binary import read_cubin
from lowgemm.errors import KernelNotFoundError, MeasurementError, SourceNotFoundError
from lowgemm.gemm import compile_rung, rung
from lowgemm.studies import executed_counters as study
from lowgemm.studies.executed_counters import (
    ExecutedCounters,
    code_sha256,
    executed_counters,
    kernel_of,
    read_executed_counters,
    read_instances,
    read_raw_page,
    read_source_page,
    rung_execution,
    whole_number,
    write_executed_counters,
)

ROOT = Path(__file__).resolve().parents[1]
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
PER_OPCODE = "sass__inst_executed_per_opcode"

RAW = f"""==PROF== Connected to process 41 (/usr/bin/python3)
"ID","Process ID","Kernel Name","Grid Size","{FFMA}","smsp__inst_executed.sum","{PER_OPCODE}",\
"derived__memory_l1_conflicts_shared_nway","memory_l1_wavefronts_shared"
"","","","","inst","inst","inst","",""
"0","41","void k<(bool)1>(int, const float *)","(16, 1, 1)","134,217,728","96","96","1.25","n/a"
"""
DETAILS = RAW.replace('"96","1.25"', '"96 (FFMA: 64; BAR: 32)","1.25"')
SOURCE = """"Kernel Name","void k<(bool)1>(int, const float *)"
"#","Address","Source","# Samples","Instructions Executed","# Samples","Instructions Executed",\
"Thread Instructions Executed","Access Size","L1 Wavefronts Shared","L1 Wavefronts Shared Ideal"
"0","0x7f5e00a0c0f0","      LDS.128 R4, [R2+0x10] ","1","32","1","32","1,024","128","64","64"
"1","0x7f5e00a0c100","@!P0  FFMA R0, R1, R2, R0 ","0","64","0","64","2,048","","",""
"2","0x7f5e00a0c110","      EXIT ","0","0","0","0","0","","",""
"""


@pytest.fixture(scope="module")
def cubin() -> bytes:
    """The machine code of a rung with two instances."""
    return compile_rung(rung("ex6", "sm_90"), "sm_90").cubin


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script that measures."""
    path = ROOT / "scripts" / "executed_counters.py"
    spec = importlib.util.spec_from_file_location("executed_counters_script", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def counters(cubin: bytes, source: str = SOURCE) -> ExecutedCounters:
    """A file's content of one rung."""
    kernel = kernel_of(cubin, "ex6_vectorized<true>")
    execution = rung_execution(cubin, kernel, raw=RAW, details=DETAILS, source=source)
    return ExecutedCounters(
        date="2026-01-02",
        command="python measure.py",
        lowgemm="0.1.0",
        gpu="NVIDIA H200",
        compute_capability="9.0",
        multiprocessors=132,
        driver="580.1",
        driver_cuda="13.0",
        ncu="2025.3.1.0",
        nvrtc="13.5.37",
        arch="sm_90",
        problem="512x512x512",
        rungs={"ex6": execution},
    )


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("1,048,576", 1 << 20), (" 64 ", 64), ("64.00", 64)]
)
def test_counts(text: str, count: int) -> None:
    """A count is read with separators of thousands and with a fraction of zero."""
    assert whole_number(text) == count


@pytest.mark.parametrize("text", ["", "n/a", "1.5", "1.34218e+08", "1,23", "-4", "12 34"])
def test_no_counts(text: str) -> None:
    """A rounded or missing value is never taken for an exact count."""
    with pytest.raises(MeasurementError, match="no whole number"):
        whole_number(text)


def test_instances() -> None:
    """The instances of a metric are read by opcode, with separators of thousands."""
    cell = "1,184 (FFMA: 1,024; BAR: 32; IMAD.MOV: 128)"
    assert read_instances(cell) == {"FFMA": 1024, "BAR": 32, "IMAD.MOV": 128}


@pytest.mark.parametrize(
    "cell",
    ["96", "n/a", "96 ()", "96 (64; 32)", "96 (FFMA: 1.2e+08; BAR: 1)", "2 (BAR: 1; BAR: 1)"],
)
def test_instances_that_are_none(cell: str) -> None:
    """A cell without names, with one twice or with a rounded value is an error."""
    with pytest.raises(MeasurementError, match="no counts by instance"):
        read_instances(cell)


def test_raw_page() -> None:
    """Cells are found by the name of their column, past ncu's own lines and quoted commas."""
    cells = read_raw_page(RAW)
    assert cells["Kernel Name"] == "void k<(bool)1>(int, const float *)"
    assert cells[FFMA] == "134,217,728"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("==ERROR== No kernels were profiled.\n", "no row of column names"),
        (RAW + RAW.splitlines()[-1], "2 launches"),
        ("\n".join(RAW.splitlines()[:-1]), "0 launches"),
        (RAW.replace('"inst","inst"', '"Minst","inst"', 1), "in Minst, rounded"),
    ],
)
def test_raw_page_that_is_none(text: str, complaint: str) -> None:
    """No table, not one launch, or a scaled unit is an error that says which."""
    with pytest.raises(MeasurementError, match=complaint):
        read_raw_page(text)


def test_source_page() -> None:
    """Each instruction has its counts, 0 where a metric does not apply to it."""
    mnemonics, counts, missing = read_source_page(SOURCE)
    assert mnemonics == ("LDS.128", "FFMA", "EXIT")
    assert counts["inst_executed"] == (32, 64, 0)
    assert counts["thread_inst_executed"] == (1024, 2048, 0)
    assert counts["memory_l1_wavefronts_shared"] == (64, 0, 0)
    assert missing["memory_l2_theoretical_sectors_global"] == "the source page has no such column"


def test_source_page_with_metric_names() -> None:
    """The columns may be headed by metrics' names, and addresses count from the kernel's start."""
    page = "Address,Source,inst_executed\n0,MOV R1 R2,8\n16,EXIT,8\n"
    assert read_source_page(page)[:2] == (("MOV", "EXIT"), {"inst_executed": (8, 8)})


def test_source_page_with_a_rounded_column() -> None:
    """A column with a rounded or no value is left out with the reason."""
    page = SOURCE.replace('"1,024"', '"1.02e+03"').replace('"64","64"\n', '"n/a","64"\n')
    _, counts, missing = read_source_page(page)
    assert "thread_inst_executed" not in counts
    assert "1.02e+03" in missing["thread_inst_executed"]
    assert "empty" in missing["memory_l1_wavefronts_shared"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no row of column names"),
        (SOURCE.replace("a0c110", "a0c120"), "steps of 16 bytes"),
        (SOURCE.replace("0x7f5e00a0c110", "end"), "steps of 16 bytes"),
        ("\n".join(SOURCE.splitlines()[:2]), "the 0 addresses"),
    ],
)
def test_source_page_that_is_none(text: str, complaint: str) -> None:
    """A page without a table, or with a gap between its instructions, is an error."""
    with pytest.raises(MeasurementError, match=complaint):
        read_source_page(text)


def test_one_launch(cubin: bytes) -> None:
    """Totals, opcodes and instructions come together, with what is missing and why."""
    found = counters(cubin).rungs["ex6"]
    assert found.metrics == {FFMA: 1 << 27, "smsp__inst_executed.sum": 96}
    assert found.opcodes == {PER_OPCODE: {"FFMA": 64, "BAR": 32}}
    assert found.by_opcode() == {"LDS": 32, "FFMA": 64}
    assert "smsp__sass_inst_executed_op_ldgsts.sum" in found.missing
    assert "memory_l1_wavefronts_shared" not in found.missing
    with pytest.raises(MeasurementError, match="has no such column"):
        found.by_opcode("memory_l2_theoretical_sectors_global")


def test_the_machine_code_is_named(cubin: bytes) -> None:
    """A kernel is found by the name in C++, and its code's hash is that of its own bytes alone."""
    aligned, any_rows = (kernel_of(cubin, f"ex6_vectorized<{w}>") for w in ("true", "false"))
    assert code_sha256(cubin, aligned) != code_sha256(cubin, any_rows)
    # What stands behind the code of the kernels, line information too, does not count.
    code = read_cubin(cubin).code[aligned].content
    assert code_sha256(cubin + b"\0", aligned) == code_sha256(cubin, aligned)
    assert len(code) % 16 == 0
    with pytest.raises(KernelNotFoundError, match="0 kernels"):
        kernel_of(cubin, "ex6_vectorized")
    with pytest.raises(KernelNotFoundError, match="no kernel 'ex6'"):
        code_sha256(cubin, "ex6")


def test_the_file_comes_back(cubin: bytes, tmp_path: Path) -> None:
    """What is written is read back equal, and a list takes one line."""
    path = tmp_path / "folder" / "counters.json"
    written = counters(cubin)
    write_executed_counters(written, path)
    assert read_executed_counters(path) == written
    assert '"inst_executed": [ 32, 64, 0 ]' in path.read_text(encoding="utf-8")
    assert "driver 580.1, Nsight Compute 2025.3.1.0, NVRTC 13.5.37" in written.provenance


def test_a_damaged_file(cubin: bytes, tmp_path: Path) -> None:
    """Another schema, a missing field or a column of another length is an error."""
    path = tmp_path / "counters.json"
    write_executed_counters(counters(cubin), path)
    whole = json.loads(path.read_text(encoding="utf-8"))
    short = json.loads(path.read_text(encoding="utf-8"))
    short["rungs"]["ex6"]["instructions"]["inst_executed"].pop()
    del whole["provenance"]["ncu"]
    for data, complaint in ((whole, "ncu"), (short, "2 of 3"), ({"schema": 0}, "no file of")):
        path.write_text(json.dumps(data), encoding="utf-8")
        with pytest.raises(MeasurementError, match=complaint):
            read_executed_counters(path)
    with pytest.raises(MeasurementError, match="cannot be written"):
        write_executed_counters(counters(cubin), path / "under-a-file")


def test_the_committed_file_by_its_name(
    cubin: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The committed counters are read from the folder of measured data, or missed by name."""
    monkeypatch.setattr(study, "timings_directory", lambda: tmp_path)
    executed_counters.cache_clear()
    try:
        with pytest.raises(SourceNotFoundError, match=r"h200_executed_512\.json"):
            executed_counters()
        write_executed_counters(counters(cubin), tmp_path / "h200_executed_512.json")
        assert executed_counters().problem == "512x512x512"
    finally:
        executed_counters.cache_clear()


# ---- the script, with a stand-in for ncu

FAKE = """#!{python}
import re, sys
from pathlib import Path
words, here = sys.argv[1:], Path(__file__).parent
after = lambda option: words[words.index(option) + 1]
if "--version" in words:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 1)")
elif "--export" in words:
    metrics = after("--metrics").split(",")
    with (here / "asked").open("a") as asked:
        asked.write(str(len(metrics)) + "\\n")
    if "broken" in {lacks!r} or set(metrics) & set({lacks!r}):
        print("==ERROR== Failed to " + {complaint!r}, file=sys.stderr)
        sys.exit(9)
    print({said!r})
    Path(after("--export")).write_text("report")
elif after("--page") == "source":
    print((here / "source").read_text(), end="")
else:
    print((here / ("details" if "details" in words else "raw")).read_text(), end="")
"""


def profiler(
    script: ModuleType,
    folder: Path,
    *,
    lacks: tuple[str, ...] = (),
    complaint: str = "",
    said: str = "the result is right",
) -> object:
    """The script's profiler with a program in place of ncu that lacks some metrics."""
    cubins, work = folder / "cubins", folder / "work"
    work.mkdir()
    cubins.mkdir()
    for name in ("ex6", "ex3"):
        (cubins / f"{name}.cubin").write_bytes(compile_rung(rung(name, "sm_90"), "sm_90").cubin)
    for name, text in (("raw", RAW), ("details", DETAILS), ("source", SOURCE)):
        (folder / name).write_text(text, encoding="utf-8")
    program = folder / "ncu"
    text = FAKE.format(python=sys.executable, lacks=lacks, complaint=complaint, said=said)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return script.Profiler(str(program), cubins, work)


@pytest.mark.parametrize(
    ("complaint", "runs"),
    [
        (r"find metric regex:^smsp__sass_inst_executed_op_ldgsts\.(sum|min|max)$", 3),
        ("access the following 1 metrics: smsp__sass_inst_executed_op_ldgsts.sum", 3),
        ("do something", None),
    ],
)
def test_a_metric_that_ncu_lacks(
    script: ModuleType, tmp_path: Path, complaint: str, runs: int | None
) -> None:
    """It costs no other metric, whether or not ncu names it, and is looked for once."""
    lacks = ("smsp__sass_inst_executed_op_ldgsts.sum",)
    fake = profiler(script, tmp_path, lacks=lacks, complaint=complaint)
    found, failures = script.collect(fake, ["ex6", "ex3"])
    assert not failures
    assert list(found) == ["ex6", "ex3"]
    asked = (tmp_path / "asked").read_text(encoding="utf-8").split()
    every = len(script.LAUNCH_METRICS) + len(script.INSTANCED_METRICS)
    assert [int(asked[0]), *map(int, asked[-2:])] == [every, every - 1, every - 1]
    assert runs is None or len(asked) == runs


def test_an_ncu_that_does_not_work(script: ModuleType, tmp_path: Path) -> None:
    """What it wrote is in the failure of each rung, and no metric is looked for."""
    fake = profiler(script, tmp_path, lacks=("broken",), complaint="initialize the profiler")
    found, failures = script.collect(fake, ["ex6", "ex3"])
    assert not found
    assert [failure.partition(":")[0] for failure in failures] == ["ex6", "ex3"]
    assert all("initialize the profiler" in failure for failure in failures)
    assert len((tmp_path / "asked").read_text(encoding="utf-8").split()) == 4


def test_a_wrong_result(script: ModuleType, tmp_path: Path) -> None:
    """Counters of a kernel whose result was not found right are not kept."""
    found, failures = script.collect(profiler(script, tmp_path, said="no"), ["ex6"])
    assert not found
    assert "not found right" in failures[0]


def test_the_version_of_ncu(script: ModuleType, tmp_path: Path) -> None:
    """The version is the one that the program gives."""
    fake = profiler(script, tmp_path)
    assert fake.version() == "2025.3.1.0"  # type: ignore[attr-defined]
