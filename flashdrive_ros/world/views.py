"""What is rendered: instants of scenes, and the boxes that stand there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flashdrive_ros.world import layout
from flashdrive_ros.world.geometry import WALKER_SIZE_M, footprint, walker_positions
from flashdrive_ros.world.scene import Scenes
from flashdrive_ros.world.simulation import Rollout, brake_lights
from flashdrive_ros.world.state import State, light_states, vehicle_poses, walker_offsets

VEHICLE, PERSON, BUILDING, CROWN, POLE, LAMP = range(6)
"""Kinds of boxes."""
BOX_VALUES = 12
"""x, y, heading, half length, half width, bottom, top, kind, red, green, blue, brake lights; metres and 0 to 1."""
_LAMPS = torch.tensor([[0.05, 1.0, 0.35], [1.0, 0.75, 0.05], [1.0, 0.08, 0.06]])


@dataclass(frozen=True)
class Views:
    """N instants."""

    scene: Tensor
    """[N] int64: row of the scenes."""
    step: Tensor
    """[N] int64: time in 0.1 s; lights and noise depend on it."""
    ego: Tensor
    """[N, 3] x, y, heading of the rear axle."""
    vehicles: Tensor
    """[N, 22, 3]"""
    braking: Tensor
    """[N, 22] bool"""
    walkers: Tensor
    """[N, 4] m left of the middle of the crossed road."""


def views_of(rollout: Rollout, step: Tensor, scene: Tensor) -> Views:
    """Instants (step [N], scene [N]) of a rollout."""
    return Views(
        scene,
        step,
        rollout.ego[step, scene, :3],
        rollout.vehicles[step, scene],
        rollout.braking[step, scene],
        rollout.walkers[step, scene],
    )


def view_now(scenes: Scenes, state: State) -> Views:
    """The present instant of every scene."""
    scene = torch.arange(len(scenes), device=state.ego.device)
    poses = vehicle_poses(scenes, state)
    step = torch.full_like(scene, state.step)
    return Views(scene, step, state.ego[:, :3], poses, brake_lights(state), walker_offsets(scenes, state))


def static_boxes(scenes: Scenes) -> Tensor:
    """[B, 120, 12] boxes that never move: parked cars, buildings, trees, poles and stop signs; height 0 for none."""
    sizes = torch.tensor(layout.VEHICLE_SIZES, device=scenes.seeds.device)[scenes.parked_kind]
    colours = torch.tensor(layout.COLOURS, device=scenes.seeds.device)
    parked = _boxes(
        scenes.parked_pose,
        sizes[..., :2] / 2,
        0.0,
        sizes[..., 2] * scenes.parked,
        VEHICLE,
        colours[scenes.parked_colour],
    )
    place, half, height = scenes.objects[..., :3], scenes.objects[..., 3:5], scenes.objects[..., 5]
    tree = scenes.object_tree
    hue = torch.frac(height * 7.31)[..., None]
    wall = torch.tensor([0.62, 0.5, 0.42], device=hue.device) + hue * torch.tensor([0.1, 0.2, 0.3], device=hue.device)
    leaf = torch.tensor([0.16, 0.36, 0.12], device=hue.device) + hue * torch.tensor(
        [0.1, 0.14, 0.05], device=hue.device
    )
    solid = _boxes(
        place,
        half,
        torch.where(tree & (height > 0), 1.9, 0.0),
        height,
        torch.where(tree, CROWN, BUILDING),
        torch.where(tree[..., None], leaf, wall),
    )
    bark = torch.tensor([0.27, 0.2, 0.14], device=hue.device).expand_as(leaf)
    trunk = _boxes(place, torch.full_like(half, 0.25), 0.0, torch.where(tree & (height > 0), 1.9, 0.0), POLE, bark)
    return torch.cat([parked, solid, trunk, _poles(scenes)], 1)


def _poles(scenes: Scenes) -> Tensor:
    """Poles of the lights beside the stop line and behind the junction, and stop signs; [B, 18, 12]."""
    lights = scenes.junction & (scenes.control == layout.LIGHTS)
    signs = scenes.junction & (scenes.control == layout.STOP_SIGN)
    parts = []
    grey, red = torch.tensor([0.3, 0.3, 0.32]), torch.tensor([0.85, 0.05, 0.06])
    for place in lamp_places(scenes):
        half = torch.full_like(place[..., :2], 0.12)
        parts.append(_boxes(place, half, 0.0, 3.2 * lights, POLE, grey.to(place).expand_as(place)))
    place = lamp_places(scenes)[0]
    half = torch.full_like(place[..., :2], 0.08)
    parts.append(_boxes(place, half, 0.0, 1.7 * signs, POLE, grey.to(place).expand_as(place)))
    half = torch.tensor([0.1, 0.5], device=place.device).expand_as(place[..., :2])
    parts.append(_boxes(place, half, torch.where(signs, 1.7, 0.0), 2.7 * signs, LAMP, red.to(place).expand_as(place)))
    return torch.cat(parts, 1)


def lamp_places(scenes: Scenes) -> list[Tensor]:
    """[B, 3, 3] x, y, heading of four lamps of each junction: ego's near and far, oncoming's near, crossing's."""
    x, y, heading = scenes.junction_frame.unbind(-1)
    edge = scenes.main_half_width[:, None] + 0.8
    places = []
    # Heading: the way that the traffic goes which the lamp is for.
    for forward, left, turned in (
        (-17.5, -1.0, 0.0),
        (13.0, -1.0, 0.0),
        (17.5, 1.0, torch.pi),
        (-5.0, 1.0, -torch.pi / 2),
    ):
        along, across = forward, left * edge * (1.0 if abs(forward) > 10 else 1.6)
        px = x + torch.cos(heading) * along - torch.sin(heading) * across
        py = y + torch.sin(heading) * along + torch.cos(heading) * across
        places.append(torch.stack([px, py, heading + turned], -1))
    return places


