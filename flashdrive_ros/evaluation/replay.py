"""`flashdrive replay`: a bag through intake and planner in one process, without ROS.

Every window is planned, in the bag's order: the same bag, model and options give the same plans to the last bit.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashdrive_ros.bags.read import Bag, BagMessage, open_bag
from flashdrive_ros.cameras import CAMERAS
from flashdrive_ros.engines.load import describe_model
from flashdrive_ros.errors import BagError, PartialResult
from flashdrive_ros.evaluation.bag_inputs import BagInputs, find_inputs
from flashdrive_ros.evaluation.durations import durations_line, stage_durations
from flashdrive_ros.evaluation.plan_files import WritePlan, plan_files, plan_line
from flashdrive_ros.evaluation.reason_table import ReasonTable, count_reason, reasons_line
from flashdrive_ros.intake.messages import image_from_message, odometry_from_message, stamp_ns
from flashdrive_ros.intake.settings import IntakeSettings
from flashdrive_ros.intake.window_builder import Intake
from flashdrive_ros.plan import Plan, StageTiming
from flashdrive_ros.planner import PlannerSettings, StreamingPlanner, check_settings, load_planner
from flashdrive_ros.reasons import InputRefused, Reason, Refusal
from flashdrive_ros.ros.topics import ODOMETRY
from flashdrive_ros.window import PlanningWindow

EXAMPLE = "flashdrive replay resource/bags/demo --out out/demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    defaults = PlannerSettings()
    parser.add_argument("bag", type=Path, help="rosbag2 folder, or a bare .mcap or .db3 file")
    parser.add_argument("--model", default="nano", help="nano (shipped), or the folder of an exported model")
    parser.add_argument(
        "--cameras",
        nargs="+",
        default=[],
        metavar="NAME",
        help="cameras to plan with, by name; default: those that the bag has topics of",
    )
    parser.add_argument("--odometry-topic", default=ODOMETRY.public, help=f"nav_msgs/Odometry ({ODOMETRY.public})")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for plans.jsonl and outputs.mcap-bag")
    parser.add_argument("--seed", type=int, default=defaults.seed, help=f"of all randomness ({defaults.seed})")
    parser.add_argument(
        "--samples", type=int, default=defaults.samples, help=f"trajectories per plan ({defaults.samples})"
    )
    parser.add_argument("--threads", type=int, default=defaults.threads, help=f"CPU threads ({defaults.threads})")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Replay the bag and describe what came of it.

    Raises BagError when the bag cannot give a plan or gave none, ModelFileError, ParameterError; PartialResult after a
    damaged bag gave plans.
    """
    config = describe_model(arguments.model).config
    with open_bag(arguments.bag) as bag:
        inputs = find_inputs(bag, arguments.cameras, arguments.odometry_topic, config)
        settings = PlannerSettings(inputs.cameras, arguments.samples, arguments.seed, arguments.threads)
        check_settings(settings, config)
        with plan_files(arguments.out) as write_plan:
            planner = load_planner(arguments.model, settings=settings)
            planner.warm_up()
            replayed = replay_bag(bag, inputs, planner, write_plan)
            if not replayed.timings:
                raise BagError(f"{bag.path}: {_why_no_plan(replayed)}")
        notes = list(bag.notes)
    result = {
        "bag": str(arguments.bag),
        "model": config.name,
        "weights_origin": planner.weights_origin,
        "cameras": [CAMERAS[camera].name for camera in inputs.cameras],
        "samples": settings.samples,
        "seed": settings.seed,
        "threads": settings.threads,
        "messages": dict(sorted(replayed.messages.items())),
        "windows": replayed.windows,
        "plans": len(replayed.timings),
        "refusals": replayed.refusals,
        "warnings": replayed.warnings,
        "plans_sha256": replayed.plans_sha256,
        "latency": stage_durations(replayed.timings),
        "out": None if arguments.out is None else str(arguments.out),
        "notes": notes,
        "damage": replayed.damage,
    }
    if replayed.damage:
        raise PartialResult("; ".join(replayed.damage), result)
    return result


