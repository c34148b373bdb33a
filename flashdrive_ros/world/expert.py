"""The rules that everybody drives by: what each vehicle's acceleration should be, and why the ego's is what it is."""

from __future__ import annotations

import torch
from torch import Tensor

from flashdrive_ros.world import causes, layout
from flashdrive_ros.world.driving import (
    HARDEST_BRAKING_MPS2,
    following_acceleration,
    free_acceleration,
    pursuit_curvature,
    stopping_acceleration,
)
from flashdrive_ros.world.scene import Scenes
from flashdrive_ros.world.state import DT_S, State, light_states, on_paths, route_pose, walker_offsets

NO_LIMIT = 99.0
"""Acceleration that never binds, m/s2."""
MARGIN_S = 1.4
"""Between the ego and crossing traffic in a conflict zone."""
_PATHS_AT = torch.tensor(layout.PATH_OF_VEHICLE)


def decide(scenes: Scenes, state: State) -> tuple[Tensor, Tensor]:
    """Wanted accelerations [B, 22] in m/s2 and the ego's cause [B, 3] (kind, object, detail)."""
    speed, desired = state.speed, scenes.desired_speed
    front = state.station + scenes.vehicle_size[..., 0] - layout.REAR_OVERHANG_M
    free = free_acceleration(speed, desired)
    bend = _bends(scenes, state)
    lead, leader = _leaders(scenes, state, front)
    light, must_stop, stop_gap = _lights(scenes, state, front)
    sign = _stop_signs(scenes, state, stop_gap)
    walkers, walker = _walkers(scenes, state, front)
    held = must_stop & (stop_gap > -1.0)
    giving_way, other = _give_way(scenes, state, front, held)
    wanted = torch.stack([free, bend, lead, light.amin(-1), sign.amin(-1), giving_way, walkers], -1)
    ego = wanted[:, layout.EGO]
    strongest, kind = ego.min(-1)
    kind = torch.where(strongest > ego[:, causes.FREE] - 0.2, causes.FREE, kind)
    acceleration = _hard_braking(scenes, state, wanted.amin(-1))
    near = light[:, layout.EGO].argmin(-1), sign[:, layout.EGO].argmin(-1)
    cause = _describe(
        scenes, state, kind, leader[:, layout.EGO], near, walker[:, layout.EGO], other, front[:, layout.EGO]
    )
    return acceleration, cause


def steer(scenes: Scenes, state: State) -> Tensor:
    """Curvature [B] that leads the ego along its route: pure pursuit of a point 0.7 s (3 to 14 m) ahead."""
    ahead = (0.7 * state.speed[:, layout.EGO] + 1.8).clamp(3.0, 14.0)
    target = route_pose(scenes, (state.station[:, layout.EGO] + ahead)[:, None])[:, 0]
    return pursuit_curvature(state.ego, target)


def manoeuvre(scenes: Scenes, state: State) -> Tensor:
    """[B, 2] int64: what the ego does sideways (STRAIGHT to RIGHT_TURN) and the parked car it passes."""
    station = state.station[:, layout.EGO, None]
    distance = scenes.parked_station - station
    passing = (distance > -4.0) & (distance < 26.0)
    begin, end = scenes.turn_stations.unbind(-1)
    turning = (station[:, 0] > begin - 35.0) & (station[:, 0] < end - 1.0)
    turn = torch.where(scenes.turn > 0, causes.LEFT_TURN, causes.RIGHT_TURN)
    kind = torch.where(turning, turn, torch.where(passing.any(-1), causes.NUDGE, causes.STRAIGHT))
    return torch.stack([kind, passing.to(torch.int64).argmax(-1)], -1)


