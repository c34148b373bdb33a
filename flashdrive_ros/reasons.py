"""Reason codes: why an input was refused or a plan was not published.

A code is a short constant string. It is counted, logged once per state change, and visible in
`~/status`, `/diagnostics`, `flashdrive replay` and the demo table.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Every reason code there is."""

    # images
    IMAGE_LAYOUT = "image_layout"  # width, height, step and data length do not fit together
    IMAGE_ENCODING = "image_encoding"  # an encoding that is not a driving camera's
    IMAGE_UNDECODABLE = "image_undecodable"  # compressed bytes that do not decode to a whole picture
    # time and synchronisation
    STAMP_ZERO = "stamp_zero"
    STAMP_REPEATED = "stamp_repeated"
    STAMP_BACKWARD = "stamp_backward"  # a backward jump: a bag loop or a clock reset
    CAMERA_MISSING = "camera_missing"  # a camera has no frame for the window
    CAMERA_SPREAD = "camera_spread"  # a camera's nearest frame is further away than the tolerance
    WINDOW_SUPERSEDED = "window_superseded"  # a newer complete window was there before this one was planned
    # odometry
    ODOMETRY_NOT_FINITE = "odometry_not_finite"
    ODOMETRY_QUATERNION = "odometry_quaternion"  # norm too far from 1
    ODOMETRY_JUMP = "odometry_jump"  # a step no car can make
    ODOMETRY_FRAME = "odometry_frame"  # frame_id changed or is empty
    ODOMETRY_TWIST = "odometry_twist"  # the twist is not in the child frame: speed taken from poses (a warning)
    HISTORY_SHORT = "history_short"  # odometry does not cover the ego history yet
    HISTORY_GAP = "history_gap"  # a hole of more than the limit inside the ego history
    # stream and plan
    STREAM_FILLING = "stream_filling"  # cold start: fewer than the needed frames so far
    STREAM_GAP = "stream_gap"  # windows too far apart: the stream was reset
    ROUTE_TOO_LONG = "route_too_long"  # the route text does not fit; planned without it
    REASONING_TRUNCATED = "reasoning_truncated"  # the token budget ended the reasoning
    PLAN_NOT_FINITE = "plan_not_finite"
    PLAN_SHAPE = "plan_shape"
    PLAN_START = "plan_start"  # the first waypoint is not where the ego will be
    PLAN_SPEED = "plan_speed"
    PLAN_CURVATURE = "plan_curvature"
    DEADLINE_MISSED = "deadline_missed"
    INPUT_STALE = "input_stale"  # a camera or the odometry stopped
    INTAKE_FAILED = "intake_failed"  # an unexpected exception while a message was taken in
    PLANNER_FAILED = "planner_failed"  # an unexpected exception in the planning thread


@dataclass(frozen=True)
class Refusal:
    """One input refused or one plan not given: the code, what it came from, and the numbers."""

    reason: Reason
    source: str
    """Topic, camera or stage that it concerns."""
    detail: str
    """Value found, value expected."""

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.source}: {self.detail}"


class InputRefused(Exception):
    """Raised by the intake functions for one bad message; carries the `Refusal` to count."""

    def __init__(self, reason: Reason, source: str, detail: str) -> None:
        self.refusal = Refusal(reason, source, detail)
        super().__init__(str(self.refusal))


ReasonCounts = Counter[Reason]
