"""The command line as a user meets it, in a process of its own, with no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lowgemm.binary.sass import read_sass
from lowgemm.device import gpu_available
from lowgemm.gemm import RUNG_NAMES, compile_rung, kernel_directory, rung

SAXPY = """
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
template <int N> __global__ void scale(float* x) { x[threadIdx.x] *= N; }
"""

without_gpu = pytest.mark.skipif(gpu_available(), reason="there is a GPU here")


def lowgemm(
    *arguments: str, cwd: Path | None = None, columns: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m lowgemm`` with its output in pipes."""
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    own = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    if columns:
        own["COLUMNS"] = columns
    return subprocess.run(
        [sys.executable, "-m", "lowgemm", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**own, "PYTHONPATH": path},
        check=False,
    )


@pytest.fixture
def saxpy(tmp_path: Path) -> Path:
    path = tmp_path / "saxpy.cu"
    path.write_text(SAXPY, encoding="utf-8")
    return path


def test_help_lists_the_verbs() -> None:
    """`lowgemm --help` names every command."""
    done = lowgemm("--help")
    assert done.returncode == 0
    for verb in ("doctor", "compile", "verify", "bench", "ladder"):
        assert verb in done.stdout


def test_version_is_printed() -> None:
    """`lowgemm --version` is the package's version."""
    assert lowgemm("--version").stdout.strip() == "0.1.0"


def test_doctor_finds_the_toolchain() -> None:
    """With the wheels installed all that is required is found; the exit status says so."""
    done = lowgemm("doctor", "--json")
    assert done.returncode == 0, done.stdout
    findings = {item["component"]: item for item in json.loads(done.stdout)}
    for component in ("NVRTC", "cuobjdump", "nvdisasm", "kernels"):
        assert findings[component]["found"]
        assert findings[component]["version"]
    assert "sm_90" in findings["emulator"]["where"]


@without_gpu
def test_doctor_says_how_to_get_what_is_missing() -> None:
    """A missing driver is listed with its remedy and is no failure."""
    done = lowgemm("doctor")
    assert done.returncode == 0
    assert "missing" in done.stdout
    assert "install the NVIDIA driver" in done.stdout
    if "libcublas cannot be loaded" in done.stdout:
        assert "pip install nvidia-cublas" in done.stdout


def test_compile_shows_each_kernel(saxpy: Path) -> None:
    """Registers, shared memory and spills a kernel and architecture; parameters in the JSON."""
    done = lowgemm(
        "compile", str(saxpy), "--arch", "sm_80", "--arch", "sm_90", "-k", "scale<3>", "--json"
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(r["kernel"], r["arch"]) for r in rows].count(("saxpy", "sm_90")) == 1
    assert {r["kernel"] for r in rows} == {"saxpy", "scale<3>"}
    row = next(r for r in rows if r["kernel"] == "saxpy")
    assert row["registers"] > 0
    assert [p["size_bytes"] for p in row["parameters"]] == [4, 4, 8, 8]


def test_compile_shows_what_a_kernel_needs_with_its_functions(tmp_path: Path) -> None:
    """The table has the stack of the deepest call; the JSON that, and what ptxas says of it."""
    source = tmp_path / "k.cu"
    source.write_text(
        "__device__ __noinline__ float leaf(const float* x, int n) {\n"
        "    float a[32], s = 0;\n"
        "    for (int i = 0; i < n; ++i) a[i] = x[i];\n"
        "    for (int i = 0; i < n; ++i) s += a[n - i];\n"
        "    return s;\n"
        "}\n"
        "__global__ void k(float* x, int n) { x[0] = leaf(x, n); }\n"
    )
    for option in ("-rdc=true", "-G"):
        done = lowgemm("compile", str(source), "-a", "sm_90", "-o", option, "--json")
        (row,) = json.loads(done.stdout)
        assert row["stack_bytes"] == 0
        assert row["stack_bytes_with_callees"] >= 128
        shown = lowgemm("compile", str(source), "-a", "sm_90", "-o", option).stdout
        assert str(row["stack_bytes_with_callees"]) in shown


