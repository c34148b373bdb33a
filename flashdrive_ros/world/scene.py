"""Scenes: maps, traffic and everything else that a seed decides, as arrays over scenes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from flashdrive_ros.world import layout
from flashdrive_ros.world.draws import between, uniform
from flashdrive_ros.world.roads import (
    CROSS_HALF_WIDTH,
    KERB_RADIUS,
    LANE_WIDTH,
    ROAD_POINTS,
    Roads,
    bend_profile,
    centreline,
    headings,
    lane,
    road_coordinates,
    road_table,
    sample,
)

SLOTS = 5
"""Places along the main road where a bend, a junction or a crosswalk may be, about 80 m apart."""
NOTHING, BEND, JUNCTION, CROSSWALK = 0, 1, 2, 3
MAIN_START_M = -160
CROSS_START_M = -400
ROUTE_START_M = -20.0
EGO_START_M = 24.0
"""Station of the ego at the start; the route begins behind it."""
LATERAL_MPS2 = 2.0
"""Lateral acceleration that the speed in bends is chosen for."""
BRAKING_MPS2 = 1.3
"""Deceleration before bends."""
TURN_RADIUS_M = KERB_RADIUS
NUDGE_M = 0.8


@dataclass(frozen=True)
class Scenes:
    """B scenes. Poses of vehicles are at the middle of the rear axle; stations are metres along a path; float32."""

    seeds: Tensor
    """[B] int64"""
    roads: Roads
    main_half_width: Tensor
    """[B] m, of the main road: one or two lanes of 3.5 m each way."""
    junction: Tensor
    """[B, 3] bool: there is a junction."""
    control: Tensor
    """[B, 3] int64: PRIORITY (crossing traffic waits), LIGHTS or STOP_SIGN (the ego stops)."""
    junction_frame: Tensor
    """[B, 3, 3] centre x, y and the main road's heading there."""
    light_times: Tensor
    """[B, 3, 3] s: main green, crossing green, offset. Amber is 3 s, all red 2 s."""
    crosswalk: Tensor
    """[B, 2] bool"""
    crosswalk_road: Tensor
    """[B, 2] int64: the road that it crosses."""
    crosswalk_frame: Tensor
    """[B, 2, 4] centre x, y, the road's heading there and its station on the road."""
    turn: Tensor
    """[B] int64: +1 the route turns left, -1 right, 0 straight on."""
    turn_junction: Tensor
    """[B] int64: junction of the turn, -1 for none."""
    turn_stations: Tensor
    """[B, 2] m: where the turn begins and ends on the route, FAR without a turn."""
    path: Tensor
    """[B, 9, 480, 4] x, y, heading, allowed speed (m/s) at every metre of each path."""
    route_curvature: Tensor
    """[B, 480] 1/m, smoothed, left positive."""
    nudge: Tensor
    """[B, 480] m: how far the route lies left of its lane's middle, to pass parked cars."""
    stop_station: Tensor
    """[B, 9, 3] m: where each path's stop line at each junction is, FAR for none."""
    conflict: Tensor
    """[B, 9, 4] m: zone on the route (in, out) and on the other path (in, out), FAR for none."""
    crosswalk_station: Tensor
    """[B, 2, 9] m: where each path meets each crosswalk, FAR for not at all."""
    crosswalk_offset: Tensor
    """[B, 2, 9] m: how far left of the road's centre each path is there (in the road's direction)."""
    speed_limit: Tensor
    """[B] m/s"""
    vehicle: Tensor
    """[B, 22] bool: this vehicle exists."""
    vehicle_kind: Tensor
    """[B, 22] int64"""
    vehicle_colour: Tensor
    """[B, 22] int64"""
    vehicle_size: Tensor
    """[B, 22, 3] length, width, height, m."""
    desired_speed: Tensor
    """[B, 22] m/s"""
    start_station: Tensor
    """[B, 22] m"""
    start_speed: Tensor
    """[B, 22] m/s"""
    ego_start: Tensor
    """[B, 2] lateral (m) and heading (rad) offset of the ego from its route at the start."""
    brake_event: Tensor
    """[B, 4, 3] start s, duration s, deceleration m/s2 of a hard braking of the route's other vehicles."""
    disturbance: Tensor
    """[B, 2, 4] start s, duration s, share (-1 to 1) of the largest sideways push, added acceleration m/s2."""
    parked: Tensor
    """[B, 6] bool"""
    parked_station: Tensor
    """[B, 6] m on the route."""
    parked_pose: Tensor
    """[B, 6, 3] x, y, heading of the middle."""
    parked_kind: Tensor
    parked_colour: Tensor
    walker: Tensor
    """[B, 4] bool; walker w uses crosswalk w // 2."""
    walker_direction: Tensor
    """[B, 4] +1 walks to the left of the road's direction, -1 to the right."""
    walker_speed: Tensor
    """[B, 4] m/s"""
    walker_trigger: Tensor
    """[B, 4] m: the walker sets out when the ego is this near."""
    walker_colour: Tensor
    """[B, 4] int64"""
    objects: Tensor
    """[B, 48, 6] x, y, heading, half length, half width, height of buildings and trees; height 0 for none."""
    object_tree: Tensor
    """[B, 48] bool"""
    dusk: Tensor
    """[B] bool"""
    sun: Tensor
    """[B] rad, direction that the light comes from."""

    def __len__(self) -> int:
        return len(self.seeds)


