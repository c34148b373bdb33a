"""Roads as lateral offsets from a straight axis, and lanes sampled from them.

A road has a frame (origin, axis angle) and a table of its offset f(u), slope f'(u) and station s(u) at every metre of
the axis. That makes the way from a ground point to (station, lateral offset) two table look-ups: cheap enough for every
pixel. Roads therefore never bend more than about 45 degrees away from their axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROAD_POINTS = 801
LANE_WIDTH = 3.5
CROSS_HALF_WIDTH = 3.5
"""Cross roads have one lane each way."""
KERB_RADIUS = 8.0
"""Radius of the rounded kerbs at junctions."""


@dataclass(frozen=True)
class Roads:
    """R roads of B scenes."""

    origin: Tensor
    """[B, R, 2] m, where u = 0."""
    angle: Tensor
    """[B, R] rad, direction of the axis."""
    start: Tensor
    """[R] m, axis coordinate u of the first table row."""
    table: Tensor
    """[B, R, 801, 3]: f(u) m, f'(u), station m, at every metre of u."""


def bend_profile(u: Tensor, centre: Tensor, width: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
    """Offset and slope of bends whose slopes go from 0 to `change`: u [U]; the others [B, K]; result [B, U]."""
    x = (u[None, None, :] - centre[..., None]) / width[..., None]
    slope = change[..., None] / 2 * (1 + torch.tanh(x))
    # integral of 1 + tanh; log(2 cosh x) written so that it never overflows
    log_cosh = x.abs() + torch.log1p(torch.exp(-2 * x.abs()))
    offset = change[..., None] / 2 * width[..., None] * (x + log_cosh)
    return offset.sum(1), slope.sum(1)


def road_table(offset: Tensor, slope: Tensor, zero: int) -> Tensor:
    """[..., U, 3] table of f, f' and station; the station is 0 at row `zero`."""
    pace = torch.sqrt(1 + slope**2)
    steps = (pace[..., 1:] + pace[..., :-1]) / 2
    station = torch.cat([torch.zeros_like(steps[..., :1]), torch.cumsum(steps, -1)], -1)
    return torch.stack([offset, slope, station - station[..., zero : zero + 1]], -1)


def road_coordinates(roads: Roads, road: int, scene: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Station, lateral offset (left positive) and slope at the foot point of ground points.

    `scene` [N] picks the scene of every row of `x`, `y` [N, ...]. One Newton step finds the foot point: within 8 m of
    the road the offset is right to a few centimetres.
    """
    shape = (len(scene),) + (1,) * (x.dim() - 1)
    angle = roads.angle[scene, road].view(shape)
    dx = x - roads.origin[scene, road, 0].view(shape)
    dy = y - roads.origin[scene, road, 1].view(shape)
    cos, sin = torch.cos(angle), torch.sin(angle)
    u, v = cos * dx + sin * dy, cos * dy - sin * dx
    table = roads.table.view(-1, 3)
    first = ((scene * roads.table.shape[1] + road) * ROAD_POINTS).view(shape)
    start = roads.start[road]
    offset, slope, _ = _look_up(table, first, u - start)
    # Far from the road the foot point is of no interest; the bound keeps the step near.
    step = ((v - offset) * slope / (1 + slope**2)).clamp(-12, 12)
    foot = u + step
    offset, slope, station = _look_up(table, first, foot - start)
    scale = torch.rsqrt(1 + slope**2)
    along, across = u - foot, v - offset
    return station + (along + across * slope) * scale, (across - along * slope) * scale, slope


def _look_up(table: Tensor, first: Tensor, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    row = row.clamp(0, ROAD_POINTS - 1.001)
    whole = row.to(torch.int64)
    part = (row - whole).unsqueeze(-1)
    index = first + whole
    low, high = table[index], table[index + 1]
    mixed = low + part * (high - low)
    return mixed[..., 0], mixed[..., 1], mixed[..., 2]


def centreline(roads: Roads, road: int) -> tuple[Tensor, Tensor]:
    """Points [B, 801, 2] and headings [B, 801] of a road's centreline."""
    u = roads.start[road] + torch.arange(ROAD_POINTS, device=roads.angle.device, dtype=roads.table.dtype)
    offset, slope = roads.table[:, road, :, 0], roads.table[:, road, :, 1]
    angle = roads.angle[:, road, None]
    cos, sin = torch.cos(angle), torch.sin(angle)
    points = torch.stack([cos * u - sin * offset, sin * u + cos * offset], -1) + roads.origin[:, road, None]
    return points, angle + torch.atan(slope)


def lane(points: Tensor, heading: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
    """A line beside the centreline (offset [B], left positive): points [B, n, 2] and their stations [B, n]."""
    normal = torch.stack([-torch.sin(heading), torch.cos(heading)], -1)
    beside = points + offset[:, None, None] * normal
    return beside, stations_of(beside)


def stations_of(points: Tensor) -> Tensor:
    """Cumulative chord length [B, n] of polylines [B, n, 2]."""
    steps = torch.linalg.vector_norm(points[:, 1:] - points[:, :-1], dim=-1)
    return torch.cat([torch.zeros_like(steps[:, :1]), torch.cumsum(steps, -1)], -1)


def sample(values: Tensor, stations: Tensor, query: Tensor) -> Tensor:
    """Linear interpolation of values [B, n, d] at stations [B, n] (ascending) for query [B, m]; extrapolates."""
    after = torch.searchsorted(stations.contiguous(), query.contiguous()).clamp(1, stations.shape[1] - 1)
    low, high = torch.gather(stations, 1, after - 1), torch.gather(stations, 1, after)
    part = ((query - low) / (high - low))[..., None]
    wide = after[..., None].expand(-1, -1, values.shape[-1])
    first, second = torch.gather(values, 1, wide - 1), torch.gather(values, 1, wide)
    return first + part * (second - first)


def headings(points: Tensor) -> Tensor:
    """Continuous headings [..., n] of polylines [..., n, 2], central differences."""
    ahead = torch.cat([points[..., 1:, :], 2 * points[..., -1:, :] - points[..., -2:-1, :]], -2)
    behind = torch.cat([2 * points[..., :1, :] - points[..., 1:2, :], points[..., :-1, :]], -2)
    delta = ahead - behind
    raw = torch.atan2(delta[..., 1], delta[..., 0])
    turn = raw[..., 1:] - raw[..., :-1]
    turn = turn - 2 * torch.pi * torch.round(turn / (2 * torch.pi))
    return torch.cat([raw[..., :1], raw[..., :1] + torch.cumsum(turn, -1)], -1)
