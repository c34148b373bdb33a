"""The closed loop: windows as the vehicle's, a good plan drives well, no plan stops, a blind plan is found out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from flashdrive_ros.plan import Plan, ReasoningText, StageTiming, Waypoints  # noqa: E402
from flashdrive_ros.reasons import Reason, Refusal  # noqa: E402
from flashdrive_ros.rotations import rotation_matrix, yaw_of, yaw_quaternion  # noqa: E402
from flashdrive_ros.window import PlanningWindow  # noqa: E402
from flashdrive_ros.world.closed_loop import (  # noqa: E402
    Observation,
    plan_deviation,
    run_closed_loop,
    run_closed_loops,
)
from flashdrive_ros.world.scene import make_scenes, select  # noqa: E402
from flashdrive_ros.world.simulation import simulate  # noqa: E402
from flashdrive_ros.world.tracking import follow_plan  # noqa: E402

NO_TIME = StageTiming(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small arrays on a busy machine: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def plan_of(window: PlanningWindow, x: np.ndarray, y: np.ndarray, yaw: np.ndarray, speed: np.ndarray) -> Plan:
    positions = np.stack([x, y, np.zeros_like(x)], axis=-1)
    waypoints = Waypoints(positions, yaw_quaternion(yaw), speed, np.zeros_like(x), np.zeros_like(x))
    reasoning = ReasoningText("", (), False)
    return Plan(window.window_id, window.t0_ns, (waypoints,), reasoning, window.ego, NO_TIME, ())


def straight_on(window: PlanningWindow) -> Plan:
    """Keeps its speed, whatever happens."""
    time = 0.1 * np.arange(1, 65)
    speed = max(window.ego.speed_mps, 8.0)
    return plan_of(window, speed * time, 0 * time, 0 * time, 0 * time + speed)


def test_following_the_experts_future_ends_where_the_expert_does() -> None:
    expert = simulate(make_scenes([3]), 120)

    def planner(window: PlanningWindow) -> Plan:
        future = expert.ego[window.window_id + 1 : window.window_id + 65, 0].double().numpy()
        flat = np.concatenate([future[:, :2], np.zeros((len(future), 1))], axis=-1) - window.ego.position_m
        local = flat @ rotation_matrix(window.ego.quaternion_xyzw)
        return plan_of(
            window, local[:, 0], local[:, 1], future[:, 2] - yaw_of(window.ego.quaternion_xyzw), future[:, 3]
        )

    result = run_closed_loop(3, planner, duration_s=3.0)
    assert result.collision == ""
    assert result.off_road_share == 0
    assert result.expert_distance_max_m < 0.6
    assert result.progress_m == pytest.approx(result.expert_progress_m, abs=0.6)
    assert result.plan_deviation_m == pytest.approx(0, abs=1e-4)


def test_scenes_run_together_as_they_run_alone() -> None:
    scenes = make_scenes([3, 8])
    expert = simulate(scenes, 120)

    def planner(observation: Observation) -> torch.Tensor:
        k = observation.step
        return expert.ego[k + 1 : k + 65, :, [0, 1, 3]].transpose(0, 1)

    together = run_closed_loops(scenes, planner, duration_s=3.0)
    alone = run_closed_loops(
        select(scenes, torch.tensor([1])), lambda seen: planner(seen)[1:], duration_s=3.0, latency_s=0.1
    )
    assert [result.seed for result in together] == [3, 8]
    assert together[1].progress_m == pytest.approx(alone[0].progress_m, abs=1e-3)
    assert together[1].expert_distance_max_m < 0.6


def test_windows_carry_four_pictures_and_exact_history() -> None:
    seen: list[PlanningWindow] = []

    def planner(window: PlanningWindow) -> Refusal:
        seen.append(window)
        return Refusal(Reason.STREAM_FILLING, "stream", "test")

    result = run_closed_loop(5, planner, duration_s=1.8)
    assert result.plans == 0
    assert result.refusals == {"stream_filling": 3}
    window = seen[0]
    assert [frame.camera for frame in window.frames] == [0, 1, 2, 6]
    assert {frame.pixels.shape for frame in window.frames} == {(96, 160, 3)}
    assert window.history.positions_m.shape == (16, 3)
    assert not window.history.positions_m[-1].any()
    expert = simulate(make_scenes([5]), 16).ego[:, 0, :2].double().numpy()
    driven = np.linalg.norm(expert[0] - expert[15])
    assert np.linalg.norm(window.history.positions_m[0]) == pytest.approx(driven, abs=1e-3)
    assert seen[1].t0_ns - seen[0].t0_ns == 100_000_000


def test_planner_that_sees_nothing_runs_into_the_car_ahead() -> None:
    result = run_closed_loop(10, straight_on, duration_s=6.0, latency_s=0.2)
    assert result.collision == "vehicle"
    assert result.collision_s == pytest.approx(result.driven_s, abs=2.0)


def test_plan_deviation_compares_the_same_times() -> None:
    # The second plan, a step later, lies 0.5 m beside the first one's points for the same times.
    first = torch.stack([torch.arange(1.0, 65), torch.zeros(64), torch.ones(64)], -1)
    second = first + torch.tensor([1.0, 0.5, 0.0])
    assert plan_deviation([(10, first), (11, second)]) == pytest.approx(0.5)


def test_plan_that_ran_out_brakes() -> None:
    plan = torch.stack([torch.arange(1.0, 65), torch.zeros(64), torch.full((64,), 10.0)], -1)[None]
    controls = follow_plan(torch.zeros(1, 4), torch.tensor([10.0]), plan, 64)
    assert controls[0, 0].item() == -2.5
