"""Chooses, by stamp, the frames of every camera that belong to one instant t0.

The rule, which does not depend on how the cameras' messages interleave (each camera's own must arrive in order):

- The reference camera sets the grid. `target` starts at its first stamp; a window opens at the first reference frame
  with stamp >= target - stride/4, and t0 is that stamp. The next target is target + stride + (t0 - target)/10: the grid
  follows a camera that is a little faster or slower than the stride. Beyond stride/2 off the grid it restarts at
  t0 + stride.
- Another camera gives its earliest frame with stamp >= t0 - stride/4 when that is also <= t0 + stride/4; otherwise the
  nearer of it and the frame before it, when within the tolerance; otherwise the window is dropped (CAMERA_SPREAD).
- No frame is used twice.
- A camera without such a frame when the reference camera is 3 strides past t0 drops the window (CAMERA_MISSING). A
  silent reference camera is reported once, when another camera has run 6 strides past it.

Windows are settled in the order of t0. At most 6 strides and 64 frames of each camera are kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from flashdrive_ros.cameras import CAMERAS
from flashdrive_ros.reasons import Reason, Refusal

Payload = TypeVar("Payload")

MAX_FRAMES = 64
KEPT_STRIDES = 6


@dataclass(frozen=True)
class SyncSettings:
    """The numbers of the rule, in nanoseconds; `cameras` ascending, with the reference camera among them."""

    cameras: tuple[int, ...]
    reference: int
    stride_ns: int
    tolerance_ns: int
    silent_ns: int


@dataclass(frozen=True)
class FrameSet(Generic[Payload]):
    """One frame of every camera, for one instant."""

    t0_ns: int
    stamps_ns: tuple[int, ...]
    """In the order of the settings' cameras."""
    payloads: tuple[Payload, ...]
    spread_ns: int
    """Largest |stamp - t0|."""


@dataclass
class _Frames(Generic[Payload]):
    """Unused frames of one camera in stamp order."""

    stamps_ns: list[int] = field(default_factory=list)
    payloads: list[Payload] = field(default_factory=list)

    def drop_before(self, index: int) -> None:
        del self.stamps_ns[:index], self.payloads[:index]


