"""Finding and running the toolchain."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lowgemm import toolchain
from lowgemm.compiler import compile_source
from lowgemm.errors import ToolFailedError, ToolNotFoundError, ToolTimeoutError

HEADERS = ["cuda_fp16.h", "mma.h", "cuda_pipeline.h", "cooperative_groups.h"]


def _script(directory: Path, name: str, body: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def no_nvidia(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No NVIDIA wheel or toolkit, and a PATH with one folder of the test's own."""
    monkeypatch.setattr(toolchain, "_find_nvidia_program", lambda name: None)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return tmp_path


def test_tools_and_versions() -> None:
    """cuobjdump, nvdisasm and NVRTC are found with their versions."""
    major, minor = toolchain.nvrtc_version()
    assert major >= 12
    assert toolchain.nvrtc_full_version().startswith(f"{major}.{minor}")
    assert toolchain.nvrtc_library().name.startswith("libnvrtc")
    for name in ("cuobjdump", "nvdisasm"):
        assert toolchain.find_tool(name).is_file()
        assert toolchain.tool_version(name)[0].isdigit()


def test_a_missing_tool_names_its_wheel(no_nvidia: Path) -> None:
    """A tool that is nowhere raises ToolNotFoundError, and the remedy says what to install."""
    with pytest.raises(ToolNotFoundError, match="pip install nvidia-cuda-nvdisasm"):
        toolchain.find_tool("nvdisasm")
    with pytest.raises(FileNotFoundError):
        toolchain.find_tool("no-such-tool-at-all")


def test_path_is_searched_last(no_nvidia: Path) -> None:
    """A tool in PATH is found where the wheels are not."""
    _script(no_nvidia, "nvdisasm", "echo here")
    assert toolchain.find_tool("nvdisasm") == no_nvidia / "nvdisasm"
    assert toolchain.run_tool("nvdisasm", []) == "here\n"


def test_cuobjdump_finds_nvdisasm() -> None:
    """``cuobjdump -sass`` works although nvdisasm is not in the caller's PATH."""
    build = compile_source('extern "C" __global__ void k(int* p) { p[0] = 1; }', arch=90)
    path = toolchain.cache_directory() / "k.cubin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(build.cubin)
    assert "EXIT" in toolchain.run_tool("cuobjdump", ["-sass", path])


def test_failure_and_crash(no_nvidia: Path) -> None:
    """A failing tool raises ToolFailedError with its status or signal and its last words."""
    _script(no_nvidia, "nvdisasm", "echo broken cubin >&2; exit 3")
    with pytest.raises(ToolFailedError, match=r"status 3(.|\n)*broken cubin"):
        toolchain.run_tool("nvdisasm", ["x"])
    _script(no_nvidia, "nvdisasm", "kill -SEGV $$")
    with pytest.raises(ToolFailedError, match="SIGSEGV"):
        toolchain.run_tool("nvdisasm", [])


def test_a_time_limit_ends_the_whole_group(no_nvidia: Path) -> None:
    """A tool that hangs is killed at the limit, together with what it started."""
    _script(no_nvidia, "nvdisasm", f"sleep 60 & echo $! > {no_nvidia}/pid; wait")
    start = time.monotonic()
    with pytest.raises(ToolTimeoutError, match=r"0\.5 s"):
        toolchain.run_tool("nvdisasm", [], timeout_s=0.5)
    assert time.monotonic() - start < 5
    child = int((no_nvidia / "pid").read_text())
    time.sleep(0.1)
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_a_file_that_cannot_be_started(no_nvidia: Path) -> None:
    """A tool that is no program raises ToolNotFoundError, not OSError of another kind."""
    (no_nvidia / "nvdisasm").write_bytes(b"\x7fELF nonsense")
    (no_nvidia / "nvdisasm").chmod(0o755)
    with pytest.raises(ToolNotFoundError, match="cannot be started"):
        toolchain.run_tool("nvdisasm", [])


