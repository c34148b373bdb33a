"""Streaming fine-tuning: the expert learns to read caches as a stream leaves them (spec flashdrive B.4, B.10).

A cached frame keeps the keys and values from when it was newest; labels are never recomputed. That is what the ring
does, here for a batch of streams at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flashdrive_ros.model.network import Network
from flashdrive_ros.training.batched import KeyValue, Places, image_features, text_pass
from flashdrive_ros.training.data import Windows
from flashdrive_ros.training.losses import Context, context_of
from flashdrive_ros.training.sequences import PromptTables, embedded, joined, tail_tokens


def static_caches(network: Network, tables: PromptTables) -> list[KeyValue]:
    """Keys and values of the labels, computed without any frame, batch 1."""
    language = network.vlm.model.language_model
    rows = language.embed_tokens(tables.static.ids)
    return text_pass(language, rows, [], tables.static.places)[1]


def stream_pass(
    network: Network, tables: PromptTables, static: list[KeyValue], stream: list[Windows]
) -> tuple[Tensor, Context]:
    """Push the windows of `stream` one after the other; logits [B, C, vocabulary] and context of the last.

    Gradients flow through the last pass only if the caller enables them there; the expert alone is trained on it.
    """
    held: list[list[KeyValue]] = []  # newest frames of each past window, oldest first
    for windows in stream:
        hidden, caches, places = _push(network, tables, static, held, windows)
        past = caches[0][0].shape[2] - hidden.shape[1]
        visual = tables.newest.ids.shape[1]
        newest = [(key[:, :, past : past + visual], value[:, :, past : past + visual]) for key, value in caches]
        held = [*held, newest][-(len(tables.ages) - 1) :]
    length = stream[-1].reasoning.shape[1]
    logits = network.vlm.lm_head(hidden[:, -length - 1 : -1])
    return logits, context_of(tables, stream[-1], caches, places)


def _push(
    network: Network, tables: PromptTables, static: list[KeyValue], held: list[list[KeyValue]], windows: Windows
) -> tuple[Tensor, list[KeyValue], Places]:
    """One window behind the static part and the held frames."""
    config = network.config
    language = network.vlm.model.language_model
    batch = len(windows.history)
    embeds, deepstack = image_features(network, windows.images, config)
    tail = tail_tokens(tables, windows.history, windows.route, windows.reasoning, config.tokens.trajectory_first)
    tokens = joined(batch, tables.newest, tail)
    rows, added = embedded(language.embed_tokens, tokens, embeds, deepstack)
    past_places = _expanded(tables.static.places, batch)
    for age in range(len(held)):
        past_places = past_places.then(_expanded(tables.ages[len(tables.ages) - 1 - len(held) + age], batch))
    past = []
    for layer, (key, value) in enumerate(static):
        parts = [(key.expand(batch, -1, -1, -1), value.expand(batch, -1, -1, -1)), *(frame[layer] for frame in held)]
        past.append((torch.cat([part[0] for part in parts], 2), torch.cat([part[1] for part in parts], 2)))
    hidden, caches = text_pass(language, rows, added, tokens.places, past, past_places)
    return hidden, caches, past_places.then(tokens.places)


def _expanded(places: Places, batch: int) -> Places:
    return Places(places.order.expand(batch, -1), places.position.expand(batch, -1, -1))
