"""Odometry to ego history: interpolated in float64, gaps and nonsense refused, and always able to recover."""

from __future__ import annotations

import csv
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashdrive_ros.intake.ego_history import EgoHistoryBuffer, EgoHistorySettings
from flashdrive_ros.intake.messages import odometry_from_message
from flashdrive_ros.intake.odometry import OdometrySample, checked_sample
from flashdrive_ros.reasons import InputRefused, Reason, Refusal
from flashdrive_ros.rotations import yaw_quaternion

SECOND = 1_000_000_000
MS = 1_000_000
START = 1_700_000_000 * SECOND


def sample(time_s, position=(0.0, 0.0, 0.0), yaw=0.0, linear=(0.0, 0.0, 0.0), **changes):
    made = OdometrySample(
        stamp_ns=START + round(time_s * SECOND),
        frame_id="odom",
        child_frame_id="base_link",
        position_m=np.array(position, np.float64),
        quaternion_xyzw=yaw_quaternion(yaw),
        linear_mps=np.array(linear, np.float64),
    )
    return replace(made, **changes)


def straight(time_s, speed=10.0, **changes):
    return sample(time_s, (speed * time_s, 0.0, 0.0), 0.0, (speed, 0.0, 0.0), **changes)


def circle(time_s, speed=10.0, radius=50.0, centre=(0.0, 0.0, 0.0)):
    """A left turn; heading = angle, position = radius (sin, 1 - cos)."""
    angle = speed * time_s / radius
    position = np.array([radius * np.sin(angle), radius * (1 - np.cos(angle)), 0.0]) + centre
    return sample(time_s, position, angle, (speed, 0.0, 0.0))


def filled(samples):
    buffer = EgoHistoryBuffer(EgoHistorySettings())
    for item in samples:
        assert buffer.add(item) is None
    return buffer


def window(buffer, time_s):
    result = buffer.window(START + round(time_s * SECOND))
    assert not isinstance(result, Refusal), result
    return result


def refused(buffer, time_s):
    result = buffer.window(START + round(time_s * SECOND))
    assert isinstance(result, Refusal)
    return result


def times(stop_s, rate_hz, start_s=0.0):
    return [start_s + k / rate_hz for k in range(round((stop_s - start_s) * rate_hz) + 1)]


# geometry


def test_straight_at_10_mps_is_one_metre_a_step_behind_the_car():
    ego = window(filled(straight(t) for t in times(2, 50)), 1.734)
    expected = np.stack([np.arange(-15.0, 1.0), np.zeros(16), np.zeros(16)], axis=-1)
    np.testing.assert_allclose(ego.history.positions_m, expected, atol=1e-9)
    np.testing.assert_allclose(ego.history.rotations, np.tile(np.eye(3), (16, 1, 1)), atol=1e-12)
    np.testing.assert_allclose(ego.pose.position_m, [17.34, 0, 0], atol=1e-9)
    assert ego.pose.speed_mps == pytest.approx(10.0)
    assert ego.pose.frame_id == "odom"
    assert ego.twist_warning is None


def test_a_constant_turn_matches_the_circle_seen_from_its_end():
    # Samples at 100 Hz lie 0.1 m apart on a radius of 50 m: a chord is 0.1**2 / (8 * 50) = 25 um inside the arc.
    ego = window(filled(circle(t) for t in times(2, 100)), 1.755)
    back = 10.0 * np.arange(-15, 1) * 0.1 / 50.0  # heading relative to t0
    expected = 50.0 * np.stack([np.sin(back), 1 - np.cos(back), np.zeros(16)], axis=-1)
    np.testing.assert_allclose(ego.history.positions_m, expected, atol=5e-5)
    np.testing.assert_allclose(
        np.arctan2(ego.history.rotations[:, 1, 0], ego.history.rotations[:, 0, 0]), back, atol=1e-9
    )
    np.testing.assert_array_equal(ego.history.positions_m[-1], 0)
    np.testing.assert_array_equal(ego.history.rotations[-1], np.eye(3))


