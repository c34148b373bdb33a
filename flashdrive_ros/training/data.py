"""Training windows made on the fly from the driving world; nothing is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from flashdrive_ros.model.config import ModelConfig
from flashdrive_ros.model.tokens import Encode
from flashdrive_ros.training.sequences import history_ids, padded_ids, route_ids
from flashdrive_ros.world.captions import caption_codes, route_codes, route_text, sentence, situation_of
from flashdrive_ros.world.renderer import Paint, make_painter, picture, render
from flashdrive_ros.world.scene import make_scenes
from flashdrive_ros.world.simulation import Rollout, simulate
from flashdrive_ros.world.views import views_of
from flashdrive_ros.world.windows import FUTURE_STEPS, HISTORY_STEPS, ego_history, usable_windows

STEPS = 264
"""Steps of a training scene: 20 s and the future of its last window."""
SMALLEST_WAY_M = 0.02
"""Below this way in a step its curvature says nothing and is taken as zero."""


@dataclass(frozen=True)
class Windows:
    """N windows on a device."""

    images: Tensor
    """[N, views * frames, height, width, 3] uint8, view by view, oldest first."""
    history: Tensor
    """[N, 48] ids"""
    route: Tensor
    """[N, route_capacity] ids, -1 where there is none."""
    reasoning: Tensor
    """[N, reasoning_capacity + 2] ids with cot_end and future_start, padded with -1."""
    actions: Tensor
    """[N, waypoints, 2] normalised acceleration and curvature."""
    speed_mps: Tensor
    """[N] at t0."""


@dataclass(frozen=True)
class Coder:
    """Texts to ids, each distinct text once."""

    config: ModelConfig
    encode: Encode
    captions: dict[int, list[int]]
    routes: dict[int, list[int]]

    def caption(self, code: int) -> list[int]:
        """Ids of a caption code with the closing tokens, cut to the model's budget."""
        if code not in self.captions:
            ids = self.encode(sentence(situation_of(code)))[: self.config.prompt.reasoning_capacity]
            self.captions[code] = [*ids, self.config.tokens.cot_end, self.config.tokens.future_start]
        return self.captions[code]

    def route(self, code: int) -> list[int]:
        """Ids of a route code with its delimiters."""
        if code not in self.routes:
            self.routes[code] = route_ids(route_text(code), self.config, self.encode)
        return self.routes[code]


def expert_actions(rollout: Rollout, step: Tensor, scene: Tensor, config: ModelConfig) -> Tensor:
    """[N, waypoints, 2] normalised actions that lead along the expert's next 6.4 s.

    Speeds and headings are the simulation's own, so that no smoothing is needed: a_k is the change of speed, kappa_k
    the change of heading over the way of the step (spec A.10, training direction without noise).
    """
    action = config.action
    span = torch.arange(FUTURE_STEPS + 1, device=step.device)
    ego = rollout.ego[step[:, None] + span, scene[:, None]].double()
    speed, heading = ego[..., 3], ego[..., 2]
    acceleration = torch.diff(speed, dim=1) / action.dt_s
    way = (speed[:, :-1] + speed[:, 1:]) / 2 * action.dt_s
    turned = torch.remainder(torch.diff(heading, dim=1) + torch.pi, 2 * torch.pi) - torch.pi
    curvature = torch.where(way > SMALLEST_WAY_M, turned / way.clamp(min=SMALLEST_WAY_M), 0.0)
    pairs = torch.stack(
        [
            (acceleration - action.acceleration_mean) / action.acceleration_std,
            (curvature - action.curvature_mean) / action.curvature_std,
        ],
        -1,
    )
    return pairs.float()


def make_windows(rollout: Rollout, pictures: Tensor, step: Tensor, scene: Tensor, coder: Coder) -> Windows:
    """Windows at instants (step [N], scene [N]); `pictures` [N, frames, views, height, width, 3], oldest first."""
    config, device = coder.config, step.device
    positions, _ = ego_history(rollout, step, scene)
    positions = torch.cat([positions, torch.zeros_like(positions[..., :1])], -1)
    captions = [coder.caption(code) for code in caption_codes(rollout, step, scene).tolist()]
    codes = route_codes(rollout.scenes, rollout.ego_station[step, scene], scene).tolist()
    return Windows(
        images=pictures.transpose(1, 2).flatten(1, 2),
        history=history_ids(positions, config),
        route=padded_ids([coder.route(code) for code in codes], config.prompt.route_capacity, device),
        reasoning=padded_ids(captions, config.prompt.reasoning_capacity + 2, device),
        actions=expert_actions(rollout, step, scene, config),
        speed_mps=rollout.ego[step, scene, 3],
    )


def painting(device: torch.device) -> Paint:
    """How pictures are painted: compiled on a GPU, where it pays within a minute."""
    return torch.compile(picture, dynamic=False) if device.type == "cuda" else picture


def render_frames(rollout: Rollout, step: Tensor, scene: Tensor, frames: int, paint: Paint) -> Tensor:
    """[N, frames, views, height, width, 3] uint8 pictures of the last `frames` steps, oldest first."""
    times = (step[:, None] + torch.arange(1 - frames, 1, device=step.device)).flatten()
    shown = views_of(rollout, times, scene.repeat_interleave(frames))
    pictures = render(make_painter(rollout.scenes), shown, 1024, paint)
    return pictures.view(len(step), frames, *pictures.shape[1:])


def stream_batches(
    coder: Coder, device: torch.device, first_seed: int, scenes: int, batch: int, shortest: int, longest: int
) -> Iterator[list[Windows]]:
    """Endless batches of consecutive windows, 0.1 s apart; their number is drawn between `shortest` and `longest`.

    Each window holds only its newest pictures, one a view, as a stream gets them.
    """
    seed, paint = first_seed, painting(device)
    while True:
        rollout = simulate(make_scenes(range(seed, seed + scenes), device), STEPS, disturbance=1.0)
        generator = torch.Generator(device).manual_seed(seed)
        step, scene = usable_windows(rollout)
        late = step >= HISTORY_STEPS - 1 + longest
        step, scene = step[late], scene[late]
        count = len(step) // batch * batch
        chosen = torch.randperm(len(step), generator=generator, device=device)[: min(count, 8 * batch)]
        for part in torch.split(chosen, batch):
            length = int(torch.randint(shortest, longest + 1, (1,), generator=generator, device=device))
            at, who = step[part], scene[part]
            pictures = render_frames(rollout, at, who, length, paint)
            yield [
                make_windows(rollout, pictures[:, index : index + 1], at - (length - 1 - index), who, coder)
                for index in range(length)
            ]
        seed += scenes


def window_batches(
    coder: Coder, device: torch.device, first_seed: int, scenes: int, batch: int, windows_per_scene: int
) -> Iterator[Windows]:
    """Endless batches: `scenes` new scenes at a time, `windows_per_scene` windows of each, mixed.

    The expert is disturbed off its path now and then; a window's own future is always undisturbed, so that it shows how
    to recover.
    """
    seed, paint = first_seed, painting(device)
    while True:
        rollout = simulate(make_scenes(range(seed, seed + scenes), device), STEPS, disturbance=1.0)
        generator = torch.Generator(device).manual_seed(seed)
        step, scene = usable_windows(rollout)
        count = min(len(step), scenes * windows_per_scene) // batch * batch
        chosen = torch.randperm(len(step), generator=generator, device=device)[:count]
        for part in torch.split(chosen, batch):
            at, who = step[part], scene[part]
            pictures = render_frames(rollout, at, who, coder.config.prompt.frames, paint)
            yield make_windows(rollout, pictures, at, who, coder)
        seed += scenes
