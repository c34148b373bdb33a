"""The driving world's rules against hand calculations, and that a scene is its seed."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from flashdrive_ros.world import layout  # noqa: E402
from flashdrive_ros.world.driving import (  # noqa: E402
    bicycle,
    following_acceleration,
    limited_curvature,
    pursuit_curvature,
    stopping_acceleration,
)
from flashdrive_ros.world.geometry import collisions, on_road, overlap, wheels  # noqa: E402
from flashdrive_ros.world.roads import Roads, road_coordinates, road_table  # noqa: E402
from flashdrive_ros.world.scene import make_scenes  # noqa: E402
from flashdrive_ros.world.simulation import Rollout, simulate, simulate_from  # noqa: E402
from flashdrive_ros.world.state import initial_state, light_states  # noqa: E402
from flashdrive_ros.world.windows import ego_future, ego_history, usable_windows  # noqa: E402

SCENES, STEPS = 60, 200


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small arrays on a busy machine: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def rollout() -> Rollout:
    return simulate(make_scenes(range(5000, 5000 + SCENES)), STEPS)


def test_car_following_settles_at_the_gap_of_the_idm() -> None:
    # s = (2.5 m + 10 m/s * 1.4 s) / sqrt(1 - (10/15)^4) = 16.5 / sqrt(65/81) = 18.419 m
    gap = torch.tensor([16.5 / math.sqrt(65 / 81)])
    same = torch.tensor([10.0])
    assert following_acceleration(same, torch.tensor([15.0]), gap, torch.zeros(1)).item() == pytest.approx(0, abs=1e-4)


def test_car_driven_towards_a_line_stops_before_it_without_harsh_braking() -> None:
    speed, gap, hardest = torch.tensor([14.0]), torch.tensor([90.0]), 0.0
    for _ in range(300):
        acceleration = stopping_acceleration(speed, torch.tensor([14.0]), gap)
        hardest = min(hardest, acceleration.item())
        new = (speed + 0.1 * acceleration).clamp(min=0)
        gap, speed = gap - (speed + new) / 2 * 0.1, new
    assert 0.0 < gap.item() < 2.0
    assert hardest > -3.0


def test_bicycle_drives_a_quarter_circle_of_its_radius() -> None:
    # radius 10 m at 5 m/s: a quarter is 15.708 m, 31.4159 steps; after 31 steps the angle is 1.55 rad
    ego, speed = torch.zeros(1, 4), torch.tensor([5.0])
    for _ in range(31):
        ego, speed = bicycle(ego, speed, torch.zeros(1), torch.tensor([0.1]))
    assert ego[0, 2].item() == pytest.approx(1.55, abs=1e-5)
    assert ego[0, 0].item() == pytest.approx(10 * math.sin(1.55), abs=1e-3)
    assert ego[0, 1].item() == pytest.approx(10 * (1 - math.cos(1.55)), abs=1e-3)


def test_braking_never_rolls_the_car_backwards() -> None:
    ego, speed = bicycle(torch.zeros(1, 4), torch.tensor([0.2]), torch.tensor([-8.0]), torch.zeros(1))
    assert speed.item() == 0
    assert ego[0, 0].item() == pytest.approx(0.01)


def test_pursuit_drives_the_circle_through_its_target() -> None:
    # A circle of radius 20 m, 0.3 rad ahead: (20 sin 0.3, 20 (1 - cos 0.3)).
    target = torch.tensor([[20 * math.sin(0.3), 20 * (1 - math.cos(0.3))]])
    assert pursuit_curvature(torch.zeros(1, 4), target).item() == pytest.approx(0.05, rel=1e-5)


def test_steering_is_slow_at_speed() -> None:
    # 5 m/s3 sideways at 10 m/s: 0.05 1/m/s, 0.005 1/m in a step
    assert limited_curvature(torch.zeros(1), torch.ones(1), torch.tensor([10.0])).item() == pytest.approx(0.005)


def test_straight_tilted_road_gives_station_and_offset_of_plane_geometry() -> None:
    slope = torch.full((1, 1, 801), 0.75)  # 3-4-5: the road leads along (0.8, 0.6)
    offset = 0.75 * (torch.arange(801) - 400.0).view(1, 1, 801)
    roads = Roads(torch.zeros(1, 1, 2), torch.zeros(1, 1), torch.tensor([-400.0]), road_table(offset, slope, 400))
    # 10 m along the road and 3 m to its left
    x, y = torch.tensor([10 * 0.8 - 3 * 0.6]), torch.tensor([10 * 0.6 + 3 * 0.8])
    station, lateral, _ = road_coordinates(roads, 0, torch.tensor([0]), x, y)
    assert station.item() == pytest.approx(10, abs=1e-3)
    assert lateral.item() == pytest.approx(3, abs=1e-3)


def test_boxes_overlap_only_when_no_axis_separates_them() -> None:
    own = torch.tensor([0.0, 0.0, 0.0, 2.0, 1.0])
    # A 2 x 2 m box turned by 45 degrees reaches sqrt(2) to its side.
    near = torch.tensor([2 + math.sqrt(2) - 0.01, 0.0, math.pi / 4, 1.0, 1.0])
    far = torch.tensor([2 + math.sqrt(2) + 0.01, 0.0, math.pi / 4, 1.0, 1.0])
    assert bool(overlap(own, near))
    assert not bool(overlap(own, far))


def test_lights_follow_their_cycle() -> None:
    times = torch.tensor([[[10.0, 8.0, 0.0]]])  # cycle: 10 green, 3 amber, 2 red, then 8 + 3 + 2 for the crossing road
    main = [light_states(times, t)[0].item() for t in (0.0, 9.9, 10.1, 13.1, 27.9, 28.1)]
    crossing = [light_states(times, t)[1].item() for t in (0.0, 14.9, 15.1, 23.1, 26.1)]
    assert main == [layout.GREEN, layout.GREEN, layout.AMBER, layout.RED, layout.RED, layout.GREEN]
    assert crossing == [layout.RED, layout.RED, layout.GREEN, layout.AMBER, layout.RED]


def test_same_seed_gives_the_same_drive_in_any_batch(rollout: Rollout) -> None:
    alone = simulate(make_scenes([5007]), STEPS)
    assert torch.allclose(alone.ego[:, 0], rollout.ego[:, 7], atol=1e-3)
    assert torch.equal(alone.cause[:, 0], rollout.cause[:, 7])


def test_other_seeds_give_other_drives(rollout: Rollout) -> None:
    assert len({round(x, 3) for x in rollout.ego[-1, :, 0].tolist()}) == SCENES


def test_expert_neither_collides_nor_leaves_the_road(rollout: Rollout) -> None:
    scenes = rollout.scenes
    for k in range(0, STEPS, 2):
        assert not collisions(scenes, rollout.ego[k, :, :3], rollout.vehicles[k], rollout.walkers[k]).any()
        assert on_road(scenes, wheels(rollout.ego[k, :, :3])).all()


def test_expert_stops_before_red_lights_and_stop_signs(rollout: Rollout) -> None:
    """Whoever crosses a stop line under a stop sign has stood within 2.5 m before it; nobody crosses on red."""
    scenes = rollout.scenes
    front = rollout.ego_station + layout.EGO_LENGTH_M - layout.REAR_OVERHANG_M
    crossings = 0
    for j in range(layout.JUNCTIONS):
        line = scenes.stop_station[:, layout.ROUTE, j]
        crossed = (front[1:] > line) & (front[:-1] <= line)
        for k, b in crossed.nonzero().tolist():
            crossings += 1
            if scenes.control[b, j] == layout.STOP_SIGN:
                before = (line[b] - front[: k + 1, b]) < 2.6
                assert rollout.ego[: k + 1, b, 3][before].min() < 0.5
            if scenes.control[b, j] == layout.LIGHTS:
                assert light_states(scenes.light_times, 0.1 * k)[0][b, j] != layout.RED
    assert crossings > 20


def test_expert_is_comfortable_most_of_the_time(rollout: Rollout) -> None:
    acceleration = rollout.ego[..., 4].flatten()
    assert acceleration.quantile(0.01) > -3.5
    lateral = torch.diff(rollout.ego[..., 2], dim=0) / 0.1 * rollout.ego[1:, :, 3]
    assert lateral.abs().max() < 3.0


def test_expert_returns_to_its_lane_from_a_start_beside_and_askew_of_it() -> None:
    scenes = make_scenes([5001])
    state = initial_state(scenes)
    state.ego[:, 1] += 1.0
    state.ego[:, 2] += 0.1
    state.speed[:, layout.EGO] = 8.0
    future = simulate_from(scenes, state, 65)
    at = scenes.path[0, layout.ROUTE, int(future.ego_station[-1, 0].round()), :2]
    assert torch.dist(future.ego[-1, 0, :2], at) < 0.6


def test_histories_and_futures_are_in_the_frame_of_t0(rollout: Rollout) -> None:
    step, scene = torch.tensor([40]), torch.tensor([3])
    future = ego_future(rollout, step, scene)[0]
    positions, yaws = ego_history(rollout, step, scene)
    x, y, yaw = rollout.ego[40, 3, :3].tolist()
    later_x, later_y, later_yaw = rollout.ego[104, 3, :3].tolist()
    assert positions[0, -1].tolist() == [0, 0]
    assert yaws[0, -1].item() == pytest.approx(0, abs=1e-6)
    assert future[-1, 0].item() == pytest.approx(
        (later_x - x) * math.cos(yaw) + (later_y - y) * math.sin(yaw), abs=1e-3
    )
    assert future[-1, 2].item() == pytest.approx(later_yaw - yaw, abs=1e-4)


def test_no_usable_window_has_a_disturbance_in_its_future() -> None:
    pushed = simulate(make_scenes(range(6)), 264, 1.0)
    step, scene = usable_windows(pushed)
    usable = set(zip(step.tolist(), scene.tolist(), strict=True))
    assert usable
    for k in range(200):
        for b in range(6):
            calm = k >= 15 and not bool(pushed.disturbed[k : k + 64, b].any())
            assert ((k, b) in usable) == calm
