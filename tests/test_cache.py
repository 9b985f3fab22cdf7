"""The compile cache: never stale, never in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from lowgemm.compiler import Build, Cache, compile_file, compile_source
from lowgemm.compiler.cache import CachedOutput
from lowgemm.compiler.nvrtc import Program, run_program
from lowgemm.compiler.sources import find_headers
from lowgemm.compiler.store import Store
from lowgemm.errors import CompilationError, OutputError

ROOT = Path(__file__).parents[1]
KERNEL = 'extern "C" __global__ void k(int* p) { p[0] = VALUE; }\n'


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A source that includes "a.h", which includes <b.h> from inc2."""
    for name in ("src", "inc1", "inc2"):
        (tmp_path / name).mkdir()
    (tmp_path / "src" / "k.cu").write_text('#include "a.h"\n' + KERNEL)
    (tmp_path / "src" / "a.h").write_text("#include <b.h>\n")
    (tmp_path / "inc2" / "b.h").write_text("#define VALUE 1111\n")
    return tmp_path


def _compile(folder: Path, cache: Cache) -> Build:
    include = [folder / "inc1", folder / "inc2"]
    return compile_file(folder / "src" / "k.cu", arch=90, include_dirs=include, cache=cache)


def _entries(cache: Cache) -> list[Path]:
    return sorted(cache.directory.glob("*.build"))


def test_the_second_compilation_comes_from_the_cache(folder: Path, cache: Cache) -> None:
    """Compiling the same again gives an equal build from the cache."""
    first, second = _compile(folder, cache), _compile(folder, cache)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert first == second


def test_an_edited_header_is_seen(folder: Path, cache: Cache) -> None:
    """A header reached through another header counts with its content, not its date."""
    header = folder / "inc2" / "b.h"
    status = header.stat()
    assert "1111" in _compile(folder, cache).ptx
    header.write_text("#define VALUE 2222\n")
    os.utime(header, ns=(status.st_atime_ns, status.st_mtime_ns))
    build = _compile(folder, cache)
    assert not build.from_cache
    assert "2222" in build.ptx


@pytest.mark.parametrize("place", ["inc1/b.h", "src/b.h"])
def test_a_new_header_that_shadows_another_is_seen(folder: Path, cache: Cache, place: str) -> None:
    """A header that appears earlier on the include path takes effect at once."""
    _compile(folder, cache)
    (folder / place).write_text("#define VALUE 3333\n")
    build = _compile(folder, cache)
    assert ("3333" in build.ptx) == (place == "inc1/b.h")  # <b.h> is not looked for beside a.h
    (folder / place).unlink()
    assert "1111" in _compile(folder, cache).ptx


def test_a_header_asked_for_by_has_include_is_seen(tmp_path: Path, cache: Cache) -> None:
    """A header that ``__has_include`` did not find counts as soon as it is there."""
    text = '#if __has_include("opt.h")\n#include "opt.h"\n#else\n#define VALUE 4\n#endif\n' + KERNEL
    name = str(tmp_path / "k.cu")
    compile_source(text, name=name, arch=90, cache=cache)
    assert compile_source(text, name=name, arch=90, cache=cache).from_cache
    (tmp_path / "opt.h").write_text("#define VALUE 5555\n")
    assert "5555" in compile_source(text, name=name, arch=90, cache=cache).ptx


@pytest.mark.parametrize(
    ("opening", "defines"),
    [
        ('#define H "v.h"\n#include H\n', {}),
        ("#define G H\n#define H <v.h>\n#include G\n", {}),
        ("#include H\n", {"H": "<v.h>"}),
        ("/* a\n*/ # /* b */ include /* c */ <v.h>\n", {}),
        ("%:include <v.h>\n", {}),
        ("#inc\\\nlude <v.h>\n", {}),
        ('#if 1\n\t#\tinclude\t"v.h"\n#endif\n', {}),
    ],
)
def test_headers_named_in_other_ways_are_seen(
    tmp_path: Path, cache: Cache, opening: str, defines: dict[str, str]
) -> None:
    """Headers named through macros, comments, digraphs and spliced lines count as others do."""

    def build() -> Build:
        return compile_source(
            opening + KERNEL,
            name=str(tmp_path / "k.cu"),
            arch=90,
            defines=defines,
            include_dirs=[tmp_path],
            cache=cache,
        )

    header = tmp_path / "v.h"
    header.write_text("#define VALUE 6666\n")
    assert "6666" in build().ptx
    assert build().from_cache
    header.write_text("#define VALUE 7777\n")
    assert "7777" in build().ptx


