"""StreamingPlanner: one window in, one plan out. Start reading here.

Encode the new frames, prefill them, finish the reasoning, denoise the trajectory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.action.schedule import FlowSchedule, dense_schedule, flow_tables
from flashdrive_ros.cameras import CAMERAS
from flashdrive_ros.engines.base import GREEDY, Decision, Floats, FlowInputs, Sampling
from flashdrive_ros.engines.load import LoadedModel, load_model
from flashdrive_ros.errors import ParameterError
from flashdrive_ros.guard.plan_checks import check_waypoints
from flashdrive_ros.model.action_space import initial_speed_mps, rollout
from flashdrive_ros.model.config import ModelConfig, with_cameras
from flashdrive_ros.model.images import patchify, resize
from flashdrive_ros.model.prompt import build_prompt, route_ids, tail_ids
from flashdrive_ros.model.tokens import history_token_ids
from flashdrive_ros.plan import Plan, ReasoningText, StageTiming, Waypoints
from flashdrive_ros.reasoning.sampling import flow_noise, token_noise
from flashdrive_ros.reasoning.speculative import Reasoned, finish_reasoning, propose_finish
from flashdrive_ros.reasons import Reason, Refusal
from flashdrive_ros.streaming.kv_ring import KvRing
from flashdrive_ros.streaming.layout import Table, build_layout
from flashdrive_ros.window import EgoHistory, PlanningWindow


@dataclass(frozen=True)
class PlannerSettings:
    """What a user chooses; everything else is the model's configuration."""

    cameras: tuple[int, ...] | None = None
    """Camera indices, ascending; None for the model's own."""
    samples: int = 1
    """Trajectories per plan."""
    seed: int = 0
    """Seed of the stream's randomness."""
    threads: int = 2
    """CPU threads of the embedded backend."""
    sampling: Sampling = GREEDY


class _Stopwatch:
    """Wall time per stage of one plan."""

    def __init__(self) -> None:
        self.spent_ms: dict[str, float] = {}
        self.started_s = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start_s = time.perf_counter()
        yield
        self.spent_ms[name] = self.spent_ms.get(name, 0.0) + (time.perf_counter() - start_s) * 1e3

    def timing(self, reasoned: Reasoned) -> StageTiming:
        spent = {f"{name}_ms": self.spent_ms.get(name, 0.0) for name in ("preprocess", "vision", "prefill", "draft")}
        return StageTiming(
            **spent,
            verify_ms=self.spent_ms.get("verify", 0.0),
            action_ms=self.spent_ms.get("action", 0.0),
            total_ms=(time.perf_counter() - self.started_s) * 1e3,
            verify_passes=reasoned.verify_passes,
            draft_tokens_accepted=reasoned.proposals_accepted,
        )


