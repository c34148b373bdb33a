"""Write rosbag2 folders with MCAP storage: whole or not at all, and byte-identical for identical input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import StoragePlugin, Writer

from flashdrive_ros.bags.message_types import message_store
from flashdrive_ros.errors import BagError

UNSET = QosTime(0, 0)


def qos(reliability: QosReliability, depth: int, durability: QosDurability = QosDurability.VOLATILE) -> Qos:
    """A keep-last profile as a recorder would have noted it."""
    liveliness = QosLiveliness.AUTOMATIC
    return Qos(QosHistory.KEEP_LAST, depth, reliability, durability, UNSET, UNSET, liveliness, UNSET, False)


SENSOR_QOS = qos(QosReliability.BEST_EFFORT, 5)
RELIABLE_QOS = qos(QosReliability.RELIABLE, 100)
LATCHED_QOS = qos(QosReliability.RELIABLE, 1, QosDurability.TRANSIENT_LOCAL)


class NewTopic(NamedTuple):
    """A topic to be written."""

    type_name: str
    """For example `nav_msgs/msg/Odometry`, one of `message_store().types`."""
    qos: Qos = RELIABLE_QOS


WriteMessage = Callable[[str, int, Any], None]
"""topic, log time in ns, message (an object of `message_store().types`, or CDR bytes)"""


@contextmanager
def create_bag(
    path: str | Path, topics: Mapping[str, NewTopic], custom_data: Mapping[str, str] | None = None
) -> Iterator[WriteMessage]:
    """Write a new bag folder at `path`: `with create_bag(...) as write: write(topic, log_time_ns, message)`.

    The folder appears when the block ends without an exception, never half written. Its storage file is always
    `bag.mcap`, and no time of day, host or path goes into it. Raises BagError when `path` exists.
    """
    path = Path(path)
    if path.exists():
        raise BagError(f"{path}: exists already; choose another output or remove it")
    store = message_store()
    with _staging_folder(path) as staging:
        # rosbags names the file after its folder, and the name goes into the file.
        folder = staging / "bag"
        with Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
            for key, value in (custom_data or {}).items():
                writer.set_custom_data(key, value)
            connections = {
                name: writer.add_connection(name, topic.type_name, typestore=store, offered_qos_profiles=[topic.qos])
                for name, topic in topics.items()
            }

            def write(topic: str, log_time_ns: int, message: Any) -> None:
                raw = message if isinstance(message, bytes) else store.serialize_cdr(message, topics[topic].type_name)
                try:
                    writer.write(connections[topic], log_time_ns, raw)
                except OSError as error:
                    raise BagError(f"{path}: cannot be written: {error.strerror}") from error

            yield write
        folder.rename(path)


@contextmanager
def _staging_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path`, on the same file system, so that the finished bag can be moved into place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise BagError(f"{path.parent}: cannot be written: {error.strerror}") from error
    with staging as name:
        yield Path(name)
