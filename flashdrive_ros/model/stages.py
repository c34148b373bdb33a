"""The five stages of DESIGN 3, each defined once: torch runs these modules, `export` turns them into ONNX.

A stage is a pure function: caches, tables, randomness and times all come in, everything it changes goes out.
R rows of a prefill are [newest frames of all views][padding][tail][draft]; B rows of a verify pass are
[anchor][proposals]. Row kinds that are not used are padded with an order that sees slot 0 only and that nobody sees.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from flashdrive_ros.model.config import ModelConfig
from flashdrive_ros.model.expert import integrate
from flashdrive_ros.model.language import Caches, RingTables, TextOutput
from flashdrive_ros.model.network import Network
from flashdrive_ros.model.operators import rotate


class Choice(NamedTuple):
    """What the head chose on the rows from the anchor on."""

    accepted: Tensor
    """[1] number of leading proposals that equal the model's own choice."""
    next_id: Tensor
    """[1] the model's choice after the last accepted proposal."""


def forbidden_ids(config: ModelConfig) -> Tensor:
    """Bool [vocabulary]: what is never reasoning, above all the bins (spec A.7). Padding rows carry one of them."""
    forbidden = torch.zeros(config.text.vocabulary, dtype=torch.bool)
    first = config.tokens.trajectory_first
    forbidden[first : first + config.tokens.trajectory_count] = True
    for never in config.tokens.never_generated:
        forbidden[never] = True
    return forbidden


def choose(config: ModelConfig, logits: Tensor, row_ids: Tensor, noise: Tensor, sampling: Tensor) -> Tensor:
    """[n] chosen next token of each row with `logits` [n, vocabulary] and own token `row_ids` [n].

    `sampling` is (temperature, top_p); temperature 0 is argmax. Otherwise the row's uniform `noise` [n] picks from the
    nucleus by inverse distribution: tokens in falling probability whose preceding mass is at most top_p. The reasoning
    may not start with cot_end, and traj_future_start always follows cot_end.
    """
    tokens = config.tokens
    ids = torch.arange(config.text.vocabulary, device=logits.device)
    first = (row_ids == tokens.cot_start)[:, None] & (ids == tokens.cot_end)[None, :]
    barred = forbidden_ids(config).to(logits.device)[None, :] | first
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).masked_fill(barred, float("-inf"))
    count = config.sampling_candidates or config.text.vocabulary
    top, candidates = torch.topk(logits, count, dim=-1)
    temperature = sampling[0]
    mass = torch.softmax(top / torch.clamp(temperature, min=1e-4), dim=-1)
    before = torch.cumsum(mass, dim=-1) - mass
    kept = torch.where(before <= sampling[1], mass, 0.0)
    cumulative = torch.cumsum(kept, dim=-1)
    rank = (cumulative < noise[:, None] * cumulative[:, -1:]).sum(-1, keepdim=True)
    sampled = torch.gather(candidates, 1, torch.clamp(rank, max=count - 1))[:, 0]
    chosen = torch.where(temperature > 0, sampled, candidates[:, 0])
    return torch.where(row_ids == tokens.cot_end, tokens.future_start, chosen)


def accept(row_ids: Tensor, chosen: Tensor) -> Choice:
    """Longest prefix of proposals row_ids[1:] that equals what was chosen on the row before each."""
    mismatches = torch.cumsum((row_ids[1:] != chosen[:-1]).to(torch.int64), dim=0)
    accepted = (mismatches == 0).to(torch.int64).sum(0, keepdim=True)
    return Choice(accepted, chosen[accepted])


class VisionStage(nn.Module):
    """`patches` [views * patches, patch_values] to `image_embeds` and `deepstack`."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        return self.network.vlm.model.visual(patches)


class TextStage(nn.Module):
    """What prefill and verify share: a text pass, the head on the last rows, acceptance and drafter features."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.config = network.config

    def decide(
        self, output: TextOutput, head_rows: int, row_ids: Tensor, noise: Tensor, sampling: Tensor, history: Tensor
    ) -> tuple[Choice, Tensor]:
        """Choice on the last `head_rows` rows, and the features of the last context_rows tokens that are now known.

        `history` [context_rows, taps * hidden]: features of the tokens before the head rows.
        """
        logits = self.network.vlm.lm_head(output.hidden[-head_rows:])
        choice = accept(row_ids, choose(self.config, logits, row_ids, noise, sampling))
        taps = [output.layer_outputs[layer][-head_rows:] for layer in self.config.drafter.tapped_layers]
        features = torch.cat([history, torch.cat(taps, dim=-1)])
        known = choice.accepted + 1 + torch.arange(self.config.drafter.context_rows, device=features.device)
        return choice, features[known]


