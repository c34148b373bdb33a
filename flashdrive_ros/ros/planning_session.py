"""Everything between a received message and a plan to publish, from configure to cleanup: intake, planner, counts.

The node calls it from its callbacks; it knows no rclpy. Three threads meet here: the executor's intake thread
(`take_*`), the planning thread (`_on_*`) and a lifecycle transition's (`load`, `activate`, `deactivate`, `close`).
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from flashdrive_ros.cameras import Camera
from flashdrive_ros.errors import FlashdriveError
from flashdrive_ros.intake.messages import image_from_message, odometry_from_message, stamp_ns
from flashdrive_ros.intake.settings import IntakeSettings
from flashdrive_ros.intake.window_builder import Intake
from flashdrive_ros.plan import Plan
from flashdrive_ros.reasons import InputRefused, Reason, Refusal
from flashdrive_ros.ros.activity import ActiveFacts
from flashdrive_ros.ros.input_watch import InputWatch, SilentInput
from flashdrive_ros.ros.parameters import NodeParameters
from flashdrive_ros.ros.planning_thread import Planner, PlanningResult, PlanningThread
from flashdrive_ros.ros.reason_log import ReasonLog
from flashdrive_ros.window import PlanningWindow

PlannerFactory = Callable[[NodeParameters], Planner]
NOT_A_HOLD = {Reason.STAMP_REPEATED, Reason.ROUTE_TOO_LONG, Reason.STAMP_BACKWARD}
"""Reasons that come from the intake without costing a window."""


class Log(Protocol):
    """The part of a logger that is used here."""

    def info(self, message: str) -> Any: ...
    def warning(self, message: str) -> Any: ...
    def error(self, message: str) -> Any: ...
    def debug(self, message: str) -> Any: ...


@dataclass(frozen=True)
class SessionNumbers:
    """Numbers of ~/status."""

    window_id: int
    plans_published: int
    newest_t0_ns: int | None
    """t0 of the newest published plan."""
    newest_latency_ms: float
    """From complete window to published plan; NaN before the first."""


class PlanningSession:
    """One configured planner with its intake. Takes messages and plans only between `activate` and `deactivate`."""

    def __init__(
        self, parameters: NodeParameters, planner_factory: PlannerFactory, publish: Callable[[Plan], None], log: Log
    ) -> None:
        self.parameters = parameters
        self.reasons = ReasonLog(log.warning, time.monotonic)
        self._publish = publish
        self._log = log
        self._watch = InputWatch((*parameters.cameras, "odometry"), parameters.input_timeout_s)
        self._silent_names: set[str] = set()
        self._intake: Intake | None = None
        self._intake_lock = threading.Lock()
        self._is_active = False
        self._newest_t0_ns: int | None = None
        self._published_s: float | None = None
        self._held_back: Refusal | None = None
        self._thread = PlanningThread(
            lambda: planner_factory(parameters), self._on_result, self.reasons.record, self._on_failure
        )
        self._forget_results()

    @property
    def backend(self) -> str:
        """Name of the engine backend; empty before loading."""
        return self._thread.backend

    def load(self, is_cancelled: Callable[[], bool]) -> None:
        """Load and warm up the planner in the planning thread and wait for it. Raises what loading raises."""
        self._thread.start()
        while not self._thread.wait_until_loaded(0.05):
            if is_cancelled():
                raise FlashdriveError("cancelled while the planner was being loaded")
        if self._thread.load_error is not None:
            raise self._thread.load_error
        prompt = self._thread.planner_config.prompt
        self._intake = Intake(
            IntakeSettings(
                cameras=self.parameters.camera_indices,
                stride_s=prompt.stride_s,
                tolerance_s=self.parameters.camera_tolerance_s,
                history_steps=prompt.history_steps,
            )
        )

    def activate(self) -> None:
        """Start with empty windows, counts and stream."""
        self.reasons.clear()
        self._watch.clear()
        self._silent_names = set()
        self._forget_results()
        with self._intake_lock:
            self._is_active = True

    def deactivate(self) -> None:
        """Take in nothing more; no plan is published after the return."""
        with self._intake_lock:
            self._is_active = False
            if self._intake is not None:
                self._intake.reset()
            self._thread.restart_stream()

    def close(self, timeout_s: float) -> bool:
        """Deactivate, end the planning thread and free the planner; False when it is still busy after the time-out."""
        self.deactivate()
        has_ended = self._thread.stop(timeout_s)
        if not has_ended and timeout_s > 0:
            self._log.error(f"the planner is still busy after {timeout_s:g} s; its thread is left behind")
        return has_ended

    def take_image(self, camera: Camera, topic: str, message: Any) -> None:
        """Decode and store one image message, then hand over every window that it completes."""

        def add(intake: Intake) -> Refusal | None:
            pixels = image_from_message(message, topic)
            self._watch.arrived(camera.name, time.monotonic())
            return intake.add_image(camera.index, stamp_ns(message.header), pixels)

        self._take(topic, add)

    def take_odometry(self, topic: str, message: Any) -> None:
        """Store one odometry message, then hand over every window that it completes."""

        def add(intake: Intake) -> Refusal | None:
            sample = odometry_from_message(message, topic)
            self._watch.arrived("odometry", time.monotonic())
            return intake.add_odometry(sample)

        self._take(topic, add)

    def take_route(self, topic: str, message: Any) -> None:
        """Store the route text of the coming windows; it is latched, so it counts while inactive too."""
        with self._intake_lock:
            if self._intake is not None:
                self._take_counted(topic, lambda intake: intake.set_route(message.data), self._intake)

    def check_inputs(self) -> list[SilentInput]:
        """Count inputs that have gone silent since the last call, log those that are back; returns the silent ones."""
        silent = self._watch.silent(time.monotonic())
        for entry in silent:
            if entry.name not in self._silent_names:
                self.reasons.record(
                    Refusal(
                        Reason.INPUT_STALE,
                        entry.name,
                        f"silent for {entry.silence_s:.2f} s, limit {self.parameters.input_timeout_s:g} s",
                    )
                )
        if silent:
            self._published_s = None  # what was planned before the silence says nothing about the time after it
        names = {entry.name for entry in silent}
        for name in sorted(self._silent_names - names):
            self._log.info(f"{name} is back")
        self._silent_names = names
        return silent

    def facts(self) -> ActiveFacts:
        """What the status is made from."""
        published_s = self._published_s
        return ActiveFacts(
            missing=self._watch.missing(),
            silent=self._watch.silent(time.monotonic()),
            failure=self._failure,
            held_back=self._held_back,
            plan_published_ago_s=None if published_s is None else time.monotonic() - published_s,
        )

    def numbers(self) -> SessionNumbers:
        """Counters of the status message."""
        return SessionNumbers(self._window_id, self._plans_published, self._newest_t0_ns, self._newest_latency_ms)

    def _forget_results(self) -> None:
        self._window_id = 0
        self._plans_published = 0
        self._newest_t0_ns = None
        self._newest_latency_ms = float("nan")
        self._published_s = None
        self._held_back = None
        self._failure = ""

    def _take(self, topic: str, add: Callable[[Intake], Refusal | None]) -> None:
        with self._intake_lock:
            if not self._is_active or self._intake is None:
                return
            self._take_counted(topic, add, self._intake)
            for outcome in self._intake.poll():
                self._handle_outcome(outcome)

    def _take_counted(self, topic: str, add: Callable[[Intake], Refusal | None], intake: Intake) -> None:
        try:
            refusal = add(intake)
            if refusal is not None:
                self.reasons.record(refusal)
        except InputRefused as refused:
            self.reasons.record(refused.refusal)
        except Exception as error:  # one message must never end the node, whatever is wrong with it or with us
            self.reasons.record(Refusal(Reason.INTAKE_FAILED, topic, f"{type(error).__name__}: {error}"))
            self._log.debug(traceback.format_exc())

    def _handle_outcome(self, outcome: PlanningWindow | Refusal) -> None:
        if isinstance(outcome, PlanningWindow):
            self._window_id = outcome.window_id
            self._thread.submit(outcome)
            return
        self.reasons.record(outcome)
        if outcome.reason is Reason.STAMP_BACKWARD:
            self._thread.restart_stream()
        elif outcome.reason not in NOT_A_HOLD:
            self._held_back = outcome

    def _on_result(self, result: PlanningResult) -> None:
        self._failure = ""
        outcome = result.outcome
        if isinstance(outcome, Refusal):
            self._held_back = outcome
            self.reasons.record(outcome)
            return
        silent = self._watch.silent(time.monotonic())
        if silent:
            self.reasons.record(
                Refusal(Reason.INPUT_STALE, silent[0].name, f"plan {outcome.plan_id} withheld: it has gone silent")
            )
            return
        self._publish(outcome)
        now_s = time.monotonic()
        self._held_back = None
        self._published_s = now_s
        self._plans_published += 1
        self._newest_t0_ns = outcome.t0_ns
        self._newest_latency_ms = (now_s - result.ready_s) * 1e3
        limit_ms = self.parameters.plan_deadline_ms
        if limit_ms > 0 and self._newest_latency_ms > limit_ms:
            self.reasons.record(
                Refusal(Reason.DEADLINE_MISSED, "planner", f"{self._newest_latency_ms:.0f} ms, limit {limit_ms:g} ms")
            )
        for warning in outcome.warnings:
            self.reasons.record(warning)

    def _on_failure(self, error: Exception) -> None:
        self._failure = f"{type(error).__name__}: {error}"
        self.reasons.record(Refusal(Reason.PLANNER_FAILED, "planner", self._failure))
        self._log.debug("".join(traceback.format_exception(error)))


def load_planner_of_package(parameters: NodeParameters) -> Planner:
    """The planner the parameters name. Imported here, in the planning thread: the node starts without model code."""
    from flashdrive_ros.planner import PlannerSettings, load_planner

    return load_planner(
        parameters.model_path,
        settings=PlannerSettings(
            cameras=parameters.camera_indices,
            samples=parameters.samples,
            seed=parameters.seed,
            threads=parameters.threads,
        ),
    )
