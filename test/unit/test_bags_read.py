"""Reading bags: nothing is lost in silence, order is that of the log, damage is said or refused."""

from __future__ import annotations

import re
import shutil
import sqlite3
import tracemalloc
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

from flashdrive_ros.bags.message_types import message_store
from flashdrive_ros.bags.read import Bag, open_bag
from flashdrive_ros.bags.write import NewTopic, create_bag
from flashdrive_ros.errors import BagError

STRING = NewTopic("std_msgs/msg/String")


def text(value: str) -> object:
    return message_store().types["std_msgs/msg/String"](data=value)


def write_strings(path: Path, entries: list[tuple[str, int, str]]) -> Path:
    """A bag of std_msgs/String: (topic, log time, text), written in this order."""
    with create_bag(path, {topic: STRING for topic, _, _ in entries}) as write:
        for topic, log_time_ns, value in entries:
            write(topic, log_time_ns, text(value))
    return path


def read_strings(path: Path) -> list[tuple[str, int, str]]:
    with open_bag(path) as bag:
        return [(message.topic, message.log_time_ns, bag.decode(message).data) for message in bag.messages()]


def edit_metadata(folder: Path, change: dict[str, object]) -> None:
    path = folder / "metadata.yaml"
    metadata = yaml.safe_load(path.read_text())
    metadata["rosbag2_bagfile_information"].update(change)
    path.write_text(yaml.safe_dump(metadata))


def refusal(path: Path) -> str:
    """The one line with which opening or reading `path` is refused."""
    with pytest.raises(BagError) as caught, open_bag(path) as bag:
        Counter(message.topic for message in bag.messages())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def counted(bag: Bag) -> int:
    return sum(1 for _ in bag.messages())


# Counts are those of the data's own metadata.yaml files.
@pytest.mark.parametrize(
    ("folder", "count"),
    [
        ("every_message/test_bag_mcap", 188),
        ("every_message/test_bag_sqlite3", 188),
        ("rosbag2/mcap/convert_a", 150),
        ("rosbag2/sqlite3/convert_a", 150),
        ("rosbag2/mcap/convert_b", 75),
        ("rosbag2/sqlite3/convert_b", 75),
        ("rosbag2/mcap/wbag", 6074),
        ("rosbag2/sqlite3/wbag", 6074),
        ("zstd/db3_zstd", 6),
        ("zstd/mcap_zstd", 6),
    ],
)
def test_public_bags_give_every_message_in_log_order(shared_data: Path, folder: str, count: int) -> None:
    with open_bag(shared_data / "bags" / folder) as bag:
        stamps = [message.log_time_ns for message in bag.messages()]
        assert bag.damage == ()
    assert len(stamps) == count
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_qos_text_unlike_the_storage_loses_nothing(shared_data: Path, storage: str) -> None:
    """Case B4: rosbags' own folder reader gives 0 of these 20 messages without an error."""
    with open_bag(shared_data / "bags/rosbag2" / storage / "talker") as bag:
        messages = list(bag.messages())
        spoken = [bag.decode(message).data for message in messages if message.topic == "/topic"]
    assert Counter(message.topic for message in messages) == {"/topic": 10, "/rosout": 10}
    assert spoken == [f"Hello, world! {number}" for number in range(10)]


def test_every_message_type_of_a_bag_is_decoded_by_its_own_definition(shared_data: Path) -> None:
    with open_bag(shared_data / "bags/every_message/test_bag_mcap") as bag:
        types = {message.type_name for message in bag.messages() if bag.decode(message) is not None}
    assert len(types) == 94


def test_a_folder_without_metadata_is_opened_and_the_reindex_command_named(shared_data: Path) -> None:
    """Case B1, three files of one recording; SQLite itself says how many messages they hold."""
    folder = shared_data / "bags/rosbag2/sqlite3/reindex_test_bags/multiple_files"
    expected = 0
    for file in folder.glob("*.db3"):
        with sqlite3.connect(f"file:{file}?immutable=1", uri=True) as database:
            expected += database.execute("SELECT count(*) FROM messages").fetchone()[0]
    for path in (folder, shared_data / "bags/rosbag2/mcap/reindex_test_bags/multiple_files"):
        with open_bag(path) as bag:
            assert counted(bag) == expected
            assert re.search(r"metadata\.yaml is missing.*ros2 bag reindex", bag.notes[0])


@pytest.mark.parametrize("file", ["rosbag2/mcap/talker/talker.mcap", "rosbag2/sqlite3/talker/talker.db3"])
def test_a_bare_storage_file_is_opened(shared_data: Path, file: str) -> None:
    with open_bag(shared_data / "bags" / file) as bag:
        assert counted(bag) == 20
        assert bag.notes == ()


