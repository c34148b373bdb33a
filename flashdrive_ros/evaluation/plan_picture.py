"""One picture of one plan: the four views, the plan projected into the front view, and a bird's-eye view in metres."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import radians, tan
from pathlib import Path
from textwrap import wrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from flashdrive_ros.cameras import CAMERAS
from flashdrive_ros.plan import Plan, ReasoningText, Waypoints
from flashdrive_ros.window import CameraFrame, PlanningWindow

Array = NDArray[np.float64]

PLAN_COLOUR, SAMPLE_COLOUR, HISTORY_COLOUR = "#12b886", "#868e96", "#1c7ed6"
EGO_LENGTH_M, EGO_WIDTH_M, EGO_REAR_OVERHANG_M = 4.8, 1.9, 1.0
NEAREST_M = 2.0
"""Points closer than this to the camera are not drawn: a pinhole camera has no picture of what is beside it."""
TEXT_COLUMNS, TEXT_LINES = 100, 5
NOTE_COLUMNS, NOTE_LINES = 34, 16
POINTS_PER_SECOND = 10


@dataclass(frozen=True)
class PinholeView:
    """How points on the road appear in an uncalibrated front picture: an upright pinhole camera, all of it assumed."""

    horizontal_fov_deg: float = 60.0
    height_m: float = 1.5
    """Above base_link's ground."""
    ahead_m: float = 1.5
    """In front of base_link."""
    horizon: float = 0.55
    """Row of the horizon as a fraction of the picture's height."""

    def project(self, points_m: Array, width: int, height: int) -> Array:
        """Pixels (column, row) [n, 2] of points [n, 3] in base_link (x forward, y left, z up); NaN where too near."""
        points = np.asarray(points_m, np.float64)
        focal_px = width / 2 / tan(radians(self.horizontal_fov_deg) / 2)
        depth_m = points[:, 0] - self.ahead_m
        depth_m = np.where(depth_m >= NEAREST_M, depth_m, np.nan)
        columns = width / 2 - focal_px * points[:, 1] / depth_m
        rows = self.horizon * height + focal_px * (self.height_m - points[:, 2]) / depth_m
        return np.stack([columns, rows], axis=-1)

    def __str__(self) -> str:
        return (
            f"projection assumed: {self.horizontal_fov_deg:g}° wide, {self.height_m:g} m high, "
            f"horizon at {self.horizon:.0%} of the height"
        )


def draw_plan(
    path: str | Path,
    window: PlanningWindow,
    plan: Plan,
    front_camera_index: int,
    *,
    view: PinholeView | None = None,
    weights: str = "",
) -> None:
    """Write a PNG of `plan` and the `window` it was made from to `path`; missing folders are made.

    `front_camera_index` is the Alpamayo index of the view that gets the plan drawn in; `weights` says which weights
    made the plan. The reasoning text may hold anything.
    """
    view = view or PinholeView()
    figure = Figure(figsize=(16, 10), dpi=100, facecolor="white")
    figure.suptitle(_headline(window, plan), x=0.02, y=0.975, ha="left", fontsize=15, fontweight="bold")
    rows = figure.add_gridspec(2, 1, height_ratios=(1, 2), left=0.02, right=0.98, top=0.915, bottom=0.065, hspace=0.14)
    aspects = [frame.pixels.shape[1] / frame.pixels.shape[0] for frame in window.frames]
    strip = rows[0].subgridspec(1, len(window.frames), width_ratios=aspects, wspace=0.02)
    for column, frame in enumerate(window.frames):
        _draw_view(figure.add_subplot(strip[column]), frame, CAMERAS[frame.camera].name)
    lower = rows[1].subgridspec(1, 3, width_ratios=(2.9, 1.25, 0.85), wspace=0.14)
    left = lower[0].subgridspec(2, 1, height_ratios=(4.4, 1), hspace=0.14)
    front = next((frame for frame in window.frames if frame.camera == front_camera_index), None)
    if front is not None:
        axes = figure.add_subplot(left[0])
        _draw_view(axes, front, f"{CAMERAS[front.camera].name} with the plan ({view})")
        _draw_projection(axes, front, plan.trajectories, view)
    _draw_reasoning(figure.add_subplot(left[1]), plan.reasoning)
    _draw_birds_eye(figure.add_subplot(lower[1]), window, plan.trajectories)
    right = lower[2].subgridspec(2, 1, height_ratios=(1, 1.2), hspace=0.2)
    _draw_speeds(figure.add_subplot(right[0]), window, plan.trajectories)
    _draw_notes(figure.add_subplot(right[1]), plan, weights)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", metadata={"Software": None})


