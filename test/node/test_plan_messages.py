"""A plan in a bag and a plan on a topic are the same message: one function makes both."""

from __future__ import annotations

import numpy as np
import pytest
from flashdrive_ros.msg import Candidates, Reasoning, Trajectory
from rclpy.serialization import deserialize_message, serialize_message

from flashdrive_ros import plan_messages
from flashdrive_ros.bags.message_types import message_store
from flashdrive_ros.plan import Plan, ReasoningText, StageTiming, Waypoints
from flashdrive_ros.ros import conversions
from flashdrive_ros.window import EgoPose

T0_NS = 1_700_000_000_123_456_789


def plan_along_x() -> Plan:
    """Two samples that drive at 10 and 20 m/s along base_link's x; the ego looks along the map's y at (100, 200, 3)."""
    samples = []
    for speed_mps in (10.0, 20.0):
        ahead_m = speed_mps * 0.1 * np.arange(1, 65)
        samples.append(
            Waypoints(
                positions_m=np.stack([ahead_m, np.zeros(64), np.zeros(64)], axis=-1),
                quaternions_xyzw=np.tile([0.0, 0.0, 0.0, 1.0], (64, 1)),
                speeds_mps=np.full(64, speed_mps),
                accelerations_mps2=np.full(64, 0.25),
                curvatures_radpm=np.full(64, -0.5),
            )
        )
    left = np.array([0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5)])
    return Plan(
        plan_id=7,
        t0_ns=T0_NS,
        trajectories=tuple(samples),
        reasoning=ReasoningText("Keep lane, it is clear: déjà vu", (5, 6, 7), truncated=True),
        ego=EgoPose("map", np.array([100.0, 200.0, 3.0]), left, 10.0),
        timing=StageTiming(1, 2, 3, 4, 5, 6, 21, 2, 1),
        warnings=(),
    )


def test_node_message_has_frame_stamp_times_and_poses() -> None:
    message = conversions.candidates_in_fixed_frame(plan_along_x())
    assert (message.header.frame_id, message.header.stamp.sec, message.header.stamp.nanosec) == (
        "map",
        1_700_000_000,
        123_456_789,
    )
    second = message.trajectories[1]
    assert (second.plan_id, second.header, len(second.points)) == (7, message.header, 64)
    tenth = second.points[9]  # 1 s after t0, 20 m along the map's y
    assert (tenth.time_from_start.sec, tenth.time_from_start.nanosec) == (1, 0)
    position, orientation = tenth.pose.position, tenth.pose.orientation
    assert (position.x, position.y, position.z) == pytest.approx((100.0, 220.0, 3.0))
    assert (orientation.z, orientation.w) == pytest.approx((np.sqrt(0.5), np.sqrt(0.5)))
    assert (tenth.speed_mps, tenth.acceleration_mps2, tenth.curvature_radpm) == (20.0, 0.25, -0.5)


@pytest.mark.parametrize(
    ("make", "frames", "ros_type"),
    [
        ("trajectory_in_base_link", ("base_link",), Trajectory),
        ("candidates_in_fixed_frame", (), Candidates),
        ("reasoning_message", ("base_link",), Reasoning),
    ],
)
def test_bag_message_reads_back_in_ros_as_the_node_would_have_published_it(
    make: str, frames: tuple[str, ...], ros_type: type
) -> None:
    store = message_store()
    plan = plan_along_x()
    in_bag = getattr(plan_messages, make)(store.types, plan, *frames)
    data = bytes(store.serialize_cdr(in_bag, f"flashdrive_ros/msg/{ros_type.__name__}"))
    published = serialize_message(getattr(conversions, make)(plan, *frames))
    assert deserialize_message(data, ros_type) == deserialize_message(published, ros_type)
