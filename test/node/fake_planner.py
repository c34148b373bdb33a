"""A planner without a model: drives straight on at the measured speed, and records what it was asked."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np

from flashdrive_ros.errors import ModelFileError
from flashdrive_ros.plan import Plan, ReasoningText, StageTiming, Waypoints
from flashdrive_ros.reasons import Reason, Refusal


class FakePlanner:
    """Follows the planner API. `gate` holds `plan` back while it is not set; `fail_on` raises at these window ids."""

    backend = "fake"

    def __init__(self, fail_on=(), load_gate=None):
        if load_gate is not None:
            load_gate.wait(30)
        self.config = SimpleNamespace(
            prompt=SimpleNamespace(cameras=(0, 1, 2, 6), frames=4, stride_s=0.1, history_steps=16)
        )
        self.last_reset_reason = None
        self.calls = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.fail_on = set(fail_on)
        self.windows_in_stream = 0
        self.threads = {threading.current_thread().name}

    def warm_up(self):
        self._note("warm_up", None)

    def plan(self, window):
        self._note("plan", window.window_id)
        self.entered.set()
        assert self.gate.wait(30)
        if window.window_id in self.fail_on:
            raise RuntimeError(f"window {window.window_id} is cursed")
        self.windows_in_stream += 1
        if self.windows_in_stream < 4:
            return Refusal(Reason.STREAM_FILLING, "planner", f"{self.windows_in_stream} of 4 frames")
        return straight_plan(window)

    def prepare(self, window):
        self._note("prepare", window.window_id)
        self.windows_in_stream += 1

    def reset(self):
        self._note("reset", None)
        self.windows_in_stream = 0

    def _note(self, what, window_id):
        self.threads.add(threading.current_thread().name)
        self.calls.append((what, window_id))


def straight_plan(window):
    """64 points along x of base_link, 0.1 s apart, at the speed measured at t0."""
    steps = np.arange(1, 65)
    positions = np.zeros((64, 3))
    positions[:, 0] = window.ego.speed_mps * 0.1 * steps
    quaternions = np.tile([0.0, 0.0, 0.0, 1.0], (64, 1))
    waypoints = Waypoints(positions, quaternions, np.full(64, window.ego.speed_mps), np.zeros(64), np.zeros(64))
    return Plan(
        plan_id=window.window_id,
        t0_ns=window.t0_ns,
        trajectories=(waypoints,),
        reasoning=ReasoningText("Keep the lane because the road is clear.", (5, 6, 7), False),
        ego=window.ego,
        timing=StageTiming(1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 15.0, 3, 0),
        warnings=(),
    )


def refuse_missing_model(parameters):
    """A factory that knows one model only."""
    if parameters.model_path != "nano":
        raise ModelFileError(f"{parameters.model_path}: there is no such model folder")
    return FakePlanner()
