"""Fixed sizes and slot numbers of a scene: every scene of a batch has the same arrays, unused entries are inactive."""

from __future__ import annotations

PATH_POINTS = 480
"""Points of a driving path, 1 m apart."""
JUNCTIONS = 3
CROSSWALKS = 2
ROADS = 1 + JUNCTIONS
"""Road 0 is the main road, road 1 + j the one that crosses it at junction j."""

# Paths: 0 the ego's route, 1 the oncoming lane, 2 the lane beside the ego's, then two for each junction.
ROUTE, ONCOMING, BESIDE, FIRST_CROSSING = 0, 1, 2, 3
PATHS = FIRST_CROSSING + 2 * JUNCTIONS

EGO = 0
ROUTE_VEHICLES = 4
"""Vehicles 0 (the ego) to 3 drive on path 0."""
ONCOMING_VEHICLES = 4
BESIDE_VEHICLES = 2
CROSSING_VEHICLES = 2
"""On each of the two paths of each junction."""
PATH_OF_VEHICLE: tuple[int, ...] = (
    (ROUTE,) * ROUTE_VEHICLES
    + (ONCOMING,) * ONCOMING_VEHICLES
    + (BESIDE,) * BESIDE_VEHICLES
    + tuple(FIRST_CROSSING + k for k in range(2 * JUNCTIONS) for _ in range(CROSSING_VEHICLES))
)
VEHICLES = len(PATH_OF_VEHICLE)
PARKED = 6
WALKERS_PER_CROSSWALK = 2
WALKERS = CROSSWALKS * WALKERS_PER_CROSSWALK
OBJECTS = 48
"""Buildings and trees."""

# Conflicts of the route with other paths: the two crossing paths of each junction, then the oncoming lane at each.
CONFLICTS = 3 * JUNCTIONS
PATH_OF_CONFLICT: tuple[int, ...] = (*range(FIRST_CROSSING, FIRST_CROSSING + 2 * JUNCTIONS), *(ONCOMING,) * JUNCTIONS)
JUNCTION_OF_CONFLICT: tuple[int, ...] = (*(k // 2 for k in range(2 * JUNCTIONS)), *range(JUNCTIONS))

LANE_WIDTH_M = 3.5
STOP_LINE_M = 17.0
"""From a junction's centre to the stop lines of the main road."""
REAR_OVERHANG_M = 1.0
"""From the rear axle, where a vehicle's pose is, to its rear end."""
FAR = 1e6
"""Station of something that is not on a path."""

PRIORITY, LIGHTS, STOP_SIGN = 0, 1, 2
GREEN, AMBER, RED = 0, 1, 2
CAR, VAN, TRUCK, BUS = 0, 1, 2, 3
VEHICLE_NAMES = ("car", "van", "truck", "bus")
VEHICLE_SIZES = ((4.5, 1.85, 1.5), (5.2, 2.0, 2.2), (7.5, 2.4, 3.1), (10.5, 2.5, 3.0))
"""Length, width, height, m."""
COLOUR_NAMES = ("white", "dark", "red", "green", "yellow")
COLOURS = ((0.88, 0.88, 0.9), (0.12, 0.13, 0.16), (0.72, 0.08, 0.08), (0.08, 0.42, 0.2), (0.9, 0.72, 0.1))
EGO_LENGTH_M, EGO_WIDTH_M = 4.7, 1.9
