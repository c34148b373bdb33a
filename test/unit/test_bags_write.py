"""Writing bags: whole or not at all, and the same bytes for the same input."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from flashdrive_ros.bags import sensor_messages as messages
from flashdrive_ros.bags.message_types import message_store
from flashdrive_ros.bags.read import open_bag
from flashdrive_ros.bags.write import NewTopic, create_bag
from flashdrive_ros.errors import BagError

STRING = NewTopic("std_msgs/msg/String")
WRITE_TWO = """
import sys
from flashdrive_ros.bags.message_types import message_store
from flashdrive_ros.bags.write import NewTopic, create_bag
text = message_store().types["std_msgs/msg/String"]
topics = {"/b": NewTopic("std_msgs/msg/String"), "/a": NewTopic("std_msgs/msg/String")}
with create_bag(sys.argv[1], topics, {"z": "1", "y": "2", "x": "3"}) as write:
    write("/b", 5, text(data="five"))
    write("/a", 4, text(data="four"))
"""


def digest(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def test_identical_input_gives_identical_bytes_in_fresh_processes_and_other_folders(tmp_path: Path) -> None:
    digests = []
    for seed, name in (("1", "first"), ("2", "second_with_a_longer_name")):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", WRITE_TWO, str(tmp_path / name)], check=True, env=environment)
        digests.append(digest(tmp_path / name))
    assert digests[0] == digests[1]
    assert set(digests[0]) == {"bag.mcap", "metadata.yaml"}


def test_an_interrupted_write_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupted() -> None:
        with create_bag(tmp_path / "bag", {"/a": STRING}) as write:
            write("/a", 1, message_store().types[STRING.type_name](data="x"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_an_existing_output_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "bag").mkdir()
    with pytest.raises(BagError, match="exists already"), create_bag(tmp_path / "bag", {"/a": STRING}):
        pass


def test_an_output_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(BagError, match="file: cannot be written"),
        create_bag(tmp_path / "file" / "bag", {"/a": STRING}),
    ):
        pass


def test_metadata_holds_what_rosbag2_needs(tmp_path: Path) -> None:
    with create_bag(tmp_path / "bag", {"/a": STRING}, {"source": "a test"}) as write:
        for stamp_ns in (7_000, 5_000, 6_000):
            write("/a", stamp_ns, message_store().types[STRING.type_name](data="x"))
    information = yaml.safe_load((tmp_path / "bag/metadata.yaml").read_text())["rosbag2_bagfile_information"]
    assert information["storage_identifier"] == "mcap"
    assert information["relative_file_paths"] == ["bag.mcap"]
    assert information["message_count"] == 3
    assert information["starting_time"] == {"nanoseconds_since_epoch": 5_000}
    assert information["duration"] == {"nanoseconds": 2_000}
    assert information["custom_data"] == {"source": "a test"}
    with open_bag(tmp_path / "bag") as bag:
        assert bag.custom_data == {"source": "a test"}


def test_type_hashes_are_those_of_ros(shared_data: Path) -> None:
    """A real Kilted recording carries the hash of rcl_interfaces/msg/Log."""
    metadata = yaml.safe_load((shared_data / "bags/zstd/mcap_zstd/metadata.yaml").read_text())
    topics = metadata["rosbag2_bagfile_information"]["topics_with_message_count"]
    recorded = {topic["topic_metadata"]["type"]: topic["topic_metadata"]["type_description_hash"] for topic in topics}
    assert message_store().hash_rihs01("rcl_interfaces/msg/Log") == recorded["rcl_interfaces/msg/Log"]


def test_our_own_messages_survive_a_bag(tmp_path: Path) -> None:
    types = message_store().types
    pose = messages.odometry(
        0, "odom", np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.0, 0.0, 1.0]), np.zeros(3)
    ).pose.pose
    point = types["flashdrive_ros/msg/TrajectoryPoint"](
        time_from_start=types["builtin_interfaces/msg/Duration"](sec=0, nanosec=100_000_000),
        pose=pose,
        speed_mps=12.5,
        acceleration_mps2=-0.5,
        curvature_radpm=0.25,
    )
    trajectory = types["flashdrive_ros/msg/Trajectory"](header=messages.header(7, "odom"), plan_id=3, points=[point])
    with create_bag(tmp_path / "bag", {"/plan": NewTopic("flashdrive_ros/msg/Trajectory")}) as write:
        write("/plan", 7, trajectory)
    with open_bag(tmp_path / "bag") as bag:
        got = bag.decode(next(bag.messages()))
    assert (got.plan_id, got.header.frame_id, got.points[0].pose.position.y) == (3, "odom", 2.0)
    assert (got.points[0].speed_mps, got.points[0].curvature_radpm) == (12.5, 0.25)
