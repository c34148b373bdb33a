"""`flashdrive`: one command line for everything; each sub-command is a module that is imported only when chosen.

A command module offers
    EXAMPLE: str                                    one or more lines shown by `--help`
    add_arguments(parser: ArgumentParser) -> None
    run(arguments: Namespace) -> dict               the result, as JSON types; raises FlashdriveError, or PartialResult
                                                    with a result when the input was damaged
    summary(result: dict) -> str                    the same for people, a few lines

Exit status: 0 done, 1 an expected failure (one line on standard error says which), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flashdrive_ros import __version__
from flashdrive_ros.errors import FlashdriveError, ParameterError, PartialResult

INTERRUPTED = 130


class Command(NamedTuple):
    """One sub-command: the module that implements it and its line in `flashdrive --help`."""

    module: str
    help: str


COMMANDS: Mapping[str, Command] = {
    "demo": Command("flashdrive_ros.demo", "drive the shipped recording through the node and draw the plan"),
    "run": Command("flashdrive_ros.ros.run", "start the lifecycle node where there is no `ros2 launch`"),
    "replay": Command("flashdrive_ros.evaluation.replay", "plan a bag in process, deterministically, without ROS"),
    "convert": Command("flashdrive_ros.bags.convert", "make a rosbag2 MCAP from a public data set"),
    "world": Command("flashdrive_ros.world.record", "record a drive through the procedural driving world"),
    "inspect": Command("flashdrive_ros.evaluation.inspect_model", "print a model's sizes, prompt and cache layout"),
    "bench": Command("flashdrive_ros.evaluation.bench", "measure the time of a plan, stage by stage"),
    "doctor": Command("flashdrive_ros.evaluation.doctor", "check a model folder without loading it"),
    "make-checkpoint": Command(
        "flashdrive_ros.training.make_checkpoint", "write a checkpoint folder of true names and random weights"
    ),
    "train": Command("flashdrive_ros.training.command", "train nano on the driving world (needs a GPU)"),
    "export": Command("flashdrive_ros.engines.export_command", "write a model's five stages as ONNX files"),
}


def main(argv: Sequence[str] | None = None, commands: Mapping[str, Command] = COMMANDS) -> int:
    """Run one command line (without the program name; default: this process's) and return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = top_level_parser(commands).parse_args(words[:1]).command
    try:
        module = importlib.import_module(commands[chosen].module)
        arguments = command_parser(chosen, commands[chosen], module).parse_args(words[1:])
        run_command(module, arguments)
    except FlashdriveError as error:
        print(f"flashdrive {chosen}: {one_line(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def top_level_parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """Parser of the first word only, so that no command's module is imported to choose among them."""
    width = max(len(name) for name in commands)
    table = "\n".join(f"  {name:<{width}}  {command.help}" for name, command in commands.items())
    parser = argparse.ArgumentParser(
        prog="flashdrive",
        description="A streaming planner for reasoning driving models.",
        epilog=f"commands:\n{table}\n\n`flashdrive COMMAND --help` shows the options of a command and an example.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"flashdrive_ros {__version__}")
    parser.add_argument("command", choices=tuple(commands), metavar="COMMAND")
    return parser


def command_parser(name: str, command: Command, module: Any) -> argparse.ArgumentParser:
    """Parser of the words after the command name: the module's own options and `--json`."""
    parser = argparse.ArgumentParser(
        prog=f"flashdrive {name}",
        description=f"{command.help[0].upper()}{command.help[1:]}.",
        epilog=f"example:\n  {module.EXAMPLE.strip()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write the result as JSON; '-' is standard output, where nothing else is printed then",
    )
    return parser


def run_command(module: Any, arguments: argparse.Namespace) -> None:
    """Run the chosen command and give out its result: as JSON where `--json` says, otherwise as a summary.

    A partial result is given out as well, before its PartialResult is raised.
    """
    stdout = sys.stdout if arguments.json is None else sys.stderr
    partial: PartialResult | None = None
    try:
        with contextlib.redirect_stdout(stdout):
            result = module.run(arguments)
    except PartialResult as error:
        partial, result = error, error.result
    give_out(module, result, arguments.json)
    if partial is not None:
        raise partial


def give_out(module: Any, result: dict[str, Any], json_file: str | None) -> None:
    """Print the summary, or write the JSON text; a named file gets it, and the summary is printed as well."""
    text = json.dumps(result, indent=2) + "\n"
    if json_file == "-":
        sys.stdout.write(text)
        return
    if json_file is not None:
        try:
            Path(json_file).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ParameterError(f"--json {json_file}: cannot be written: {error.strerror}") from error
    print(module.summary(result))


def one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
