"""Read rosbag2 bags: folders, bare .mcap and .db3 files, split, compressed, without metadata.yaml, or damaged.

Messages come in the order of their log time, the order in which a live node would have received them: a player needs
it, the intake matches by stamp itself, and a backward jump of the stamps (a looped recording) stays visible.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path, PurePath
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from rosbags.interfaces import (
    Connection,
    ConnectionExtRosbag2,
    MessageDefinition,
    MessageDefinitionFormat,
    QosDurability,
)
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore

from flashdrive_ros.bags.message_types import message_store
from flashdrive_ros.bags.recover import recover_mcap
from flashdrive_ros.errors import BagError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STORAGE_SUFFIXES = (".mcap", ".db3")
IDL_SEPARATOR = "=" * 80 + "\n"


@dataclass(frozen=True)
class BagTopic:
    """One topic of a bag."""

    name: str
    type_name: str
    """For example `sensor_msgs/msg/Image`."""
    message_count: int
    """Messages that the storage files hold."""
    latched: bool
    """Recorded from transient-local publishers."""


@dataclass(frozen=True)
class BagMessage:
    """One recorded message, not deserialised."""

    topic: str
    type_name: str
    log_time_ns: int
    data: bytes
    """CDR with its four-byte header: what a ROS publisher sends."""


@dataclass(frozen=True)
class BagLayout:
    """Which files a bag consists of, and what its metadata.yaml says about them."""

    files: tuple[Path, ...]
    promised_counts: Mapping[str, int]
    """Messages per topic by metadata.yaml; empty without one."""
    message_compression: bool
    custom_data: Mapping[str, str]
    notes: tuple[str, ...]


class Bag:
    """An open bag; made by `open_bag`, valid inside its `with` block."""

    def __init__(self, path: Path, layout: BagLayout, readers: tuple[Reader, ...], damage: tuple[str, ...]) -> None:
        self.path = path
        self.custom_data = layout.custom_data
        self.notes = layout.notes
        """What was unusual but harmless, one line each."""
        self.topics = _topics(path, readers)
        self.damage = damage + _count_damage(path, layout.promised_counts, self.topics)
        """What is missing from the recording, one line each. A tool that goes on should still exit with an error."""
        self._layout = layout
        self._readers = readers
        self._own_types = get_typestore(Stores.EMPTY)

    def messages(self, topics: Collection[str] | None = None) -> Iterator[BagMessage]:
        """The messages of `topics` (default: all) by log time; ties by topic, then as recorded.

        Raises BagError for a topic the bag lacks, unreadable data, or when fewer messages come than the files promise.
        """
        wanted = set(self.topics) if topics is None else set(topics)
        self.require_topics(wanted)
        streams = [_storage_messages(reader, wanted, self._layout.message_compression) for reader in self._readers]
        delivered = 0
        log_time = attrgetter("log_time_ns")
        with _reader_errors(self.path):
            for _, simultaneous in groupby(heapq.merge(*streams, key=log_time), log_time):
                for message in sorted(simultaneous, key=attrgetter("topic")):
                    delivered += 1
                    yield message
        promised = sum(self.topics[name].message_count for name in wanted)
        if delivered != promised:
            raise BagError(f"{self.path}: gave {delivered} of {promised} messages; run `ros2 bag reindex {self.path}`")

    def require_topics(self, names: Collection[str]) -> None:
        """Raise BagError unless the bag has every topic in `names` (a topic with no message counts as present)."""
        if missing := sorted(set(names) - set(self.topics)):
            raise BagError(f"{self.path}: no topic {', '.join(missing)}; it has {', '.join(self.topics) or 'none'}")

    def require_messages(self, names: Collection[str]) -> None:
        """Raise BagError unless every topic in `names` is there with at least one message."""
        self.require_topics(names)
        for name in sorted(names):
            if self.topics[name].message_count == 0:
                promised = self._layout.promised_counts.get(name, 0)
                raise BagError(f"{self.path}: topic {name} holds no message (metadata.yaml promises {promised})")

    def decode(self, message: BagMessage) -> Any:
        """The deserialised message, with the ROS message's fields. Raises BagError for an unknown type or bad bytes."""
        try:
            if message.type_name in message_store().types and not self._definition(message.type_name):
                return message_store().deserialize_cdr(message.data, message.type_name)
            if message.type_name not in self._own_types.types:
                self._own_types.register(_parse_definition(message.type_name, self._definition(message.type_name)))
            return self._own_types.deserialize_cdr(message.data, message.type_name)
        except BagError:
            raise
        except Exception as error:  # rosbags raises many kinds for a damaged definition or message
            raise BagError(f"{self.path}: {message.topic} at {message.log_time_ns} ns: {_one_line(error)}") from error

    def _definition(self, type_name: str) -> MessageDefinition | None:
        for reader in self._readers:
            for connection in reader.connections:
                if connection.msgtype == type_name and connection.msgdef.format != MessageDefinitionFormat.NONE:
                    return connection.msgdef
        return None


