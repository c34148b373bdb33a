"""The DFlash block drafter (spec techniques 1.2, 1.3, 1.8): proposes the next block - 1 tokens in one pass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flashdrive_ros.model.config import DrafterConfig, TextConfig
from flashdrive_ros.model.language import DecoderLayer
from flashdrive_ros.model.operators import Rotation, angle_dtype, attend, inverse_frequencies, rotate


class Drafter(nn.Module):
    """Decoder layers over [context, block] without embedding or head; those are the text model's."""

    def __init__(self, config: DrafterConfig, text: TextConfig) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(len(config.tapped_layers) * text.hidden, text.hidden, bias=False)
        self.hidden_norm = nn.RMSNorm(text.hidden, eps=config.norm_eps)
        self.layers = nn.ModuleList(
            DecoderLayer(text.hidden, config.query_heads, config.kv_heads, config.head_dim, config.mlp, config.norm_eps)
            for _ in range(config.layers)
        )
        self.norm = nn.RMSNorm(text.hidden, eps=config.norm_eps)
        self.mask_embedding = nn.Parameter(torch.zeros(text.hidden))

    def forward(self, block: Tensor, context: Tensor) -> Tensor:
        """Final hidden states [B, hidden] of `block`, the embedded anchor and mask rows [B, hidden].

        `context` [C, taps * hidden] holds the features of the last C known tokens.
        Rows have local positions 0 ... C + B - 1, the block sees the context and all of itself, and nothing is cached.
        """
        features = self.hidden_norm(self.fc(context))
        rows_count = context.shape[0] + block.shape[0]
        dtype = angle_dtype(block.dtype)
        frequencies = inverse_frequencies(self.config.head_dim, self.config.rope_theta, block.device).to(dtype)
        angles = torch.arange(rows_count, device=block.device).to(dtype)[:, None] * frequencies
        rotation = Rotation(angles.cos().to(block.dtype)[None], angles.sin().to(block.dtype)[None])
        block_rotation = Rotation(rotation.cos[:, context.shape[0] :], rotation.sin[:, context.shape[0] :])
        for layer in self.layers:
            attention = layer.self_attn
            normed = layer.input_layernorm(block)
            sources = torch.cat([features, normed])
            key = rotate(attention.key(sources), rotation)
            query = rotate(attention.query(normed), block_rotation)
            block = layer.finish(block, attend(query, key, attention.value(sources), None))
        return self.norm(block)
