"""Tensor operators that every stage shares, each with one ONNX counterpart.

`cache_write` is a torch custom operator because ONNX has a native one (TensorScatter) that TensorRT and onnxruntime
perform in place; `rotate` and `attend` map to RotaryEmbedding and Attention of opset 24.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Rotation(NamedTuple):
    """cos and sin of the rotary angles of n rows, each [1, n, head_dim / 2]."""

    cos: Tensor
    sin: Tensor


@torch.library.custom_op("flashdrive::cache_write", mutates_args=())
def cache_write(cache: Tensor, update: Tensor, write_slot: Tensor) -> Tensor:
    """`cache` [1, heads, slots, head_dim] with `update` [1, heads, n, head_dim] written from `write_slot` on.

    `write_slot` is an int64 tensor [1], so that the slot is data and not part of the graph.
    """
    rows = write_slot + torch.arange(update.shape[2], device=update.device)
    return cache.index_copy(2, rows, update)


@cache_write.register_fake
def _(cache: Tensor, update: Tensor, write_slot: Tensor) -> Tensor:
    return torch.empty_like(cache)


def angle_dtype(dtype: torch.dtype) -> torch.dtype:
    """Angles are computed in float32 (float64 in float64 references), never in half precision."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def inverse_frequencies(head_dim: int, theta: float, device: torch.device) -> Tensor:
    """theta^(-2i / head_dim) for i = 0 ... head_dim / 2 - 1, float64."""
    return theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim)


def mrope_axes(section: tuple[int, int, int]) -> list[int]:
    """Axis (0 t, 1 h, 2 w) that each rotary frequency follows: interleaved t, h, w, then t alone (spec A.2)."""
    _, height, width = section
    axes = [0] * sum(section)
    for axis, count in ((1, height), (2, width)):
        for index in range(axis, 3 * count, 3):
            axes[index] = axis
    return axes


def mrope_rotation(position: Tensor, section: tuple[int, int, int], theta: float, dtype: torch.dtype) -> Rotation:
    """Rotation of rows at `position` [3, n] (t, h, w)."""
    axes = torch.tensor(mrope_axes(section), device=position.device)
    frequencies = inverse_frequencies(2 * sum(section), theta, position.device).to(angle_dtype(dtype))
    angles = position.to(angle_dtype(dtype))[axes].transpose(0, 1) * frequencies
    return Rotation(angles.cos().to(dtype)[None], angles.sin().to(dtype)[None])


def rotate(rows: Tensor, rotation: Rotation) -> Tensor:
    """Rotate `rows` [b, heads, n, head_dim], rotate-half convention (first half with second half)."""
    if torch.onnx.is_in_onnx_export():
        # one native operator in the graph; it has no gradient, so that training takes the plain form
        return torch.onnx.ops.rotary_embedding(rows, rotation.cos, rotation.sin)
    first, second = rows.chunk(2, dim=-1)
    cos, sin = rotation.cos[:, None], rotation.sin[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def attend(query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None) -> Tensor:
    """Grouped-query attention of `query` [b, Hq, r, d] on `key` and `value` [b, Hkv, s, d].

    `visible` bool [r, s] is True where a row sees a slot; None where all see all.
    """
    mask = None if visible is None else visible[None, None]
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, enable_gqa=query.shape[1] != key.shape[1]
    )


def split_heads(rows: Tensor, heads: int) -> Tensor:
    """[n, heads * d] to [1, heads, n, d]."""
    return rows.view(1, rows.shape[0], heads, -1).transpose(1, 2)


def merge_heads(rows: Tensor) -> Tensor:
    """[1, heads, n, d] to [n, heads * d]."""
    return rows.transpose(1, 2).reshape(rows.shape[2], -1)
