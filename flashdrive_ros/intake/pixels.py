"""The one picture type of the intake."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Pixels: TypeAlias = NDArray[np.uint8]
"""[height, width, channels]; RGB, sensor orientation, once decoded."""
