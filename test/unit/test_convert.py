"""Data set converters: true stamps, poses and pictures, and everything assumed said so."""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flashdrive_ros.bags import convert, tri
from flashdrive_ros.bags.read import open_bag
from flashdrive_ros.bags.udacity import CROPS, UdacitySettings, convert_udacity, crop_and_resize
from flashdrive_ros.cameras import BY_NAME
from flashdrive_ros.errors import BagError, DatasetError, ParameterError
from flashdrive_ros.intake.messages import image_from_message, odometry_from_message
from flashdrive_ros.intake.settings import IntakeSettings
from flashdrive_ros.intake.window_builder import Intake
from flashdrive_ros.resources import resource_path
from flashdrive_ros.rotations import rotate, yaw_of
from flashdrive_ros.window import PlanningWindow

SCENE = "tri_dgp_test_scene/scene_02"
VIDEO = "udacity/solidWhiteRight.mp4"
# The file names 15616458249936530, 15616458250936520 and 15616458251936472 in units of 0.1 microseconds.
TRI_STAMPS_NS = [1561645824993653000, 1561645825093652000, 1561645825193647200]


def decoded(path: Path) -> dict[str, list[Any]]:
    """Topic -> its decoded messages."""
    topics: dict[str, list[Any]] = {}
    with open_bag(path) as bag:
        for message in bag.messages():
            topics.setdefault(message.topic, []).append(bag.decode(message))
    return topics


def stamp_ns(message: Any) -> int:
    return message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec


def vector(point: Any) -> np.ndarray:
    return np.array([point.x, point.y, point.z])


def quaternion(message: Any) -> np.ndarray:
    return np.array([message.x, message.y, message.z, message.w])


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("convert")


@pytest.fixture
def tri_bag(shared_data: Path, scratch: Path) -> Path:
    if not (scratch / "tri").exists():
        tri.convert_tri(shared_data / SCENE, scratch / "tri")
    return scratch / "tri"


@pytest.fixture
def video_bag(shared_data: Path, scratch: Path) -> Path:
    """Half a second from 2 s on: frames 50 to 62 of the 25 fps video."""
    pytest.importorskip("av")
    if not (scratch / "video").exists():
        settings = UdacitySettings(start_s=2.0, duration_s=0.5, width=160, assumed_speed_mps=20.0)
        convert_udacity(shared_data / VIDEO, scratch / "video", settings)
    return scratch / "video"


def editable_scene(shared_data: Path, folder: Path) -> Path:
    """A writable copy of the TRI scene with the four cameras that are used."""
    source = shared_data / SCENE
    for file in [*source.glob("scene_*.json"), *source.glob("calibration/*"), *source.glob("rgb/CAMERA_0[1569]/*")]:
        target = folder / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return folder


