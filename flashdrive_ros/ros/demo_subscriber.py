"""Third process of `flashdrive demo`: collects what the node publishes, tells it line by line, draws the last plan.

Writes one JSON object a line on standard output: {"event": "ready"} when the node is active and every topic is matched,
{"event": "plan", ...} for each plan, {"event": "done", ...} at the end, which it finds itself: the images have stopped;
or {"event": "failed", "detail": ...} when the node says that it cannot start.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from nav_msgs.msg import Odometry
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage

from flashdrive_ros.cameras import BY_NAME
from flashdrive_ros.evaluation.plan_picture import draw_plan
from flashdrive_ros.intake.messages import image_from_message, odometry_from_message, stamp_ns
from flashdrive_ros.intake.settings import IntakeSettings
from flashdrive_ros.intake.window_builder import Intake
from flashdrive_ros.msg import PlannerStatus, Reasoning, StageTiming, Trajectory
from flashdrive_ros.plan import Plan, ReasoningText, Waypoints
from flashdrive_ros.plan import StageTiming as PlanTiming
from flashdrive_ros.reasons import InputRefused
from flashdrive_ros.ros import qos, topics
from flashdrive_ros.window import PlanningWindow

CAMERA_NAMES = ("cross_left", "front_wide", "cross_right", "front_tele")
REFERENCE = "front_wide"
SILENCE_S = 2.0
"""The recording has ended when no image has come for this long."""
KEPT_IMAGES = 200
"""Per camera: several seconds, for a planner that is far behind on a busy machine."""
KEPT_ODOMETRY = 1000


@dataclass
class Collected:
    """Everything heard so far; plans by plan_id."""

    images: dict[str, deque[Any]] = field(
        default_factory=lambda: {name: deque(maxlen=KEPT_IMAGES) for name in CAMERA_NAMES}
    )
    odometry: deque[Any] = field(default_factory=lambda: deque(maxlen=KEPT_ODOMETRY))
    trajectories: dict[int, Trajectory] = field(default_factory=dict)
    reasonings: dict[int, Reasoning] = field(default_factory=dict)
    timings: dict[int, StageTiming] = field(default_factory=dict)
    arrivals_s: dict[int, float] = field(default_factory=dict)
    """Steady time at which a reference image came, by stamp."""
    told: list[dict[str, Any]] = field(default_factory=list)
    """The plan events already written."""
    status: PlannerStatus = field(default_factory=PlannerStatus)
    reasons_told: dict[str, int] = field(default_factory=dict)
    last_image_s: float | None = None


def main() -> int:
    """Collect until the images stop; exit status 0 also without a plan, 1 when the node cannot start."""
    parser = argparse.ArgumentParser(prog="demo_subscriber")
    parser.add_argument("picture", type=Path, help="PNG to write the last plan to")
    picture = parser.parse_args().picture
    rclpy.init()
    try:
        node = rclpy.create_node("flashdrive_demo")
        collected = Collected()
        _subscribe(node, collected)
        if not _collect(node, collected):
            _tell({"event": "failed", "detail": collected.status.waiting_detail})
            return 1
    except (KeyboardInterrupt, ExternalShutdownException):
        return 130
    finally:
        rclpy.try_shutdown()
    drawn = draw_last_plan(collected, picture)
    _tell({"event": "done", "plans": len(collected.told), "reasons": _reason_counts(collected.status), "drawn": drawn})
    return 0


def _subscribe(node: Node, collected: Collected) -> None:
    for name in CAMERA_NAMES:
        node.create_subscription(
            CompressedImage,
            topics.image_topic(name, "compressed").public,
            lambda message, name=name: _on_image(collected, name, message),
            qos.image_qos("compressed"),
        )
    node.create_subscription(
        Odometry, topics.ODOMETRY.public, lambda message: collected.odometry.append(message), qos.odometry_qos()
    )
    by_plan = (
        (Trajectory, topics.TRAJECTORY_BASE_LINK, collected.trajectories),
        (Reasoning, topics.REASONING, collected.reasonings),
        (StageTiming, topics.STAGE_TIMING, collected.timings),
    )
    for message_type, topic, store in by_plan:
        node.create_subscription(
            message_type,
            _seen_from_outside(topic),
            lambda message, store=store: _on_part_of_plan(collected, store, message),
            qos.report_qos(),
        )
    node.create_subscription(
        PlannerStatus,
        _seen_from_outside(topics.STATUS),
        lambda message: _on_status(collected, message),
        qos.report_qos(),
    )


def _collect(node: Node, collected: Collected) -> bool:
    """Listen until the images stop; False when the node failed before the first one."""
    outputs = [
        _seen_from_outside(topic)
        for topic in (topics.TRAJECTORY_BASE_LINK, topics.REASONING, topics.STAGE_TIMING, topics.STATUS)
    ]
    is_ready = False
    while collected.last_image_s is None or time.monotonic() - collected.last_image_s < SILENCE_S:
        rclpy.spin_once(node, timeout_sec=0.1)
        if not is_ready and collected.status.state == PlannerStatus.STATE_ERROR:
            return False
        active = collected.status.state in (PlannerStatus.STATE_WAITING, PlannerStatus.STATE_PLANNING)
        if not is_ready and active and all(node.count_publishers(topic) > 0 for topic in outputs):
            is_ready = True
            _tell({"event": "ready"})
    return True


def _on_image(collected: Collected, camera: str, message: Any) -> None:
    now_s = time.monotonic()
    collected.images[camera].append(message)
    collected.last_image_s = now_s
    if camera == REFERENCE:
        collected.arrivals_s[stamp_ns(message.header)] = now_s


def _on_status(collected: Collected, message: PlannerStatus) -> None:
    # A stale status tells of the recording's end, or is followed by one that has its counts as well.
    if message.state != PlannerStatus.STATE_STALE:
        collected.status = message


def _on_part_of_plan(collected: Collected, store: dict[int, Any], message: Any) -> None:
    store[message.plan_id] = message
    plan_id = message.plan_id
    parts = (collected.trajectories, collected.reasonings, collected.timings)
    if not all(plan_id in part for part in parts):
        return
    trajectory, reasoning, timing = (part[plan_id] for part in parts)
    t0_ns = stamp_ns(trajectory.header)
    arrived_s = collected.arrivals_s.get(t0_ns)
    end = trajectory.points[-1]
    counts = _reason_counts(collected.status)
    event = {
        "event": "plan",
        "plan_id": plan_id,
        "t0_ns": t0_ns,
        "latency_ms": None if arrived_s is None else (time.monotonic() - arrived_s) * 1e3,
        "planning_ms": timing.total_ms,
        "points": len(trajectory.points),
        "end_x_m": end.pose.position.x,
        "end_y_m": end.pose.position.y,
        "end_speed_mps": end.speed_mps,
        "reasoning": reasoning.text,
        "reasons": sorted(code for code, count in counts.items() if count > collected.reasons_told.get(code, 0)),
    }
    collected.reasons_told = counts
    collected.told.append(event)
    _tell(event)


def draw_last_plan(collected: Collected, picture: Path) -> bool:
    """Draw the newest plan whose window can be put together from the images heard here; False when there is none."""
    windows = {window.t0_ns: window for window in _windows(collected)}
    for event in reversed(collected.told):
        window = windows.get(event["t0_ns"])
        if window is not None:
            plan = _plan(collected, event["plan_id"], window)
            draw_plan(picture, window, plan, BY_NAME[REFERENCE].index)
            return True
    return False


def _windows(collected: Collected) -> list[PlanningWindow]:
    """The planning windows of the newest images, by the node's own rules."""
    intake = Intake(IntakeSettings(cameras=tuple(sorted(BY_NAME[name].index for name in CAMERA_NAMES))))
    arrivals = [(stamp_ns(message.header), "", message) for message in collected.odometry]
    arrivals += [(stamp_ns(m.header), name, m) for name, kept in collected.images.items() for m in kept]
    windows = []
    for stamp, camera, message in sorted(arrivals, key=lambda arrival: arrival[:2]):
        try:
            if camera:
                intake.add_image(BY_NAME[camera].index, stamp, image_from_message(message, camera))
            else:
                intake.add_odometry(odometry_from_message(message, "odometry"))
        except InputRefused:
            continue
        windows += [outcome for outcome in intake.poll() if isinstance(outcome, PlanningWindow)]
    return windows


