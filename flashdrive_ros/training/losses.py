"""Losses of whole windows: language on the captions, flow matching on the actions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from flashdrive_ros.model.network import Network
from flashdrive_ros.training.batched import KeyValue, Places, image_features, text_pass, velocity
from flashdrive_ros.training.data import Windows
from flashdrive_ros.training.sequences import PromptTables, embedded, joined, tail_tokens

IGNORED = -100


class Context(NamedTuple):
    """What the expert reads."""

    caches: list[KeyValue]
    places: Places
    expert_order: Tensor
    """[B]"""
    first_position: Tensor
    """[B]"""


def full_pass(network: Network, tables: PromptTables, windows: Windows) -> tuple[Tensor, Context]:
    """One causal pass over whole windows; returns the logits [B, C, vocabulary] of the reasoning and the context."""
    config = network.config
    language = network.vlm.model.language_model
    batch = len(windows.history)
    embeds, deepstack = image_features(network, windows.images, config)
    tail = tail_tokens(tables, windows.history, windows.route, windows.reasoning, config.tokens.trajectory_first)
    tokens = joined(batch, tables.static, tables.frames, tail)
    rows, added = embedded(language.embed_tokens, tokens, embeds, deepstack)
    hidden, caches = text_pass(language, rows, added, tokens.places)
    length = windows.reasoning.shape[1]
    logits = network.vlm.lm_head(hidden[:, -length - 1 : -1])
    return logits, context_of(tables, windows, caches, tokens.places)


def context_of(tables: PromptTables, windows: Windows, caches: list[KeyValue], places: Places) -> Context:
    """The expert's context: everything up to future_start, the last token of the reasoning."""
    used = (windows.history >= 0).sum(1) + (windows.route >= 0).sum(1) + (windows.reasoning >= 0).sum(1)
    used = used + 2 + len(tables.after_route)  # the delimiters of the history
    return Context(caches, places, tables.tail_order + used - 1, tables.tail_position + used)


def language_loss(logits: Tensor, windows: Windows, future_start: int) -> tuple[Tensor, Tensor]:
    """Cross-entropy and accuracy over caption tokens and cot_end; future_start is forced, so it is not learnt."""
    target = windows.reasoning
    counted = (target >= 0) & (target != future_start)
    target = torch.where(counted, target, IGNORED)
    loss = functional.cross_entropy(logits.float().flatten(0, 1), target.flatten(), ignore_index=IGNORED)
    right = (logits.argmax(-1) == target) & counted
    return loss, right.sum() / counted.sum()


def flow_loss(network: Network, context: Context, actions: Tensor, samples: int) -> Tensor:
    """Flow-matching loss (spec A.9) with `samples` noises and times a window; t is uniform."""
    batch = len(actions)
    target = actions[:, None].expand(-1, samples, -1, -1)
    noise = torch.randn_like(target)
    time = torch.rand(batch, samples, device=actions.device)
    mixed = time[..., None, None] * target + (1 - time[..., None, None]) * noise
    found = velocity(network, mixed, time, context.caches, context.places, context.expert_order, context.first_position)
    return functional.mse_loss(found.float(), target - noise)


def sample_actions(network: Network, context: Context, noise: Tensor, steps: int) -> Tensor:
    """Euler from `noise` [B, K, waypoints, 2]."""
    actions = noise
    for step in range(steps):
        time = torch.full(noise.shape[:2], step / steps, device=noise.device)
        found = velocity(
            network, actions, time, context.caches, context.places, context.expert_order, context.first_position
        )
        actions = actions + found.float() / steps
    return actions
