"""The node's publishers, and what one plan is published as."""

from __future__ import annotations

from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Path
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from visualization_msgs.msg import MarkerArray

from flashdrive_ros.msg import Candidates, PlannerStatus, Reasoning, StageTiming, Trajectory
from flashdrive_ros.plan import Plan
from flashdrive_ros.ros import conversions, markers, qos, topics


class PlanPublishers:
    """Publishers of everything made from a plan, from configure to cleanup.

    They are used from the planning thread: rclpy's publish is safe from any thread, and handing plans to the executor
    would put them behind the decoding of the next images. (Only rclpy's EventsExecutor, which the node does not use,
    was seen to hang on that.)
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._trajectory = create_publisher(node, Trajectory, topics.TRAJECTORY, qos.plan_qos())
        self._trajectory_base_link = create_publisher(node, Trajectory, topics.TRAJECTORY_BASE_LINK, qos.plan_qos())
        self._candidates = create_publisher(node, Candidates, topics.CANDIDATES, qos.plan_qos())
        self._reasoning = create_publisher(node, Reasoning, topics.REASONING, qos.report_qos())
        self._path = create_publisher(node, Path, topics.PATH, qos.plan_qos())
        self._markers = create_publisher(node, MarkerArray, topics.MARKERS, qos.plan_qos())
        self._stage_timing = create_publisher(node, StageTiming, topics.STAGE_TIMING, qos.report_qos())

    def publish(self, plan: Plan, base_frame: str, with_markers: bool) -> None:
        """Publish one plan on every topic; what only tools read is made only when somebody listens."""
        candidates = conversions.candidates_in_fixed_frame(plan)
        trajectory = candidates.trajectories[0]
        reasoning = conversions.reasoning_message(plan, base_frame)
        self._trajectory.publish(trajectory)
        self._trajectory_base_link.publish(conversions.trajectory_in_base_link(plan, base_frame))
        self._reasoning.publish(reasoning)
        self._candidates.publish(candidates)
        self._stage_timing.publish(conversions.stage_timing_message(plan, base_frame))
        if self._path.get_subscription_count() > 0:
            self._path.publish(conversions.path_message(trajectory))
        if with_markers and self._markers.get_subscription_count() > 0:
            self._markers.publish(markers.plan_markers(trajectory, reasoning))

    def destroy(self) -> None:
        """Remove every publisher from the node. No other thread may be publishing."""
        for publisher in (
            self._trajectory,
            self._trajectory_base_link,
            self._candidates,
            self._reasoning,
            self._path,
            self._markers,
            self._stage_timing,
        ):
            self._node.destroy_publisher(publisher)


class ReportPublishers:
    """Publishers of status and diagnostics, for the whole life of the node."""

    def __init__(self, node: Node) -> None:
        self.status = create_publisher(node, PlannerStatus, topics.STATUS, qos.report_qos())
        self.diagnostics = create_publisher(node, DiagnosticArray, topics.DIAGNOSTICS, qos.report_qos())


def create_publisher(node: Node, message_type: Any, topic: topics.Topic, profile: QoSProfile) -> Publisher[Any]:
    """A publisher with override parameters that logs subscribers it cannot serve."""
    return node.create_publisher(
        message_type,
        topic.private,
        profile,
        qos_overriding_options=qos.override_options(),
        event_callbacks=qos.publisher_events(node.resolve_topic_name(topic.private), node.get_logger().warning),
    )
