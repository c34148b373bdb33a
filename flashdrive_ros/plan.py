"""Plan: what one window was turned into, in base_link at t0 and in the odometry's fixed frame."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.reasons import Refusal
from flashdrive_ros.rotations import quaternion_multiply, rotate
from flashdrive_ros.window import EgoPose


@dataclass(frozen=True)
class Waypoints:
    """One trajectory: n points, the i-th at t0 + (i+1) * 0.1 s."""

    positions_m: NDArray[np.float64]
    """[n, 3]"""
    quaternions_xyzw: NDArray[np.float64]
    """[n, 4]"""
    speeds_mps: NDArray[np.float64]
    """[n]"""
    accelerations_mps2: NDArray[np.float64]
    """[n], the acceleration that leads to the point."""
    curvatures_radpm: NDArray[np.float64]
    """[n], the path curvature that leads to the point (1/m, left positive)."""


@dataclass(frozen=True)
class ReasoningText:
    """Chain-of-Causation text of a plan."""

    text: str
    token_ids: tuple[int, ...]
    """Generated ids, without the closing cot_end and traj_future_start."""
    truncated: bool
    """True when the token budget, not the model, ended it."""


@dataclass(frozen=True)
class StageTiming:
    """Wall time of each stage of one plan, and how its reasoning was decoded."""

    preprocess_ms: float
    vision_ms: float
    prefill_ms: float
    draft_ms: float
    verify_ms: float
    action_ms: float
    total_ms: float
    verify_passes: int
    """Target passes after the prefill."""
    draft_tokens_accepted: int


@dataclass(frozen=True)
class Plan:
    """A checked plan. `trajectories[0]` is the one to drive; the others are further samples."""

    plan_id: int
    """The window_id it was planned from."""
    t0_ns: int
    trajectories: tuple[Waypoints, ...]
    """K samples in base_link at t0 (x forward, y left, z up)."""
    reasoning: ReasoningText
    ego: EgoPose
    timing: StageTiming
    warnings: tuple[Refusal, ...]
    """What a reader of the plan should know: discomfort, a route left out, a truncated reasoning."""


def in_fixed_frame(waypoints: Waypoints, ego: EgoPose) -> Waypoints:
    """Move waypoints from base_link at t0 into `ego.frame_id`.

    In float64, so that UTM-sized positions keep their millimetres.
    """
    return replace(
        waypoints,
        positions_m=ego.position_m + rotate(ego.quaternion_xyzw, waypoints.positions_m),
        quaternions_xyzw=quaternion_multiply(ego.quaternion_xyzw, waypoints.quaternions_xyzw),
    )
