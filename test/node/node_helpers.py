"""A node under test, a probe that talks to it over DDS, and a car that feeds it."""

from __future__ import annotations

import io
import time

import numpy as np
import rclpy
from lifecycle_msgs.srv import ChangeState, GetState
from nav_msgs.msg import Odometry
from PIL import Image
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import CompressedImage

from flashdrive_ros.ros.executor import Spinning
from flashdrive_ros.ros.planner_node import PlannerNode

TIMEOUT_S = 15.0
CAMERAS = ("cross_left", "front_wide", "cross_right", "front_tele")
CONFIGURE, CLEANUP, ACTIVATE, DEACTIVATE, UNCONFIGURED_SHUTDOWN = 1, 2, 3, 4, 5


def wait_for(condition, what, timeout_s=TIMEOUT_S, period_s=0.01):
    """Poll until `condition` gives something true; returns it."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        value = condition()
        if value:
            return value
        time.sleep(period_s)
    raise AssertionError(f"waited {timeout_s} s in vain for {what}")


class SpinningNode:
    """Runs an rclpy node in threads until `close`."""

    def __init__(self, node, intake_group):
        self.node = node
        self._spinning = Spinning(node, intake_group)

    def close(self):
        self._spinning.stop()
        if isinstance(self.node, PlannerNode):
            self.node.close(2.0)
        self.node.destroy_node()


def start_planner(namespace, factory, **parameters):
    """A spinning PlannerNode in `namespace`."""
    overrides = [Parameter(name, value=value) for name, value in parameters.items()]
    node = PlannerNode(factory, namespace=namespace, parameter_overrides=overrides)
    return SpinningNode(node, node.intake_group)


class Probe:
    """A client of the node under test, in the same namespace, with an executor of its own."""

    def __init__(self, namespace):
        self.namespace = namespace
        self.node = rclpy.create_node("probe", namespace=namespace)
        self.spinning = SpinningNode(self.node, self.node.default_callback_group)
        self._clients = {}

    def close(self):
        self.spinning.close()

    def call(self, service_type, name, request, timeout_s=TIMEOUT_S):
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = self.node.create_client(service_type, f"flashdrive_planner/{name}")
        assert client.wait_for_service(TIMEOUT_S), name
        future = client.call_async(request)
        return wait_for(lambda: future.done() and future.result(), f"an answer of {name}", timeout_s)

    def start_transition(self, transition):
        """Ask for a transition; returns the future of the answer."""
        client = self.node.create_client(ChangeState, "flashdrive_planner/change_state")
        assert client.wait_for_service(TIMEOUT_S)
        request = ChangeState.Request()
        request.transition.id = transition
        return client.call_async(request)

    def change_state(self, transition):
        future = self.start_transition(transition)
        return wait_for(lambda: future.done() and future.result(), f"transition {transition}").success

    def state(self, timeout_s=TIMEOUT_S):
        return self.call(GetState, "get_state", GetState.Request(), timeout_s).current_state.label

    def set_parameter(self, name, value):
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        return self.call(SetParameters, "set_parameters", request).results[0]

    def collect(self, message_type, topic, depth=100):
        """A list that grows with every message of `topic` (name as seen from inside the planner's node)."""
        received = []
        name = topic.replace("~", f"{self.namespace}/flashdrive_planner")
        self.node.create_subscription(message_type, name, received.append, depth)
        wait_for(lambda: self.node.count_publishers(name) > 0, f"a publisher of {name}")
        return received


class Car:
    """Four cameras at 10 Hz, one of them best effort, and odometry at 50 Hz of a car that drives along x at 8 m/s."""

    SPEED_MPS = 8.0
    START_NS = 1_700_000_000_000_000_000

    def __init__(self, probe):
        node = probe.node
        prefix = f"{probe.namespace}/flashdrive_planner/input"
        self._images = {
            name: node.create_publisher(
                CompressedImage,
                f"{prefix}/{name}/image/compressed",
                qos_profile_sensor_data if name == "front_tele" else 10,
            )
            for name in CAMERAS
        }
        self._odometry = node.create_publisher(Odometry, f"{prefix}/odometry", 400)
        self._jpeg = jpeg_bytes()
        self.tick = 0
        publishers = [*self._images.values(), self._odometry]
        wait_for(lambda: all(p.get_subscription_count() == 1 for p in publishers), "the node's subscriptions")

    def stamp_ns(self, tick):
        """Stamp of the images of a tick."""
        return self.START_NS + tick * 100_000_000

    def history(self, seconds):
        """Odometry up to and including the present, without images."""
        for step in range(round(seconds * 50), -1, -1):
            self.publish_odometry(self.stamp_ns(self.tick) - step * 20_000_000)

    def drive(self, ticks=1, cameras=CAMERAS, odometry=True, spoil=()):
        """Publish `ticks` steps of 0.1 s at once; cameras in `spoil` send bytes that are no picture."""
        for _ in range(ticks):
            self.tick += 1
            stamp_ns = self.stamp_ns(self.tick)
            if odometry:
                for step in range(4, -1, -1):
                    self.publish_odometry(stamp_ns - step * 20_000_000)
            for name in cameras:
                self.publish_image(name, stamp_ns, b"no picture" if name in spoil else self._jpeg)

    def publish_image(self, camera, stamp_ns, data):
        message = CompressedImage(format="jpeg", data=data)
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
        self._images[camera].publish(message)

    def publish_odometry(self, stamp_ns):
        message = Odometry(child_frame_id="base_link")
        message.header.frame_id = "odom"
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
        message.pose.pose.position.x = self.SPEED_MPS * (stamp_ns - self.START_NS) * 1e-9
        message.pose.pose.position.y = 100.0
        message.pose.pose.orientation.w = 1.0
        message.twist.twist.linear.x = self.SPEED_MPS
        self._odometry.publish(message)


def jpeg_bytes():
    """A small grey picture."""
    buffer = io.BytesIO()
    Image.fromarray(np.full((32, 64, 3), 128, np.uint8)).save(buffer, "JPEG")
    return buffer.getvalue()
