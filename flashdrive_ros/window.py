"""PlanningWindow: everything one plan is made from, complete and from one instant t0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class CameraFrame:
    """One decoded camera picture."""

    camera: int
    """Alpamayo camera index (0 cross left, 1 front wide, 2 cross right, ..., 6 front tele)."""
    stamp_ns: int
    pixels: NDArray[np.uint8]
    """[height, width, 3], RGB, sensor orientation."""


@dataclass(frozen=True)
class EgoPose:
    """The measured pose of base_link in the odometry's fixed frame at t0, float64."""

    frame_id: str
    position_m: NDArray[np.float64]
    """[3]"""
    quaternion_xyzw: NDArray[np.float64]
    """[4], unit norm."""
    speed_mps: float
    """Forward speed measured at t0."""


@dataclass(frozen=True)
class EgoHistory:
    """Ego poses at t0 - (n-1) * 0.1 s ... t0, expressed in base_link at t0 (x forward, y left, z up), float64."""

    positions_m: NDArray[np.float64]
    """[n, 3]; the last row is 0."""
    rotations: NDArray[np.float64]
    """[n, 3, 3]; the last is the identity."""


@dataclass(frozen=True)
class PlanningWindow:
    """One immutable snapshot: the newest frame of every camera at t0, the ego history at t0, the route text."""

    window_id: int
    """Counts windows from 0 since the intake started; unique in a run."""
    t0_ns: int
    """Stamp of the reference camera's frame; the stamp of every output planned from this window."""
    frames: tuple[CameraFrame, ...]
    """Ascending camera index, one per configured camera."""
    ego: EgoPose
    history: EgoHistory
    route_text: str
    """Empty when no route is set."""
    spread_ns: int
    """Largest |frame stamp - t0| of this window's cameras."""
