"""The planning thread: owns the planner from loading to freeing, plans the newest window, prepares the ones it skips.

Every call of the planner, loading included, happens in this one thread: device contexts belong to the thread that
made them, and nothing about the planner needs a lock. The module knows no ROS.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from flashdrive_ros.plan import Plan
from flashdrive_ros.reasons import Reason, Refusal
from flashdrive_ros.window import PlanningWindow

MAX_PENDING = 4
"""Windows kept while the planner is busy: a stream is rebuilt from four frames, so older ones cannot matter."""


class Planner(Protocol):
    """What the thread needs of `flashdrive_ros.planner.StreamingPlanner`."""

    config: Any
    backend: str
    """Name of the engine backend, for people."""
    last_reset_reason: Refusal | None

    def warm_up(self) -> None: ...
    def plan(self, window: PlanningWindow) -> Plan | Refusal: ...
    def prepare(self, window: PlanningWindow) -> None: ...
    def reset(self) -> None: ...


@dataclass(frozen=True)
class PendingWindow:
    """A complete window that waits for the planner."""

    window: PlanningWindow
    ready_s: float
    """Steady time at which the window was complete."""
    epoch: int
    """Streams are numbered by their resets; results of an earlier stream are not delivered."""


@dataclass(frozen=True)
class PlanningResult:
    """What became of one window."""

    window: PlanningWindow
    outcome: Plan | Refusal
    ready_s: float
    """Steady time at which the window was complete."""


class PlanningThread:
    """One thread around one planner. The callbacks are called in it; `on_result` never for an old stream."""

    def __init__(
        self,
        load: Callable[[], Planner],
        on_result: Callable[[PlanningResult], None],
        on_refusal: Callable[[Refusal], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._load = load
        self._on_result = on_result
        self._on_refusal = on_refusal
        self._on_failure = on_failure
        self._pending: deque[PendingWindow] = deque()
        self._wake = threading.Condition()
        self._delivery = threading.Lock()
        self._epoch = 0
        self._stopping = False
        self._loaded = threading.Event()
        self.load_error: Exception | None = None
        self.planner_config: Any = None
        self.backend = ""
        self._thread = threading.Thread(target=self._run, name="planning", daemon=True)

    def start(self) -> None:
        """Load and warm up in the thread; `wait_until_loaded` tells when."""
        self._thread.start()

    def wait_until_loaded(self, timeout_s: float) -> bool:
        """True when loading has ended, well or with `load_error`."""
        return self._loaded.wait(timeout_s)

    def submit(self, window: PlanningWindow) -> None:
        """Queue a complete window; never blocks for the planner."""
        with self._wake:
            self._pending.append(PendingWindow(window, time.monotonic(), self._epoch))
            dropped = self._pending.popleft() if len(self._pending) > MAX_PENDING else None
            self._wake.notify()
        if dropped is not None:
            self._on_refusal(_superseded(dropped.window, "dropped"))

    def restart_stream(self) -> None:
        """Forget queued windows and reset the planner; no result of the old stream is delivered after the return."""
        with self._delivery, self._wake:
            self._epoch += 1
            self._pending.clear()

    def stop(self, timeout_s: float) -> bool:
        """End the thread and free the planner; False when it is still busy after the time-out."""
        self.restart_stream()
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            planner = self._load()
            planner.warm_up()
            self.planner_config = planner.config
            self.backend = planner.backend
        except Exception as error:
            self.load_error = error
            return
        finally:
            self._loaded.set()
        epoch = 0
        while batch := self._take():
            for pending in batch:
                if self._stopping:
                    return
                if pending.epoch != self._epoch:
                    continue
                if pending.epoch != epoch:
                    epoch = pending.epoch
                    self._call(planner, planner.reset)
                is_newest = pending is batch[-1]
                self._call(planner, partial(self._plan if is_newest else self._prepare, planner, pending))

    def _take(self) -> list[PendingWindow]:
        """Every queued window, oldest first; blocks until there is one, empty when stopping.

        A batch is worked off whole: windows that come meanwhile push out each other, never one of the batch, so that
        a planner that is always late still gets a ring's worth of consecutive windows.
        """
        with self._wake:
            self._wake.wait_for(lambda: self._pending or self._stopping)
            batch = [] if self._stopping else list(self._pending)
            self._pending.clear()
            return batch

    def _plan(self, planner: Planner, pending: PendingWindow) -> None:
        outcome = planner.plan(pending.window)
        self._report_reset(planner)
        with self._delivery:
            if pending.epoch == self._epoch:
                self._on_result(PlanningResult(pending.window, outcome, pending.ready_s))

    def _prepare(self, planner: Planner, pending: PendingWindow) -> None:
        planner.prepare(pending.window)
        self._report_reset(planner)
        self._on_refusal(_superseded(pending.window, "prepared"))

    def _report_reset(self, planner: Planner) -> None:
        if planner.last_reset_reason is not None:
            self._on_refusal(planner.last_reset_reason)

    def _call(self, planner: Planner, action: Callable[[], None]) -> None:
        """An exception ends the stream, never the thread."""
        try:
            action()
        except Exception as error:
            self._on_failure(error)
            try:
                planner.reset()
            except Exception as second_error:
                self._on_failure(second_error)


def _superseded(window: PlanningWindow, what: str) -> Refusal:
    return Refusal(Reason.WINDOW_SUPERSEDED, "planner", f"window {window.window_id} {what}, a newer one was complete")