def test_headers_that_include_each_other_end(tmp_path: Path, cache: Cache) -> None:
    """Headers in a circle through ``..`` and through links are followed once each."""
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    (tmp_path / "x" / "a.h").write_text('#pragma once\n#include "../y/b.h"\n')
    (tmp_path / "y" / "b.h").write_text('#pragma once\n#include "../x/a.h"\n#include "c.h"\n')
    (tmp_path / "real.h").write_text('#include "value.h"\n')
    (tmp_path / "y" / "c.h").symlink_to(tmp_path / "real.h")
    for value in ("1234", "2345"):
        (tmp_path / "y" / "value.h").write_text(f"#define VALUE {value}\n")
        (tmp_path / "value.h").write_text(f"#define VALUE {value}\n")
        build = compile_source(
            '#include "x/a.h"\n' + KERNEL, name=str(tmp_path / "k.cu"), arch=90, cache=cache
        )
        assert value in build.ptx


@pytest.mark.parametrize(
    "opening",
    [
        "#define STR(x) #x\n#define H(x) STR(x.h)\n#include H(v)\n",
        "#define v v\n#define H <v.h>\n#include H\n",
        "#define VALUE 1\n__device__ const char* when = __TIME__;\n#include <v.h>\n",
    ],
)
def test_what_cannot_be_known_is_not_cached(tmp_path: Path, cache: Cache, opening: str) -> None:
    """A header whose name cannot be told, and a source that asks the clock, are compiled anew."""
    (tmp_path / "v.h").write_text("#undef VALUE\n#define VALUE 1\n")
    for _ in range(2):
        build = compile_source(
            opening + KERNEL, arch=90, include_dirs=[tmp_path], cache=cache, options=("-w",)
        )
        assert not build.from_cache
    assert _entries(cache) == []


def test_everything_that_matters_is_in_the_key(folder: Path, cache: Cache) -> None:
    """Another architecture, option, define, order or file gives another entry."""
    text = "template <int N> __global__ void k(int* p) { p[0] = N; }\n"
    variants: list[dict[str, object]] = [
        {},
        {"arch": 80},
        {"options": ("--use_fast_math",)},
        {"defines": {"A": 1}},
        {"defines": {"A": 2}},
        {"line_info": False},
        {"name": "other.cu"},
        {"name_expressions": ("k<2>",)},
        {"include_dirs": (folder,)},
        {"text": text + "\n"},
    ]
    base: dict[str, object] = {"text": text, "arch": 90, "name_expressions": ("k<1>",)}
    for variant in variants:
        build = compile_source(**{**base, **variant}, cache=cache)  # type: ignore[arg-type]
        assert not build.from_cache, variant
    assert len(_entries(cache)) == len(variants)


