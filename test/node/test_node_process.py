"""The node as a process: bad parameters end it with one line, signals end it in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from node_helpers import wait_for

from flashdrive_ros.errors import ParameterError
from flashdrive_ros.ros.run import profile_file

REPOSITORY = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("fake_node_process.py")


def start(*words):
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{PROGRAM.parent}"}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("rate:=10", "parameter rate: there is no such parameter"),
        ("smaples:=2", "did you mean samples?"),
        ("cameras:=front_wide", "parameter cameras: 'front_wide' is not a list"),
        ("cameras:=[front_wide, front_wide]", "parameter cameras: front_wide is listed more than once"),
        ("input_timeout_s:=.nan", "parameter input_timeout_s: nan is not in 0.05 to 60"),
        ("input_timeout_s:=-1.0", "parameter input_timeout_s: -1.0 is not in 0.05 to 60"),
        ("samples:=2.0", "parameter samples: 2.0 is not a whole number"),
        ("image_transport:=theora", "parameter image_transport: 'theora' is not one of compressed, raw"),
    ],
)
def test_a_bad_parameter_ends_the_start_with_one_line_that_names_it(option, expected):
    process = start("--ros-args", "-p", option)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    lines = [line for line in errors.splitlines() if line.strip()]
    assert len(lines) == 1, errors
    assert expected in lines[0]


def test_an_unknown_name_in_a_parameter_file_is_refused_by_name(tmp_path):
    file = tmp_path / "profile.yaml"
    file.write_text("/**:\n  ros__parameters:\n    camera_tolerence_s: 0.05\n")
    process = start("--ros-args", "--params-file", str(file))
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "did you mean camera_tolerance_s?" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_active_node_within_two_seconds_and_without_traceback(number):
    process = start("--ros-args", "-p", "autostart:=true")
    line = wait_for(process.stderr.readline, "a log line")
    while "activate: done" not in line:
        line = wait_for(process.stderr.readline, "the node to be active")
    sent_s = time.monotonic()
    process.send_signal(number)
    output, errors = process.communicate(timeout=20)
    assert time.monotonic() - sent_s < 2.0
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert output.startswith("{'plans_published': 0")


def test_a_signal_during_a_long_load_ends_the_process_within_two_seconds():
    process = start("slow", "--ros-args", "-p", "autostart:=true", "--log-level", "debug")
    line = wait_for(process.stderr.readline, "a log line")
    while "configuring" not in line and "loading" not in line:
        line = wait_for(process.stderr.readline, "the start of configure")
    sent_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert time.monotonic() - sent_s < 2.5
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def test_a_profile_that_does_not_exist_is_named():
    with pytest.raises(ParameterError, match="--profile nanoo"):
        profile_file("nanoo")
