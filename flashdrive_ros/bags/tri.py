"""Convert a scene of TRI's DGP format (a real car with six cameras and a pose for every image) into a bag.

Two traps of this data set, both checked here:
- The 17-digit image name counts tenths of a microsecond. The json repeats that number as if it were microseconds, so
  its dates lie in the year 2464 and its intervals are ten times too long: the scene is 10 Hz at 12.7 m/s, not 1 Hz at
  1.27 m/s. (The traffic agrees: the cars around it, too, move 1.0 to 1.6 m from one step to the next.)
- Quaternions are w, x, y, z in the json, of either sign; ROS messages are x, y, z, w.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flashdrive_ros.bags import sensor_messages as messages
from flashdrive_ros.bags.write import NewTopic, create_bag
from flashdrive_ros.errors import DatasetError
from flashdrive_ros.rotations import quaternion_multiply, rotate

Array = NDArray[np.float64]

CAMERA_OF = {"CAMERA_05": "cross_left", "CAMERA_01": "front_wide", "CAMERA_06": "cross_right", "CAMERA_09": "rear_tele"}
"""Data set name -> our name, in the order of the camera table."""
LOOKS_ALONG = {"cross_left": (0.6, 0.8), "front_wide": (1.0, 0.0), "cross_right": (0.6, -0.8), "rear_tele": (-1.0, 0.0)}
"""Roughly where each optical axis points in base_link (x forward, y left)."""
NS_PER_NAME_UNIT = 100
END_OF_JPEG = b"\xff\xd9"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AGREEMENT_M = 0.1
"""The cameras' poses, each taken back to base_link, must agree to this."""


@dataclass(frozen=True)
class Pose:
    """A frame in another one: translation [3] in metres and unit quaternion [4] x, y, z, w."""

    position_m: Array
    quaternion_xyzw: Array


@dataclass(frozen=True)
class TriCamera:
    """Calibration of one camera."""

    in_base: Pose
    focal_px: tuple[float, float]
    centre_px: tuple[float, float]


@dataclass(frozen=True)
class TriImage:
    """One picture: when, which file, and where base_link was."""

    camera: str
    stamp_ns: int
    jpeg_path: Path
    width: int
    height: int
    base_in_world: Pose


@dataclass(frozen=True)
class TriScene:
    """The four cameras' part of a scene."""

    name: str
    cameras: dict[str, TriCamera]
    steps: tuple[tuple[TriImage, ...], ...]
    """Per time step, ascending, one image per camera in the order of `CAMERA_OF`."""


def convert_tri(scene_folder: Path, output: Path) -> dict[str, Any]:
    """Write the scene's four cameras, their calibration and the odometry as a bag; returns what was written.

    Raises DatasetError naming file, found and expected; BagError when `output` exists.
    """
    scene = read_scene(scene_folder)
    # Every camera carries a pose of its own; the front camera's one drives the odometry.
    odometry = [image for step in scene.steps for image in step if image.camera == "front_wide"]
    stamps_ns = [image.stamp_ns for image in odometry]
    velocities = velocities_in_base(stamps_ns, [image.base_in_world for image in odometry])
    with create_bag(output, _topics(), _custom_data(scene)) as write:
        static = messages.static_transforms(
            stamps_ns[0],
            {
                name: (camera.in_base.position_m, camera.in_base.quaternion_xyzw)
                for name, camera in scene.cameras.items()
            },
        )
        write(messages.TF_STATIC_TOPIC, stamps_ns[0], static)
        for step, driven, velocity in zip(scene.steps, odometry, velocities, strict=True):
            for image in step:
                _write_image(write, image, scene.cameras[image.camera])
            pose = driven.base_in_world
            message = messages.odometry(driven.stamp_ns, "map", pose.position_m, pose.quaternion_xyzw, velocity)
            write(messages.ODOMETRY_TOPIC, driven.stamp_ns, message)
    return {
        "output": str(output),
        "frames_per_camera": len(scene.steps),
        "cameras": list(scene.cameras),
        "first_stamp_ns": stamps_ns[0],
        "last_stamp_ns": stamps_ns[-1],
        "forward_speeds_mps": [round(float(velocity[0]), 3) for velocity in velocities],
    }


