"""The unicycle and its start speed against closed forms worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from flashdrive_ros.model.action_space import denormalise, initial_speed_mps, normalise, rollout
from flashdrive_ros.model.config import ActionConfig
from flashdrive_ros.window import EgoHistory

CONFIG = ActionConfig()
DT = 0.1


def actions(acceleration, curvature):
    """Normalised actions [64, 2] of the given m/s2 and 1/m."""
    physical = np.broadcast_to(np.stack([acceleration, curvature], axis=-1), (64, 2))
    mean = np.array([0.02902694707164455, 0.0002692167976330542])
    std = np.array([0.6810426736454882, 0.026148280660833106])
    return (physical - mean) / std


def history(positions, headings):
    cos, sin, zero, one = np.cos(headings), np.sin(headings), np.zeros(16), np.ones(16)
    rows = [[cos, -sin, zero], [sin, cos, zero], [zero, zero, one]]
    rotations = np.moveaxis(np.array(rows), -1, 0)
    return EgoHistory(np.column_stack([positions, np.zeros(16)]), rotations)


BACK_S = np.arange(-15, 1) * DT


# scale


def test_one_standard_deviation_above_the_mean():
    # 0.0290269 + 0.6810427 and 0.0002692 + 0.0261483.
    np.testing.assert_allclose(denormalise(np.ones((1, 2)), CONFIG), [[0.7100696, 0.0264175]], atol=1e-7)


def test_normalise_undoes_denormalise():
    values = np.random.default_rng(0).normal(size=(64, 2))
    np.testing.assert_allclose(normalise(denormalise(values, CONFIG), CONFIG), values, atol=1e-12)


def test_float32_actions_are_rolled_out_in_float64():
    waypoints = rollout(np.zeros((64, 2), np.float32), 10.0, CONFIG)
    assert waypoints.positions_m.dtype == np.float64


# rollout


def test_standing_still_stays_at_the_origin():
    waypoints = rollout(actions(0.0, 0.1), 0.0, CONFIG)
    np.testing.assert_allclose(waypoints.positions_m, 0, atol=1e-12)
    np.testing.assert_allclose(waypoints.quaternions_xyzw, np.tile([0, 0, 0, 1], (64, 1)), atol=1e-12)
    np.testing.assert_allclose(waypoints.speeds_mps, 0, atol=1e-12)


def test_straight_at_10_mps_is_a_metre_a_step_and_the_first_point_is_one_step_ahead():
    waypoints = rollout(actions(0.0, 0.0), 10.0, CONFIG)
    np.testing.assert_allclose(waypoints.positions_m[:, 0], np.arange(1.0, 65.0), atol=1e-9)
    np.testing.assert_allclose(waypoints.positions_m[:, 1:], 0, atol=1e-12)
    np.testing.assert_allclose(waypoints.speeds_mps, 10.0)


def test_constant_acceleration_is_exact():
    waypoints = rollout(actions(2.0, 0.0), 3.0, CONFIG)
    time = DT * np.arange(1, 65)
    np.testing.assert_allclose(waypoints.positions_m[:, 0], 3 * time + time**2, atol=1e-9)
    np.testing.assert_allclose(waypoints.speeds_mps, 3 + 2 * time, atol=1e-9)
    np.testing.assert_allclose(waypoints.accelerations_mps2, 2.0, atol=1e-12)


def test_the_first_step_by_hand():
    # v: 10 -> 10.1; heading: 0.1 * (10 * 0.1 + 1 * 0.01 / 2) = 0.1005; trapezoid of the velocity.
    first = rollout(actions(1.0, 0.1), 10.0, CONFIG)
    x = 0.05 * (10 + 10.1 * np.cos(0.1005))
    y = 0.05 * 10.1 * np.sin(0.1005)
    np.testing.assert_allclose(first.positions_m[0], [x, y, 0], atol=1e-12)
    np.testing.assert_allclose(first.quaternions_xyzw[0], [0, 0, np.sin(0.05025), np.cos(0.05025)], atol=1e-12)
    assert first.curvatures_radpm[0] == pytest.approx(0.1)


def test_a_constant_turn_is_the_trapezoid_sum_and_nearly_the_circle():
    # Heading after n steps: n a with a = 0.02 * 10 * 0.1. The sum of (cos k a + cos (k+1) a) / 2 over k < n is
    # sin(n a) / 2 * cot(a / 2), likewise (1 - cos(n a)) / 2 * cot(a / 2) for the sines.
    waypoints = rollout(actions(0.0, 0.02), 10.0, CONFIG)
    heading = 0.02 * np.arange(1, 65)
    scale = 10 * DT / (2 * np.tan(0.01))
    np.testing.assert_allclose(waypoints.positions_m[:, 0], scale * np.sin(heading), atol=1e-9)
    np.testing.assert_allclose(waypoints.positions_m[:, 1], scale * (1 - np.cos(heading)), atol=1e-9)
    # The circle of radius 50 m: the relative difference is a**2 / 12 = 3.3e-5.
    np.testing.assert_allclose(
        waypoints.positions_m[-1, :2], 50 * np.array([np.sin(1.28), 1 - np.cos(1.28)]), rtol=4e-5
    )


def test_backing_with_left_curvature_turns_the_heading_right():
    waypoints = rollout(actions(0.0, 0.05), -1.0, CONFIG)
    assert waypoints.positions_m[-1, 0] < 0
    assert waypoints.quaternions_xyzw[-1, 2] < 0


def test_values_that_are_not_finite_come_out_for_the_guard_to_refuse():
    bad = actions(0.0, 0.0).copy()
    bad[3] = np.nan
    waypoints = rollout(bad, 10.0, CONFIG)
    assert np.isfinite(waypoints.positions_m[:3]).all()
    assert np.isnan(waypoints.positions_m[3:, :2]).all()
    assert not np.isfinite(rollout(np.full((64, 2), 1e300), 10.0, CONFIG).positions_m).all()


# start speed


def test_a_car_that_stood_starts_at_zero():
    assert initial_speed_mps(history(np.zeros((16, 2)), np.zeros(16)), DT) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("speed", [-2.0, 1.0, 10.0, 30.0])
def test_a_constant_speed_is_found_within_the_ridge(speed):
    positions = np.column_stack([speed * BACK_S, np.zeros(16)])
    assert initial_speed_mps(history(positions, np.zeros(16)), DT) == pytest.approx(speed, rel=1e-4)


def test_braking_gives_the_speed_at_the_end_not_the_mean():
    # 10 m/s at t0 after 1.5 s of -3 m/s2 (mean 12.25 m/s); third-order smoothness lets a straight line through.
    positions = np.column_stack([10 * BACK_S - 1.5 * BACK_S**2, np.zeros(16)])
    assert initial_speed_mps(history(positions, np.zeros(16)), DT) == pytest.approx(10.0, abs=0.01)


def test_a_turn_through_pi_gives_the_speed_along_the_path():
    # 8 m/s on a radius of 10 m, turning from 3.0 - 1.2 to 3.0 rad... seen from a frame in which t0 has heading 3.5.
    heading = 3.5 + 8 * BACK_S / 10
    positions = 10 * np.column_stack([np.sin(heading), -np.cos(heading)])
    # Chords of 0.08 rad: the trapezoid rule reads 0.08**2 / 12 = 5e-4 of the speed more than there is.
    assert initial_speed_mps(history(positions, heading), DT) == pytest.approx(8.0, rel=1e-3)


def test_it_is_the_stated_least_squares_problem():
    noise = np.random.default_rng(1)
    heading = np.cumsum(noise.normal(0, 0.05, 16))
    positions = np.cumsum(noise.normal(0.5, 0.1, (16, 2)), axis=0)
    rows, targets = [], []
    for k in range(15):
        for axis, direction in enumerate((np.cos, np.sin)):
            row = np.zeros(16)
            row[k], row[k + 1] = direction(heading[k]), direction(heading[k + 1])
            rows.append(row)
            targets.append(2 * (positions[k + 1, axis] - positions[k, axis]) / DT)
    for k in range(13):
        row = np.zeros(16)
        row[k : k + 4] = (-1, 3, -3, 1)
        rows.append(row * np.sqrt(1e-6 / DT**6))
        targets.append(0.0)
    rows += list(np.sqrt(1e-4) * np.eye(16))
    targets += [0.0] * 16
    expected = np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)[0][-1]
    assert initial_speed_mps(history(positions, heading), DT) == pytest.approx(expected, rel=1e-9)