class StreamingPlanner:
    """Owns the stream: ring tables, engines, randomness. Used from one thread."""

    def __init__(self, model: LoadedModel, config: ModelConfig, settings: PlannerSettings) -> None:
        self.config = config
        self.engines = model.engines
        self.backend = model.engines.backend
        self.weights_origin = model.weights_origin
        self.settings = settings
        self.last_reset_reason: Refusal | None = None
        self._encode, self._decode = model.encode, model.decode
        self._prompt = build_prompt(config, model.encode)
        self._layout = build_layout(config, self._prompt)
        self._ring = KvRing(self._layout, pad_id=config.tokens.trajectory_first)
        self._schedule: FlowSchedule = dense_schedule(config.action.flow_steps)
        self._noise = token_noise(settings.seed, self._layout.reasoning_room + 1 + config.drafter.block)
        self._propose = propose_finish(config.tokens.cot_end, config.tokens.future_start)
        self._last_t0_ns: int | None = None
        self._watch = _Stopwatch()
        self._fill_static()

    def plan(self, window: PlanningWindow) -> Plan | Refusal:
        """Plan `window`, or say why not: the stream is still filling, or every sample failed the guard.

        Every trajectory of a returned plan has passed guard/plan_checks; the others are among its warnings.
        """
        watch = self._watch = _Stopwatch()
        warnings = self._route_warnings(window.route_text)
        decision = self._push(window)
        if not self._ring.is_full:
            held = f"{self._ring.filled_frames} of {self._layout.frames} frames"
            return Refusal(Reason.STREAM_FILLING, "stream", held)
        with watch.stage("verify"):
            reasoned = finish_reasoning(
                self.engines, self._ring, [], decision, self._noise, self.settings.sampling, self._propose
            )
        with watch.stage("action"):
            actions = self.engines.action(self._flow_inputs(window.window_id, len(reasoned.token_ids)))
        trajectories, refused, discomforts = self._guarded(actions, window)
        if not trajectories:
            return refused[0]
        warnings += [*refused, *discomforts]
        if reasoned.truncated:
            budget = f"no end within {self.config.prompt.reasoning_capacity} tokens"
            warnings.append(Refusal(Reason.REASONING_TRUNCATED, "reasoning", budget))
        return Plan(
            plan_id=window.window_id,
            t0_ns=window.t0_ns,
            trajectories=tuple(trajectories),
            reasoning=self._text(reasoned),
            ego=window.ego,
            timing=watch.timing(reasoned),
            warnings=tuple(warnings),
        )

    def prepare(self, window: PlanningWindow) -> None:
        """Push a window that will not be planned on, so that the stream stays uniform."""
        self._push(window)

    def reset(self) -> None:
        """Forget the stream; the next plan comes with the fourth window from now."""
        self._ring.reset()
        self._last_t0_ns = None

    def warm_up(self) -> None:
        """Run every stage once on an empty scene, then forget it."""
        steps = self.config.prompt.history_steps
        history = EgoHistory(np.zeros((steps, 3)), np.tile(np.eye(3), (steps, 1, 1)))
        images = np.zeros((len(self.config.prompt.cameras), *self._image_shape()), np.uint8)
        for _ in range(self._layout.frames):
            decision = self._prefill(images, self._tail(history, ""))
        reasoned = finish_reasoning(
            self.engines, self._ring, [], decision, self._noise, self.settings.sampling, self._propose
        )
        self.engines.draft(reasoned.token_ids[-1])
        self.engines.action(self._flow_inputs(0, len(reasoned.token_ids)))
        self.reset()

    def _fill_static(self) -> None:
        """Write keys and values of the static prompt; they stay valid for the life of the engines."""
        noise = self._noise[: self._layout.draft_rows + 1]
        self.engines.prefill(self._ring.static_rows(), self.engines.no_image(), noise, self.settings.sampling)

    def _push(self, window: PlanningWindow) -> Decision:
        """Vision and prefill of one window; a window too far from the last one restarts the stream."""
        self._check_cameras(window)
        self.last_reset_reason = self._gap(window)
        if self.last_reset_reason is not None:
            self.reset()
        self._last_t0_ns = window.t0_ns
        with self._watch.stage("preprocess"):
            images = np.stack([resize(frame.pixels, self.config.vision) for frame in window.frames])
            tail = self._tail(window.history, window.route_text)
        return self._prefill(images, tail)

    def _prefill(self, images: NDArray[np.uint8], tail: Table) -> Decision:
        with self._watch.stage("preprocess"):
            patches = patchify(images, self.config.vision)
        with self._watch.stage("vision"):
            features = self.engines.vision(patches)
        with self._watch.stage("prefill"):
            rows = self._ring.push(tail, np.empty(0, np.int64))
            noise = self._noise[: self._layout.draft_rows + 1]
            return self.engines.prefill(rows, features, noise, self.settings.sampling)

    def _gap(self, window: PlanningWindow) -> Refusal | None:
        if self._last_t0_ns is None:
            return None
        step_s = (window.t0_ns - self._last_t0_ns) * 1e-9
        stride_s = self.config.prompt.stride_s
        if 0.5 * stride_s < step_s < 1.5 * stride_s:
            return None
        return Refusal(Reason.STREAM_GAP, "stream", f"{step_s:.3f} s between windows, {stride_s:.1f} s expected")

    def _check_cameras(self, window: PlanningWindow) -> None:
        found = tuple(frame.camera for frame in window.frames)
        if found != self.config.prompt.cameras:
            raise ParameterError(f"window of cameras {found} found, {self.config.prompt.cameras} expected")

    def _tail(self, history: EgoHistory, route_text: str) -> Table:
        route = route_ids("" if self._route_warnings(route_text) else route_text, self.config, self._encode)
        return tail_ids(self._prompt, history_token_ids(history, self.config), route)

    def _route_warnings(self, route_text: str) -> list[Refusal]:
        """A route that does not fit is left out whole: half an instruction is worse than none."""
        count = len(route_ids(route_text, self.config, self._encode))
        capacity = self.config.prompt.route_capacity
        if count <= capacity:
            return []
        return [Refusal(Reason.ROUTE_TOO_LONG, "route", f"{count} tokens found, at most {capacity} expected")]

    def _guarded(self, actions: Floats, window: PlanningWindow) -> tuple[list[Waypoints], list[Refusal], list[Refusal]]:
        """Samples that pass the guard in their order, why the others do not, and the discomforts of the first."""
        speed_mps = initial_speed_mps(window.history, self.config.action.dt_s)
        passed: list[Waypoints] = []
        refused: list[Refusal] = []
        discomforts: list[Refusal] = []
        for index, sample in enumerate(actions):
            waypoints = rollout(sample, speed_mps, self.config.action)
            failures, uncomfortable = check_waypoints(waypoints, window.ego)
            if failures:
                refused.append(replace(failures[0], source=f"sample {index}"))
                continue
            discomforts = discomforts if passed else uncomfortable
            passed.append(waypoints)
        return passed, refused, discomforts

    def _flow_inputs(self, window_id: int, reasoning_tokens: int) -> FlowInputs:
        waypoints = self.config.action.waypoints
        times, weights = flow_tables(self._schedule)
        order, position = self._ring.action_rows(reasoning_tokens, waypoints)
        return FlowInputs(
            noise=flow_noise(self.settings.seed, window_id, (self.settings.samples, waypoints, 2)),
            times=times,
            weights=weights,
            row_order=order,
            row_position=position,
            slot_order=self._ring.slot_order,
            slot_position=self._ring.slot_position,
        )

    def _text(self, reasoned: Reasoned) -> ReasoningText:
        ids = reasoned.token_ids[:-2]
        return ReasoningText(self._decode(list(ids)).strip(), ids, reasoned.truncated)

    def _image_shape(self) -> tuple[int, int, int]:
        return self.config.vision.image_height, self.config.vision.image_width, 3


