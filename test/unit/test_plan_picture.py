"""The plan picture: the projection is right, and no plan or text keeps it from being drawn."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flashdrive_ros.evaluation.plan_picture import PinholeView, draw_plan, printable, ribbon
from flashdrive_ros.plan import Plan, ReasoningText, StageTiming, Waypoints
from flashdrive_ros.rotations import yaw_quaternion
from flashdrive_ros.window import CameraFrame, EgoHistory, EgoPose, PlanningWindow

T0_NS = 1_700_000_001_400_000_000
GREEN = np.array([18, 184, 134])


def straight(speed_mps: float, left_mps: float = 0.0) -> Waypoints:
    seconds = np.arange(1, 65) * 0.1
    positions = np.stack([speed_mps * seconds, left_mps * seconds, np.zeros(64)], axis=-1)
    quaternions = yaw_quaternion(np.full(64, math.atan2(left_mps, speed_mps) if speed_mps else 0.0))
    return Waypoints(positions, quaternions, np.full(64, speed_mps), np.zeros(64), np.zeros(64))


def window(size: tuple[int, int] = (90, 160)) -> PlanningWindow:
    frames = tuple(CameraFrame(camera, T0_NS, np.full((*size, 3), 90, np.uint8)) for camera in (0, 1, 2, 6))
    history = np.stack([np.arange(-15, 1) * 1.0, np.zeros(16), np.zeros(16)], axis=-1)
    ego = EgoPose("odom", np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]), 10.0)
    return PlanningWindow(7, T0_NS, frames, ego, EgoHistory(history, np.tile(np.eye(3), (16, 1, 1))), "", 0)


def plan(trajectories: tuple[Waypoints, ...], text: str = "Keep the lane.") -> Plan:
    timing = StageTiming(1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 15.0, 6, 0)
    return Plan(7, T0_NS, trajectories, ReasoningText(text, (1,), False), window().ego, timing, ())


def picture(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def test_a_hand_worked_point_is_projected_right() -> None:
    """90 degrees over 200 columns: focal length 100 px. A road point 12 m ahead of base_link and 3 m left is 10 m in
    front of a camera that sits 2 m ahead: 100 - 100*3/10 = column 70; 1.5 m below it: 0.5*100 + 100*1.5/10 = row 65."""
    view = PinholeView(horizontal_fov_deg=90.0, height_m=1.5, ahead_m=2.0, horizon=0.5)
    assert view.project(np.array([[12.0, 3.0, 0.0]]), 200, 100) == pytest.approx(np.array([[70.0, 65.0]]))
    # At the camera's own height a point lies on the horizon, wherever it is.
    assert view.project(np.array([[50.0, -4.0, 1.5]]), 200, 100)[0, 1] == pytest.approx(50.0)


def test_points_beside_or_behind_the_camera_have_no_pixel() -> None:
    view = PinholeView()
    assert np.isnan(view.project(np.array([[-5.0, 0.0, 0.0], [1.5, 0.0, 0.0]]), 200, 100)).all()


def test_the_ribbon_is_as_wide_as_the_car_and_across_its_heading() -> None:
    """Heading straight left (90 degrees), the left edge of a 2 m wide car lies 1 m further back (-x)."""
    quaternion = np.array([[0.0, 0.0, math.sin(math.pi / 4), math.cos(math.pi / 4)]])
    zero = np.zeros(1)
    left, right = ribbon(Waypoints(np.array([[5.0, 6.0, 0.0]]), quaternion, zero, zero, zero), 2.0)
    assert left == pytest.approx(np.array([[0.0, 1.0, 0.0], [4.0, 6.0, 0.0]]))
    assert right == pytest.approx(np.array([[0.0, -1.0, 0.0], [6.0, 6.0, 0.0]]))


def test_the_plan_appears_in_the_picture_and_leftward_is_left(tmp_path: Path) -> None:
    columns = []
    for name, left_mps in (("left", 2.0), ("right", -2.0)):
        draw_plan(tmp_path / f"new/{name}.png", window(), plan((straight(10.0, left_mps),)), 1)
        pixels = picture(tmp_path / f"new/{name}.png")
        assert pixels.shape == (1000, 1600, 3)
        # Bird's-eye view: the lower right part. The plan's line is drawn in this colour and in no other place there.
        green = np.abs(pixels[400:960, 900:1270] - GREEN).sum(-1) < 30
        assert green.sum() > 200
        columns.append(np.nonzero(green)[1].mean())
    assert columns[0] < columns[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "$",
        "a $x^{ b \\frac{ \x00\x07\x1b[31m \ud800 \u6f22\u5b57 \U0001f697 line\nbreak\r\ttab {0} %s " + "w" * 5000,
    ],
    ids=["empty", "dollar", "everything"],
)
def test_no_reasoning_text_keeps_the_picture_from_being_drawn(tmp_path: Path, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # missing glyphs only warn
        draw_plan(tmp_path / "plan.png", window((9, 16)), plan((straight(10.0),), text), 1, weights=text)
    assert (tmp_path / "plan.png").stat().st_size > 10_000


def test_extreme_plans_are_drawn(tmp_path: Path) -> None:
    for number, trajectories in enumerate([(straight(0.0),), (straight(60.0), straight(-3.0, 30.0))]):
        draw_plan(tmp_path / f"{number}.png", window((9, 16)), plan(trajectories), 5)
        assert (tmp_path / f"{number}.png").exists()


def test_the_same_plan_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw_plan(tmp_path / name, window((9, 16)), plan((straight(10.0),)), 1)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_unprintable_characters_become_boxes() -> None:
    assert printable("a\tb\x00c\u6f22$") == "a b\N{WHITE SQUARE}c\N{WHITE SQUARE}$"
