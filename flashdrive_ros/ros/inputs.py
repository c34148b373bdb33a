"""The node's subscriptions: each callback decodes once, stores, and never plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from nav_msgs.msg import Odometry
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import String

from flashdrive_ros.cameras import BY_NAME, Camera
from flashdrive_ros.ros import qos, topics


@dataclass(frozen=True)
class InputCallbacks:
    """Receivers of the messages, with the resolved topic name as the source of refusals."""

    image: Callable[[Camera, str, Any], None]
    odometry: Callable[[str, Any], None]
    route: Callable[[str, Any], None]


class InputSubscriptions:
    """Subscriptions from configure to cleanup, in one callback group: their callbacks run one at a time."""

    def __init__(
        self, node: Node, cameras: tuple[str, ...], transport: str, callbacks: InputCallbacks, group: CallbackGroup
    ) -> None:
        self._node = node
        self._receive_odometry = callbacks.odometry
        image_type = CompressedImage if transport == "compressed" else Image
        # The executor takes ready topics in this order: a window's odometry and route before its images.
        self._odometry: Subscription[Any] | None = None
        self._odometry = _subscribe(node, Odometry, topics.ODOMETRY, qos.odometry_qos(), group, self._on_odometry)
        self._subscriptions = [
            self._odometry,
            _subscribe(node, String, topics.ROUTE, qos.route_qos(), group, callbacks.route),
            *(
                _subscribe(
                    node,
                    image_type,
                    topics.image_topic(name, transport),
                    qos.image_qos(transport),
                    group,
                    partial(callbacks.image, BY_NAME[name]),
                )
                for name in cameras
            ),
        ]

    def destroy(self) -> None:
        """Remove every subscription from the node."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)

    def _on_odometry(self, topic: str, message: Any) -> None:
        """Receive this message and all that wait behind it.

        An executor's turn takes one message a topic and decodes four images meanwhile; odometry is faster than that.
        """
        self._receive_odometry(topic, message)
        if self._odometry is None:
            return
        handle = self._odometry.handle
        with handle:
            for _ in range(qos.ODOMETRY_DEPTH):
                taken = handle.take_message(Odometry, False)
                if taken is None:
                    return
                self._receive_odometry(topic, taken[0])


def _subscribe(
    node: Node,
    message_type: Any,
    topic: topics.Topic,
    profile: QoSProfile,
    group: CallbackGroup,
    callback: Callable[[str, Any], None],
) -> Subscription[Any]:
    resolved = node.resolve_topic_name(topic.private)
    return node.create_subscription(
        message_type,
        topic.private,
        partial(callback, resolved),
        profile,
        callback_group=group,
        qos_overriding_options=qos.override_options(),
        event_callbacks=qos.subscription_events(resolved, node.get_logger().warning),
    )