def test_compile_takes_rungs_and_several_files(saxpy: Path) -> None:
    """As the other commands do; --only keeps the kernels with a text in their name."""
    done = lowgemm("compile", "ex3", str(saxpy), "-a", "sm_90", "--json")
    assert done.returncode == 0, done.stderr
    assert [row["kernel"] for row in json.loads(done.stdout)] == ["ex3_naive", "saxpy"]
    done = lowgemm("compile", "ex3", str(saxpy), "-a", "sm_90", "--only", "naive", "--json")
    assert [row["kernel"] for row in json.loads(done.stdout)] == ["ex3_naive"]
    done = lowgemm("compile", "ex3", str(saxpy), "-a", "sm_90", "--cubin", "/tmp/x")
    assert done.returncode == 2
    assert "one file" in done.stderr


def test_a_status_of_1_is_a_finding_and_2_an_error(saxpy: Path) -> None:
    """A script can tell what does not hold or differs from what could not be done."""
    source = [str(saxpy), "-a", "sm_90", "--only", "saxpy"]
    assert lowgemm("check", *source, "-e", "registers >= 1").returncode == 0
    assert lowgemm("check", *source, "-e", "registers <= 1").returncode == 1
    assert lowgemm("check", *source, "-e", "registers <").returncode == 2
    assert lowgemm("check", "no.cu", "-e", "registers <= 1").returncode == 2
    differing = lowgemm("diff", *source, "--arch-b", "sm_80", "--exit-code")
    assert differing.returncode == 1
    assert lowgemm("diff", "no.cu", *source, "--exit-code").returncode == 2


def test_tables_keep_to_the_columns_that_the_environment_names() -> None:
    """COLUMNS holds in a pipe too: no line of a loop's table is longer."""
    root = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "lowgemm", "sass", "ex8", "-a", "90", "--only", "true"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": root, "COLUMNS": "80"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout


def test_compile_writes_cubin_and_ptx(saxpy: Path, tmp_path: Path) -> None:
    """The cubin is an ELF file and the PTX is for the architecture asked for."""
    cubin, ptx = tmp_path / "k.cubin", tmp_path / "k.ptx"
    done = lowgemm("compile", str(saxpy), "-a", "sm_86", "--cubin", str(cubin), "--ptx", str(ptx))
    assert done.returncode == 0, done.stderr
    assert cubin.read_bytes()[:4] == b"\x7fELF"
    assert ".target sm_86" in ptx.read_text(encoding="utf-8")


