"""Randomness of a stream: counter-based, so that it is a function of seed and index and a replay is bit-identical."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_TOKENS, _FLOW = 0, 1  # independent streams of one seed


def token_noise(seed: int, count: int) -> NDArray[np.float32]:
    """[count] uniforms in (0, 1), one for each reasoning position, the same in every window of a stream.

    An unchanged scene then repeats its text, while each window's text has the model's distribution (DESIGN 4).
    """
    generator = np.random.Generator(np.random.Philox(key=[seed, _TOKENS]))
    return ((generator.integers(0, 1 << 23, count) + 0.5) / (1 << 23)).astype(np.float32)


def flow_noise(seed: int, window_id: int, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    """Standard normal noise of one window's flow, [samples, waypoints, 2]."""
    # the counter's upper words are the window's, the lower ones count draws within it
    generator = np.random.Generator(np.random.Philox(key=[seed, _FLOW], counter=[0, 0, window_id, 0]))
    return generator.standard_normal(shape, dtype=np.float32)