def moving_boxes(scenes: Scenes, views: Views) -> Tensor:
    """[N, 21 + 4 + 12, 12] vehicles without the ego, walkers and lamps."""
    scene, device = views.scene, views.ego.device
    size, colours = scenes.vehicle_size[scene, 1:], torch.tensor(layout.COLOURS, device=device)
    box = footprint(views.vehicles[:, 1:], size[..., 0], size[..., 1])
    colour = colours[scenes.vehicle_colour[scene, 1:]]
    height = size[..., 2] * scenes.vehicle[scene, 1:]
    vehicles = _boxes(box[..., :3], box[..., 3:5], 0.0, height, VEHICLE, colour, views.braking[:, 1:])
    position = walker_positions_of(scenes, views)
    half = torch.full_like(position[..., :2], WALKER_SIZE_M[0] / 2)
    tall = WALKER_SIZE_M[2] * scenes.walker[scene]
    people = _boxes(position, half, 0.0, tall, PERSON, colours[scenes.walker_colour[scene]])
    return torch.cat([vehicles, people, _lamps(scenes, views)], 1)


def walker_positions_of(scenes: Scenes, views: Views) -> Tensor:
    """[N, 4, 3] x, y, heading of the walkers."""
    frames = scenes.crosswalk_frame[views.scene]
    position = walker_positions(frames, views.walkers)
    heading = frames[..., 2].repeat_interleave(layout.WALKERS_PER_CROSSWALK, 1)
    return torch.cat([position, heading[..., None]], -1)


def _lamps(scenes: Scenes, views: Views) -> Tensor:
    picked = scenes.light_times[views.scene]
    main, crossing = light_states(picked, views.step[:, None] * 0.1)
    there = (scenes.junction & (scenes.control == layout.LIGHTS))[views.scene]
    colours = _LAMPS.to(picked.device)
    parts = []
    for place, state in zip(lamp_places(scenes), (main, main, main, crossing), strict=True):
        at = place[views.scene]
        half = torch.full_like(at[..., :2], 0.45)
        parts.append(_boxes(at, half, torch.where(there, 3.2, 0.0), 4.3 * there, LAMP, colours[state]))
    return torch.cat(parts, 1)


def _boxes(
    pose: Tensor,
    half: Tensor,
    bottom: float | Tensor,
    top: Tensor,
    kind: int | Tensor,
    colour: Tensor,
    braking: Tensor | None = None,
) -> Tensor:
    def column(value: float | Tensor) -> Tensor:
        return (torch.zeros_like(top) + value)[..., None]

    brake = column(0.0 if braking is None else braking.to(top.dtype))
    return torch.cat([pose, half, column(bottom), column(top), column(kind), colour, brake], -1)
