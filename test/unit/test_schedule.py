"""Flow schedules against integrals worked out by hand, through the integrator that the action stage runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flashdrive_ros.action.schedule import FlowSchedule, dense_schedule, flow_tables
from flashdrive_ros.errors import ParameterError
from flashdrive_ros.model.config import NANO

torch = pytest.importorskip("torch")

WAYPOINTS = NANO.action.waypoints
REUSE = FlowSchedule("reuse", 8, (0, 1, 2, 7), dict.fromkeys((3, 4, 5, 6), (0.0, 0.0, 1.0)), "published")


def integrate(schedule: FlowSchedule, velocity, noise: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """The end point of `noise` [K, waypoints, 2] under `velocity(x, t)`, and the times of its evaluations."""
    from flashdrive_ros.model.expert import integrate as flow
    from flashdrive_ros.model.operators import Rotation

    evaluations: list[float] = []

    def expert(rows, rotation, context, visible):
        evaluations.append(float(rows[0, 2]))
        return velocity(rows[:, :2], rows[:, 2:])

    projection = torch.nn.Linear(2, 2, dtype=torch.float64).requires_grad_(False)
    projection.weight.copy_(torch.eye(2))
    projection.bias.zero_()
    times, weights = (torch.from_numpy(table).double() for table in flow_tables(schedule))
    half_turn = torch.zeros(1, WAYPOINTS, 4)
    actions = flow(
        NANO,
        expert,
        lambda actions, time: torch.cat([actions, time[:, None]], dim=-1),
        projection,
        torch.from_numpy(noise),
        times,
        weights,
        Rotation(half_turn, half_turn),
        [],
        torch.ones(1, 3, dtype=torch.bool),
    )
    return actions.numpy(), evaluations


def noise(samples: int = 2) -> np.ndarray:
    return np.random.default_rng(4).normal(size=(samples, WAYPOINTS, 2))


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 10])
def test_a_straight_flow_ends_exactly_where_it_aims_for_any_number_of_steps(steps: int):
    # v = (target - x) / (1 - t) is constant along the line from x_0 to the target.
    target = torch.tensor([0.7, -1.3], dtype=torch.float64)
    found, evaluations = integrate(dense_schedule(steps), lambda x, t: (target - x) / (1 - t), noise())
    np.testing.assert_allclose(found, np.broadcast_to(target, found.shape), atol=1e-6)
    np.testing.assert_allclose(evaluations, np.arange(steps) / steps, atol=1e-7)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 10])
def test_a_linear_flow_grows_by_the_same_factor_in_every_step(steps: int):
    # x' = 0.5 x: each Euler step multiplies by 1 + 0.5 / N.
    start = noise()
    found, evaluations = integrate(dense_schedule(steps), lambda x, t: 0.5 * x, start)
    np.testing.assert_allclose(found, start * (1 + 0.5 / steps) ** steps, rtol=1e-6)
    assert len(evaluations) == steps
    again, _ = integrate(dense_schedule(steps), lambda x, t: 0.5 * x, start)
    np.testing.assert_array_equal(again, found)


def bent(x, t):
    return torch.sin(3 * x) + torch.cos(5 * t) * x.flip(-1)


def test_published_reuse_is_euler_on_an_uneven_grid():
    found, evaluations = integrate(REUSE, bent, noise())
    expected = torch.from_numpy(noise())
    grid = [0, 1 / 8, 2 / 8, 7 / 8, 1]
    for start, stop in itertools.pairwise(grid):
        expected = expected + (stop - start) * bent(expected, torch.full((1, 1), start, dtype=torch.float64))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12)
    assert evaluations == [0, 1 / 8, 2 / 8, 7 / 8]


def test_reusing_nothing_is_the_dense_schedule():
    everything = FlowSchedule("all", 8, tuple(range(8)), {}, "test")
    for found, expected in zip(flow_tables(everything), flow_tables(dense_schedule(8)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_combinations_add_up_to_one_matrix():
    # Grid of 4; evaluated 0 and 2. Step 0 and 1 both use v0: 0.5 v0. Step 2: 0.25 v2; step 3: 0.25 (2 v2 - v0).
    schedule = FlowSchedule("extrapolate", 4, (0, 2), {1: (1.0,), 3: (-1.0, 2.0)}, "test")
    times, weights = flow_tables(schedule)
    np.testing.assert_array_equal(times, [0, 0.5])
    np.testing.assert_array_equal(weights, [[0.5, 0], [-0.25, 0.75]])


def test_weights_of_a_consistent_schedule_cover_the_whole_time():
    for schedule in (dense_schedule(7), REUSE):
        times, weights = flow_tables(schedule)
        assert weights.sum() == pytest.approx(1, abs=1e-6)
        assert times.dtype == weights.dtype == np.float32
        assert not np.triu(weights, 1).any()


def test_samples_do_not_see_each_other():
    from flashdrive_ros.model.expert import sample_visibility

    visible = sample_visibility(2, 3, torch.device("cpu")).int().tolist()
    assert visible == [[1, 1, 1, 0, 0, 0]] * 3 + [[0, 0, 0, 1, 1, 1]] * 3


@pytest.mark.parametrize(
    ("evaluated", "coefficients"),
    [
        ((), {}),
        ((1, 2), {0: ()}),
        ((0, 2, 1), {}),
        ((0, 1, 1), {}),
        ((0, 1, 2, 3, 4), {}),
        ((0, -1), {}),
        ((0, 1, 2), {}),
        ((0, 1, 2), {3: (1.0,)}),
        ((0, 1, 2), {3: (1.0, 0.0, 0.0, 0.0)}),
    ],
)
def test_an_illegal_schedule_is_refused_by_its_name(evaluated, coefficients):
    schedule = FlowSchedule("bad one", 4, evaluated, coefficients, "test")
    with pytest.raises(ParameterError, match="bad one"):
        flow_tables(schedule)
