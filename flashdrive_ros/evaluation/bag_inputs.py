"""Which topics of a bag a planner reads, and whether they can give a plan at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flashdrive_ros.bags.read import Bag
from flashdrive_ros.cameras import CAMERAS
from flashdrive_ros.errors import BagError
from flashdrive_ros.intake.settings import camera_indices
from flashdrive_ros.model.config import ModelConfig
from flashdrive_ros.ros.topics import IMAGE_TRANSPORTS, ROUTE, image_topic

IMAGE_TYPES = {"compressed": "sensor_msgs/msg/CompressedImage", "raw": "sensor_msgs/msg/Image"}
ODOMETRY_TYPE = "nav_msgs/msg/Odometry"
ROUTE_TYPE = "std_msgs/msg/String"
ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth"}


@dataclass(frozen=True)
class BagInputs:
    """The topics to read."""

    image_topics: Mapping[str, int]
    """Topic to camera index, ascending."""
    odometry_topic: str
    route_topic: str | None
    """None when the bag has none."""

    @property
    def cameras(self) -> tuple[int, ...]:
        """Ascending camera indices."""
        return tuple(self.image_topics.values())

    @property
    def topics(self) -> list[str]:
        """All topics to read."""
        return [*self.image_topics, self.odometry_topic, *([self.route_topic] if self.route_topic else [])]


def find_inputs(bag: Bag, camera_names: Sequence[str], odometry_topic: str, config: ModelConfig) -> BagInputs:
    """Topics of the named cameras, or of all that the bag has when none is named.

    Raises ParameterError for a wrong camera name; BagError naming what is missing, empty, of another type, too many, or
    too short for the model.
    """
    images = _image_topics(bag, camera_names, config)
    bag.require_messages([odometry_topic, *images])
    _require_type(bag, odometry_topic, ODOMETRY_TYPE)
    route = ROUTE.public if ROUTE.public in bag.topics else None
    if route is not None:
        _require_type(bag, route, ROUTE_TYPE)
    _require_frames(bag, images, config)
    return BagInputs(images, odometry_topic, route)


def _image_topics(bag: Bag, camera_names: Sequence[str], config: ModelConfig) -> dict[str, int]:
    candidates = camera_indices(camera_names, ()) if camera_names else range(len(CAMERAS))
    found = {camera: topic for camera in candidates if (topic := _topic_of(bag, camera)) is not None}
    needed = len(config.prompt.cameras)
    expected = candidates if camera_names else config.prompt.cameras
    missing = [camera for camera in expected if camera not in found]
    if missing and (camera_names or len(found) < needed):
        names = ", ".join(" or ".join(_names_of(camera)) for camera in missing)
        raise BagError(f"{bag.path}: no topic {names}; it has {', '.join(bag.topics) or 'none'}")
    if len(found) != needed:
        names = ", ".join(CAMERAS[camera].name for camera in found)
        hint = "" if camera_names else "; choose with --cameras"
        raise BagError(
            f"{bag.path}: {len(found)} cameras found ({names}), {needed} expected by model {config.name}{hint}"
        )
    return {topic: camera for camera, topic in found.items()}


def _names_of(camera: int) -> list[str]:
    return [image_topic(CAMERAS[camera].name, transport).public for transport in IMAGE_TRANSPORTS]


def _topic_of(bag: Bag, camera: int) -> str | None:
    """The camera's topic in the bag, compressed before raw when it has both."""
    for transport in IMAGE_TRANSPORTS:
        topic = image_topic(CAMERAS[camera].name, transport).public
        if topic in bag.topics:
            _require_type(bag, topic, IMAGE_TYPES[transport])
            return topic
    return None


def _require_type(bag: Bag, topic: str, expected: str) -> None:
    found = bag.topics[topic].type_name
    if found != expected:
        raise BagError(f"{bag.path}: topic {topic} is {found}, expected {expected}")


def _require_frames(bag: Bag, images: Mapping[str, int], config: ModelConfig) -> None:
    """No frame serves two time steps, so every camera needs as many frames as the model has time steps."""
    needed, stride_s = config.prompt.frames, config.prompt.stride_s
    counts = {topic: bag.topics[topic].message_count for topic in images}
    fewest, most = min(counts.values()), max(counts.values())
    if fewest >= needed:
        return
    ordinal = ORDINALS.get(needed, f"{needed}th")
    expected = f"at least {needed} needed, {stride_s:g} s apart: no plan possible for lack of a {ordinal} frame"
    if most < needed:
        found = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        raise BagError(f"{bag.path}: {found} frames per camera found, {expected}")
    shortest = min(counts, key=lambda topic: counts[topic])
    raise BagError(f"{bag.path}: {fewest} frames on {shortest} found, {expected}")