def test_between_samples_positions_are_linear_and_headings_turn_evenly():
    buffer = filled(sample(t, (t, 2 * t, 3 * t), yaw=0.5 * t, linear=(1, 2, 3)) for t in times(2, 10))
    ego = window(buffer, 1.925)
    np.testing.assert_allclose(ego.pose.position_m, [1.925, 3.85, 5.775], atol=1e-9)
    np.testing.assert_allclose(ego.pose.quaternion_xyzw, yaw_quaternion(0.9625), atol=1e-6)


def test_a_heading_that_wraps_at_pi_or_a_quaternion_that_changes_sign_is_no_turn():
    samples = [sample(t, (-t, 0.0, 0.0), yaw=np.pi - 0.01 + 0.01 * t, linear=(1, 0, 0)) for t in times(2, 10)]
    samples = [
        replace(item, quaternion_xyzw=-item.quaternion_xyzw) if k % 2 else item for k, item in enumerate(samples)
    ]
    history = window(filled(samples), 1.95).history
    yaw = np.arctan2(history.rotations[:, 1, 0], history.rotations[:, 0, 0])
    np.testing.assert_allclose(yaw, 0.01 * np.arange(-15, 1) * 0.1, atol=1e-9)


def test_the_run_shifted_to_utm_coordinates_gives_the_same_history():
    utm = np.array([623_423.4518832434, 4_848_820.616395653, 153.5])
    near = window(filled(circle(t) for t in times(2, 50)), 1.777)
    far = window(filled(circle(t, centre=utm) for t in times(2, 50)), 1.777)
    np.testing.assert_allclose(far.history.positions_m, near.history.positions_m, atol=1e-6)
    np.testing.assert_allclose(far.history.rotations, near.history.rotations, atol=1e-12)
    assert far.pose.speed_mps == pytest.approx(near.pose.speed_mps, abs=1e-6)
    np.testing.assert_allclose(far.pose.position_m - utm, near.pose.position_m, atol=1e-6)


@given(st.integers(0, 40), st.floats(0.0, 0.39))
def test_odometry_newer_than_t0_changes_nothing(extra, offset_s):
    needed = [circle(t) for t in times(2.0, 20)]
    later = [circle(2.05 + 0.05 * k) for k in range(extra)]
    one, other = window(filled(needed), 1.6 + offset_s), window(filled(needed + later), 1.6 + offset_s)
    np.testing.assert_array_equal(one.history.positions_m, other.history.positions_m)
    assert one.pose.speed_mps == other.pose.speed_mps


# how much, and gaps


def test_half_a_second_of_odometry_says_have_and_need():
    refusal = refused(filled(straight(t) for t in times(0.5, 50)), 0.5)
    assert refusal.reason is Reason.HISTORY_SHORT
    assert "have 0.500 s, need 1.500 s" in refusal.detail


def test_nothing_is_extrapolated_past_the_newest_sample():
    buffer = filled(straight(t) for t in times(2, 50))
    window(buffer, 2.0)
    refusal = refused(buffer, 2.001)
    assert refusal.reason is Reason.HISTORY_SHORT
    assert "newest 0.001 s before" in refusal.detail


def test_no_odometry_at_all_is_said():
    assert "have 0.000 s" in refused(filled([]), 1.0).detail


def test_a_hole_of_more_than_200_ms_is_named_until_it_has_left_the_history():
    kept = [t for t in times(4, 20) if not 1.0 < t < 1.3]
    buffer = filled(straight(t) for t in kept)
    refusal = refused(buffer, 2.0)
    assert refusal.reason is Reason.HISTORY_GAP
    assert "0.300 s from t0 -1.000 s to t0 -0.700 s" in refusal.detail
    assert refused(buffer, 2.75).reason is Reason.HISTORY_GAP
    window(buffer, 2.80)


def test_a_hole_of_exactly_200_ms_passes():
    window(filled(straight(t) for t in times(2, 20) if not 1.0 < t < 1.2), 2.0)


def test_one_hertz_odometry_is_a_gap():
    assert refused(filled(straight(t) for t in times(4, 1)), 3.0).reason is Reason.HISTORY_GAP


# stamps


def test_repeated_and_earlier_stamps_are_refused_and_change_nothing():
    buffer = filled(straight(t) for t in times(2, 50))
    assert buffer.add(straight(2.0, position_m=np.array([20.1, 0, 0]))).reason is Reason.STAMP_REPEATED
    assert buffer.add(straight(1.9)).reason is Reason.STAMP_BACKWARD
    np.testing.assert_allclose(window(buffer, 2.0).pose.position_m, [20, 0, 0])


