"""Training windows out of rollouts: which instants are usable, their histories and their futures, as tensors.

Example for B scenes and N windows, everything on one device:

    rollout = simulate(make_scenes(range(B), device), steps=264, disturbance=1.0)
    step, scene = usable_windows(rollout)  # [N], [N]
    positions, yaws = ego_history(rollout, step, scene)  # [N, 16, 2], [N, 16] in the ego frame at t0
    future = ego_future(rollout, step, scene)  # [N, 64, 3] x, y, yaw in the ego frame at t0
    codes = caption_codes(rollout, step, scene)  # [N]; sentence(situation_of(code))
    pictures = render(painter, views_of(rollout, step, scene))  # [N, 4, 96, 160, 3] uint8, the frames of t0
"""

from __future__ import annotations

import torch
from torch import Tensor

from flashdrive_ros.world.simulation import Rollout

HISTORY_STEPS = 16
FUTURE_STEPS = 64


def usable_windows(rollout: Rollout) -> tuple[Tensor, Tensor]:
    """(step [N], scene [N]) of all instants with 1.5 s of history and an undisturbed future of 6.4 s, by step."""
    count = rollout.steps - FUTURE_STEPS
    disturbed = torch.cat([torch.zeros_like(rollout.disturbed[:1]), rollout.disturbed]).to(torch.int64).cumsum(0)
    calm = disturbed[FUTURE_STEPS : FUTURE_STEPS + count] == disturbed[:count]
    calm[: HISTORY_STEPS - 1] = False
    step, scene = calm.nonzero(as_tuple=True)
    return step, scene


def ego_history(rollout: Rollout, step: Tensor, scene: Tensor) -> tuple[Tensor, Tensor]:
    """Positions [N, 16, 2] m and yaws [N, 16] rad from t0 - 1.5 s to t0 (0) in base_link at t0."""
    pose = _in_ego_frame(rollout, step, scene, torch.arange(1 - HISTORY_STEPS, 1, device=step.device))
    return pose[..., :2], pose[..., 2]


def ego_future(rollout: Rollout, step: Tensor, scene: Tensor) -> Tensor:
    """[N, 64, 3] x m, y m, yaw rad from t0 + 0.1 s to t0 + 6.4 s in base_link at t0."""
    return _in_ego_frame(rollout, step, scene, torch.arange(1, FUTURE_STEPS + 1, device=step.device))


def _in_ego_frame(rollout: Rollout, step: Tensor, scene: Tensor, offsets: Tensor) -> Tensor:
    poses = rollout.ego[step[:, None] + offsets, scene[:, None], :3]
    now = rollout.ego[step, scene, :3]
    delta = poses - now[:, None]
    cos, sin = torch.cos(now[:, 2:3]), torch.sin(now[:, 2:3])
    x = cos * delta[..., 0] + sin * delta[..., 1]
    y = cos * delta[..., 1] - sin * delta[..., 0]
    yaw = torch.remainder(delta[..., 2] + torch.pi, 2 * torch.pi) - torch.pi
    return torch.stack([x, y, yaw], -1)
