"""`flashdrive run` and `planner_node`: one process with the node, until it is interrupted."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from flashdrive_ros.cameras import BY_NAME
from flashdrive_ros.errors import FlashdriveError, ModelFileError, ParameterError
from flashdrive_ros.resources import resource_path
from flashdrive_ros.ros.topics import public_remappings

EXAMPLE = "flashdrive run --profile nano -p samples:=4"
CLOSE_TIMEOUT_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `flashdrive run`."""
    parser.add_argument("--profile", default="nano", metavar="NAME|FILE", help="parameter file (default: %(default)s)")
    parser.add_argument(
        "-p", dest="parameters", action="append", default=[], metavar="NAME:=VALUE", help="one parameter; repeatable"
    )
    parser.add_argument("--cameras", metavar="NAME,NAME", help=f"cameras to plan from, of: {', '.join(BY_NAME)}")
    parser.add_argument(
        "-r", dest="remappings", action="append", default=[], metavar="FROM:=TO", help="one topic remapping; repeatable"
    )
    parser.add_argument("--namespace", default="", help="namespace of the node")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the node until SIGINT or SIGTERM; returns its final counts."""
    return run_node(ros_arguments(arguments))


def summary(result: dict[str, Any]) -> str:
    """The counts in a few lines."""
    reasons = ", ".join(f"{code} {count}" for code, count in result["reasons"].items()) or "none"
    return f"plans published: {result['plans_published']}\nreasons: {reasons}"


def ros_arguments(arguments: argparse.Namespace) -> list[str]:
    """The command line as --ros-args. Unlike under launch, the node starts by itself unless told otherwise."""
    words = ["--ros-args", "--params-file", str(profile_file(arguments.profile)), "-p", "autostart:=true"]
    if arguments.cameras is not None:
        words += ["-p", f"cameras:=[{arguments.cameras}]"]
    for option, values in (("-p", arguments.parameters), ("-r", arguments.remappings)):
        for value in values:
            if ":=" not in value:
                raise ParameterError(f"{option} {value}: expected NAME:=VALUE")
            words += [option, value]
    for private, public in public_remappings():
        words += ["-r", f"{private}:={public}"]
    if arguments.namespace:
        words += ["-r", f"__ns:=/{arguments.namespace.strip('/')}"]
    return words


def profile_file(profile: str) -> Path:
    """The file of a shipped profile or of a path. Raises ParameterError when there is none."""
    if Path(profile).is_file():
        return Path(profile)
    try:
        return resource_path(f"config/{profile}.yaml")
    except ModelFileError:
        raise ParameterError(f"--profile {profile}: neither a file nor a profile of the package") from None


def main() -> int:
    """Entry of the executable that launch files start; takes --ros-args."""
    try:
        run_node(sys.argv[1:])
    except FlashdriveError as error:
        print(f"planner_node: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def run_node(words: list[str], planner_factory: Any = None) -> dict[str, Any]:
    """Run the node with `words` as command line until SIGINT or SIGTERM; returns its final counts.

    Raises ParameterError for a bad parameter, FlashdriveError when ROS 2 is not installed.
    """
    try:
        import rclpy
        from rclpy.signals import SignalHandlerOptions

        from flashdrive_ros.ros.executor import Spinning
        from flashdrive_ros.ros.planner_node import PlannerNode
    except ImportError as error:
        raise FlashdriveError(
            f"ROS 2 is not usable here ({error}): source your ROS installation, or install flashdrive_ros[ros-wheels]"
        ) from error

    # rclpy's own handlers invalidate the context at once; with ours the node can still end its planner in order.
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        rclpy.init(args=["planner_node", *words], signal_handler_options=SignalHandlerOptions.NO)
        node = PlannerNode() if planner_factory is None else PlannerNode(planner_factory)
    except FlashdriveError:
        rclpy.try_shutdown()
        raise
    except Exception as error:  # rcl reports a bad command line or parameter file with several types
        rclpy.try_shutdown()
        raise ParameterError(f"ROS arguments refused: {error}") from error

    spinning = Spinning(node, node.intake_group)
    stop.wait()
    node.cancel_loading()
    spinning.stop()
    result = node.final_counts()
    has_ended = node.close(CLOSE_TIMEOUT_S)
    node.destroy_node()
    rclpy.try_shutdown()
    if not has_ended:
        # A planner deep inside an engine cannot be interrupted, and ending the interpreter below it would crash.
        sys.stderr.flush()
        os._exit(0)
    return result
