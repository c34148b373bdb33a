"""Pictures to patches against a plain loop and against the published image processor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashdrive_ros.model.config import ALPAMAYO_1_5, NANO, VisionConfig
from flashdrive_ros.model.images import patchify, resize


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Coarse shapes and fine noise, so that every kind of resampling fault shows."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = 127 + 80 * np.sin(x / 7)[..., None] * np.cos(y / 11)[..., None] * random.uniform(0.3, 1, 3)
    return np.clip(waves + random.normal(0, 25, (height, width, 3)), 0, 255).astype(np.uint8)


def sized(height: int, width: int, **changes) -> VisionConfig:
    return replace(NANO.vision, image_height=height, image_width=width, **changes)


def plain_patches(image: np.ndarray, config: VisionConfig) -> list[list[float]]:
    """One value after the other, in the published order."""
    size = config.patch
    patches = []
    for block_y in range(0, image.shape[0], 2 * size):
        for block_x in range(0, image.shape[1], 2 * size):
            for row in range(2):
                for column in range(2):
                    top, left = block_y + row * size, block_x + column * size
                    patches.append(
                        [
                            (float(image[top + y, left + x, channel]) / 255 - 0.5) / 0.5
                            for channel in range(3)
                            for _ in range(config.temporal_patch)
                            for y in range(size)
                            for x in range(size)
                        ]
                    )
    return patches


@pytest.mark.parametrize(("height", "width"), [(16, 24), (24, 8), (8, 8)])
def test_patches_equal_a_plain_loop(height: int, width: int):
    config = sized(height, width, patch=4)
    images = np.stack([picture(height, width, seed) for seed in range(3)])
    expected = np.concatenate([plain_patches(image, config) for image in images])
    found = patchify(images, config)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=3e-7)


def test_black_and_white_are_the_ends_of_the_range():
    ends = np.zeros((2, 32, 32, 3), np.uint8)
    ends[1] = 255
    found = patchify(ends, sized(32, 32))
    np.testing.assert_array_equal(found[:4], -1)
    np.testing.assert_array_equal(found[4:], 1)


def test_a_picture_of_the_right_size_is_left_alone():
    pixels = picture(96, 160)
    np.testing.assert_array_equal(resize(pixels, NANO.vision), pixels)


def test_resizing_keeps_a_plain_colour():
    pixels = np.broadcast_to(np.array([200, 40, 7], np.uint8), (77, 133, 3)).copy()
    found = resize(pixels, NANO.vision)
    assert found.shape == (96, 160, 3)
    assert (found == [200, 40, 7]).all()


@settings(max_examples=25)
@given(st.integers(40, 400), st.integers(40, 400), st.integers(0, 5))
def test_patches_of_any_picture_are_the_published_ones(height: int, width: int, seed: int):
    published = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    target = published.smart_resize(height, width, factor=32, min_pixels=64 * 64, max_pixels=128 * 160)
    assert_published(picture(height, width, seed), *target, 64 * 64, 128 * 160)


@pytest.mark.parametrize(("height", "width"), [(1080, 1920), (560, 1008), (320, 576)])
def test_camera_pictures_have_the_size_and_patches_of_alpamayo(height: int, width: int):
    vision = ALPAMAYO_1_5.vision
    assert_published(picture(height, width), vision.image_height, vision.image_width, 163840, 196608)


def assert_published(pixels: np.ndarray, height: int, width: int, min_pixels: int, max_pixels: int) -> None:
    """Both resize with Pillow to the same bytes; the scaling to [-1, 1] differs by the order of its operations."""
    published = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    processor = published.Qwen2VLImageProcessorPil(
        patch_size=16,
        merge_size=2,
        temporal_patch_size=2,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        size={"shortest_edge": min_pixels, "longest_edge": max_pixels},
    )
    theirs = processor(images=[pixels], return_tensors="np")
    assert theirs["image_grid_thw"].tolist() == [[1, height // 16, width // 16]]
    config = sized(height, width)
    found = patchify(resize(pixels, config)[None], config)
    np.testing.assert_allclose(found, theirs["pixel_values"], atol=1e-6)
