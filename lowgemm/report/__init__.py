"""Join static and measured records into one, each number with where it came from."""

from lowgemm.report.ladder import join_ladder, provenance_of
from lowgemm.report.records import (
    LadderReport,
    LadderRow,
    Provenance,
    by_architecture,
    read_report,
    write_report,
)

__all__ = [
    "LadderReport",
    "LadderRow",
    "Provenance",
    "by_architecture",
    "join_ladder",
    "provenance_of",
    "read_report",
    "write_report",
]
