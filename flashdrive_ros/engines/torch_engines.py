"""The torch backend: the stage modules themselves, eager, on any torch device. Reference of every other backend."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from flashdrive_ros.engines.base import Decision, Floats, FlowInputs, ImageFeatures, Sampling
from flashdrive_ros.model.language import Caches, RingTables
from flashdrive_ros.model.network import Network
from flashdrive_ros.model.stages import ActionStage, Choice, DraftStage, PrefillStage, VerifyStage, VisionStage
from flashdrive_ros.streaming.kv_ring import Rows
from flashdrive_ros.streaming.layout import Table


class TorchEngines:
    """Runs the stages of `network` in its own dtype and on its own device."""

    backend = "torch"

    def __init__(self, network: Network, slots: int) -> None:
        config = network.config
        weight = network.vlm.lm_head.weight
        self.config = config
        self.device, self.dtype = weight.device, weight.dtype
        self._vision = VisionStage(network)
        self._prefill = PrefillStage(network)
        self._draft = DraftStage(network)
        self._verify = VerifyStage(network)
        self._action = ActionStage(network)
        shape = (1, config.text.kv_heads, slots, config.text.head_dim)
        self.caches = Caches(
            [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in range(config.text.layers)],
            [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in range(config.text.layers)],
        )
        taps = len(config.drafter.tapped_layers) * config.text.hidden
        self.context = torch.zeros(config.drafter.context_rows, taps, dtype=self.dtype, device=self.device)

    @torch.inference_mode()
    def vision(self, patches: Floats) -> ImageFeatures:
        return ImageFeatures(*self._vision(self._floats(patches)))

    def no_image(self) -> ImageFeatures:
        tokens = len(self.config.prompt.cameras) * self.config.vision.image_tokens
        zeros = torch.zeros(tokens, self.config.text.hidden, dtype=self.dtype, device=self.device)
        return ImageFeatures(zeros, zeros.expand(len(self.config.vision.deepstack_blocks), -1, -1))

    @torch.inference_mode()
    def prefill(self, rows: Rows, features: ImageFeatures, noise: Floats, sampling: Sampling) -> Decision:
        choice, self.context, self.caches = self._prefill(
            self._table(rows.token_ids),
            features.image_embeds,
            features.deepstack,
            self._table(rows.image_rows),
            self._precise(noise),
            self._precise(sampling.as_array()),
            self._ring(rows),
            self.caches,
        )
        return _decision(choice)

    @torch.inference_mode()
    def draft(self, anchor_id: int) -> Table:
        return self._draft(torch.tensor([anchor_id], device=self.device), self.context).cpu().numpy()

    @torch.inference_mode()
    def verify(self, rows: Rows, noise: Floats, sampling: Sampling) -> Decision:
        choice, self.context, self.caches = self._verify(
            self._table(rows.token_ids),
            self.context,
            self._precise(noise),
            self._precise(sampling.as_array()),
            self._ring(rows),
            self.caches,
        )
        return _decision(choice)

    @torch.inference_mode()
    def action(self, inputs: FlowInputs) -> Floats:
        noise, times, weights = (self._precise(values) for values in (inputs.noise, inputs.times, inputs.weights))
        tables = (inputs.row_order, inputs.row_position, inputs.slot_order, inputs.slot_position)
        actions = self._action(noise, times, weights, *(self._table(table) for table in tables), self.caches)
        return actions.cpu().numpy()

    def _floats(self, values: Floats) -> Tensor:
        return torch.as_tensor(values, device=self.device).to(self.dtype)

    def _precise(self, values: Floats) -> Tensor:
        """Flow and sampling run in float32 whatever the network's dtype is (float64 in references)."""
        return torch.as_tensor(values, device=self.device).to(torch.promote_types(self.dtype, torch.float32))

    def _table(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, device=self.device)

    def _ring(self, rows: Rows) -> RingTables:
        tables = (rows.write_slot, rows.row_order, rows.row_position, rows.slot_order, rows.slot_position)
        return RingTables(*(self._table(table) for table in tables))


def _decision(choice: Choice) -> Decision:
    return Decision(int(choice.accepted[0]), int(choice.next_id[0]))
