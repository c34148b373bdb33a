"""The forward speed at t0: from the twist where it follows nav_msgs/Odometry, else from the poses.

nav_msgs/Odometry gives the twist in `child_frame_id`. Public drivers also publish it in the world frame, or leave it at
zero, or name no child frame. The poses tell: over each step of the history they give a velocity in the car's own frame,
and the twist is believed when the median difference over the history is small. The median lets single corrections of a
localisation pass.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.intake.odometry import OdometrySample
from flashdrive_ros.reasons import Reason, Refusal
from flashdrive_ros.window import EgoHistory

TWIST_TOLERANCE_MPS = 0.5
TWIST_TOLERANCE_RATIO = 0.1
FIT_POINTS = 6


def measured_speed(
    history: EgoHistory, samples: list[OdometrySample], stamps: list[int], grid_ns: list[int], source: str
) -> tuple[float, Refusal | None]:
    """Forward speed in m/s at the last grid stamp, and the ODOMETRY_TWIST warning when it had to come from the poses.

    `samples` (with `stamps`) bracket the history's `grid_ns`.
    """
    stride_s = (grid_ns[1] - grid_ns[0]) / 1e9
    child, fixed = samples[-1].child_frame_id, samples[-1].frame_id
    if child in ("", fixed):
        detail = f"child_frame_id '{child}' names no body frame (frame_id '{fixed}'): speed from poses"
        return _speed_from_poses(history, stride_s), Refusal(Reason.ODOMETRY_TWIST, source, detail)
    # Velocity of each history step in the body frame half way, horizontal components.
    steps = np.diff(history.positions_m, axis=0)[:, None, :] / stride_s
    headings = history.rotations[:-1] + history.rotations[1:]
    headings /= np.maximum(np.linalg.norm(headings, axis=1, keepdims=True), 1e-9)
    from_poses = (steps @ headings)[:, 0, :2]
    origin = grid_ns[-1]
    times_s = np.array([stamp - origin for stamp in stamps]) / 1e9
    grid_s = np.array([stamp - origin for stamp in grid_ns]) / 1e9
    linear = np.stack([sample.linear_mps for sample in samples])
    half_way_s = (grid_s[1:] + grid_s[:-1]) / 2
    from_twist = np.stack([np.interp(half_way_s, times_s, linear[:, axis]) for axis in (0, 1)], axis=-1)
    difference = float(np.median(np.linalg.norm(from_twist - from_poses, axis=1)))
    speed = float(np.median(np.linalg.norm(from_poses, axis=1)))
    allowed = TWIST_TOLERANCE_MPS + TWIST_TOLERANCE_RATIO * speed
    if difference <= allowed:
        return float(np.interp(0.0, times_s, linear[:, 0])), None
    detail = (
        f"twist differs from the poses' velocity by {difference:.2f} m/s (at most {allowed:.2f}) at {speed:.2f} m/s; "
        f"is it in '{fixed}' instead of '{child}'? Speed from poses"
    )
    return _speed_from_poses(history, stride_s), Refusal(Reason.ODOMETRY_TWIST, source, detail)


def _speed_from_poses(history: EgoHistory, stride_s: float) -> float:
    """Slope at t0 of the parabola fitted to the last half second along the car's x axis."""
    forward = history.positions_m[-FIT_POINTS:, 0]
    return float(_end_slope_weights(len(forward)) @ forward) / stride_s


def _end_slope_weights(points: int) -> NDArray[np.float64]:
    """[points]: weights of samples at -(points - 1) ... 0 that give the slope at 0 of their least-squares parabola."""
    steps = np.arange(1 - points, 1, dtype=np.float64)
    weights: NDArray[np.float64] = np.linalg.pinv(np.stack([np.ones(points), steps, steps**2], axis=-1))[1]
    return weights