def test_a_header_that_changes_meanwhile_is_not_stored(
    folder: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header edited between the scan and the compiler's reading it leaves no wrong entry."""

    def slow(program: Program) -> CachedOutput:
        (folder / "inc2" / "b.h").write_text("#define VALUE 8888\n")
        return run_program(program)

    monkeypatch.setattr("lowgemm.compiler.compile.run_program", slow)
    _compile(folder, cache)
    assert _entries(cache) == []


@pytest.mark.parametrize("damage", ["empty", "cut", "cut early", "flipped", "swapped", "text"])
def test_a_damaged_entry_is_replaced(folder: Path, cache: Cache, damage: str) -> None:
    """A truncated, altered or misplaced entry counts as none and is written again."""
    good = _compile(folder, cache)
    (entry,) = _entries(cache)
    sound = entry.read_bytes()
    damaged = {
        "empty": b"",
        "cut": sound[:-1],
        "cut early": sound[:30],
        "flipped": sound[:-200] + bytes([sound[-200] ^ 1]) + sound[-199:],
        "swapped": b"",
        "text": b"not an entry",
    }[damage]
    if damage == "swapped":
        compile_source(KERNEL, arch=90, defines={"VALUE": 9}, cache=cache)
        other = next(path for path in _entries(cache) if path != entry)
        damaged = other.read_bytes()
    entry.write_bytes(damaged)
    again = _compile(folder, cache)
    assert not again.from_cache
    assert again == good
    assert _compile(folder, cache).from_cache


def test_every_flipped_byte_is_noticed(cache: Cache) -> None:
    """No single altered byte gets past the checksum."""
    cache.store("key", CachedOutput(b"cubin" * 20, "ptx", "log", (("k<1>", "_Z1k"),)))
    entry = cache.directory / "key.build"
    sound = entry.read_bytes()
    assert cache.load("key") is not None
    for index in range(len(sound)):
        entry.write_bytes(sound[:index] + bytes([sound[index] ^ 0x10]) + sound[index + 1 :])
        assert cache.load("key") is None, index


CHILD = """
import sys
from lowgemm.compiler import Cache, compile_file
build = compile_file(sys.argv[1], arch=90, cache=Cache(sys.argv[2]), defines={"VALUE": 77})
print(build.from_cache, "77" in build.ptx, len(build.kernels))
"""


def test_two_processes_at_once(tmp_path: Path, cache: Cache) -> None:
    """Processes that compile the same at the same time all get the right build."""
    source = tmp_path / "k.cu"
    source.write_text(KERNEL)
    command = [sys.executable, "-c", CHILD, str(source), str(cache.directory)]
    running = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in running:
        out, err = process.communicate()
        assert process.returncode == 0, err.decode()
        assert out.decode().split()[1:] == ["True", "1"]
    assert len(_entries(cache)) == 1
    assert compile_file(source, arch=90, cache=cache, defines={"VALUE": 77}).from_cache


WRITER = """
import sys
from lowgemm.compiler.cache import Cache, CachedOutput
cache = Cache(sys.argv[1])
number = 0
print("ready", flush=True)
while True:
    text = str(number % 5) * 200_000
    cache.store(f"key{number % 5}", CachedOutput(text.encode(), text, text, ()))
    number += 1
"""


def test_a_killed_writer_leaves_a_usable_cache(cache: Cache) -> None:
    """Killed at any moment of writing, a process leaves whole entries or none."""
    for delay_s in (0.0, 0.003, 0.007, 0.02, 0.05):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(cache.directory)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(delay_s)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        for path in _entries(cache):
            output = cache.load(path.stem)
            assert output is not None
            assert output.ptx == path.stem[-1] * 200_000
    assert _entries(cache)


def test_abandoned_files_and_old_entries_go(tmp_path: Path) -> None:
    """The cache stays within its size: least recently used entries go, as do leftovers."""
    cache = Cache(tmp_path, max_bytes=5000)
    leftover = tmp_path / ".writing-old"
    leftover.write_bytes(b"x")
    foreign = tmp_path / "notes.txt"
    foreign.write_text("mine")
    os.utime(leftover, (1, 1))
    for number in range(6):
        cache.store(f"k{number}", CachedOutput(b"c" * 1000, "", "", ()))
        os.utime(tmp_path / f"k{number}.build", (1000 + number, 1000 + number))
        cache.load("k0")
    names = {path.name for path in tmp_path.iterdir()}
    assert "k0.build" in names  # used all the time
    assert "k1.build" not in names
    assert "k5.build" in names
    assert leftover.name not in names
    assert foreign.exists()
    cache.clear()
    assert _entries(cache) == []


def test_a_cache_that_cannot_be_written_warns_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no entry can be written, compiling works, with one warning."""
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setattr(Store, "_warned", False)
    cache = Cache(tmp_path / "file" / "cache")
    with pytest.warns(RuntimeWarning, match="LOWGEMM_CACHE_DIR"):
        compile_source(KERNEL, arch=90, defines={"VALUE": 1}, cache=cache)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_source(KERNEL, arch=90, defines={"VALUE": 1}, cache=cache).kernels


def test_the_environment_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LOWGEMM_CACHE_DIR moves the cache and LOWGEMM_CACHE=0 switches it off."""
    monkeypatch.setenv("LOWGEMM_CACHE_DIR", str(tmp_path))
    default = Cache.default()
    assert default is not None
    assert default.directory == tmp_path / "builds"
    compile_source(KERNEL, arch=90, defines={"VALUE": 1})
    assert len(_entries(default)) == 1
    assert compile_source(KERNEL, arch=90, defines={"VALUE": 1}).from_cache
    monkeypatch.setenv("LOWGEMM_CACHE", "0")
    assert Cache.default() is None
    assert not compile_source(KERNEL, arch=90, defines={"VALUE": 1}).from_cache


def test_cuda_headers_do_not_keep_a_build_from_the_cache(cache: Cache) -> None:
    """A source with CUDA's own headers is cached like any other."""
    text = "#include <cuda_fp16.h>\n#include <cooperative_groups.h>\n" + KERNEL
    for expected in (False, True):
        build = compile_source(text, arch=90, defines={"VALUE": 1}, cache=cache)
        assert build.from_cache is expected


PROBED = "\n#define VALUE 7777\n#else\n#define VALUE 8888\n#endif\n"


@pytest.mark.parametrize(
    ("opening", "defines"),
    [
        ('#if defined(__has_include) && __has_include("a.h")', {}),
        ('#if __has_include("z.h") || __has_include("a.h")', {}),
        ('#if __has_include("a).h") || __has_include /* \n */ ("a.h")', {}),
        ('#define HI(x) __has_include(x)\n#if HI("a.h")', {}),
        ('#define HI(x) /*\n*/ __has_include(x)\n#define x "z.h"\n#if HI("a.h")', {}),
        ("#if __has_include(H)", {"H": '"a.h"'}),
        ("#if HAS", {"HAS": '__has_include("a.h")'}),
        ('#define P(x) __has_##x\n#if P(include)("a.h")', {}),
        ('#define P_(x, y) x##y\n#define P(x, y) P_(x, y)\n#if P(__has_, include)("a.h")', {}),
        (
            '#define P_(x, y) x##y\n#define P(x, y) P_(x, y)\n#if P(H, include)("a.h")',
            {"H": "__has_"},
        ),
    ],
)
def test_every_probe_for_a_header_is_seen(
    tmp_path: Path, cache: Cache, opening: str, defines: dict[str, str]
) -> None:
    """However a source asks whether a header is there, a build from the cache has the answer."""
    text, name = opening + PROBED + KERNEL, str(tmp_path / "k.cu")
    for content, expected in ((None, "8888"), ("", "7777")):
        if content is not None:
            (tmp_path / "a.h").write_text(content)
        build = compile_source(text, name=name, arch=90, defines=defines, cache=cache)
        assert expected in build.ptx


@pytest.mark.parametrize(
    "option",
    [
        "-I {}",
        " -I{}",
        "-I{} ",
        "-I\t{}",
        '-D H="{}/v.h"',
        ' -DH="{}/v.h"',
        " --pre-include={}/v.h",
    ],
)
def test_blanks_around_options_hide_nothing(tmp_path: Path, cache: Cache, option: str) -> None:
    """An option with blanks around it or its value is read as NVRTC reads it: never stale."""
    text = "#ifdef H\n#include H\n#elif !defined VALUE\n#include <v.h>\n#endif\n" + KERNEL
    for value in ("6666", "7777"):
        (tmp_path / "v.h").write_text(f"#define VALUE {value}\n")
        build = compile_source(text, arch=90, options=(option.format(tmp_path),), cache=cache)
        assert value in build.ptx


@pytest.mark.parametrize(
    "opening", ['#include\r"v.h"\n', "#\rinclude <v.h>\n", '#define\rH\r"v.h"\n#include H\n']
)
def test_carriage_returns_are_blanks_too(tmp_path: Path, cache: Cache, opening: str) -> None:
    """A lone carriage return inside a directive, a blank to NVRTC, hides no header."""
    source = tmp_path / "k.cu"
    source.write_bytes((opening + KERNEL).encode())
    for value in ("6666", "7777"):
        (tmp_path / "v.h").write_text(f"#define VALUE {value}\n")
        build = compile_file(source, arch=90, include_dirs=[tmp_path], cache=cache)
        assert value in build.ptx


@pytest.mark.parametrize(
    "when", ["P(__TI##ME__)", "P(__, TIME, __)", "P(__DA, TE__)", "P(__TIME, STAMP__)"]
)
def test_a_clock_put_together_is_not_cached(cache: Cache, when: str) -> None:
    """A source that pastes the clock's name together is compiled anew each time."""
    paste = "#define Q(x, y, z) x##y##z\n#define P(...) Q(__VA_ARGS__, , )\n"
    if "##" in when:
        paste = "#define P(x) x\n#define NOW __TI##ME__\n"
    if when.count(",") == 2:
        paste = "#define P(x, y, z) x##y##z\n"
    unused = f"#define UNUSED {when}\n#define VALUE 1\n"
    for _ in range(2):
        assert not compile_source(paste + unused + KERNEL, arch=90, cache=cache).from_cache


def test_an_odd_file_does_not_break_the_scan(tmp_path: Path, cache: Cache) -> None:
    """A header that names a file with a NUL is refused by the compiler, in its words."""
    (tmp_path / "n.h").write_bytes(b'#if 0\n#include "a\0b/c.h"\n#endif\n')
    text = '#include "n.h"\n' + KERNEL
    with pytest.raises(CompilationError, match="invalid character"):
        compile_source(text, name=str(tmp_path / "k.cu"), arch=90, cache=cache)


@pytest.mark.parametrize(
    "text",
    [
        b"/*\n" * 20000 + b"*/",
        b"#/*\n" * 20000 + b"*/",
        b"#/*\n" + b"#/**//*\n" * 20000,
        b"__has_include /*\n" * 20000 + b"*/",
        b"".join(
            b"#define A%d A%d\n#define A%d B%d\n#define B%d A%d\n" % (i, i + 1, i, i + 1, i, i + 1)
            for i in range(1000)
        )
        + b"#include A0\n",
    ],
)
def test_scanning_takes_linear_time(text: bytes) -> None:
    """No text keeps the search for headers busy."""
    start = time.perf_counter()
    find_headers(text, "/nowhere/k.cu", (), {})
    assert time.perf_counter() - start < 3


def test_a_directory_among_the_entries_stays(cache: Cache) -> None:
    """Clearing deletes entries, and passes over a directory that is named like one."""
    compile_source(KERNEL, arch=90, defines={"VALUE": 1}, cache=cache)
    odd = cache.directory / "odd.build"
    odd.mkdir()
    cache.clear()
    assert _entries(cache) == [odd]


def test_an_entry_that_cannot_be_deleted_is_told(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clearing a cache that may not be written raises OutputError with its path."""
    compile_source(KERNEL, arch=90, defines={"VALUE": 1}, cache=cache)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OutputError, match="cannot be emptied"):
        cache.clear()


def test_warnings_as_errors_do_not_lose_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where warnings are errors, an unwritable cache is logged and the build returned."""
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setattr(Store, "_warned", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = Cache(tmp_path / "file" / "cache")
        assert compile_source(KERNEL, arch=90, defines={"VALUE": 1}, cache=cache).kernels
    assert "LOWGEMM_CACHE_DIR" in caplog.text
