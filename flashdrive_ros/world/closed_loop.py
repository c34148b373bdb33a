"""Drive scenes with any planner at 10 Hz and measure how it went.

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
from flashdrive_ros.world.scene import Scenes, make_scenes, select
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


@dataclass(frozen=True)
class Observation:
    """What a planner sees of B scenes at one instant t0."""

    step: int
    """t0 in steps of 0.1 s."""
    pictures: Tensor
    """[B, 4, 96, 160, 3] uint8, the rig's cameras in order."""
    poses: Tensor
    """[B, 16, 3] x, y, heading in the world from t0 - 1.5 s to t0."""
    speed: Tensor
    """[B] m/s"""
    route_code: Tensor
    """[B] int64, see captions.route_text."""


BatchPlanner = Callable[[Observation], Tensor | None]
"""Gives x m, y m (world) and speed m/s at t0 + 0.1 s ... [B, n, 3], or None when there is no plan (yet)."""


def run_closed_loop(seed: int, planner: Planner, duration_s: float = 20.0, latency_s: float = 0.1) -> ClosedLoopResult:
    """Run scene `seed`; the planner's stream must have been reset. latency_s is rounded to whole steps of 0.1 s.

    The arrays of one scene are small: with one torch thread (torch.set_num_threads(1)) it runs fastest.
    """
    refusals: ReasonCounts = ReasonCounts()

    def plan(observation: Observation) -> Tensor | None:
        answer = planner(window_of(observation))
        if isinstance(answer, Refusal):
            refusals[answer.reason] += 1
            return None
        return world_plan(answer)[None]

    result = run_closed_loops(make_scenes([seed]), plan, duration_s, latency_s)[0]
    return replace(result, refusals={reason.value: count for reason, count in refusals.items()})


def run_closed_loops(
    scenes: Scenes, planner: BatchPlanner, duration_s: float = 20.0, latency_s: float = 0.1
) -> list[ClosedLoopResult]:
    """Run all scenes together, on their device, with one planner for all of them; no refusals are counted."""
    painter = make_painter(scenes)
    steps, latency = round(duration_s / DT_S), round(latency_s / DT_S)
    state = initial_state(scenes)
    states: list[State] = []
    plans: list[tuple[int, Tensor]] = []
    first_driven = steps
    end = torch.full((len(scenes),), -1, device=state.ego.device)
    what = torch.zeros_like(end)
    for k in range(steps):
        states.append(state)
        if k >= first_driven:
            hit, kind = hits_now(scenes, state)
            new = hit & (end < 0)
            end, what = torch.where(new, k, end), torch.where(new, kind, what)
            if bool((end >= 0).all()):
                break
        if k >= HISTORY_STEPS - 1:
            plan = planner(observe(painter, states))
            plans += [] if plan is None else [(k, plan.to(state.ego))]
        acceleration, controls, _ = expert_controls(scenes, state)
        due = [(at, plan) for at, plan in plans if at + latency <= k]
        if due:
            first_driven = min(first_driven, k)
            at, plan = due[-1]
            controls = follow_plan(state.ego, state.speed[:, layout.EGO], plan, k - at)
        state = step(scenes, state, acceleration, controls)
    expert = simulate(scenes, len(states))
    ego = torch.stack([past.ego for past in states])
    motion = torch.stack([torch.stack([s.station[:, 0], s.speed[:, 0], s.acceleration[:, 0]], -1) for s in states])
    results = []
    for row, (stop, kind) in enumerate(zip(end.tolist(), what.tolist(), strict=True)):
        last = stop if stop >= 0 else len(states) - 1
        name = HIT_KINDS[kind][0] if stop >= 0 else ""
        own = [(at, plan[row]) for at, plan in plans if at <= last]
        span = slice(min(first_driven, last), last + 1)
        results.append(_measured(expert, row, span, ego[span, row], motion[span, row], name, own))
    return results


def observe(painter: Painter, states: list[State]) -> Observation:
    """The newest state as a planner sees it: rendered frames, true poses, route."""
    state = states[-1]
    scene = torch.arange(len(painter.scenes), device=state.ego.device)
    return Observation(
        state.step,
        render(painter, view_now(painter.scenes, state)),
        torch.stack([past.ego[:, :3] for past in states[-HISTORY_STEPS:]], 1),
        state.speed[:, layout.EGO],
        route_codes(painter.scenes, state.station[:, layout.EGO], scene),
    )


