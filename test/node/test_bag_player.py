"""The bag player over real DDS: bytes, order and stamps arrive as recorded, and it ends by itself."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")
from nav_msgs.msg import Odometry  # noqa: E402
from rclpy.qos import QoSProfile, ReliabilityPolicy  # noqa: E402
from sensor_msgs.msg import CompressedImage  # noqa: E402

from flashdrive_ros.bags import sensor_messages as messages  # noqa: E402
from flashdrive_ros.bags.read import open_bag  # noqa: E402
from flashdrive_ros.bags.write import NewTopic, create_bag  # noqa: E402
from flashdrive_ros.errors import BagError  # noqa: E402
from flashdrive_ros.ros.bag_player import message_class  # noqa: E402

IMAGE = messages.image_topic("front_wide")
START_NS = 1_700_000_000_000_000_000


def write_bag(path: Path) -> Path:
    """Ten odometry samples at 10 Hz and five images at 5 Hz: 0.9 s of recording."""
    with create_bag(path, {messages.ODOMETRY_TOPIC: messages.ODOMETRY, IMAGE: messages.COMPRESSED_IMAGE}) as write:
        for index in range(10):
            stamp_ns = START_NS + index * 100_000_000
            position = np.array([float(index), 0.0, 0.0])
            odometry = messages.odometry(stamp_ns, "odom", position, np.array([0.0, 0.0, 0.0, 1.0]), np.zeros(3))
            write(messages.ODOMETRY_TOPIC, stamp_ns, odometry)
            if index % 2 == 0:
                write(IMAGE, stamp_ns, messages.jpeg_image(stamp_ns, "front_wide", bytes([index]) * 20_000))
    return path


def start_player(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flashdrive_ros.ros.bag_player", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_subscriber_gets_every_message_in_order_at_the_recorded_pace(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag")
    rclpy.init()
    node = rclpy.create_node("bag_player_test")
    odometry: list[tuple[int, float, float]] = []
    images: list[tuple[int, bytes]] = []

    def stamp_ns(header: object) -> int:
        return header.stamp.sec * 1_000_000_000 + header.stamp.nanosec  # type: ignore[attr-defined]

    def on_odometry(message: Odometry) -> None:
        odometry.append((stamp_ns(message.header), message.pose.pose.position.x, time.monotonic()))

    def on_image(message: CompressedImage) -> None:
        images.append((stamp_ns(message.header), bytes(message.data)))

    node.create_subscription(Odometry, messages.ODOMETRY_TOPIC, on_odometry, 100)
    best_effort = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
    node.create_subscription(CompressedImage, IMAGE, on_image, best_effort)
    player = start_player(str(bag), "--wait-s", "20")
    try:
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline and (len(odometry) < 10 or player.poll() is None):
            rclpy.spin_once(node, timeout_sec=0.1)
        out, err = player.communicate(timeout=20)
    finally:
        player.kill()
        node.destroy_node()
        rclpy.shutdown()
    assert player.returncode == 0, err
    assert "15 messages on 2 topics" in out
    assert [(stamp, x) for stamp, x, _ in odometry] == [(START_NS + i * 100_000_000, float(i)) for i in range(10)]
    # Best effort may lose the first ones, sent before the subscriber knows the publisher; it never swaps or changes any
    assert len(images) >= 3
    assert images == [(START_NS + i * 100_000_000, bytes([i]) * 20_000) for i in (0, 2, 4, 6, 8)][-len(images) :]
    # Recorded over 0.9 s; the last sample cannot come earlier after the first one, and on a busy machine comes later.
    assert odometry[-1][2] - odometry[0][2] > 0.7


def test_a_player_without_subscribers_says_so_and_ends(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag")
    player = start_player(str(bag), "--wait-s", "0.5")
    _, err = player.communicate(timeout=40)
    assert player.returncode == 1
    assert "nobody subscribed" in err
    assert messages.ODOMETRY_TOPIC in err
    assert len(err.strip().splitlines()) == 1


def test_bad_input_of_the_player_is_one_line(tmp_path: Path) -> None:
    player = start_player(str(tmp_path / "absent"))
    _, err = player.communicate(timeout=40)
    assert player.returncode == 1
    assert "absent" in err
    assert len(err.strip().splitlines()) == 1


def test_a_type_that_is_not_installed_is_named() -> None:
    with pytest.raises(BagError, match="no_such_package/msg/Thing is not installed"):
        message_class("no_such_package/msg/Thing")
    with pytest.raises(BagError, match="std_msgs/msg/Nothing is not installed"):
        message_class("std_msgs/msg/Nothing")


def test_latched_topics_stay_latched(tmp_path: Path) -> None:
    topics = {"/tf_static": messages.TF_STATIC, "/plain": NewTopic("std_msgs/msg/String")}
    with create_bag(tmp_path / "bag", topics) as write:
        write("/tf_static", START_NS, messages.static_transforms(START_NS, {}))
    with open_bag(tmp_path / "bag") as bag:
        assert [bag.topics[name].latched for name in ("/tf_static", "/plain")] == [True, False]