@contextmanager
def open_bag(path: str | Path) -> Iterator[Bag]:
    """Open a rosbag2 folder or a bare storage file. Raises BagError, one line that names what is missing or wrong."""
    path = Path(path)
    layout = _layout(path)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="flashdrive_bag_")))
        readers: list[Reader] = []
        damage: list[str] = []
        for file in layout.files:
            plain = _decompressed(file, scratch) if file.suffix == ".zstd" else file
            reader, extent = _open_storage(plain, scratch)
            stack.callback(reader.close)
            _require_cdr(file, reader)
            readers.append(reader)
            damage += [extent] if extent else []
        yield Bag(path, layout, tuple(readers), tuple(damage))


def _layout(path: Path) -> BagLayout:
    if not path.exists():
        raise BagError(f"{path}: no such bag folder or file")
    if path.is_dir() and (path / "metadata.yaml").exists():
        return _layout_from_metadata(path)
    files = tuple(sorted(filter(_is_storage, path.iterdir()), key=_split_order)) if path.is_dir() else (path,)
    if not files:
        raise BagError(
            f"{path}: metadata.yaml is missing and there is no .mcap or .db3 file; "
            f"where the storage files are, run `ros2 bag reindex {path}`"
        )
    if not _is_storage(files[0]):
        raise BagError(f"{path}: not a bag: expected a folder, .mcap or .db3")
    note = f"{path}: metadata.yaml is missing, opened {len(files)} storage file(s); `ros2 bag reindex {path}` writes it"
    return BagLayout(files, {}, False, {}, (note,) if path.is_dir() else ())


def _layout_from_metadata(folder: Path) -> BagLayout:
    metadata_path = folder / "metadata.yaml"
    try:
        information = yaml.safe_load(metadata_path.read_text(encoding="utf-8"))["rosbag2_bagfile_information"]
        names = [PurePath(name).name for name in information["relative_file_paths"]]
        counts = {
            entry["topic_metadata"]["name"]: int(entry["message_count"])
            for entry in information["topics_with_message_count"]
        }
        compression = (information.get("compression_mode") or "").lower()
        compression_format = information.get("compression_format") or ""
        custom_data = {str(key): str(value) for key, value in (information.get("custom_data") or {}).items()}
    except Exception as error:  # a damaged YAML file can fail in any of these lookups
        raise BagError(
            f"{metadata_path}: not a rosbag2 metadata file ({_one_line(error)}); run `ros2 bag reindex {folder}`"
        ) from error
    if compression not in ("", "none") and compression_format != "zstd":
        raise BagError(f"{metadata_path}: compression format {compression_format!r} is not supported, expected zstd")
    if not names:
        raise BagError(f"{metadata_path}: names no storage file; run `ros2 bag reindex {folder}`")
    files = tuple(_existing_storage(folder, name) for name in names)
    return BagLayout(files, counts, compression == "message", custom_data, ())


def _existing_storage(folder: Path, name: str) -> Path:
    # Recorders disagree on whether the listed name carries the .zstd suffix.
    for candidate in (name, f"{name}.zstd", name.removesuffix(".zstd")):
        if (folder / candidate).exists():
            return folder / candidate
    raise BagError(f"{folder}: {name}, named by metadata.yaml, is missing; restore it or `ros2 bag reindex {folder}`")


def _is_storage(file: Path) -> bool:
    return file.name.removesuffix(".zstd").endswith(STORAGE_SUFFIXES)


def _split_order(file: Path) -> tuple[int, str]:
    """Sorts bag_2 before bag_10."""
    number = file.name.split(".")[0].rpartition("_")[2]
    return (int(number) if number.isdecimal() else -1, file.name)