def check_settings(settings: PlannerSettings, config: ModelConfig) -> None:
    """Raise ParameterError for settings that `config` cannot serve."""
    check_ranges(settings)
    cameras = settings.cameras or config.prompt.cameras
    if len(cameras) != len(config.prompt.cameras):
        raise ParameterError(
            f"cameras: {len(cameras)} found, {len(config.prompt.cameras)} expected by model {config.name}"
        )


def check_ranges(settings: PlannerSettings) -> None:
    """Raise ParameterError for settings that no model can serve."""
    cameras = settings.cameras or ()
    if sorted(set(cameras)) != list(cameras) or not all(0 <= camera < len(CAMERAS) for camera in cameras):
        raise ParameterError(f"cameras: {cameras} found, ascending indices from 0 to {len(CAMERAS) - 1} expected")
    for name, value in (("samples", settings.samples), ("threads", settings.threads)):
        if value < 1:
            raise ParameterError(f"{name}: {value} found, at least 1 expected")
    if settings.seed < 0:
        raise ParameterError(f"seed: {settings.seed} found, at least 0 expected")


def load_planner(model_path: str | Path, *, settings: PlannerSettings) -> StreamingPlanner:
    """Load a model folder, or the shipped one for "nano".

    Raises ModelFileError for a missing or damaged file, ParameterError for settings the model cannot serve.
    """
    check_ranges(settings)
    model = load_model(model_path, settings.threads, settings.samples, settings.cameras)
    check_settings(settings, model.engines.config)
    config = with_cameras(model.engines.config, settings.cameras or model.engines.config.prompt.cameras)
    return StreamingPlanner(model, config, settings)
