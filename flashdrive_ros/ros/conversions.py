"""Plans as ROS messages. Every stamp is t0, the stamp of the images the plan was made from."""

from __future__ import annotations

from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion
from nav_msgs.msg import Path
from std_msgs.msg import Header

from flashdrive_ros import plan_messages
from flashdrive_ros.msg import Candidates, Reasoning, StageTiming, Trajectory, TrajectoryPoint
from flashdrive_ros.plan import Plan
from flashdrive_ros.plan_messages import MessageTypes

TYPES: MessageTypes = {
    "builtin_interfaces/msg/Duration": Duration,
    "builtin_interfaces/msg/Time": Time,
    "flashdrive_ros/msg/Candidates": Candidates,
    "flashdrive_ros/msg/Reasoning": Reasoning,
    "flashdrive_ros/msg/Trajectory": Trajectory,
    "flashdrive_ros/msg/TrajectoryPoint": TrajectoryPoint,
    "geometry_msgs/msg/Point": Point,
    "geometry_msgs/msg/Pose": Pose,
    "geometry_msgs/msg/Quaternion": Quaternion,
    "std_msgs/msg/Header": Header,
}


def header(stamp_ns: int, frame_id: str) -> Header:
    """A header."""
    return plan_messages.header(TYPES, stamp_ns, frame_id)


def trajectory_in_base_link(plan: Plan, base_frame: str) -> Trajectory:
    """The plan to drive, in base_link at t0."""
    return plan_messages.trajectory_in_base_link(TYPES, plan, base_frame)


def candidates_in_fixed_frame(plan: Plan) -> Candidates:
    """All samples of a plan in the odometry's fixed frame; the first is the one to drive."""
    return plan_messages.candidates_in_fixed_frame(TYPES, plan)


def reasoning_message(plan: Plan, base_frame: str) -> Reasoning:
    """The text of a plan."""
    return plan_messages.reasoning_message(TYPES, plan, base_frame)


def path_message(trajectory: Trajectory) -> Path:
    """A trajectory without its times, for tools that draw paths."""
    return Path(
        header=trajectory.header,
        poses=[PoseStamped(header=trajectory.header, pose=point.pose) for point in trajectory.points],
    )


def stage_timing_message(plan: Plan, base_frame: str) -> StageTiming:
    """Wall times of a plan's stages."""
    timing = plan.timing
    return StageTiming(
        header=header(plan.t0_ns, base_frame),
        plan_id=plan.plan_id,
        preprocess_ms=timing.preprocess_ms,
        vision_ms=timing.vision_ms,
        prefill_ms=timing.prefill_ms,
        draft_ms=timing.draft_ms,
        verify_ms=timing.verify_ms,
        action_ms=timing.action_ms,
        total_ms=timing.total_ms,
        verify_passes=timing.verify_passes,
        draft_tokens_accepted=timing.draft_tokens_accepted,
    )