def test_an_empty_folder_names_metadata_and_the_reindex_command(tmp_path: Path) -> None:
    line = refusal(tmp_path)
    assert "metadata.yaml is missing" in line
    assert f"ros2 bag reindex {tmp_path}" in line


def test_a_missing_storage_file_is_named(tmp_path: Path) -> None:
    folder = write_strings(tmp_path / "bag", [("/a", 1, "x")])
    (folder / "bag.mcap").unlink()
    assert "bag.mcap, named by metadata.yaml, is missing" in refusal(folder)


def test_an_absent_path_and_a_file_that_is_no_bag_are_refused(tmp_path: Path) -> None:
    assert "no such bag" in refusal(tmp_path / "absent")
    (tmp_path / "notes.txt").write_text("hello")
    assert "not a bag" in refusal(tmp_path / "notes.txt")
    for name in ("noise.mcap", "noise.db3", "empty.mcap", "empty.db3"):
        (tmp_path / name).write_bytes(b"" if name.startswith("empty") else bytes(range(256)) * 8)
        assert name in refusal(tmp_path / name)


@pytest.mark.parametrize("content", ["", "a: [", "rosbag2_bagfile_information: 3", "rosbag2_bagfile_information: {}"])
def test_a_damaged_metadata_file_is_refused(tmp_path: Path, content: str) -> None:
    folder = write_strings(tmp_path / "bag", [("/a", 1, "x")])
    (folder / "metadata.yaml").write_text(content)
    assert "metadata.yaml: not a rosbag2 metadata file" in refusal(folder)


def test_another_serialisation_format_is_refused_and_named(shared_data: Path) -> None:
    assert "'wrong_format', expected 'cdr'" in refusal(shared_data / "bags/rosbag2/wrong_rmw_test")


def test_zero_of_n_messages_is_never_an_empty_success(tmp_path: Path) -> None:
    with create_bag(tmp_path / "bag", {"/a": STRING}):
        pass
    entry = {"topic_metadata": {"name": "/a", "type": "std_msgs/msg/String"}, "message_count": 10}
    edit_metadata(tmp_path / "bag", {"topics_with_message_count": [entry], "message_count": 10})
    assert "holds 0 of the 10 messages" in refusal(tmp_path / "bag")


def test_a_shortfall_against_the_metadata_is_said(tmp_path: Path) -> None:
    folder = write_strings(tmp_path / "bag", [("/a", 1, "x"), ("/a", 2, "y")])
    entry = {"topic_metadata": {"name": "/a", "type": "std_msgs/msg/String"}, "message_count": 3}
    edit_metadata(folder, {"topics_with_message_count": [entry]})
    with open_bag(folder) as bag:
        assert counted(bag) == 2
        assert "/a holds 2 of the 3 messages" in bag.damage[0]


def test_missing_and_empty_topics_are_named(tmp_path: Path) -> None:
    with create_bag(tmp_path / "bag", {"/a": STRING, "/silent": STRING}) as write:
        write("/a", 1, text("x"))
    with open_bag(tmp_path / "bag") as bag:
        bag.require_messages(["/a"])
        with pytest.raises(BagError, match="no topic /absent; it has /a, /silent"):
            bag.require_messages(["/a", "/absent"])
        with pytest.raises(BagError, match="/silent holds no message"):
            bag.require_messages(["/a", "/silent"])
        with pytest.raises(BagError, match="no topic /absent"):
            list(bag.messages(["/absent"]))


def test_topics_written_one_after_the_other_come_by_time_and_ties_by_topic(tmp_path: Path) -> None:
    """Case B3."""
    folder = write_strings(
        tmp_path / "bag",
        [("/b", 10, "b0"), ("/b", 20, "b1"), ("/b", 20, "b2"), ("/b", 30, "b3"), ("/a", 20, "a0"), ("/a", 25, "a1")],
    )
    assert [value for _, _, value in read_strings(folder)] == ["b0", "a0", "b1", "b2", "a1", "b3"]


def test_stamps_crossing_a_split_are_merged_and_split_10_comes_after_split_2(tmp_path: Path) -> None:
    """Case B3: the later file starts before the earlier one ends; ties keep the order of the files."""
    (tmp_path / "split").mkdir()
    for number, entries in {2: [(10, "p"), (30, "q"), (40, "r")], 10: [(20, "s"), (30, "t"), (50, "u")]}.items():
        part = write_strings(tmp_path / str(number), [("/a", stamp, value) for stamp, value in entries])
        shutil.move(part / "bag.mcap", tmp_path / "split" / f"part_{number}.mcap")
    assert [value for _, _, value in read_strings(tmp_path / "split")] == ["p", "s", "q", "t", "r", "u"]


