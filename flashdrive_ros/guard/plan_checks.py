"""Checks of one trajectory before it may be published: what no car can do fails, what no passenger likes warns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.plan import Waypoints
from flashdrive_ros.reasons import Reason, Refusal
from flashdrive_ros.rotations import yaw_of
from flashdrive_ros.window import EgoPose

SOURCE = "plan"
Array = NDArray[np.float64]


@dataclass(frozen=True)
class PlanLimits:
    """Bounds of `check_waypoints`, each with where it comes from."""

    waypoints: int = 64
    dt_s: float = 0.1
    quaternion_norm: float = 1e-3
    """Largest |norm - 1|; rounding of float32 stays a thousand times below."""
    start_m: float = 0.1
    """Distance of the first point from where the measured speed leads, beyond what the speed bounds allow."""
    start_speed_mps: float = 1.0
    start_speed_ratio: float = 0.1
    """Measured speed and the model's estimate from the poses may differ by this much plus this share of the speed."""
    acceleration_mps2: float = 9.8
    """Between two waypoints: tyre friction of 1, the bound of the model family's action space."""
    speed_mps: float = 70.0
    """250 km/h, where production cars are limited."""
    reverse_mps: float = 0.5
    """Backward speed that passes as noise at standstill; a car measured backing may go on as fast as it does."""
    step_mps: float = 1.0
    step_ratio: float = 0.1
    """Distance of two waypoints over dt against their mean speed: chord against arc, and the trapezoid rule."""
    curvature_radpm: float = 0.33
    """A radius of 3 m, tighter than any car turns; the bound of the model family's action space."""
    curvature_from_mps: float = 1.0
    """Curvature means nothing for a car that hardly moves."""
    yaw_rate_radps: float = 3.0
    """Between two waypoints; twice the 0.33 1/m x 5 m/s of the tightest turn a car drives on dry asphalt."""
    lateral_mps2: float = 12.0
    """Mean over `lateral_window_s`: friction of 1.2, beyond road tyres."""
    lateral_window_s: float = 1.5
    """One waypoint's curvature is a 0.1 s command that a car's yaw inertia smooths; only its mean is a manoeuvre."""
    comfort_acceleration_mps2: float = 2.0
    comfort_deceleration_mps2: float = 3.5
    """Means over 2 s: ISO 15622 (adaptive cruise control) above 20 m/s."""
    comfort_window_s: float = 2.0
    comfort_lateral_mps2: float = 3.0
    """Mean over 0.5 s: UN R79 (automatically commanded steering)."""
    comfort_lateral_window_s: float = 0.5


DEFAULT_LIMITS = PlanLimits()


def check_waypoints(
    waypoints: Waypoints, ego: EgoPose, limits: PlanLimits = DEFAULT_LIMITS
) -> tuple[list[Refusal], list[Refusal]]:
    """(failures, warnings) of a trajectory in base_link at t0; a plan with failures must not be published.

    `ego` gives the measured forward speed at t0. A malformed plan (shape, a value that is not finite, a quaternion that
    is not unit) has that one failure only: nothing else can be judged.
    """
    # Finite values may still be as large as 1e308: what overflows is beyond every bound, and says so.
    with np.errstate(over="ignore", invalid="ignore"):
        malformed = _shape(waypoints, limits) or _finite(waypoints) or _unit_quaternions(waypoints, limits)
        if malformed is not None:
            return [malformed], []
        speeds = np.concatenate([[ego.speed_mps], waypoints.speeds_mps])
        yaws = np.unwrap(np.concatenate([[0.0], yaw_of(waypoints.quaternions_xyzw)]))
        misplaced = [_start(waypoints, ego.speed_mps, limits), _steps(waypoints, limits)]
        failures = [failure for failure in misplaced if failure is not None]
        failures += _speeds(speeds, waypoints.accelerations_mps2, limits)
        failures += _turning(waypoints, speeds, yaws, limits)
        return failures, list(_discomfort(speeds, yaws, limits))