def make_scenes(seeds: Sequence[int] | Tensor, device: str | torch.device = "cpu") -> Scenes:
    """Build scenes from their seeds (below 2**62) on a device."""
    seeds = torch.as_tensor(seeds, dtype=torch.int64, device=device)
    slots = _slots(seeds)
    roads, junction_frame, main_half_width = _roads(seeds, slots)
    route = _route(seeds, roads, slots, main_half_width)
    paths = _paths(roads, route, main_half_width)
    parked = _parked(seeds, paths, route, slots, main_half_width)
    paths = paths.clone()
    paths[:, layout.ROUTE] += parked["nudge"][..., None] * _normals(headings(paths[:, layout.ROUTE]))
    heading = headings(paths)
    limit = between(seeds, "speed limit", 1, 8.0, 15.0)[:, 0]
    curvature = _smoothed_curvature(heading)
    allowed = _allowed_speed(curvature, limit)
    crosswalks = _crosswalks(seeds, roads, slots, route, paths, heading, main_half_width)
    junctions = _junctions(seeds, slots, route, paths, heading, junction_frame, main_half_width)
    traffic = _traffic(seeds, limit, allowed, route, junctions, main_half_width)
    scenery = _scenery(seeds, roads, paths, heading, junction_frame, slots, main_half_width)
    values: dict[str, Tensor | Roads] = {
        "seeds": seeds,
        "roads": Roads(*(_single(getattr(roads, field.name)) for field in fields(Roads))),
        "main_half_width": main_half_width,
        "junction": slots["junction"],
        "junction_frame": junction_frame,
        "turn": route["turn"],
        "turn_junction": route["turn_junction"],
        "turn_stations": route["turn_stations"],
        "path": torch.cat([paths, heading[..., None], allowed[..., None]], -1),
        "route_curvature": curvature[:, layout.ROUTE],
        "speed_limit": limit,
        **parked,
        **crosswalks,
        **junctions,
        **traffic,
        **scenery,
    }
    return Scenes(**{name: value if isinstance(value, Roads) else _single(value) for name, value in values.items()})  # type: ignore[arg-type]


def select(scenes: Scenes, rows: Tensor) -> Scenes:
    """The scenes of some rows [n] (int64), repeated ones as often."""
    values = {field.name: getattr(scenes, field.name) for field in fields(Scenes)}
    roads = Roads(scenes.roads.origin[rows], scenes.roads.angle[rows], scenes.roads.start, scenes.roads.table[rows])
    values = {name: roads if name == "roads" else value[rows] for name, value in values.items()}
    return Scenes(**values)


def _single(value: Tensor) -> Tensor:
    return value.to(torch.float32) if value.dtype == torch.float64 else value


def _slots(seeds: Tensor) -> dict[str, Tensor]:
    """What is where along the main road: the first three junction slots and two crosswalk slots count."""
    draw = uniform(seeds, "slot kind", SLOTS)
    kind = torch.full_like(draw, NOTHING, dtype=torch.int64)
    kind = torch.where(draw < 0.95, CROSSWALK, kind)
    kind = torch.where(draw < 0.72, BEND, kind)
    kind = torch.where(draw < 0.40, JUNCTION, kind)
    steps = torch.arange(SLOTS, device=seeds.device, dtype=torch.float64)
    x = 70.0 + 80.0 * steps + between(seeds, "slot place", SLOTS, -9.0, 9.0)
    junction, junction_x = _ranked(kind == JUNCTION, x, layout.JUNCTIONS)
    crosswalk, crosswalk_x = _ranked(kind == CROSSWALK, x, layout.CROSSWALKS)
    return {
        "bend": kind == BEND,
        "x": x,
        "junction": junction,
        "junction_x": junction_x,
        "crosswalk": crosswalk,
        "crosswalk_x": crosswalk_x,
    }


