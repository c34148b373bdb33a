"""The text decoder over a KV ring: keys are stored before RoPE and rotated when they are read (DESIGN 2).

Module and parameter names are those of the published checkpoints (spec A.13), so that a checkpoint loads as it is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from flashdrive_ros.model.config import TextConfig
from flashdrive_ros.model.operators import (
    Rotation,
    attend,
    cache_write,
    merge_heads,
    mrope_rotation,
    rotate,
    split_heads,
)


class RingTables(NamedTuple):
    """Where rows are written and what they see; all int64."""

    write_slot: Tensor
    """[1] slot of row 0; row i goes to slot write_slot + i."""
    row_order: Tensor
    """[R] a row sees a slot iff slot_order <= row_order."""
    row_position: Tensor
    """[3, R] M-RoPE positions of the rows."""
    slot_order: Tensor
    """[S]"""
    slot_position: Tensor
    """[3, S]"""


class Caches(NamedTuple):
    """Keys (after k_norm, before RoPE) and values of every text layer, each [1, kv_heads, S, head_dim]."""

    keys: list[Tensor]
    values: list[Tensor]


class TextOutput(NamedTuple):
    """What one pass over some rows gives."""

    hidden: Tensor
    """[R, hidden] after the final norm."""
    layer_outputs: list[Tensor]
    """[R, hidden] after each layer, before the final norm."""
    caches: Caches


class Attention(nn.Module):
    """Projections and head norms of one layer."""

    def __init__(self, hidden: int, query_heads: int, kv_heads: int, head_dim: int, norm_eps: float) -> None:
        super().__init__()
        self.query_heads = query_heads
        self.kv_heads = kv_heads
        self.q_proj = nn.Linear(hidden, query_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(query_heads * head_dim, hidden, bias=False)
        self.q_norm = nn.RMSNorm(head_dim, eps=norm_eps)
        self.k_norm = nn.RMSNorm(head_dim, eps=norm_eps)

    def query(self, rows: Tensor) -> Tensor:
        """[1, query_heads, n, head_dim], normalised, not rotated."""
        return self.q_norm(split_heads(self.q_proj(rows), self.query_heads))

    def key(self, rows: Tensor) -> Tensor:
        """[1, kv_heads, n, head_dim], normalised, not rotated."""
        return self.k_norm(split_heads(self.k_proj(rows), self.kv_heads))

    def value(self, rows: Tensor) -> Tensor:
        """[1, kv_heads, n, head_dim]"""
        return split_heads(self.v_proj(rows), self.kv_heads)


class SwiGlu(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden: int, mlp: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, mlp, bias=False)
        self.up_proj = nn.Linear(hidden, mlp, bias=False)
        self.down_proj = nn.Linear(mlp, hidden, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(rows)) * self.up_proj(rows))


class DecoderLayer(nn.Module):
    """Weights of one pre-norm decoder layer; who attends to what is the caller's affair."""

    def __init__(self, hidden: int, query_heads: int, kv_heads: int, head_dim: int, mlp: int, norm_eps: float) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(hidden, eps=norm_eps)
        self.self_attn = Attention(hidden, query_heads, kv_heads, head_dim, norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(hidden, eps=norm_eps)
        self.mlp = SwiGlu(hidden, mlp)

    def finish(self, rows: Tensor, attended: Tensor) -> Tensor:
        """Output projection, residual, MLP, residual."""
        rows = rows + self.self_attn.o_proj(merge_heads(attended))
        return rows + self.mlp(self.post_attention_layernorm(rows))


class LanguageModel(nn.Module):
    """Embedding, decoder layers and final norm."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(
            DecoderLayer(
                config.hidden, config.query_heads, config.kv_heads, config.head_dim, config.mlp, config.norm_eps
            )
            for _ in range(config.layers)
        )
        self.norm = nn.RMSNorm(config.hidden, eps=config.norm_eps)

    def rotation(self, position: Tensor, dtype: torch.dtype) -> Rotation:
        """Rotary tables for `position` [3, n]."""
        return mrope_rotation(position, self.config.mrope_section, self.config.rope_theta, dtype)

    def forward(self, rows: Tensor, deepstack: list[Tensor], tables: RingTables, caches: Caches) -> TextOutput:
        """Run `rows` [R, hidden] through all layers.

        `deepstack[i]` [R, hidden], zero on text rows, is added after layer i.
        """
        visible = tables.slot_order[None, :] <= tables.row_order[:, None]
        row_rotation = self.rotation(tables.row_position, rows.dtype)
        slot_rotation = self.rotation(tables.slot_position, rows.dtype)
        written = Caches([], [])
        outputs = []
        for index, layer in enumerate(self.layers):
            normed = layer.input_layernorm(rows)
            attention = layer.self_attn
            keys = cache_write(caches.keys[index], attention.key(normed), tables.write_slot)
            values = cache_write(caches.values[index], attention.value(normed), tables.write_slot)
            query = rotate(attention.query(normed), row_rotation)
            rows = layer.finish(rows, attend(query, rotate(keys, slot_rotation), values, visible))
            if index < len(deepstack):
                rows = rows + deepstack[index]
            written.keys.append(keys)
            written.values.append(values)
            outputs.append(rows)
        return TextOutput(self.norm(rows), outputs, written)
