"""The four cameras: where they are on the car and how they see.

Picture model: cylindrical. Columns are equal steps of azimuth, rows equal steps of the tangent of elevation, both
`focal` pixels per unit: column = 80 - focal * azimuth, row = horizon - focal * height difference / ground distance.
Pixel centres are at half integers. A 120 degree camera keeps 1.6 times the resolution straight ahead that a pinhole
picture of this width would have, and vertical edges stay vertical, which makes rendering cheap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

HEIGHT, WIDTH = 96, 160
HORIZON_ROW = 44.0


@dataclass(frozen=True)
class RigCamera:
    """One camera; base_link is at the middle of the rear axle on the ground (x forward, y left, z up)."""

    index: int
    """Alpamayo camera index."""
    x: float
    y: float
    z: float
    yaw: float
    """rad, left positive."""
    field_of_view: float
    """rad, horizontal."""

    @property
    def focal(self) -> float:
        """Pixels per radian of azimuth and per unit of tan(elevation)."""
        return WIDTH / self.field_of_view


RIG: tuple[RigCamera, ...] = (
    RigCamera(0, 1.9, 0.95, 1.25, math.radians(60), math.radians(120)),
    RigCamera(1, 1.7, 0.0, 1.5, 0.0, math.radians(120)),
    RigCamera(2, 1.9, -0.95, 1.25, math.radians(-60), math.radians(120)),
    RigCamera(6, 1.7, 0.0, 1.5, 0.0, math.radians(30)),
)
"""Cross left, front wide, cross right, front tele."""
