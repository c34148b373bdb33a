"""Save the readable part of a damaged MCAP file: one whose end was never written, or was cut off."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from struct import unpack_from
from typing import BinaryIO

from rosbags.interfaces import Connection
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.rosbag2.storage_mcap import decompress

from flashdrive_ros.errors import BagError

MAGIC = b"\x89MCAP0\r\n"
SCHEMA, CHANNEL, MESSAGE, CHUNK, DATA_END = 0x03, 0x04, 0x05, 0x06, 0x0F
LARGEST_CHUNK_BYTES = 1 << 30


@dataclass
class Copied:
    """What has been copied so far."""

    schemas: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Type name and definition text."""
    connections: dict[int, Connection] = field(default_factory=dict)
    stamps_ns: list[int] = field(default_factory=lambda: [2**63, 0])
    """Earliest and latest log time."""
    messages: int = 0
    read_bytes: int = 0
    all_data: bool = False
    """True when the end of the messages was reached and only the index behind it is lost."""


def recover_mcap(path: Path, scratch: Path) -> tuple[Path, str]:
    """Copy every whole message before the damage into a new, indexed MCAP file below `scratch`.

    Memory stays within one compressed chunk and one message. Returns the new file and one line on how much was
    readable. Raises BagError when nothing was.
    """
    folder = scratch / f"recovered_{path.stem}"
    size = path.stat().st_size
    copied = Copied()
    with path.open("rb") as stream, Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        if stream.read(len(MAGIC)) != MAGIC:
            raise BagError(f"{path}: not an MCAP file: it does not start with the MCAP magic")
        for opcode, record, end in _records(stream, size):
            try:
                _copy_record(opcode, record, copied, writer)
            except (struct.error, KeyError, UnicodeDecodeError):
                break  # a record that contradicts itself: nothing behind it can be trusted
            copied.read_bytes = end
    if copied.messages == 0:
        raise BagError(f"{path}: damaged, no message is readable in its {size} bytes")
    first_ns, last_ns = copied.stamps_ns
    lost = "its index is lost, every message is there" if copied.all_data else "the rest is lost"
    extent = (
        f"{path}: damaged: {copied.messages} messages over {(last_ns - first_ns) / 1e9:.3f} s from {first_ns} ns "
        f"read from the first {copied.read_bytes} of {size} bytes; {lost}"
    )
    return folder / f"{folder.name}.mcap", extent


def _records(stream: BinaryIO, end: int) -> Iterator[tuple[int, bytes, int]]:
    """Opcode, content and end offset in the file of each whole record; chunks are opened, the first damage ends it."""
    while len(header := stream.read(9)) == 9:
        opcode, size = header[0], int.from_bytes(header[1:], "little")
        if opcode == CHUNK:
            fixed = stream.read(32)
            if len(fixed) < 32:
                return
            _, _, unpacked_size, crc, name_size = unpack_from("<QQQII", fixed)
            compression = stream.read(min(name_size, 16)).decode("ascii", "replace")
            packed_size = int.from_bytes(stream.read(8), "little")
            if not compression:
                continue  # its records follow as they are, and those before a cut are whole
            if packed_size > end - stream.tell() or unpacked_size > LARGEST_CHUNK_BYTES:
                return
            try:
                chunk = decompress(stream.read(packed_size), compression, unpacked_size, crc)
            except Exception:  # every decompressor has its own error for damaged data
                return
            yield from ((inner, record, stream.tell()) for inner, record, _ in _records(BytesIO(chunk), len(chunk)))
        elif size > end - stream.tell():
            return
        else:
            yield opcode, stream.read(size), stream.tell()


def _copy_record(opcode: int, record: bytes, copied: Copied, writer: Writer) -> None:
    if opcode == MESSAGE and not copied.all_data:
        channel, _, log_time_ns = unpack_from("<HIQ", record)
        writer.write(copied.connections[channel], log_time_ns, record[22:])
        copied.stamps_ns = [min(copied.stamps_ns[0], log_time_ns), max(copied.stamps_ns[1], log_time_ns)]
        copied.messages += 1
    elif opcode == CHANNEL:
        _add_channel(record, copied, writer)
    elif opcode == SCHEMA:
        name, after_name = _text(record, 2)
        _, after_encoding = _text(record, after_name)
        copied.schemas[unpack_from("<H", record)[0]] = (name, _text(record, after_encoding)[0])
    elif opcode == DATA_END:
        copied.all_data = True


def _add_channel(record: bytes, copied: Copied, writer: Writer) -> None:
    channel, schema = unpack_from("<HH", record)
    if channel in copied.connections:
        return  # repeated in every chunk
    topic, after_topic = _text(record, 4)
    encoding, _ = _text(record, after_topic)
    type_name, definition = copied.schemas[schema]
    same = [known for known in copied.connections.values() if (known.topic, known.msgtype) == (topic, type_name)]
    copied.connections[channel] = (
        same[0]
        if same
        else writer.add_connection(topic, type_name, msgdef=definition, rihs01="unknown", serialization_format=encoding)
    )


def _text(record: bytes, offset: int) -> tuple[str, int]:
    """The length-prefixed text at `offset`, and the offset behind it."""
    (size,) = unpack_from("<I", record, offset)
    return record[offset + 4 : offset + 4 + size].decode("utf-8"), offset + 4 + size