def read_scene(folder: Path) -> TriScene:
    """Read and check a scene folder. Raises DatasetError."""
    scene_path = _only_file(folder, "scene_*.json")
    scene = _load_json(scene_path)
    with _format_errors(scene_path, "a DGP scene with data, samples and their ids"):
        datums = {datum["key"]: datum for datum in scene["data"]}
        samples = sorted(scene["samples"], key=lambda sample: str(sample["id"]["timestamp"]))
        calibration_path = folder / "calibration" / f"{samples[0]['calibration_key']}.json"
    cameras = _cameras(calibration_path)
    with _format_errors(scene_path, "an image with name, size, time and pose for every camera of a sample"):
        datums_of_samples = [[datums[key] for key in sample["datum_keys"]] for sample in samples]
        steps = tuple(_step(folder, scene_path, step, cameras) for step in datums_of_samples)
    return TriScene(folder.name, cameras, steps)


def stamp_of_image_name(name: str, json_timestamp: str, source: Path) -> int:
    """Nanoseconds since 1970 of an image `<17 digits>.jpg`. Raises DatasetError when the json disagrees."""
    digits = Path(name).stem
    if not (len(digits) == 17 and digits.isdecimal()):
        raise DatasetError(f"{source}: found image name {name}, expected 17 digits (time in units of 0.1 microseconds)")
    from_json = (datetime.fromisoformat(json_timestamp.replace("Z", "+00:00")) - EPOCH) // timedelta(microseconds=1)
    if from_json != int(digits):
        raise DatasetError(
            f"{source}: found timestamp {json_timestamp} for {name}, expected {int(digits)} taken as microseconds"
        )
    return int(digits) * NS_PER_NAME_UNIT


def velocities_in_base(stamps_ns: list[int], poses: list[Pose]) -> Array:
    """[n, 3] velocity of base_link in its own axes, from differences of the positions (m/s)."""
    seconds = (np.array(stamps_ns) - stamps_ns[0]) / 1e9
    in_world = np.gradient(np.array([pose.position_m for pose in poses]), seconds, axis=0)
    pairs = zip(poses, in_world, strict=True)
    return np.array([rotate(_conjugate(pose.quaternion_xyzw), velocity) for pose, velocity in pairs])


def base_in_world(camera_in_world: Pose, camera_in_base: Pose) -> Pose:
    """Where base_link is, from where a camera is and where it is mounted."""
    quaternion = quaternion_multiply(camera_in_world.quaternion_xyzw, _conjugate(camera_in_base.quaternion_xyzw))
    quaternion *= -1.0 if quaternion[3] < 0 else 1.0
    return Pose(camera_in_world.position_m - rotate(quaternion, camera_in_base.position_m), quaternion)


def pose_of(entry: dict[str, Any], source: Path) -> Pose:
    """A DGP pose (w, x, y, z) as ours. Raises DatasetError unless the quaternion is a rotation."""
    rotation, translation = entry["rotation"], entry["translation"]
    quaternion = np.array([rotation["qx"], rotation["qy"], rotation["qz"], rotation["qw"]], np.float64)
    norm = float(np.linalg.norm(quaternion))
    if not abs(norm - 1.0) < 1e-3:
        raise DatasetError(f"{source}: found a quaternion of norm {norm:.6g}, expected 1")
    return Pose(np.array([translation["x"], translation["y"], translation["z"]], np.float64), quaternion / norm)


def _conjugate(quaternion_xyzw: Array) -> Array:
    return np.multiply(quaternion_xyzw, [-1.0, -1.0, -1.0, 1.0])


def _cameras(path: Path) -> dict[str, TriCamera]:
    calibration = _load_json(path)
    with _format_errors(path, "names, intrinsics and extrinsics of every sensor"):
        names = list(calibration["names"])
        if missing := sorted(set(CAMERA_OF) - set(names)):
            raise DatasetError(f"{path}: found {', '.join(names)}, expected also {', '.join(missing)}")
        return {name: _camera(path, calibration, names.index(dataset_name)) for dataset_name, name in CAMERA_OF.items()}


def _camera(path: Path, calibration: Any, index: int) -> TriCamera:
    dataset_name = calibration["names"][index]
    name = CAMERA_OF[dataset_name]
    intrinsics = calibration["intrinsics"][index]
    mounted = pose_of(calibration["extrinsics"][index], path)
    axis = rotate(mounted.quaternion_xyzw, np.array([0.0, 0.0, 1.0]))
    if float(axis[:2] @ np.array(LOOKS_ALONG[name])) < 0.9:
        raise DatasetError(
            f"{path}: found {dataset_name} looking along {np.round(axis, 2).tolist()} (x forward, y left), "
            f"expected {name} to look about along {LOOKS_ALONG[name]}"
        )
    return TriCamera(mounted, (intrinsics["fx"], intrinsics["fy"]), (intrinsics["cx"], intrinsics["cy"]))