def _plan(collected: Collected, plan_id: int, window: PlanningWindow) -> Plan:
    """A plan as it was before it became messages."""
    points = collected.trajectories[plan_id].points
    reasoning, timing = collected.reasonings[plan_id], collected.timings[plan_id]
    positions = [point.pose.position for point in points]
    orientations = [point.pose.orientation for point in points]
    waypoints = Waypoints(
        positions_m=np.array([(p.x, p.y, p.z) for p in positions]),
        quaternions_xyzw=np.array([(q.x, q.y, q.z, q.w) for q in orientations]),
        speeds_mps=np.array([point.speed_mps for point in points]),
        accelerations_mps2=np.array([point.acceleration_mps2 for point in points]),
        curvatures_radpm=np.array([point.curvature_radpm for point in points]),
    )
    return Plan(
        plan_id=plan_id,
        t0_ns=window.t0_ns,
        trajectories=(waypoints,),
        reasoning=ReasoningText(reasoning.text, (), reasoning.truncated),
        ego=window.ego,
        timing=PlanTiming(
            timing.preprocess_ms,
            timing.vision_ms,
            timing.prefill_ms,
            timing.draft_ms,
            timing.verify_ms,
            timing.action_ms,
            timing.total_ms,
            timing.verify_passes,
            timing.draft_tokens_accepted,
        ),
        warnings=(),
    )


def _reason_counts(status: PlannerStatus) -> dict[str, int]:
    return {reason.code: reason.count for reason in status.reasons}


def _seen_from_outside(topic: topics.Topic) -> str:
    return topic.public.replace("~", f"/{topics.NODE_NAME}")


def _tell(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    sys.exit(main())
