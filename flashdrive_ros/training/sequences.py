"""Token sequences of a batch of windows for training: ids, orders and positions, whole or as a stream sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from flashdrive_ros.model.config import ModelConfig
from flashdrive_ros.model.prompt import Prompt
from flashdrive_ros.model.tokens import Encode
from flashdrive_ros.streaming.layout import EMPTY, Layout
from flashdrive_ros.training.batched import Places


class Tokens(NamedTuple):
    """Text and image tokens of some rows of every window."""

    ids: Tensor
    """[B, n]"""
    places: Places
    image: Tensor
    """[n] image token of a row within the images of the pass, -1 on text."""
    image_tokens: int
    """How many there are."""


@dataclass(frozen=True)
class PromptTables:
    """The constant parts of a model's prompt on a device."""

    static: Tokens
    """Labels and system prompt, batch 1."""
    frames: Tokens
    """All frames by view, then age; batch 1. Images are numbered view by view, oldest first."""
    newest: Tokens
    """The newest frame of every view; batch 1. Images are numbered by view."""
    ages: tuple[Places, ...]
    """Places of one frame of every view for each age, oldest first; batch 1."""
    before_route: Tensor
    """[50] ids, history bins at 1 ... 48."""
    after_route: Tensor
    tail_order: int
    tail_position: int


def prompt_tables(prompt: Prompt, layout: Layout, device: torch.device) -> PromptTables:
    """Tables of `prompt` as `layout` places it."""

    def tensor(values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, device=device)

    def frames(order: np.ndarray, position: np.ndarray) -> Tokens:
        """`order` [images, T] and `position` [images, 3, T] of consecutive images."""
        count, length = order.shape
        image = np.full((count, length), -1, np.int64)
        image[:, 1:-1] = np.arange(count * layout.image_tokens).reshape(count, -1)
        places = Places(tensor(order.reshape(1, -1)), tensor(position.transpose(1, 0, 2).reshape(1, 3, -1)))
        ids = tensor(np.tile(layout.frame_ids, count))[None]
        return Tokens(ids, places, tensor(image.reshape(-1)), count * layout.image_tokens)

    every_order = layout.frame_order.reshape(layout.views * layout.frames, -1)
    every_position = layout.frame_position.reshape(layout.views * layout.frames, 3, -1)
    static_places = Places(tensor(layout.static_order)[None], tensor(layout.static_position)[None])
    no_image = torch.full((len(layout.static_ids),), -1, dtype=torch.int64, device=device)
    return PromptTables(
        static=Tokens(tensor(layout.static_ids)[None], static_places, no_image, 0),
        frames=frames(every_order, every_position),
        newest=frames(layout.frame_order[:, -1], layout.frame_position[:, -1]),
        ages=tuple(
            frames(layout.frame_order[:, age], layout.frame_position[:, age]).places for age in range(layout.frames)
        ),
        before_route=tensor(prompt.tail_before_route),
        after_route=tensor(prompt.tail_after_route),
        tail_order=layout.tail_order,
        tail_position=layout.tail_position,
    )


def history_ids(positions_m: Tensor, config: ModelConfig) -> Tensor:
    """[B, 3 * steps] ids of ego histories [B, steps, 3], as model.tokens.history_token_ids makes them."""
    prompt = config.prompt
    steps = torch.diff(positions_m.double(), dim=1, prepend=torch.zeros_like(positions_m[:, :1]).double())
    low = torch.tensor(prompt.history_min_m, dtype=torch.float64, device=positions_m.device)
    high = torch.tensor(prompt.history_max_m, dtype=torch.float64, device=positions_m.device)
    bins = torch.round((steps - low) / (high - low) * (prompt.history_bins - 1))
    return bins.clamp(0, prompt.history_bins - 1).long().flatten(1) + config.tokens.history_first


def padded_ids(texts: list[list[int]], width: int, device: torch.device) -> Tensor:
    """[B, width] ids, -1 where a text is shorter; a longer one is an error of the caller."""
    rows = np.full((len(texts), width), -1, np.int64)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = text
    return torch.as_tensor(rows, device=device)


def route_ids(text: str, config: ModelConfig, encode: Encode) -> list[int]:
    """Ids of a route with its delimiters; empty when there is none or when it does not fit."""
    ids = [config.tokens.route_start, *encode(text), config.tokens.route_end] if text else []
    return ids if len(ids) <= config.prompt.route_capacity else []


def tail_tokens(tables: PromptTables, history: Tensor, route: Tensor, reasoning: Tensor, pad_id: int) -> Tokens:
    """Tail and reasoning of a batch: `history` [B, 48] ids, `route` and `reasoning` padded with -1.

    Padding is seen by nobody, as in the ring.
    """
    batch = len(history)
    before = tables.before_route.expand(batch, -1)
    before = torch.cat([before[:, :1], history, before[:, -1:]], 1)
    ids = torch.cat([before, route, tables.after_route.expand(batch, -1), reasoning], 1)
    used = ids >= 0
    steps = torch.cumsum(used.long(), 1) - 1
    order = torch.where(used, tables.tail_order + steps, int(EMPTY))
    position = torch.where(used, tables.tail_position + steps, 0)
    image = torch.full((ids.shape[1],), -1, dtype=torch.int64, device=ids.device)
    return Tokens(torch.where(used, ids, pad_id), Places(order, position[:, None].expand(-1, 3, -1)), image, 0)


def joined(batch: int, *parts: Tokens) -> Tokens:
    """The rows of several parts one after the other, for `batch` windows; images number on."""
    ids = torch.cat([part.ids.expand(batch, -1) for part in parts], 1)
    order = torch.cat([part.places.order.expand(batch, -1) for part in parts], 1)
    position = torch.cat([part.places.position.expand(batch, -1, -1) for part in parts], 2)
    images, offset = [], 0
    for part in parts:
        images.append(torch.where(part.image >= 0, part.image + offset, -1))
        offset += part.image_tokens
    return Tokens(ids, Places(order, position), torch.cat(images), offset)


def embedded(
    embedding: torch.nn.Module, tokens: Tokens, embeds: Tensor, deepstack: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Rows [B, n, hidden] and the deepstack additions to them.

    `embeds` [B, images, hidden] and `deepstack` [3, B, images, hidden] are the image tokens that `tokens.image` counts.
    """
    is_image = (tokens.image >= 0)[None, :, None]
    source = tokens.image.clamp(min=0)
    rows = torch.where(is_image, embeds[:, source], embedding(tokens.ids).to(embeds.dtype))
    return rows, [torch.where(is_image, level[:, source], 0.0) for level in deepstack.unbind(0)]
