"""How the ego follows a plan: pure pursuit sideways, the plan's own speeds lengthways; batched."""

from __future__ import annotations

import torch
from torch import Tensor

from flashdrive_ros.world.driving import HARDEST_BRAKING_MPS2, limited_curvature, pursuit_curvature
from flashdrive_ros.world.state import DT_S

SPEED_AHEAD_STEPS = 3
"""The speed of 0.3 s ahead is reached in 0.3 s: the plan's acceleration plus half of the speed error a step."""
MAX_ACCELERATION_MPS2 = 3.0
STOP_MPS2 = 2.5
"""Braking of an ego without a plan."""


def follow_plan(ego: Tensor, speed: Tensor, plan: Tensor, age_steps: int) -> Tensor:
    """Controls (acceleration, curvature) [B, 2] now.

    ego [B, 4] x, y, heading, curvature; speed [B]; plan [B, n, 3] world x, y, speed at t0 + 0.1 s ...; age_steps: steps
    since t0. The pursued point lies 0.7 s (3 to 14 m) ahead on the planned path, or is its last one. A plan that has
    run out, or that stands still within a metre, keeps the steering angle; the former brakes with 2.5 m/s2.
    """
    count = plan.shape[1]
    wanted = plan[:, min(age_steps + SPEED_AHEAD_STEPS, count) - 1, 2]
    acceleration = (wanted - speed) / (SPEED_AHEAD_STEPS * DT_S)
    if age_steps >= count:
        acceleration = torch.full_like(speed, -STOP_MPS2)
    ahead = (0.7 * speed + 1.8).clamp(3.0, 14.0)[:, None]
    rest = plan[:, min(age_steps, count - 1) :, :2]
    distance = torch.linalg.vector_norm(rest - ego[:, None, :2], dim=-1)
    reached = distance >= ahead
    index = torch.where(reached.any(1), reached.to(torch.int64).argmax(1), rest.shape[1] - 1)
    target = torch.gather(rest, 1, index[:, None, None].expand(-1, 1, 2))[:, 0]
    far = torch.gather(distance, 1, index[:, None])[:, 0]
    curvature = torch.where(far > 1.0, pursuit_curvature(ego, target), ego[:, 3])
    curvature = limited_curvature(ego[:, 3], curvature, speed)
    return torch.stack([acceleration.clamp(-HARDEST_BRAKING_MPS2, MAX_ACCELERATION_MPS2), curvature], -1)
