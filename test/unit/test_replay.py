"""`flashdrive replay`: every window planned, the same bytes every time, one line that names what is wrong."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flashdrive_ros.bags import sensor_messages as messages
from flashdrive_ros.bags.message_types import message_store
from flashdrive_ros.bags.read import open_bag
from flashdrive_ros.bags.write import NewTopic, create_bag
from flashdrive_ros.cli import main
from flashdrive_ros.engines.load import model_folder
from flashdrive_ros.evaluation.bag_inputs import find_inputs
from flashdrive_ros.evaluation.replay import Replayed, replay_bag
from flashdrive_ros.model.config import NANO
from flashdrive_ros.plan import Plan
from flashdrive_ros.planner import PlannerSettings, StreamingPlanner, load_planner
from flashdrive_ros.rotations import yaw_quaternion

START_NS = 1_700_000_000_000_000_000
STEP_NS = 100_000_000
RIG = ("cross_left", "front_wide", "cross_right", "front_tele")
SPEED_MPS = 5.0
RAW_IMAGE = NewTopic("sensor_msgs/msg/Image")
TOPICS = {messages.image_topic(name): messages.COMPRESSED_IMAGE for name in RIG} | {
    messages.ODOMETRY_TOPIC: messages.ODOMETRY
}
STRING = NewTopic("std_msgs/msg/String")
ROUTE_TOPIC = "/planning/route_text"


@dataclass(frozen=True)
class Drive:
    """A bag to be made: a car that drives along the map's y axis, through (100, 200, 3) at `START_NS`."""

    steps: Sequence[int] = range(6)
    """Times of the pictures, in tenths of a second after `START_NS`; a step down is a jump back in time."""
    cameras: tuple[str, ...] = RIG
    history_s: float = 2.0
    """Odometry before the first picture."""
    raw: bool = False
    route: str | None = None
    broken_pictures: tuple[int, ...] = ()
    """Places in `steps` where the bytes are not a picture."""


def picture(step: int, camera: str) -> Image.Image:
    """Different for every camera and time."""
    seed = 100 * step + RIG.index(camera) if camera in RIG else step
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (24, 40, 3), np.uint8))


def image_message(stamp_ns: int, step: int, camera: str, drive: Drive, is_broken: bool) -> Any:
    if drive.raw:
        pixels = np.asarray(picture(step, camera))
        return message_store().types["sensor_msgs/msg/Image"](
            header=messages.header(stamp_ns, camera),
            height=24,
            width=40,
            encoding="rgb8",
            is_bigendian=0,
            step=120,
            data=pixels.ravel(),
        )
    stream = BytesIO()
    picture(step, camera).save(stream, "PNG")
    data = b"no picture at all" if is_broken else stream.getvalue()
    return message_store().types["sensor_msgs/msg/CompressedImage"](
        header=messages.header(stamp_ns, camera), format="png", data=np.frombuffer(data, np.uint8)
    )


def odometry(stamp_ns: int) -> Any:
    position = np.array([100.0, 200.0 + SPEED_MPS * (stamp_ns - START_NS) / 1e9, 3.0])
    to_the_left = yaw_quaternion(np.array(np.pi / 2))
    return messages.odometry(stamp_ns, "map", position, to_the_left, np.array([SPEED_MPS, 0.0, 0.0]))