def edit_json(file: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_tri_stamps_are_those_of_the_file_names(tri_bag: Path) -> None:
    topics = decoded(tri_bag)
    for camera in ("cross_left", "front_wide", "cross_right", "rear_tele"):
        assert [stamp_ns(m) for m in topics[f"/camera/{camera}/image/compressed"]] == TRI_STAMPS_NS
        assert [stamp_ns(m) for m in topics[f"/camera/{camera}/camera_info"]] == TRI_STAMPS_NS
    assert [stamp_ns(m) for m in topics["/localization/kinematic_state"]] == TRI_STAMPS_NS
    with open_bag(tri_bag) as bag:
        assert sorted({message.log_time_ns for message in bag.messages()}) == TRI_STAMPS_NS


def test_tri_speed_and_heading_agree_with_the_lidar_poses(tri_bag: Path) -> None:
    """The LIDAR's extrinsics are the identity, so its poses are base_link's: an independent measurement.

    From 15616458250027900 to 15616458252028828 it moves from (111.45486, -2261.38424) to (111.41493, -2263.91804):
    2.53411 m in 0.2000928 s is 12.665 m/s; 1.267 m a step. Its first quaternion (z 0.71247, w -0.70151) is a heading of
    2 atan2(0.71247, -0.70151) = 269.1 degrees, that is -90.9.
    """
    odometry = decoded(tri_bag)["/localization/kinematic_state"]
    speeds = [message.twist.twist.linear.x for message in odometry]
    assert np.mean(speeds) == pytest.approx(2.53411 / 0.2000928, rel=0.005)
    assert all(abs(message.twist.twist.linear.y) < 0.1 for message in odometry)
    steps = np.diff([vector(message.pose.pose.position) for message in odometry], axis=0)
    assert np.linalg.norm(steps, axis=1) == pytest.approx([1.27, 1.265], abs=0.01)
    lidar_heading = 2 * math.atan2(0.712471802635488, -0.701507293064849) - 2 * math.pi
    assert yaw_of(quaternion(odometry[0].pose.pose.orientation)) == pytest.approx(lidar_heading, abs=0.002)
    # 9.1 ms before the LIDAR's first pose the car is at most 0.2 m from it.
    assert vector(odometry[0].pose.pose.position) == pytest.approx([111.455, -2261.384, -12.734], abs=0.2)


def test_tri_motion_is_along_the_front_camera_and_cameras_look_where_their_names_say(tri_bag: Path) -> None:
    topics = decoded(tri_bag)
    odometry = topics["/localization/kinematic_state"]
    mounted = {t.child_frame_id: quaternion(t.transform.rotation) for t in topics["/tf_static"][0].transforms}
    axes = {frame: rotate(mounted[frame], np.array([0.0, 0.0, 1.0])) for frame in mounted}
    base = quaternion(odometry[1].pose.pose.orientation)
    motion = vector(odometry[2].pose.pose.position) - vector(odometry[0].pose.pose.position)
    motion /= np.linalg.norm(motion)
    assert float(rotate(base, axes["front_wide_optical"]) @ motion) > 0.99
    assert float(rotate(base, axes["rear_tele_optical"]) @ motion) < -0.99
    assert axes["cross_left_optical"][0] > 0.5
    assert axes["cross_left_optical"][1] > 0.7
    assert axes["cross_right_optical"][0] > 0.5
    assert axes["cross_right_optical"][1] < -0.7
    # Pictures stand upright: their downward axis points to the ground.
    down = rotate(mounted["front_wide_optical"], np.array([0.0, 1.0, 0.0]))
    assert down[2] < -0.99


def test_tri_pictures_are_the_recorded_bytes(tri_bag: Path, shared_data: Path) -> None:
    topics = decoded(tri_bag)
    for dataset_name, camera in (("CAMERA_05", "cross_left"), ("CAMERA_09", "rear_tele")):
        files = sorted((shared_data / SCENE / "rgb" / dataset_name).iterdir())
        written = [bytes(message.data) for message in topics[f"/camera/{camera}/image/compressed"]]
        assert written == [file.read_bytes() for file in files]
    info = topics["/camera/front_wide/camera_info"][0]
    assert (info.width, info.height) == (1936, 1216)
    assert info.k[[0, 2, 4, 5]] == pytest.approx([2181.530, 928.022, 2181.603, 615.957], abs=1e-3)


def test_a_scene_with_too_few_cameras_is_refused(shared_data: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="found LIDAR, CAMERA_01, CAMERA_05, CAMERA_06, expected also CAMERA_09"):
        tri.convert_tri(shared_data / "tri_dgp_test_scene/scene_01", tmp_path / "bag")
    assert not (tmp_path / "bag").exists()


def test_a_folder_without_a_scene_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"found none, expected exactly one scene_\*\.json"):
        tri.read_scene(tmp_path)


def test_quaternions_stored_in_another_order_are_noticed(shared_data: Path, tmp_path: Path) -> None:
    """Case O2: x, y, z, w written where the format says w, x, y, z is still a rotation, but the cameras disagree."""
    scene = editable_scene(shared_data, tmp_path)

    def reorder(content: Any) -> None:
        for datum in content["data"]:
            if "image" in datum["datum"]:
                rotation = datum["datum"]["image"]["pose"]["rotation"]
                w, x, y, z = (rotation[key] for key in ("qw", "qx", "qy", "qz"))
                rotation.update(qw=x, qx=y, qy=z, qz=w)

    edit_json(next(scene.glob("scene_*.json")), reorder)
    with pytest.raises(DatasetError, match="place base_link"):
        tri.read_scene(scene)


def test_swapped_camera_mountings_are_noticed(shared_data: Path, tmp_path: Path) -> None:
    scene = editable_scene(shared_data, tmp_path)

    def swap(content: Any) -> None:
        left, right = content["names"].index("CAMERA_05"), content["names"].index("CAMERA_06")
        content["names"][left], content["names"][right] = "CAMERA_06", "CAMERA_05"

    edit_json(next(scene.glob("calibration/*.json")), swap)
    with pytest.raises(DatasetError, match="CAMERA_05 looking along"):
        tri.read_scene(scene)


