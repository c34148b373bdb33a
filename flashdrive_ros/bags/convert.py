"""`flashdrive convert`: make a rosbag2 MCAP from a public data set."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from flashdrive_ros.bags.tri import convert_tri
from flashdrive_ros.bags.udacity import UdacitySettings, convert_udacity
from flashdrive_ros.errors import ParameterError

EXAMPLE = "flashdrive convert udacity solidWhiteRight.mp4 my_bag --start-s 1 --duration-s 3 --assumed-speed-mps 25"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dataset",
        choices=("tri", "udacity"),
        help="tri: a scene folder in TRI's DGP format, four of its six cameras, real poses; "
        "udacity: a front camera video, four virtual cameras, assumed odometry",
    )
    parser.add_argument("input", type=Path, help="scene folder (the one with scene_*.json) or video file")
    parser.add_argument("output", type=Path, help="bag folder to write; must not exist")
    video = parser.add_argument_group("udacity only")
    defaults = UdacitySettings()
    video.add_argument("--start-s", type=float, help=f"first second to take ({defaults.start_s})")
    video.add_argument("--duration-s", type=float, help="seconds to take (to the end)")
    video.add_argument("--width", type=int, help=f"pixels of each virtual camera ({defaults.width})")
    video.add_argument("--jpeg-quality", type=int, help=f"1 to 95 ({defaults.jpeg_quality})")
    video.add_argument(
        "--assumed-speed-mps",
        type=float,
        help=f"speed of the straight-line odometry, which the video does not hold ({defaults.assumed_speed_mps})",
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Convert, and return what was written. Raises DatasetError, ParameterError or BagError."""
    names = [field.name for field in fields(UdacitySettings)]
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    if arguments.dataset == "udacity":
        return convert_udacity(arguments.input, arguments.output, UdacitySettings(**given))
    if given:
        raise ParameterError(f"--{next(iter(given)).replace('_', '-')}: only for udacity, not for {arguments.dataset}")
    return convert_tri(arguments.input, arguments.output)


def summary(result: dict[str, Any]) -> str:
    seconds = (result["last_stamp_ns"] - result["first_stamp_ns"]) / 1e9
    return (
        f"{result['output']}: {result['frames_per_camera']} frames over {seconds:.2f} s "
        f"from each of {', '.join(result['cameras'])}"
    )
