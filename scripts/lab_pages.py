"""Write ``sass_reports/lab/``: an index and a page an experiment, from the committed measurements.

``python scripts/lab_pages.py`` writes; ``--check`` only says which page would change and fails if
any would.
"""

from __future__ import annotations

import sys
from pathlib import Path

from page_files import ROOT, update

from lowgemm.report.lab import LabReport, read_lab_report
from lowgemm.studies.lab import EXPERIMENTS
from lowgemm.view.lab import lab_index, lab_page

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


if __name__ == "__main__":
    sys.exit(update(pages(), "make lab-pages"))
