"""Planning windows to measure with: random pictures, and the history of a car that speeds up, slows down and turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import cos, sin

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.model.config import PromptConfig
from flashdrive_ros.rotations import rotation_matrix, yaw_quaternion
from flashdrive_ros.window import CameraFrame, EgoHistory, EgoPose, PlanningWindow

FIRST_T0_NS = 1_700_000_000_000_000_000

_Pose = tuple[NDArray[np.float64], float]
"""Position [3] in metres and heading in radians, in the map."""


def made_windows(prompt: PromptConfig, picture_size: tuple[int, int], seed: int) -> Iterator[PlanningWindow]:
    """Endless windows one stride apart; every picture (width, height) is new noise. Equal seeds give equal windows."""
    random = np.random.default_rng(seed)
    poses: deque[_Pose] = deque(maxlen=prompt.history_steps)
    position, heading_rad = np.array([100.0, 200.0, 3.0]), 0.5
    step = window_id = 0
    while True:
        time_s = step * prompt.stride_s
        speed_mps = 12.0 + 4.0 * sin(0.3 * time_s)
        poses.append((position, heading_rad))
        if len(poses) == prompt.history_steps:
            pictures = tuple((camera, _noise_picture(random, picture_size)) for camera in prompt.cameras)
            yield _window(window_id, poses, speed_mps, prompt.stride_s, pictures)
            window_id += 1
        distance_m = speed_mps * prompt.stride_s
        position = position + distance_m * np.array([cos(heading_rad), sin(heading_rad), 0.0])
        heading_rad += 0.15 * sin(0.5 * time_s) * prompt.stride_s
        step += 1


def _window(
    window_id: int,
    poses: deque[_Pose],
    speed_mps: float,
    stride_s: float,
    pictures: tuple[tuple[int, NDArray[np.uint8]], ...],
) -> PlanningWindow:
    t0_ns = FIRST_T0_NS + window_id * round(stride_s * 1e9)
    position, heading_rad = poses[-1]
    positions = np.array([passed for passed, _ in poses])
    headings = np.array([heading for _, heading in poses])
    to_map = rotation_matrix(yaw_quaternion(np.array(heading_rad)))
    return PlanningWindow(
        window_id=window_id,
        t0_ns=t0_ns,
        frames=tuple(CameraFrame(camera, t0_ns, pixels) for camera, pixels in pictures),
        ego=EgoPose("map", position, yaw_quaternion(np.array(heading_rad)), speed_mps),
        history=EgoHistory((positions - position) @ to_map, rotation_matrix(yaw_quaternion(headings - heading_rad))),
        route_text="",
        spread_ns=0,
    )


def _noise_picture(random: np.random.Generator, picture_size: tuple[int, int]) -> NDArray[np.uint8]:
    width, height = picture_size
    return random.integers(0, 256, (height, width, 3), np.uint8)
