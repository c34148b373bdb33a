"""`flashdrive demo`: node, bag player and subscriber as three processes over DDS, and a picture of the last plan.

This process only starts the others and ends them, whatever happens; it imports nothing of ROS.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import IO, Any

from flashdrive_ros.errors import BagError, FlashdriveError, ParameterError
from flashdrive_ros.resources import resource_path

EXAMPLE = "flashdrive demo --output-dir demo"
END_TIMEOUT_S = 3.0
"""A child that was asked to end has this long before it is killed."""
SLOWER = 3.0
"""A machine too slow for a single plan gets the recording once more, this much slower."""
LAST_LOG_LINES = 15
TEXT_WIDTH = 48
HEADER = (
    f"{'t0 [s]':>8}  {'latency [ms]':>12}  {'planning [ms]':>13}  {'end point [m]':>16}  "
    f"{'reasoning':<{TEXT_WIDTH}}  reasons"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `flashdrive demo`."""
    parser.add_argument("--bag", type=Path, help="bag to play (default: the recording of the package)")
    parser.add_argument("--output-dir", type=Path, default=Path("demo"), help="for plan.png and logs (%(default)s)")
    parser.add_argument("--profile", default="nano", help="parameters of the node (%(default)s)")
    parser.add_argument("--rate", type=float, default=1.0, help="speed of the recording, below 1 for a slow machine")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="end without success after this (%(default)s)")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Play the bag through the node and print a table of its plans.

    Raises BagError for a bag that is not there, FlashdriveError when a process fails, time runs out or no plan came.
    """
    for option, value in (("--timeout-s", arguments.timeout_s), ("--rate", arguments.rate)):
        if not 0 < value < float("inf"):
            raise ParameterError(f"{option} {value}: expected a positive number")
    bag = arguments.bag if arguments.bag is not None else resource_path("resource/bags/demo")
    if not bag.exists():
        raise BagError(f"{bag}: there is no such bag")
    folder: Path = arguments.output_dir
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "plan.png"
    picture.unlink(missing_ok=True)
    deadline_s = time.monotonic() + arguments.timeout_s
    plans: list[dict[str, Any]] = []
    for rate in (arguments.rate, arguments.rate / SLOWER):
        with contextlib.ExitStack() as children, _terminate_as_interrupt():
            plans, done = _play(arguments, bag, picture, children, rate, deadline_s)
        if plans:
            break
        print(f"no plan at {rate:g} times the recorded speed; reasons: {_counts(done['reasons'])}", flush=True)
    if not plans:
        raise FlashdriveError(f"no plan was published; reasons: {_counts(done['reasons'])} (logs: {folder}/*.log)")
    latencies = [plan["latency_ms"] for plan in plans if plan["latency_ms"] is not None]
    return {
        "plans": plans,
        "reasons": done["reasons"],
        "median_latency_ms": median(latencies) if latencies else None,
        "picture": str(picture) if done["drawn"] else None,
    }


def summary(result: dict[str, Any]) -> str:
    """What came out, in a few lines; the table was printed while the plans came."""
    latency = result["median_latency_ms"]
    lines = [
        f"{len(result['plans'])} plans"
        + (f", median latency {latency:.0f} ms from newest image to received plan" if latency is not None else ""),
        f"reasons: {_counts(result['reasons'])}",
    ]
    if result["picture"] is not None:
        lines.append(f"picture of the last plan: {result['picture']}")
    return "\n".join(lines)


def _play(
    arguments: argparse.Namespace,
    bag: Path,
    picture: Path,
    children: contextlib.ExitStack,
    rate: float,
    deadline_s: float,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Plan events and the done event of the subscriber for one run of the recording."""
    folder = picture.parent
    node_log, player_log, subscriber_log = (folder / f"{name}.log" for name in ("node", "bag_player", "subscriber"))
    node = children.enter_context(_child(["flashdrive_ros.cli", "run", "--profile", arguments.profile], node_log))
    subscriber = children.enter_context(
        _child(["flashdrive_ros.ros.demo_subscriber", str(picture)], subscriber_log, stdout=subprocess.PIPE)
    )
    player: subprocess.Popen[str] | None = None
    assert subscriber.stdout is not None
    events = _lines(subscriber.stdout)
    plans: list[dict[str, Any]] = []
    while True:
        try:
            line = events.get(timeout=0.2)
        except queue.Empty:
            if time.monotonic() > deadline_s:
                raise FlashdriveError(
                    f"not finished after {arguments.timeout_s:g} s with {len(plans)} plans "
                    f"(the bag was {'not yet ' if player is None else ''}being played); logs: {folder}/*.log"
                ) from None
            _check_alive(node, "the node", node_log)
            if player is not None and player.poll() not in (None, 0):
                raise FlashdriveError(_failure("the bag player", player, player_log)) from None
            continue
        if line is None:
            raise FlashdriveError(_failure("the subscriber", subscriber, subscriber_log))
        event = json.loads(line)
        if event["event"] == "ready":
            # Two subscribers a topic, the node and ours: a player that knows only ours starts too early for the node.
            words = ["flashdrive_ros.ros.bag_player", str(bag), "--subscribers", "2", "--rate", str(rate)]
            player = children.enter_context(_child(words, player_log))
            print(f"playing {bag}\n{HEADER}", flush=True)
        elif event["event"] == "plan":
            plans.append(event)
            print(table_row(event, plans[0]["t0_ns"]), flush=True)
        elif event["event"] == "failed":
            raise FlashdriveError(f"the node cannot start: {event['detail']}; its log is {node_log}")
        else:
            subscriber.wait()
            return plans, event