def test_defines_and_log(tmp_path: Path) -> None:
    """-D reaches the compiler, and --log prints what ptxas said."""
    source = tmp_path / "d.cu"
    source.write_text(
        "#if VALUE != 7 || !defined(FLAG)\n#error wrong\n#endif\n"
        'extern "C" __global__ void k(int* x) { *x = VALUE; }\n',
        encoding="utf-8",
    )
    done = lowgemm("compile", str(source), "-a", "90", "-D", "VALUE=7", "-D", "FLAG", "--log")
    assert done.returncode == 0, done.stderr
    assert "ptxas info" in done.stdout
    assert lowgemm("compile", str(source), "-a", "90", "-D", "VALUE=8").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compile", "missing.cu", "-a", "sm_90"), "missing.cu"),
        (("compile", "{broken}", "-a", "sm_90"), "broken.cu(2): error"),
        (("compile", "{broken}", "-a", "compute_90"), "compute_90"),
        (("compile", "{good}", "-a", "sm_90", "--cubin", "/nowhere/x"), "/nowhere/x cannot be"),
        (("ladder", "ex99", "--no-run"), "ex3, ex4_16"),
        (("verify", "ex99"), "ex3, ex4_16"),
        (("ladder", "--from", "{broken}"), "broken.cu is not JSON"),
        (("ladder", "--from", "/nowhere/x"), "/nowhere/x cannot be read"),
        (("ladder", "--arch", "sm_70", "--no-run"), "sm_70"),
        (("ladder", "ex3", "-d", "emulator", "-a", "sm_75"), "does not run code of sm_75"),
        (("ladder", "ex3", "-d", "emulator", "-s", "8192"), "171 minutes"),
        (("verify", "ex3", "-d", "emulator", "-s", "8192"), "171 minutes"),
        (("sass", "ex3", "--executed", "-s", "8192"), "171 minutes"),
        (("sass", "ex55"), "'ex55' is neither a rung nor a file"),
        (("sass", "ex55", "--executed"), "ex3, ex4_16"),
        (("ladder", "--size", "0"), "between 1 and"),
        (("bench", "--size", "12y"), "12y"),
        (("compile", "k.cubin"), "k.cubin is no CUDA source but machine code"),
        (("ptx", "k.cubin"), "k.cubin is no CUDA source but machine code"),
        (("check", "k.cubin"), "k.cubin is no CUDA source but machine code"),
        (("drift", "k.cubin", "--nvrtc", "12.0,12.1"), "lowgemm: k.cubin is no CUDA source"),
        (("sass", "{template}", "-a", "90"), "name one: -k 'scale<float>' on a command line"),
        (("compile", "{good}", "--only", "zzz"), "no kernel has 'zzz' in its name"),
    ],
)
def test_errors_are_a_message_and_a_status(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """A mistake gives exit status 2 and says on stderr what, which value, and what to do."""
    broken = tmp_path / "broken.cu"
    broken.write_text("__global__ void k() {\n  no such thing;\n}\n", encoding="utf-8")
    good = tmp_path / "good.cu"
    good.write_text(SAXPY, encoding="utf-8")
    template = tmp_path / "template.cu"
    template.write_text("template <int N> __global__ void scale(float* x) { *x = N; }\n", "utf-8")
    files = {"broken": broken, "good": good, "template": template}
    done = lowgemm(*(a.format(**files) for a in arguments))
    if said == "12y" and not gpu_available():
        said = "driver"  # Without a GPU that is what comes first.
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@without_gpu
@pytest.mark.parametrize("verb", ["verify --device gpu", "ladder ex3 --device gpu", "bench"])
def test_what_needs_a_gpu_says_so(verb: str) -> None:
    """Without a driver the commands that only run end with the reason and the remedy."""
    done = lowgemm(*verb.split())
    assert done.returncode == 2
    assert "driver cannot be loaded" in done.stderr
    assert "--device emulator" in done.stderr


def test_ladder_json_has_a_row_a_rung_and_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The promised fields are there; nothing measured means null, not zero."""
    monkeypatch.setenv("LOWGEMM_REWRITE", "0")  # which takes long, and is another test's
    done = lowgemm("ladder", "--no-run", "-a", "sm_80", "-a", "sm_120", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(r["arch"], r["rung"]) for r in rows] == [
        (arch, name) for arch in ("sm_80", "sm_120") for name in RUNG_NAMES
    ]
    for row in rows:
        assert row["registers"] > 0
        assert 0 < row["occupancy"] <= 1
        for field in ("correct", "time_us", "tflops", "ratio_to_cublas"):
            assert row[field] is None


def test_a_pipe_gets_no_colour_and_whole_lines() -> None:
    """In a pipe there are no escape codes and nothing is cut."""
    done = lowgemm("ladder", "--no-run", "-a", "sm_90")
    assert "\x1b" not in done.stdout + done.stderr
    assert "…" not in done.stdout
    assert "not measured: --no-run was given" in done.stdout
    for name in RUNG_NAMES:
        assert name in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """A closed pipe (head, less) ends the command without a traceback."""
    command = f"{sys.executable} -m lowgemm ladder --no-run -a 90 --json"
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} | head -1; {command} > /dev/full"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).resolve().parents[1],
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert "cannot be written" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
@pytest.mark.parametrize("output", ["--markdown", "--json", ""])
def test_any_terminal_can_show_it(encoding: str, output: str) -> None:
    """An ASCII terminal gets question marks, a closed one nothing, and neither a traceback."""
    command = f"{sys.executable} -m lowgemm ladder ex3 --no-run -a 90 {output}"
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} && {command} >&-"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).resolve().parents[1],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ex3" in done.stdout


def test_each_rung_and_architecture_comes_once() -> None:
    """Names are taken in any case, and a repeated name gives one row."""
    done = lowgemm("ladder", "EX3", "ex3", "-a", "sm_90", "-a", "90", "--no-run", "--json")
    assert [row["rung"] for row in json.loads(done.stdout)] == ["ex3"]
    assert "not measured" in done.stderr


def test_the_kernels_are_found_from_any_folder(tmp_path: Path) -> None:
    """The ladder works wherever it is called from."""
    assert lowgemm("ladder", "ex3", "--no-run", "-a", "90", cwd=tmp_path).returncode == 0
    assert kernel_directory().is_absolute()


@without_gpu
def test_ladder_without_a_gpu_runs_on_the_emulator() -> None:
    """Without a GPU the rungs run on the emulator: right or wrong, with counts and no times."""
    done = lowgemm("ladder", "ex7", "ex8", "-a", "sm_90", "--json")
    assert done.returncode == 0, done.stderr
    assert "no clock" in done.stderr
    for row in json.loads(done.stdout):
        assert row["correct"] is True
        assert row["problem"] == "256x256x256"
        assert row["executed_ffma_threads"] == 256**3
        assert row["executed_shared_wavefronts"] >= row["executed_shared_wavefronts_ideal"] > 0
        assert row["time_us"] is None and row["tflops"] is None


def test_verify_on_the_emulator() -> None:
    """Any architecture can be verified anywhere, at the sizes that are asked for."""
    done = lowgemm(
        "verify", "ex5", "--device", "emulator", "-a", "sm_120", "-s", "33x35x37", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert [row["result"]["passed"] for row in json.loads(done.stdout)] == [True, True]
    done = lowgemm("verify", "ex5", "--device", "emulator", "--far")
    assert done.returncode == 2 and "26 GB" in done.stderr
    done = lowgemm("verify", "ex5", "-d", "emulator", "-s", "33", "-s", "35")
    assert "2 shapes x 2 inputs on emulator of sm_90, no finding" in done.stdout


def test_columns_of_counts_are_told_apart_and_explained() -> None:
    """In a narrow terminal too no two columns have one name, and only those shown are explained."""
    done = lowgemm("ladder", "ex5", "-d", "emulator", "-a", "sm_90", "-s", "64", columns="80")
    assert "shared/ideal   global/ideal" in done.stdout
    assert "shared/ideal: passes" in done.stdout
    assert "sectors: " not in done.stdout and "hot loop: " not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


TRANSPOSE = """
__global__ void transpose(const float* in, float* out, int n) {
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    SYNC;
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}
"""
LAUNCH = "grid=2,2 block=32,32 args=f32[4096],f32[4096]:zeros,64"


def test_sass_executed_shows_counts_and_the_worst_access(tmp_path: Path) -> None:
    """A kernel of one's own runs on the emulator: its accesses, and the worst one as a picture."""
    source = tmp_path / "transpose.cu"
    source.write_text(TRANSPOSE, encoding="utf-8")
    done = lowgemm(
        "sass", str(source), "--executed", "--launch", LAUNCH, "-D", "SYNC=__syncthreads()"
    )
    assert done.returncode == 0, done.stderr
    assert "32 wavefronts, 32 words in one bank" in done.stdout
    assert "  31  F..............................." in done.stdout
    assert "transpose.cu:8" in done.stdout and "no finding" in done.stdout
    wrong = lowgemm("sass", str(source), "--executed", "--launch", LAUNCH, "-D", "SYNC=")
    assert wrong.returncode == 1
    assert "race between warps" in wrong.stdout


def test_sass_executed_as_data_and_markdown() -> None:
    """The same of a rung as JSON, an object an instruction, and as Markdown."""
    done = lowgemm("sass", "ex5", "--executed", "-s", "64x64x32", "--json")
    rows = json.loads(done.stdout)
    assert sum(row["ffma_threads"] for row in rows) == 64 * 64 * 32
    assert {"address", "text", "line", "instructions", "global_sectors"} <= set(rows[0])
    done = lowgemm("sass", "ex5", "--executed", "-s", "64x64x32", "--markdown")
    assert "| loop | instr. |" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ex5", "--executed", "--launch", LAUNCH), "follows from --size"),
        (("ex5", "--launch", LAUNCH), "go with --executed"),
        (("ex5", "--executed", "--text"), "leave out other views"),
        (("{source}", "--executed"), "such as --launch 'grid=8 block=256 args=f32["),
        (("{source}.cu", "--executed"), "cannot be read"),
        (("x.cubin", "--executed"), "no cubins"),
        (("{source}", "--executed", "--launch", LAUNCH, "-s", "64"), "--size is for rungs"),
        (("{source}", "--executed", "--launch", "grid=1"), "names no grid or no block"),
        (("{source}", "--executed", "--launch", "grid=1 block=1 args=f99[2]"), "no type is"),
        (("{source}", "--executed", "--launch", "grid=1 block=1 args=x"), "neither a number"),
        (("{source}", "--executed", "--launch", "grid=1 block=32 args=1"), "takes 3 arguments"),
    ],
)
def test_sass_executed_refuses_what_makes_no_sense(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """A launch that cannot be says what is wrong and how it is written."""
    source = tmp_path / "transpose.cu"
    source.write_text(TRANSPOSE.replace("SYNC", "__syncthreads()"), encoding="utf-8")
    done = lowgemm("sass", *(a.format(source=source) for a in arguments))
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


PAIR = """
__global__ void one(float* x) { x[threadIdx.x] = 1; }
__global__ void two(float* x, int n) { x[threadIdx.x] = n; }
"""


def test_only_chooses_among_the_kernels_of_all_files(tmp_path: Path) -> None:
    """A file without such a kernel is no error; a launch that fits not all tells of --only."""
    pair, single = tmp_path / "pair.cu", tmp_path / "single.cu"
    pair.write_text(PAIR, encoding="utf-8")
    single.write_text("__global__ void single(float* x) { *x = 1; }\n", encoding="utf-8")
    run = ["sass", str(pair), str(single), "--executed", "--launch", "grid=1 block=32 args=f32[32]"]
    done = lowgemm(*run, "--only", "one")
    assert done.returncode == 0, done.stderr
    assert "1 warp:" in done.stdout
    done = lowgemm(*run)
    assert done.returncode == 2
    assert "kernel two takes 2 arguments" in done.stderr
    assert "--only chooses one of two, one, single" in done.stderr


def test_rewrite_writes_the_cubin(tmp_path: Path) -> None:
    """What it says of a kernel as data, and a cubin that reads."""
    out = tmp_path / "ex10.cubin"
    done = lowgemm(
        "rewrite", "ex10", "-a", "sm_90", "--only", "true", "--output", str(out), "--json"
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["rewritten"] and row["after"]["cycles"] < row["before"]["cycles"]
    kernel = next(each for each in read_sass(out.read_bytes()) if each.name == row["symbol"])
    assert 16 * len(kernel.instructions) >= row["new_loop"][1]


@pytest.mark.parametrize("verb", ["rewrite", "sass"])
def test_a_cubin_for_another_architecture_is_refused(verb: str, tmp_path: Path) -> None:
    """What --arch asks for, a cubin for another cannot give."""
    path = tmp_path / "k.cubin"
    path.write_bytes(compile_rung(rung("ex5", "sm_90"), "sm_90").cubin)
    done = lowgemm(verb, str(path), "--arch", "sm_86")
    assert done.returncode == 2
    assert "is for sm_90: leave out --arch" in done.stderr


def test_rewrite_runs_both_kernels() -> None:
    """With a launch the bits of both are compared, on the emulator in strict mode at least."""
    launch = "grid=1 block=256 args=128,128,64,f32[8192],64,f32[8192],128,f32[16384]:zeros,128"
    asked = ("rewrite", "ex10", "-a", "sm_90", "--only", "true")
    done = lowgemm(*asked, "--launch", launch)
    assert done.returncode == 0, done.stderr
    assert "before" in done.stdout and "after" in done.stdout
    assert "ex10_cp_async<true>: same bits on emulator of sm_90" in done.stdout


def test_rewrite_says_why_a_loop_stays() -> None:
    """Exit status 1 where no kernel can be rewritten, 2 for a question that cannot be answered."""
    done = lowgemm("rewrite", "ex7", "-a", "sm_90", "--only", "true")
    assert done.returncode == 1
    assert "stays as it is: shared memory takes all of the loop's" in done.stdout
    done = lowgemm("rewrite", "ex10", "-a", "sm_90", "--only", "nope")
    assert done.returncode == 2 and "no kernel has 'nope' in its name" in done.stderr
    done = lowgemm("rewrite", "ex9", "ex10", "--output", "x.cubin")
    assert done.returncode == 2 and "--output takes one file" in done.stderr.replace("\n", " ")