def _shape(waypoints: Waypoints, limits: PlanLimits) -> Refusal | None:
    for name, width in (
        ("positions_m", (3,)),
        ("quaternions_xyzw", (4,)),
        ("speeds_mps", ()),
        ("accelerations_mps2", ()),
        ("curvatures_radpm", ()),
    ):
        found, expected = np.shape(getattr(waypoints, name)), (limits.waypoints, *width)
        if found != expected:
            return Refusal(Reason.PLAN_SHAPE, SOURCE, f"{name} {list(found)}, expected {list(expected)}")
    return None


def _finite(waypoints: Waypoints) -> Refusal | None:
    for name in ("positions_m", "quaternions_xyzw", "speeds_mps", "accelerations_mps2", "curvatures_radpm"):
        values = getattr(waypoints, name)
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            detail = f"{name} of point {bad[0][0]} is {values[bad[0][0]]}, {len(bad)} values are not finite"
            return Refusal(Reason.PLAN_NOT_FINITE, SOURCE, detail)
    return None


def _unit_quaternions(waypoints: Waypoints, limits: PlanLimits) -> Refusal | None:
    norms = np.linalg.norm(waypoints.quaternions_xyzw, axis=-1)
    worst = int(np.argmax(np.abs(norms - 1)))
    if abs(norms[worst] - 1) <= limits.quaternion_norm:
        return None
    return Refusal(Reason.PLAN_SHAPE, SOURCE, f"quaternion of point {worst} has norm {norms[worst]:.6g}, expected 1")


def _start(waypoints: Waypoints, speed_mps: float, limits: PlanLimits) -> Refusal | None:
    """The first point against base_link carried straight on for dt at the measured speed."""
    dt = limits.dt_s
    allowed = limits.start_m + _start_speed(speed_mps, limits) * dt + limits.acceleration_mps2 * dt**2 / 2
    distance = float(np.linalg.norm(waypoints.positions_m[0] - np.array([speed_mps * dt, 0.0, 0.0])))
    if distance <= allowed:
        return None
    detail = f"first point {distance:.2f} m from where {speed_mps:.2f} m/s lead in {dt:g} s, at most {allowed:.2f} m"
    return Refusal(Reason.PLAN_START, SOURCE, detail)


def _start_speed(speed_mps: float, limits: PlanLimits) -> float:
    return limits.start_speed_mps + limits.start_speed_ratio * abs(speed_mps)


def _speeds(speeds: Array, accelerations: Array, limits: PlanLimits) -> Iterable[Refusal]:
    """`speeds` [n + 1] starts with the measured one; `accelerations` [n] are those that the plan states."""
    first_allowed = limits.acceleration_mps2 * limits.dt_s + _start_speed(speeds[0], limits)
    if abs(speeds[1] - speeds[0]) > first_allowed:
        detail = f"first speed {speeds[1]:.2f} m/s, measured {speeds[0]:.2f} m/s, at most {first_allowed:.2f} apart"
        yield Refusal(Reason.PLAN_SPEED, SOURCE, detail)
    strongest = np.abs(accelerations)
    strongest[1:] = np.maximum(strongest[1:], np.abs(np.diff(speeds[1:])) / limits.dt_s)
    # A millionth more, so that the bound itself passes in float arithmetic.
    if strongest.max() > limits.acceleration_mps2 * (1 + 1e-6):
        worst = int(np.argmax(strongest))
        detail = f"acceleration {strongest[worst]:.2f} m/s2 to point {worst}, at most {limits.acceleration_mps2:g}"
        yield Refusal(Reason.PLAN_SPEED, SOURCE, detail)
    slowest, fastest = speeds[1:].min(), speeds[1:].max()
    backward = min(speeds[0], 0.0) - limits.reverse_mps
    if slowest < backward:
        detail = f"backward at {slowest:.2f} m/s, lowest allowed {backward:.2f} at {speeds[0]:.2f} m/s measured"
        yield Refusal(Reason.PLAN_SPEED, SOURCE, detail)
    if fastest > limits.speed_mps:
        yield Refusal(Reason.PLAN_SPEED, SOURCE, f"{fastest:.2f} m/s, at most {limits.speed_mps:g}")


