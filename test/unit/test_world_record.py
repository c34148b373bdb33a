"""Recorded drives of the world: read by the same intake as a car's recordings, the same bytes every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from flashdrive_ros.bags.read import open_bag  # noqa: E402
from flashdrive_ros.intake.messages import image_from_message, odometry_from_message  # noqa: E402
from flashdrive_ros.world.record import record  # noqa: E402
from flashdrive_ros.world.scene import make_scenes  # noqa: E402
from flashdrive_ros.world.simulation import simulate  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small arrays on a busy machine: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def bag_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("world") / "drive"
    record(path, seed=7, frames=6, jpeg_quality=95)
    return path


def test_bag_holds_every_camera_and_50_hz_odometry(bag_path: Path) -> None:
    with open_bag(bag_path) as bag:
        counts = Counter(message.topic for message in bag.messages())
        custom = dict(bag.custom_data)
    for camera in ("cross_left", "front_wide", "cross_right", "front_tele"):
        assert counts[f"/camera/{camera}/image/compressed"] == 6
    assert counts["/localization/kinematic_state"] == 31  # 6 * 5 and the one that ends the last step
    assert counts["/planning/route_text"] >= 1
    assert counts["/ground_truth/path"] == 1
    assert custom["flashdrive_world_seed"] == "7"


def test_recorded_messages_pass_the_intake_and_hold_the_drive(bag_path: Path) -> None:
    drive = simulate(make_scenes([7]), 8).ego[:, 0].double().numpy()
    with open_bag(bag_path) as bag:
        messages = [(message.topic, bag.decode(message)) for message in bag.messages()]
    samples = [
        odometry_from_message(m, "odometry") for topic, m in messages if topic == "/localization/kinematic_state"
    ]
    pictures = [image_from_message(m, "camera") for topic, m in messages if topic.startswith("/camera/")]
    assert {picture.shape for picture in pictures} == {(96, 160, 3)}
    assert np.allclose([sample.position_m[:2] for sample in samples[::5]], drive[:7, :2], atol=1e-4)
    # Half way between two steps is the middle of both (samples 2 and 3 of 5 lie 0.4 and 0.6 on the way).
    between = (samples[2].position_m[:2] + samples[3].position_m[:2]) / 2
    assert np.allclose(between, (drive[0, :2] + drive[1, :2]) / 2, atol=1e-4)


def test_recording_twice_gives_the_same_bytes(bag_path: Path, tmp_path: Path) -> None:
    record(tmp_path / "again", seed=7, frames=6, jpeg_quality=95)
    assert (tmp_path / "again" / "bag.mcap").read_bytes() == (bag_path / "bag.mcap").read_bytes()