def write_drive(path: Path, drive: Drive) -> Path:
    """The bag: log times always go forward, stamps as `drive` says; odometry at 50 Hz up to 40 ms after a picture."""
    image_topics = {name: messages.image_topic(name) for name in drive.cameras}
    if drive.raw:
        image_topics = {name: topic.removesuffix("/compressed") for name, topic in image_topics.items()}
    topics = dict.fromkeys(image_topics.values(), RAW_IMAGE if drive.raw else messages.COMPRESSED_IMAGE)
    topics[messages.ODOMETRY_TOPIC] = messages.ODOMETRY
    if drive.route is not None:
        topics[ROUTE_TOPIC] = STRING
    with create_bag(path, topics) as write:
        log_ns = START_NS - 10 * STEP_NS
        if drive.route is not None:
            write(ROUTE_TOPIC, log_ns, message_store().types["std_msgs/msg/String"](data=drive.route))
        odometry_ns = START_NS + drive.steps[0] * STEP_NS - round(drive.history_s * 1e9)
        previous = drive.steps[0]
        for place, step in enumerate(drive.steps):
            stamp_ns = START_NS + step * STEP_NS
            if step < previous:
                odometry_ns = stamp_ns - round(drive.history_s * 1e9)
            previous = step
            while odometry_ns <= stamp_ns + 40_000_000:
                write(messages.ODOMETRY_TOPIC, log_ns, odometry(odometry_ns))
                odometry_ns += 20_000_000
                log_ns += 1_000_000
            for name, topic in image_topics.items():
                is_broken = place in drive.broken_pictures
                write(topic, log_ns, image_message(stamp_ns, step, name, drive, is_broken))
            log_ns += 1_000_000
    return path


@pytest.fixture(scope="module")
def planner() -> StreamingPlanner:
    return load_planner("nano", settings=PlannerSettings())


def replayed(path: Path, planner: StreamingPlanner) -> tuple[Replayed, list[Plan]]:
    plans: list[Plan] = []
    planner.reset()
    with open_bag(path) as bag:
        inputs = find_inputs(bag, [], messages.ODOMETRY_TOPIC, NANO)
        return replay_bag(bag, inputs, planner, lambda plan, line: plans.append(plan)), plans


