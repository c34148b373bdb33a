"""A model of the real structure that is small enough for float64 and for many configurations of it.

Whatever could hide behind equal numbers is unequal: KV heads, M-RoPE sections, image sides, widths, deepstack blocks.
"""

from __future__ import annotations

import re

import torch

from flashdrive_ros.model.config import (
    ActionConfig,
    DrafterConfig,
    ExpertConfig,
    ModelConfig,
    PromptConfig,
    TextConfig,
    TokenIds,
    VisionConfig,
)
from flashdrive_ros.model.network import Network, seeded_network
from flashdrive_ros.model.prompt import build_prompt
from flashdrive_ros.streaming.layout import Layout, build_layout

WORDS = 40
"""Ids below are text."""

TINY = ModelConfig(
    name="tiny",
    vision=VisionConfig(
        depth=5, hidden=24, heads=2, mlp=40, deepstack_blocks=(0, 2, 3), image_height=16, image_width=24, patch=4,
        position_grid=7,
    ),
    text=TextConfig(
        layers=5, hidden=40, query_heads=6, kv_heads=3, head_dim=16, mlp=56, vocabulary=100, mrope_section=(4, 3, 1)
    ),
    expert=ExpertConfig(hidden=24, query_heads=6, mlp=32, text_layer=(0, 1, 3, 4), projection_hidden=20),
    drafter=DrafterConfig(
        layers=2, query_heads=4, kv_heads=2, head_dim=8, mlp=32, tapped_layers=(1, 4), block=4, context_rows=3
    ),
    tokens=TokenIds(
        pad=40,
        im_start=41,
        im_end=42,
        vision_start=43,
        vision_end=44,
        image_pad=45,
        trajectory_first=60,
        trajectory_count=40,
        history_first=60,
        history_start=46,
        history_end=47,
        cot_start=48,
        cot_end=49,
        future_start=50,
        route_start=51,
        route_end=52,
    ),
    prompt=PromptConfig(
        cameras=(1, 2, 6),
        frames=4,
        system_text="Go.",
        request_text="Why?",
        camera_label="{name}:",
        frame_label=" {index}",
        history_steps=2,
        history_bins=40,
        route_capacity=7,
        reasoning_capacity=9,
        draft_capacity=6,
    ),
    action=ActionConfig(waypoints=5, flow_steps=8),
)  # fmt: skip


def encode(text: str) -> list[int]:
    """A tokenizer of whole words: a checksum each."""
    return [sum(word.encode()) % WORDS for word in re.findall(r"\s*\S+|\s+", text)]


def layout_of(config: ModelConfig) -> Layout:
    """The layout of `config` with that tokenizer."""
    return build_layout(config, build_prompt(config, encode))


def rough_network(config: ModelConfig, seed: int, dtype: torch.dtype) -> Network:
    """Seeded weights in which norms are not one and biases not zero, so that none of them can be forgotten unseen."""
    network = seeded_network(config, seed, dtype)
    generator = torch.Generator().manual_seed(seed + 1)
    for _, parameter in sorted(network.named_parameters()):
        if parameter.ndim == 1:
            parameter += 0.3 * torch.empty(parameter.shape, dtype=dtype).normal_(generator=generator)
    return network
