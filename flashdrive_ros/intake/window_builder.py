"""Intake: messages of one run in, complete planning windows and refusals out.

    intake = Intake(IntakeSettings(cameras=(0, 1, 2, 6)))
    refusal = intake.add_image(camera, stamp_ns, pixels)     # None, or why this one message is not used
    refusal = intake.add_odometry(sample)
    for item in intake.poll():                               # PlanningWindow | Refusal, in order

A refusal from `add_*` concerns one message. A refusal from `poll` concerns a window that was dropped, with two
exceptions that belong into the order of windows: STAMP_BACKWARD (the run jumped back: reset whatever depends on earlier
windows) and ODOMETRY_TWIST (a warning, once a run: the next window's speed comes from poses).

The same messages give the same windows whatever the interleaving of topics, as long as none is silent: at any moment
every topic, holes and transport included, is less than 3 strides behind the reference camera.
"""

from __future__ import annotations

from collections import deque

from flashdrive_ros.cameras import CAMERAS
from flashdrive_ros.errors import ParameterError
from flashdrive_ros.intake.camera_sync import CameraSynchroniser, FrameSet, SyncSettings
from flashdrive_ros.intake.ego_history import EgoHistoryBuffer, EgoHistorySettings
from flashdrive_ros.intake.odometry import OdometrySample, checked_sample
from flashdrive_ros.intake.pixels import Pixels
from flashdrive_ros.intake.route import clean_route
from flashdrive_ros.intake.settings import IntakeSettings
from flashdrive_ros.intake.stamp_order import StampOrder
from flashdrive_ros.reasons import InputRefused, Reason, Refusal
from flashdrive_ros.window import CameraFrame, PlanningWindow

ODOMETRY = "odometry"
ROUTE = "route"
MAX_UNPOLLED_WINDOWS = 8
MAX_UNPOLLED = 256


class Intake:
    """All input state of one run. Not thread safe: the caller holds a lock. Never blocks or raises for bad values."""

    def __init__(self, settings: IntakeSettings) -> None:
        stride_ns = round(settings.stride_s * 1e9)
        cameras = tuple(sorted(settings.cameras))
        self._cameras = cameras
        self._silent_ns = settings.silent_strides * stride_ns
        self._order = StampOrder(round(settings.jump_back_s * 1e9))
        self._synchroniser: CameraSynchroniser[Pixels] = CameraSynchroniser(
            SyncSettings(cameras, settings.reference, stride_ns, round(settings.tolerance_s * 1e9), self._silent_ns)
        )
        self._odometry = EgoHistoryBuffer(
            EgoHistorySettings(settings.history_steps, stride_ns, round(settings.history_gap_s * 1e9)), ODOMETRY
        )
        self._route_text = ""
        self._next_window_id = 0
        self._twist_said = False
        self._outcomes: deque[FrameSet[Pixels] | Refusal] = deque()
        """Settled by the cameras, waiting for odometry (or behind one that waits)."""
        self._ready: deque[PlanningWindow | Refusal] = deque(maxlen=MAX_UNPOLLED)

    def add_image(self, camera: int, stamp_ns: int, pixels: Pixels) -> Refusal | None:
        """Store one decoded frame (uint8 [height, width, 3], kept without copying), or say why not.

        Refused: STAMP_ZERO, STAMP_REPEATED, STAMP_BACKWARD. Raises ParameterError for a camera that is not configured.
        """
        if camera not in self._cameras:
            raise ParameterError(f"camera {camera} is not among the configured cameras {self._cameras}")
        refusal = self._refuse_stamp(CAMERAS[camera].name, stamp_ns)
        if refusal is None:
            self._outcomes.extend(self._synchroniser.add(camera, stamp_ns, pixels))
            self._advance()
        return refusal

    def add_odometry(self, sample: OdometrySample) -> Refusal | None:
        """Store one sample, or say why not: those of `add_image`, `checked_sample` and `EgoHistoryBuffer.add`."""
        try:
            sample = checked_sample(sample, ODOMETRY)
        except InputRefused as refused:
            return refused.refusal
        refusal = self._refuse_stamp(ODOMETRY, sample.stamp_ns) or self._odometry.add(sample)
        if refusal is None:
            self._advance()
        return refusal

    def set_route(self, text: str) -> Refusal | None:
        """Use this route text for the windows from now on; a text that is too long leaves no route and is refused."""
        self._route_text = ""
        try:
            self._route_text = clean_route(text, ROUTE)
        except InputRefused as refused:
            return refused.refusal
        return None

    def poll(self) -> list[PlanningWindow | Refusal]:
        """Everything that became ready since the last call, in order."""
        ready = list(self._ready)
        self._ready.clear()
        return ready

    def reset(self) -> None:
        """Forget frames, history and unfinished windows; the route and what `poll` has ready stay, ids go on."""
        self._synchroniser.clear()
        self._odometry.clear()
        self._outcomes.clear()

    def _refuse_stamp(self, topic: str, stamp_ns: int) -> Refusal | None:
        jump = self._order.jump(topic, stamp_ns)
        if jump is not None:
            self.reset()
            self._ready.append(jump)
        return self._order.refuse(topic, stamp_ns)

    def _advance(self) -> None:
        """Turn what the cameras settled into windows, as far as the odometry reaches."""
        while self._outcomes:
            outcome = self._outcomes[0]
            if isinstance(outcome, FrameSet) and self._waits_for_odometry(outcome.t0_ns):
                return
            self._outcomes.popleft()
            if isinstance(outcome, FrameSet):
                self._finish(outcome)
            else:
                self._ready.append(outcome)

    def _waits_for_odometry(self, t0_ns: int) -> bool:
        newest_ns = self._odometry.newest_ns
        if newest_ns is not None and newest_ns >= t0_ns:
            return False
        reference_ns = self._synchroniser.reference_newest_ns
        return reference_ns is not None and reference_ns - t0_ns < self._silent_ns

    def _finish(self, frames: FrameSet[Pixels]) -> None:
        ego = self._odometry.window(frames.t0_ns)
        if isinstance(ego, Refusal):
            self._ready.append(ego)
            return
        if ego.twist_warning is not None and not self._twist_said:
            self._twist_said = True
            self._ready.append(ego.twist_warning)
        window = PlanningWindow(
            window_id=self._next_window_id,
            t0_ns=frames.t0_ns,
            frames=tuple(
                CameraFrame(camera, stamp, pixels)
                for camera, stamp, pixels in zip(self._cameras, frames.stamps_ns, frames.payloads, strict=True)
            ),
            ego=ego.pose,
            history=ego.history,
            route_text=self._route_text,
            spread_ns=frames.spread_ns,
        )
        self._next_window_id += 1
        self._supersede_oldest()
        self._ready.append(window)

    def _supersede_oldest(self) -> None:
        """Bound the pictures that wait for `poll`: the oldest unpolled window gives way, and is reported."""
        waiting = [index for index, item in enumerate(self._ready) if isinstance(item, PlanningWindow)]
        if len(waiting) >= MAX_UNPOLLED_WINDOWS:
            item = self._ready[waiting[0]]
            assert isinstance(item, PlanningWindow)
            detail = f"window {item.window_id} was not fetched before {MAX_UNPOLLED_WINDOWS} newer ones were ready"
            self._ready[waiting[0]] = Refusal(Reason.WINDOW_SUPERSEDED, "intake", detail)