def failure(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a replay that fails."""
    assert main(["replay", *map(str, words)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("flashdrive replay: ")
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.fixture(scope="module")
def two_samples(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Output folder and result of a replay with two samples a plan."""
    folder = tmp_path_factory.mktemp("replay")
    bag = write_drive(folder / "bag", Drive())
    words = ["--samples", "2", "--out", str(folder / "out"), "--json", str(folder / "result.json")]
    assert main(["replay", str(bag), *words]) == 0
    return folder / "out", json.loads((folder / "result.json").read_text(encoding="utf-8"))


def test_six_pictures_a_camera_are_six_windows_and_three_plans(two_samples: tuple[Path, dict[str, Any]]) -> None:
    _, result = two_samples
    assert (result["windows"], result["plans"]) == (6, 3)
    assert result["refusals"]["stream_filling"] == {"count": 3, "last": "stream: 3 of 4 frames"}
    assert result["cameras"] == list(RIG)
    assert result["messages"][messages.image_topic("front_tele")] == 6
    assert result["latency"]["total"]["n"] == 3
    assert result["damage"] == []


def test_plan_lines_hold_every_sample_in_both_frames(two_samples: tuple[Path, dict[str, Any]]) -> None:
    out, _ = two_samples
    lines = (out / "plans.jsonl").read_text(encoding="utf-8").splitlines()
    plans = [json.loads(line) for line in lines]
    assert [plan["plan_id"] for plan in plans] == [3, 4, 5]
    assert [plan["t0_ns"] - START_NS for plan in plans] == [3 * STEP_NS, 4 * STEP_NS, 5 * STEP_NS]
    for plan, driven_m in zip(plans, (1.5, 2.0, 2.5), strict=True):
        assert plan["odometry_frame"] == "map"
        assert len(plan["samples"]) == 2
        assert len(plan["reasoning"]["token_ids"]) <= 24
        for sample in plan["samples"]:
            in_base = np.array(sample["base_link"]["positions_m"])
            in_map = np.array(sample["odometry"]["positions_m"])
            assert in_base.shape == in_map.shape == (64, 3)
            assert np.isfinite(in_base).all()
            # The car looks along the map's y: forward is +y, left is -x.
            expected = np.stack([100.0 - in_base[:, 1], 200.0 + driven_m + in_base[:, 0], 3.0 + in_base[:, 2]], axis=-1)
            np.testing.assert_allclose(in_map, expected, atol=1e-9)
            assert np.linalg.norm(in_base[0] - [SPEED_MPS * 0.1, 0, 0]) < 0.3


def test_plan_file_has_no_timing_and_the_digest_is_that_of_its_bytes(two_samples: tuple[Path, dict[str, Any]]) -> None:
    out, result = two_samples
    content = (out / "plans.jsonl").read_bytes()
    assert hashlib.sha256(content).hexdigest() == result["plans_sha256"]
    assert b"_ms" not in content.replace(b"_mps", b"")


def test_output_bag_holds_the_node_s_topics_logged_at_t0(two_samples: tuple[Path, dict[str, Any]]) -> None:
    out, _ = two_samples
    plans = [json.loads(line) for line in (out / "plans.jsonl").read_text(encoding="utf-8").splitlines()]
    with open_bag(out / "outputs.mcap-bag") as bag:
        assert {name: topic.message_count for name, topic in bag.topics.items()} == {
            "/planning/trajectory": 3,
            "/planning/reasoning": 3,
            "/planning/candidates": 3,
            "/flashdrive_planner/output/trajectory_base_link": 3,
        }
        for message in bag.messages():
            decoded = bag.decode(message)
            plan = next(plan for plan in plans if plan["plan_id"] == decoded.plan_id)
            stamp_ns = decoded.header.stamp.sec * 10**9 + decoded.header.stamp.nanosec
            assert message.log_time_ns == stamp_ns == plan["t0_ns"]
            if message.topic == "/planning/reasoning":
                assert decoded.text == plan["reasoning"]["text"]
            if message.topic == "/planning/candidates":
                assert len(decoded.trajectories) == 2
            if message.topic == "/planning/trajectory":
                position = decoded.points[63].pose.position
                assert [position.x, position.y, position.z] == plan["samples"][0]["odometry"]["positions_m"][63]
                assert decoded.header.frame_id == "map"
            if message.topic == "/flashdrive_planner/output/trajectory_base_link":
                assert decoded.points[0].pose.position.x == plan["samples"][0]["base_link"]["positions_m"][0][0]
                assert decoded.header.frame_id == "base_link"


def test_existing_plans_are_not_overwritten(
    two_samples: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = two_samples
    before = (out / "plans.jsonl").read_bytes()
    bag = write_drive(tmp_path / "bag", Drive())
    assert f"{out / 'plans.jsonl'}: exists already" in failure([bag, "--samples", "2", "--out", out], capsys)
    assert (out / "plans.jsonl").read_bytes() == before


def test_raw_and_compressed_pictures_and_any_order_of_names_give_the_same_plans(
    tmp_path: Path, planner: StreamingPlanner
) -> None:
    compressed, plans = replayed(write_drive(tmp_path / "compressed", Drive()), planner)
    raw, _ = replayed(write_drive(tmp_path / "raw", Drive(raw=True)), planner)
    shuffled = Drive(cameras=("front_tele", "cross_right", "front_wide", "cross_left"))
    other_order, _ = replayed(write_drive(tmp_path / "shuffled", shuffled), planner)
    assert len(plans) == 3
    assert compressed.plans_sha256 == raw.plans_sha256 == other_order.plans_sha256


def test_route_of_the_bag_is_planned_with(tmp_path: Path, planner: StreamingPlanner) -> None:
    without, _ = replayed(write_drive(tmp_path / "without", Drive()), planner)
    with_route, plans = replayed(write_drive(tmp_path / "with", Drive(route="Turn left")), planner)
    assert len(plans) == 3
    assert with_route.plans_sha256 != without.plans_sha256
    too_long, _ = replayed(write_drive(tmp_path / "long", Drive(route="and then turn left " * 20)), planner)
    assert too_long.plans_sha256 != with_route.plans_sha256
    assert too_long.warnings["route_too_long"]["count"] == 3


def test_jump_back_in_time_restarts_the_stream_once(tmp_path: Path, planner: StreamingPlanner) -> None:
    twice = [*range(12), *range(12)]
    result, plans = replayed(write_drive(tmp_path / "loop", Drive(steps=twice)), planner)
    assert result.refusals["stream_filling"]["count"] == 2 * 3
    stamps = [(plan.t0_ns - START_NS) // STEP_NS for plan in plans]
    assert stamps == [*range(3, 12), *range(3, 12)]
    ids = [plan.plan_id for plan in plans]
    assert ids == sorted(set(ids))


def test_hole_in_the_pictures_restarts_the_stream_and_is_counted(tmp_path: Path, planner: StreamingPlanner) -> None:
    steps = [0, 1, 2, 3, 4, 10, 11, 12, 13]
    result, plans = replayed(write_drive(tmp_path / "hole", Drive(steps=steps)), planner)
    assert result.refusals["stream_gap"]["count"] == 1
    assert [(plan.t0_ns - START_NS) // STEP_NS for plan in plans] == [3, 4, 13]


def test_undecodable_pictures_are_counted_and_cost_their_own_windows_only(
    tmp_path: Path, planner: StreamingPlanner
) -> None:
    drive = Drive(steps=range(10), broken_pictures=(5,))
    result, plans = replayed(write_drive(tmp_path / "broken", drive), planner)
    assert result.refusals["image_undecodable"]["count"] == 4
    assert [(plan.t0_ns - START_NS) // STEP_NS for plan in plans] == [3, 4, 9]


def test_message_that_is_not_cdr_is_counted_and_the_rest_planned(tmp_path: Path, planner: StreamingPlanner) -> None:
    whole = write_drive(tmp_path / "whole", Drive())
    with (
        open_bag(whole) as source,
        create_bag(tmp_path / "bag", TOPICS) as write,
    ):
        for number, message in enumerate(source.messages()):
            is_first = number == 0
            write(message.topic, message.log_time_ns, message.data[:9] if is_first else message.data)
    result, plans = replayed(tmp_path / "bag", planner)
    assert result.refusals["intake_failed"]["count"] == 1
    assert len(plans) == 3


def test_readable_part_of_a_cut_bag_is_planned_and_its_extent_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = write_drive(tmp_path / "bag", Drive(steps=range(5)))
    content = (bag / "bag.mcap").read_bytes()
    (bag / "bag.mcap").write_bytes(content[: len(content) - 300])
    out, report = tmp_path / "out", tmp_path / "result.json"
    assert main(["replay", str(bag), "--out", str(out), "--json", str(report)]) == 1
    error = capsys.readouterr().err
    result = json.loads(report.read_text(encoding="utf-8"))
    assert "damaged" in result["damage"][0]
    assert result["damage"][0] in error
    assert result["plans"] == len((out / "plans.jsonl").read_bytes().splitlines()) > 0


def test_three_pictures_a_camera_are_refused_for_lack_of_a_fourth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = write_drive(tmp_path / "bag", Drive(steps=range(3)))
    assert failure([bag, "--out", tmp_path / "out"], capsys) == (
        f"flashdrive replay: {bag}: 3 frames per camera found, at least 4 needed, 0.1 s apart: "
        "no plan possible for lack of a fourth frame\n"
    )
    assert not (tmp_path / "out").exists()


def test_one_camera_with_too_few_pictures_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tele = messages.image_topic("front_tele")
    whole = write_drive(tmp_path / "whole", Drive())
    seen = 0
    with (
        open_bag(whole) as source,
        create_bag(tmp_path / "bag", TOPICS) as write,
    ):
        for message in source.messages():
            seen += message.topic == tele
            if message.topic != tele or seen <= 2:
                write(message.topic, message.log_time_ns, message.data)
    assert f"2 frames on {tele} found, at least 4 needed" in failure([tmp_path / "bag"], capsys)


@pytest.mark.parametrize("missing", RIG)
def test_missing_camera_topic_is_named(missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bag = write_drive(tmp_path / "bag", Drive(cameras=tuple(name for name in RIG if name != missing)))
    assert f"no topic /camera/{missing}/image/compressed or /camera/{missing}/image;" in failure([bag], capsys)
    assert f"no topic /camera/{missing}/image" in failure([bag, "--cameras", *RIG], capsys)


def test_missing_odometry_topic_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bag = write_drive(tmp_path / "bag", Drive())
    assert "no topic /vehicle/odometry; it has" in failure([bag, "--odometry-topic", "/vehicle/odometry"], capsys)


def test_topic_of_another_type_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bag = write_drive(tmp_path / "bag", Drive())
    tele = messages.image_topic("front_tele")
    line = failure([bag, "--odometry-topic", tele], capsys)
    assert f"topic {tele} is sensor_msgs/msg/CompressedImage, expected nav_msgs/msg/Odometry" in line


def test_empty_bag_and_empty_topic_are_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with create_bag(tmp_path / "nothing", {}):
        pass
    assert "it has none" in failure([tmp_path / "nothing"], capsys)
    with create_bag(tmp_path / "silent", TOPICS):
        pass
    assert "holds no message" in failure([tmp_path / "silent"], capsys)


def test_bag_whose_pictures_are_all_broken_has_no_usable_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = write_drive(tmp_path / "bag", Drive(broken_pictures=tuple(range(6))))
    line = failure([bag, "--out", tmp_path / "out"], capsys)
    assert "no usable message on /camera/cross_left/image/compressed" in line
    assert "image_undecodable 24" in line
    assert not (tmp_path / "out" / "plans.jsonl").exists()
    assert not (tmp_path / "out" / "outputs.mcap-bag").exists()


def test_odometry_too_short_for_any_plan_is_said_with_the_amounts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = write_drive(tmp_path / "bag", Drive(history_s=0.5))
    line = failure([bag], capsys)
    assert "no plan from 0 windows" in line
    assert "history_short 6" in line
    assert "1.5" in line


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--cameras", "front_wide", "rear_view"], "cameras: 'rear_view' is unknown"),
        (["--cameras", "front_wide", "front_wide"], "cameras: 'front_wide' is given twice"),
        (["--cameras", "front_wide"], "1 cameras found (front_wide), 4 expected by model nano"),
        (["--model", "no/such/model"], "no/such/model: model folder not found"),
        (["--samples", "0"], "samples: 0 found"),
        (["--threads", "0"], "threads: 0 found"),
        (["--seed", "-1"], "seed: -1 found"),
    ],
)
def test_wrong_option_is_one_line_that_names_it(
    words: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert named in failure([write_drive(tmp_path / "bag", Drive()), *words], capsys)


def test_more_cameras_than_the_model_has_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bag = write_drive(tmp_path / "bag", Drive(cameras=(*RIG, "rear_left")))
    line = failure([bag], capsys)
    listed = "cross_left, front_wide, cross_right, rear_left, front_tele"
    assert f"5 cameras found ({listed}), 4 expected by model nano; choose with --cameras" in line


def test_wrong_hash_in_a_copied_manifest_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = Path(shutil.copytree(model_folder("nano"), tmp_path / "mine"))
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["weights"]["sha256"] = "f" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest))
    bag = write_drive(tmp_path / "bag", Drive())
    assert f"{copy / 'weights.safetensors'}: SHA-256" in failure([bag, "--model", copy], capsys)


def test_bag_path_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{tmp_path / 'absent'}: no such bag folder or file" in failure([tmp_path / "absent"], capsys)


def test_output_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bag = write_drive(tmp_path / "bag", Drive())
    (tmp_path / "file").write_text("in the way")
    assert f"--out {tmp_path / 'file'}: cannot be written" in failure([bag, "--out", tmp_path / "file"], capsys)