def _decompressed(file: Path, scratch: Path) -> Path:
    target = scratch / file.stem
    with _reader_errors(file), file.open("rb") as packed, zstd.open(packed, "rb") as unpacked, target.open("wb") as out:
        copyfileobj(unpacked, out)
    return target


def _open_storage(file: Path, scratch: Path) -> tuple[Reader, str]:
    """An open reader, and what is missing from the file ('' for a whole one)."""
    try:
        return _opened(file), ""
    except BagError:
        if file.suffix != ".mcap" or file.stat().st_size == 0:
            raise
    recovered, extent = recover_mcap(file, scratch)
    return _opened(recovered), extent


def _opened(file: Path) -> Reader:
    with _reader_errors(file):
        reader = Reader(file)
        reader.open()
    return reader


def _require_cdr(file: Path, reader: Reader) -> None:
    for connection in reader.connections:
        encoding = connection.ext.serialization_format if isinstance(connection.ext, ConnectionExtRosbag2) else "ros1"
        if encoding != "cdr":
            raise BagError(f"{file}: {connection.topic} is serialised as {encoding!r}, expected 'cdr'")


def _topics(path: Path, readers: tuple[Reader, ...]) -> dict[str, BagTopic]:
    topics: dict[str, BagTopic] = {}
    for connection in (connection for reader in readers for connection in reader.connections):
        known = topics.get(connection.topic, BagTopic(connection.topic, connection.msgtype, 0, _latched(connection)))
        if known.type_name != connection.msgtype:
            raise BagError(f"{path}: {connection.topic} has two types, {known.type_name} and {connection.msgtype}")
        topics[connection.topic] = replace(known, message_count=known.message_count + connection.msgcount)
    return dict(sorted(topics.items()))


def _latched(connection: Connection) -> bool:
    profiles = connection.ext.offered_qos_profiles if isinstance(connection.ext, ConnectionExtRosbag2) else []
    return bool(profiles) and all(profile.durability == QosDurability.TRANSIENT_LOCAL for profile in profiles)


def _count_damage(path: Path, promised: Mapping[str, int], topics: Mapping[str, BagTopic]) -> tuple[str, ...]:
    held = {name: topics[name].message_count if name in topics else 0 for name in promised}
    if sum(promised.values()) > 0 and sum(topic.message_count for topic in topics.values()) == 0:
        raise BagError(
            f"{path}: the storage holds 0 of the {sum(promised.values())} messages that metadata.yaml promises; "
            f"run `ros2 bag reindex {path}`"
        )
    return tuple(
        f"{path}: {name} holds {held[name]} of the {count} messages that metadata.yaml promises"
        for name, count in sorted(promised.items())
        if held[name] != count
    )


def _storage_messages(reader: Reader, topics: set[str], message_compression: bool) -> Iterator[BagMessage]:
    connections: list[Connection] = [connection for connection in reader.connections if connection.topic in topics]
    # The storage's own connections: those rosbags makes from metadata.yaml match nothing when their QoS texts differ.
    for connection, log_time_ns, data in reader.messages(connections) if connections else ():
        payload = zstd.decompress(data) if message_compression else bytes(data)
        yield BagMessage(connection.topic, connection.msgtype, log_time_ns, payload)


def _parse_definition(type_name: str, definition: MessageDefinition | None) -> dict[str, Any]:
    if definition is None:
        raise BagError(f"{type_name}: the bag brings no definition of this type and it is not a known one")
    if definition.format == MessageDefinitionFormat.MSG:
        return dict(get_types_from_msg(definition.data, type_name))
    if not definition.data.startswith(f"{IDL_SEPARATOR}IDL: "):
        return dict(get_types_from_idl(definition.data))
    types: dict[str, Any] = {}
    for part in definition.data.split(IDL_SEPARATOR)[1:]:
        types.update(get_types_from_idl(part.partition("\n")[2]))
    return types


@contextmanager
def _reader_errors(path: Path) -> Iterator[None]:
    """Turn whatever rosbags, sqlite and the decompressors raise on damaged files into one BagError line."""
    try:
        yield
    except BagError:
        raise
    except Exception as error:
        raise BagError(f"{path}: not readable: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
