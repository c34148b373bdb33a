"""A ring driven window by window against a dense float64 recomputation of the same streaming rule, to 1e-9.

The windows differ in everything a stream can vary: route texts come and go, drafts and blocks of proposals are accepted
in part, reasoning ends early or late, and the stream is reset in the middle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from dense_reference import DenseStream, see_images
from tiny_config import TINY, encode, layout_of, rough_network

from flashdrive_ros.action.schedule import dense_schedule, flow_tables
from flashdrive_ros.engines.base import FlowInputs, ImageFeatures, Sampling
from flashdrive_ros.engines.torch_engines import TorchEngines
from flashdrive_ros.model.prompt import build_prompt, route_ids, tail_ids
from flashdrive_ros.reasoning.speculative import finish_reasoning
from flashdrive_ros.streaming.kv_ring import KvRing, Rows
from flashdrive_ros.streaming.layout import EMPTY

CONFIG = TINY
TOKENS = CONFIG.tokens
BLOCK = CONFIG.drafter.block
WINDOWS, RESET_BEFORE = 12, 6
ROUTES = ("", "left", "", "left at the red house", "right now", "")
GREEDY = Sampling()


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Relative to the root mean square of what is expected, entry by entry."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype == torch.float64
    assert float((found - expected).abs().max() / expected.pow(2).mean().sqrt()) <= 1e-9


@dataclass(frozen=True)
class Streams:
    """The ring and the reference, side by side, and what happens to both."""

    ring: KvRing
    engines: TorchEngines
    reference: DenseStream
    seen: list
    """Outputs of the language model, newest last."""
    random: np.random.Generator

    def tail(self, window: int) -> np.ndarray:
        prompt = CONFIG.prompt
        bins = self.random.integers(0, prompt.history_bins, prompt.history_tokens) + TOKENS.history_first
        return tail_ids(build_prompt(CONFIG, encode), bins, route_ids(ROUTES[window % len(ROUTES)], CONFIG, encode))

    def text(self, count: int) -> np.ndarray:
        return self.random.integers(0, TOKENS.pad, count)

    def patches(self) -> np.ndarray:
        shape = (self.ring.layout.views, CONFIG.vision.patches, CONFIG.vision.patch_values)
        return self.random.uniform(-1, 1, shape).astype(np.float32)

    def look(self, patches: np.ndarray):
        """Features of one time step, by both."""
        found = self.engines.vision(patches.reshape(-1, patches.shape[-1]))
        expected = [see_images(self.reference.weights, CONFIG, torch.from_numpy(view).double()) for view in patches]
        assert_close(found.image_embeds, torch.cat([embeds for embeds, _ in expected]))
        assert_close(found.deepstack, torch.cat([levels for _, levels in expected], dim=1))
        return found, expected

    def prefill(self, rows: Rows, features: ImageFeatures):
        noise = np.zeros(self.ring.layout.draft_rows + 1, np.float32)
        decision = self.engines.prefill(rows, features, noise, GREEDY)
        return decision, self.seen[-1].hidden

    def fill_static(self) -> None:
        _, hidden = self.prefill(self.ring.static_rows(), self.engines.no_image())
        self.reference.run_labels()
        assert hidden.shape[0] == self.ring.layout.prefill_rows

    def first_fill(self) -> None:
        steps = [self.look(self.patches()) for _ in range(CONFIG.prompt.frames)]
        tail = self.tail(0)
        rows = self.ring.first_fill(tail)
        features = ImageFeatures(
            torch.cat([found.image_embeds for found, _ in steps]),
            torch.cat([found.deepstack for found, _ in steps], dim=1),
        )
        _, hidden = self.prefill(rows, features)
        expected = self.reference.first_fill([features for _, features in steps], [int(token) for token in tail])
        used = np.flatnonzero(rows.slot_order[: len(hidden)] != EMPTY)
        assert_close(hidden[used[np.argsort(rows.slot_order[used])]], expected.hidden)

    def push(self, window: int, draft: np.ndarray):
        found, features = self.look(self.patches())
        tail = self.tail(window)
        rows = self.ring.push(tail, draft)
        decision, hidden = self.prefill(rows, found)
        expected = self.reference.push(features, [int(token) for token in tail])
        prompt_rows = self.ring.layout.prompt_rows
        frames, words = hidden[: self.ring.layout.visual_rows], hidden[prompt_rows - len(tail) : prompt_rows]
        assert_close(torch.cat([frames, words]), expected.hidden)
        return decision, hidden[prompt_rows:], expected

    def reason(self, known: int, ids: np.ndarray, accepted: int) -> int:
        """A verify pass of `ids` behind `known` tokens, of which `accepted` stay; returns how many are known then."""
        rows = self.ring.reasoning_rows(known, ids, BLOCK)
        self.engines.verify(rows, np.zeros(BLOCK, np.float32), GREEDY)
        hidden = self.seen[-1].hidden[:accepted]
        self.ring.keep_reasoning(known + accepted)
        assert_close(hidden, self.reference.reason([int(token) for token in ids[:accepted]]).hidden)
        return known + accepted

    def act(self, window: int, known: int) -> None:
        samples = 3 if window % 2 else 1
        times, weights = flow_tables(dense_schedule(CONFIG.action.flow_steps))
        order, position = self.ring.action_rows(known, CONFIG.action.waypoints)
        noise = self.random.standard_normal((samples, CONFIG.action.waypoints, 2)).astype(np.float32)
        tables = (order, position, self.ring.slot_order, self.ring.slot_position)
        found = self.engines.action(FlowInputs(noise, times, weights, *tables))
        # the steps of 1/8 are exact in the float32 of the flow tables
        expected = self.reference.act(torch.from_numpy(noise).double(), CONFIG.action.flow_steps)
        assert_close(torch.from_numpy(found), expected)


@pytest.fixture
def streams() -> Streams:
    network = rough_network(CONFIG, 11, torch.float64)
    layout = layout_of(CONFIG)
    prompt = build_prompt(CONFIG, encode)
    reference = DenseStream(
        CONFIG,
        network.state_dict(),
        [[int(token) for token in label] for label in prompt.labels],
        [int(token) for token in prompt.frame],
    )
    seen: list = []
    network.vlm.model.language_model.register_forward_hook(lambda _, __, output: seen.append(output))
    ring = KvRing(layout, TOKENS.trajectory_first)
    return Streams(ring, TorchEngines(network, layout.slots), reference, seen, np.random.default_rng(2))


def greedy_text(reference: DenseStream, logits: torch.Tensor) -> list[int]:
    """What sequential decoding writes, the forced end included."""
    text: list[int] = []
    while len(text) < CONFIG.prompt.reasoning_capacity:
        logits = logits.clone()
        logits[TOKENS.trajectory_first : TOKENS.trajectory_first + TOKENS.trajectory_count] = -torch.inf
        if not text:
            logits[TOKENS.cot_end] = -torch.inf
        text.append(int(logits.argmax()))
        if text[-1] == TOKENS.cot_end:
            break
        logits = reference.reason([text[-1]]).logits[-1]
    if text[-1] == TOKENS.cot_end:
        text.pop()
    reference.reason([TOKENS.cot_end, TOKENS.future_start])
    return [*text, TOKENS.cot_end, TOKENS.future_start]


@pytest.mark.parametrize("start", ["cold", "first fill"])
def test_ring_equals_the_dense_reference_over_twelve_windows(streams: Streams, start: str):
    if start == "cold":
        streams.fill_static()
    else:
        streams.first_fill()
    for window in range(WINDOWS):
        if window == RESET_BEFORE:
            streams.ring.reset()
            streams.reference.reset()
            if start == "first fill":  # the labels had seen the first images
                streams.fill_static()
        draft = streams.text(window % (CONFIG.prompt.draft_capacity + 1))
        _, drafted, _ = streams.push(window, draft)
        known = min(len(draft), window // 2)
        streams.ring.keep_reasoning(known)
        if known:
            expected = streams.reference.reason([int(token) for token in draft[:known]])
            assert_close(drafted[:known], expected.hidden)
        for size, accepted in ((BLOCK, 1 + window % BLOCK), (2, 1), (1 + window % 3, 1 + window % 3)):
            if window % 5 != 4 and known + size <= CONFIG.prompt.reasoning_capacity:
                known = streams.reason(known, streams.text(size), accepted)
        known = streams.reason(known, np.array([TOKENS.cot_end, TOKENS.future_start]), 2)
        if streams.ring.is_full:
            streams.act(window, known)


@pytest.mark.parametrize("drafted", [0, 3, 6])
def test_decoding_with_the_drafter_writes_the_greedy_text_of_the_reference(streams: Streams, drafted: int):
    streams.fill_static()
    for window in range(CONFIG.prompt.frames - 1):
        streams.push(window, streams.text(0))
    draft = streams.text(drafted)
    decision, _, output = streams.push(3, draft)
    expected = greedy_text(streams.reference, output.logits[-1])
    noise = np.zeros(streams.ring.layout.reasoning_room + 1 + BLOCK, np.float32)
    reasoned = finish_reasoning(
        streams.engines,
        streams.ring,
        [int(token) for token in draft],
        decision,
        noise,
        GREEDY,
        lambda known: [int(token) for token in streams.engines.draft(known[-1])],
    )
    assert list(reasoned.token_ids) == expected
    streams.act(1, len(expected))