def window_of(observation: Observation) -> PlanningWindow:
    """Scene 0 of an observation as the vehicle's intake would give it."""
    stamp = FIRST_STAMP_NS + observation.step * STEP_NS
    pictures = observation.pictures[0].cpu().numpy()
    frames = tuple(CameraFrame(camera.index, stamp, pictures[k]) for k, camera in enumerate(RIG))
    poses = observation.poses[0].double().cpu().numpy()
    positions = np.concatenate([poses[:, :2], np.zeros((len(poses), 1))], axis=-1)
    quaternions = yaw_quaternion(poses[:, 2])
    matrices = rotation_matrix(quaternions)
    history = EgoHistory((positions - positions[-1]) @ matrices[-1], matrices[-1].T @ matrices)
    ego = EgoPose(FRAME_ID, positions[-1], quaternions[-1], float(observation.speed[0]))
    text = route_text(int(observation.route_code[0]))
    return PlanningWindow(observation.step, stamp, frames, ego, history, text, 0)


def world_plan(plan: Plan) -> Tensor:
    """[n, 3] x, y (world, m) and speed (m/s) of the plan's trajectory to drive."""
    waypoints = in_fixed_frame(plan.trajectories[0], plan.ego)
    values: NDArray[np.float64] = np.concatenate([waypoints.positions_m[:, :2], waypoints.speeds_mps[:, None]], axis=-1)
    return torch.from_numpy(values.astype(np.float32))


def hits_now(scenes: Scenes, state: State) -> tuple[Tensor, Tensor]:
    """Whether each ego [B] overlaps anything, and the row of HIT_KINDS [B] that it belongs to."""
    hits = collisions(scenes, state.ego[:, :3], vehicle_poses(scenes, state), walker_offsets(scenes, state))
    kinds = torch.stack([part.any(-1) for part in torch.split(hits, [count for _, count in HIT_KINDS], dim=1)], 1)
    return kinds.any(1), kinds.to(torch.int64).argmax(1)


def lane_offset(scenes: Scenes, station: Tensor, ego: Tensor) -> Tensor:
    """[B] m: how far left of its lane's middle the ego (x, y first in [B, ...]) is at route stations [B]."""
    at = along(torch.cat([scenes.path[:, layout.ROUTE], scenes.nudge[..., None]], -1), station[:, None])[:, 0]
    aside = torch.cos(at[:, 2]) * (ego[:, 1] - at[:, 1]) - torch.sin(at[:, 2]) * (ego[:, 0] - at[:, 0])
    return aside + at[:, 4]


def _measured(
    expert: Rollout,
    row: int,
    span: slice,
    ego: Tensor,
    motion: Tensor,
    hit: str,
    plans: list[tuple[int, Tensor]],
) -> ClosedLoopResult:
    """Scene `row` over its driven steps: ego [T, 4] as in `State`; motion [T, 3] station, speed, acceleration."""
    scenes = select(expert.scenes, torch.full((len(ego),), row, device=ego.device))
    station, speed, acceleration = motion.unbind(-1)
    apart = torch.linalg.vector_norm(ego[:, :2] - expert.ego[span, row, :2], dim=-1)
    off_road = ~on_road(scenes, wheels(ego[:, :3])).all(-1)
    past_line = station[:, None] - scenes.stop_station[:, layout.ROUTE]
    at_junction = ((past_line > 0) & (past_line < 2 * layout.STOP_LINE_M)).any(-1)
    aside = lane_offset(scenes, station, ego).abs() > layout.LANE_WIDTH_M / 2
    lateral = (torch.diff(ego[:, 2]) / DT_S * speed[1:]).abs()
    expert_station = expert.ego_station[span, row]
    return ClosedLoopResult(
        seed=int(scenes.seeds[0]),
        driven_s=(len(ego) - 1) * DT_S,
        collision=hit,
        collision_s=(span.stop - 1) * DT_S if hit else float("nan"),
        off_road_share=float(off_road.float().mean()),
        wrong_lane_share=float((aside & ~at_junction).float().mean()),
        progress_m=float(station[-1] - station[0]),
        expert_progress_m=float(expert_station[-1] - expert_station[0]),
        expert_distance_mean_m=float(apart.mean()),
        expert_distance_max_m=float(apart.max()),
        plan_deviation_m=plan_deviation(plans),
        strongest_acceleration_mps2=float(acceleration.max()),
        strongest_braking_mps2=float(-acceleration.min()),
        strongest_jerk_mps3=_jerk(acceleration),
        strongest_lateral_mps2=float(lateral.max()) if len(lateral) else 0.0,
        plans=len(plans),
        refusals={},
    )


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
