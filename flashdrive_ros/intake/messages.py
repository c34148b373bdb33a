"""ROS messages to plain values, by their fields alone: rclpy's and rosbags' objects both fit; no ROS import."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashdrive_ros.intake.image_decode import decode_compressed, decode_raw
from flashdrive_ros.intake.odometry import OdometrySample, checked_sample
from flashdrive_ros.intake.pixels import Pixels


def stamp_ns(header: Any) -> int:
    """The stamp of a std_msgs/Header in nanoseconds; whether it is usable is the intake's question."""
    return int(header.stamp.sec) * 1_000_000_000 + int(header.stamp.nanosec)


def image_from_message(message: Any, source: str) -> Pixels:
    """Decode a sensor_msgs/Image or CompressedImage to uint8 [height, width, 3] RGB; raises InputRefused."""
    if hasattr(message, "format"):
        return decode_compressed(message.data, message.format, source)
    return decode_raw(
        message.data, message.encoding, message.width, message.height, message.step, message.is_bigendian, source
    )


def odometry_from_message(message: Any, source: str) -> OdometrySample:
    """Take what planning needs from a nav_msgs/Odometry; raises InputRefused (see `checked_sample`)."""
    pose, twist = message.pose.pose, message.twist.twist
    sample = OdometrySample(
        stamp_ns=stamp_ns(message.header),
        frame_id=message.header.frame_id,
        child_frame_id=message.child_frame_id,
        position_m=np.array([pose.position.x, pose.position.y, pose.position.z], np.float64),
        quaternion_xyzw=np.array(
            [pose.orientation.x, pose.orientation.y, pose.orientation.z, pose.orientation.w], np.float64
        ),
        linear_mps=np.array([twist.linear.x, twist.linear.y, twist.linear.z], np.float64),
    )
    return checked_sample(sample, source)
