"""The vision tower: patches of still images to image tokens and three deepstack features (spec A.3, A.4)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from flashdrive_ros.model.config import VisionConfig
from flashdrive_ros.model.operators import Rotation, angle_dtype, attend, inverse_frequencies, rotate


def patch_coordinates(config: VisionConfig) -> Tensor:
    """[patches, 2] row and column of each patch; every merge x merge block is contiguous."""
    rows, columns = config.grid
    merge = config.merge
    grid = torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"), dim=-1)
    blocks = grid.view(rows // merge, merge, columns // merge, merge, 2).permute(0, 2, 1, 3, 4)
    return blocks.reshape(-1, 2)


def position_interpolation(config: VisionConfig) -> tuple[Tensor, Tensor]:
    """Indices [4, patches] into the square position table and their bilinear weights [4, patches].

    The grid points of an axis are linspace from 0 to side - 1.
    """
    side = config.position_grid
    coordinates = patch_coordinates(config)
    low, fraction = [], []
    for axis in range(2):
        # float32, as the published model computes them
        line = torch.linspace(0, side - 1, config.grid[axis], dtype=torch.float32)[coordinates[:, axis]]
        low.append(line.to(torch.int64))
        fraction.append(line - low[-1])
    high = [torch.clamp(index + 1, max=side - 1) for index in low]
    indices = torch.stack(
        [low[0] * side + low[1], low[0] * side + high[1], high[0] * side + low[1], high[0] * side + high[1]]
    )
    fy, fx = fraction
    weights = torch.stack([(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx])
    return indices, weights


class VisionAttention(nn.Module):
    """Full attention within one image."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.hidden, 3 * config.hidden)
        self.proj = nn.Linear(config.hidden, config.hidden)

    def forward(self, rows: Tensor, rotation: Rotation) -> Tensor:
        """`rows` [images, patches, hidden]"""
        images, patches, hidden = rows.shape
        qkv = self.qkv(rows).view(images, patches, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        attended = attend(rotate(qkv[0], rotation), rotate(qkv[1], rotation), qkv[2], None)
        return self.proj(attended.transpose(1, 2).reshape(images, patches, hidden))


class VisionMlp(nn.Module):
    """GELU (tanh form) MLP."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(config.hidden, config.mlp)
        self.linear_fc2 = nn.Linear(config.mlp, config.hidden)

    def forward(self, rows: Tensor) -> Tensor:
        return self.linear_fc2(functional.gelu(self.linear_fc1(rows), approximate="tanh"))


class VisionBlock(nn.Module):
    """Pre-norm transformer block with biases."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.hidden, eps=config.norm_eps)
        self.norm2 = nn.LayerNorm(config.hidden, eps=config.norm_eps)
        self.attn = VisionAttention(config)
        self.mlp = VisionMlp(config)

    def forward(self, rows: Tensor, rotation: Rotation) -> Tensor:
        rows = rows + self.attn(self.norm1(rows), rotation)
        return rows + self.mlp(self.norm2(rows))


class PatchMerger(nn.Module):
    """Joins each merge x merge block into one token of the text model's width.

    `norm_width` says where its LayerNorm sits: hidden (before the blocks are joined) or merge^2 * hidden (after; the
    deepstack mergers).
    """

    def __init__(self, config: VisionConfig, text_hidden: int, norm_width: int) -> None:
        super().__init__()
        self.joined = config.hidden * config.merge**2
        self.norm_width = norm_width
        self.norm = nn.LayerNorm(norm_width, eps=config.norm_eps)
        self.linear_fc1 = nn.Linear(self.joined, self.joined)
        self.linear_fc2 = nn.Linear(self.joined, text_hidden)

    def forward(self, rows: Tensor) -> Tensor:
        """`rows` [images, patches, hidden] to [images * image_tokens, text_hidden]."""
        joined = self.norm(rows.reshape(-1, self.norm_width)).reshape(-1, self.joined)
        return self.linear_fc2(functional.gelu(self.linear_fc1(joined)))


class PatchEmbedding(nn.Module):
    """The Conv3d with kernel = stride, kept under the checkpoint's name and shape, applied as a linear map."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        size = (config.temporal_patch, config.patch, config.patch)
        self.proj = nn.Conv3d(3, config.hidden, kernel_size=size, stride=size)

    def forward(self, patches: Tensor) -> Tensor:
        """[n, patch_values] to [n, hidden]."""
        return functional.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class VisionTower(nn.Module):
    """Patch embedding, positions, blocks, mergers."""

    def __init__(self, config: VisionConfig, text_hidden: int) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbedding(config)
        self.pos_embed = nn.Embedding(config.position_grid**2, config.hidden)
        self.blocks = nn.ModuleList(VisionBlock(config) for _ in range(config.depth))
        joined = config.hidden * config.merge**2
        self.merger = PatchMerger(config, text_hidden, config.hidden)
        self.deepstack_merger_list = nn.ModuleList(
            PatchMerger(config, text_hidden, joined) for _ in config.deepstack_blocks
        )

    def rotation(self, dtype: torch.dtype, device: torch.device) -> Rotation:
        """2-D rotary tables: the first half of the frequencies turns with the row, the second with the column."""
        half = self.config.hidden // self.config.heads // 2
        coordinates = patch_coordinates(self.config).to(device=device, dtype=angle_dtype(dtype))
        frequencies = inverse_frequencies(half, self.config.rope_theta, device).to(angle_dtype(dtype))
        angles = (coordinates[:, :, None] * frequencies).flatten(1)
        return Rotation(angles.cos().to(dtype)[None], angles.sin().to(dtype)[None])

    def forward(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        """`patches` [images * patches, patch_values], blocks contiguous.

        Returns image_embeds [images * image_tokens, text_hidden] and deepstack [3, images * image_tokens, text_hidden].
        """
        indices, weights = position_interpolation(self.config)
        table = self.pos_embed.weight
        positions = (table[indices.to(table.device)] * weights.to(table)[:, :, None]).sum(0)
        rows = self.patch_embed(patches)
        rows = rows.view(-1, self.config.patches, self.config.hidden) + positions
        rotation = self.rotation(rows.dtype, rows.device)
        batched = Rotation(rotation.cos.expand(rows.shape[0], -1, -1), rotation.sin.expand(rows.shape[0], -1, -1))
        deepstack = []
        for index, block in enumerate(self.blocks):
            rows = block(rows, batched)
            if index in self.config.deepstack_blocks:
                merger = self.deepstack_merger_list[self.config.deepstack_blocks.index(index)]
                deepstack.append(merger(rows))
        return self.merger(rows), torch.stack(deepstack)
