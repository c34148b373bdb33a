"""The ego history of a window: odometry interpolated to a fixed grid that ends at t0, in float64.

A window at t0 is made from the samples that bracket t0 - 1.5 s ... t0 and from no others, so that it does not matter
how much newer odometry has arrived. Two kinds of sample are refused only until a second one confirms them, because one
bad message must not cost the history while a real change must not stop planning for good: another frame
(ODOMETRY_FRAME) and a step no car can make (ODOMETRY_JUMP). Once confirmed, a new segment starts; no history crosses
segments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.intake.measured_speed import measured_speed
from flashdrive_ros.intake.odometry import OdometrySample
from flashdrive_ros.reasons import Reason, Refusal
from flashdrive_ros.rotations import rotation_matrix, slerp
from flashdrive_ros.window import EgoHistory, EgoPose

MAX_STEP_MPS = 100.0
"""Faster than any road car."""
MAX_STEP_SLACK_M = 0.25
"""Localisation corrections and stamps microseconds apart are not jumps."""
MAX_SAMPLES = 4000
KEPT_NS = 4_000_000_000


@dataclass(frozen=True)
class EgoHistorySettings:
    """Grid of the history and what is tolerated in the odometry under it."""

    steps: int = 16
    stride_ns: int = 100_000_000
    gap_ns: int = 200_000_000

    @property
    def span_ns(self) -> int:
        """From the oldest history pose to t0."""
        return (self.steps - 1) * self.stride_ns


@dataclass(frozen=True)
class EgoWindow:
    """Pose and history at t0, and whether the twist was of use."""

    pose: EgoPose
    history: EgoHistory
    twist_warning: Refusal | None
    """ODOMETRY_TWIST when the speed is from poses because the twist is not in the child frame."""


class EgoHistoryBuffer:
    """The last 4 s of odometry, at most 4000 samples (1 kHz)."""

    def __init__(self, settings: EgoHistorySettings, source: str = "odometry") -> None:
        self._settings = settings
        self._source = source
        self.clear()

    def clear(self) -> None:
        """Forget everything, for instance after a backward time jump."""
        self._samples: list[OdometrySample] = []
        self._stamps: list[int] = []
        self._segment_starts: list[int] = []
        """Segment k is the samples with stamps from start k up to start k + 1."""
        self._unconfirmed: OdometrySample | None = None

    @property
    def newest_ns(self) -> int | None:
        """Stamp of the newest sample that may be used."""
        return self._stamps[-1] if self._stamps else None

    def add(self, sample: OdometrySample) -> Refusal | None:
        """Store one sample that `checked_sample` passed, or say why not (repeated or earlier stamp, frame, jump)."""
        if self._stamps and sample.stamp_ns <= self._stamps[-1]:
            early_ns = self._stamps[-1] - sample.stamp_ns
            reason = Reason.STAMP_BACKWARD if early_ns else Reason.STAMP_REPEATED
            return Refusal(reason, self._source, f"{early_ns / 1e9:.3f} s before the newest sample")
        refusal = self._discontinuity(self._samples[-1], sample) if self._samples else None
        if refusal is not None:
            before = self._unconfirmed
            if before is None or before.stamp_ns >= sample.stamp_ns or self._discontinuity(before, sample):
                self._unconfirmed = sample
                return refusal
            self._store(before)
            self._segment_starts.append(before.stamp_ns)
        elif not self._samples:
            self._segment_starts.append(sample.stamp_ns)
        self._unconfirmed = None
        self._store(sample)
        return None

    def window(self, t0_ns: int) -> EgoWindow | Refusal:
        """Pose, history and speed at t0; needs a sample at or after t0 (nothing is extrapolated).

        Refused: HISTORY_SHORT when odometry does not reach from t0 - 1.5 s to t0, HISTORY_GAP for a hole of more than
        0.2 s in between.
        """
        after = bisect_left(self._stamps, t0_ns)
        if after == len(self._stamps):
            newest = f"newest {(t0_ns - self._stamps[-1]) / 1e9:.3f} s before" if self._stamps else "none at all"
            detail = f"no odometry at or after t0 ({newest}); {self._amounts(t0_ns)}"
            return Refusal(Reason.HISTORY_SHORT, self._source, detail)
        oldest_ns = t0_ns - self._settings.span_ns
        before = bisect_right(self._stamps, oldest_ns) - 1
        if before < 0 or self._segment_start(self._stamps[after]) > self._stamps[before]:
            return Refusal(Reason.HISTORY_SHORT, self._source, self._amounts(t0_ns))
        samples = self._samples[before : after + 1]
        stamps = self._stamps[before : after + 1]
        for earlier, later in pairwise(stamps):
            if later - earlier > self._settings.gap_ns:
                detail = (
                    f"no odometry for {(later - earlier) / 1e9:.3f} s from t0 {(earlier - t0_ns) / 1e9:+.3f} s "
                    f"to t0 {(later - t0_ns) / 1e9:+.3f} s, at most {self._settings.gap_ns / 1e9:g} s"
                )
                return Refusal(Reason.HISTORY_GAP, self._source, detail)
        return self._interpolated(samples, stamps, t0_ns)

    def _interpolated(self, samples: list[OdometrySample], stamps: list[int], t0_ns: int) -> EgoWindow:
        settings = self._settings
        grid = [t0_ns - (settings.steps - 1 - k) * settings.stride_ns for k in range(settings.steps)]
        poses = [_pose_at(samples, stamps, stamp) for stamp in grid]
        positions = np.stack([position for position, _ in poses])
        quaternions = np.stack([quaternion for _, quaternion in poses])
        matrices = rotation_matrix(quaternions)
        # Differences first: with UTM coordinates (5e6 m) the rotation then only sees metres.
        relative = (positions - positions[-1]) @ matrices[-1]
        rotations = np.swapaxes(matrices[-1:], -1, -2) @ matrices
        rotations[-1] = np.eye(3)
        history = EgoHistory(relative, rotations)
        speed, warning = measured_speed(history, samples, stamps, grid, self._source)
        pose = EgoPose(samples[-1].frame_id, positions[-1], quaternions[-1], speed)
        return EgoWindow(pose, history, warning)

    def _store(self, sample: OdometrySample) -> None:
        self._samples.append(sample)
        self._stamps.append(sample.stamp_ns)
        old = max(bisect_left(self._stamps, sample.stamp_ns - KEPT_NS), len(self._stamps) - MAX_SAMPLES)
        if old > 0:
            del self._samples[:old], self._stamps[:old]
            current = bisect_right(self._segment_starts, self._stamps[0]) - 1
            del self._segment_starts[: max(current, 0)]

    def _segment_start(self, stamp_ns: int) -> int:
        return self._segment_starts[bisect_right(self._segment_starts, stamp_ns) - 1]

    def _amounts(self, t0_ns: int) -> str:
        """How much history there is before t0 in the segment that reaches furthest, and how much is needed."""
        have_ns = 0
        if self._stamps:
            last_ns = self._stamps[min(bisect_left(self._stamps, t0_ns), len(self._stamps) - 1)]
            start_ns = max(self._segment_start(last_ns), self._stamps[0])
            have_ns = max(0, min(t0_ns, last_ns) - start_ns)
        return f"have {have_ns / 1e9:.3f} s, need {self._settings.span_ns / 1e9:.3f} s"

    def _discontinuity(self, before: OdometrySample, sample: OdometrySample) -> Refusal | None:
        """Why `sample` cannot be the same car in the same frames as the earlier sample `before`."""
        frames = (before.frame_id, before.child_frame_id)
        if (sample.frame_id, sample.child_frame_id) != frames:
            detail = f"frames '{sample.frame_id}' -> '{sample.child_frame_id}', were '{frames[0]}' -> '{frames[1]}'"
            return Refusal(Reason.ODOMETRY_FRAME, self._source, detail)
        step_m = float(np.linalg.norm(sample.position_m - before.position_m))
        step_s = (sample.stamp_ns - before.stamp_ns) / 1e9
        if step_m > MAX_STEP_MPS * step_s + MAX_STEP_SLACK_M:
            detail = f"{step_m:.2f} m in {step_s:.3f} s, at most {MAX_STEP_MPS:g} m/s and {MAX_STEP_SLACK_M} m"
            return Refusal(Reason.ODOMETRY_JUMP, self._source, detail)
        return None


def _pose_at(
    samples: list[OdometrySample], stamps: list[int], stamp_ns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Position [3] and quaternion [4] at a stamp inside the samples."""
    after = bisect_left(stamps, stamp_ns)
    if stamps[after] == stamp_ns:
        return samples[after].position_m, samples[after].quaternion_xyzw
    left, right = samples[after - 1], samples[after]
    fraction = (stamp_ns - left.stamp_ns) / (right.stamp_ns - left.stamp_ns)
    position = left.position_m + fraction * (right.position_m - left.position_m)
    return position, slerp(left.quaternion_xyzw, right.quaternion_xyzw, fraction)
