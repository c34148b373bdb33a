"""Footprints: oriented boxes on the ground, whether they overlap, and whether they are on the road."""

from __future__ import annotations

import torch
from torch import Tensor

from flashdrive_ros.world import layout
from flashdrive_ros.world.driving import WHEELBASE_M
from flashdrive_ros.world.roads import CROSS_HALF_WIDTH, KERB_RADIUS, road_coordinates
from flashdrive_ros.world.scene import Scenes

TRACK_M = 1.6
WALKER_SIZE_M = (0.5, 0.6, 1.75)


def footprint(pose: Tensor, length: Tensor, width: Tensor) -> Tensor:
    """[..., 5] middle x, y, heading, half length, half width of vehicles with rear axle poses [..., 3]."""
    ahead = length / 2 - layout.REAR_OVERHANG_M
    x = pose[..., 0] + torch.cos(pose[..., 2]) * ahead
    y = pose[..., 1] + torch.sin(pose[..., 2]) * ahead
    return torch.stack([x, y, pose[..., 2], length / 2, width / 2], -1)


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """Whether oriented boxes [..., 5] overlap (separating axes; broadcasts)."""
    dx, dy = b[..., 0] - a[..., 0], b[..., 1] - a[..., 1]
    cos_a, sin_a = torch.cos(a[..., 2]), torch.sin(a[..., 2])
    cos_b, sin_b = torch.cos(b[..., 2]), torch.sin(b[..., 2])
    same, across = (cos_a * cos_b + sin_a * sin_b).abs(), (cos_a * sin_b - sin_a * cos_b).abs()
    along_a = (cos_a * dx + sin_a * dy).abs() <= a[..., 3] + b[..., 3] * same + b[..., 4] * across
    beside_a = (cos_a * dy - sin_a * dx).abs() <= a[..., 4] + b[..., 3] * across + b[..., 4] * same
    along_b = (cos_b * dx + sin_b * dy).abs() <= b[..., 3] + a[..., 3] * same + a[..., 4] * across
    beside_b = (cos_b * dy - sin_b * dx).abs() <= b[..., 4] + a[..., 3] * across + a[..., 4] * same
    return along_a & beside_a & along_b & beside_b


def walker_positions(crosswalk_frame: Tensor, offset: Tensor) -> Tensor:
    """[B, 4, 2] m of walkers that are `offset` [B, 4] left of the middle of the roads (frames [B, 2, 4]) they cross."""
    frame = crosswalk_frame.repeat_interleave(layout.WALKERS_PER_CROSSWALK, 1)
    # Two walkers of a crosswalk keep apart.
    beside = torch.tensor([-0.7, 0.7], device=offset.device).repeat(layout.CROSSWALKS)
    cos, sin = torch.cos(frame[..., 2]), torch.sin(frame[..., 2])
    x = frame[..., 0] - sin * offset + cos * beside
    y = frame[..., 1] + cos * offset + sin * beside
    return torch.stack([x, y], -1)


def ego_footprint(pose: Tensor) -> Tensor:
    """[..., 5] of the ego's rear axle pose [..., 3]."""
    length = torch.full_like(pose[..., 0], layout.EGO_LENGTH_M)
    return footprint(pose, length, torch.full_like(length, layout.EGO_WIDTH_M))


def wheels(pose: Tensor) -> Tensor:
    """[..., 4, 2] m: where the wheels of the ego with rear axle pose [..., 3] stand."""
    half = torch.full_like(pose[..., 0], WHEELBASE_M / 2)
    x = pose[..., 0] + torch.cos(pose[..., 2]) * half
    y = pose[..., 1] + torch.sin(pose[..., 2]) * half
    return corners(torch.stack([x, y, pose[..., 2], half, torch.full_like(half, TRACK_M / 2)], -1))


def collisions(scenes: Scenes, ego: Tensor, vehicles: Tensor, walkers: Tensor) -> Tensor:
    """[B, 80] bool: the ego (rear axle pose [B, 3]) overlaps vehicles 1 to 21, parked cars, walkers, scenery.

    vehicles [B, 22, 3] rear axle poses, walkers [B, 4] offsets as in `Rollout`.
    """
    own = ego_footprint(ego)[:, None]
    moving = footprint(vehicles[:, 1:], scenes.vehicle_size[:, 1:, 0], scenes.vehicle_size[:, 1:, 1])
    sizes = torch.tensor(layout.VEHICLE_SIZES, device=ego.device)[scenes.parked_kind]
    parked = torch.cat([scenes.parked_pose, sizes[..., :2] / 2], -1)
    where = walker_positions(scenes.crosswalk_frame, walkers)
    half = torch.full_like(where[..., :1], WALKER_SIZE_M[1] / 2)
    people = torch.cat([where, torch.zeros_like(half), half, half], -1)
    objects = scenes.objects[..., :5]
    there = [scenes.vehicle[:, 1:], scenes.parked, scenes.walker, scenes.objects[..., 5] > 0]
    return overlap(own, torch.cat([moving, parked, people, objects], 1)) & torch.cat(there, 1)


def on_road(scenes: Scenes, points: Tensor) -> Tensor:
    """[B, n] bool: ground points [B, n, 2] on a road or inside a junction's rounded kerbs."""
    scene = torch.arange(len(scenes), device=points.device)
    half = scenes.main_half_width[:, None]
    _, main, _ = road_coordinates(scenes.roads, 0, scene, points[..., 0], points[..., 1])
    main_edge = main.abs() - half
    inside = main_edge <= 0
    for j in range(layout.JUNCTIONS):
        station, offset, _ = road_coordinates(scenes.roads, 1 + j, scene, points[..., 0], points[..., 1])
        edge = offset.abs() - CROSS_HALF_WIDTH
        inside = inside | ((edge <= 0) & (station.abs() < 390.0)) | in_corner(edge, main_edge)
    return inside


def in_corner(first_edge: Tensor, second_edge: Tensor) -> Tensor:
    """Road between two crossing roads' edges and the rounded kerb; arguments are distances beyond the edges, m."""
    # A metre of overlap with both roads, so that no seam shows in pictures.
    square = (first_edge > -1) & (second_edge > -1) & (first_edge < KERB_RADIUS) & (second_edge < KERB_RADIUS)
    outside = (first_edge - KERB_RADIUS) ** 2 + (second_edge - KERB_RADIUS) ** 2 > KERB_RADIUS**2
    return square & outside


def corners(box: Tensor) -> Tensor:
    """[..., 4, 2] corners of oriented boxes [..., 5]."""
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0]], device=box.device)
    local = signs * box[..., None, 3:5]
    cos, sin = torch.cos(box[..., 2])[..., None], torch.sin(box[..., 2])[..., None]
    x = box[..., None, 0] + cos * local[..., 0] - sin * local[..., 1]
    y = box[..., None, 1] + sin * local[..., 0] + cos * local[..., 1]
    return torch.stack([x, y], -1)
