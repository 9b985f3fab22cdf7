"""The documents say what is true: commands exist, code runs, tables are those measured."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from lowgemm.gemm import RUNG_NAMES
from lowgemm.report import read_report

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (
    "README.md",
    "README.zh-CN.md",
    "CONTRIBUTING.md",
    "sass_reports/README.md",
    "sass_reports/sgemm.md",
)
LANGUAGES = ("README.md", "README.zh-CN.md")
TIMINGS = sorted((ROOT / "sass_reports" / "timings").glob("*ladder*.json"))

pytestmark = pytest.mark.skipif(
    not (ROOT / "README.md").is_file(), reason="the documents are not beside the tests"
)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_generated_parts_are_up_to_date() -> None:
    """Tables and code between marks equal what their files give."""
    done = subprocess.run(
        [sys.executable, "scripts/tables.py", "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_make_target_named_exists(document: str) -> None:
    """`make NAME` in a document is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    text = text_of(document)
    named = set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE))
    named |= set(re.findall(r"`make ([a-z-]+)`", text))
    assert named <= targets


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_named_exists(document: str) -> None:
    """`lowgemm VERB` in a document is a command, with the options that are shown."""
    fences = re.findall(r"```(\w*)\n(.*?)```", text_of(document), re.DOTALL)
    blocks = "\n".join(body for language, body in fences if not language)
    inline = "\n".join(re.findall(r"`(lowgemm [^`\n]*)`", text_of(document)))
    # Of the verbs, model has further ones.
    calls = r"^lowgemm ((?:model )?[a-z]+)(.*)$"
    for verb, rest in re.findall(calls, f"{blocks}\n{inline}", re.MULTILINE):
        told = help_of(verb)
        for option in re.findall(r"(--[a-z-]+)", rest):
            assert option in told, (verb, option)


@functools.cache
def help_of(verb: str) -> str:
    """What a command says of itself."""
    done = subprocess.run(
        [sys.executable, "-m", "lowgemm", *verb.split(), "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, verb
    return done.stdout


def test_the_readme_code_runs() -> None:
    """The README's Python runs as it stands, with or without a GPU."""
    blocks = re.findall(r"```python\n(.*?)```", text_of("README.md"), re.DOTALL)
    assert blocks
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = ("registers=", "race between warps", "largest error")
        assert any(text in done.stdout for text in told)


@pytest.mark.parametrize("path", TIMINGS, ids=lambda p: p.stem)
def test_the_committed_timings_are_whole(path: Path) -> None:
    """Each rung of a timings file is right and has rate, ratio and provenance."""
    report = read_report(path)
    where = report.provenance
    assert where is not None
    assert where.gpu and where.driver and where.clock_mhz and where.cublas_correct
    measured = [row.rung for row in report.rows]
    assert measured == [name for name in RUNG_NAMES if name in measured]
    for row in report.rows:
        assert row.correct
        assert row.tflops is not None and row.ratio_to_cublas is not None


def test_relative_links_lead_somewhere() -> None:
    """Every relative link of a document is a file."""
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text_of(document)):
            assert ((ROOT / document).parent / target).exists(), (document, target)


def outside_fences(name: str) -> str:
    return re.sub(r"^```.*?^```$", "", text_of(name), flags=re.DOTALL | re.MULTILINE)


def plain_blocks(name: str) -> list[str]:
    """Fenced blocks without a language, without the comments behind `#`."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text_of(name), re.DOTALL | re.MULTILINE)
    return [re.sub(r"[ \t]+#.*", "", body) for language, body in fences if not language]


def code_spans(name: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", outside_fences(name)))


def heading_levels(name: str) -> list[str]:
    return re.findall(r"^(#+) ", outside_fences(name), re.MULTILINE)


def table_numbers(name: str) -> list[list[str]]:
    """The numbers of every row of every table."""
    rows = re.findall(r"^\|.*\|$", outside_fences(name), re.MULTILINE)
    return [re.findall(r"\d+(?:\.\d+)?", row) for row in rows]


def link_targets(name: str) -> list[str]:
    """Where its links lead, without those to the other languages."""
    targets = re.findall(r"\]\(([^)]+)\)", outside_fences(name))
    return [target for target in targets if target not in LANGUAGES]


def generated_marks(name: str) -> list[str]:
    return re.findall(r"<!-- .*? -->", text_of(name))


@pytest.mark.parametrize(
    "part",
    [plain_blocks, code_spans, heading_levels, table_numbers, link_targets, generated_marks],
    ids=lambda part: part.__name__,
)
def test_the_readmes_are_in_step(part: Callable[[str], Collection[object]]) -> None:
    """Commands, code, headings, tables and links of the README are the same in each language."""
    english, chinese = (part(name) for name in LANGUAGES)
    assert english
    assert chinese == english


def test_the_readmes_lead_to_each_other() -> None:
    """The first link of each README is the other one."""
    for name, other in zip(LANGUAGES, reversed(LANGUAGES), strict=True):
        first = re.search(r"\]\(([^)]+)\)", text_of(name))
        assert first is not None
        assert first[1] == other
