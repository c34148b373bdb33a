"""The messages that the data set converters write, made without ROS."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.bags.message_types import message_store
from flashdrive_ros.bags.write import LATCHED_QOS, RELIABLE_QOS, SENSOR_QOS, NewTopic

ODOMETRY_TOPIC = "/localization/kinematic_state"
TF_STATIC_TOPIC = "/tf_static"
ODOMETRY = NewTopic("nav_msgs/msg/Odometry", RELIABLE_QOS)
COMPRESSED_IMAGE = NewTopic("sensor_msgs/msg/CompressedImage", SENSOR_QOS)
CAMERA_INFO = NewTopic("sensor_msgs/msg/CameraInfo", SENSOR_QOS)
TF_STATIC = NewTopic("tf2_msgs/msg/TFMessage", LATCHED_QOS)


def image_topic(camera: str) -> str:
    return f"/camera/{camera}/image/compressed"


def camera_info_topic(camera: str) -> str:
    return f"/camera/{camera}/camera_info"


def optical_frame(camera: str) -> str:
    """Frame id of a camera: x right, y down, z along the optical axis (REP-103)."""
    return f"{camera}_optical"


def header(stamp_ns: int, frame_id: str) -> Any:
    types = message_store().types
    seconds, nanoseconds = divmod(stamp_ns, 1_000_000_000)
    stamp = types["builtin_interfaces/msg/Time"](sec=seconds, nanosec=nanoseconds)
    return types["std_msgs/msg/Header"](stamp=stamp, frame_id=frame_id)


def jpeg_image(stamp_ns: int, camera: str, jpeg: bytes) -> Any:
    return message_store().types["sensor_msgs/msg/CompressedImage"](
        header=header(stamp_ns, optical_frame(camera)), format="jpeg", data=np.frombuffer(jpeg, np.uint8)
    )


def pinhole_camera_info(
    stamp_ns: int, camera: str, width: int, height: int, focal_px: tuple[float, float], centre_px: tuple[float, float]
) -> Any:
    """CameraInfo of an undistorted pinhole camera; focal length and principal point as (x, y)."""
    types = message_store().types
    (fx, fy), (cx, cy) = focal_px, centre_px
    return types["sensor_msgs/msg/CameraInfo"](
        header=header(stamp_ns, optical_frame(camera)),
        height=height,
        width=width,
        distortion_model="plumb_bob",
        d=np.zeros(5),
        k=np.array([fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]),
        r=np.eye(3).ravel(),
        p=np.array([fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0]),
        binning_x=0,
        binning_y=0,
        roi=types["sensor_msgs/msg/RegionOfInterest"](x_offset=0, y_offset=0, height=0, width=0, do_rectify=False),
    )


def odometry(
    stamp_ns: int,
    frame_id: str,
    position_m: NDArray[np.float64],
    quaternion_xyzw: NDArray[np.float64],
    linear_mps: NDArray[np.float64],
) -> Any:
    """Pose of base_link in `frame_id`, velocity in base_link; the covariances are zero, which means unknown."""
    types = message_store().types
    vector = types["geometry_msgs/msg/Vector3"]
    return types["nav_msgs/msg/Odometry"](
        header=header(stamp_ns, frame_id),
        child_frame_id="base_link",
        pose=types["geometry_msgs/msg/PoseWithCovariance"](
            pose=types["geometry_msgs/msg/Pose"](
                position=types["geometry_msgs/msg/Point"](*map(float, position_m)),
                orientation=types["geometry_msgs/msg/Quaternion"](*map(float, quaternion_xyzw)),
            ),
            covariance=np.zeros(36),
        ),
        twist=types["geometry_msgs/msg/TwistWithCovariance"](
            twist=types["geometry_msgs/msg/Twist"](
                linear=vector(*map(float, linear_mps)), angular=vector(0.0, 0.0, 0.0)
            ),
            covariance=np.zeros(36),
        ),
    )


def static_transforms(stamp_ns: int, cameras: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Any:
    """TFMessage: where each camera sits in base_link, as (translation [3], quaternion xyzw [4])."""
    types = message_store().types
    transforms = [
        types["geometry_msgs/msg/TransformStamped"](
            header=header(stamp_ns, "base_link"),
            child_frame_id=optical_frame(camera),
            transform=types["geometry_msgs/msg/Transform"](
                translation=types["geometry_msgs/msg/Vector3"](*map(float, translation_m)),
                rotation=types["geometry_msgs/msg/Quaternion"](*map(float, quaternion_xyzw)),
            ),
        )
        for camera, (translation_m, quaternion_xyzw) in cameras.items()
    ]
    return types["tf2_msgs/msg/TFMessage"](transforms=transforms)
