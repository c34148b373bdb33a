"""What the intake is told: cameras, grid and tolerances, validated once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flashdrive_ros.cameras import BY_NAME, CAMERAS
from flashdrive_ros.errors import ParameterError

FRONT_WIDE = BY_NAME["front_wide"].index


@dataclass(frozen=True)
class IntakeSettings:
    """Cameras and time rules of one intake; raises ParameterError, naming the setting, for a value of no use."""

    cameras: tuple[int, ...]
    """Alpamayo camera indices, in any order, each once."""
    reference_camera: int | None = None
    """The camera whose stamps are t0; None: front_wide when configured, else the lowest index."""
    stride_s: float = 0.1
    tolerance_s: float = 0.05
    """Largest |frame stamp - t0| of a camera."""
    history_steps: int = 16
    history_gap_s: float = 0.2
    silent_strides: int = 3
    """How far the reference camera runs past t0 before a window stops waiting for a camera or the odometry."""
    jump_back_s: float = 1.0
    """A stamp this much before its topic's newest is a new run (bag loop, clock reset); less is one late message."""

    def __post_init__(self) -> None:
        for camera in self.cameras:
            if camera not in range(len(CAMERAS)):
                raise ParameterError(f"cameras: {camera!r} is not a camera index (0 to {len(CAMERAS) - 1})")
        if not self.cameras or len(set(self.cameras)) != len(self.cameras):
            raise ParameterError(f"cameras: {self.cameras} must name at least one camera and each only once")
        if self.reference_camera is not None and self.reference_camera not in self.cameras:
            raise ParameterError(f"reference_camera: {self.reference_camera} is not among the cameras {self.cameras}")
        for name in ("stride_s", "tolerance_s", "history_gap_s", "jump_back_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ParameterError(f"{name}: {value} must be a finite number of seconds above 0")
        if self.tolerance_s > self.stride_s:
            raise ParameterError(f"tolerance_s: {self.tolerance_s} must not exceed stride_s {self.stride_s}")
        for name, least in (("history_steps", 2), ("silent_strides", 1)):
            if getattr(self, name) < least:
                raise ParameterError(f"{name}: {getattr(self, name)} must be at least {least}")

    @property
    def reference(self) -> int:
        """The reference camera's index."""
        if self.reference_camera is not None:
            return self.reference_camera
        return FRONT_WIDE if FRONT_WIDE in self.cameras else min(self.cameras)


def camera_indices(names: Sequence[str], required: Sequence[int]) -> tuple[int, ...]:
    """Ascending indices of cameras configured by name in any order.

    Raises ParameterError for an unknown name, a name given twice, or a missing camera of `required` (the model's).
    """
    for name in names:
        if name not in BY_NAME:
            raise ParameterError(f"cameras: '{name}' is unknown; known: {', '.join(BY_NAME)}")
        if list(names).count(name) > 1:
            raise ParameterError(f"cameras: '{name}' is given twice")
    indices = sorted(BY_NAME[name].index for name in names)
    missing = [CAMERAS[index].name for index in required if index not in indices]
    if missing:
        raise ParameterError(f"cameras: the model needs {', '.join(missing)} as well")
    return tuple(indices)
