"""The camera table of the Alpamayo family: index, topic name, prompt name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Camera:
    """One entry of the camera table (spec: camera order and names of Alpamayo 1.5)."""

    index: int
    name: str
    """Name in topics, parameters and file names."""
    prompt_name: str
    """Name in the model's prompt."""


CAMERAS: tuple[Camera, ...] = (
    Camera(0, "cross_left", "Front left camera"),
    Camera(1, "front_wide", "Front camera"),
    Camera(2, "cross_right", "Front right camera"),
    Camera(3, "rear_left", "Rear left camera"),
    Camera(4, "rear_tele", "Rear camera"),
    Camera(5, "rear_right", "Rear right camera"),
    Camera(6, "front_tele", "Front telephoto camera"),
)
BY_NAME: dict[str, Camera] = {camera.name: camera for camera in CAMERAS}