def walk(scenes: Scenes, state: State) -> Tensor:
    """Walked distances [B, 4] a step later: walkers set out when the ego is near and everybody can still stop."""
    front = state.station + scenes.vehicle_size[..., 0] - layout.REAR_OVERHANG_M
    crosswalk = _crosswalk_stations(scenes)
    gap = crosswalk - front[..., None]
    length = scenes.vehicle_size[..., 0:1]
    speed = state.speed[..., None]
    reach = speed**2 / (2 * 2.2) + 0.9 * speed + 6.0
    standing = (speed < 0.3) & (gap > 2.0)
    unsafe = (gap > -length - 1.0) & (gap < reach) & ~standing & scenes.vehicle[..., None]
    safe = ~unsafe.any(1)
    near = (gap[:, layout.EGO] < scenes.walker_trigger) & (gap[:, layout.EGO] > 0)
    sets_out = scenes.walker & safe & near
    walking = sets_out | (state.walked > 0)
    return state.walked + walking * scenes.walker_speed * DT_S


def nearest_station(scenes: Scenes, station: Tensor, position: Tensor) -> Tensor:
    """Station [B] of the route point nearest to `position` [B, 2], looked for near the last station [B]."""
    window = torch.arange(-5, 9, device=station.device)
    rows = (station.to(torch.int64)[:, None] + window).clamp(0, layout.PATH_POINTS - 1)
    table = scenes.path[:, layout.ROUTE]
    points = torch.gather(table, 1, rows[..., None].expand(-1, -1, 4))
    delta = position[:, None] - points[..., :2]
    best = (delta**2).sum(-1).argmin(1, keepdim=True)
    delta = torch.gather(delta, 1, best[..., None].expand(-1, -1, 2))[:, 0]
    heading = torch.gather(points[..., 2], 1, best)[:, 0]
    row = torch.gather(rows, 1, best)[:, 0]
    forward = torch.cos(heading) * delta[:, 0] + torch.sin(heading) * delta[:, 1]
    return (row + forward.clamp(-1.0, 1.0)).clamp(0.0, layout.PATH_POINTS - 1.0)


def _bends(scenes: Scenes, state: State) -> Tensor:
    """[B, 22] acceleration that keeps to the speed the path allows, looking a moment ahead."""
    allowed = on_paths(scenes, state.station + 0.4 * state.speed)[..., 3]
    allowed = torch.minimum(allowed, scenes.desired_speed)
    wanted = (allowed - state.speed) / 0.7
    return torch.where(allowed < scenes.desired_speed - 0.3, wanted.clamp(min=-3.5), NO_LIMIT)


def _leaders(scenes: Scenes, state: State, front: Tensor) -> tuple[Tensor, Tensor]:
    """[B, 22] acceleration behind the nearest vehicle ahead on the same path, and which vehicle that is."""
    path_of = _PATHS_AT.to(front.device)
    rear = state.station - layout.REAR_OVERHANG_M
    gap = rear[:, None, :] - front[:, :, None]
    ahead = (state.station[:, None, :] > state.station[:, :, None]) & (path_of[None, :] == path_of[:, None])
    gap = torch.where(ahead & scenes.vehicle[:, None, :], gap, layout.FAR)
    nearest, leader = gap.min(-1)
    leader_speed = torch.gather(state.speed, 1, leader)
    wanted = following_acceleration(state.speed, scenes.desired_speed, nearest, state.speed - leader_speed)
    wanted = torch.where(nearest < layout.FAR / 2, wanted, NO_LIMIT)
    # The ego is in the way of whoever's path it is on, wherever it should be.
    points = scenes.path[:, 1:, ::2, :3]
    offset = torch.hypot(points[..., 0] - state.ego[:, None, None, 0], points[..., 1] - state.ego[:, None, None, 1])
    distance, row = offset.min(-1)
    heading = torch.gather(points[..., 2], 2, row[..., None])[..., 0]
    forward = (state.speed[:, :1] * torch.cos(state.ego[:, 2:3] - heading)).clamp(min=0.0)
    others = path_of[layout.ROUTE_VEHICLES :] - 1
    station = (2 * row)[:, others].to(front.dtype)
    gap = station - 2.0 - front[:, layout.ROUTE_VEHICLES :]
    blocked = (distance[:, others] < 2.4) & (station > state.station[:, layout.ROUTE_VEHICLES :])
    speed = state.speed[:, layout.ROUTE_VEHICLES :]
    behind_ego = following_acceleration(
        speed, scenes.desired_speed[:, layout.ROUTE_VEHICLES :], gap, speed - forward[:, others]
    )
    rest = torch.where(
        blocked, torch.minimum(behind_ego, wanted[:, layout.ROUTE_VEHICLES :]), wanted[:, layout.ROUTE_VEHICLES :]
    )
    return torch.cat([wanted[:, : layout.ROUTE_VEHICLES], rest], 1), leader


