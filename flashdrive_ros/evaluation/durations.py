"""Wall times of many plans in a few numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

import numpy as np

from flashdrive_ros.plan import StageTiming

STAGES = ("preprocess", "vision", "prefill", "draft", "verify", "action", "total")


class Durations(TypedDict):
    """Milliseconds over `n` measurements; percentiles are interpolated linearly."""

    n: int
    median_ms: float
    p90_ms: float
    p99_ms: float


def durations(values_ms: Sequence[float]) -> Durations:
    """Summarise at least one measurement."""
    median, p90, p99 = (round(float(value), 3) for value in np.percentile(np.asarray(values_ms), [50, 90, 99]))
    return Durations(n=len(values_ms), median_ms=median, p90_ms=p90, p99_ms=p99)


def stage_durations(timings: Iterable[StageTiming]) -> dict[str, Durations]:
    """Per stage, for stages that ran at all; `verify_pass` is the time of one pass, from plans that made any."""
    timings = list(timings)
    values = {stage: [getattr(timing, f"{stage}_ms") for timing in timings] for stage in STAGES}
    values["verify_pass"] = [timing.verify_ms / timing.verify_passes for timing in timings if timing.verify_passes > 0]
    return {stage: durations(measured) for stage, measured in values.items() if any(measured)}


def durations_line(stages: Mapping[str, Durations]) -> str:
    """Medians in one line, the whole plan first."""
    parts = ", ".join(f"{stage} {numbers['median_ms']:.1f}" for stage, numbers in stages.items() if stage != "total")
    total = stages["total"]
    return f"plan latency: median {total['median_ms']:.1f} ms, p99 {total['p99_ms']:.1f} ms (medians: {parts})"