def test_a_missing_nvrtc_names_its_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libnvrtc every question about NVRTC raises ToolNotFoundError with the wheel."""
    import cuda.pathfinder

    def absent(name: str) -> None:
        raise RuntimeError(f"lib{name} not found")

    monkeypatch.setattr(cuda.pathfinder, "load_nvidia_dynamic_lib", absent)
    toolchain._nvrtc.cache_clear()
    try:
        with pytest.raises(ToolNotFoundError, match="pip install nvidia-cuda-nvrtc"):
            toolchain.nvrtc_version()
    finally:
        toolchain._nvrtc.cache_clear()


def test_importing_loads_no_bindings() -> None:
    """Importing the toolchain, the readers and the compiler loads no CUDA binding and no numpy."""
    code = (
        "import sys, lowgemm.toolchain, lowgemm.binary.cubin\n"
        "assert not {'cuda.bindings', 'elftools', 'itanium_demangler'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


@pytest.mark.parametrize("header", HEADERS)
def test_cuda_headers_need_no_toolkit(header: str) -> None:
    """CUDA's own headers are found with nothing but the wheels, and nothing need be said."""
    build = compile_source(
        f'#include <{header}>\nextern "C" __global__ void k(int* p) {{ p[0] = 1; }}', arch=90
    )
    assert any(option.startswith("-I") for option in build.options)


def test_headers_are_unpacked_once_and_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes may unpack at once, and a folder with files missing is made whole."""
    if toolchain.nvrtc_version() < (13, 3):
        pytest.skip("this NVRTC brings no headers")
    environment = dict(os.environ, LOWGEMM_CACHE_DIR=str(tmp_path))
    code = "from lowgemm import toolchain; print(toolchain.cuda_include_dirs()[0])"
    root = Path(__file__).parents[1]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment, cwd=root, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    told = [process.communicate()[0].decode().strip() for process in both]
    assert told[0] == told[1]
    header = Path(told[0]) / "cuda_fp16.h"
    assert header.is_file()
    assert [p.name for p in (tmp_path / "headers").iterdir()] == [header.parent.name]
    header.unlink()
    monkeypatch.setenv("LOWGEMM_CACHE_DIR", str(tmp_path))
    toolchain.cuda_include_dirs()
    assert header.is_file()


def test_headers_come_back_while_the_process_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is deleted, or a header that is emptied, is repaired at the next compilation."""
    if toolchain.nvrtc_version() < (13, 3):
        pytest.skip("this NVRTC brings no headers")
    monkeypatch.setenv("LOWGEMM_CACHE_DIR", str(tmp_path / "cache"))
    text = "#include <cuda_fp16.h>\n__global__ void k(__half* p) { p[0] = 1; }"
    assert compile_source(text, arch=90, cache=None).kernels
    shutil.rmtree(tmp_path / "cache")
    assert compile_source(text, arch=90, cache=None).kernels
    header = toolchain.cuda_include_dirs()[0] / "cuda_fp16.h"
    size = header.stat().st_size
    header.write_bytes(b"")
    toolchain.cuda_include_dirs()
    assert header.stat().st_size == size > 0


def test_headers_without_a_cache_live_in_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the cache cannot be written, the headers are unpacked once for the process."""
    if toolchain.nvrtc_version() < (13, 3):
        pytest.skip("this NVRTC brings no headers")
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setenv("LOWGEMM_CACHE_DIR", str(tmp_path / "file"))
    first = toolchain.cuda_include_dirs()
    assert (first[0] / "cuda_fp16.h").is_file()
    assert toolchain.cuda_include_dirs() == first
    shutil.rmtree(first[0])
    assert (toolchain.cuda_include_dirs()[0] / "cuda_fp16.h").is_file()


def test_installed_headers_include_the_compilers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before NVRTC 13.3 the directories of runtime, CCCL and compiler are taken, each once."""
    import cuda.pathfinder

    from lowgemm import toolchain

    places = {"cudart": tmp_path / "a", "cccl": tmp_path / "b", "nvcc": tmp_path / "a"}
    monkeypatch.setattr(
        cuda.pathfinder, "find_nvidia_header_directory", lambda name: str(places[name])
    )
    monkeypatch.setattr(toolchain, "nvrtc_version", lambda: (13, 0))
    assert toolchain.cuda_include_dirs() == (tmp_path / "a", tmp_path / "b")