class PrefillStage(TextStage):
    """The newest frames, the tail and the draft of one window in one pass."""

    def forward(
        self,
        token_ids: Tensor,
        image_embeds: Tensor,
        deepstack: Tensor,
        image_rows: Tensor,
        sampling_noise: Tensor,
        sampling: Tensor,
        tables: RingTables,
        caches: Caches,
    ) -> tuple[Choice, Tensor, Caches]:
        """`token_ids` [R], the last D of them the draft; `image_rows` [R]: the image token of a row, -1 on others.

        `sampling_noise` [D + 1]. Returns the choice, `context` [context_rows, taps * hidden] and the caches.
        """
        is_image = (image_rows >= 0)[:, None]
        source = torch.clamp(image_rows, min=0)
        rows = self.network.vlm.model.language_model.embed_tokens(token_ids)
        rows = torch.where(is_image, image_embeds[source], rows)
        added = [torch.where(is_image, level[source], 0.0) for level in deepstack.unbind(0)]
        output = self.network.vlm.model.language_model(rows, added, tables, caches)
        context_rows = self.config.drafter.context_rows
        head_rows = sampling_noise.shape[0]
        first = rows.shape[0] - head_rows
        history = torch.cat(
            [output.layer_outputs[layer][first - context_rows : first] for layer in self.config.drafter.tapped_layers],
            dim=-1,
        )
        row_ids = token_ids[-head_rows:]
        choice, context = self.decide(output, head_rows, row_ids, sampling_noise, sampling, history)
        return choice, context, output.caches


class VerifyStage(TextStage):
    """A block of known and proposed tokens in one pass."""

    def forward(
        self,
        token_ids: Tensor,
        context: Tensor,
        sampling_noise: Tensor,
        sampling: Tensor,
        tables: RingTables,
        caches: Caches,
    ) -> tuple[Choice, Tensor, Caches]:
        """`token_ids` [B]: the anchor, then proposals. Returns the choice, the slid `context` and the caches."""
        rows = self.network.vlm.model.language_model.embed_tokens(token_ids)
        output = self.network.vlm.model.language_model(rows, [], tables, caches)
        choice, context = self.decide(output, token_ids.shape[0], token_ids, sampling_noise, sampling, context)
        return choice, context, output.caches


class DraftStage(nn.Module):
    """The drafter's proposals for the tokens after the anchor."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.config = network.config

    def forward(self, anchor_id: Tensor, context: Tensor) -> Tensor:
        """`anchor_id` [1], `context` [context_rows, taps * hidden] to `draft_ids` [B - 1]."""
        network, tokens = self.network, self.config.tokens
        masks = network.drafter.mask_embedding.expand(self.config.drafter.block - 1, -1)
        block = torch.cat([network.vlm.model.language_model.embed_tokens(anchor_id), masks])
        logits = network.vlm.lm_head(network.drafter(block, context)[1:])
        barred = forbidden_ids(self.config).to(logits.device)
        proposed = logits.masked_fill(barred, float("-inf")).argmax(-1)
        before = torch.cat([anchor_id, proposed[:-1]])
        return torch.where(before == tokens.cot_end, tokens.future_start, proposed)


class ActionStage(nn.Module):
    """The flow from noise to normalised actions over the context that the caches hold."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.config = network.config

    def forward(
        self,
        noise: Tensor,
        flow_times: Tensor,
        flow_weights: Tensor,
        row_order: Tensor,
        row_position: Tensor,
        slot_order: Tensor,
        slot_position: Tensor,
        caches: Caches,
    ) -> Tensor:
        """`noise` [K, waypoints, 2], `flow_times` [m], `flow_weights` [m, m].

        `row_order` [1] and `row_position` [3, waypoints] are the expert's.
        Returns `actions` [K, waypoints, 2], normalised acceleration and curvature.
        """
        network = self.network
        language = network.vlm.model.language_model
        dtype = caches.keys[0].dtype
        slot_rotation = language.rotation(slot_position, dtype)
        context = [
            (rotate(caches.keys[layer], slot_rotation), caches.values[layer]) for layer in self.config.expert.text_layer
        ]
        return integrate(
            self.config,
            network.expert,
            network.action_in_proj,
            network.action_out_proj,
            noise,
            flow_times,
            flow_weights,
            language.rotation(row_position, dtype),
            context,
            slot_order[None, :] <= row_order[:, None],
        )