def _step(
    folder: Path, scene_path: Path, datums: list[dict[str, Any]], cameras: dict[str, TriCamera]
) -> tuple[TriImage, ...]:
    by_camera = {datum["id"]["name"]: datum for datum in datums}
    if missing := sorted(set(CAMERA_OF) - set(by_camera)):
        raise DatasetError(f"{scene_path}: found {', '.join(sorted(by_camera))}, expected also {', '.join(missing)}")
    images = []
    for dataset_name, name in CAMERA_OF.items():
        datum = by_camera[dataset_name]
        image = datum["datum"]["image"]
        jpeg_path = folder / image["filename"]
        size = (int(image["width"]), int(image["height"]))
        _require_jpeg(jpeg_path, size)
        stamp_ns = stamp_of_image_name(jpeg_path.name, datum["id"]["timestamp"], scene_path)
        pose = base_in_world(pose_of(image["pose"], scene_path), cameras[name].in_base)
        images.append(TriImage(name, stamp_ns, jpeg_path, *size, pose))
    positions = np.array([image.base_in_world.position_m for image in images])
    spread_m = float(np.linalg.norm(positions - positions[0], axis=1).max())
    if spread_m > AGREEMENT_M:
        raise DatasetError(
            f"{scene_path}: found cameras of one step that place base_link {spread_m:.2f} m apart, "
            f"expected at most {AGREEMENT_M} m"
        )
    return tuple(images)


def _require_jpeg(path: Path, size: tuple[int, int]) -> None:
    expected = f"a whole JPEG of {size[0]}x{size[1]}"
    try:
        with Image.open(path) as picture:
            found = f"{picture.format} of {picture.width}x{picture.height}"
            whole = path.read_bytes().endswith(END_OF_JPEG)
    except FileNotFoundError:
        raise DatasetError(f"{path}: found no file, expected {expected}") from None
    except OSError as error:
        raise DatasetError(f"{path}: found no picture, expected {expected}") from error
    if not whole or found != f"JPEG of {size[0]}x{size[1]}":
        raise DatasetError(f"{path}: found {found}{'' if whole else ', cut off'}, expected {expected}")


def _only_file(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise DatasetError(f"{folder}: found {names}, expected exactly one {pattern}")
    return found[0]


@contextmanager
def _format_errors(path: Path, expected: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"{path}: found {type(error).__name__}: {error}; expected {expected}") from error


def _load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: found {error}, expected a JSON file") from error


def _topics() -> dict[str, NewTopic]:
    topics = {messages.TF_STATIC_TOPIC: messages.TF_STATIC, messages.ODOMETRY_TOPIC: messages.ODOMETRY}
    for camera in CAMERA_OF.values():
        topics[messages.image_topic(camera)] = messages.COMPRESSED_IMAGE
        topics[messages.camera_info_topic(camera)] = messages.CAMERA_INFO
    return topics


def _write_image(write: Any, image: TriImage, camera: TriCamera) -> None:
    jpeg = image.jpeg_path.read_bytes()
    write(messages.image_topic(image.camera), image.stamp_ns, messages.jpeg_image(image.stamp_ns, image.camera, jpeg))
    info = messages.pinhole_camera_info(
        image.stamp_ns, image.camera, image.width, image.height, camera.focal_px, camera.centre_px
    )
    write(messages.camera_info_topic(image.camera), image.stamp_ns, info)


def _custom_data(scene: TriScene) -> dict[str, str]:
    return {
        "source": f"TRI DGP test scene {scene.name}, Toyota Research Institute",
        "licence": "MIT",
        "cameras": ", ".join(f"{ours} = {theirs}" for theirs, ours in CAMERA_OF.items()),
        "images": "JPEG bytes as recorded",
        "stamps": "from the 17-digit image names, units of 0.1 microseconds; the json dates are 10 times too large",
        "odometry": "pose of the front camera taken back to base_link; velocity from differences of the positions",
        "base_link": "origin of the data set's extrinsics (on the ground, x forward)",
    }
