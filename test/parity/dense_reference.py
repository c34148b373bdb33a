"""The streaming rule recomputed densely in float64, sharing no code with streaming/ or model/.

State: for every (view, time step) the keys before RoPE and the values that its tokens had when that frame was the
newest, and those of the label tokens, computed once. Each window lays them out as one view-major sequence and applies
an ordinary causal mask; there are no slots, orders or tables here. Weights come from a state dict by their names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

Weights = dict[str, Tensor]
Place = tuple[int, int]
"""View, and age index of a frame in the prompt (the last is the newest)."""


@dataclass
class Piece:
    """Consecutive tokens with the same origin."""

    ids: list[int]
    position: np.ndarray
    """[3, n] M-RoPE positions"""
    keys: list[Tensor] | None = None
    """Per layer [n, kv_heads, d], before RoPE; None until the piece has been run."""
    values: list[Tensor] | None = None
    features: tuple[Tensor, Tensor] | None = None
    """Image embeddings [n - 2, H] and deepstack [3, n - 2, H] of a frame."""


@dataclass
class Output:
    """What one pass gave for the tokens that were run, in logical order."""

    hidden: Tensor
    logits: Tensor


def rms_norm(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    return rows / torch.sqrt((rows * rows).mean(-1, keepdim=True) + eps) * weight


def layer_norm(rows: Tensor, weights: Weights, name: str, eps: float) -> Tensor:
    centred = rows - rows.mean(-1, keepdim=True)
    scale = torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps)
    return centred / scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def affine(rows: Tensor, weights: Weights, name: str) -> Tensor:
    return rows @ weights[f"{name}.weight"].flatten(1).T + weights[f"{name}.bias"]


def silu(values: Tensor) -> Tensor:
    return values / (1 + torch.exp(-values))


def turn(rows: Tensor, angles: Tensor) -> Tensor:
    """`rows` [n, heads, d] by `angles` [n, d / 2]: component i with component i + d / 2."""
    first, second = rows.chunk(2, dim=-1)
    cos, sin = torch.cos(angles)[:, None], torch.sin(angles)[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def softmax_attention(query: Tensor, keys: Tensor, values: Tensor, sees: Tensor) -> Tensor:
    """[n, heads * d] of `query` [n, heads, d] over [m, kv_heads, d]; `sees` [n, m]."""
    outputs = []
    group = query.shape[1] // keys.shape[1]
    for head in range(query.shape[1]):
        scores = query[:, head] @ keys[:, head // group].T / math.sqrt(query.shape[-1])
        scores = torch.where(sees, scores, -torch.inf)
        scores = torch.exp(scores - scores.max(-1, keepdim=True).values)
        outputs.append(scores / scores.sum(-1, keepdim=True) @ values[:, head // group])
    return torch.cat(outputs, dim=-1)


class TextReference:
    """One decoder: the language model, or the expert, whose layers have the same form."""

    def __init__(self, weights: Weights, prefix: str, config, query_heads: int) -> None:
        self.weights, self.prefix, self.config, self.query_heads = weights, prefix, config, query_heads

    def weight(self, layer: int, name: str) -> Tensor:
        return self.weights[f"{self.prefix}layers.{layer}.{name}.weight"]

    def heads(self, layer: int, rows: Tensor, name: str, count: int) -> Tensor:
        return (rows @ self.weight(layer, f"self_attn.{name}").T).view(len(rows), count, self.config.head_dim)

    def key_value(self, layer: int, normed: Tensor) -> tuple[Tensor, Tensor]:
        kv_heads = self.config.kv_heads
        key = self.heads(layer, normed, "k_proj", kv_heads)
        key = rms_norm(key, self.weight(layer, "self_attn.k_norm"), self.config.norm_eps)
        return key, self.heads(layer, normed, "v_proj", kv_heads)

    def query(self, layer: int, normed: Tensor) -> Tensor:
        query = self.heads(layer, normed, "q_proj", self.query_heads)
        return rms_norm(query, self.weight(layer, "self_attn.q_norm"), self.config.norm_eps)

    def norm(self, layer: int, rows: Tensor, name: str) -> Tensor:
        return rms_norm(rows, self.weight(layer, name), self.config.norm_eps)

    def finish(self, layer: int, rows: Tensor, attended: Tensor) -> Tensor:
        rows = rows + attended @ self.weight(layer, "self_attn.o_proj").T
        normed = self.norm(layer, rows, "post_attention_layernorm")
        gated = silu(normed @ self.weight(layer, "mlp.gate_proj").T) * (normed @ self.weight(layer, "mlp.up_proj").T)
        return rows + gated @ self.weight(layer, "mlp.down_proj").T

    def final(self, rows: Tensor) -> Tensor:
        return rms_norm(rows, self.weights[f"{self.prefix}norm.weight"], self.config.norm_eps)

    def angles(self, position: np.ndarray) -> Tensor:
        """[n, d / 2] angles of `position` [3, n]: h and w take every third frequency while they last, t the rest."""
        _, height, width = self.config.mrope_section
        columns = []
        for index in range(self.config.head_dim // 2):
            axis = index % 3
            if (axis == 1 and index // 3 >= height) or (axis == 2 and index // 3 >= width):
                axis = 0
            columns.append(position[axis] * self.config.rope_theta ** (-2 * index / self.config.head_dim))
        return torch.from_numpy(np.stack(columns, axis=-1))


def see_images(weights: Weights, config, patches: Tensor) -> tuple[Tensor, Tensor]:
    """Image embeddings [tokens, H] and deepstack [levels, tokens, H] of one image's `patches`."""
    vision, prefix = config.vision, "vlm.model.visual"
    rows_count, columns_count = vision.image_height // vision.patch, vision.image_width // vision.patch
    places = [
        (2 * block_row + row, 2 * block_column + column)
        for block_row in range(rows_count // 2)
        for block_column in range(columns_count // 2)
        for row in range(2)
        for column in range(2)
    ]
    side = vision.position_grid
    table = weights[f"{prefix}.pos_embed.weight"].view(side, side, -1)
    # The published model computes grid points and interpolation weights in float32, whatever dtype it runs in; so does
    # ours, and so the reference has to: in float64 the two would differ by 1e-7.
    lines = [torch.linspace(0, side - 1, count, dtype=torch.float32) for count in (rows_count, columns_count)]
    learned = []
    for row, column in places:
        y, x = lines[0][row], lines[1][column]
        top, left = int(y), int(x)
        bottom, right = min(top + 1, side - 1), min(left + 1, side - 1)
        fy, fx = y - top, x - left
        corners = ((1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx)
        cells = (table[top, left], table[top, right], table[bottom, left], table[bottom, right])
        learned.append(sum(float(corner) * cell for corner, cell in zip(corners, cells, strict=True)))
    rows = affine(patches, weights, f"{prefix}.patch_embed.proj") + torch.stack(learned)
    head_dim = vision.hidden // vision.heads
    quarter = head_dim // 4
    frequencies = vision.rope_theta ** (-torch.arange(quarter, dtype=torch.float64) / quarter)
    place = torch.tensor(places, dtype=torch.float64)
    angles = torch.cat([place[:, :1] * frequencies, place[:, 1:] * frequencies], dim=-1)
    everything = torch.ones(len(places), len(places), dtype=torch.bool)

    def merge(name: str, norm_first: bool) -> Tensor:
        joined = vision.hidden * 4
        normed = layer_norm(rows if norm_first else rows.view(-1, joined), weights, f"{name}.norm", vision.norm_eps)
        inner = affine(normed.reshape(-1, joined), weights, f"{name}.linear_fc1")
        exact_gelu = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        return affine(exact_gelu, weights, f"{name}.linear_fc2")

    levels = []
    for index in range(vision.depth):
        block = f"{prefix}.blocks.{index}"
        normed = layer_norm(rows, weights, f"{block}.norm1", vision.norm_eps)
        query, key, value = (
            part.reshape(len(places), vision.heads, head_dim)
            for part in affine(normed, weights, f"{block}.attn.qkv").chunk(3, dim=-1)
        )
        attended = softmax_attention(turn(query, angles), turn(key, angles), value, everything)
        rows = rows + affine(attended, weights, f"{block}.attn.proj")
        inner = affine(layer_norm(rows, weights, f"{block}.norm2", vision.norm_eps), weights, f"{block}.mlp.linear_fc1")
        tanh_gelu = 0.5 * inner * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        rows = rows + affine(tanh_gelu, weights, f"{block}.mlp.linear_fc2")
        if index in vision.deepstack_blocks:
            level = vision.deepstack_blocks.index(index)
            levels.append(merge(f"{prefix}.deepstack_merger_list.{level}", norm_first=False))
    return merge(f"{prefix}.merger", norm_first=True), torch.stack(levels)


@dataclass
class DenseStream:
    """A stream of windows over one model."""

    config: object
    weights: Weights
    labels: list[list[int]]
    """Text before each frame, view-major, the system prompt in the first."""
    frame_ids: list[int]
    label_pieces: list[Piece] = field(default_factory=list)
    steps: list[list[Piece]] = field(default_factory=list)
    """Per held time step, oldest first: one frame per view."""
    tail: list[Piece] = field(default_factory=list)
    """Tail and reasoning of the newest window, as they were run."""

    def __post_init__(self) -> None:
        text = self.config.text
        self.text = TextReference(self.weights, "vlm.model.language_model.", text, text.query_heads)
        self.expert = TextReference(self.weights, "expert.", text, self.config.expert.query_heads)
        self.views, self.frames = len(self.config.prompt.cameras), self.config.prompt.frames
        rows, columns = (side // self.config.vision.patch // 2 for side in self._sides())
        self.label_positions, self.frame_positions = [], []
        position = 0
        for label in self.labels:
            self.label_positions.append(self._line(position, len(label)))
            position += len(label)
            inside = [(position + 1, position + 1 + y, position + 1 + x) for y in range(rows) for x in range(columns)]
            end = position + 1 + max(rows, columns)
            self.frame_positions.append(np.array([(position,) * 3, *inside, (end,) * 3]).T)
            position = end + 1
        self.tail_position = position

    def run_labels(self) -> None:
        """Keys and values of the labels among themselves."""
        self.label_pieces = [
            Piece(ids, position) for ids, position in zip(self.labels, self.label_positions, strict=True)
        ]
        self._run(self.label_pieces)

    def reset(self) -> None:
        self.steps, self.tail = [], []

    def push(self, features: list[tuple[Tensor, Tensor]], tail: list[int]) -> Output:
        """A window: the newest frame of each view is run with the tail; what was held grows one step older."""
        newest = [Piece(self.frame_ids, np.empty(0), features=feature) for feature in features]
        self.steps = [*self.steps, newest][-self.frames :]
        self.tail = [Piece(tail, self._line(self.tail_position, len(tail)))]
        return self._run(self._sequence())

    def first_fill(self, features: list[list[tuple[Tensor, Tensor]]], tail: list[int]) -> Output:
        """A whole prompt in one causal pass, labels included; `features[step][view]`."""
        self.label_pieces = [
            Piece(ids, position) for ids, position in zip(self.labels, self.label_positions, strict=True)
        ]
        self.steps = [[Piece(self.frame_ids, np.empty(0), features=feature) for feature in step] for step in features]
        self.tail = [Piece(tail, self._line(self.tail_position, len(tail)))]
        return self._run(self._sequence())

    def reason(self, ids: list[int]) -> Output:
        """More reasoning tokens behind what is known."""
        known = sum(len(piece.ids) for piece in self.tail)
        self.tail.append(Piece(ids, self._line(self.tail_position + known, len(ids))))
        return self._run(self._sequence())

    def act(self, noise: Tensor, steps: int) -> Tensor:
        """Dense Euler from `noise` [K, waypoints, 2], every sample by itself, over everything that is held."""
        sequence = self._sequence()
        position = np.concatenate([piece.position for piece in sequence], axis=1)
        angles = self.text.angles(position)
        known = sum(len(piece.ids) for piece in self.tail)
        own_angles = self.text.angles(self._line(self.tail_position + known, noise.shape[1]))
        samples = []
        for actions in noise:
            state = actions.clone()
            for step in range(steps):
                state = state + self._velocity(state, step / steps, sequence, angles, own_angles) / steps
            samples.append(state)
        return torch.stack(samples)

    def _sides(self) -> tuple[int, int]:
        return self.config.vision.image_height, self.config.vision.image_width

    def _line(self, start: int, count: int) -> np.ndarray:
        return np.tile(np.arange(start, start + count), (3, 1))

    def _sequence(self) -> list[Piece]:
        """The logical prompt: every label, behind it its frame if that time step is held, then tail and reasoning."""
        pieces = []
        for view in range(self.views):
            for index in range(self.frames):
                number = view * self.frames + index
                pieces.append(self.label_pieces[number])
                held = index - (self.frames - len(self.steps))
                if held >= 0:
                    frame = self.steps[held][view]
                    frame.position = self.frame_positions[number]
                    pieces.append(frame)
        return [*pieces, *self.tail]

    def _embed(self, piece: Piece) -> tuple[Tensor, Tensor]:
        """Input rows and what is added after the first layers."""
        rows = self.weights["vlm.model.language_model.embed_tokens.weight"][piece.ids].clone()
        levels = torch.zeros(len(self.config.vision.deepstack_blocks), *rows.shape, dtype=rows.dtype)
        if piece.features is not None:
            rows[1:-1], levels[:, 1:-1] = piece.features
        return rows, levels

    def _run(self, sequence: list[Piece]) -> Output:
        """Run the pieces that have no keys yet, each token seeing every token before it in `sequence` and itself."""
        fresh = [piece.keys is None for piece in sequence]
        new_rows = torch.from_numpy(
            np.concatenate([np.full(len(piece.ids), new) for piece, new in zip(sequence, fresh, strict=True)])
        )
        embedded = [self._embed(piece) for piece, new in zip(sequence, fresh, strict=True) if new]
        rows = torch.cat([part for part, _ in embedded])
        levels = torch.cat([part for _, part in embedded], dim=1)
        angles = self.text.angles(np.concatenate([piece.position for piece in sequence], axis=1))
        sees = torch.tril(torch.ones(len(new_rows), len(new_rows), dtype=torch.bool))[new_rows]
        for piece, new in zip(sequence, fresh, strict=True):
            if new:
                piece.keys, piece.values = [], []
        for layer in range(self.config.text.layers):
            normed = self.text.norm(layer, rows, "input_layernorm")
            new_keys, new_values = self.text.key_value(layer, normed)
            start = 0
            for piece, new in zip(sequence, fresh, strict=True):
                if new:
                    stop = start + len(piece.ids)
                    piece.keys.append(new_keys[start:stop])
                    piece.values.append(new_values[start:stop])
                    start = stop
            keys = turn(torch.cat([piece.keys[layer] for piece in sequence]), angles)
            values = torch.cat([piece.values[layer] for piece in sequence])
            query = turn(self.text.query(layer, normed), angles[new_rows])
            rows = self.text.finish(layer, rows, softmax_attention(query, keys, values, sees))
            if layer < len(levels):
                rows = rows + levels[layer]
        hidden = self.text.final(rows)
        return Output(hidden, hidden @ self.weights["vlm.lm_head.weight"].T)

    def _velocity(
        self, actions: Tensor, time: float, sequence: list[Piece], angles: Tensor, own_angles: Tensor
    ) -> Tensor:
        """Velocity [waypoints, 2] of one sample."""
        expert = self.config.expert
        exponents = np.linspace(0, math.log10(expert.max_frequency), expert.fourier_features // 2)
        circle = torch.from_numpy(2 * math.pi * 10**exponents)
        inputs = torch.cat([actions, torch.full((len(actions), 1), time, dtype=torch.float64)], dim=-1)
        waves = inputs[:, :, None] * circle
        rows = (math.sqrt(2) * torch.cat([torch.sin(waves), torch.cos(waves)], dim=-1)).flatten(1)
        trunk = "action_in_proj.encoder.trunk"
        for linear, norm in ((0, 2), (3, 5)):
            rows = silu(affine(rows, self.weights, f"{trunk}.{linear}"))
            rows = rms_norm(rows, self.weights[f"{trunk}.{norm}.weight"], 1e-5)
        rows = layer_norm(affine(rows, self.weights, f"{trunk}.6"), self.weights, "action_in_proj.norm", 1e-5)
        for layer, source in enumerate(expert.text_layer):
            normed = self.expert.norm(layer, rows, "input_layernorm")
            own_key, own_value = self.expert.key_value(layer, normed)
            context = turn(torch.cat([piece.keys[source] for piece in sequence]), angles)
            keys = torch.cat([context, turn(own_key, own_angles)])
            values = torch.cat([*[piece.values[source] for piece in sequence], own_value])
            sees = torch.ones(len(rows), len(keys), dtype=torch.bool)
            query = turn(self.expert.query(layer, normed), own_angles)
            rows = self.expert.finish(layer, rows, softmax_attention(query, keys, values, sees))
        return affine(self.expert.final(rows), self.weights, "action_out_proj")
