"""The unicycle action space: accelerations and curvatures to waypoints, and the speed they start from.

All of it is float64 numpy on the host. Frame: base_link at t0 (x forward, y left, z up).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.model.config import ActionConfig
from flashdrive_ros.plan import Waypoints
from flashdrive_ros.rotations import yaw_quaternion
from flashdrive_ros.window import EgoHistory

SMOOTHNESS = 1e-6
"""Weight of the squared third differences of the speeds, before division by dt**6."""
RIDGE = 1e-4
THIRD_DIFFERENCE = (-1.0, 3.0, -3.0, 1.0)


def denormalise(actions: NDArray[np.floating], config: ActionConfig) -> NDArray[np.float64]:
    """Network output [..., 2] to (acceleration m/s2, curvature 1/m), float64."""
    std, mean = _scale(config)
    return np.asarray(actions, np.float64) * std + mean


def normalise(actions: NDArray[np.floating], config: ActionConfig) -> NDArray[np.float64]:
    """(acceleration m/s2, curvature 1/m) [..., 2] to the network's scale, float64."""
    std, mean = _scale(config)
    return (np.asarray(actions, np.float64) - mean) / std


def rollout(actions: NDArray[np.floating], v0_mps: float, config: ActionConfig) -> Waypoints:
    """Drive the unicycle from the origin with normalised actions [n, 2]; point k is at t0 + (k + 1) dt.

    Speeds and headings are exact for constant acceleration within a step, positions use the trapezoid rule. Nothing is
    limited here: values that are not finite or not drivable come out as they are and are the guard's to refuse.
    """
    dt = config.dt_s
    with np.errstate(over="ignore", invalid="ignore"):
        acceleration, curvature = denormalise(actions, config).T
        speed = np.concatenate([[v0_mps], v0_mps + np.cumsum(acceleration) * dt])
        heading = np.concatenate([[0.0], np.cumsum(curvature * (speed[:-1] * dt + acceleration * dt**2 / 2))])
        velocity = speed[:, None] * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
        path = np.cumsum(velocity[:-1] + velocity[1:], axis=0) * (dt / 2)
        return Waypoints(
            positions_m=np.concatenate([path, np.zeros((len(path), 1))], axis=-1),
            quaternions_xyzw=yaw_quaternion(heading[1:]),
            speeds_mps=speed[1:],
            accelerations_mps2=acceleration,
            curvatures_radpm=curvature,
        )


def initial_speed_mps(history: EgoHistory, dt_s: float) -> float:
    """Signed forward speed at t0, the last of the n speeds that best explain the history.

    Least squares over the speeds v of `v_k u_k + v_(k+1) u_(k+1) = 2 (p_(k+1) - p_k) / dt`, u = (cos, sin) of the
    heading, with third-order smoothness and a small ridge, which takes 0.006 % off a constant speed.
    """
    positions = np.asarray(history.positions_m, np.float64)[:, :2]
    rotations = np.asarray(history.rotations, np.float64)
    count = len(positions)
    heading = np.unwrap(np.arctan2(rotations[:, 1, 0], rotations[:, 0, 0]))
    direction = np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    step = np.arange(count - 1)
    trapezoid = np.zeros((count - 1, 2, count))
    trapezoid[step, :, step] = direction[:-1]
    trapezoid[step, :, step + 1] = direction[1:]
    matrix = trapezoid.reshape(-1, count)
    target = (2.0 * np.diff(positions, axis=0) / dt_s).reshape(-1)
    third = np.zeros((max(count - 3, 0), count))
    for offset, weight in enumerate(THIRD_DIFFERENCE):
        third[np.arange(len(third)), np.arange(len(third)) + offset] = weight
    normal = matrix.T @ matrix + SMOOTHNESS / dt_s**6 * third.T @ third + RIDGE * np.eye(count)
    factor = np.linalg.cholesky(normal)
    speeds = np.linalg.solve(factor.T, np.linalg.solve(factor, matrix.T @ target))
    return float(speeds[-1])


def _scale(config: ActionConfig) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    std = np.array([config.acceleration_std, config.curvature_std])
    mean = np.array([config.acceleration_mean, config.curvature_mean])
    return std, mean
