"""The planning thread without ROS: what it plans, prepares and drops when the planner is late."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from flashdrive_ros.reasons import Reason, Refusal
from flashdrive_ros.ros.planning_thread import PlanningThread

TIMEOUT_S = 10.0


def window(window_id):
    return SimpleNamespace(window_id=window_id)


class StepPlanner:
    """Waits for `steps` before each call returns; a call that it has begun is announced on `begun`."""

    backend = "steps"

    def __init__(self):
        self.config = SimpleNamespace()
        self.last_reset_reason = None
        self.calls = []
        self.begun = threading.Semaphore(0)
        self.steps = threading.Semaphore(0)
        self.fails = False

    def warm_up(self):
        pass

    def plan(self, window):
        self._step("plan", window)
        if self.fails:
            raise RuntimeError("cursed")
        return f"plan {window.window_id}"

    def prepare(self, window):
        self._step("prepare", window)

    def reset(self):
        self.calls.append(("reset", None))

    def _step(self, what, window):
        self.calls.append((what, window.window_id))
        self.begun.release()
        assert self.steps.acquire(timeout=TIMEOUT_S)


class Run:
    """A thread around a StepPlanner and everything it reported."""

    def __init__(self):
        self.planner = StepPlanner()
        self.results, self.refusals, self.failures = [], [], []
        self.thread = PlanningThread(
            lambda: self.planner, self.results.append, self.refusals.append, self.failures.append
        )
        self.thread.start()
        assert self.thread.wait_until_loaded(TIMEOUT_S)

    def begin(self):
        assert self.planner.begun.acquire(timeout=TIMEOUT_S)

    def finish(self):
        self.planner.steps.release(100)
        assert self.thread.stop(TIMEOUT_S)

    def counted(self, reason):
        return [refusal.detail for refusal in self.refusals if refusal.reason is reason]


def test_a_planner_that_is_always_late_still_gets_four_consecutive_windows_and_plans_the_last():
    run = Run()
    run.thread.submit(window(0))
    run.begin()
    for window_id in range(1, 11):
        run.thread.submit(window(window_id))
    run.planner.steps.release()
    for window_id in range(11, 15):  # one more arrives during every step of the batch 7, 8, 9, 10
        run.begin()
        run.thread.submit(window(window_id))
        run.planner.steps.release()
    run.begin()
    run.finish()
    assert run.planner.calls[:6] == [
        ("plan", 0),
        ("prepare", 7),
        ("prepare", 8),
        ("prepare", 9),
        ("plan", 10),
        ("prepare", 11),
    ]
    details = run.counted(Reason.WINDOW_SUPERSEDED)
    assert [detail for detail in details if "dropped" in detail] == [
        f"window {window_id} dropped, a newer one was complete" for window_id in range(1, 7)
    ]
    assert sum("prepared" in detail for detail in details) >= 3


def test_a_restart_drops_the_queue_and_the_result_in_flight_and_resets_the_planner():
    run = Run()
    run.thread.submit(window(0))
    run.begin()
    run.thread.submit(window(1))
    run.thread.restart_stream()
    run.thread.submit(window(2))
    run.planner.steps.release()
    run.begin()
    run.planner.steps.release()
    run.finish()
    assert run.planner.calls == [("plan", 0), ("reset", None), ("plan", 2)]
    assert "plan 0" not in [result.outcome for result in run.results]


def test_an_exception_resets_the_stream_and_the_next_window_is_planned():
    run = Run()
    run.planner.fails = True
    run.thread.submit(window(0))
    run.begin()
    run.planner.steps.release()
    while not run.failures:
        threading.Event().wait(0.001)
    run.planner.fails = False
    run.thread.submit(window(1))
    run.begin()
    run.planner.steps.release()
    while not run.results:
        threading.Event().wait(0.001)
    run.finish()
    assert run.planner.calls == [("plan", 0), ("reset", None), ("plan", 1)]
    assert [result.outcome for result in run.results] == ["plan 1"]


def test_a_stream_gap_of_the_planner_is_reported():
    run = Run()
    gap = Refusal(Reason.STREAM_GAP, "stream", "0.3 s")
    run.planner.last_reset_reason = gap
    run.thread.submit(window(0))
    run.begin()
    run.planner.steps.release()
    while not run.results:
        threading.Event().wait(0.001)
    run.finish()
    assert run.refusals == [gap]


def test_a_loading_error_is_kept_for_the_one_who_waits():
    def fail():
        raise OSError("no such file")

    thread = PlanningThread(fail, print, print, print)
    thread.start()
    assert thread.wait_until_loaded(TIMEOUT_S)
    assert isinstance(thread.load_error, OSError)
    assert thread.stop(TIMEOUT_S)