def summary(result: dict[str, Any]) -> str:
    """What came of the replay, in a few lines."""
    text = (
        f"{result['bag']}: {sum(result['messages'].values())} messages of {', '.join(result['cameras'])} and odometry, "
        f"{result['windows']} windows, {result['plans']} plans\n"
        f"model {result['model']}: weights {result['weights_origin']}\n"
        f"refused: {reasons_line(result['refusals'])}\n"
        f"warnings: {reasons_line(result['warnings'])}\n"
        f"{durations_line(result['latency'])}\n"
        f"SHA-256 of the plans: {result['plans_sha256']}"
    )
    written = [] if result["out"] is None else [f"written to {result['out']}"]
    return "\n".join([text, *result["notes"], *written])


@dataclass
class Replayed:
    """What happened so far."""

    messages: Counter[str] = field(default_factory=Counter)
    """Messages read, by topic."""
    accepted: Counter[str] = field(default_factory=Counter)
    """Messages that the intake took, by topic."""
    windows: int = 0
    refusals: ReasonTable = field(default_factory=dict)
    warnings: ReasonTable = field(default_factory=dict)
    timings: list[StageTiming] = field(default_factory=list)
    """One per plan."""
    damage: list[str] = field(default_factory=list)
    plans_sha256: str = ""
    """Over the bytes of plans.jsonl."""


def replay_bag(bag: Bag, inputs: BagInputs, planner: StreamingPlanner, write_plan: WritePlan) -> Replayed:
    """Feed every message in the bag's order and plan every window as soon as it is complete."""
    replayed = Replayed(damage=list(bag.damage))
    prompt = planner.config.prompt
    intake = Intake(
        IntakeSettings(cameras=inputs.cameras, stride_s=prompt.stride_s, history_steps=prompt.history_steps)
    )
    digest = hashlib.sha256()
    for message in _readable(bag, inputs.topics, replayed.damage):
        replayed.messages[message.topic] += 1
        refusal = _take(bag, inputs, intake, message)
        if refusal is None:
            replayed.accepted[message.topic] += 1
        else:
            count_reason(replayed.refusals, refusal)
        for outcome in intake.poll():
            plan = _plan(planner, outcome, replayed)
            if plan is not None:
                line = plan_line(plan)
                digest.update(line)
                write_plan(plan, line)
    replayed.plans_sha256 = digest.hexdigest()
    return replayed


def _readable(bag: Bag, topics: list[str], damage: list[str]) -> Iterator[BagMessage]:
    """The messages up to the first that cannot be read, which is noted in `damage`."""
    try:
        yield from bag.messages(topics)
    except BagError as error:
        damage.append(str(error))


def _take(bag: Bag, inputs: BagInputs, intake: Intake, message: BagMessage) -> Refusal | None:
    """Hand one message to the intake; why it was not used, or None."""
    topic = message.topic
    try:
        decoded = bag.decode(message)
        if topic in inputs.image_topics:
            pixels = image_from_message(decoded, topic)
            return intake.add_image(inputs.image_topics[topic], stamp_ns(decoded.header), pixels)
        if topic == inputs.odometry_topic:
            return intake.add_odometry(odometry_from_message(decoded, topic))
        return intake.set_route(decoded.data)
    except InputRefused as refused:
        return refused.refusal
    except BagError as error:
        return Refusal(Reason.INTAKE_FAILED, topic, str(error))


def _plan(planner: StreamingPlanner, outcome: PlanningWindow | Refusal, replayed: Replayed) -> Plan | None:
    """Plan a window, or count why there is no plan."""
    if isinstance(outcome, Refusal):
        count_reason(replayed.refusals, outcome)
        if outcome.reason is Reason.STAMP_BACKWARD:
            planner.reset()
        return None
    replayed.windows += 1
    planned = planner.plan(outcome)
    if planner.last_reset_reason is not None:
        count_reason(replayed.refusals, planner.last_reset_reason)
    if isinstance(planned, Refusal):
        count_reason(replayed.refusals, planned)
        return None
    replayed.timings.append(planned.timing)
    for warning in planned.warnings:
        count_reason(replayed.warnings, warning)
    return planned


def _why_no_plan(replayed: Replayed) -> str:
    unusable = [topic for topic in replayed.messages if replayed.accepted[topic] == 0]
    found = f"no usable message on {', '.join(unusable)}" if unusable else f"no plan from {replayed.windows} windows"
    return "; ".join([found, f"refused: {reasons_line(replayed.refusals)}", *replayed.damage])