@pytest.mark.parametrize("file", ["scene_*.json", "calibration/*.json"])
@pytest.mark.parametrize("content", ["", "[]", "{}", '{"data": [], "samples": [], "names": 3}'])
def test_a_damaged_json_is_refused_by_name(shared_data: Path, tmp_path: Path, file: str, content: str) -> None:
    scene = editable_scene(shared_data, tmp_path)
    damaged = next(scene.glob(file))
    damaged.write_text(content)
    with pytest.raises(DatasetError, match=f"{damaged.name}: found .*expected"):
        tri.read_scene(scene)


def test_a_quaternion_that_is_no_rotation_is_refused(shared_data: Path, tmp_path: Path) -> None:
    scene = editable_scene(shared_data, tmp_path)

    def scale(content: Any) -> None:
        content["data"][1]["datum"]["image"]["pose"]["rotation"]["qw"] = 16384.0

    edit_json(next(scene.glob("scene_*.json")), scale)
    with pytest.raises(DatasetError, match=r"quaternion of norm 16384.*expected 1"):
        tri.read_scene(scene)


def test_a_missing_and_a_cut_picture_are_refused(shared_data: Path, tmp_path: Path) -> None:
    scene = editable_scene(shared_data, tmp_path)
    picture = scene / "rgb/CAMERA_01/15616458250936520.jpg"
    whole = picture.read_bytes()
    picture.write_bytes(whole[: len(whole) * 7 // 10])
    with pytest.raises(
        DatasetError, match=r"15616458250936520\.jpg: found .*cut off, expected a whole JPEG of 1936x1216"
    ):
        tri.read_scene(scene)
    picture.unlink()
    with pytest.raises(DatasetError, match=r"15616458250936520\.jpg: found no file"):
        tri.read_scene(scene)


def test_a_json_date_that_contradicts_the_file_name_is_refused() -> None:
    name, date = "15616458249936530.jpg", "2464-11-12T01:04:09.936530Z"
    assert tri.stamp_of_image_name(name, date, Path("scene.json")) == TRI_STAMPS_NS[0]
    with pytest.raises(DatasetError, match="found timestamp 2019"):
        tri.stamp_of_image_name(name, "2019-06-27T14:30:24.993653Z", Path("scene.json"))
    with pytest.raises(DatasetError, match="expected 17 digits"):
        tri.stamp_of_image_name("000001.jpg", date, Path("scene.json"))


def test_video_stamps_are_the_frames_own_times(video_bag: Path) -> None:
    """Frame n of a 25 fps video is shown at n * 40 ms; 2.0 s to before 2.5 s are frames 50 to 62."""
    topics = decoded(video_bag)
    expected = [1_700_000_000_000_000_000 + frame * 40_000_000 for frame in range(50, 63)]
    for camera in CROPS:
        assert [stamp_ns(message) for message in topics[f"/camera/{camera}/image/compressed"]] == expected


def test_video_cameras_are_crops_of_the_same_frame(video_bag: Path) -> None:
    topics = decoded(video_bag)
    pictures = {
        camera: np.asarray(Image.open(BytesIO(bytes(topics[f"/camera/{camera}/image/compressed"][0].data))), np.float64)
        for camera in CROPS
    }
    # 960x540: the halves are 480x540, the centre 480x270.
    assert {camera: picture.shape for camera, picture in pictures.items()} == {
        "cross_left": (180, 160, 3),
        "front_wide": (90, 160, 3),
        "cross_right": (180, 160, 3),
        "front_tele": (90, 160, 3),
    }
    # A half, halved once more, is that half of the whole.
    left = pictures["cross_left"].reshape(90, 2, 80, 2, 3).mean((1, 3))
    right = pictures["cross_right"].reshape(90, 2, 80, 2, 3).mean((1, 3))
    assert np.abs(left - pictures["front_wide"][:, :80]).mean() < 4
    assert np.abs(right - pictures["front_wide"][:, 80:]).mean() < 4
    assert np.abs(left - pictures["front_wide"][:, 80:]).mean() > 8


def test_the_left_crop_is_left_and_the_centre_is_the_centre() -> None:
    pixels = np.zeros((100, 200, 3), np.uint8)
    pixels[:, :100, 0] = 255
    pixels[:, 100:, 2] = 255
    picture = Image.fromarray(pixels)
    left, right = (np.asarray(crop_and_resize(picture, CROPS[name], 50)) for name in ("cross_left", "cross_right"))
    assert left.tolist() == np.full((50, 50, 3), (255, 0, 0)).tolist()
    assert right.tolist() == np.full((50, 50, 3), (0, 0, 255)).tolist()
    centre = np.asarray(crop_and_resize(picture, CROPS["front_tele"], 100))
    assert centre.shape == (50, 100, 3)
    assert centre[:, :45].tolist() == pixels[:50, :45].tolist()


def test_assumed_odometry_is_straight_leads_the_images_and_is_declared(video_bag: Path) -> None:
    topics = decoded(video_bag)
    odometry = topics["/localization/kinematic_state"]
    images = topics["/camera/front_wide/image/compressed"]
    assert stamp_ns(images[0]) - stamp_ns(odometry[0]) >= 1_600_000_000
    assert stamp_ns(odometry[-1]) > stamp_ns(images[-1])
    assert set(np.diff([stamp_ns(message) for message in odometry]).tolist()) == {20_000_000}
    # 20 m/s over 20 ms are 0.4 m.
    positions = np.array([vector(message.pose.pose.position) for message in odometry])
    assert np.diff(positions[:, 0]) == pytest.approx(np.full(len(odometry) - 1, 0.4))
    assert np.all(positions[:, 1:] == 0)
    assert all(message.twist.twist.linear.x == 20.0 for message in odometry)
    with open_bag(video_bag) as bag:
        said = bag.custom_data
    assert "ASSUMED" in said["odometry"]
    assert said["assumed_speed_mps"] == "20.0"
    assert said["licence"] == "MIT"
    assert "calibrat" in said["not_a_calibrated_rig"]


def test_video_input_errors_name_file_found_and_expected(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("av")
    with pytest.raises(DatasetError, match=r"absent\.mp4: found no file, expected a video"):
        convert_udacity(tmp_path / "absent.mp4", tmp_path / "bag", UdacitySettings())
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(DatasetError, match=r"text\.mp4: found .*expected a video"):
        convert_udacity(tmp_path / "text.mp4", tmp_path / "bag", UdacitySettings())
    with pytest.raises(DatasetError, match=r"found no frame from 60\.0 s"):
        convert_udacity(shared_data / VIDEO, tmp_path / "bag", UdacitySettings(start_s=60.0))
    assert not (tmp_path / "bag").exists()
    (tmp_path / "bag").mkdir()
    with pytest.raises(BagError, match="exists already"):
        convert_udacity(shared_data / VIDEO, tmp_path / "bag", UdacitySettings())


@pytest.mark.parametrize(
    "bad",
    [
        {"start_s": -1.0},
        {"start_s": math.nan},
        {"duration_s": 0.0},
        {"width": 5},
        {"jpeg_quality": 0},
        {"assumed_speed_mps": math.nan},
    ],
)
def test_senseless_options_are_refused_by_name(bad: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=f"--{next(iter(bad)).replace('_', '-')}"):
        UdacitySettings(**bad)


def test_the_command_runs_and_refuses_video_options_for_a_scene(shared_data: Path, tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    convert.add_arguments(parser)
    words = ["tri", str(shared_data / SCENE), str(tmp_path / "bag")]
    with pytest.raises(ParameterError, match="--width: only for udacity"):
        convert.run(parser.parse_args([*words, "--width", "100"]))
    result = convert.run(parser.parse_args(words))
    assert result["frames_per_camera"] == 3
    assert "3 frames over 0.20 s" in convert.summary(result)
    json.dumps(result)


def test_the_demo_recording_is_small_attributed_and_long_enough() -> None:
    """Issue 2: at most 3 MB, and at least 20 planning windows at 10 Hz after the first four."""
    folder = resource_path("resource/bags/demo")
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 3_000_000
    assert "Copyright (c) 2016-2019 Udacity, Inc." in (folder / "ATTRIBUTION.md").read_text()
    assert "odometry is assumed" in (folder / "README.md").read_text()
    intake = Intake(IntakeSettings(cameras=(0, 1, 2, 6)))
    windows = []
    with open_bag(folder) as bag:
        assert "ASSUMED" in bag.custom_data["odometry"]
        for message in bag.messages():
            content = bag.decode(message)
            if message.topic == "/localization/kinematic_state":
                assert intake.add_odometry(odometry_from_message(content, "odometry")) is None
            else:
                camera = BY_NAME[message.topic.split("/")[2]].index
                assert intake.add_image(camera, stamp_ns(content), image_from_message(content, message.topic)) is None
            windows += intake.poll()
    assert all(isinstance(window, PlanningWindow) for window in windows)
    assert len(windows) >= 24
    gaps_s = np.diff([window.t0_ns for window in windows]) / 1e9
    assert gaps_s.min() >= 0.079
    assert gaps_s.max() <= 0.121