def _steps(waypoints: Waypoints, limits: PlanLimits) -> Refusal | None:
    """Positions and speeds of neighbouring points must tell the same story."""
    driven = np.linalg.norm(np.diff(waypoints.positions_m, axis=0), axis=-1) / limits.dt_s
    speed = np.abs(waypoints.speeds_mps[:-1] + waypoints.speeds_mps[1:]) / 2
    excess = np.abs(driven - speed) - limits.step_mps - limits.step_ratio * speed
    worst = int(np.argmax(excess))
    if excess[worst] <= 0:
        return None
    detail = f"point {worst} to {worst + 1} is {driven[worst]:.2f} m/s apart at {speed[worst]:.2f} m/s"
    return Refusal(Reason.PLAN_SPEED, SOURCE, detail)


def _turning(waypoints: Waypoints, speeds: Array, yaws: Array, limits: PlanLimits) -> Iterable[Refusal]:
    moving = np.abs(waypoints.speeds_mps) > limits.curvature_from_mps
    curvature = np.where(moving, np.abs(waypoints.curvatures_radpm), 0.0)
    if curvature.max() > limits.curvature_radpm:
        worst = int(np.argmax(curvature))
        detail = f"curvature {curvature[worst]:.3f} 1/m to point {worst}, at most {limits.curvature_radpm:g}"
        yield Refusal(Reason.PLAN_CURVATURE, SOURCE, detail)
    yaw_rate = np.abs(np.diff(yaws)) / limits.dt_s
    if yaw_rate.max() > limits.yaw_rate_radps:
        worst = int(np.argmax(yaw_rate))
        detail = f"yaw rate {yaw_rate[worst]:.2f} rad/s to point {worst}, at most {limits.yaw_rate_radps:g}"
        yield Refusal(Reason.PLAN_CURVATURE, SOURCE, detail)
    lateral = _lateral(speeds, yaws, limits.lateral_window_s, limits)
    if lateral > limits.lateral_mps2:
        detail = f"{lateral:.2f} m/s2 sideways over {limits.lateral_window_s:g} s, at most {limits.lateral_mps2:g}"
        yield Refusal(Reason.PLAN_CURVATURE, SOURCE, detail)


def _discomfort(speeds: Array, yaws: Array, limits: PlanLimits) -> Iterable[Refusal]:
    points = _points(limits.comfort_window_s, limits)
    acceleration = (speeds[points:] - speeds[:-points]) / (points * limits.dt_s)
    if acceleration.max() > limits.comfort_acceleration_mps2 or -acceleration.min() > limits.comfort_deceleration_mps2:
        detail = (
            f"{acceleration.min():+.2f} to {acceleration.max():+.2f} m/s2 over {limits.comfort_window_s:g} s, "
            f"comfortable {-limits.comfort_deceleration_mps2:+g} to {limits.comfort_acceleration_mps2:+g}"
        )
        yield Refusal(Reason.PLAN_SPEED, SOURCE, detail)
    lateral = _lateral(speeds, yaws, limits.comfort_lateral_window_s, limits)
    if lateral > limits.comfort_lateral_mps2:
        window_s, comfortable = limits.comfort_lateral_window_s, limits.comfort_lateral_mps2
        detail = f"{lateral:.2f} m/s2 sideways over {window_s:g} s, comfortable {comfortable:g}"
        yield Refusal(Reason.PLAN_CURVATURE, SOURCE, detail)


def _lateral(speeds: Array, yaws: Array, window_s: float, limits: PlanLimits) -> float:
    """Largest mean lateral acceleration over the window: mean yaw rate times mean end speed, m/s2."""
    points = _points(window_s, limits)
    yaw_rate = (yaws[points:] - yaws[:-points]) / (points * limits.dt_s)
    return float(np.max(np.abs(yaw_rate * (speeds[points:] + speeds[:-points]) / 2)))


def _points(window_s: float, limits: PlanLimits) -> int:
    return max(1, min(round(window_s / limits.dt_s), limits.waypoints))
