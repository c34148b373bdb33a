"""`flashdrive bench pipeline`: the time of a plan, stage by stage, on windows that are never twice the same."""

from __future__ import annotations

import argparse
import re
import time
from typing import Any

import numpy as np

from flashdrive_ros.errors import FlashdriveError, ParameterError
from flashdrive_ros.evaluation.durations import durations, durations_line, stage_durations
from flashdrive_ros.evaluation.machine import commit, machine, resident_memory_mb, versions
from flashdrive_ros.evaluation.made_windows import made_windows
from flashdrive_ros.evaluation.reason_table import ReasonTable, count_reason, reasons_line
from flashdrive_ros.plan import Plan, StageTiming
from flashdrive_ros.planner import PlannerSettings, load_planner

EXAMPLE = "flashdrive bench pipeline --model nano --windows 100 --json -"
WARM_UP_WINDOWS = 5
"""Windows planned before those that are measured, after the stream has filled."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    defaults = PlannerSettings()
    parser.add_argument("part", choices=("pipeline",), help="pipeline: everything between a window and its plan")
    parser.add_argument("--model", default="nano", help="nano (shipped), or the folder of an exported model")
    parser.add_argument("--windows", type=int, default=100, help="windows to measure (100)")
    parser.add_argument(
        "--picture-size",
        type=picture_size,
        default=(640, 360),
        metavar="WIDTHxHEIGHT",
        help="pixels of each camera's decoded picture (640x360)",
    )
    parser.add_argument("--seed", type=int, default=defaults.seed, help=f"of pictures and sampling ({defaults.seed})")
    parser.add_argument(
        "--samples", type=int, default=defaults.samples, help=f"trajectories per plan ({defaults.samples})"
    )
    parser.add_argument("--threads", type=int, default=defaults.threads, help=f"CPU threads ({defaults.threads})")


def picture_size(text: str) -> tuple[int, int]:
    """Width and height of a text like 640x360."""
    found = re.fullmatch(r"(\d{2,4})x(\d{2,4})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' found, WIDTHxHEIGHT of 10 to 9999 pixels expected")
    return int(found[1]), int(found[2])


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Plan the windows one after the other and measure. Raises ParameterError, ModelFileError or FlashdriveError."""
    if arguments.windows < 1:
        raise ParameterError(f"--windows {arguments.windows}: expected at least 1")
    on_machine = machine()  # before we load it ourselves
    settings = PlannerSettings(samples=arguments.samples, seed=arguments.seed, threads=arguments.threads)
    planner = load_planner(arguments.model, settings=settings)
    planner.warm_up()
    windows = made_windows(planner.config.prompt, arguments.picture_size, arguments.seed)
    for _ in range(planner.config.prompt.frames - 1 + WARM_UP_WINDOWS):
        planner.plan(next(windows))
    calls_ms: list[float] = []
    timings: list[StageTiming] = []
    refusals: ReasonTable = {}
    for _ in range(arguments.windows):
        window = next(windows)
        start_s = time.perf_counter()
        planned = planner.plan(window)
        calls_ms.append((time.perf_counter() - start_s) * 1e3)
        if isinstance(planned, Plan):
            timings.append(planned.timing)
        else:
            count_reason(refusals, planned)
    if not timings:
        raise FlashdriveError(f"no plan from {arguments.windows} windows: {reasons_line(refusals)}")
    return {
        "benchmark": arguments.part,
        "model": planner.config.name,
        "weights_origin": planner.weights_origin,
        "backend": planner.backend,
        "windows": arguments.windows,
        "plans": len(timings),
        "samples": settings.samples,
        "threads": settings.threads,
        "seed": settings.seed,
        "cameras": len(planner.config.prompt.cameras),
        "picture_size": list(arguments.picture_size),
        "stages": stage_durations(timings),
        "call": durations(calls_ms),
        "verify_passes": float(np.median([timing.verify_passes for timing in timings])),
        "refusals": refusals,
        "resident_memory_mb": resident_memory_mb(),
        "machine": on_machine,
        "versions": versions(),
        "commit": commit(),
    }


def summary(result: dict[str, Any]) -> str:
    """The numbers that matter, in a few lines."""
    memory, computer = result["resident_memory_mb"], result["machine"]
    return (
        f"{result['model']} on {result['backend']}, {result['threads']} threads, {result['samples']} samples, "
        f"{result['cameras']} cameras of {result['picture_size'][0]}x{result['picture_size'][1]}: "
        f"{result['plans']} plans from {result['windows']} windows (refused: {reasons_line(result['refusals'])})\n"
        f"{durations_line(result['stages'])}\n"
        f"{result['verify_passes']:g} verify passes (median), "
        f"{memory['now']:.0f} MB resident, {memory['peak']:.0f} MB at most\n"
        f"{computer['cpu']}, {computer['cores']} cores, load average {computer['load_average_1_min']} at the start; "
        f"commit {result['commit']}"
    )