# values


def check(item):
    return checked_sample(item, "odometry")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e256, 1.1e8, -1e9])
@pytest.mark.parametrize("field", ["position_m", "linear_mps"])
def test_values_that_are_no_place_or_speed_are_refused(field, value):
    with pytest.raises(InputRefused) as caught:
        check(sample(1, **{field: np.array([0.0, value, 0.0])}))
    assert caught.value.refusal.reason is Reason.ODOMETRY_NOT_FINITE


@pytest.mark.parametrize(
    ("quaternion", "norm"),
    [((0, 0, 0, 0), "norm 0,"), ((0, 0, 0, 16384), "norm 16384,"), ((0, 0, 0, 0.98), "norm 0.98,")],
)
def test_a_quaternion_far_from_unit_norm_is_refused_with_its_norm(quaternion, norm):
    with pytest.raises(InputRefused) as caught:
        check(sample(1, quaternion_xyzw=np.array(quaternion, np.float64)))
    assert caught.value.refusal.reason is Reason.ODOMETRY_QUATERNION
    assert norm in caught.value.refusal.detail


def test_a_quaternion_near_unit_norm_is_normalised():
    checked = check(sample(1, quaternion_xyzw=0.999 * yaw_quaternion(1.0)))
    np.testing.assert_allclose(checked.quaternion_xyzw, yaw_quaternion(1.0), atol=1e-15)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_a_quaternion_with_nonsense_is_refused(value):
    with pytest.raises(InputRefused):
        check(sample(1, quaternion_xyzw=np.array([0, 0, value, 1.0])))


def test_an_empty_frame_is_refused():
    with pytest.raises(InputRefused) as caught:
        check(sample(1, frame_id=""))
    assert caught.value.refusal.reason is Reason.ODOMETRY_FRAME


@given(st.lists(st.floats(), min_size=10, max_size=10))
def test_any_ten_numbers_pass_as_a_pose_or_are_refused(values):
    message_sample = sample(
        1,
        position_m=np.array(values[:3]),
        quaternion_xyzw=np.array(values[3:7]),
        linear_mps=np.array(values[7:]),
    )
    try:
        checked = check(message_sample)
    except InputRefused:
        return
    assert abs(np.linalg.norm(checked.quaternion_xyzw) - 1) < 1e-12


def test_a_message_is_read_by_its_fields():
    xyz = SimpleNamespace
    message = SimpleNamespace(
        header=SimpleNamespace(stamp=SimpleNamespace(sec=5, nanosec=7), frame_id="map"),
        child_frame_id="base_link",
        pose=SimpleNamespace(
            pose=SimpleNamespace(position=xyz(x=1.0, y=2.0, z=3.0), orientation=xyz(x=0.0, y=0.0, z=0.6, w=0.8))
        ),
        twist=SimpleNamespace(twist=SimpleNamespace(linear=xyz(x=4.0, y=5.0, z=6.0))),
    )
    made = odometry_from_message(message, "odometry")
    assert (made.stamp_ns, made.frame_id, made.child_frame_id) == (5_000_000_007, "map", "base_link")
    assert made.position_m.tolist() == [1, 2, 3]
    assert made.quaternion_xyzw.tolist() == [0, 0, 0.6, 0.8]
    assert made.linear_mps.tolist() == [4, 5, 6]


# jumps and frames


def test_one_outlier_is_refused_and_the_history_goes_on():
    buffer = EgoHistoryBuffer(EgoHistorySettings())
    for t in times(2, 20):
        item = straight(t, position_m=np.array([5000.0, 0, 0])) if t == 1.0 else straight(t)
        refusal = buffer.add(item)
        assert (refusal is not None) == (t == 1.0)
        assert refusal is None or refusal.reason is Reason.ODOMETRY_JUMP
    np.testing.assert_allclose(window(buffer, 2.0).history.positions_m[:, 0], np.arange(-15.0, 1.0), atol=1e-9)