def test_only_the_wanted_topics_are_read(tmp_path: Path) -> None:
    folder = write_strings(tmp_path / "bag", [("/a", 1, "x"), ("/b", 2, "y"), ("/a", 3, "z")])
    with open_bag(folder) as bag:
        assert [bag.decode(message).data for message in bag.messages(["/a"])] == ["x", "z"]


def test_a_message_compressed_bag_is_read(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.SQLITE3)
    writer.set_compression(CompressionMode.MESSAGE, CompressionFormat.ZSTD)
    with writer:
        connection = writer.add_connection("/a", STRING.type_name, typestore=message_store())
        writer.write(connection, 5, message_store().serialize_cdr(text("packed"), STRING.type_name))
    assert read_strings(tmp_path / "bag") == [("/a", 5, "packed")]


def test_a_message_of_a_type_nobody_defines_is_refused_by_name(shared_data: Path) -> None:
    with open_bag(shared_data / "bags/rosbag2/sqlite3/convert_b") as bag:
        message = next(bag.messages(["a_empty"]))
        with pytest.raises(BagError, match="test_msgs/msg/Empty"):
            bag.decode(message)


def test_bytes_that_do_not_fit_the_type_are_refused(tmp_path: Path) -> None:
    with create_bag(tmp_path / "bag", {"/a": STRING}) as write:
        write("/a", 1, b"\x00\x01\x00\x00\xff\xff\xff\x7fno")
    with open_bag(tmp_path / "bag") as bag, pytest.raises(BagError, match="/a at 1 ns"):
        bag.decode(next(bag.messages()))


# Case B2: an MCAP whose end is missing.


def test_a_bag_without_its_last_300_bytes_keeps_its_messages_and_says_so(shared_data: Path, tmp_path: Path) -> None:
    whole = (shared_data / "bags/rosbag2/mcap/talker/talker.mcap").read_bytes()
    (tmp_path / "cut.mcap").write_bytes(whole[:-300])
    with open_bag(tmp_path / "cut.mcap") as bag:
        spoken = [bag.decode(message).data for message in bag.messages(["/topic"])]
        assert re.search(r"damaged: 20 messages over 4\.531 s .*every message is there", bag.damage[0])
    assert spoken == [f"Hello, world! {number}" for number in range(10)]


def test_half_a_bag_gives_its_readable_part_in_bounded_memory(tmp_path: Path) -> None:
    """100 messages of 200 kB are 20 MB; half of the file holds 49 or 50 of them."""
    with create_bag(tmp_path / "bag", {"/a": STRING}) as write:
        for index in range(100):
            write("/a", index * 1_000_000_000, text(f"{index:03d}" + "x" * 200_000))
    whole = (tmp_path / "bag" / "bag.mcap").read_bytes()
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole[: len(whole) // 2])
    del whole
    tracemalloc.start()
    with open_bag(cut) as bag:
        heads = [bag.decode(message).data[:3] for message in bag.messages()]
        damage = bag.damage
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert heads in ([f"{index:03d}" for index in range(49)], [f"{index:03d}" for index in range(50)])
    assert re.search(
        rf"damaged: {len(heads)} messages over {len(heads) - 1}\.000 s .* of {cut.stat().st_size} bytes", damage[0]
    )
    assert peak_bytes < 8_000_000


def test_a_damaged_split_is_said_and_the_rest_used(tmp_path: Path) -> None:
    folder = write_strings(tmp_path / "bag", [("/a", stamp, "x" * 100) for stamp in range(50)])
    file = folder / "bag.mcap"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 4])
    with open_bag(folder) as bag:
        count = counted(bag)
        assert 0 < count < 50
        assert len(bag.damage) == 2  # the file's extent, and the shortfall against metadata.yaml


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_cut_or_flipped_bytes_are_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    source = tmp_path / "bag"
    if not source.exists():
        write_strings(source, [(f"/{index % 3}", index, "y" * index) for index in range(60)])
    content = bytearray((source / "bag.mcap").read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = tmp_path / "damaged.mcap"
    damaged.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    # Any other exception, a hang or a huge allocation fails the test.
    with suppress(BagError), open_bag(damaged) as bag:
        for message in bag.messages():
            bag.decode(message)
