"""The action expert and its flow (spec A.8, A.9): 64 waypoints attend to the text caches and to each other."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from flashdrive_ros.model.config import ExpertConfig, ModelConfig, TextConfig
from flashdrive_ros.model.language import DecoderLayer
from flashdrive_ros.model.operators import Rotation, attend, rotate


class Expert(nn.Module):
    """A decoder without embedding; layer i reads the rotated cache of text layer `text_layer[i]`."""

    def __init__(self, config: ExpertConfig, text: TextConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            DecoderLayer(config.hidden, config.query_heads, text.kv_heads, text.head_dim, config.mlp, text.norm_eps)
            for _ in config.text_layer
        )
        self.norm = nn.RMSNorm(config.hidden, eps=text.norm_eps)

    def forward(
        self, rows: Tensor, rotation: Rotation, context: list[tuple[Tensor, Tensor]], visible: Tensor
    ) -> Tensor:
        """Final hidden states of `rows` [n, hidden], which see `visible` [n, S + n] of the context and of each other.

        `context[i]` are rotated keys and values of layer i, each [1, kv_heads, S, head_dim].
        """
        for layer, (context_key, context_value) in zip(self.layers, context, strict=True):
            attention = layer.self_attn
            normed = layer.input_layernorm(rows)
            key = torch.cat([context_key, rotate(attention.key(normed), rotation)], dim=2)
            value = torch.cat([context_value, attention.value(normed)], dim=2)
            rows = layer.finish(rows, attend(rotate(attention.query(normed), rotation), key, value, visible))
        return self.norm(rows)


class WaypointEncoder(nn.Module):
    """Fourier features of (acceleration, curvature, t) through the trunk (PerWaypointActionInProjV2 of spec A.8)."""

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__()
        self.features = config.fourier_features
        self.max_frequency = config.max_frequency
        width = config.projection_hidden
        self.trunk = nn.Sequential(
            nn.Linear(3 * self.features, width),
            nn.SiLU(),
            nn.RMSNorm(width, eps=1e-5),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.RMSNorm(width, eps=1e-5),
            nn.Linear(width, config.hidden),
        )

    def fourier(self, values: Tensor) -> Tensor:
        """sqrt(2) [sin(2 pi w x), cos(2 pi w x)], w from 1 to max_frequency in equal ratios; adds one axis."""
        exponents = torch.linspace(
            0, math.log10(self.max_frequency), self.features // 2, dtype=torch.float64, device=values.device
        )
        angles = values[..., None] * (2 * math.pi * 10**exponents).to(values.dtype)
        return math.sqrt(2) * torch.cat([angles.sin(), angles.cos()], dim=-1)

    def forward(self, actions: Tensor, time: Tensor) -> Tensor:
        """`actions` [n, 2] and `time` [n] to [n, hidden]."""
        inputs = torch.cat([actions, time[:, None]], dim=-1)
        dtype = next(self.parameters()).dtype
        return self.trunk(self.fourier(inputs).flatten(1).to(dtype))


class ActionInProjection(nn.Module):
    """Waypoint encoder and its LayerNorm."""

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__()
        self.encoder = WaypointEncoder(config)
        self.norm = nn.LayerNorm(config.hidden)

    def forward(self, actions: Tensor, time: Tensor) -> Tensor:
        return self.norm(self.encoder(actions, time))


def sample_visibility(samples: int, waypoints: int, device: torch.device) -> Tensor:
    """[samples * waypoints]^2: a waypoint sees those of its own sample."""
    sample = torch.arange(samples * waypoints, device=device) // waypoints
    return sample[:, None] == sample[None, :]


def integrate(
    config: ModelConfig,
    expert: Expert,
    in_projection: ActionInProjection,
    out_projection: nn.Linear,
    noise: Tensor,
    flow_times: Tensor,
    flow_weights: Tensor,
    rotation: Rotation,
    context: list[tuple[Tensor, Tensor]],
    context_visible: Tensor,
) -> Tensor:
    """Integrate the flow from `noise` [K, waypoints, 2]; x and t stay float32 (float64 in references).

    The m-th evaluation happens at flow_times[m]; after it x advances by sum_k flow_weights[m, k] * v_k over the
    velocities known so far. Dense Euler is the diagonal matrix of the step widths; reuse and fitted combinations of
    earlier velocities are other lower-triangular matrices (action/schedule.py). All samples share one context: they are
    rows of one batch that see the same slots and, of the waypoints, only their own sample's.
    """
    samples, waypoints = noise.shape[0], config.action.waypoints
    visible = torch.cat(
        [context_visible.expand(samples * waypoints, -1), sample_visibility(samples, waypoints, noise.device)], dim=1
    )
    rotation = Rotation(rotation.cos.repeat(1, samples, 1), rotation.sin.repeat(1, samples, 1))
    actions = noise.reshape(-1, 2)
    velocities: list[Tensor] = []
    for step in range(flow_times.shape[0]):
        time = flow_times[step].expand(actions.shape[0])
        rows = in_projection(actions, time)
        rows = expert(rows, rotation, context, visible)
        velocities.append(functional.linear(rows, out_projection.weight, out_projection.bias).to(actions.dtype))
        for known, velocity in enumerate(velocities):
            actions = actions + flow_weights[step, known] * velocity
    return actions.view(samples, waypoints, 2)
