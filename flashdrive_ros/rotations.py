"""Quaternions (x, y, z, w) in float64 numpy; all functions broadcast over leading axes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def quaternion_multiply(a: Array, b: Array) -> Array:
    """Hamilton product a * b of [..., 4] quaternions: the rotation b first, then a."""
    ax, ay, az, aw = np.moveaxis(np.asarray(a, np.float64), -1, 0)
    bx, by, bz, bw = np.moveaxis(np.asarray(b, np.float64), -1, 0)
    return np.stack(
        [
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
            aw * bw - ax * bx - ay * by - az * bz,
        ],
        axis=-1,
    )


def rotate(quaternion_xyzw: Array, vectors: Array) -> Array:
    """Rotate [..., 3] vectors by one unit quaternion [4]."""
    return np.asarray(vectors, np.float64) @ rotation_matrix(quaternion_xyzw).T


def rotation_matrix(quaternion_xyzw: Array) -> Array:
    """[..., 3, 3] rotation matrices of [..., 4] unit quaternions."""
    x, y, z, w = np.moveaxis(np.asarray(quaternion_xyzw, np.float64), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def slerp(a: Array, b: Array, fraction: float) -> Array:
    """Spherical interpolation between unit quaternions [4]; the shorter way round, nlerp where they nearly agree."""
    dot = float(np.dot(a, b))
    if dot < 0.0:
        b, dot = -b, -dot
    if dot > 0.9995:
        mixed = a + fraction * (b - a)
        return mixed / np.linalg.norm(mixed)
    angle = np.arccos(dot)
    return (np.sin((1 - fraction) * angle) * a + np.sin(fraction * angle) * b) / np.sin(angle)


def yaw_quaternion(yaw_rad: Array) -> Array:
    """[..., 4] quaternions of rotations about z."""
    half = np.asarray(yaw_rad, np.float64) / 2
    zero = np.zeros_like(half)
    return np.stack([zero, zero, np.sin(half), np.cos(half)], axis=-1)


def yaw_of(quaternion_xyzw: Array) -> Array:
    """Heading about z of [..., 4] unit quaternions, radians in (-pi, pi]."""
    x, y, z, w = np.moveaxis(np.asarray(quaternion_xyzw, np.float64), -1, 0)
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
