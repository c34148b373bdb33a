"""Convert a Udacity front-camera video into a bag of four virtual cameras.

The pictures and their spacing in time are real. Everything else a planner needs is not in a video and is assumed: the
bag's custom_data says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from flashdrive_ros.bags import sensor_messages as messages
from flashdrive_ros.bags.write import create_bag
from flashdrive_ros.errors import DatasetError, ParameterError

CROPS = {
    "cross_left": (0.0, 0.0, 0.5, 1.0),
    "front_wide": (0.0, 0.0, 1.0, 1.0),
    "cross_right": (0.5, 0.0, 1.0, 1.0),
    "front_tele": (0.25, 0.33, 0.75, 0.83),
}
"""Left, top, right, bottom of each virtual camera as fractions of the frame."""
EPOCH_NS = 1_700_000_000_000_000_000
"""Stamp given to the video's time 0, which is not known."""
ODOMETRY_PERIOD_NS = 20_000_000
ODOMETRY_LEAD_NS = 2_000_000_000
"""Odometry before the first image: more than the 1.5 s of ego history that a planner wants."""
ODOMETRY_TAIL_NS = 200_000_000


@dataclass(frozen=True)
class UdacitySettings:
    """What to take from the video, and what to assume."""

    start_s: float = 0.0
    duration_s: float | None = None
    """None: to the end."""
    width: int = 480
    """Pixels, of every virtual camera."""
    jpeg_quality: int = 85
    assumed_speed_mps: float = 25.0

    def __post_init__(self) -> None:
        if not 0 <= self.start_s < float("inf"):
            raise ParameterError(f"--start-s {self.start_s}: expected a time of 0 s or later")
        if self.duration_s is not None and not 0 < self.duration_s < float("inf"):
            raise ParameterError(f"--duration-s {self.duration_s}: expected more than 0 s")
        if not 32 <= self.width <= 4096:
            raise ParameterError(f"--width {self.width}: expected 32 to 4096 pixels")
        if not 1 <= self.jpeg_quality <= 95:
            raise ParameterError(f"--jpeg-quality {self.jpeg_quality}: expected 1 to 95")
        if not 0 <= self.assumed_speed_mps <= 70:
            raise ParameterError(f"--assumed-speed-mps {self.assumed_speed_mps}: expected 0 to 70 m/s")


def convert_udacity(video: Path, output: Path, settings: UdacitySettings) -> dict[str, Any]:
    """Write the four virtual cameras and the assumed odometry as a bag; returns what was written.

    Raises DatasetError naming file, found and expected; BagError when `output` exists.
    """
    topics = {messages.image_topic(camera): messages.COMPRESSED_IMAGE for camera in CROPS}
    topics[messages.ODOMETRY_TOPIC] = messages.ODOMETRY
    stamps_ns: list[int] = []
    odometry_ns = 0
    with create_bag(output, topics, _custom_data(video, settings)) as write:
        for stamp_ns, picture in video_frames(video, settings):
            if not stamps_ns:
                odometry_ns = start_ns = stamp_ns - ODOMETRY_LEAD_NS
            stamps_ns.append(stamp_ns)
            while odometry_ns <= stamp_ns:
                write(
                    messages.ODOMETRY_TOPIC,
                    odometry_ns,
                    straight_line(odometry_ns, start_ns, settings.assumed_speed_mps),
                )
                odometry_ns += ODOMETRY_PERIOD_NS
            for camera, crop in CROPS.items():
                jpeg = encode_jpeg(crop_and_resize(picture, crop, settings.width), settings.jpeg_quality)
                write(messages.image_topic(camera), stamp_ns, messages.jpeg_image(stamp_ns, camera, jpeg))
        if not stamps_ns:
            asked = f"from {settings.start_s} s" + (f" for {settings.duration_s} s" if settings.duration_s else "")
            raise DatasetError(f"{video}: found no frame {asked}, expected at least one")
        # A planner interpolates the odometry at the last image, so it goes on a little behind it.
        while odometry_ns <= stamps_ns[-1] + ODOMETRY_TAIL_NS:
            write(
                messages.ODOMETRY_TOPIC, odometry_ns, straight_line(odometry_ns, start_ns, settings.assumed_speed_mps)
            )
            odometry_ns += ODOMETRY_PERIOD_NS
    return {
        "output": str(output),
        "frames_per_camera": len(stamps_ns),
        "cameras": list(CROPS),
        "first_stamp_ns": stamps_ns[0],
        "last_stamp_ns": stamps_ns[-1],
        "assumed_speed_mps": settings.assumed_speed_mps,
    }


