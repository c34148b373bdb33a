"""Distances between sampled and driven trajectories, batched in torch."""

from __future__ import annotations

import torch
from torch import Tensor

from flashdrive_ros.model.config import ActionConfig


def positions(actions: Tensor, speed_mps: Tensor, config: ActionConfig) -> Tensor:
    """[..., waypoints, 2] positions of normalised `actions` from `speed_mps` [...], the unicycle of spec A.10."""
    dt = config.dt_s
    actions = actions.double()
    acceleration = actions[..., 0] * config.acceleration_std + config.acceleration_mean
    curvature = actions[..., 1] * config.curvature_std + config.curvature_mean
    gained = torch.cumsum(acceleration, -1) * dt
    speed = speed_mps.double()[..., None] + torch.cat([torch.zeros_like(gained[..., :1]), gained], -1)
    turned = torch.cumsum(curvature * (speed[..., :-1] * dt + acceleration * dt**2 / 2), -1)
    heading = torch.cat([torch.zeros_like(turned[..., :1]), turned], -1)
    velocity = torch.stack([speed * heading.cos(), speed * heading.sin()], -1)
    return torch.cumsum((velocity[..., :-1, :] + velocity[..., 1:, :]) / 2 * dt, -2)


def displacement(found: Tensor, driven: Tensor, speed_mps: Tensor, config: ActionConfig) -> Tensor:
    """[B, K] mean distance in m over the waypoints of K samples [B, K, n, 2] from the driven actions [B, n, 2]."""
    samples = positions(found, speed_mps[:, None].expand(-1, found.shape[1]), config)
    truth = positions(driven, speed_mps, config)
    return (samples - truth[:, None]).norm(dim=-1).mean(-1)