def _lights(scenes: Scenes, state: State, front: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Acceleration before lights and before priority roads, who must stop, gaps to the lines: [B, 22, 3] each."""
    path_of = _PATHS_AT.to(front.device)
    gap = scenes.stop_station[:, path_of] - front[..., None]
    main, crossing = light_states(scenes.light_times, state.step * DT_S)
    crosses = (path_of >= layout.FIRST_CROSSING)[None, :, None]
    light = torch.where(crosses, crossing[:, None], main[:, None])
    speed = state.speed[..., None]
    need = speed**2 / (2 * gap.clamp(min=0.1))
    stops = (light == layout.RED) | ((light == layout.AMBER) & (need < 3.2))
    lit = (scenes.control == layout.LIGHTS)[:, None]
    waits = crosses & (scenes.control == layout.PRIORITY)[:, None]
    must_stop = (lit & stops) | waits
    wanted = stopping_acceleration(speed, scenes.desired_speed[..., None], gap)
    # Whoever is over the line by more than half a metre, or could only stop beyond it, drives on.
    binding = must_stop & (gap > -0.5) & (gap < 200.0) & (need < HARDEST_BRAKING_MPS2)
    return torch.where(binding, wanted, NO_LIMIT), must_stop, gap


def _stop_signs(scenes: Scenes, state: State, gap: Tensor) -> Tensor:
    """[B, 22, 3] acceleration of the route's vehicles before stop signs that they have not stopped at yet."""
    wanted = stopping_acceleration(state.speed[..., None], scenes.desired_speed[..., None], gap)
    binding = (scenes.control == layout.STOP_SIGN)[:, None] & (gap > -0.5) & (gap < 200.0)
    on_route = torch.zeros_like(binding)
    on_route[:, : layout.ROUTE_VEHICLES] = ~state.stopped
    return torch.where(binding & on_route, wanted, NO_LIMIT)


def stops_made(scenes: Scenes, state: State) -> Tensor:
    """[B, 4, 3] bool: stops at stop signs, with those that are being made now."""
    route = slice(0, layout.ROUTE_VEHICLES)
    front = state.station[:, route] + scenes.vehicle_size[:, route, 0] - layout.REAR_OVERHANG_M
    gap = scenes.stop_station[:, None, layout.ROUTE] - front[..., None]
    return state.stopped | ((state.speed[:, route, None] < 0.4) & (gap < 2.5) & (gap > -1.5))


def _crosswalk_stations(scenes: Scenes) -> Tensor:
    """[B, 22, 4]: where each vehicle's path meets each walker's crosswalk."""
    stations = scenes.crosswalk_station[:, :, _PATHS_AT.to(scenes.seeds.device)]
    return stations.transpose(1, 2).repeat_interleave(layout.WALKERS_PER_CROSSWALK, 2)


def _walkers(scenes: Scenes, state: State, front: Tensor) -> tuple[Tensor, Tensor]:
    """[B, 22] acceleration before crosswalks in use, and the walker that is waited for."""
    offset = walker_offsets(scenes, state)
    lanes = scenes.crosswalk_offset[:, :, _PATHS_AT.to(front.device)].transpose(1, 2)
    lanes = lanes.repeat_interleave(layout.WALKERS_PER_CROSSWALK, 2)
    to_come = (lanes - offset[:, None]) * scenes.walker_direction[:, None] > -2.0
    crosswalk = _crosswalk_stations(scenes)
    before_line = crosswalk - 3.5 - front[..., None]
    # With the front over the line already, stop just before the crosswalk itself.
    gap = torch.where(before_line > -0.5, before_line, crosswalk - 1.9 - front[..., None])
    binding = to_come & (state.walked > 0)[:, None] & (gap > -0.3) & (gap < 200.0)
    wanted = stopping_acceleration(state.speed[..., None], scenes.desired_speed[..., None], gap)
    return torch.where(binding, wanted, NO_LIMIT).min(-1)


def _time_to(distance: Tensor, speed: Tensor, acceleration: float, cap: Tensor) -> Tensor:
    """Seconds to drive a distance, accelerating up to a speed cap; 0 when it is behind."""
    distance = distance.clamp(min=0.0)
    hurried = (torch.sqrt(speed**2 + 2 * acceleration * distance) - speed) / acceleration
    return torch.maximum(hurried, distance / torch.maximum(cap, speed.clamp(max=1.0)))


def _give_way(scenes: Scenes, state: State, front: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
    """[B, 22] acceleration for conflict zones; [B, 2] the vehicle that the ego waits for and the conflict it is in."""
    device = front.device
    conflict_path = torch.tensor(layout.PATH_OF_CONFLICT, device=device)
    conflict_junction = torch.tensor(layout.JUNCTION_OF_CONFLICT, device=device)
    route, rest = slice(0, layout.ROUTE_VEHICLES), slice(layout.ROUTE_VEHICLES, layout.VEHICLES)
    zone_in, zone_out, other_in, other_out = (x[:, None, :, None] for x in scenes.conflict.unbind(-1))
    here = (_PATHS_AT.to(device)[rest][None, :] == conflict_path[:, None])[None, None] & scenes.vehicle[
        :, None, None, rest
    ]
    # Times of the route's vehicles [B, 4, 9, 1] and of the others [B, 1, 9, 18].
    own_front, own_speed = front[:, route, None, None], state.speed[:, route, None, None]
    own_rear = state.station[:, route, None, None] - layout.REAR_OVERHANG_M
    turning = (scenes.turn_junction[:, None] == conflict_junction)[:, None, :, None]
    cap = torch.where(turning, 5.0, 15.0)
    arrive = _time_to(zone_in - own_front, own_speed, 1.3, cap)
    leave = 0.4 + _time_to(zone_out + 1.0 - own_rear, own_speed, 0.8, cap)
    other_front, other_speed = front[:, None, None, rest], state.speed[:, None, None, rest]
    other_rear = state.station[:, None, None, rest] - layout.REAR_OVERHANG_M
    other_arrive = _time_to(other_in - other_front, other_speed, 1.5, scenes.desired_speed[:, None, None, rest])
    other_leave = (other_out + 1.0 - other_rear).clamp(min=0.0) / other_speed.clamp(min=0.8)
    gone = other_rear > other_out + 0.5
    overlap = (arrive - MARGIN_S < other_leave) & (leave + MARGIN_S > other_arrive)
    waits = held[:, rest][..., conflict_junction].transpose(1, 2)[:, None] & (other_front < other_in - 1.0)
    real = zone_in < layout.FAR / 2
    blocking = here & real & overlap & ~gone & ~waits
    blocked = blocking.any(-1)
    crossing = torch.arange(layout.CONFLICTS, device=device) < 2 * layout.JUNCTIONS
    line = scenes.stop_station[:, layout.ROUTE][:, conflict_junction][:, None]
    zone = zone_in[..., 0] - 1.5
    place = torch.where(crossing & (own_front[..., 0] < line + 0.5), line, zone)
    gap = place - own_front[..., 0]
    speed = own_speed[..., 0]
    possible = (gap > -0.6) & (speed**2 < 2 * HARDEST_BRAKING_MPS2 * gap.clamp(min=0.05)) & (gap < 60.0)
    wanted = stopping_acceleration(speed, scenes.desired_speed[:, route, None], gap)
    wanted = torch.where(blocked & possible, wanted, NO_LIMIT)
    own, which = wanted.min(-1)
    ego_conflict = which[:, layout.EGO]
    pick = ego_conflict[:, None, None].expand(-1, 1, blocking.shape[-1])
    whom = torch.gather(blocking[:, layout.EGO].to(torch.int64), 1, pick)[:, 0].argmax(-1) + layout.ROUTE_VEHICLES
    # The others stop for whoever of the route is in the zone.
    inside = (own_front > zone_in - 1.0) & (own_rear < zone_out + 0.5) & real & scenes.vehicle[:, route, None, None]
    occupied = inside.any(1)
    gap = (other_in - 1.5 - other_front)[:, 0]
    for_route = stopping_acceleration(other_speed[:, 0], scenes.desired_speed[:, None, rest], gap)
    for_route = torch.where(occupied & here[:, 0] & (gap > -0.5), for_route, NO_LIMIT).amin(1)
    return torch.cat([own, for_route], 1), torch.stack([whom, ego_conflict], -1)


def _hard_braking(scenes: Scenes, state: State, wanted: Tensor) -> Tensor:
    """The route's other vehicles brake hard at their moments."""
    start, duration, braking = scenes.brake_event.unbind(-1)
    time_s = state.step * DT_S
    now = (time_s >= start) & (time_s < start + duration)
    route = torch.where(
        now, torch.minimum(wanted[:, : layout.ROUTE_VEHICLES], -braking), wanted[:, : layout.ROUTE_VEHICLES]
    )
    return torch.cat([route, wanted[:, layout.ROUTE_VEHICLES :]], 1)


def _describe(
    scenes: Scenes,
    state: State,
    kind: Tensor,
    leader: Tensor,
    near: tuple[Tensor, Tensor],
    walker: Tensor,
    other: Tensor,
    front: Tensor,
) -> Tensor:
    """[B, 3] kind, object and detail of the ego's cause."""
    speed = state.speed[:, layout.EGO]
    standing = torch.where(speed < 0.7, causes.WAIT, causes.APPROACH)
    lead_speed = torch.gather(state.speed, 1, leader[:, None])[:, 0]
    lead_braking = torch.gather(state.acceleration, 1, leader[:, None])[:, 0] < -1.2
    lead_detail = torch.where(
        lead_speed < 0.5, causes.STANDING, torch.where(lead_braking, causes.BRAKING, causes.MOVING)
    )
    conflict = other[:, 1]
    side = torch.where(conflict >= 2 * layout.JUNCTIONS, causes.ONCOMING, conflict % 2)
    zero = torch.zeros_like(kind)
    objects = torch.stack([zero, zero, leader, near[0], near[1], other[:, 0], walker], -1)
    details = torch.stack(
        [
            _free_detail(scenes, state, front),
            _bend_detail(scenes, state),
            lead_detail,
            standing,
            standing,
            side,
            standing,
        ],
        -1,
    )
    pick = kind[:, None]
    return torch.stack([kind, torch.gather(objects, 1, pick)[:, 0], torch.gather(details, 1, pick)[:, 0]], -1)


def _free_detail(scenes: Scenes, state: State, front: Tensor) -> Tensor:
    speed = state.speed[:, layout.EGO]
    main, _ = light_states(scenes.light_times, state.step * DT_S)
    gap = scenes.stop_station[:, layout.ROUTE] - front[:, None]
    green = ((scenes.control == layout.LIGHTS) & (main == layout.GREEN) & (gap > -12.0) & (gap < 40.0)).any(-1)
    slow = torch.where(speed < 0.8 * scenes.speed_limit, causes.ACCELERATE, causes.KEEP)
    return torch.where(green, causes.GREEN_AHEAD, torch.where(speed < 2.5, causes.START, slow))


def _bend_detail(scenes: Scenes, state: State) -> Tensor:
    station = state.station[:, layout.EGO, None]
    ahead = torch.arange(0, 48, 4, device=station.device)
    rows = (station.to(torch.int64) + ahead).clamp(0, layout.PATH_POINTS - 1)
    curvature = torch.gather(scenes.route_curvature, 1, rows)
    strongest = torch.gather(curvature, 1, curvature.abs().argmax(1, keepdim=True))[:, 0]
    begin, end = scenes.turn_stations.unbind(-1)
    turning = (station[:, 0] > begin - 45.0) & (station[:, 0] < end)
    turn = torch.where(scenes.turn > 0, causes.TURN_LEFT, causes.TURN_RIGHT)
    return torch.where(turning, turn, torch.where(strongest > 0, causes.BEND_LEFT, causes.BEND_RIGHT))
