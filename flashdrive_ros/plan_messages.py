"""Plans as messages, for whoever brings the message classes: rclpy's in the node, rosbags' in the bag writer.

Both take every field as a keyword argument. Every stamp is t0, the stamp of the images the plan was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flashdrive_ros.plan import Plan, Waypoints, in_fixed_frame

MessageTypes = Mapping[str, Callable[..., Any]]
"""Message class by its name, for example `geometry_msgs/msg/Pose`."""
STEP_NS = 100_000_000
"""Waypoint i lies at t0 + (i + 1) * 0.1 s."""
SECOND_NS = 1_000_000_000


def header(types: MessageTypes, stamp_ns: int, frame_id: str) -> Any:
    """std_msgs/Header of a stamp in nanoseconds since the epoch."""
    seconds, nanoseconds = divmod(stamp_ns, SECOND_NS)
    stamp = types["builtin_interfaces/msg/Time"](sec=seconds, nanosec=nanoseconds)
    return types["std_msgs/msg/Header"](stamp=stamp, frame_id=frame_id)


def trajectory_in_base_link(types: MessageTypes, plan: Plan, base_frame: str) -> Any:
    """flashdrive_ros/Trajectory: the plan to drive, in base_link at t0."""
    return _trajectory(types, plan, plan.trajectories[0], base_frame)


def candidates_in_fixed_frame(types: MessageTypes, plan: Plan) -> Any:
    """flashdrive_ros/Candidates: all samples in the odometry's fixed frame; the first is the one to drive."""
    frame_id = plan.ego.frame_id
    return types["flashdrive_ros/msg/Candidates"](
        header=header(types, plan.t0_ns, frame_id),
        plan_id=plan.plan_id,
        trajectories=[
            _trajectory(types, plan, in_fixed_frame(waypoints, plan.ego), frame_id) for waypoints in plan.trajectories
        ],
    )


def reasoning_message(types: MessageTypes, plan: Plan, base_frame: str) -> Any:
    """flashdrive_ros/Reasoning: the text of a plan."""
    return types["flashdrive_ros/msg/Reasoning"](
        header=header(types, plan.t0_ns, base_frame),
        plan_id=plan.plan_id,
        text=plan.reasoning.text,
        token_count=len(plan.reasoning.token_ids),
        truncated=plan.reasoning.truncated,
    )


def _trajectory(types: MessageTypes, plan: Plan, waypoints: Waypoints, frame_id: str) -> Any:
    new_duration = types["builtin_interfaces/msg/Duration"]
    new_point, new_quaternion = types["geometry_msgs/msg/Point"], types["geometry_msgs/msg/Quaternion"]
    new_pose, new_waypoint = types["geometry_msgs/msg/Pose"], types["flashdrive_ros/msg/TrajectoryPoint"]
    # Python floats: assigning numpy scalars to message fields costs several times as much.
    positions = waypoints.positions_m.tolist()
    quaternions = waypoints.quaternions_xyzw.tolist()
    speeds = waypoints.speeds_mps.tolist()
    accelerations = waypoints.accelerations_mps2.tolist()
    curvatures = waypoints.curvatures_radpm.tolist()
    points = []
    for index, ((x, y, z), (qx, qy, qz, qw)) in enumerate(zip(positions, quaternions, strict=True)):
        after_s, after_ns = divmod((index + 1) * STEP_NS, SECOND_NS)
        points.append(
            new_waypoint(
                time_from_start=new_duration(sec=after_s, nanosec=after_ns),
                pose=new_pose(position=new_point(x=x, y=y, z=z), orientation=new_quaternion(x=qx, y=qy, z=qz, w=qw)),
                speed_mps=speeds[index],
                acceleration_mps2=accelerations[index],
                curvature_radpm=curvatures[index],
            )
        )
    return types["flashdrive_ros/msg/Trajectory"](
        header=header(types, plan.t0_ns, frame_id), plan_id=plan.plan_id, points=points
    )