def test_a_confirmed_jump_starts_a_new_history_and_keeps_the_old_one_for_waiting_windows():
    buffer = filled(straight(t) for t in times(2, 20))
    far = [straight(t, position_m=np.array([10 * t + 5000, 0, 0])) for t in times(4, 20, start_s=2.05)]
    assert buffer.add(far[0]).reason is Reason.ODOMETRY_JUMP
    for item in far[1:]:
        assert buffer.add(item) is None
    window(buffer, 1.99)  # entirely before the jump
    refusal = refused(buffer, 3.0)
    assert refusal.reason is Reason.HISTORY_SHORT
    assert "have 0.950 s" in refusal.detail
    assert refused(buffer, 2.02).reason is Reason.HISTORY_SHORT
    assert refused(buffer, 3.54).reason is Reason.HISTORY_SHORT
    np.testing.assert_allclose(window(buffer, 3.56).history.positions_m[0], [-15, 0, 0], atol=1e-9)


def test_a_changed_frame_is_refused_once_then_a_new_history_starts():
    buffer = filled(straight(t) for t in times(2, 20))
    assert buffer.add(straight(2.05, frame_id="map")).reason is Reason.ODOMETRY_FRAME
    for t in times(4, 20, start_s=2.1):
        assert buffer.add(straight(t, frame_id="map")) is None
    assert refused(buffer, 2.5).reason is Reason.HISTORY_SHORT
    assert window(buffer, 3.9).pose.frame_id == "map"


def test_a_second_publisher_in_another_frame_cannot_stop_the_first():
    buffer = EgoHistoryBuffer(EgoHistorySettings())
    for t in times(2, 20):
        assert buffer.add(straight(t)) is None
        assert buffer.add(straight(t + 0.01, frame_id="map")).reason is Reason.ODOMETRY_FRAME
    assert window(buffer, 2.0).pose.frame_id == "odom"


def test_stamps_microseconds_apart_are_no_jump():
    buffer = filled(straight(t) for t in times(1, 20))
    assert buffer.add(straight(1.000003, position_m=np.array([10.02, 0, 0]))) is None


@pytest.mark.parametrize("rate_hz", [20, 100, 2000])
def test_memory_is_bounded_and_long_enough(rate_hz):
    buffer = EgoHistoryBuffer(EgoHistorySettings())
    for k in range(10 * rate_hz):
        buffer.add(straight(k / rate_hz, frame_id="map" if k % 7 in (5, 6) else "odom"))
        assert len(buffer._samples) == len(buffer._stamps) <= min(4000, 4 * rate_hz + 1)
        assert len(buffer._segment_starts) <= len(buffer._stamps)
    assert buffer._stamps[-1] - buffer._stamps[0] > 1.9 * SECOND


# speed


def test_a_twist_in_the_world_frame_is_noticed_and_the_speed_comes_from_poses():
    north = [sample(t, (0.0, 8.0 * t, 0.0), yaw=np.pi / 2, linear=(0.0, 8.0, 0.0)) for t in times(2, 50)]
    ego = window(filled(north), 1.91)
    assert ego.pose.speed_mps == pytest.approx(8.0, abs=1e-6)
    assert ego.twist_warning is not None
    assert ego.twist_warning.reason is Reason.ODOMETRY_TWIST


def test_a_twist_left_at_zero_is_noticed():
    ego = window(filled(straight(t, linear_mps=np.zeros(3)) for t in times(2, 50)), 1.91)
    assert ego.pose.speed_mps == pytest.approx(10.0, abs=1e-6)
    assert ego.twist_warning.reason is Reason.ODOMETRY_TWIST


@pytest.mark.parametrize("child", ["", "odom"])
def test_without_a_body_frame_the_speed_comes_from_poses(child):
    ego = window(filled(straight(t, linear_mps=np.zeros(3), child_frame_id=child) for t in times(2, 50)), 1.91)
    assert ego.pose.speed_mps == pytest.approx(10.0, abs=1e-6)
    assert f"'{child}'" in ego.twist_warning.detail


def test_braking_is_followed_to_the_end_of_the_history():
    # 20 m/s and -4 m/s2: at 1.9 s the speed is 12.4 m/s; linear interpolation of the parabola adds micrometres only.
    braking = [sample(t, (20 * t - 2 * t * t, 0.0, 0.0), child_frame_id="") for t in times(2, 100)]
    assert window(filled(braking), 1.9).pose.speed_mps == pytest.approx(12.4, abs=0.01)