def printable(text: str, known: Iterable[int] | None = None) -> str:
    """`text` on one line, with a box for every character that the font cannot draw."""
    characters = set(get_font(findfont("DejaVu Sans")).get_charmap() if known is None else known)
    spaced = "".join(" " if character.isspace() else character for character in text)
    return "".join(c if c.isprintable() and ord(c) in characters else "\N{WHITE SQUARE}" for c in spaced)


def ribbon(waypoints: Waypoints, width_m: float) -> tuple[Array, Array]:
    """Left and right edge [n+1, 3] of the strip that a vehicle of `width_m` covers, from the ego on."""
    centre = np.vstack([np.zeros(3), waypoints.positions_m])
    quaternions = np.vstack([[0.0, 0.0, 0.0, 1.0], waypoints.quaternions_xyzw])
    x, y, z, w = quaternions.T
    left_of = np.stack([2 * (x * y - z * w), 1 - 2 * (x * x + z * z), 2 * (y * z + x * w)], axis=-1)
    return centre + left_of * width_m / 2, centre - left_of * width_m / 2


def _headline(window: PlanningWindow, plan: Plan) -> str:
    first = plan.trajectories[0]
    end_s = len(first.speeds_mps) / POINTS_PER_SECOND
    forward_m, left_m = first.positions_m[-1, :2]
    return (
        f"Plan {plan.plan_id}   t0 = {plan.t0_ns / 1e9:.3f} s   now {window.ego.speed_mps:.1f} m/s   "
        f"in {end_s:.1f} s {first.speeds_mps[-1]:.1f} m/s, {forward_m:.1f} m ahead, {abs(left_m):.1f} m "
        f"{'left' if left_m >= 0 else 'right'}"
    )


def _draw_view(axes: Axes, frame: CameraFrame, title: str) -> None:
    height, width = frame.pixels.shape[:2]
    axes.imshow(frame.pixels, aspect="equal", interpolation="bilinear")
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(height - 0.5, -0.5)
    axes.set_axis_off()
    axes.set_anchor("W")
    axes.set_title(title, fontsize=10.5, loc="left", pad=4)


def _draw_projection(axes: Axes, frame: CameraFrame, trajectories: tuple[Waypoints, ...], view: PinholeView) -> None:
    height, width = frame.pixels.shape[:2]
    for sample in trajectories[1:]:
        columns, rows = view.project(sample.positions_m, width, height).T
        axes.plot(columns, rows, color="white", alpha=0.75, linewidth=1.2)
    left, right = (view.project(edge, width, height) for edge in ribbon(trajectories[0], EGO_WIDTH_M))
    for index in range(len(left) - 1):
        corners = np.array([left[index], left[index + 1], right[index + 1], right[index]])
        if np.isfinite(corners).all():
            axes.fill(*corners.T, color=PLAN_COLOUR, alpha=0.55 - 0.3 * index / len(left), linewidth=0)
    columns, rows = view.project(trajectories[0].positions_m, width, height).T
    axes.plot(columns, rows, color=PLAN_COLOUR, linewidth=2.2)
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(height - 0.5, -0.5)


