"""Play a bag over ROS 2 at the pace at which it was recorded: `python3 -m flashdrive_ros.ros.bag_player BAG`.

The recorded bytes are published as they are, stamps untouched. For machines without `ros2 bag play`, and for the demo.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import rclpy
from rclpy.duration import Duration
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.utilities import remove_ros_args

from flashdrive_ros.bags.read import Bag, BagTopic, open_bag
from flashdrive_ros.errors import BagError, FlashdriveError, ParameterError

SENSOR_TYPES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage", "sensor_msgs/msg/CameraInfo")
POLL_S = 0.05
LAST_DELIVERY_S = 5.0
LONGEST_NAP_S = 0.2
"""So that an interrupt or a shutdown ends a long pause."""


def main(argv: Sequence[str] | None = None) -> int:
    """Play one bag; exit status 0 when all of it was published, 1 otherwise (one line on standard error says why)."""
    words = list(sys.argv if argv is None else ["bag_player", *argv])
    parser = argparse.ArgumentParser(
        prog="bag_player", description="Play a rosbag2 bag over ROS 2 at its recorded pace."
    )
    parser.add_argument("bag", type=Path, help="bag folder, .mcap or .db3")
    parser.add_argument("--rate", type=float, default=1.0, help="speed, 1 is as recorded (%(default)s)")
    parser.add_argument("--topics", nargs="+", help="topics to play (all)")
    parser.add_argument(
        "--wait-s",
        type=float,
        default=15.0,
        help="longest wait for a subscriber on every topic before the start (%(default)s)",
    )
    parser.add_argument(
        "--subscribers", type=int, default=1, help="subscribers to wait for on every topic (%(default)s)"
    )
    arguments = parser.parse_args(remove_ros_args(words)[1:])
    try:
        rclpy.init(args=words)
        with open_bag(arguments.bag) as bag:
            published = play(
                bag,
                rate=arguments.rate,
                topics=arguments.topics,
                wait_s=arguments.wait_s,
                subscribers=arguments.subscribers,
            )
            damage = bag.damage
    except (FlashdriveError, ExternalShutdownException) as error:
        print(f"bag_player: {error or 'shut down'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        rclpy.try_shutdown()
    print(f"bag_player: {sum(published.values())} messages on {len(published)} topics from {arguments.bag}")
    for line in damage:
        print(f"bag_player: {line}", file=sys.stderr)
    return 1 if damage else 0


def play(
    bag: Bag,
    *,
    rate: float = 1.0,
    topics: Collection[str] | None = None,
    wait_s: float = 15.0,
    subscribers: int = 1,
) -> Counter[str]:
    """Publish the bag's messages at `rate` times their log-time pace; returns how many were published per topic.

    Starts when every topic has `subscribers` subscribers, at the latest after `wait_s` (then topics with fewer are
    named on standard error). Raises BagError when a topic or its message type is missing or nobody subscribes to any
    topic, ParameterError for a rate that is not positive, ExternalShutdownException when ROS is shut down meanwhile.
    """
    if not 0.0 < rate < float("inf"):
        raise ParameterError(f"--rate {rate}: expected a positive number")
    names = sorted(bag.topics) if topics is None else sorted(topics)
    bag.require_topics(names)
    if not any(bag.topics[name].message_count for name in names):
        raise BagError(f"{bag.path}: no message on {', '.join(names) or 'any topic'}")
    node = rclpy.create_node("flashdrive_bag_player")
    try:
        publishers = {name: _publisher(node, bag.topics[name]) for name in names}
        _wait_for_subscribers(publishers, wait_s, subscribers)
        published = _publish_all(bag, publishers, rate)
        for name, publisher in publishers.items():
            if not publisher.wait_for_all_acked(Duration(seconds=LAST_DELIVERY_S)):
                print(f"bag_player: {name}: a subscriber did not confirm the last messages", file=sys.stderr)
        return published
    finally:
        node.destroy_node()


def message_class(type_name: str) -> Any:
    """The ROS class of `package/msg/Name`. Raises BagError when it is not installed."""
    package, _, name = type_name.partition("/msg/")
    try:
        return getattr(importlib.import_module(f"{package}.msg"), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BagError(
            f"message type {type_name} is not installed; install {package} or choose --topics without it"
        ) from error


def topic_qos(topic: BagTopic) -> QoSProfile:
    """Pictures best effort with a short queue; everything else reliable, latched when it was."""
    if topic.type_name in SENSOR_TYPES:
        return QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
    durability = DurabilityPolicy.TRANSIENT_LOCAL if topic.latched else DurabilityPolicy.VOLATILE
    return QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE, durability=durability)


def _publisher(node: Node, topic: BagTopic) -> Publisher[Any]:
    try:
        return node.create_publisher(message_class(topic.type_name), topic.name, topic_qos(topic))
    except BagError as error:
        raise BagError(f"{topic.name}: {error}") from error


def _wait_for_subscribers(publishers: Mapping[str, Publisher[Any]], wait_s: float, wanted: int) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        counts = {name: publisher.get_subscription_count() for name, publisher in publishers.items()}
        lonely = [name for name, count in counts.items() if count < wanted]
        if not lonely:
            return
        if time.monotonic() >= deadline:
            break
        _nap(POLL_S)
    if not any(counts.values()):
        raise BagError(f"nobody subscribed to any of {', '.join(lonely)} within {wait_s} s")
    few = "nobody subscribes" if wanted == 1 else f"fewer than {wanted} subscribe"
    print(f"bag_player: {few} to {', '.join(lonely)}; playing all the same", file=sys.stderr)


def _publish_all(bag: Bag, publishers: Mapping[str, Publisher[Any]], rate: float) -> Counter[str]:
    published: Counter[str] = Counter()
    started = first_ns = None
    for message in bag.messages(publishers):
        if started is None or first_ns is None:
            started, first_ns = time.monotonic(), message.log_time_ns
        due = started + (message.log_time_ns - first_ns) / 1e9 / rate
        while (left := due - time.monotonic()) > 0:
            _nap(min(left, LONGEST_NAP_S))
        publishers[message.topic].publish(message.data)
        published[message.topic] += 1
    return published


def _nap(seconds: float) -> None:
    time.sleep(seconds)
    if not rclpy.ok():
        raise ExternalShutdownException


if __name__ == "__main__":
    sys.exit(main())
