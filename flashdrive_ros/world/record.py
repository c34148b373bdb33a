"""`flashdrive world record`: write a drive of the expert as a rosbag2 MCAP, as a real car's recorder would."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from flashdrive_ros.bags.message_types import message_store
from flashdrive_ros.bags.sensor_messages import (
    COMPRESSED_IMAGE,
    ODOMETRY,
    ODOMETRY_TOPIC,
    TF_STATIC,
    TF_STATIC_TOPIC,
    header,
    image_topic,
    jpeg_image,
    odometry,
    static_transforms,
)
from flashdrive_ros.bags.write import LATCHED_QOS, NewTopic, create_bag
from flashdrive_ros.cameras import CAMERAS
from flashdrive_ros.errors import ParameterError
from flashdrive_ros.rotations import quaternion_multiply, yaw_quaternion
from flashdrive_ros.world.captions import captions, routes
from flashdrive_ros.world.closed_loop import FIRST_STAMP_NS, FRAME_ID, STEP_NS
from flashdrive_ros.world.renderer import make_painter, render
from flashdrive_ros.world.rig import RIG
from flashdrive_ros.world.scene import make_scenes
from flashdrive_ros.world.simulation import Rollout, simulate
from flashdrive_ros.world.views import views_of

EXAMPLE = "flashdrive world record --seed 7 --duration-s 20 my_drive"
ROUTE_TOPIC = "/planning/route_text"
PATH_TOPIC = "/ground_truth/path"
CAPTION_TOPIC = "/ground_truth/reasoning"
STRING = NewTopic("std_msgs/msg/String", LATCHED_QOS)
PATH = NewTopic("nav_msgs/msg/Path", LATCHED_QOS)
ODOMETRY_PER_STEP = 5
"""50 Hz."""
FORWARD_OPTICAL = np.array([-0.5, 0.5, -0.5, 0.5])
"""Optical frame (x right, y down, z forward) of a camera that looks along x."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("record",), help="record: write the expert's drive through a scene")
    parser.add_argument("output", type=Path, help="bag folder to write; must not exist")
    parser.add_argument("--seed", type=int, default=0, help="the scene (0)")
    parser.add_argument("--duration-s", type=float, default=20.0, help="seconds to drive, 0.2 to 60 (20)")
    parser.add_argument("--jpeg-quality", type=int, default=95, help="1 to 95 (95)")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Record, and say what was written. Raises ParameterError or BagError."""
    if not 0.2 <= arguments.duration_s <= 60.0:
        raise ParameterError(f"--duration-s {arguments.duration_s}: expected 0.2 to 60")
    if not 1 <= arguments.jpeg_quality <= 95:
        raise ParameterError(f"--jpeg-quality {arguments.jpeg_quality}: expected 1 to 95")
    if not 0 <= arguments.seed < 2**48:
        raise ParameterError(f"--seed {arguments.seed}: expected 0 to 2^48 - 1")
    frames = round(arguments.duration_s * 10)
    record(arguments.output, arguments.seed, frames, arguments.jpeg_quality)
    return {"output": str(arguments.output), "seed": arguments.seed, "frames_per_camera": frames}


def summary(result: dict[str, Any]) -> str:
    return f"{result['output']}: scene {result['seed']}, {result['frames_per_camera']} frames from each of 4 cameras"


def record(output: Path, seed: int, frames: int, jpeg_quality: int) -> None:
    """Write the bag: JPEG cameras at 10 Hz, odometry at 50 Hz, route and captions when they change, the driven path."""
    scenes = make_scenes([seed])
    # One step more than frames, so that odometry covers the last frame.
    rollout = simulate(scenes, frames + 2)
    painter = make_painter(scenes)
    names = {camera.index: camera.name for camera in CAMERAS}
    topics = {image_topic(names[camera.index]): COMPRESSED_IMAGE for camera in RIG}
    topics |= {ODOMETRY_TOPIC: ODOMETRY, TF_STATIC_TOPIC: TF_STATIC, ROUTE_TOPIC: STRING, PATH_TOPIC: PATH}
    topics[CAPTION_TOPIC] = STRING
    every, first = torch.arange(frames), torch.zeros(frames, dtype=torch.int64)
    texts = {ROUTE_TOPIC: routes(rollout, every, first), CAPTION_TOPIC: captions(rollout, every, first)}
    string = message_store().types["std_msgs/msg/String"]
    with create_bag(output, topics, {"flashdrive_world_seed": str(seed)}) as write:
        write(TF_STATIC_TOPIC, FIRST_STAMP_NS, static_transforms(FIRST_STAMP_NS, _camera_poses(names)))
        write(PATH_TOPIC, FIRST_STAMP_NS, _driven_path(rollout, frames))
        for k in range(frames):
            stamp = FIRST_STAMP_NS + k * STEP_NS
            for topic, values in texts.items():
                if k == 0 or values[k] != values[k - 1]:
                    write(topic, stamp, string(data=values[k]))
            pictures = render(painter, views_of(rollout, every[k : k + 1], first[:1]))[0].numpy()
            for camera, pixels in zip(RIG, pictures, strict=True):
                name = names[camera.index]
                write(image_topic(name), stamp, jpeg_image(stamp, name, _jpeg(pixels, jpeg_quality)))
            for part in range(ODOMETRY_PER_STEP):
                share = part / ODOMETRY_PER_STEP
                write(ODOMETRY_TOPIC, stamp + round(share * STEP_NS), _odometry(rollout, k, share))
        write(ODOMETRY_TOPIC, FIRST_STAMP_NS + frames * STEP_NS, _odometry(rollout, frames, 0.0))


def _odometry(rollout: Rollout, step: int, share: float) -> Any:
    """Interpolated between two steps, a share of a step after the first."""
    poses = rollout.ego[step : step + 2, 0].double().numpy()
    x, y, yaw, speed, _ = poses[0] + share * (poses[1] - poses[0])
    stamp = FIRST_STAMP_NS + step * STEP_NS + round(share * STEP_NS)
    return odometry(stamp, FRAME_ID, np.array([x, y, 0.0]), yaw_quaternion(yaw), np.array([speed, 0.0, 0.0]))


def _driven_path(rollout: Rollout, frames: int) -> Any:
    types = message_store().types
    poses = []
    for k, (x, y, yaw) in enumerate(rollout.ego[:frames, 0, :3].double().tolist()):
        pose = types["geometry_msgs/msg/Pose"](
            position=types["geometry_msgs/msg/Point"](x, y, 0.0),
            orientation=types["geometry_msgs/msg/Quaternion"](*map(float, yaw_quaternion(np.array(yaw)))),
        )
        stamped = types["geometry_msgs/msg/PoseStamped"]
        poses.append(stamped(header=header(FIRST_STAMP_NS + k * STEP_NS, FRAME_ID), pose=pose))
    return types["nav_msgs/msg/Path"](header=header(FIRST_STAMP_NS, FRAME_ID), poses=poses)


def _camera_poses(names: dict[int, str]) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Where the cameras are in base_link; mounting errors, as in any car, are not in the calibration."""
    return {
        names[camera.index]: (
            np.array([camera.x, camera.y, camera.z]),
            quaternion_multiply(yaw_quaternion(np.array(camera.yaw)), FORWARD_OPTICAL),
        )
        for camera in RIG
    }


def _jpeg(pixels: NDArray[np.uint8], quality: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
