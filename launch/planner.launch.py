"""Start the planner as a lifecycle node: `ros2 launch flashdrive_ros planner.launch.py profile:=nano`."""

from __future__ import annotations

import os

from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.parameter_descriptions import ParameterValue

from flashdrive_ros.ros.run import profile_file
from flashdrive_ros.ros.topics import NODE_NAME, public_remappings
from launch import LaunchContext, LaunchDescription

ARGUMENTS = (
    ("profile", "nano", "name of a profile in config/, or a parameter file"),
    ("namespace", "", "namespace of the node"),
    ("autostart", "true", "configure and activate without being asked to"),
)


def generate_launch_description() -> LaunchDescription:
    """The node, with its private topics remapped to the public ones."""
    arguments = [
        DeclareLaunchArgument(name, default_value=default, description=text) for name, default, text in ARGUMENTS
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=planner_node)])


def planner_node(context: LaunchContext) -> list[LifecycleNode]:
    """The action, once the arguments are known: a profile is looked up by name."""
    profile = LaunchConfiguration("profile").perform(context)
    return [
        LifecycleNode(
            package="flashdrive_ros",
            executable="planner_node",
            name=NODE_NAME,
            namespace=LaunchConfiguration("namespace"),
            parameters=[
                os.fspath(profile_file(profile)),
                {"autostart": ParameterValue(LaunchConfiguration("autostart"), value_type=bool)},
            ],
            remappings=public_remappings(),
            output="screen",
        )
    ]