def _ranked(chosen: Tensor, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The first `count` chosen slots: whether there are so many [B, count], and their x (1000 + 100 k where not)."""
    rank = torch.cumsum(chosen.to(torch.int64), 1) - 1
    picked = chosen[:, None] & (rank[:, None] == torch.arange(count, device=x.device)[None, :, None])
    there = picked.any(-1)
    elsewhere = 1000.0 + 100.0 * torch.arange(count, device=x.device, dtype=x.dtype)
    return there, torch.where(there, (picked * x[:, None]).sum(-1), elsewhere)


def _roads(seeds: Tensor, slots: dict[str, Tensor]) -> tuple[Roads, Tensor, Tensor]:
    batch, device = len(seeds), seeds.device
    axis = torch.arange(ROAD_POINTS, device=device, dtype=torch.float64)
    slope = torch.where(slots["bend"], between(seeds, "bend slope", SLOTS, -0.6, 0.6), 0.0)
    # A slot without a bend keeps the slope of the bend before it.
    change, before = torch.zeros_like(slope), torch.zeros(batch, device=device, dtype=torch.float64)
    for k in range(SLOTS):
        change[:, k] = torch.where(slots["bend"][:, k], slope[:, k] - before, 0.0)
        before = torch.where(slots["bend"][:, k], slope[:, k], before)
    width = between(seeds, "bend width", SLOTS, 9.0, 15.0)
    u = MAIN_START_M + axis
    offset, tilt = bend_profile(u, slots["x"], width, change)
    tables = [road_table(offset, tilt, -MAIN_START_M)]
    origins = [torch.zeros(batch, 2, device=device, dtype=torch.float64)]
    angles = [torch.zeros(batch, device=device, dtype=torch.float64)]
    frames = []
    for j in range(layout.JUNCTIONS):
        x = slots["junction_x"][:, j].clamp(max=MAIN_START_M + ROAD_POINTS - 2.0)
        at = sample(torch.stack([offset, tilt], -1), u.expand(batch, -1), x[:, None])[:, 0]
        heading = torch.atan(at[:, 1])
        # Roads that do not exist lie far away.
        y = torch.where(slots["junction"][:, j], at[:, 0], 5000.0)
        frames.append(torch.stack([x, y, heading], -1))
        origins.append(torch.stack([x, y], -1))
        angles.append(heading + torch.pi / 2)
        w = CROSS_START_M + axis
        ends = between(seeds, f"crossing bend place {j}", 2, 85.0, 140.0)
        bends = between(seeds, f"crossing bend slope {j}", 2, -0.6, 0.6)
        widths = between(seeds, f"crossing bend width {j}", 2, 10.0, 16.0)
        right, right_slope = bend_profile(w, ends[:, :1], widths[:, :1], bends[:, :1])
        left, left_slope = bend_profile(-w, ends[:, 1:], widths[:, 1:], bends[:, 1:])
        tables.append(road_table(right + left, right_slope - left_slope, -CROSS_START_M))
    starts = torch.tensor([MAIN_START_M] + [CROSS_START_M] * layout.JUNCTIONS, device=device, dtype=torch.float64)
    roads = Roads(torch.stack(origins, 1), torch.stack(angles, 1), starts, torch.stack(tables, 1))
    lanes = torch.where(uniform(seeds, "lanes", 1)[:, 0] < 0.35, 2.0, 1.0)
    return roads, torch.stack(frames, 1), lanes * LANE_WIDTH


def _route(seeds: Tensor, roads: Roads, slots: dict[str, Tensor], half_width: Tensor) -> dict[str, Tensor]:
    """Where the ego turns, which lane it uses, and the main lane's polyline."""
    draw = uniform(seeds, "turn", 3)
    count = slots["junction"].sum(1)
    turn_junction = torch.where(draw[:, 1] < 0.65, 0, 1).clamp(max=1)
    turns = (draw[:, 0] < 0.6) & (count > turn_junction)
    turn = torch.where(turns, torch.where(draw[:, 2] < 0.5, 1, -1), 0)
    turn_junction = torch.where(turns, turn_junction, -1)
    wide = half_width > 4.0
    inner = torch.where(turn == 0, uniform(seeds, "ego lane", 1)[:, 0] < 0.5, turn > 0)
    lane_offset = torch.where(wide & ~inner, -1.5 * LANE_WIDTH, -0.5 * LANE_WIDTH)
    points, heading = centreline(roads, 0)
    main, stations = lane(points, heading, lane_offset)
    u = (MAIN_START_M + torch.arange(ROAD_POINTS, device=seeds.device, dtype=torch.float64)).expand(len(seeds), -1)
    start = sample(stations[..., None], u, torch.full_like(u[:, :1], ROUTE_START_M))[..., 0]
    stations = stations - start
    junction_station = sample(stations[..., None], u, slots["junction_x"])[..., 0]
    return {
        "turn": turn,
        "turn_junction": turn_junction,
        "lane_offset": lane_offset,
        "main": main,
        "stations": stations,
        "junction_station": junction_station,
        **_turn_geometry(roads, turn, turn_junction, lane_offset, junction_station),
    }


def _turn_geometry(
    roads: Roads, turn: Tensor, turn_junction: Tensor, lane_offset: Tensor, junction_station: Tensor
) -> dict[str, Tensor]:
    """Stations and radius of the arc that joins the ego's lane with the crossing road's exit lane."""
    index = turn_junction.clamp(min=0)
    side = turn.to(torch.float64)
    at = torch.gather(junction_station, 1, index[:, None])[:, 0]
    # A left turn runs from lane_offset to 8 m left of the centreline.
    radius = torch.where(turn > 0, TURN_RADIUS_M - lane_offset, TURN_RADIUS_M)
    exit_across = side * LANE_WIDTH / 2
    begin = at + exit_across - radius
    end = begin + radius * torch.pi / 2
    far = torch.full_like(begin, layout.FAR)
    turning = turn != 0
    stations = torch.stack([torch.where(turning, begin, far), torch.where(turning, end, far)], -1)
    exit_u = torch.where(turn > 0, lane_offset + radius, -lane_offset + radius)
    return {"turn_stations": stations, "radius": radius, "exit_u": exit_u}


def _paths(roads: Roads, route: dict[str, Tensor], half_width: Tensor) -> Tensor:
    """[B, 9, 480, 2] points of every path."""
    batch, device = len(half_width), half_width.device
    grid = torch.arange(layout.PATH_POINTS, device=device, dtype=torch.float64).expand(batch, -1)
    points, heading = centreline(roads, 0)
    u = MAIN_START_M + torch.arange(ROAD_POINTS, device=device, dtype=torch.float64)
    paths = [_route_points(roads, route, grid)]
    opposite = torch.full_like(half_width, LANE_WIDTH / 2)
    paths.append(_lane_from(points.flip(1), heading.flip(1), opposite, int(MAIN_START_M + ROAD_POINTS - 1 - 400), grid))
    beside = torch.where(route["lane_offset"] < -LANE_WIDTH, -0.5, -1.5) * LANE_WIDTH
    paths.append(_lane_from(points, heading, beside, int(-60 - u[0]), grid))
    for j in range(layout.JUNCTIONS):
        points, heading = centreline(roads, 1 + j)
        lane_middle = torch.full_like(half_width, LANE_WIDTH / 2)
        first = -CROSS_START_M - layout.PATH_POINTS // 2
        paths.append(_lane_from(points, heading, -lane_middle, first, grid))
        paths.append(_lane_from(points.flip(1), heading.flip(1), lane_middle, first, grid))
    return torch.stack(paths, 1)


def _lane_from(points: Tensor, heading: Tensor, offset: Tensor, first: int, grid: Tensor) -> Tensor:
    beside, stations = lane(points, heading, offset)
    return sample(beside, stations - stations[:, first : first + 1], grid)


def _route_points(roads: Roads, route: dict[str, Tensor], grid: Tensor) -> Tensor:
    begin, end = route["turn_stations"][:, :1], route["turn_stations"][:, 1:]
    straight = sample(route["main"], route["stations"], torch.minimum(grid, begin))
    entry = sample(route["main"], route["stations"], torch.cat([begin - 0.5, begin], 1).clamp(max=700.0))
    direction = entry[:, 1] - entry[:, 0]
    direction = direction / torch.linalg.vector_norm(direction, dim=-1, keepdim=True)
    left = torch.stack([-direction[:, 1], direction[:, 0]], -1)
    radius, side = route["radius"][:, None], route["turn"].to(torch.float64)[:, None]
    phi = (grid - begin).clamp(min=0.0) / radius
    phi = phi.clamp(max=torch.pi / 2)
    arc = (
        entry[:, 1:2]
        + (radius * torch.sin(phi))[..., None] * direction[:, None]
        + (side * radius * (1 - torch.cos(phi)))[..., None] * left[:, None]
    )
    result = torch.where((grid > begin)[..., None], arc, straight)
    for j in range(layout.JUNCTIONS):
        points, heading = centreline(roads, 1 + j)
        for turn in (1, -1):
            here = (route["turn_junction"] == j) & (route["turn"] == turn)
            along, angle = (points, heading) if turn > 0 else (points.flip(1), heading.flip(1))
            beside, stations = lane(along, angle, torch.full_like(radius[:, 0], -turn * LANE_WIDTH / 2))
            zero = stations[:, -CROSS_START_M][:, None]
            after = sample(beside, stations - zero, (grid - end).clamp(min=0.0) + route["exit_u"][:, None])
            result = torch.where((here[:, None] & (grid > end))[..., None], after, result)
    return result


def _normals(heading: Tensor) -> Tensor:
    return torch.stack([-torch.sin(heading), torch.cos(heading)], -1)


def _parked(
    seeds: Tensor, paths: Tensor, route: dict[str, Tensor], slots: dict[str, Tensor], half_width: Tensor
) -> dict[str, Tensor]:
    """Cars half on the kerb on the right of the route, away from junctions, and the nudge that passes them."""
    count = layout.PARKED
    draw = uniform(seeds, "parked", 3 * count).view(-1, count, 3)
    station = 40.0 + 55.0 * torch.arange(count, device=seeds.device, dtype=torch.float64) + 40.0 * draw[..., 0]
    kind = torch.where(draw[..., 1] < 0.75, layout.CAR, layout.VAN)
    colour = (draw[..., 2] * len(layout.COLOURS)).to(torch.int64)
    near = (station[..., None] - route["junction_station"][:, None]).abs() < 38.0
    near_walk = (station[..., None] - (slots["crosswalk_x"][:, None] - ROUTE_START_M)).abs() < 30.0
    begin, end = route["turn_stations"][:, :1], route["turn_stations"][:, 1:]
    after_turn = station > end
    crowded = torch.where(after_turn, station < end + 35.0, near.any(-1) | near_walk.any(-1))
    rightmost = (route["lane_offset"] - LANE_WIDTH < -half_width)[:, None] | after_turn
    busy = (uniform(seeds, "parking street", 1) < 0.7) & (uniform(seeds, "parked here", count) < 0.6)
    parked = busy & rightmost & ~crowded & ~((station > begin - 30.0) & ~after_turn) & (station > EGO_START_M + 25.0)
    width = torch.tensor([size[1] for size in layout.VEHICLE_SIZES], device=seeds.device, dtype=torch.float64)[kind]
    lateral = -1.15 - width / 2
    heading = headings(paths[:, layout.ROUTE])
    row = station.to(torch.int64)
    at = torch.gather(paths[:, layout.ROUTE], 1, row[..., None].expand(-1, -1, 2))
    angle = torch.gather(heading, 1, row)
    position = at + lateral[..., None] * _normals(angle)
    grid = torch.arange(layout.PATH_POINTS, device=seeds.device, dtype=torch.float64)
    # The rear axle is beside the middle of the parked car 1.35 m later than the ego's own middle.
    distance = (grid[None, None] - row[..., None] + 0.7).abs()
    bump = torch.sigmoid((8.5 - distance) / 1.8) * parked[..., None]
    return {
        "parked": parked,
        "parked_station": torch.where(parked, row.to(torch.float64), layout.FAR),
        "parked_pose": torch.cat([position, angle[..., None]], -1),
        "parked_kind": kind,
        "parked_colour": colour,
        "nudge": NUDGE_M * bump.amax(1),
    }


def _smoothed_curvature(heading: Tensor) -> Tensor:
    rate = torch.cat([heading[..., 1:] - heading[..., :-1], torch.zeros_like(heading[..., :1])], -1)
    flat = rate.reshape(-1, 1, rate.shape[-1])
    kernel = torch.ones(1, 1, 5, device=rate.device, dtype=rate.dtype) / 5
    return torch.nn.functional.conv1d(flat, kernel, padding=2).view_as(rate)


def _allowed_speed(curvature: Tensor, limit: Tensor) -> Tensor:
    """Speed at which bends are comfortable, and from which one can brake comfortably for the bends to come."""
    bend = torch.sqrt(LATERAL_MPS2 / curvature.abs().clamp(min=1e-4))
    square = torch.minimum(bend, limit[:, None, None]) ** 2
    columns = list(square.unbind(-1))
    for k in range(len(columns) - 2, -1, -1):
        columns[k] = torch.minimum(columns[k], columns[k + 1] + 2 * BRAKING_MPS2)
    return torch.sqrt(torch.stack(columns, -1))


def _nearest(paths: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
    """Station [B, P] of the path point nearest to `point` [B, 2], and its distance."""
    distance = torch.linalg.vector_norm(paths - point[:, None, None], dim=-1)
    value, index = distance.min(-1)
    return index.to(torch.float64), value


def _crosswalks(
    seeds: Tensor,
    roads: Roads,
    slots: dict[str, Tensor],
    route: dict[str, Tensor],
    paths: Tensor,
    heading: Tensor,
    half_width: Tensor,
) -> dict[str, Tensor]:
    """Crosswalks between junctions: on the main road, or on the road that the route turned into."""
    moved = uniform(seeds, "crosswalk after the turn", layout.CROSSWALKS) < 0.8
    after_m = between(seeds, "crosswalk distance", layout.CROSSWALKS, 40.0, 60.0)
    frames, stations, offsets, roads_of, there = [], [], [], [], []
    turning = route["turn"] != 0
    for w in range(layout.CROSSWALKS):
        station_main = slots["crosswalk_x"][:, w]
        points, angle = centreline(roads, 0)
        u = (MAIN_START_M + torch.arange(ROAD_POINTS, device=seeds.device, dtype=torch.float64)).expand(len(seeds), -1)
        at = sample(torch.cat([points, angle[..., None]], -1), u, station_main.clamp(max=630.0)[:, None])[:, 0]
        exists = slots["crosswalk"][:, w]
        road = torch.zeros_like(route["turn"])
        beyond = turning & (station_main - ROUTE_START_M > route["turn_stations"][:, 0] - 25.0)
        if w == 0:
            # After a turn the first crosswalk lies on the new road.
            shift = turning & moved[:, w]
            for j in range(layout.JUNCTIONS):
                for turn in (1, -1):
                    here = shift & (route["turn_junction"] == j) & (route["turn"] == turn)
                    cross_points, cross_angle = centreline(roads, 1 + j)
                    row = -CROSS_START_M + (turn * after_m[:, w]).round().to(torch.int64)
                    picked = torch.cat([cross_points, cross_angle[..., None]], -1)[torch.arange(len(seeds)), row]
                    at = torch.where(here[:, None], picked, at)
                    road = torch.where(here, 1 + j, road)
            exists, beyond = exists | shift, beyond & ~shift
        exists = exists & ~beyond
        nearest, distance = _nearest(paths, at[:, :2])
        index = nearest.to(torch.int64)
        angle_there = torch.gather(heading, 2, index[..., None])[..., 0]
        aligned = torch.cos(angle_there - at[:, None, 2]).abs() > 0.7
        on_path = exists[:, None] & (distance < 7.0) & aligned
        point = torch.gather(paths, 2, index[..., None, None].expand(-1, -1, 1, 2))[:, :, 0]
        offset = ((point - at[:, None, :2]) * _normals(at[:, 2])[:, None]).sum(-1)
        scene = torch.arange(len(seeds), device=seeds.device)
        on_road = torch.zeros_like(half_width)
        for r in range(layout.ROADS):
            station, _, _ = road_coordinates(roads, r, scene, at[:, 0], at[:, 1])
            on_road = torch.where(road == r, station, on_road)
        stations.append(torch.where(on_path, nearest, layout.FAR))
        offsets.append(offset)
        frames.append(torch.cat([at, on_road[:, None]], -1))
        roads_of.append(road)
        there.append(exists)
    count = layout.WALKERS
    crosswalk = torch.stack(there, 1)
    walkers = uniform(seeds, "walker", 3 * count).view(-1, count, 3)
    return {
        "crosswalk": crosswalk,
        "crosswalk_road": torch.stack(roads_of, 1),
        "crosswalk_frame": torch.stack(frames, 1),
        "crosswalk_station": torch.stack(stations, 1),
        "crosswalk_offset": torch.stack(offsets, 1),
        "walker": crosswalk.repeat_interleave(layout.WALKERS_PER_CROSSWALK, 1) & (walkers[..., 0] < 0.85),
        "walker_direction": torch.where(walkers[..., 1] < 0.5, 1.0, -1.0).to(torch.float64),
        "walker_colour": (walkers[..., 2] * len(layout.COLOURS)).to(torch.int64),
        "walker_speed": between(seeds, "walker speed", count, 1.1, 1.8),
        "walker_trigger": between(seeds, "walker trigger", count, 25.0, 60.0),
    }


def _junctions(
    seeds: Tensor,
    slots: dict[str, Tensor],
    route: dict[str, Tensor],
    paths: Tensor,
    heading: Tensor,
    frame: Tensor,
    half_width: Tensor,
) -> dict[str, Tensor]:
    """Controls, stop lines on every path and the zones where the route meets other paths."""
    draw = uniform(seeds, "control", layout.JUNCTIONS)
    control = torch.where(draw < 0.55, layout.LIGHTS, torch.where(draw < 0.78, layout.STOP_SIGN, layout.PRIORITY))
    wide = half_width[:, None] > 4.0
    control = torch.where(wide & (control == layout.STOP_SIGN), layout.LIGHTS, control)
    times = torch.stack(
        [
            between(seeds, "main green", layout.JUNCTIONS, 7.0, 13.0),
            between(seeds, "crossing green", layout.JUNCTIONS, 6.0, 10.0),
            between(seeds, "light offset", layout.JUNCTIONS, 0.0, 40.0),
        ],
        -1,
    )
    last = torch.where(route["turn"] != 0, route["turn_junction"], layout.JUNCTIONS)
    number = torch.arange(layout.JUNCTIONS, device=seeds.device)
    on_route = slots["junction"] & (number <= last[:, None])
    stops = torch.full(
        (len(seeds), layout.PATHS, layout.JUNCTIONS), layout.FAR, device=seeds.device, dtype=torch.float64
    )
    conflict = torch.full((len(seeds), layout.CONFLICTS, 4), layout.FAR, device=seeds.device, dtype=torch.float64)
    for j in range(layout.JUNCTIONS):
        there = slots["junction"][:, j]
        at_route = route["junction_station"][:, j]
        nearest, _ = _nearest(paths, frame[:, j, :2])
        stops[:, layout.ROUTE, j] = torch.where(on_route[:, j], at_route - layout.STOP_LINE_M, layout.FAR)
        for path in (layout.ONCOMING, layout.BESIDE):
            stops[:, path, j] = torch.where(there, nearest[:, path] - layout.STOP_LINE_M, layout.FAR)
        for k in range(2):
            path = layout.FIRST_CROSSING + 2 * j + k
            stops[:, path, j] = torch.where(there, nearest[:, path] - half_width - 13.5, layout.FAR)
            # A turn ends in the exit lane; nobody else uses that lane, so it is no conflict.
            own = (route["turn_junction"] == j) & (route["turn"] == (1 if k == 0 else -1))
            zone = _zone(paths, at_route, path, nearest[:, path])
            conflict[:, 2 * j + k] = torch.where((on_route[:, j] & ~own)[:, None], zone, layout.FAR)
        left = on_route[:, j] & (route["turn_junction"] == j) & (route["turn"] > 0)
        zone = _zone(paths, at_route, layout.ONCOMING, nearest[:, layout.ONCOMING])
        conflict[:, 2 * layout.JUNCTIONS + j] = torch.where(left[:, None], zone, layout.FAR)
    return {"control": control, "light_times": times, "stop_station": stops, "conflict": conflict}


def _zone(paths: Tensor, route_station: Tensor, path: int, path_station: Tensor) -> Tensor:
    """[B, 4]: stations in and out on the route and on another path where both come within 3 m near a junction."""
    window = torch.arange(-25, 26, device=paths.device)
    route_rows = (route_station.round().to(torch.int64)[:, None] + window).clamp(0, layout.PATH_POINTS - 1)
    path_rows = (path_station.round().to(torch.int64)[:, None] + window).clamp(0, layout.PATH_POINTS - 1)
    first = torch.gather(paths[:, layout.ROUTE], 1, route_rows[..., None].expand(-1, -1, 2))
    second = torch.gather(paths[:, path], 1, path_rows[..., None].expand(-1, -1, 2))
    close = torch.cdist(first, second) < 3.0
    found = []
    for rows, hit in ((route_rows, close.any(2)), (path_rows, close.any(1))):
        far = torch.full_like(rows, int(layout.FAR))
        low, high = torch.where(hit, rows, far).amin(1), torch.where(hit, rows, -far).amax(1)
        found += [low.to(torch.float64), torch.where(hit.any(1), high, far[:, 0]).to(torch.float64)]
    return torch.stack(found, -1)


def _traffic(
    seeds: Tensor,
    limit: Tensor,
    allowed: Tensor,
    route: dict[str, Tensor],
    junctions: dict[str, Tensor],
    half_width: Tensor,
) -> dict[str, Tensor]:
    """Vehicles on the paths; index 0 is the ego."""
    count, device = layout.VEHICLES, seeds.device
    draw = uniform(seeds, "vehicle", 5 * count).view(-1, count, 5)
    kind = (draw[..., 0] > 0.68).to(torch.int64) + (draw[..., 0] > 0.82).to(torch.int64)
    kind = kind + (draw[..., 0] > 0.93).to(torch.int64)
    colour = (draw[..., 1] * len(layout.COLOURS)).to(torch.int64)
    size = torch.tensor(layout.VEHICLE_SIZES, device=device, dtype=torch.float64)[kind]
    size[:, layout.EGO] = torch.tensor(
        [layout.EGO_LENGTH_M, layout.EGO_WIDTH_M, 1.5], device=device, dtype=torch.float64
    )
    desired = limit[:, None] * (0.6 + 0.4 * draw[..., 2])
    desired[:, layout.EGO] = limit
    gaps = 17.0 + 50.0 * draw[..., 3] ** 1.5
    station = torch.zeros_like(gaps)
    there = torch.zeros_like(gaps, dtype=torch.bool)
    station[:, 0], there[:, 0] = EGO_START_M, True
    chance = uniform(seeds, "traffic", 4)
    present = draw[..., 4] < 0.75
    for v in range(1, layout.ROUTE_VEHICLES):
        station[:, v] = station[:, v - 1] + gaps[:, v]
        there[:, v] = (chance[:, 0] < 0.6) & present[:, v]
    first = layout.ROUTE_VEHICLES
    for v in range(first, first + layout.ONCOMING_VEHICLES):
        # The oncoming path begins 400 m ahead: counted backwards from the far end.
        before = 60.0 + 230.0 * chance[:, 1] if v == first else station[:, v - 1]
        station[:, v] = before + gaps[:, v] * (0.0 if v == first else 1.0)
        there[:, v] = (chance[:, 1] < 0.85) & present[:, v]
    first += layout.ONCOMING_VEHICLES
    for v in range(first, first + layout.BESIDE_VEHICLES):
        station[:, v] = 50.0 + 60.0 * chance[:, 2] if v == first else station[:, v - 1] + gaps[:, v]
        there[:, v] = (half_width > 4.0) & present[:, v]
    first += layout.BESIDE_VEHICLES
    for v in range(first, count):
        path = layout.PATH_OF_VEHICLE[v]
        k = path - layout.FIRST_CROSSING
        stop = junctions["stop_station"][:, path, k // 2]
        spread = gaps[:, v] * (2.0 if k // 2 == 0 else 3.0)
        leader = v > first and layout.PATH_OF_VEHICLE[v - 1] == path
        ahead = station[:, v - 1] - 4.0 if leader else stop - 8.0
        station[:, v] = (ahead - spread).clamp(min=2.0 if leader else 32.0)
        exit_lane = (route["turn_junction"] == k // 2) & (route["turn"] == (1 if k % 2 == 0 else -1))
        there[:, v] = present[:, v] & (stop < layout.FAR / 2) & ~exit_lane
    path_of = torch.tensor(layout.PATH_OF_VEHICLE, device=device)
    row = station.to(torch.int64).clamp(0, layout.PATH_POINTS - 1)
    bound = torch.gather(allowed[:, path_of], 2, row[..., None])[..., 0]
    speed = torch.minimum(desired, bound)
    ego = uniform(seeds, "ego start", 4)
    standing = ego[:, 0] < 0.12
    speed[:, layout.EGO] = torch.where(standing, 0.0, bound[:, layout.EGO] * (0.5 + 0.5 * ego[:, 1]))
    # Whoever drives close ahead is not much slower at the start than can be reacted to.
    speed[:, 1] = torch.maximum(speed[:, 1], speed[:, 0] - 0.12 * (gaps[:, 1] - 8.0))
    events = uniform(seeds, "hard braking", 4 * layout.ROUTE_VEHICLES).view(-1, layout.ROUTE_VEHICLES, 4)
    brakes = events[..., 0] < 0.35
    brakes[:, layout.EGO] = False
    event = torch.stack(
        [
            torch.where(brakes, 2.0 + 16.0 * events[..., 1], layout.FAR),
            1.5 + 2.0 * events[..., 2],
            4.0 + 3.0 * events[..., 3],
        ],
        -1,
    )
    shoves = uniform(seeds, "disturbance", 8).view(-1, 2, 4)
    begin = torch.tensor([1.6, 11.2], device=device, dtype=torch.float64) + 0.6 * shoves[..., 0]
    sign = torch.where(shoves[..., 2] < 0.5, -1.0, 1.0)
    strength = sign * (0.3 + 0.7 * (shoves[..., 2] * 2 % 1.0))
    disturbance = torch.stack([begin, 0.6 + 0.6 * shoves[..., 1], strength, 3.0 * (shoves[..., 3] - 0.5)], -1)
    lateral = (ego[:, 2] - 0.5) * 1.0
    return {
        "vehicle": there,
        "vehicle_kind": kind,
        "vehicle_colour": colour,
        "vehicle_size": size,
        "desired_speed": desired,
        "start_station": station,
        "start_speed": speed,
        "ego_start": torch.stack([lateral, (ego[:, 3] - 0.5) * 0.08], -1),
        "brake_event": event,
        "disturbance": disturbance,
    }


def _scenery(
    seeds: Tensor,
    roads: Roads,
    paths: Tensor,
    heading: Tensor,
    frame: Tensor,
    slots: dict[str, Tensor],
    half_width: Tensor,
) -> dict[str, Tensor]:
    """Buildings and trees along the route and at the corners of junctions, where no road is."""
    along = 36
    batch, device = len(seeds), seeds.device
    draw = uniform(seeds, "object", 6 * layout.OBJECTS).view(batch, layout.OBJECTS, 6)
    rows = (12 + 26 * torch.arange(along // 2, device=device)).repeat_interleave(2)
    side = torch.tensor([1.0, -1.0], device=device, dtype=torch.float64).repeat(along // 2)
    tree = draw[..., 0] < torch.where(uniform(seeds, "urban", 1) < 0.5, 0.25, 0.75)
    half = torch.where(
        tree[..., None], 1.3 + draw[..., 1:3], torch.stack([4.0 + 5.0 * draw[..., 1], 3.0 + 2.0 * draw[..., 2]], -1)
    )
    height = torch.where(tree, 4.5 + 3.0 * draw[..., 3], 5.0 + 12.0 * draw[..., 3] ** 2)
    route = paths[:, layout.ROUTE, rows]
    angle = heading[:, layout.ROUTE, rows]
    wide = torch.where(side > 0, half_width[:, None] + 2.0, half_width[:, None] - 1.0)
    lateral = side * (wide + 4.0 + half[:, :along, 1] + 5.0 * draw[:, :along, 4])
    places = [route + lateral[..., None] * _normals(angle)]
    angles = [angle]
    corner = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]], device=device, dtype=torch.float64)
    for j in range(layout.JUNCTIONS):
        part = slice(along + 4 * j, along + 4 * j + 4)
        local = corner * torch.stack(
            [21.0 + half[:, part, 0], half_width[:, None] + 7.0 + half[:, part, 1] + 6.0 * draw[:, part, 4]], -1
        )
        turned = frame[:, j, 2]
        cos, sin = torch.cos(turned)[:, None], torch.sin(turned)[:, None]
        x = frame[:, j, 0, None] + cos * local[..., 0] - sin * local[..., 1]
        y = frame[:, j, 1, None] + sin * local[..., 0] + cos * local[..., 1]
        places.append(torch.stack([x, y], -1))
        angles.append(turned[:, None].expand(-1, 4))
    place, turned = torch.cat(places, 1), torch.cat(angles, 1)
    scene = torch.arange(batch, device=device)
    free = torch.ones_like(tree)
    for r in range(layout.ROADS):
        station, offset, _ = road_coordinates(roads, r, scene, place[..., 0], place[..., 1])
        edge = half_width[:, None] if r == 0 else torch.full_like(half_width[:, None], CROSS_HALF_WIDTH)
        reach = torch.where(tree, half[..., 1], torch.hypot(half[..., 0], half[..., 1]) * 0.8)
        free = free & ((offset.abs() > edge + 2.0 + reach) | (station.abs() > 900.0))
    free = free & (draw[..., 5] < 0.85)
    free[:, along:] &= slots["junction"].repeat_interleave(4, 1)
    objects = torch.cat([place, turned[..., None], half, (height * free)[..., None]], -1)
    return {
        "objects": objects,
        "object_tree": tree,
        "dusk": uniform(seeds, "dusk", 1)[:, 0] < 0.25,
        "sun": between(seeds, "sun", 1, -torch.pi, torch.pi)[:, 0],
    }
