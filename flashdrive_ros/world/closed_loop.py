"""Drive one scene with any planner at 10 Hz and measure how it went.

The expert drives until the planner's first plan is due; the first window is offered once there are 1.5 s of history.
A plan made from the window at t0 takes effect `latency_s` later, whatever the planner really took. The run ends early
at a collision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flashdrive_ros.plan import Plan, in_fixed_frame
from flashdrive_ros.reasons import ReasonCounts, Refusal
from flashdrive_ros.rotations import rotation_matrix, yaw_quaternion
from flashdrive_ros.window import CameraFrame, EgoHistory, EgoPose, PlanningWindow
from flashdrive_ros.world import layout
from flashdrive_ros.world.captions import route_codes, route_text
from flashdrive_ros.world.geometry import collisions, on_road, wheels
from flashdrive_ros.world.renderer import Painter, make_painter, render
from flashdrive_ros.world.rig import RIG
from flashdrive_ros.world.scene import Scenes, make_scenes
from flashdrive_ros.world.simulation import Rollout, expert_controls, simulate, step
from flashdrive_ros.world.state import DT_S, State, along, initial_state, vehicle_poses, walker_offsets
from flashdrive_ros.world.tracking import follow_plan
from flashdrive_ros.world.views import view_now
from flashdrive_ros.world.windows import HISTORY_STEPS

Planner = Callable[[PlanningWindow], Plan | Refusal]
FRAME_ID = "map"
STEP_NS = 100_000_000
FIRST_STAMP_NS = 1_000_000_000
HIT_KINDS = (
    ("vehicle", layout.VEHICLES - 1),
    ("parked", layout.PARKED),
    ("walker", layout.WALKERS),
    ("scenery", layout.OBJECTS),
)


@dataclass(frozen=True)
class ClosedLoopResult:
    """Measures of one run; distances in m, times in s."""

    seed: int
    driven_s: float
    """From the first plan's effect to the end."""
    collision: str
    """What was hit: vehicle, parked, walker or scenery; empty for nothing."""
    collision_s: float
    """Scene time of the collision, nan for none."""
    off_road_share: float
    """Share of the driven time with a wheel beyond the kerb."""
    wrong_lane_share: float
    """Share of the driven time with the rear axle more than half a lane off the lane's middle (not in junctions)."""
    progress_m: float
    expert_progress_m: float
    """Along the route since the first plan took effect; the expert's in the same scene and time."""
    expert_distance_mean_m: float
    expert_distance_max_m: float
    """Between ego and expert at the same time."""
    plan_deviation_m: float
    """Mean distance of consecutive plans' points for the same times."""
    strongest_acceleration_mps2: float
    strongest_braking_mps2: float
    strongest_jerk_mps3: float
    """Of accelerations averaged over 0.5 s."""
    strongest_lateral_mps2: float
    plans: int
    refusals: dict[str, int]
    """Reason code: how often."""


def run_closed_loop(seed: int, planner: Planner, duration_s: float = 20.0, latency_s: float = 0.1) -> ClosedLoopResult:
    """Run scene `seed`; the planner's stream must have been reset. latency_s is rounded to whole steps of 0.1 s."""
    scenes = make_scenes([seed])
    painter = make_painter(scenes)
    steps, latency = round(duration_s / DT_S), round(latency_s / DT_S)
    state = initial_state(scenes)
    states: list[State] = []
    plans: list[tuple[int, Tensor]] = []
    refusals: ReasonCounts = ReasonCounts()
    first_driven, hit = steps, ""
    for k in range(steps):
        states.append(state)
        hit = hit_kind(scenes, state) if k >= first_driven else ""
        if hit:
            break
        if k >= HISTORY_STEPS - 1:
            window = window_now(painter, states)
            answer = planner(window)
            if isinstance(answer, Refusal):
                refusals[answer.reason] += 1
            else:
                plans.append((k, world_plan(answer)))
        due = [(at, plan) for at, plan in plans if at + latency <= k]
        acceleration, controls, _ = expert_controls(scenes, state)
        if due:
            first_driven = min(first_driven, k)
            at, plan = due[-1]
            controls = follow_plan(state.ego, state.speed[:, layout.EGO], plan[None], k - at)
        state = step(scenes, state, acceleration, controls)
    return _measured(seed, scenes, states, first_driven, hit, plans, refusals)


def window_now(painter: Painter, states: list[State]) -> PlanningWindow:
    """The window of the newest state: rendered frames, true poses (float64), route text."""
    state = states[-1]
    pictures = render(painter, view_now(painter.scenes, state))[0].numpy()
    stamp = FIRST_STAMP_NS + state.step * STEP_NS
    frames = tuple(CameraFrame(camera.index, stamp, pictures[k]) for k, camera in enumerate(RIG))
    poses = np.array([past.ego[0, :3].tolist() for past in states[-HISTORY_STEPS:]])
    positions = np.concatenate([poses[:, :2], np.zeros((len(poses), 1))], axis=-1)
    quaternions = yaw_quaternion(poses[:, 2])
    matrices = rotation_matrix(quaternions)
    history = EgoHistory((positions - positions[-1]) @ matrices[-1], matrices[-1].T @ matrices)
    ego = EgoPose(FRAME_ID, positions[-1], quaternions[-1], float(state.speed[0, layout.EGO]))
    scene = torch.zeros(1, dtype=torch.int64)
    code = int(route_codes(painter.scenes, state.station[:, layout.EGO], scene)[0])
    return PlanningWindow(state.step, stamp, frames, ego, history, route_text(code), 0)


