"""The guard's plan checks: a car's plan passes, the impossible fails with its numbers, discomfort only warns."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashdrive_ros.guard.plan_checks import check_waypoints
from flashdrive_ros.model.action_space import normalise, rollout
from flashdrive_ros.model.config import ActionConfig
from flashdrive_ros.plan import Waypoints
from flashdrive_ros.reasons import Reason
from flashdrive_ros.window import EgoPose

CONFIG = ActionConfig()


def ego(speed):
    return EgoPose("odom", np.array([623_423.0, 4_848_820.0, 150.0]), np.array([0.0, 0.0, 0.6, 0.8]), speed)


def plan(speed=10.0, acceleration=0.0, curvature=0.0):
    physical = np.empty((64, 2))
    physical[:, 0], physical[:, 1] = acceleration, curvature
    return rollout(normalise(physical, CONFIG), speed, CONFIG)


def changed(waypoints, name, index, value):
    values = getattr(waypoints, name).copy()
    values[index] = value
    return replace(waypoints, **{name: values})


def failure(waypoints, speed=10.0):
    failures, _ = check_waypoints(waypoints, ego(speed))
    assert failures, "expected a failure"
    assert {refusal.source for refusal in failures} == {"plan"}
    return failures[0]


def passes(waypoints, speed=10.0):
    failures, warnings = check_waypoints(waypoints, ego(speed))
    assert failures == []
    return [refusal.reason for refusal in warnings]


@pytest.mark.parametrize(
    ("speed", "acceleration", "curvature"),
    [
        (0.0, 0.0, 0.0),
        (0.0, 1.5, 0.0),
        (10.0, 0.0, 0.0),
        (10.0, 0.0, 0.02),  # 2 m/s2 sideways
        (10.0, -1.5, 0.0),
        (30.0, 0.0, -0.002),
        (2.0, 0.0, 0.2),  # tight parking turn
        (-1.0, 0.0, 0.1),  # backing
    ],
)
def test_ordinary_driving_passes_without_warning(speed, acceleration, curvature):
    assert passes(plan(speed, acceleration, curvature), speed) == []


def test_a_full_stop_passes():
    stopping = np.where(np.arange(64) < 40, -2.5, 0.0)  # 10 m/s, 4 s
    assert passes(plan(10.0, stopping), 10.0) == []


# form


@pytest.mark.parametrize("name", [field.name for field in fields(Waypoints)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_fails_and_is_named(name, bad):
    refusal = failure(changed(plan(), name, 63, bad))
    assert refusal.reason is Reason.PLAN_NOT_FINITE
    assert f"{name} of point 63" in refusal.detail


@pytest.mark.parametrize("name", [field.name for field in fields(Waypoints)])
def test_63_points_fail_as_a_shape(name):
    refusal = failure(replace(plan(), **{name: getattr(plan(), name)[:63]}))
    assert refusal.reason is Reason.PLAN_SHAPE
    assert name in refusal.detail


def test_an_empty_plan_fails_as_a_shape():
    empty = Waypoints(np.empty((0, 3)), np.empty((0, 4)), np.empty(0), np.empty(0), np.empty(0))
    assert failure(empty).reason is Reason.PLAN_SHAPE


@pytest.mark.parametrize("quaternion", [(0, 0, 0, 0), (0, 0, 0, 1.01)])
def test_a_quaternion_that_is_not_unit_fails(quaternion):
    refusal = failure(changed(plan(), "quaternions_xyzw", 5, quaternion))
    assert refusal.reason is Reason.PLAN_SHAPE
    assert "point 5" in refusal.detail


# start


def test_a_plan_that_starts_elsewhere_fails():
    away = replace(plan(), positions_m=plan().positions_m + np.array([0.0, 1.0, 0.0]))
    refusal = failure(away)
    # Allowed: 0.1 m + (1 + 0.1 * 10) m/s * 0.1 s + 9.8 m/s2 * (0.1 s)**2 / 2 = 0.349 m.
    assert refusal.reason is Reason.PLAN_START
    assert "1.00 m from where 10.00 m/s lead in 0.1 s, at most 0.35 m" in refusal.detail


def test_a_plan_in_the_fixed_frame_instead_of_base_link_fails():
    moved = replace(plan(), positions_m=plan().positions_m + ego(10.0).position_m)
    assert failure(moved).reason is Reason.PLAN_START


def test_a_plan_that_starts_one_step_early_fails_at_speed():
    early = replace(plan(30.0), positions_m=plan(30.0).positions_m - [3.0, 0, 0])
    assert failure(early, 30.0).reason is Reason.PLAN_START


def test_a_start_speed_far_from_the_measured_one_fails():
    # At 10 m/s the first speed may differ by 1 + 1 + 0.98 m/s.
    assert passes(plan(12.5), 10.0) == []
    reasons = {refusal.reason for refusal in check_waypoints(plan(14.0), ego(10.0))[0]}
    assert reasons == {Reason.PLAN_START, Reason.PLAN_SPEED}


# speed


@pytest.mark.parametrize("acceleration", [-9.0, 9.0])
def test_hard_but_possible_acceleration_passes_with_a_warning(acceleration):
    pulse = np.where(np.abs(np.arange(64) - 30) < 5, acceleration, 0.0)
    assert Reason.PLAN_SPEED in passes(plan(20.0, pulse), 20.0)


def test_more_than_tyres_can_give_fails():
    refusal = failure(plan(20.0, np.where(np.arange(64) == 10, -11.0, 0.0)), 20.0)
    assert refusal.reason is Reason.PLAN_SPEED
    assert "acceleration 11.00 m/s2 to point 10, at most 9.8" in refusal.detail


def test_backing_out_of_standstill_fails_and_a_little_noise_passes():
    assert passes(plan(0.0, np.where(np.arange(64) < 4, -1.0, 0.0)), 0.0) == []  # -0.4 m/s
    refusal = failure(plan(0.0, np.where(np.arange(64) < 8, -1.0, 0.0)), 0.0)  # -0.8 m/s
    assert refusal.reason is Reason.PLAN_SPEED
    assert "-0.80 m/s, lowest allowed -0.50" in refusal.detail


def test_faster_than_any_road_car_fails():
    assert failure(plan(69.0, 1.0), 69.0).reason is Reason.PLAN_SPEED


def test_positions_and_speeds_that_disagree_fail():
    refusal = failure(changed(plan(), "positions_m", (30, 1), 2.0))
    assert refusal.reason is Reason.PLAN_SPEED
    # sqrt(1 + 2**2) m in 0.1 s.
    assert "22.36 m/s apart at 10.00 m/s" in refusal.detail


# turning


def test_a_curve_tighter_than_any_car_fails():
    refusal = failure(plan(2.0, 0.0, np.where(np.arange(64) == 20, 0.5, 0.0)), 2.0)
    assert refusal.reason is Reason.PLAN_CURVATURE
    assert "0.500 1/m to point 20" in refusal.detail


def test_curvature_means_nothing_at_standstill():
    assert passes(plan(0.0, 0.0, 5.0), 0.0) == []


def test_a_heading_that_flips_fails():
    flipped = changed(plan(), "quaternions_xyzw", slice(30, 64), [0, 0, 1.0, 0])
    refusal = failure(flipped)
    assert refusal.reason is Reason.PLAN_CURVATURE
    assert "31.42 rad/s to point 30" in refusal.detail


def test_sideways_beyond_tyre_friction_fails_and_discomfort_warns():
    # 20 m/s: 0.01 1/m is 4 m/s2, 0.04 1/m is 16 m/s2.
    assert passes(plan(20.0, 0.0, 0.01), 20.0) == [Reason.PLAN_CURVATURE]
    refusal = failure(plan(20.0, 0.0, 0.04), 20.0)
    assert refusal.reason is Reason.PLAN_CURVATURE
    assert "16.00 m/s2 sideways over 1.5 s, at most 12" in refusal.detail


def test_the_heading_may_pass_pi():
    assert passes(plan(5.0, 0.0, 0.1), 5.0) == []  # 3.2 rad in 6.4 s


# everything else


def test_plans_of_random_weights_at_city_speed_are_uncomfortable_but_not_refused():
    noise = np.random.default_rng(0)
    for _ in range(50):
        assert passes(rollout(noise.normal(size=(64, 2)), 12.0, CONFIG), 12.0) is not None


@given(st.lists(st.floats(width=64), min_size=128, max_size=128), st.floats(-100, 100))
def test_any_actions_pass_or_fail_without_an_exception(values, speed):
    failures, warnings = check_waypoints(rollout(np.reshape(values, (64, 2)), speed, CONFIG), ego(speed))
    assert all(str(refusal) for refusal in failures + warnings)


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([field.name for field in fields(Waypoints)]))
def test_any_finite_value_is_judged_without_a_floating_point_warning(value, name):
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        failures, _ = check_waypoints(changed(plan(), name, 20, value), ego(10.0))
    if abs(value) > 1e4:
        assert failures
