"""The `flashdrive` command line: lazy, honest exit codes, JSON that can be piped."""

from __future__ import annotations

import argparse
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from flashdrive_ros import cli
from flashdrive_ros.errors import BagError, PartialResult


def command_module(name: str, monkeypatch: pytest.MonkeyPatch, run: Any) -> cli.Command:
    """A command whose one option is `--speed`, importable only for this test."""
    module = types.ModuleType(name)
    module.EXAMPLE = "flashdrive measure --speed 3"  # type: ignore[attr-defined]
    module.add_arguments = lambda parser: parser.add_argument("--speed", type=int, default=1)  # type: ignore[attr-defined]
    module.run = run  # type: ignore[attr-defined]
    module.summary = lambda result: f"speed is {result['speed']}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    return cli.Command(name, "measure something")


def noisy_run(arguments: argparse.Namespace) -> dict[str, Any]:
    print("progress 50 %")
    return {"speed": arguments.speed}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> dict[str, cli.Command]:
    return {
        "measure": command_module("a_measure_command", monkeypatch, noisy_run),
        "broken": cli.Command("a_module_that_cannot_be_imported", "never imported unless chosen"),
    }


def test_result_is_summed_up_for_people(commands: dict[str, cli.Command], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["measure", "--speed", "3"], commands) == 0
    assert capsys.readouterr().out == "progress 50 %\nspeed is 3\n"


def test_json_on_standard_output_is_alone_there(
    commands: dict[str, cli.Command], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["measure", "--speed", "3", "--json", "-"], commands) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"speed": 3}
    assert printed.err == "progress 50 %\n"


def test_json_goes_to_the_named_file(
    commands: dict[str, cli.Command], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["measure", "--json", str(tmp_path / "result.json")], commands) == 0
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8")) == {"speed": 1}
    assert capsys.readouterr().out == "speed is 1\n"


def test_json_file_that_cannot_be_written_is_one_line(
    commands: dict[str, cli.Command], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "absent" / "result.json"
    assert cli.main(["measure", "--json", str(missing)], commands) == 1
    assert str(missing) in capsys.readouterr().err.splitlines()[-1]


def test_expected_failure_is_one_line_and_status_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: argparse.Namespace) -> dict[str, Any]:
        raise BagError("drive.mcap:\n  no message on /camera/front")

    commands = {"measure": command_module("a_failing_command", monkeypatch, fail)}
    assert cli.main(["measure", "--json", "-"], commands) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "flashdrive measure: drive.mcap: no message on /camera/front\n"


def test_interruption_is_status_130_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(arguments: argparse.Namespace) -> dict[str, Any]:
        raise KeyboardInterrupt

    commands = {"measure": command_module("an_interrupted_command", monkeypatch, interrupted)}
    assert cli.main(["measure"], commands) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "words", [[], ["mesure"], ["measure", "--sped", "3"], ["measure", "--speed", "fast"], ["measure", "extra"]]
)
def test_wrong_usage_is_status_two(words: list[str], commands: dict[str, cli.Command]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(words, commands)
    assert stopped.value.code == 2


def test_abbreviated_option_is_not_guessed(commands: dict[str, cli.Command]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["measure", "--js", "-"], commands)
    assert stopped.value.code == 2


def test_help_names_every_command_and_imports_none(
    commands: dict[str, cli.Command], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"], commands)
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert "measure something" in printed
    assert "never imported unless chosen" in printed


def test_help_of_a_command_shows_its_options_and_an_example(
    commands: dict[str, cli.Command], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["measure", "--help"], commands)
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert "--speed" in printed
    assert "flashdrive measure --speed 3" in printed


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_real_command_offers_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0
    assert f"flashdrive {name}" in capsys.readouterr().out.split("example:")[1]


def test_partial_result_is_given_out_before_its_line_and_status_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def run_on_half_a_bag(arguments: argparse.Namespace) -> dict[str, Any]:
        raise PartialResult("drive.mcap: damaged, the rest is lost", {"speed": 2})

    commands = {"measure": command_module("a_command_on_a_damaged_bag", monkeypatch, run_on_half_a_bag)}
    line = "flashdrive measure: drive.mcap: damaged, the rest is lost\n"
    assert cli.main(["measure"], commands) == 1
    assert capsys.readouterr() == ("speed is 2\n", line)
    assert cli.main(["measure", "--json", str(tmp_path / "result.json")], commands) == 1
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8")) == {"speed": 2}
    assert capsys.readouterr().err == line
    assert cli.main(["measure", "--json", "-"], commands) == 1
    assert json.loads(capsys.readouterr().out) == {"speed": 2}
