"""The topic table: private names of the node and the public names they are remapped to.

Launch files read it too, so it imports nothing of ROS.
"""

from __future__ import annotations

from dataclasses import dataclass

from flashdrive_ros.cameras import CAMERAS

NODE_NAME = "flashdrive_planner"
IMAGE_TRANSPORTS: tuple[str, ...] = ("compressed", "raw")


@dataclass(frozen=True)
class Topic:
    """One topic of the node."""

    private: str
    """Name inside the node."""
    public: str
    """Name it is remapped to by launch files and by `flashdrive run`; equal to `private` where there is none."""
    message_type: str
    purpose: str


def image_topic(camera_name: str, transport: str) -> Topic:
    """The image topic of one camera. `transport` is one of `IMAGE_TRANSPORTS`."""
    suffix = "/compressed" if transport == "compressed" else ""
    message_type = "sensor_msgs/CompressedImage" if transport == "compressed" else "sensor_msgs/Image"
    return Topic(
        f"~/input/{camera_name}/image{suffix}",
        f"/camera/{camera_name}/image{suffix}",
        message_type,
        f"images of camera {camera_name}",
    )


ODOMETRY = Topic(
    "~/input/odometry",
    "/localization/kinematic_state",
    "nav_msgs/Odometry",
    "pose and speed of base_link in a fixed frame",
)
ROUTE = Topic("~/input/route", "/planning/route_text", "std_msgs/String", "route in words; latched, optional")

TRAJECTORY = Topic(
    "~/output/trajectory", "/planning/trajectory", "flashdrive_ros/Trajectory", "the plan in the odometry's fixed frame"
)
REASONING = Topic("~/output/reasoning", "/planning/reasoning", "flashdrive_ros/Reasoning", "why, in the model's words")
CANDIDATES = Topic(
    "~/output/candidates",
    "/planning/candidates",
    "flashdrive_ros/Candidates",
    "every sampled trajectory, in the fixed frame",
)
TRAJECTORY_BASE_LINK = Topic(
    "~/output/trajectory_base_link",
    "~/output/trajectory_base_link",
    "flashdrive_ros/Trajectory",
    "the plan in base_link at t0",
)
PATH = Topic("~/output/path", "~/output/path", "nav_msgs/Path", "the plan as a path, in the fixed frame")
MARKERS = Topic(
    "~/output/markers", "~/output/markers", "visualization_msgs/MarkerArray", "the plan and its reasoning for RViz"
)
STATUS = Topic("~/status", "~/status", "flashdrive_ros/PlannerStatus", "what the node does and why not more, at 10 Hz")
STAGE_TIMING = Topic(
    "~/debug/stage_timing", "~/debug/stage_timing", "flashdrive_ros/StageTiming", "wall time of each stage of a plan"
)
DIAGNOSTICS = Topic(
    "/diagnostics", "/diagnostics", "diagnostic_msgs/DiagnosticArray", "the same for operators, at 1 Hz"
)

INPUTS: tuple[Topic, ...] = (
    *(image_topic(camera.name, transport) for camera in CAMERAS for transport in IMAGE_TRANSPORTS),
    ODOMETRY,
    ROUTE,
)
OUTPUTS: tuple[Topic, ...] = (
    TRAJECTORY,
    REASONING,
    CANDIDATES,
    TRAJECTORY_BASE_LINK,
    PATH,
    MARKERS,
    STATUS,
    STAGE_TIMING,
    DIAGNOSTICS,
)


def public_remappings() -> list[tuple[str, str]]:
    """(private, public) pairs of every topic that has a public name, for all cameras and transports."""
    return [(topic.private, topic.public) for topic in (*INPUTS, *OUTPUTS) if topic.private != topic.public]
