"""The plan as RViz markers: a line coloured by speed and the reasoning above the car."""

from __future__ import annotations

from builtin_interfaces.msg import Duration
from geometry_msgs.msg import Pose, Vector3
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

from flashdrive_ros.msg import Reasoning, Trajectory

LIFETIME = Duration(sec=1)
"""Markers of a planner that stopped vanish by themselves."""
FULL_COLOUR_MPS = 20.0
"""Speed drawn fully green; standstill is red."""


def plan_markers(trajectory: Trajectory, reasoning: Reasoning) -> MarkerArray:
    """A line strip in the trajectory's frame and a text 2 m above its first point."""
    line = Marker(
        header=trajectory.header,
        ns="plan",
        id=0,
        type=Marker.LINE_STRIP,
        action=Marker.ADD,
        pose=_identity(),
        scale=Vector3(x=0.3),
        points=[point.pose.position for point in trajectory.points],
        colors=[_speed_colour(point.speed_mps) for point in trajectory.points],
        lifetime=LIFETIME,
    )
    text = Marker(
        header=trajectory.header,
        ns="reasoning",
        id=0,
        type=Marker.TEXT_VIEW_FACING,
        action=Marker.ADD,
        pose=_identity(),
        scale=Vector3(z=0.6),
        color=ColorRGBA(r=1.0, g=1.0, b=1.0, a=1.0),
        text=reasoning.text,
        lifetime=LIFETIME,
    )
    first = trajectory.points[0].pose.position
    text.pose.position.x, text.pose.position.y, text.pose.position.z = first.x, first.y, first.z + 2.0
    return MarkerArray(markers=[line, text])


def _identity() -> Pose:
    pose = Pose()
    pose.orientation.w = 1.0
    return pose


def _speed_colour(speed_mps: float) -> ColorRGBA:
    share = min(max(speed_mps / FULL_COLOUR_MPS, 0.0), 1.0)
    return ColorRGBA(r=1.0 - share, g=share, b=0.2, a=0.9)