def video_frames(video: Path, settings: UdacitySettings) -> Iterator[tuple[int, Image.Image]]:
    """(stamp in ns, RGB picture) of every frame in the chosen part, stamped by its own presentation time."""
    try:
        import av
    except ImportError as error:
        raise ParameterError("reading a video needs PyAV: pip install 'flashdrive_ros[video]'") from error
    if not video.is_file():
        raise DatasetError(f"{video}: found no file, expected a video")
    # Through text, so that 1.0 s + 2.6 s is the frame boundary 3.6 s and not a little more.
    start_s = Fraction(str(settings.start_s))
    end_s = None if settings.duration_s is None else start_s + Fraction(str(settings.duration_s))
    try:
        with av.open(str(video)) as container:
            if not container.streams.video:
                raise DatasetError(f"{video}: found no video stream, expected one")
            for frame in container.decode(container.streams.video[0]):
                if frame.pts is None or frame.time_base is None:
                    raise DatasetError(
                        f"{video}: found a frame without a presentation time, expected one on every frame"
                    )
                seconds = Fraction(frame.pts) * frame.time_base
                if end_s is not None and seconds >= end_s:
                    return
                if seconds >= start_s:
                    yield EPOCH_NS + round(seconds * 1_000_000_000), frame.to_image()  # type: ignore[no-untyped-call]  # av types only a part of its interface
    except (av.FFmpegError, OSError) as error:
        raise DatasetError(f"{video}: found {error}, expected a video that FFmpeg can decode") from error


def crop_and_resize(picture: Image.Image, crop: tuple[float, float, float, float], width: int) -> Image.Image:
    """The part `crop` (fractions: left, top, right, bottom) of a picture, `width` pixels wide, its aspect kept."""
    left, top, right, bottom = crop
    box = (
        round(left * picture.width),
        round(top * picture.height),
        round(right * picture.width),
        round(bottom * picture.height),
    )
    height = round(width * (box[3] - box[1]) / (box[2] - box[0]))
    return picture.crop(box).resize((width, height), Image.Resampling.LANCZOS)


def encode_jpeg(picture: Image.Image, quality: int) -> bytes:
    stream = BytesIO()
    picture.save(stream, "JPEG", quality=quality, optimize=True)
    return stream.getvalue()


def straight_line(stamp_ns: int, start_ns: int, speed_mps: float) -> Any:
    """Odometry message of a car that drives along x of `odom` at constant speed, at 0 m at `start_ns`."""
    position_m = np.array([speed_mps * (stamp_ns - start_ns) / 1e9, 0.0, 0.0])
    ahead = np.array([0.0, 0.0, 0.0, 1.0])
    return messages.odometry(stamp_ns, "odom", position_m, ahead, np.array([speed_mps, 0.0, 0.0]))


def _custom_data(video: Path, settings: UdacitySettings) -> dict[str, str]:
    return {
        "source": f"{video.name}, Udacity CarND lane line videos, Copyright (c) 2016-2019 Udacity, Inc.",
        "licence": "MIT",
        "not_a_calibrated_rig": "four virtual cameras cropped from one real front camera; no calibration is known",
        "crops": "; ".join(f"{camera} = {crop}" for camera, crop in CROPS.items()) + " (left, top, right, bottom)",
        "stamps": f"presentation time of each frame; time 0 of the video was set to {EPOCH_NS} ns",
        "odometry": (
            f"ASSUMED, not measured: straight line at {settings.assumed_speed_mps} m/s, 50 Hz, "
            f"from {ODOMETRY_LEAD_NS / 1e9} s before the first image"
        ),
        "assumed_speed_mps": str(settings.assumed_speed_mps),
    }
