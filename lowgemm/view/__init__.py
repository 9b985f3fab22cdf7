"""Records to text, Markdown and JSON; no arithmetic beyond units."""

from lowgemm.view.ladder import ladder_markdown, ladder_view
from lowgemm.view.tables import builds_table, doctor_view, verdict_table

__all__ = ["builds_table", "doctor_view", "ladder_markdown", "ladder_view", "verdict_table"]
