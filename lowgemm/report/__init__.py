"""Join static and measured records into one, each number with where it came from."""

from lowgemm.report.ladder import join_ladder, provenance_of
from lowgemm.report.plain import plain
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
    "plain",
    "provenance_of",
    "read_report",
    "write_report",
]