class CameraSynchroniser(Generic[Payload]):
    """Frames in, FrameSets and refusals out. Stamps of one camera must increase; `intake.stamp_order` sees to it."""

    def __init__(self, settings: SyncSettings) -> None:
        self._settings = settings
        self.clear()

    def clear(self) -> None:
        """Forget all frames and the grid."""
        self._frames: dict[int, _Frames[Payload]] = {
            camera: _Frames() for camera in self._settings.cameras if camera != self._settings.reference
        }
        self._opened: deque[tuple[int, Payload]] = deque()
        """Windows not settled yet: t0 and the reference frame."""
        self._target_ns: float | None = None
        self._reference_silent_said = False
        self.reference_newest_ns: int | None = None
        """Newest stamp of the reference camera: the clock by which windows stop waiting."""

    def add(self, camera: int, stamp_ns: int, payload: Payload) -> list[FrameSet[Payload] | Refusal]:
        """Store one frame; returns what became settled, in order."""
        settled: list[FrameSet[Payload] | Refusal] = []
        if camera == self._settings.reference:
            self._open_window(stamp_ns, payload)
        else:
            frames = self._frames[camera]
            frames.stamps_ns.append(stamp_ns)
            frames.payloads.append(payload)
            settled += self._reference_silence(camera)
            self._forget_old(frames)
        while self._opened:
            outcome = self._settle(*self._opened[0])
            if outcome is None:
                break
            self._opened.popleft()
            settled.append(outcome)
        return settled

    def _open_window(self, stamp_ns: int, payload: Payload) -> None:
        stride_ns = self._settings.stride_ns
        self.reference_newest_ns = stamp_ns
        self._reference_silent_said = False
        target_ns = stamp_ns if self._target_ns is None else self._target_ns
        if stamp_ns < target_ns - stride_ns / 4:
            return
        late_ns = stamp_ns - target_ns
        if abs(late_ns) > stride_ns / 2:
            self._target_ns = stamp_ns + stride_ns
        else:
            self._target_ns = target_ns + stride_ns + 0.1 * late_ns
        self._opened.append((stamp_ns, payload))

    def _settle(self, t0_ns: int, reference_payload: Payload) -> FrameSet[Payload] | Refusal | None:
        """The window at t0 with its frames taken, the refusal that drops it, or None while it waits."""
        chosen: dict[int, int] = {}
        for camera in self._frames:
            choice = self._choose(camera, t0_ns)
            if isinstance(choice, Refusal):
                return choice
            if choice is None:
                return self._missing(camera, t0_ns)
            chosen[camera] = choice
        stamps, payloads = [], []
        for camera in self._settings.cameras:
            if camera == self._settings.reference:
                stamps.append(t0_ns)
                payloads.append(reference_payload)
                continue
            frames = self._frames[camera]
            stamps.append(frames.stamps_ns[chosen[camera]])
            payloads.append(frames.payloads[chosen[camera]])
            frames.drop_before(chosen[camera] + 1)
        return FrameSet(t0_ns, tuple(stamps), tuple(payloads), max(abs(stamp - t0_ns) for stamp in stamps))

    def _choose(self, camera: int, t0_ns: int) -> int | Refusal | None:
        """Index of the camera's frame for t0; None when its next frame must be awaited."""
        stamps = self._frames[camera].stamps_ns
        quarter_ns = self._settings.stride_ns / 4
        after = bisect_left(stamps, t0_ns - quarter_ns)
        if after == len(stamps):
            return None
        if stamps[after] <= t0_ns + quarter_ns:
            return after
        candidates = [after - 1, after] if after > 0 else [after]
        nearest = min(candidates, key=lambda index: abs(stamps[index] - t0_ns))
        offset_ns = stamps[nearest] - t0_ns
        if abs(offset_ns) <= self._settings.tolerance_ns:
            return nearest
        detail = (
            f"nearest unused frame {offset_ns / 1e6:+.1f} ms from t0 {t0_ns} ns, "
            f"tolerance {self._settings.tolerance_ns / 1e6:g} ms"
        )
        return Refusal(Reason.CAMERA_SPREAD, CAMERAS[camera].name, detail)

    def _missing(self, camera: int, t0_ns: int) -> Refusal | None:
        newest_ns = self.reference_newest_ns
        if newest_ns is None or newest_ns - t0_ns < self._settings.silent_ns:
            return None
        stamps = self._frames[camera].stamps_ns
        last = f"its newest frame is {(t0_ns - stamps[-1]) / 1e6:.1f} ms before t0" if stamps else "no unused frame"
        detail = f"{last}; waited {(newest_ns - t0_ns) / 1e6:.1f} ms past t0 {t0_ns} ns"
        return Refusal(Reason.CAMERA_MISSING, CAMERAS[camera].name, detail)

    def _reference_silence(self, camera: int) -> list[FrameSet[Payload] | Refusal]:
        """One report when a camera has run ahead of the reference camera by all that is kept."""
        stamps = self._frames[camera].stamps_ns
        since_ns = stamps[0] if self.reference_newest_ns is None else self.reference_newest_ns
        silence_ns = stamps[-1] - since_ns
        if self._reference_silent_said or silence_ns < KEPT_STRIDES * self._settings.stride_ns:
            return []
        self._reference_silent_said = True
        detail = f"no frame for {silence_ns / 1e6:.1f} ms by the stamps of {CAMERAS[camera].name}: no window can start"
        return [Refusal(Reason.CAMERA_MISSING, CAMERAS[self._settings.reference].name, detail)]

    def _forget_old(self, frames: _Frames[Payload]) -> None:
        """Bound the memory; a frame this old can only be wanted while the reference camera is silent."""
        oldest_ns = frames.stamps_ns[-1] - KEPT_STRIDES * self._settings.stride_ns
        frames.drop_before(max(bisect_left(frames.stamps_ns, oldest_ns), len(frames.stamps_ns) - MAX_FRAMES))
