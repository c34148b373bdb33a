"""StageEngines: what a backend has to offer. The planner knows nothing else about tensors.

A backend owns what stays on its device between calls: the KV caches and the drafter's context. Everything else comes in
as numpy arrays of the shapes in the manifest. Calls are made from one thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.model.config import ModelConfig
from flashdrive_ros.streaming.kv_ring import Rows
from flashdrive_ros.streaming.layout import Table

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ImageFeatures:
    """Outputs of the vision stage, wherever the backend keeps them."""

    image_embeds: Any
    """[views * image_tokens, hidden]"""
    deepstack: Any
    """[3, views * image_tokens, hidden]"""


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen from the model's distribution."""

    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0

    def as_array(self) -> Floats:
        """[2] as the stages take it."""
        return np.array([self.temperature, self.top_p], np.float32)


GREEDY = Sampling()


@dataclass(frozen=True)
class Decision:
    """What a text pass decided about the proposals behind its anchor."""

    accepted: int
    """Leading proposals that equal the model's own choice."""
    next_id: int
    """The model's choice after the last accepted proposal."""


@dataclass(frozen=True)
class FlowInputs:
    """Inputs of the action stage beside tables and caches."""

    noise: Floats
    """[K, waypoints, 2]"""
    times: Floats
    """[m] flow time of each network evaluation."""
    weights: Floats
    """[m, m] lower triangular: after evaluation i the state advances by sum_k weights[i, k] * velocity k."""
    row_order: Table
    """[1]"""
    row_position: Table
    """[3, waypoints]"""
    slot_order: Table
    """[S]"""
    slot_position: Table
    """[3, S]"""


class StageEngines(Protocol):
    """The five stages of DESIGN 3."""

    config: ModelConfig
    backend: str
    """Name of the backend, for people."""

    def vision(self, patches: Floats) -> ImageFeatures:
        """Encode `patches` [views * patches, patch_values]."""

    def no_image(self) -> ImageFeatures:
        """Features of the right shape for a prefill without images (the static part)."""

    def prefill(self, rows: Rows, features: ImageFeatures, noise: Floats, sampling: Sampling) -> Decision:
        """Write the rows of one window and decide on its draft (the last D rows); `noise` [D + 1]."""

    def draft(self, anchor_id: int) -> Table:
        """Proposals [B - 1] of the drafter for the tokens after the anchor."""

    def verify(self, rows: Rows, noise: Floats, sampling: Sampling) -> Decision:
        """Write a block of reasoning rows and decide on its proposals; `noise` [B]."""

    def action(self, inputs: FlowInputs) -> Floats:
        """Normalised actions [K, waypoints, 2]."""
