"""Write ``sass_reports/lab/``: an index and a page an experiment, from the committed measurements.

``python scripts/lab_pages.py`` writes; ``--check`` only says which page would change and fails if
any would.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lowgemm.report.lab import LabReport, read_lab_report
from lowgemm.studies.lab import EXPERIMENTS
from lowgemm.view.lab import lab_index, lab_page

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "sass_reports" / "lab"
GPU = "h200"


def pages() -> dict[Path, str]:
    """Every page with its text."""
    reports: list[LabReport] = []
    waiting = []
    for experiment in EXPERIMENTS:
        path = FOLDER / "data" / f"{GPU}_{experiment.name}.json"
        if path.is_file():
            reports.append(read_lab_report(path))
        else:
            waiting.append(experiment)
    texts = {FOLDER / "README.md": lab_index(reports, waiting)}
    for report in reports:
        name = report.result.experiment
        note = (FOLDER / "notes" / f"{name}.md").read_text(encoding="utf-8")
        texts[FOLDER / f"{name}.md"] = lab_page(report, note)
    return texts


def main() -> int:
    """Write what changed, or with ``--check`` report it."""
    stale = []
    for path, text in pages().items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"not up to date: {', '.join(stale)}; run make lab-pages", file=sys.stderr)
        return 1
    if stale:
        print(f"wrote {', '.join(stale)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
