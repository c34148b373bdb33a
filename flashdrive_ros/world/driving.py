"""Car following and the ego's vehicle."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flashdrive_ros.world.state import DT_S

MAX_ACCELERATION_MPS2 = 1.5
COMFORTABLE_BRAKING_MPS2 = 2.0
HEADWAY_S = 1.4
STANDSTILL_GAP_M = 2.5
STOP_LINE_GAP_M = 0.8
HARDEST_BRAKING_MPS2 = 8.5
MAX_CURVATURE = 0.2
"""1/m: a turning circle of 10 m."""
WHEELBASE_M = 2.8


def free_acceleration(speed: Tensor, desired: Tensor) -> Tensor:
    """IDM without anybody ahead, m/s2."""
    return MAX_ACCELERATION_MPS2 * (1 - (speed / desired.clamp(min=1.0)) ** 4)


def following_acceleration(speed: Tensor, desired: Tensor, gap: Tensor, closing: Tensor) -> Tensor:
    """IDM behind a leader: gap in m bumper to bumper, closing = own speed - leader's speed, m/s2."""
    return _idm(speed, desired, gap, closing, STANDSTILL_GAP_M, HEADWAY_S)


def stopping_acceleration(speed: Tensor, desired: Tensor, gap: Tensor) -> Tensor:
    """IDM towards a line `gap` m ahead that the front bumper stops short of, m/s2."""
    return _idm(speed, desired, gap, speed, STOP_LINE_GAP_M, 0.8)


def _idm(speed: Tensor, desired: Tensor, gap: Tensor, closing: Tensor, standstill_m: float, headway_s: float) -> Tensor:
    brake = 2 * math.sqrt(MAX_ACCELERATION_MPS2 * COMFORTABLE_BRAKING_MPS2)
    wanted = standstill_m + (speed * headway_s + speed * closing / brake).clamp(min=0.0)
    pressed = MAX_ACCELERATION_MPS2 * (wanted / gap.clamp(min=0.1)) ** 2
    return (free_acceleration(speed, desired) - pressed).clamp(min=-HARDEST_BRAKING_MPS2)


def limited_acceleration(previous: Tensor, wanted: Tensor) -> Tensor:
    """Jerk limits: 3 m/s3 upwards, 6 downwards, 30 in an emergency (more than 3.5 m/s2 wanted)."""
    down = torch.where(wanted < -3.5, 30.0, 6.0) * DT_S
    return torch.minimum(torch.maximum(wanted, previous - down), torch.maximum(previous, -wanted.abs()) + 3.0 * DT_S)


def limited_curvature(previous: Tensor, wanted: Tensor, speed: Tensor) -> Tensor:
    """Steering rate: at most 0.25 1/m/s, and at most 5 m/s3 sideways jerk."""
    rate = (5.0 / speed.clamp(min=0.5) ** 2).clamp(max=0.25) * DT_S
    wanted = wanted.clamp(-MAX_CURVATURE, MAX_CURVATURE)
    return torch.minimum(torch.maximum(wanted, previous - rate), previous + rate)


def bicycle(ego: Tensor, speed: Tensor, acceleration: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the kinematic bicycle model from pose [B, 4] and speed [B]; new pose (with this curvature) and speed.

    The pose is the rear axle's, so the curvature is tan(steering angle) / wheelbase and no slip angle appears. The
    step is an exact arc of the mean speed; the car never rolls backwards.
    """
    faster = (speed + acceleration * DT_S).clamp(min=0.0)
    way = (speed + faster) / 2 * DT_S
    middle = ego[:, 2] + curvature * way / 2
    # chord of the arc: sin(half angle) / (half angle)
    chord = way * torch.sinc(curvature * way / (2 * math.pi))
    x, y = ego[:, 0] + chord * torch.cos(middle), ego[:, 1] + chord * torch.sin(middle)
    return torch.stack([x, y, ego[:, 2] + curvature * way, curvature], -1), faster


def pursuit_curvature(ego: Tensor, target: Tensor) -> Tensor:
    """Curvature [B] of the arc from a pose [B, 4] through a point [B, 2]."""
    dx, dy = target[:, 0] - ego[:, 0], target[:, 1] - ego[:, 1]
    left = -torch.sin(ego[:, 2]) * dx + torch.cos(ego[:, 2]) * dy
    return 2 * left / (dx**2 + dy**2).clamp(min=1.0)
