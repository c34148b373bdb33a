"""The camera synchroniser: an even grid for every camera rate, nearest frames, no frame twice, no silent wait."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashdrive_ros.intake.camera_sync import CameraSynchroniser, FrameSet, SyncSettings
from flashdrive_ros.reasons import Reason, Refusal

MS = 1_000_000
FRONT, LEFT, RIGHT = 1, 0, 2


def synchroniser(cameras=(FRONT,)):
    settings = SyncSettings(cameras, FRONT, stride_ns=100 * MS, tolerance_ns=50 * MS, silent_ns=300 * MS)
    return CameraSynchroniser(settings)


def feed(sync, *streams):
    """(camera, stamps in ms) streams, merged by stamp; everything settled, in order."""
    merged = sorted((stamp, camera) for camera, stamps in streams for stamp in stamps)
    settled = []
    for stamp, camera in merged:
        settled += sync.add(camera, round(stamp * MS), (camera, stamp))
    return settled


def grid_ms(settled):
    return [round(item.t0_ns / MS, 1) for item in settled]


# the grid


def test_25_fps_alternates_between_its_two_nearest_strides():
    # By hand: target 100 takes 80; 198 takes 200; 298.2 takes 280; 396.4 takes 400; 496.7 takes 480; 595.1 takes 600.
    settled = feed(synchroniser(), (FRONT, [40 * k for k in range(26)]))
    assert grid_ms(settled) == [0, 80, 200, 280, 400, 480, 600, 680, 800, 880, 1000]


def test_30_fps_takes_every_third_frame():
    settled = feed(synchroniser(), (FRONT, [k * 100 / 3 for k in range(31)]))
    assert grid_ms(settled) == [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]


@pytest.mark.parametrize("rate_hz", [10.0, 10.1, 9.9, 10.2, 9.0])
def test_a_camera_near_10_hz_gives_a_window_with_every_frame(rate_hz):
    # The grid follows: its offset settles where offset / 10 is the difference of the periods (at 10.1 Hz -9.9 ms).
    stamps = [1000 / rate_hz * k for k in range(600)]
    assert len(feed(synchroniser(), (FRONT, stamps))) == 600


@pytest.mark.parametrize("seed", range(5))
def test_jitter_of_5_ms_costs_no_frame(seed):
    noise = random.Random(seed)
    stamps = [100 * k + noise.uniform(-5, 5) for k in range(600)]
    assert len(feed(synchroniser(), (FRONT, stamps))) == 600


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rate_hz", [20.0, 25.0, 30.0, 60.0, 100.0])
def test_fast_cameras_with_jitter_keep_the_stride_even(rate_hz, seed):
    noise = random.Random(seed)
    stamps = [1000 / rate_hz * k + noise.uniform(-4, 4) for k in range(int(60 * rate_hz))]
    t0 = grid_ms(feed(synchroniser(), (FRONT, stamps)))
    strides = [later - earlier for earlier, later in pairwise(t0)]
    assert max(strides) < 150
    assert min(strides) > 50
    # A fast camera's first frame of the quarter stride before the target is taken, so the grid runs up to 2.5 % fast.
    assert 97.5 <= (t0[-1] - t0[0]) / len(strides) <= 101


def test_the_grid_starts_again_after_a_pause():
    # Target 300 is missed by 10 500 ms: more than half a stride, so the next is 10 800 + 100.
    settled = feed(synchroniser(), (FRONT, [0, 100, 200, 10_800, 10_840, 10_880, 10_920]))
    assert grid_ms(settled) == [0, 100, 200, 10_800, 10_880]


def test_a_forward_clock_step_does_not_stop_the_windows():
    hour = 3_600_000
    settled = feed(synchroniser(), (FRONT, [0, 100, 200, hour + 7, hour + 107, hour + 207]))
    assert grid_ms(settled) == [0, 100, 200, hour + 7, hour + 107, hour + 207]


# choice of the other cameras' frames


def chosen(settled, camera_position=1):
    return [item.payloads[camera_position][1] for item in settled if isinstance(item, FrameSet)]


def test_25_fps_cameras_with_another_phase_stay_within_half_their_period():
    cameras = (LEFT, FRONT)
    left = [40 * k + 13 for k in range(60)]
    settled = feed(synchroniser(cameras), (FRONT, [40 * k for k in range(60)]), (LEFT, left))
    offsets = [item.payloads[0][1] - item.payloads[1][1] for item in settled]
    assert set(offsets) == {13}
    assert all(item.spread_ns == 13 * MS for item in settled)


def test_a_camera_60_ms_late_gives_its_frame_of_40_ms_before():
    settled = feed(synchroniser((FRONT, RIGHT)), (FRONT, range(0, 1000, 100)), (RIGHT, range(60, 1060, 100)))
    first = settled[0]
    assert (first.reason, first.source) == (Reason.CAMERA_SPREAD, "cross_right")
    assert "+60.0 ms" in first.detail
    assert "tolerance 50 ms" in first.detail
    # From the second window on, the frame 40 ms before t0 is nearer than the one 60 ms after it.
    assert chosen(settled) == [60 + 100 * k for k in range(9)][: len(chosen(settled))]
    assert {item.spread_ns for item in settled[1:]} == {40 * MS}


def test_one_frame_60_ms_late_drops_that_window_only():
    right = [0, 100, 260, 300, 400]
    settled = feed(synchroniser((FRONT, RIGHT)), (FRONT, [0, 100, 200, 300, 400]), (RIGHT, right))
    assert [isinstance(item, FrameSet) for item in settled] == [True, True, False, True, True]
    assert settled[2].reason is Reason.CAMERA_SPREAD
    assert chosen(settled) == [0, 100, 300, 400]


def test_a_lost_frame_names_camera_offset_and_tolerance():
    settled = feed(synchroniser((FRONT, RIGHT)), (FRONT, [0, 100, 200]), (RIGHT, [0, 200]))
    refused = settled[1]
    assert refused.reason is Reason.CAMERA_SPREAD
    assert refused.source == "cross_right"
    assert "+100.0 ms" in refused.detail
    assert chosen(settled) == [0, 200]


def test_tolerance_is_inclusive_and_a_tie_takes_the_earlier_frame():
    sync = synchroniser((FRONT, RIGHT))
    settled = feed(sync, (FRONT, [0, 100, 200]), (RIGHT, [0, 50, 150, 260]))
    assert chosen(settled) == [0, 50, 150]


def test_a_silent_camera_is_named_once_the_reference_is_3_strides_ahead():
    sync = synchroniser((FRONT, RIGHT))
    settled = feed(sync, (FRONT, [0]), (RIGHT, [0]))
    assert len(settled) == 1
    assert feed(sync, (FRONT, [100, 200, 300, 399])) == []
    (refused,) = feed(sync, (FRONT, [400]))
    assert (refused.reason, refused.source) == (Reason.CAMERA_MISSING, "cross_right")
    assert "no unused frame" in refused.detail


def test_a_camera_that_returns_gives_windows_again():
    settled = feed(
        synchroniser((FRONT, RIGHT)),
        (FRONT, range(0, 2000, 100)),
        (RIGHT, [k for k in range(0, 2000, 100) if not 500 <= k < 1200]),
    )
    assert [item.t0_ns // MS for item in settled if isinstance(item, FrameSet)] == [
        *range(0, 500, 100),
        *range(1200, 2000, 100),
    ]
    assert {item.reason for item in settled if isinstance(item, Refusal)} <= {
        Reason.CAMERA_MISSING,
        Reason.CAMERA_SPREAD,
    }
    assert len(settled) == 20


def test_a_silent_reference_camera_is_reported_once_and_again_after_it_returned():
    sync = synchroniser((FRONT, RIGHT))
    refusals = feed(sync, (RIGHT, range(0, 3000, 100)))
    assert [(refusal.reason, refusal.source) for refusal in refusals] == [(Reason.CAMERA_MISSING, "front_wide")]
    settled = feed(sync, (FRONT, [3000]), (RIGHT, [3000]))
    assert isinstance(settled[-1], FrameSet)
    assert len(feed(sync, (RIGHT, range(3100, 5000, 100)))) == 1


def test_memory_stays_bounded_when_the_reference_is_silent():
    sync = synchroniser((FRONT, RIGHT))
    for k in range(20_000):
        sync.add(RIGHT, k * MS, bytes(10))
    (frames,) = sync._frames.values()
    assert len(frames.stamps_ns) <= 64
    assert len(frames.payloads) == len(frames.stamps_ns)


def test_memory_stays_bounded_when_another_camera_is_silent():
    sync = synchroniser((LEFT, FRONT, RIGHT))
    for k in range(2000):
        sync.add(FRONT, k * 10 * MS, bytes(10))
        sync.add(LEFT, k * 10 * MS, bytes(10))
    assert len(sync._opened) <= 6
    assert len(sync._frames[LEFT].stamps_ns) <= 64


# properties

stamp_streams = st.lists(st.integers(1, 120), min_size=1, max_size=60).map(
    lambda gaps: [sum(gaps[: k + 1]) for k in range(len(gaps))]
)


@given(stamp_streams, stamp_streams, stamp_streams)
def test_no_frame_is_in_two_windows_and_every_choice_is_within_tolerance(front, left, right):
    settled = feed(synchroniser((LEFT, FRONT, RIGHT)), (FRONT, front), (LEFT, left), (RIGHT, right))
    windows = [item for item in settled if isinstance(item, FrameSet)]
    used = [payload for window in windows for payload in window.payloads]
    assert len(used) == len(set(used))
    for window in windows:
        assert [payload[0] for payload in window.payloads] == [LEFT, FRONT, RIGHT]
        assert window.spread_ns == max(abs(stamp - window.t0_ns) for stamp in window.stamps_ns) <= 50 * MS
    assert grid_ms(windows) == sorted(set(grid_ms(windows)))
