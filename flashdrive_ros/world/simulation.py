"""Stepping scenes: the expert drives the ego, or somebody else's controls do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from flashdrive_ros.world import layout
from flashdrive_ros.world.driving import bicycle, limited_acceleration, limited_curvature
from flashdrive_ros.world.expert import decide, manoeuvre, nearest_station, steer, stops_made, walk
from flashdrive_ros.world.scene import Scenes
from flashdrive_ros.world.state import DT_S, State, initial_state, vehicle_poses, walker_offsets

HOLD_STEPS = 4
"""A cause is replaced once another has been there for so many steps."""
PUSH_MPS2 = 1.8
"""Sideways acceleration of a full disturbance."""


@dataclass(frozen=True)
class Rollout:
    """T steps of B scenes with their beginnings, step k at k * 0.1 s; everything in the world frame."""

    scenes: Scenes
    ego: Tensor
    """[T, B, 5] x m, y m, heading rad, speed m/s, acceleration m/s2 of the rear axle."""
    ego_station: Tensor
    """[T, B] m along the route."""
    vehicles: Tensor
    """[T, B, 22, 3] x, y, heading of every vehicle's rear axle, the ego's first."""
    speeds: Tensor
    """[T, B, 22] m/s"""
    braking: Tensor
    """[T, B, 22] bool: brake lights."""
    walkers: Tensor
    """[T, B, 4] m left of the middle of the crossed road."""
    cause: Tensor
    """[T, B, 3] int64, see causes.py."""
    manoeuvre: Tensor
    """[T, B, 2] int64: kind and parked car."""
    disturbed: Tensor
    """[T, B] bool: the step that leads away from here is disturbed."""

    @property
    def steps(self) -> int:
        return len(self.ego)


def simulate(scenes: Scenes, steps: int, disturbance: float = 0.0) -> Rollout:
    """Let the expert drive for `steps` steps of 0.1 s.

    `disturbance` scales the pushes of `Scenes.disturbance`: 1 to get off-centre situations to recover from.
    """
    return simulate_from(scenes, initial_state(scenes), steps, disturbance)


def simulate_from(scenes: Scenes, state: State, steps: int, disturbance: float = 0.0) -> Rollout:
    """What the expert would do from any state on; the state itself is left as it is."""
    frames = []
    for _ in range(steps):
        push, shove, disturbed = _disturbance(scenes, state, disturbance)
        acceleration, controls, cause = expert_controls(scenes, state, push, shove)
        state = hold_cause(state, cause)
        frames.append(_frame(scenes, state, disturbed))
        state = step(scenes, state, acceleration, controls)
    stacked = [torch.stack(values) for values in zip(*frames, strict=True)]
    return Rollout(scenes, *stacked)


def expert_controls(
    scenes: Scenes, state: State, push: Tensor | float = 0.0, shove: Tensor | float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Accelerations [B, 22] of everybody, (acceleration, curvature) [B, 2] of the ego and its cause [B, 3].

    `push` (1/m) and `shove` (m/s2) [B] are added to what the expert wants before its limits.
    """
    wanted, cause = decide(scenes, state)
    curvature = limited_curvature(state.ego[:, 3], steer(scenes, state) + push, state.speed[:, layout.EGO])
    wanted[:, layout.EGO] += shove
    acceleration = limited_acceleration(state.acceleration, wanted)
    return acceleration, torch.stack([acceleration[:, layout.EGO], curvature], -1), cause


def step(scenes: Scenes, state: State, acceleration: Tensor, ego_controls: Tensor) -> State:
    """0.1 s later: accelerations [B, 22] for the others, (acceleration, curvature) [B, 2] for the ego."""
    speed = (state.speed + acceleration * DT_S).clamp(min=0.0)
    speed = torch.where(scenes.vehicle, speed, 0.0)
    station = state.station + (state.speed + speed) / 2 * DT_S
    # At the end of its path a vehicle leaves the world for good: it stays at the last point, far from everybody.
    station = station.clamp(max=layout.PATH_POINTS - 1.0)
    done = (speed - state.speed) / DT_S
    ego, ego_speed = bicycle(state.ego, state.speed[:, layout.EGO], *ego_controls.unbind(-1))
    ego_done = (ego_speed - state.speed[:, layout.EGO]) / DT_S
    ego_station = nearest_station(scenes, state.station[:, layout.EGO], ego[:, :2])
    moved = replace(
        state,
        step=state.step + 1,
        station=torch.cat([ego_station[:, None], station[:, 1:]], 1),
        speed=torch.cat([ego_speed[:, None], speed[:, 1:]], 1),
        acceleration=torch.cat([ego_done[:, None], done[:, 1:]], 1),
        ego=ego,
        walked=walk(scenes, state),
    )
    return replace(moved, stopped=stops_made(scenes, moved))


def hold_cause(state: State, cause: Tensor) -> State:
    """Replace the held cause once the new one has lasted; the first step takes it at once."""
    if state.step == 0:
        return replace(state, cause=cause, new_cause=cause)
    same = (cause == state.new_cause).all(-1)
    steps = torch.where(same, state.new_cause_steps + 1, 1)
    held = torch.where((steps >= HOLD_STEPS)[:, None], cause, state.cause)
    return replace(state, cause=held, new_cause=cause, new_cause_steps=steps)


def _frame(scenes: Scenes, state: State, disturbed: Tensor) -> tuple[Tensor, ...]:
    motion = torch.stack([state.speed[:, layout.EGO], state.acceleration[:, layout.EGO]], -1)
    return (
        torch.cat([state.ego[:, :3], motion], -1),
        state.station[:, layout.EGO],
        vehicle_poses(scenes, state),
        state.speed,
        brake_lights(state),
        walker_offsets(scenes, state),
        state.cause,
        manoeuvre(scenes, state),
        disturbed,
    )


def brake_lights(state: State) -> Tensor:
    """[B, 22] bool: brakes harder than engine drag, or stands."""
    return (state.acceleration < -0.6) | (state.speed < 0.2)


def _disturbance(scenes: Scenes, state: State, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Curvature and acceleration [B] that are added to the ego's controls now, and whether any is."""
    start, duration, push, shove = scenes.disturbance.unbind(-1)
    time_s = state.step * DT_S
    now = (time_s >= start) & (time_s < start + duration) & (scale > 0)
    sideways = PUSH_MPS2 / state.speed[:, layout.EGO].clamp(min=5.0) ** 2
    curvature = scale * (now * push).sum(-1) * sideways
    return curvature, scale * (now * shove).sum(-1), now.any(-1)
