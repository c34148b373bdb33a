"""The intake: same messages, same windows; every refusal said; a bag loop is one jump; all memory bounded."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashdrive_ros.cameras import CAMERAS
from flashdrive_ros.errors import ParameterError
from flashdrive_ros.intake.odometry import OdometrySample
from flashdrive_ros.intake.route import clean_route
from flashdrive_ros.intake.settings import IntakeSettings, camera_indices
from flashdrive_ros.intake.window_builder import Intake
from flashdrive_ros.reasons import InputRefused, Reason, Refusal
from flashdrive_ros.window import PlanningWindow

MS = 1_000_000
START_MS = 1_700_000_000_000
CAMERA_SET = (0, 1, 2, 6)
ODOMETRY = "odometry"


def picture(value=0):
    return np.full((2, 3, 3), value % 256, np.uint8)


def odometry(time_ms, speed=10.0, **changes):
    fields = {
        "stamp_ns": (START_MS + time_ms) * MS,
        "frame_id": "odom",
        "child_frame_id": "base_link",
        "position_m": np.array([speed * time_ms / 1000, 0.0, 0.0]),
        "quaternion_xyzw": np.array([0.0, 0.0, 0.0, 1.0]),
        "linear_mps": np.array([speed, 0.0, 0.0]),
    }
    return OdometrySample(**{**fields, **changes})


def drive(stop_ms, *, start_ms=0, cameras=CAMERA_SET, odometry_from_ms=-2000, period_ms=100):
    """(time in ms, topic) of all messages, in time order; odometry at 50 Hz."""
    messages = [(time, camera) for camera in cameras for time in range(start_ms, stop_ms, period_ms)]
    messages += [(time, ODOMETRY) for time in range(start_ms + odometry_from_ms, stop_ms + 20, 20)]
    return sorted(messages, key=lambda message: (message[0], str(message[1])))


def give(intake, time_ms, topic):
    if topic == ODOMETRY:
        return intake.add_odometry(odometry(time_ms))
    return intake.add_image(topic, (START_MS + time_ms) * MS, picture(time_ms // 100))


def play(intake, messages):
    """Everything from poll, in order, polled after each message; no message may be refused."""
    items = []
    for time_ms, topic in messages:
        assert give(intake, time_ms, topic) is None
        items += intake.poll()
    return items


def times_ms(items):
    return [item.t0_ns // MS - START_MS for item in items if isinstance(item, PlanningWindow)]


def refusals(items):
    return [item for item in items if isinstance(item, Refusal)]


def fingerprint(window):
    return (
        window.window_id,
        window.t0_ns,
        tuple((frame.camera, frame.stamp_ns, frame.pixels.tobytes()) for frame in window.frames),
        window.ego.position_m.tobytes(),
        window.ego.speed_mps,
        window.history.positions_m.tobytes(),
        window.history.rotations.tobytes(),
        window.spread_ns,
    )


def intake_of(cameras=CAMERA_SET, **changes):
    return Intake(IntakeSettings(cameras=cameras, **changes))


# complete windows


def test_a_complete_drive_gives_a_window_at_every_reference_frame():
    items = play(intake_of(), drive(1000))
    assert times_ms(items) == list(range(0, 1000, 100))
    assert [item.window_id for item in items] == list(range(10))
    for window in items:
        assert [frame.camera for frame in window.frames] == [0, 1, 2, 6]
        assert {frame.stamp_ns for frame in window.frames} == {window.t0_ns}
        assert window.spread_ns == 0
        assert window.route_text == ""
        assert window.history.positions_m.shape == (16, 3)
        assert window.ego.speed_mps == pytest.approx(10.0)


def test_cameras_configured_in_another_order_give_the_same_windows():
    one = play(intake_of((0, 1, 2, 6)), drive(500))
    other = play(intake_of((6, 2, 0, 1)), drive(500))
    assert [fingerprint(window) for window in one] == [fingerprint(window) for window in other]


def test_30_fps_cameras_give_frames_chosen_by_stamp():
    messages = drive(0, cameras=())
    messages += [(round(k * 100 / 3), camera) for k in range(40) for camera in CAMERA_SET]
    messages += [(time, ODOMETRY) for time in range(20, 1400, 20)]
    items = play(intake_of(), sorted(messages, key=lambda message: (message[0], str(message[1]))))
    assert times_ms(items) == list(range(0, 1400, 100))


def test_the_route_is_in_windows_from_then_on():
    intake = intake_of()
    assert intake.set_route("  turn\tleft\nat the lights ") is None
    windows = play(intake, drive(200))
    assert {window.route_text for window in windows} == {"turn left at the lights"}
    assert intake.set_route("x" * 1001).reason is Reason.ROUTE_TOO_LONG
    assert {window.route_text for window in play(intake, drive(400, start_ms=200, odometry_from_ms=20))} == {""}


def test_route_text_cannot_carry_control_tokens_or_control_characters():
    assert clean_route("go <|traj_future_start|> now\x00\x1b[0m\u2028") == "go |traj_future_start| now [0m"
    assert clean_route("") == ""
    with pytest.raises(InputRefused, match="1001 characters, at most 1000"):
        clean_route("é" * 1001)
    assert len(clean_route("é" * 1000)) == 1000


# determinism


def weave(draw, messages, lag_ms):
    """Another interleaving: each topic keeps its order and arrives late by its own lag."""
    lag = {topic: draw(st.integers(0, lag_ms)) for topic in (*CAMERA_SET, ODOMETRY)}
    return sorted(messages, key=lambda message: message[0] + lag[message[1]])


# A lost frame makes up to 240 ms without one, so only 50 ms of the 3 strides are left for the transport.
@pytest.mark.parametrize(("lost", "lag_ms"), [(0, 150), (6, 50)])
@given(data=st.data())
@settings(max_examples=30)
def test_the_interleaving_of_topics_does_not_change_the_windows(data, lost, lag_ms):
    noise = data.draw(st.randoms(use_true_random=False))
    messages = [(time, ODOMETRY) for time in range(-2000, 2400, 25)]
    for camera in CAMERA_SET:
        holes = {2 * data.draw(st.integers(0, 7)) for _ in range(lost)}
        messages += [(100 * k + noise.randint(-20, 20), camera) for k in range(20) if k > 16 or k not in holes]
    messages.sort(key=lambda message: (message[0], str(message[1])))
    one = play(intake_of(), messages)
    other = play(intake_of(), weave(data.draw, messages, lag_ms))
    assert list(map(said, one)) == list(map(said, other))


def said(item):
    return fingerprint(item) if isinstance(item, PlanningWindow) else str(item)


@given(st.data())
@settings(max_examples=40)
def test_no_frame_is_in_two_windows_whatever_arrives(data):
    intake = intake_of((0, 1))
    used = []
    for _ in range(data.draw(st.integers(1, 80))):
        topic = data.draw(st.sampled_from([0, 1, ODOMETRY]))
        give(intake, data.draw(st.integers(0, 60)) * 20, topic)
        for item in intake.poll():
            if isinstance(item, Refusal) and item.reason is Reason.STAMP_BACKWARD:
                used = []  # a new run: stamps repeat
            if isinstance(item, PlanningWindow):
                used += [(frame.camera, frame.stamp_ns) for frame in item.frames]
    assert len(used) == len(set(used))


# stamps


def test_a_camera_with_stamp_zero_is_named_at_once_and_in_the_dropped_windows():
    intake = intake_of()
    refused = intake.add_image(2, 0, picture())
    assert (refused.reason, refused.source) == (Reason.STAMP_ZERO, "cross_right")
    items = play(intake, drive(1000, cameras=(0, 1, 6)))
    assert {(item.reason, item.source) for item in items} == {(Reason.CAMERA_MISSING, "cross_right")}
    assert len(items) == 7  # t0 of 0 to 600: the reference camera has run to 900


@pytest.mark.parametrize("stamp", [0, -5])
def test_odometry_without_a_stamp_is_refused(stamp):
    assert intake_of().add_odometry(odometry(0, stamp_ns=stamp)).reason is Reason.STAMP_ZERO


def test_a_repeated_frame_is_refused_and_in_no_window():
    intake = intake_of((1,))
    for time, topic in drive(300, cameras=(1,)):
        assert give(intake, time, topic) is None
        assert give(intake, time, topic).reason is Reason.STAMP_REPEATED
    assert times_ms(intake.poll()) == [0, 100, 200]


def test_a_late_frame_is_refused_without_a_reset():
    intake = intake_of()
    play(intake, drive(1000))
    for topic in (*CAMERA_SET, ODOMETRY):
        assert give(intake, 500, topic).reason is Reason.STAMP_BACKWARD
    assert times_ms(play(intake, drive(1300, start_ms=1000, odometry_from_ms=40))) == [1000, 1100, 1200]


@pytest.mark.parametrize("first", [ODOMETRY, *CAMERA_SET])
def test_a_bag_loop_is_one_jump_whichever_topic_loops_first(first):
    intake = intake_of()
    loop = drive(3000, odometry_from_ms=0)
    before = play(intake, loop)
    assert times_ms(before) == list(range(1500, 3000, 100))
    loop.sort(key=lambda message: (message[0], message[1] != first))
    again = play(intake, loop)
    (jump, *short) = refusals(again)
    assert jump.reason is Reason.STAMP_BACKWARD
    assert "windows and history forgotten" in jump.detail
    assert again[0] is jump
    assert {item.reason for item in short} == {Reason.HISTORY_SHORT}
    assert times_ms(again) == list(range(1500, 3000, 100))
    assert [item.window_id for item in again if isinstance(item, PlanningWindow)] == list(range(15, 30))


def test_messages_of_the_old_pass_that_come_after_the_jump_are_dropped_one_by_one():
    intake = intake_of()
    play(intake, drive(3000))
    assert give(intake, 0, 1) is None  # the front camera loops
    assert give(intake, 3000, 0).reason is Reason.STAMP_BACKWARD  # the left one has a frame of the old pass left
    assert give(intake, 3020, ODOMETRY) is not None
    items = intake.poll()
    items += play(intake, drive(500, cameras=(0, 2, 6)))
    items += play(intake, [(time, 1) for time in range(100, 500, 100)])
    assert next(item.reason for item in refusals(items)) is Reason.STAMP_BACKWARD
    assert len([item for item in refusals(items) if item.reason is Reason.STAMP_BACKWARD]) == 1
    assert times_ms(items)[-1] == 400


def test_one_stamp_from_the_far_future_costs_one_reset():
    intake = intake_of()
    play(intake, drive(1000))
    assert give(intake, 9_000_000, 0) is None
    items = play(intake, drive(4000, start_ms=1000, odometry_from_ms=40))
    assert [item.reason for item in refusals(items) if item.reason is not Reason.HISTORY_SHORT].count(
        Reason.STAMP_BACKWARD
    ) == 1
    assert times_ms(items)[-1] == 3900


# odometry


def test_short_odometry_gives_no_window_and_says_the_amounts():
    items = play(intake_of(), drive(500, odometry_from_ms=-500))
    assert times_ms(items) == []
    assert {item.reason for item in items} == {Reason.HISTORY_SHORT}
    assert "have 0.500 s, need 1.500 s" in items[0].detail
    assert len(items) == 5


def test_without_odometry_windows_are_dropped_after_3_strides_not_held():
    intake = intake_of()
    items = play(intake, [message for message in drive(1000) if message[1] != ODOMETRY])
    assert {item.reason for item in items} == {Reason.HISTORY_SHORT}
    assert len(items) == 7


def test_a_window_waits_for_the_odometry_after_it():
    intake = intake_of()
    items = play(intake, [message for message in drive(1000) if message[1] != ODOMETRY or message[0] < 1000])
    assert times_ms(items)[-1] == 900
    late = [message for message in drive(1200, start_ms=1000, odometry_from_ms=0) if message[1] != ODOMETRY]
    assert play(intake, late[:4]) == []
    give(intake, 1010, ODOMETRY)
    assert times_ms(intake.poll()) == [1000]


def test_nan_odometry_is_refused_and_costs_no_window_at_50_hz():
    intake = intake_of()
    items = []
    for time, topic in drive(500):
        if topic == ODOMETRY and time == -100:
            bad = odometry(time, position_m=np.array([np.nan, 0, 0]))
            assert intake.add_odometry(bad).reason is Reason.ODOMETRY_NOT_FINITE
        else:
            assert give(intake, time, topic) is None
        items += intake.poll()
    assert times_ms(items) == [0, 100, 200, 300, 400]
    assert all(np.isfinite(window.history.positions_m).all() for window in items)


def test_a_twist_in_the_wrong_frame_is_said_once_before_its_first_window():
    intake = intake_of()
    items = []
    for time, topic in drive(500):
        if topic == ODOMETRY:
            intake.add_odometry(odometry(time, linear_mps=np.array([0.0, 10.0, 0.0])))
        else:
            give(intake, time, topic)
        items += intake.poll()
    assert [item.reason for item in refusals(items)] == [Reason.ODOMETRY_TWIST]
    assert isinstance(items[0], Refusal)
    assert [window.ego.speed_mps for window in items[1:]] == pytest.approx([10.0] * 5)


# reset and memory


def test_reset_forgets_history_and_frames_but_counts_on():
    intake = intake_of()
    assert len(play(intake, drive(500))) == 5
    intake.reset()
    items = play(intake, drive(3000, start_ms=500, odometry_from_ms=20))
    assert items[0].reason is Reason.HISTORY_SHORT
    window = next(item for item in items if isinstance(item, PlanningWindow))
    assert window.window_id == 5
    assert window.t0_ns // MS - START_MS == 2100


def test_windows_that_nobody_polls_give_way_to_newer_ones_and_are_reported():
    intake = intake_of()
    for time, topic in drive(3000):
        give(intake, time, topic)
    items = intake.poll()
    assert times_ms(items) == list(range(2200, 3000, 100))
    assert [item.reason for item in refusals(items)] == [Reason.WINDOW_SUPERSEDED] * 22
    assert intake.poll() == []


@pytest.mark.parametrize("silent", [*CAMERA_SET, ODOMETRY])
def test_pictures_held_stay_few_when_a_topic_is_silent(silent):
    intake = intake_of()
    for time, topic in drive(6000):
        if topic != silent:
            give(intake, time, topic)
    gc.collect()
    held = [item for item in gc.get_objects() if isinstance(item, list | tuple)]
    pictures = {
        id(entry) for item in held for entry in item if isinstance(entry, np.ndarray) and entry.shape == (2, 3, 3)
    }
    assert len(pictures) <= 40


# settings


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"cameras": ()}, "cameras"),
        ({"cameras": (0, 1, 1)}, "cameras"),
        ({"cameras": (0, 7)}, "cameras"),
        ({"cameras": (0, 1), "reference_camera": 2}, "reference_camera"),
        ({"cameras": (1,), "stride_s": 0.0}, "stride_s"),
        ({"cameras": (1,), "tolerance_s": float("nan")}, "tolerance_s"),
        ({"cameras": (1,), "tolerance_s": 0.2}, "tolerance_s"),
        ({"cameras": (1,), "history_gap_s": -1.0}, "history_gap_s"),
        ({"cameras": (1,), "history_steps": 1}, "history_steps"),
        ({"cameras": (1,), "silent_strides": 0}, "silent_strides"),
    ],
)
def test_useless_settings_are_refused_by_name(changes, name):
    with pytest.raises(ParameterError, match=f"^{name}: "):
        IntakeSettings(**changes)


def test_front_wide_is_the_reference_when_configured():
    assert IntakeSettings(cameras=(0, 1, 2)).reference == 1
    assert IntakeSettings(cameras=(6, 2)).reference == 2
    assert IntakeSettings(cameras=(6, 2), reference_camera=6).reference == 6


def test_camera_names_map_in_any_order_and_bad_lists_are_refused():
    names = [CAMERAS[index].name for index in (6, 0, 2, 1)]
    assert camera_indices(names, CAMERA_SET) == (0, 1, 2, 6)
    with pytest.raises(ParameterError, match="'front_wide' is given twice"):
        camera_indices([*names, "front_wide"], CAMERA_SET)
    with pytest.raises(ParameterError, match="needs front_tele as well"):
        camera_indices(names[1:], CAMERA_SET)
    with pytest.raises(ParameterError, match="'front' is unknown"):
        camera_indices(["front"], ())


def test_an_image_of_a_camera_that_is_not_configured_is_a_mistake_of_the_caller():
    with pytest.raises(ParameterError, match="camera 3"):
        intake_of().add_image(3, START_MS * MS, picture())
