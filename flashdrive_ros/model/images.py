"""Pictures to patches: resize, normalise, cut (spec A.3, A.4; the Qwen3-VL image processor). numpy and Pillow only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flashdrive_ros.model.config import VisionConfig


def resize(pixels: NDArray[np.uint8], config: VisionConfig) -> NDArray[np.uint8]:
    """[h, w, 3] to [image_height, image_width, 3], bicubic with antialiasing as the published processor."""
    if pixels.shape[:2] == (config.image_height, config.image_width):
        return pixels
    image = Image.fromarray(pixels)
    return np.asarray(image.resize((config.image_width, config.image_height), Image.Resampling.BICUBIC))


def patchify(images: NDArray[np.uint8], config: VisionConfig) -> NDArray[np.float32]:
    """[n, image_height, image_width, 3] to [n * patches, patch_values] in [-1, 1].

    A patch is (channel, time, y, x) with the still image repeated in time; the patches of a merge block are contiguous.
    """
    rows, columns = config.grid
    merge, patch = config.merge, config.patch
    values = (images.astype(np.float32) / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
    blocks = values.reshape(len(images), rows // merge, merge, patch, columns // merge, merge, patch, 3)
    ordered = blocks.transpose(0, 1, 4, 2, 5, 7, 3, 6)  # block row, block column, row, column, channel, y, x
    stills = ordered.reshape(-1, 3, 1, patch * patch)
    return np.repeat(stills, config.temporal_patch, axis=2).reshape(-1, config.patch_values)