def _draw_birds_eye(axes: Axes, window: PlanningWindow, trajectories: tuple[Waypoints, ...]) -> None:
    for number, sample in enumerate(trajectories[1:]):
        label = f"{len(trajectories) - 1} further samples" if number == 0 else None
        axes.plot(*_birds_eye(sample.positions_m), color=SAMPLE_COLOUR, linewidth=1.2, alpha=0.8, label=label)
    axes.plot(
        *_birds_eye(window.history.positions_m), color=HISTORY_COLOUR, linewidth=2.2, label="driven (ego history)"
    )
    plan = np.vstack([np.zeros(3), trajectories[0].positions_m])
    axes.plot(*_birds_eye(plan), color=PLAN_COLOUR, linewidth=2.6, label="plan, a dot every second")
    seconds = plan[POINTS_PER_SECOND::POINTS_PER_SECOND]
    axes.plot(*_birds_eye(seconds), linestyle="", marker="o", markersize=5, color=PLAN_COLOUR)
    reach_m = float(np.ptp(np.vstack([plan, window.history.positions_m])[:, 0]))
    labelled = np.zeros(3)
    for second, point in enumerate(seconds, start=1):
        if np.linalg.norm(point - labelled) < 0.04 * reach_m:
            continue  # its label would cover the one before
        labelled = point
        axes.annotate(f"{second} s", (point[1], point[0]), xytext=(9, -3), textcoords="offset points", fontsize=9)
    corner = (-EGO_WIDTH_M / 2, -EGO_REAR_OVERHANG_M)
    axes.add_patch(Rectangle(corner, EGO_WIDTH_M, EGO_LENGTH_M, facecolor="#343a40", alpha=0.85, zorder=3))
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.06)
    axes.invert_xaxis()
    axes.set_xlabel("y, left [m]")
    axes.set_ylabel("x, forward [m]")
    axes.set_title("bird's-eye view, base_link at t0", fontsize=10.5, loc="left", pad=4)
    axes.grid(color="#dee2e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(loc="lower left", bbox_to_anchor=(1.06, 0.0), borderaxespad=0.0, fontsize=9)


def _birds_eye(positions_m: Array) -> tuple[Array, Array]:
    """Positions as plotted: y across (its axis is turned round, left is left), x up."""
    return positions_m[:, 1], positions_m[:, 0]


def _draw_speeds(axes: Axes, window: PlanningWindow, trajectories: tuple[Waypoints, ...]) -> None:
    for number, sample in reversed(list(enumerate(trajectories))):
        seconds = np.arange(len(sample.speeds_mps) + 1) / POINTS_PER_SECOND
        colour, linewidth = (PLAN_COLOUR, 2.4) if number == 0 else (SAMPLE_COLOUR, 1.0)
        axes.plot(seconds, [window.ego.speed_mps, *sample.speeds_mps], color=colour, linewidth=linewidth)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, max(0.0, high - 2.0)), max(high, low + 2.0))
    axes.set_title("speed [m/s] over time [s]", fontsize=10.5, loc="left", pad=4)
    axes.grid(color="#dee2e6", linewidth=0.7)
    axes.set_axisbelow(True)


def _draw_reasoning(axes: Axes, reasoning: ReasoningText) -> None:
    lines = wrap(printable(reasoning.text), TEXT_COLUMNS) or ["(empty)"]
    if len(lines) > TEXT_LINES:
        lines = [*lines[: TEXT_LINES - 1], lines[TEXT_LINES - 1][: TEXT_COLUMNS - 2] + " …"]
    title = "reasoning (cut off by the token budget)" if reasoning.truncated else "reasoning"
    _draw_lines(axes, title, lines, fontsize=11)


def _draw_notes(axes: Axes, plan: Plan, weights: str) -> None:
    lines = [f"planned in {plan.timing.total_ms:.0f} ms", f"{len(plan.trajectories)} sample(s)"]
    for note in [f"weights: {weights}" if weights else "", *map(str, plan.warnings)]:
        lines += wrap(printable(note), NOTE_COLUMNS)
    _draw_lines(axes, "notes", lines[:NOTE_LINES], fontsize=9.5)


def _draw_lines(axes: Axes, title: str, lines: list[str], fontsize: float) -> None:
    axes.set_axis_off()
    axes.set_title(title, fontsize=10.5, loc="left", pad=4)
    # parse_math off: a '$' in generated text would start a formula.
    axes.text(0, 0.96, "\n".join(lines), va="top", fontsize=fontsize, transform=axes.transAxes, parse_math=False)
