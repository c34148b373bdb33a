"""The state of B scenes at one instant, and the first one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flashdrive_ros.world import layout
from flashdrive_ros.world.scene import Scenes

DT_S = 0.1


@dataclass(frozen=True)
class State:
    """Everything that changes. Vehicle 0 is the ego; its station is that of the route point nearest to it."""

    step: int
    """Steps of 0.1 s since the start."""
    station: Tensor
    """[B, 22] m, rear axle, along each vehicle's path."""
    speed: Tensor
    """[B, 22] m/s, never negative."""
    acceleration: Tensor
    """[B, 22] m/s2"""
    ego: Tensor
    """[B, 4] x m, y m, heading rad, curvature 1/m of the ego (rear axle)."""
    walked: Tensor
    """[B, 4] m since the walker set out; 0 while waiting."""
    stopped: Tensor
    """[B, 4, 3] bool: this vehicle of the route has stopped at this junction's stop sign."""
    cause: Tensor
    """[B, 3] int64: cause, object, detail that the ego acts on (see causes.py), held against flicker."""
    new_cause: Tensor
    """[B, 3] int64: the cause that would replace it."""
    new_cause_steps: Tensor
    """[B] int64: for how many steps in a row it has been so."""


def initial_state(scenes: Scenes) -> State:
    """Step 0 of every scene."""
    batch, device = len(scenes), scenes.seeds.device
    at = route_pose(scenes, scenes.start_station[:, :1])[:, 0]
    lateral, turned = scenes.ego_start.unbind(-1)
    x = at[:, 0] - torch.sin(at[:, 2]) * lateral
    y = at[:, 1] + torch.cos(at[:, 2]) * lateral
    nothing = torch.zeros(batch, 3, dtype=torch.int64, device=device)
    return State(
        step=0,
        station=scenes.start_station,
        speed=torch.where(scenes.vehicle, scenes.start_speed, 0.0),
        acceleration=torch.zeros_like(scenes.start_speed),
        ego=torch.stack([x, y, at[:, 2] + turned, torch.zeros_like(x)], -1),
        walked=torch.zeros(batch, layout.WALKERS, device=device),
        stopped=torch.zeros(batch, layout.ROUTE_VEHICLES, layout.JUNCTIONS, dtype=torch.bool, device=device),
        cause=nothing,
        new_cause=nothing,
        new_cause_steps=torch.zeros(batch, dtype=torch.int64, device=device),
    )


def along(table: Tensor, station: Tensor) -> Tensor:
    """Linear interpolation of a table [B, 480, d] with one row a metre at stations [B, n]; [B, n, d]."""
    row = station.clamp(0, layout.PATH_POINTS - 1.001)
    whole = row.to(torch.int64)
    part = (row - whole)[..., None]
    index = whole[..., None].expand(-1, -1, table.shape[-1])
    low, high = torch.gather(table, 1, index), torch.gather(table, 1, index + 1)
    return low + part * (high - low)


def route_pose(scenes: Scenes, station: Tensor) -> Tensor:
    """[B, n, 4] x, y, heading, allowed speed of the route at stations [B, n]."""
    return along(scenes.path[:, layout.ROUTE], station)


def on_paths(scenes: Scenes, station: Tensor) -> Tensor:
    """[B, 22, 4] x, y, heading, allowed speed of every vehicle's path at its station [B, 22]."""
    batch, device = len(scenes), station.device
    path_of = torch.tensor(layout.PATH_OF_VEHICLE, device=device)
    row = station.clamp(0, layout.PATH_POINTS - 1.001)
    whole = row.to(torch.int64)
    table = scenes.path.view(batch, layout.PATHS * layout.PATH_POINTS, 4)
    index = (path_of * layout.PATH_POINTS + whole)[..., None].expand(-1, -1, 4)
    low, high = torch.gather(table, 1, index), torch.gather(table, 1, index + 1)
    return low + (row - whole)[..., None] * (high - low)


def vehicle_poses(scenes: Scenes, state: State) -> Tensor:
    """[B, 22, 3] x, y, heading of every vehicle's rear axle in the world."""
    poses = on_paths(scenes, state.station)[..., :3].clone()
    poses[:, layout.EGO] = state.ego[:, :3]
    return poses


def light_states(light_times: Tensor, time_s: float | Tensor) -> tuple[Tensor, Tensor]:
    """GREEN, AMBER or RED [B, 3] for the main and for the crossing road of each junction; light_times [B, 3, 3]."""
    main, crossing, offset = light_times.unbind(-1)
    phase = torch.remainder(time_s + offset, main + crossing + 10.0)
    after = phase - main - 5.0
    for_main = torch.where(phase < main, layout.GREEN, torch.where(phase < main + 3.0, layout.AMBER, layout.RED))
    crossing_runs = torch.where(
        after < crossing, layout.GREEN, torch.where(after < crossing + 3.0, layout.AMBER, layout.RED)
    )
    return for_main, torch.where(after >= 0, crossing_runs, layout.RED)


def walker_offsets(scenes: Scenes, state: State) -> Tensor:
    """[B, 4] m: how far left of the crossed road's middle each walker is."""
    road = scenes.crosswalk_road.repeat_interleave(layout.WALKERS_PER_CROSSWALK, 1)
    edge = torch.where(road == 0, scenes.main_half_width[:, None], layout.LANE_WIDTH_M) + 1.0
    return scenes.walker_direction * (torch.minimum(state.walked, 2 * edge + 2.0) - edge)
