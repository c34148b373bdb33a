"""The network over batches of windows, for training: the same modules as the stages, many windows at once.

A pass has rows and, in front of them, keys and values that are already there. Everything else is the ring's rule: a row
sees a key iff key_order <= row_order, and keys are rotated by their position when they are read.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from flashdrive_ros.model.config import ModelConfig, VisionConfig
from flashdrive_ros.model.expert import sample_visibility
from flashdrive_ros.model.language import LanguageModel
from flashdrive_ros.model.network import Network
from flashdrive_ros.model.operators import Rotation, mrope_rotation, rotate

KeyValue = tuple[Tensor, Tensor]
"""Keys before RoPE and values of one layer, each [B, kv_heads, n, head_dim]."""


class Places(NamedTuple):
    """Where tokens stand."""

    order: Tensor
    """[B, n]"""
    position: Tensor
    """[B, 3, n]"""

    def then(self, other: Places) -> Places:
        """These and the tokens of `other` behind them."""
        return Places(torch.cat([self.order, other.order], 1), torch.cat([self.position, other.position], 2))


def patchify(images: Tensor, config: VisionConfig) -> Tensor:
    """uint8 [n, height, width, 3] to [n * patches, patch_values] in [-1, 1], as model.images.patchify does in numpy."""
    rows, columns = config.grid
    merge, patch = config.merge, config.patch
    values = images.to(torch.float32) / 127.5 - 1.0
    blocks = values.view(-1, rows // merge, merge, patch, columns // merge, merge, patch, 3)
    stills = blocks.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(-1, 3, 1, patch * patch)
    return stills.expand(-1, -1, config.temporal_patch, -1).reshape(-1, config.patch_values)


def _rotation(language: LanguageModel, position: Tensor, dtype: torch.dtype) -> Rotation:
    """Rotation of rows at `position` [B, 3, n]."""
    batch, _, count = position.shape
    flat = mrope_rotation(
        position.transpose(0, 1).reshape(3, -1), language.config.mrope_section, language.config.rope_theta, dtype
    )
    return Rotation(flat.cos.view(batch, count, -1), flat.sin.view(batch, count, -1))


def _heads(values: Tensor, head_dim: int) -> Tensor:
    """[B, n, heads * head_dim] to [B, heads, n, head_dim]."""
    return values.view(*values.shape[:2], -1, head_dim).transpose(1, 2)


def _query_key_value(layer: nn.Module, normed: Tensor, head_dim: int) -> tuple[Tensor, Tensor, Tensor]:
    attention = layer.self_attn
    query = attention.q_norm(_heads(attention.q_proj(normed), head_dim))
    key = attention.k_norm(_heads(attention.k_proj(normed), head_dim))
    return query, key, _heads(attention.v_proj(normed), head_dim)


def _finish(layer: nn.Module, rows: Tensor, query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> Tensor:
    """Attention, output projection, residual, MLP, residual."""
    attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=visible, enable_gqa=True)
    rows = rows + layer.self_attn.o_proj(attended.transpose(1, 2).flatten(2))
    return rows + layer.mlp(layer.post_attention_layernorm(rows))


def text_pass(
    language: LanguageModel,
    rows: Tensor,
    deepstack: list[Tensor],
    places: Places,
    past: list[KeyValue] | None = None,
    past_places: Places | None = None,
) -> tuple[Tensor, list[KeyValue]]:
    """Final hidden states of `rows` [B, R, hidden] and the keys and values of past and rows, layer by layer."""
    keys_at = places if past_places is None else past_places.then(places)
    visible = (keys_at.order[:, None, :] <= places.order[:, :, None])[:, None]
    row_rotation = _rotation(language, places.position, rows.dtype)
    key_rotation = _rotation(language, keys_at.position, rows.dtype)
    kept: list[KeyValue] = []
    head_dim = language.config.head_dim
    for index, layer in enumerate(language.layers):
        query, key, value = _query_key_value(layer, layer.input_layernorm(rows), head_dim)
        if past is not None:
            key = torch.cat([past[index][0].to(key.dtype), key], dim=2)
            value = torch.cat([past[index][1].to(value.dtype), value], dim=2)
        kept.append((key, value))
        query, key = rotate(query, row_rotation), rotate(key, key_rotation)
        rows = _finish(layer, rows, query, key, value, visible)
        if index < len(deepstack):
            rows = rows + deepstack[index]
    return language.norm(rows), kept


def velocity(
    network: Network,
    actions: Tensor,
    time: Tensor,
    context: list[KeyValue],
    context_places: Places,
    expert_order: Tensor,
    first_position: Tensor,
) -> Tensor:
    """Flow velocity [B, K, waypoints, 2] at `actions` [B, K, waypoints, 2] and `time` [B, K].

    `expert_order` [B] is the order of future_start, `first_position` [B] the position after it.
    """
    config = network.config
    language = network.vlm.model.language_model
    batch, samples, waypoints, _ = actions.shape
    count = samples * waypoints
    steps = torch.arange(waypoints, device=actions.device).repeat(samples)
    position = (first_position[:, None] + steps)[:, None].expand(-1, 3, -1)
    times = time[:, :, None].expand(-1, -1, waypoints)
    rows = network.action_in_proj(actions.reshape(-1, 2), times.reshape(-1)).view(batch, count, -1)
    rotation = _rotation(language, position, rows.dtype)
    context_rotation = _rotation(language, context_places.position, rows.dtype)
    seen = (context_places.order <= expert_order[:, None])[:, None, :].expand(-1, count, -1)
    own = sample_visibility(samples, waypoints, actions.device).expand(batch, -1, -1)
    visible = torch.cat([seen, own], dim=2)[:, None]
    head_dim = config.text.head_dim
    for layer, source in zip(network.expert.layers, config.expert.text_layer, strict=True):
        context_key, context_value = context[source]
        query, key, value = _query_key_value(layer, layer.input_layernorm(rows), head_dim)
        key = torch.cat([rotate(context_key.to(key.dtype), context_rotation), rotate(key, rotation)], dim=2)
        value = torch.cat([context_value.to(value.dtype), value], dim=2)
        rows = _finish(layer, rows, rotate(query, rotation), key, value, visible)
    return network.action_out_proj(network.expert.norm(rows)).view(actions.shape)


def image_features(network: Network, images: Tensor, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """uint8 [B, images, height, width, 3] to tokens [B, images * image_tokens, hidden] and deepstack [3, B, ...]."""
    batch, count = images.shape[:2]
    patches = patchify(images.flatten(0, 1), config.vision)
    embeds, deepstack = network.vlm.model.visual(patches)
    tokens = count * config.vision.image_tokens
    return embeds.view(batch, tokens, -1), deepstack.view(deepstack.shape[0], batch, tokens, -1)
