"""Counts of reason codes, and which occurrences are worth a log line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from flashdrive_ros.reasons import Reason, ReasonCounts, Refusal

REPEAT_LOG_S = 10.0
"""A code that goes on is logged again this often, with its count."""


@dataclass(frozen=True)
class ReasonSnapshot:
    """Counts and newest occurrence by code."""

    counts: ReasonCounts
    last: dict[Reason, Refusal]

    @staticmethod
    def empty() -> ReasonSnapshot:
        """Nothing occurred."""
        return ReasonSnapshot(ReasonCounts(), {})


class ReasonLog:
    """Thread-safe counter of refusals; calls `log` for the first of each code and source, then at most every 10 s."""

    def __init__(self, log: Callable[[str], object], now_s: Callable[[], float]) -> None:
        self._log = log
        self._now_s = now_s
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget everything, at activation."""
        with self._lock:
            self._counts: ReasonCounts = ReasonCounts()
            self._last: dict[Reason, Refusal] = {}
            self._logged_s: dict[tuple[Reason, str], float] = {}

    def record(self, refusal: Refusal) -> None:
        """Count one occurrence and log it when it is new or was not logged for a while."""
        key = (refusal.reason, refusal.source)
        with self._lock:
            self._counts[refusal.reason] += 1
            self._last[refusal.reason] = refusal
            count = self._counts[refusal.reason]
            now_s = self._now_s()
            is_due = now_s - self._logged_s.get(key, -REPEAT_LOG_S) >= REPEAT_LOG_S
            if is_due:
                self._logged_s[key] = now_s
        if is_due:
            self._log(f"{refusal} (count {count})")

    def snapshot(self) -> ReasonSnapshot:
        """A copy for publishing."""
        with self._lock:
            return ReasonSnapshot(ReasonCounts(self._counts), dict(self._last))
