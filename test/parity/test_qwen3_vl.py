"""Both towers against `transformers`' Qwen3-VL with the same random weights, float32, relative error 1e-5.

Theirs runs a whole multimodal prompt with its own positions, mask and scatter of image features; ours runs it through
the ring: another physical order, keys stored before RoPE, one mask rule.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from tiny_config import TINY, encode, layout_of, rough_network

from flashdrive_ros.engines.base import ImageFeatures, Sampling
from flashdrive_ros.engines.torch_engines import TorchEngines
from flashdrive_ros.model.config import NANO, ModelConfig
from flashdrive_ros.model.network import Network
from flashdrive_ros.model.prompt import build_prompt, tail_ids
from flashdrive_ros.streaming.kv_ring import KvRing
from flashdrive_ros.streaming.layout import EMPTY, Layout

transformers = pytest.importorskip("transformers")

TOLERANCE = 1e-5
GREEDY = Sampling()


def upright(config: ModelConfig) -> ModelConfig:
    """Images higher than wide, one frame a second axis shorter, other KV grouping, other sections."""
    return replace(
        config,
        vision=replace(config.vision, image_height=40, image_width=16, deepstack_blocks=(1, 2, 4), hidden=32, heads=4),
        text=replace(config.text, query_heads=4, kv_heads=2, mrope_section=(5, 1, 2), rope_theta=1e4),
        prompt=replace(config.prompt, cameras=(0, 6), frames=3),
    )


CONFIGURATIONS = {"wide": TINY, "upright": upright(TINY), "nano": NANO}


def assert_close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    """Relative to the root mean square of what is expected, entry by entry."""
    assert found.shape == expected.shape
    scale = expected.double().pow(2).mean().sqrt()
    assert float((found.double() - expected.double()).abs().max() / scale) <= tolerance


def published_model(config: ModelConfig, network: Network):
    """transformers' model with `network`'s weights under the published names."""
    vision, text, tokens = config.vision, config.text, config.tokens
    rope = {"rope_type": "default", "rope_theta": text.rope_theta, "mrope_interleaved": True}
    rope["mrope_section"] = list(text.mrope_section)
    theirs = transformers.Qwen3VLForConditionalGeneration(
        transformers.Qwen3VLConfig(
            text_config={
                "vocab_size": text.vocabulary,
                "hidden_size": text.hidden,
                "intermediate_size": text.mlp,
                "num_hidden_layers": text.layers,
                "num_attention_heads": text.query_heads,
                "num_key_value_heads": text.kv_heads,
                "head_dim": text.head_dim,
                "rms_norm_eps": text.norm_eps,
                "rope_parameters": rope,
            },
            vision_config={
                "depth": vision.depth,
                "hidden_size": vision.hidden,
                "intermediate_size": vision.mlp,
                "num_heads": vision.heads,
                "patch_size": vision.patch,
                "spatial_merge_size": vision.merge,
                "temporal_patch_size": vision.temporal_patch,
                "out_hidden_size": text.hidden,
                "num_position_embeddings": vision.position_grid**2,
                "deepstack_visual_indexes": list(vision.deepstack_blocks),
            },
            image_token_id=tokens.image_pad,
            vision_start_token_id=tokens.vision_start,
            vision_end_token_id=tokens.vision_end,
            tie_word_embeddings=False,
            attn_implementation="eager",
        )
    ).eval()
    weights = {
        name.removeprefix("vlm."): values for name, values in network.state_dict().items() if name.startswith("vlm.")
    }
    theirs.load_state_dict(weights, strict=True)
    return theirs.requires_grad_(False)


@dataclass(frozen=True)
class Pair:
    """Ours and theirs with one prompt."""

    config: ModelConfig
    layout: Layout
    network: Network
    theirs: object
    prompt_ids: torch.Tensor
    """[P] logical order"""
    tail: np.ndarray
    patches: torch.Tensor
    """[images, patches, patch_values], view-major as in the prompt."""

    @property
    def grid(self) -> torch.Tensor:
        rows, columns = self.config.vision.grid
        return torch.tensor([[1, rows, columns]] * len(self.patches))

    @property
    def token_types(self) -> torch.Tensor:
        return (self.prompt_ids == self.config.tokens.image_pad).int()[None]

    def published(self, extra: list[int], **options):
        """Their pass over the prompt and `extra` tokens behind it."""
        ids = torch.cat([self.prompt_ids, torch.tensor(extra, dtype=torch.int64)])[None]
        types = (ids == self.config.tokens.image_pad).int()
        return self.theirs(
            input_ids=ids,
            pixel_values=self.patches.flatten(0, 1),
            image_grid_thw=self.grid,
            mm_token_type_ids=types,
            output_hidden_states=True,
            **options,
        )

    def by_time(self) -> torch.Tensor:
        """`patches` in the order of first_fill: time step, then view."""
        views, frames = self.layout.views, self.layout.frames
        return self.patches.view(views, frames, *self.patches.shape[1:]).transpose(0, 1).flatten(0, 1)


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def pair(request) -> Pair:
    config = CONFIGURATIONS[request.param]
    network = rough_network(config, 3, torch.float32)
    layout = layout_of(config)
    prompt = build_prompt(config, encode)
    generator = np.random.default_rng(5)
    bins = generator.integers(0, config.prompt.history_bins, config.prompt.history_tokens) + config.tokens.history_first
    route = np.array([config.tokens.route_start, 3, 17, config.tokens.route_end])
    tail = tail_ids(prompt, bins, route)
    logical = np.concatenate([piece for label in prompt.labels for piece in (label, prompt.frame)] + [tail])
    images = layout.views * layout.frames
    shape = (images, config.vision.patches, config.vision.patch_values)
    patches = torch.from_numpy(generator.uniform(-1, 1, shape).astype(np.float32))
    theirs = published_model(config, network)
    return Pair(config, layout, network, theirs, torch.from_numpy(logical), tail, patches)


@dataclass(frozen=True)
class Filled:
    """A ring after first_fill, with what the pass gave."""

    ring: KvRing
    engines: TorchEngines
    hidden: torch.Tensor
    """[rows, hidden] after the final norm"""
    layers: list[torch.Tensor]
    prompt_rows: torch.Tensor
    """[P] row of each logical token"""
    next_id: int


def watch(network: Network, call):
    """`call()` and the TextOutput of the language model in it."""
    seen = []
    hook = network.vlm.model.language_model.register_forward_hook(lambda _, __, output: seen.append(output))
    try:
        result = call()
    finally:
        hook.remove()
    return result, seen[0]


@pytest.fixture(scope="module")
def filled(pair: Pair) -> Filled:
    config, layout = pair.config, pair.layout
    ring = KvRing(layout, config.tokens.trajectory_first)
    engines = TorchEngines(pair.network, layout.slots)
    rows = ring.first_fill(pair.tail)
    images = pair.by_time()
    parts = [engines.vision(step.flatten(0, 1).numpy()) for step in images.split(layout.views)]
    features = ImageFeatures(
        torch.cat([part.image_embeds for part in parts]), torch.cat([part.deepstack for part in parts], dim=1)
    )
    noise = np.zeros(layout.draft_rows + 1, np.float32)
    decision, output = watch(pair.network, lambda: engines.prefill(rows, features, noise, GREEDY))
    held = np.flatnonzero(rows.slot_order != EMPTY)
    prompt_rows = torch.from_numpy(held[np.argsort(rows.slot_order[held])])
    return Filled(ring, engines, output.hidden, output.layer_outputs, prompt_rows, decision.next_id)


# vision tower


def test_vision_tower_embeds_images_as_published(pair: Pair):
    theirs = pair.theirs.model.visual(pair.patches.flatten(0, 1), grid_thw=pair.grid)
    found, deepstack = pair.network.vlm.model.visual(pair.patches.flatten(0, 1))
    assert_close(found, theirs.pooler_output)
    assert len(theirs.deepstack_features) == deepstack.shape[0] == 3
    for level, expected in zip(deepstack, theirs.deepstack_features, strict=True):
        assert_close(level, expected)


def test_images_of_one_batch_do_not_see_each_other(pair: Pair):
    together, _ = pair.network.vlm.model.visual(pair.patches[:3].flatten(0, 1))
    alone, _ = pair.network.vlm.model.visual(pair.patches[1])
    assert_close(together.view(3, -1, pair.config.text.hidden)[1], alone)


# positions


def test_layout_positions_are_the_published_rope_index(pair: Pair):
    positions, delta = pair.theirs.model.get_rope_index(pair.prompt_ids[None], pair.token_types, pair.grid)
    ring = KvRing(pair.layout, pair.config.tokens.trajectory_first)
    rows = ring.first_fill(pair.tail)
    held = np.flatnonzero(rows.slot_order != EMPTY)
    logical = held[np.argsort(rows.slot_order[held])]
    np.testing.assert_array_equal(rows.slot_order[logical], np.arange(len(pair.prompt_ids)))
    np.testing.assert_array_equal(rows.token_ids[logical], pair.prompt_ids)
    np.testing.assert_array_equal(rows.slot_position[:, logical], positions[:, 0])
    first_generated = ring.reasoning_rows(0, np.array([0]), pair.config.drafter.block).row_position[:, 0]
    assert list(first_generated - len(pair.prompt_ids)) == [int(delta)] * 3


# text tower over the ring


def test_first_fill_gives_the_published_hidden_states(pair: Pair, filled: Filled):
    theirs = pair.published([])
    # their last hidden state is the one after the final norm
    assert_close(filled.hidden[filled.prompt_rows], theirs.hidden_states[-1][0])
    tail = slice(-len(pair.tail), None)
    assert_close(filled.hidden[filled.prompt_rows][tail], theirs.hidden_states[-1][0][tail])
    text = pair.token_types[0] == 0
    for index, (layer, expected) in enumerate(zip(filled.layers[:-1], theirs.hidden_states[1:-1], strict=True)):
        # they record the first three layers before the image features are added
        compared = text if index < 3 else slice(None)
        assert_close(layer[filled.prompt_rows][compared], expected[0][compared])


def test_first_fill_gives_the_published_logits(pair: Pair, filled: Filled):
    expected = pair.published([]).logits[0, -1]
    found = pair.network.vlm.lm_head(filled.hidden[filled.prompt_rows[-1]])
    assert_close(found, expected)
    barred = expected.clone()
    tokens = pair.config.tokens
    barred[tokens.trajectory_first : tokens.trajectory_first + tokens.trajectory_count] = -torch.inf
    barred[tokens.cot_end] = -torch.inf
    assert filled.next_id == int(barred.argmax())


def reasoning(config: ModelConfig) -> list[int]:
    """Known tokens, one verify block of them."""
    return [int(token) for token in np.random.default_rng(8).integers(0, 40, config.drafter.block)]


def branch(pair: Pair, filled: Filled) -> tuple[KvRing, TorchEngines]:
    """A copy of a filled ring that can go on by itself; stages never write into the caches they are given."""
    engines = TorchEngines(pair.network, pair.layout.slots)
    engines.caches, engines.context = filled.engines.caches, filled.engines.context
    return copy.deepcopy(filled.ring), engines


def test_one_block_equals_single_passes_and_the_published_decode(pair: Pair, filled: Filled):
    ids = reasoning(pair.config)
    block = pair.config.drafter.block
    noise = np.zeros(block, np.float32)
    ring, engines = branch(pair, filled)
    at_once = ring.reasoning_rows(0, np.array(ids), block)
    _, output = watch(pair.network, lambda: engines.verify(at_once, noise, GREEDY))
    ring, engines = branch(pair, filled)
    single = []
    for index, token in enumerate(ids):
        rows = ring.reasoning_rows(index, np.array([token]), block)
        _, one = watch(pair.network, lambda rows=rows: engines.verify(rows, noise, GREEDY))
        single.append(one.hidden[0])
    assert_close(output.hidden, torch.stack(single))
    cache = pair.published([], use_cache=True).cache
    decoded = []
    for token in ids:
        step = pair.theirs(input_ids=torch.tensor([[token]]), cache=cache, use_cache=True, output_hidden_states=True)
        cache = step.cache
        decoded.append(step.hidden_states[-1][0, 0])
    assert_close(output.hidden, torch.stack(decoded))
    assert_close(output.hidden, pair.published(ids).hidden_states[-1][0, -len(ids) :])
