"""One odometry sample, and what is refused in it by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.reasons import InputRefused, Reason

MAX_ABS_M = 1e8
"""Larger than any map frame on Earth (ECEF 6.4e6 m, UTM northing 1e7 m); beyond it float64 loses the micrometres."""
MAX_NORM_ERROR = 0.01


@dataclass(frozen=True)
class OdometrySample:
    """Pose of `child_frame_id` in `frame_id` at one stamp, float64."""

    stamp_ns: int
    frame_id: str
    child_frame_id: str
    position_m: NDArray[np.float64]
    """[3]"""
    quaternion_xyzw: NDArray[np.float64]
    """[4]"""
    linear_mps: NDArray[np.float64]
    """[3], in the child frame when the publisher follows nav_msgs/Odometry."""


def checked_sample(sample: OdometrySample, source: str) -> OdometrySample:
    """The sample with a unit quaternion.

    Raises InputRefused: ODOMETRY_FRAME for an empty frame_id, ODOMETRY_NOT_FINITE for NaN, infinity or a position or
    speed beyond 1e8, ODOMETRY_QUATERNION for a norm more than 1 % from 1 (a nearer one is normalised).
    """
    if not sample.frame_id:
        raise InputRefused(Reason.ODOMETRY_FRAME, source, "frame_id is empty; expected the fixed frame's name")
    for name, values in (("position", sample.position_m), ("velocity", sample.linear_mps)):
        # The comparison is false for NaN too; on three numbers plain floats are faster than numpy.
        if not all(abs(value) <= MAX_ABS_M for value in values.tolist()):
            detail = f"{name} {_numbers(values)}: every value must be finite and at most {MAX_ABS_M:g}"
            raise InputRefused(Reason.ODOMETRY_NOT_FINITE, source, detail)
    norm = math.hypot(*sample.quaternion_xyzw.tolist())
    if not all(map(math.isfinite, sample.quaternion_xyzw.tolist())):
        detail = f"quaternion {_numbers(sample.quaternion_xyzw)} is not finite"
        raise InputRefused(Reason.ODOMETRY_NOT_FINITE, source, detail)
    if not abs(norm - 1.0) <= MAX_NORM_ERROR:
        detail = f"quaternion norm {norm:.6g}, expected 1 within {MAX_NORM_ERROR:g}"
        raise InputRefused(Reason.ODOMETRY_QUATERNION, source, detail)
    return replace(sample, quaternion_xyzw=sample.quaternion_xyzw / norm)


def _numbers(values: NDArray[np.float64]) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in values) + ")"
