"""Reason codes of a run: how often each occurred, and its newest detail."""

from __future__ import annotations

from flashdrive_ros.reasons import Refusal

ReasonTable = dict[str, dict[str, int | str]]
"""Reason code to {"count": occurrences, "last": "source: detail"}, in the order of first occurrence."""


def count_reason(table: ReasonTable, refusal: Refusal) -> None:
    """Add one occurrence."""
    known = table.get(refusal.reason.value, {"count": 0})
    table[refusal.reason.value] = {"count": int(known["count"]) + 1, "last": f"{refusal.source}: {refusal.detail}"}


def reasons_line(table: ReasonTable) -> str:
    """Every code in one line; "none" for an empty table."""
    return "; ".join(f"{code} {entry['count']}, last: {entry['last']}" for code, entry in table.items()) or "none"
