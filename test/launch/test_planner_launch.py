"""The launch file starts a node that becomes active. Skipped by test/conftest.py where ROS 2's launch is missing."""

from __future__ import annotations

import time
from pathlib import Path

import launch_pytest
import pytest
import rclpy
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from lifecycle_msgs.srv import GetState

from launch import LaunchDescription

LAUNCH_FILE = Path(__file__).parents[2] / "launch" / "planner.launch.py"
TIMEOUT_S = 60.0


@launch_pytest.fixture
def planner():
    """The launch file with its defaults."""
    source = PythonLaunchDescriptionSource(str(LAUNCH_FILE))
    return LaunchDescription([IncludeLaunchDescription(source), launch_pytest.actions.ReadyToTest()])


@pytest.mark.launch(fixture=planner)
def test_the_launched_node_becomes_active_by_itself():
    rclpy.init()
    try:
        node = rclpy.create_node("launch_test")
        client = node.create_client(GetState, "/flashdrive_planner/get_state")
        assert client.wait_for_service(TIMEOUT_S)
        end_s = time.monotonic() + TIMEOUT_S
        state = ""
        while state != "active" and time.monotonic() < end_s:
            future = client.call_async(GetState.Request())
            rclpy.spin_until_future_complete(node, future, timeout_sec=10.0)
            state = future.result().current_state.label if future.done() else "no answer"
        assert state == "active"
    finally:
        rclpy.shutdown()
