"""Plans on disk: one JSON line each, and the node's outputs as a bag. Neither holds a time of day or a duration."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flashdrive_ros.bags.message_types import message_store
from flashdrive_ros.bags.write import NewTopic, create_bag
from flashdrive_ros.errors import ParameterError
from flashdrive_ros.plan import Plan, Waypoints, in_fixed_frame
from flashdrive_ros.plan_messages import candidates_in_fixed_frame, reasoning_message, trajectory_in_base_link
from flashdrive_ros.ros.topics import CANDIDATES, NODE_NAME, REASONING, TRAJECTORY, TRAJECTORY_BASE_LINK

BASE_FRAME = "base_link"
PLANS_FILE = "plans.jsonl"
OUTPUT_BAG = "outputs.mcap-bag"
TRAJECTORY_TYPE = NewTopic("flashdrive_ros/msg/Trajectory")
IN_BASE_LINK = TRAJECTORY_BASE_LINK.public.replace("~", f"/{NODE_NAME}", 1)
TOPICS = {
    TRAJECTORY.public: TRAJECTORY_TYPE,
    REASONING.public: NewTopic("flashdrive_ros/msg/Reasoning"),
    CANDIDATES.public: NewTopic("flashdrive_ros/msg/Candidates"),
    IN_BASE_LINK: TRAJECTORY_TYPE,
}

WritePlan = Callable[[Plan, bytes], None]
"""A plan and its line of `plan_line`."""


def plan_line(plan: Plan) -> bytes:
    """One line of plans.jsonl: the same plan gives the same bytes, float64 values read back exactly."""
    record = {
        "plan_id": plan.plan_id,
        "t0_ns": plan.t0_ns,
        "odometry_frame": plan.ego.frame_id,
        "reasoning": {
            "text": plan.reasoning.text,
            "token_ids": list(plan.reasoning.token_ids),
            "truncated": plan.reasoning.truncated,
        },
        "warnings": [
            {"reason": warning.reason.value, "source": warning.source, "detail": warning.detail}
            for warning in plan.warnings
        ],
        "samples": [_sample(waypoints, plan) for waypoints in plan.trajectories],
    }
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"


@contextmanager
def plan_files(folder: Path | None) -> Iterator[WritePlan]:
    """Write plans into `folder`, or nowhere for None. Both files appear whole, at the end, or not at all.

    Raises ParameterError when `folder` cannot be written, BagError or ParameterError when either file exists.
    """
    if folder is None:
        yield lambda plan, line: None
        return
    plans, unfinished = folder / PLANS_FILE, folder / f".{PLANS_FILE}.part"
    if plans.exists():
        raise ParameterError(f"{plans}: exists already; choose another --out or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = unfinished.open("wb")
    except OSError as error:
        raise ParameterError(f"--out {folder}: cannot be written: {error.strerror}") from error
    types = message_store().types
    try:
        with stream, create_bag(folder / OUTPUT_BAG, TOPICS) as write:

            def write_plan(plan: Plan, line: bytes) -> None:
                stream.write(line)
                candidates = candidates_in_fixed_frame(types, plan)
                write(TRAJECTORY.public, plan.t0_ns, candidates.trajectories[0])
                write(REASONING.public, plan.t0_ns, reasoning_message(types, plan, BASE_FRAME))
                write(CANDIDATES.public, plan.t0_ns, candidates)
                write(IN_BASE_LINK, plan.t0_ns, trajectory_in_base_link(types, plan, BASE_FRAME))

            yield write_plan
        unfinished.rename(plans)
    finally:
        unfinished.unlink(missing_ok=True)


def _sample(waypoints: Waypoints, plan: Plan) -> dict[str, Any]:
    """One trajectory. Speeds, accelerations and curvatures are the same in both frames."""
    fixed = in_fixed_frame(waypoints, plan.ego)
    return {
        BASE_FRAME: {
            "positions_m": waypoints.positions_m.tolist(),
            "quaternions_xyzw": waypoints.quaternions_xyzw.tolist(),
        },
        "odometry": {
            "positions_m": fixed.positions_m.tolist(),
            "quaternions_xyzw": fixed.quaternions_xyzw.tolist(),
        },
        "speeds_mps": waypoints.speeds_mps.tolist(),
        "accelerations_mps2": waypoints.accelerations_mps2.tolist(),
        "curvatures_radpm": waypoints.curvatures_radpm.tolist(),
    }