def table_row(plan: dict[str, Any], first_t0_ns: int) -> str:
    """One plan as a line below `HEADER`; t0 counts from the first plan's."""
    text = " ".join(plan["reasoning"].split())
    text = text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…"
    latency = "-" if plan["latency_ms"] is None else f"{plan['latency_ms']:.0f}"
    end_point = f"({plan['end_x_m']:.1f}, {plan['end_y_m']:.1f})"
    return (
        f"{(plan['t0_ns'] - first_t0_ns) / 1e9:8.2f}  {latency:>12}  {plan['planning_ms']:13.0f}  {end_point:>16}  "
        f"{text:<{TEXT_WIDTH}}  {', '.join(plan['reasons'])}"
    ).rstrip()


@contextlib.contextmanager
def _child(words: list[str], log: Path, stdout: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A Python module as a process in a group of its own, which is ended on the way out."""
    with log.open("w") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.DEVNULL,
            stdout=log_file if stdout is None else stdout,
            stderr=log_file,
            text=True,
            env=child_environment(dict(os.environ)),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    for number, patience_s in ((signal.SIGINT, END_TIMEOUT_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return


def child_environment(environment: dict[str, str]) -> dict[str, str]:
    """`environment` for a ROS process of this Python: this package importable, discovery within the machine."""
    child = dict(environment)
    if child.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None) is not None:
        # Set by the ROS wheels of the Python that started us: another environment's libraries would not fit.
        child.pop("LD_LIBRARY_PATH", None)
    package_root = str(Path(__file__).resolve().parents[1])
    child["PYTHONPATH"] = os.pathsep.join([package_root, *filter(None, [child.get("PYTHONPATH")])])
    child.setdefault("AMENT_PREFIX_PATH", sys.prefix)
    child.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    # A domain of its own: another car, or another demo, on this machine must not take part.
    child.setdefault("ROS_DOMAIN_ID", str(os.getpid() % 100 + 1))
    return child


def _lines(stream: IO[str]) -> queue.Queue[str | None]:
    """A queue that gets every line of `stream` and None at its end."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _check_alive(process: subprocess.Popen[str], name: str, log: Path) -> None:
    if process.poll() is not None:
        raise FlashdriveError(_failure(name, process, log))


def _failure(name: str, process: subprocess.Popen[str], log: Path) -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_TIMEOUT_S)
    lines = log.read_text(errors="replace").splitlines()
    print("\n".join(lines[-LAST_LOG_LINES:]), file=sys.stderr)
    return f"{name} ended with status {process.returncode}; its last lines are above, all of them in {log}"


def _counts(reasons: dict[str, int]) -> str:
    return ", ".join(f"{code} {count}" for code, count in sorted(reasons.items())) or "none"


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt too, so that the children are ended."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
