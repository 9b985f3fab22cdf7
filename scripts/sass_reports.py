"""Write ``sass_reports/``: an index and a page a rung on what the compiler made of the ladder.

``python scripts/sass_reports.py`` writes; ``--check`` only says which page would change and fails
if any would. Only pages whose text changes are written.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from page_files import ROOT, update

from lowgemm.analysis import SassReport
from lowgemm.compiler.store import Store
from lowgemm.gemm import Rung, compile_rung, ladder
from lowgemm.hardware import gpu_record
from lowgemm.report import LadderReport, read_report
from lowgemm.studies.execution import execute_rung
from lowgemm.studies.inspection import inspect_ladder
from lowgemm.studies.ladder import EMULATED_PROBLEM, CompiledRung, compile_ladder
from lowgemm.studies.questions import QUESTIONS, answer
from lowgemm.studies.questions.answer import Subject
from lowgemm.studies.rewriting import hot_loop_cost
from lowgemm.toolchain import cache_directory
from lowgemm.view.executed import executed_markdown
from lowgemm.view.pages import index_page, rung_page
from lowgemm.view.questions import questions_page
from lowgemm.view.rewriting import costs_markdown

FOLDER = ROOT / "sass_reports"
ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
STORY_ARCH = "sm_90"
STORY_GPU = "h200"


def pages() -> dict[Path, str]:
    """Every page with its text."""
    compiled = compile_ladder(ARCHS)
    reports: dict[str, dict[str, SassReport]] = {}
    for (name, arch), report in inspect_ladder(compiled).items():
        reports.setdefault(name, {})[arch] = report
    rungs = ladder(STORY_ARCH)
    measured = timings()
    texts = {FOLDER / "index.md": index_page(reports, rungs, compiled[0].build.nvrtc_version)}
    subject = Subject(gpu_record(STORY_GPU))
    answers = [answer(number, subject.gpu, subject) for number in QUESTIONS]
    texts[FOLDER / "questions.md"] = questions_page(answers, compiled[0].build.nvrtc_version)
    # The emulator is Python: a process a core. They start afresh, as compiling left threads here.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        executions = tuple(pool.map(executed, [rung.name for rung in rungs]))
    for index, rung in enumerate(rungs):
        # The two-ideas kernel is a ladder of its own: it is set beside the naive kernel.
        earlier = rungs[0] if rung.name == "two_ideas" else rungs[index - 1] if index else None
        before = (earlier, reports[earlier.name][STORY_ARCH]) if earlier else None
        note = (FOLDER / "notes" / f"{rung.name}.md").read_text(encoding="utf-8")
        texts[FOLDER / f"{rung.name}.md"] = rung_page(
            rung, reports[rung.name], before, measured, note, executions[index],
            rewriting(compiled, rung, before[0], reports) if before and rung.is_rewritten else "",
        )  # fmt: skip
    return texts


def rewriting(
    compiled: Sequence[CompiledRung],
    rung: Rung,
    before: Rung,
    reports: Mapping[str, Mapping[str, SassReport]],
) -> str:
    """The cost of a rewritten rung's loop beside that of the rung whose source it shares."""
    items = {(item.rung.name, str(item.arch)): item for item in compiled}
    costs = {}
    for arch in ARCHS:
        old, new = (
            hot_loop_cost(items[name, arch], reports[name][arch])
            for name in (before.name, rung.name)
        )
        costs[arch] = (old, new if items[rung.name, arch].is_rewritten else None)
    return costs_markdown(costs)


def executed(name: str) -> str:
    """What the emulator counted of a rung: kept, as long as the code and the emulator are these."""
    rung = next(each for each in ladder(STORY_ARCH) if each.name == name)
    build = compile_rung(rung, STORY_ARCH)
    digest = hashlib.sha256(build.cubin + str(EMULATED_PROBLEM).encode())
    for package in ("emulator", "isa", "binary", "analysis", "view", "studies"):
        for path in sorted((ROOT / "lowgemm" / package).glob("**/*.py")):
            digest.update(path.read_bytes())
    store, key = Store(cache_directory() / "executed", "md"), digest.hexdigest()
    kept = store.load(key)
    if kept is None:
        kept = executed_markdown(execute_rung(rung, STORY_ARCH)).encode()
        store.save(key, kept)
    return kept.decode()


def timings() -> dict[str, LadderReport]:
    """The measured ladders by their files' names."""
    files = sorted((FOLDER / "timings").glob("*ladder*.json"))
    return {path.name: read_report(path) for path in files}


if __name__ == "__main__":
    sys.exit(update(pages(), "make sass"))
