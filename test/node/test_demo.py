"""The demo's processes: what they are started with, what a failure says, and that none is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

from flashdrive_ros import demo
from flashdrive_ros.errors import BagError, FlashdriveError

REPOSITORY = Path(__file__).parents[2]


def arguments(*words):
    parser = ArgumentParser()
    demo.add_arguments(parser)
    return parser.parse_args(words)


@pytest.fixture
def children_left(monkeypatch, tmp_path):
    """Tells the command lines of the processes that were started by this test and still run."""
    monkeypatch.setenv("FLASHDRIVE_TEST", str(tmp_path))

    def command_lines():
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (folder / "environ").read_bytes().split(b"\0")
                if f"FLASHDRIVE_TEST={tmp_path}".encode() in environment:
                    found.append((folder / "cmdline").read_text())
        return found

    return command_lines


def test_a_child_forgets_the_libraries_of_the_wheels_of_another_environment_and_nothing_else():
    from_wheels = demo.child_environment({"_ROS_WHEELS_BOOTSTRAP_COMPLETE": "1", "LD_LIBRARY_PATH": "/a", "HOME": "/h"})
    assert "LD_LIBRARY_PATH" not in from_wheels
    assert "_ROS_WHEELS_BOOTSTRAP_COMPLETE" not in from_wheels
    assert from_wheels["HOME"] == "/h"
    from_ros = demo.child_environment({"LD_LIBRARY_PATH": "/opt/ros/jazzy/lib", "ROS_DOMAIN_ID": "7"})
    assert from_ros["LD_LIBRARY_PATH"] == "/opt/ros/jazzy/lib"
    assert from_ros["ROS_DOMAIN_ID"] == "7"
    assert from_ros["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"


def test_a_row_of_the_table_shortens_the_reasoning_and_shows_the_end_point():
    plan = {
        "t0_ns": 1_700_000_000_400_000_000,
        "latency_ms": 142.4,
        "planning_ms": 95.2,
        "end_x_m": 51.23,
        "end_y_m": -0.26,
        "reasoning": "Keep  the\nlane " + "x" * 100,
        "reasons": ["window_superseded"],
    }
    row = demo.table_row(plan, 1_700_000_000_000_000_000)
    assert row.split()[:6] == ["0.40", "142", "95", "(51.2,", "-0.3)", "Keep"]
    assert "Keep the lane xxx" in row
    assert "…  window_superseded" in row
    assert len(demo.table_row({**plan, "latency_ms": None}, 1_700_000_000_000_000_000)) == len(row)


def test_a_bag_that_does_not_exist_is_named_before_anything_is_started(tmp_path):
    with pytest.raises(BagError, match="nowhere"):
        demo.run(arguments("--bag", str(tmp_path / "nowhere"), "--output-dir", str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_a_node_that_ends_is_reported_with_its_log_and_no_process_is_left(tmp_path, capsys, children_left):
    with pytest.raises(FlashdriveError, match="the node ended with status 1"):
        demo.run(arguments("--profile", "nanoo", "--output-dir", str(tmp_path), "--timeout-s", "30"))
    assert "--profile nanoo" in capsys.readouterr().err
    assert children_left() == []


def test_a_node_that_cannot_load_its_model_ends_the_demo_at_once(tmp_path, children_left):
    profile = tmp_path / "profile.yaml"
    profile.write_text("/**:\n  ros__parameters:\n    model_path: /no/such/model\n")
    with pytest.raises(FlashdriveError, match=r"the node cannot start: .*/no/such/model"):
        demo.run(arguments("--profile", str(profile), "--output-dir", str(tmp_path), "--timeout-s", "30"))
    assert children_left() == []


def test_time_running_out_is_said_and_no_process_is_left(tmp_path, children_left):
    with pytest.raises(FlashdriveError, match=r"not finished after 0.2 s with 0 plans"):
        demo.run(arguments("--output-dir", str(tmp_path), "--timeout-s", "0.2"))
    assert children_left() == []


def test_termination_of_the_demo_ends_its_processes(tmp_path, children_left):
    process = subprocess.Popen(
        [sys.executable, "-m", "flashdrive_ros.cli", "demo", "--output-dir", str(tmp_path)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert "playing" in process.stdout.readline()
    assert len(children_left()) >= 3
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode != 0
    assert children_left() == []


@pytest.mark.slow
def test_the_demo_plans_the_shipped_recording_and_draws_it(tmp_path):
    result = demo.run(arguments("--output-dir", str(tmp_path)))
    assert result["plans"]
    assert all(plan["points"] == 64 for plan in result["plans"])
    assert Path(result["picture"]).stat().st_size > 50_000
    assert demo.summary(result).startswith(f"{len(result['plans'])} plans")