def test_one_localisation_correction_does_not_discredit_the_twist():
    moved = [straight(t, position_m=np.array([10 * t + (0.3 if t > 1.02 else 0.0), 0, 0])) for t in times(2, 50)]
    ego = window(filled(moved), 1.91)
    assert ego.pose.speed_mps == pytest.approx(10.0)
    assert ego.twist_warning is None


def test_backing_is_a_negative_speed_from_either_source():
    for child in ("base_link", ""):
        back = [straight(t, speed=-2.0, child_frame_id=child) for t in times(2, 50)]
        assert window(filled(back), 1.91).pose.speed_mps == pytest.approx(-2.0, abs=1e-6)


# real data


def test_boreas_utm_poses_give_the_measured_speed_and_their_hole_is_refused(shared_data):
    path = shared_data / "boreas" / "boreas-2021-09-02-11-42_camera_poses.csv"
    rows = np.genfromtxt(path, delimiter=",", skip_header=1)[8300:8560]
    buffer = EgoHistoryBuffer(EgoHistorySettings())
    first_us = int(rows[0, 0])
    outcomes = {}
    for row in rows:
        item = OdometrySample(
            stamp_ns=int(row[0]) * 1000,
            frame_id="utm",
            child_frame_id="",
            position_m=row[1:4],
            quaternion_xyzw=yaw_quaternion(np.arctan2(row[5], row[4])),
            linear_mps=row[4:7],
        )
        assert buffer.add(item) is None
        outcome = buffer.window(item.stamp_ns)
        outcomes[(int(row[0]) - first_us) / 1e6] = outcome
        if not isinstance(outcome, Refusal):
            assert outcome.pose.speed_mps == pytest.approx(np.hypot(row[4], row[5]), abs=0.6)
            assert np.all(np.abs(outcome.history.positions_m) < 40)
    reasons = [outcome.reason for outcome in outcomes.values() if isinstance(outcome, Refusal)]
    assert reasons.count(Reason.HISTORY_GAP) > 15
    assert set(reasons) == {Reason.HISTORY_SHORT, Reason.HISTORY_GAP}
    assert len(reasons) < len(outcomes) / 2


def test_comma2k19_poses_in_ecef_give_the_speed_on_the_can_bus(shared_data):
    folder = shared_data / "comma2k19"
    stamps_s = np.load(folder / "global_pose" / "frame_times")
    positions = np.load(folder / "global_pose" / "frame_positions")
    wxyz = np.load(folder / "global_pose" / "frame_orientations")
    can_s = np.load(folder / "CAN" / "speed" / "t")
    can_mps = np.load(folder / "CAN" / "speed" / "value")[:, 0]
    buffer = EgoHistoryBuffer(EgoHistorySettings())
    errors = []
    for stamp_s, position, (w, x, y, z) in zip(stamps_s, positions, wxyz, strict=True):
        item = OdometrySample(round(stamp_s * SECOND), "ecef", "", position, np.array([x, y, z, w]), np.zeros(3))
        assert buffer.add(checked_sample(item, "odometry")) is None
        outcome = buffer.window(item.stamp_ns)
        if isinstance(outcome, Refusal):
            assert outcome.reason is Reason.HISTORY_SHORT
        else:
            errors.append(outcome.pose.speed_mps - np.interp(stamp_s, can_s, can_mps))
    assert len(errors) > 1150  # 20 Hz for 60 s, less the first 1.5 s
    assert np.abs(np.mean(errors)) < 0.3
    assert np.max(np.abs(errors)) < 1.5


def test_novatel_velocities_are_noticed_to_be_in_the_world_frame(shared_data):
    buffer = EgoHistoryBuffer(EgoHistorySettings())
    with (shared_data / "opencalib" / "novatel-enu.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    for number, row in enumerate(rows[8800:9001]):
        x, y, z, ve, vn, vu, _, _, azimuth = map(float, row[1:10])
        item = sample(number / 100, (x, y, z), yaw=np.pi / 2 - azimuth, linear=(ve, vn, vu))
        assert buffer.add(item) is None
    ego = window(buffer, 2.0)
    assert ego.twist_warning.reason is Reason.ODOMETRY_TWIST
    assert ego.pose.speed_mps == pytest.approx(np.hypot(ve, vn), abs=0.1)