def world_plan(plan: Plan) -> Tensor:
    """[n, 3] x, y (world, m) and speed (m/s) of the plan's trajectory to drive."""
    waypoints = in_fixed_frame(plan.trajectories[0], plan.ego)
    values: NDArray[np.float64] = np.concatenate([waypoints.positions_m[:, :2], waypoints.speeds_mps[:, None]], axis=-1)
    return torch.from_numpy(values.astype(np.float32))


def hit_kind(scenes: Scenes, state: State) -> str:
    """What the ego of scene 0 overlaps now; empty for nothing."""
    hits = collisions(scenes, state.ego[:, :3], vehicle_poses(scenes, state), walker_offsets(scenes, state))[0]
    start = 0
    for name, count in HIT_KINDS:
        if bool(hits[start : start + count].any()):
            return name
        start += count
    return ""


def lane_offset(scenes: Scenes, station: Tensor, ego: Tensor) -> Tensor:
    """[B] m: how far left of its lane's middle the ego (x, y first in [B, ...]) is at route stations [B]."""
    at = along(torch.cat([scenes.path[:, layout.ROUTE], scenes.nudge[..., None]], -1), station[:, None])[:, 0]
    aside = torch.cos(at[:, 2]) * (ego[:, 1] - at[:, 1]) - torch.sin(at[:, 2]) * (ego[:, 0] - at[:, 0])
    return aside + at[:, 4]


def _measured(
    seed: int,
    scenes: Scenes,
    states: list[State],
    first: int,
    hit: str,
    plans: list[tuple[int, Tensor]],
    refusals: ReasonCounts,
) -> ClosedLoopResult:
    first = min(first, len(states) - 1)
    driven = states[first:]
    expert = simulate(scenes, len(states))
    ego = torch.cat([state.ego for state in driven])
    stations = torch.cat([state.station[:, layout.EGO] for state in driven])
    apart = torch.linalg.vector_norm(ego[:, :2] - expert.ego[first:, 0, :2], dim=-1)
    off_road = ~on_road(scenes, wheels(ego[:, :3]).reshape(1, -1, 2))[0].view(-1, 4).all(-1)
    at_junction = (
        stations[:, None] - scenes.stop_station[0, layout.ROUTE] - layout.STOP_LINE_M
    ).abs() < layout.STOP_LINE_M
    every = replace_batch(scenes, len(driven))
    aside = lane_offset(every, stations, ego).abs() > layout.LANE_WIDTH_M / 2
    acceleration = torch.cat([state.acceleration[:, layout.EGO] for state in driven])
    speed = torch.cat([state.speed[:, layout.EGO] for state in driven])
    turned = torch.diff(ego[:, 2])
    lateral = (turned / DT_S * speed[1:]).abs()
    return ClosedLoopResult(
        seed=seed,
        driven_s=(len(driven) - 1) * DT_S,
        collision=hit,
        collision_s=states[-1].step * DT_S if hit else float("nan"),
        off_road_share=float(off_road.float().mean()),
        wrong_lane_share=float((aside & ~at_junction.any(-1)).float().mean()),
        progress_m=float(stations[-1] - stations[0]),
        expert_progress_m=_expert_progress(expert, first),
        expert_distance_mean_m=float(apart.mean()),
        expert_distance_max_m=float(apart.max()),
        plan_deviation_m=plan_deviation(plans),
        strongest_acceleration_mps2=float(acceleration.max()),
        strongest_braking_mps2=float(-acceleration.min()),
        strongest_jerk_mps3=_jerk(acceleration),
        strongest_lateral_mps2=float(lateral.max()) if len(lateral) else 0.0,
        plans=len(plans),
        refusals={reason.value: count for reason, count in refusals.items()},
    )


def _expert_progress(expert: Rollout, first: int) -> float:
    return float(expert.ego_station[-1, 0] - expert.ego_station[first, 0])


def _jerk(acceleration: Tensor) -> float:
    """Largest change rate of the acceleration, m/s3, of means over 5 steps."""
    if len(acceleration) < 6:
        return 0.0
    means = acceleration.unfold(0, 5, 1).mean(-1)
    return float(torch.diff(means).abs().max() / DT_S)


def plan_deviation(plans: list[tuple[int, Tensor]]) -> float:
    """Mean distance (m) of consecutive plans [n, 3] (with their steps) over the times that both cover; nan for none."""
    means = []
    for (early, before), (late, after) in pairwise(plans):
        shift = late - early
        common = len(before) - shift
        if common > 0:
            apart = before[shift:, :2] - after[:common, :2]
            means.append(float(torch.linalg.vector_norm(apart, dim=-1).mean()))
    return float(np.mean(means)) if means else float("nan")


def replace_batch(scenes: Scenes, count: int) -> Scenes:
    """Scene 0 repeated `count` times, with the arrays that `lane_offset` reads."""
    path = scenes.path[:1].expand(count, -1, -1, -1)
    return replace(scenes, path=path, nudge=scenes.nudge[:1].expand(count, -1))
