"""Plans as ROS messages. Every stamp is t0, the stamp of the images the plan was made from."""

from __future__ import annotations

from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion
from nav_msgs.msg import Path
from std_msgs.msg import Header

from flashdrive_ros.msg import Candidates, Reasoning, StageTiming, Trajectory, TrajectoryPoint
from flashdrive_ros.plan import Plan, Waypoints, in_fixed_frame

STEP_NS = 100_000_000
"""Waypoint i lies at t0 + (i + 1) * 0.1 s."""


def time_message(stamp_ns: int) -> Time:
    """Nanoseconds since the epoch as a message."""
    return Time(sec=stamp_ns // 1_000_000_000, nanosec=stamp_ns % 1_000_000_000)


def header(stamp_ns: int, frame_id: str) -> Header:
    """A header."""
    return Header(stamp=time_message(stamp_ns), frame_id=frame_id)


def trajectory_in_base_link(plan: Plan, base_frame: str) -> Trajectory:
    """The plan to drive, in base_link at t0."""
    return _trajectory(plan, plan.trajectories[0], base_frame)


def candidates_in_fixed_frame(plan: Plan) -> Candidates:
    """All samples of a plan in the odometry's fixed frame; the first is the one to drive."""
    return Candidates(
        header=header(plan.t0_ns, plan.ego.frame_id),
        plan_id=plan.plan_id,
        trajectories=[
            _trajectory(plan, in_fixed_frame(waypoints, plan.ego), plan.ego.frame_id) for waypoints in plan.trajectories
        ],
    )


def reasoning_message(plan: Plan, base_frame: str) -> Reasoning:
    """The text of a plan."""
    return Reasoning(
        header=header(plan.t0_ns, base_frame),
        plan_id=plan.plan_id,
        text=plan.reasoning.text,
        token_count=len(plan.reasoning.token_ids),
        truncated=plan.reasoning.truncated,
    )


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


def _trajectory(plan: Plan, waypoints: Waypoints, frame_id: str) -> Trajectory:
    # Python floats: assigning numpy scalars to message fields costs several times as much.
    positions = waypoints.positions_m.tolist()
    quaternions = waypoints.quaternions_xyzw.tolist()
    speeds = waypoints.speeds_mps.tolist()
    accelerations = waypoints.accelerations_mps2.tolist()
    curvatures = waypoints.curvatures_radpm.tolist()
    points = []
    for index, (x, y, z) in enumerate(positions):
        after_ns = (index + 1) * STEP_NS
        qx, qy, qz, qw = quaternions[index]
        points.append(
            TrajectoryPoint(
                time_from_start=Duration(sec=after_ns // 1_000_000_000, nanosec=after_ns % 1_000_000_000),
                pose=Pose(position=Point(x=x, y=y, z=z), orientation=Quaternion(x=qx, y=qy, z=qz, w=qw)),
                speed_mps=speeds[index],
                acceleration_mps2=accelerations[index],
                curvature_radpm=curvatures[index],
            )
        )
    return Trajectory(header=header(plan.t0_ns, frame_id), plan_id=plan.plan_id, points=points)
