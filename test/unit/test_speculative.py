"""Reasoning with a toy model: whatever is proposed, the text is the sequential one and the ring holds exactly it.

The toy engine answers by a fixed function of the tokens that its slots hold, so that a slot with the wrong token in it
changes the text, and it keeps every written token by slot.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashdrive_ros.engines.base import Decision, Sampling
from flashdrive_ros.model.config import NANO
from flashdrive_ros.model.prompt import build_prompt, tail_ids
from flashdrive_ros.reasoning.speculative import Reasoned, finish_reasoning, propose_finish
from flashdrive_ros.streaming.kv_ring import KvRing
from flashdrive_ros.streaming.layout import build_layout

BUDGET, BLOCK, DRAFT_ROWS = 10, 4, 7
CONFIG = replace(
    NANO,
    drafter=replace(NANO.drafter, block=BLOCK),
    prompt=replace(NANO.prompt, reasoning_capacity=BUDGET, draft_capacity=DRAFT_ROWS, cameras=(1,), history_steps=1),
)
TOKENS = CONFIG.tokens
END, START = TOKENS.cot_end, TOKENS.future_start
WORDS = 5
"""The toy model's words are the ids 0 ... 4."""
PROMPT = build_prompt(CONFIG, lambda text: [sum(text.encode()) % 7])
LAYOUT = build_layout(CONFIG, PROMPT)
TAIL = tail_ids(PROMPT, np.zeros(3, np.int64), np.empty(0, np.int64))
NO_NOISE = np.zeros(LAYOUT.reasoning_room + 1, np.float32)


def toy_model(end_after: int, seed: int = 0):
    """A model that ends after `end_after` words; any word depends on all tokens before it."""

    def answer(prefix: tuple[int, ...]) -> int:
        if prefix and prefix[-1] == END:
            return START
        if len(prefix) >= end_after:
            return END
        return zlib.crc32(repr((seed, prefix)).encode()) % WORDS

    return answer


class ToyEngines:
    """Stage engines that hold token ids instead of keys."""

    config = CONFIG

    def __init__(self, answer) -> None:
        self.answer = answer
        self.slots: dict[int, int] = {}
        """Token that was last written to a slot."""
        self.verified: list[tuple[int, ...]] = []
        self.noise: list[np.ndarray] = []

    def prefill(self, rows, noise) -> Decision:
        self.noise.append(noise)
        return self._decide(rows, LAYOUT.prompt_rows - 1)

    def verify(self, rows, noise, sampling) -> Decision:
        self.noise.append(noise)
        used = rows.row_order > 0
        self.verified.append(tuple(int(token) for token in rows.token_ids[used]))
        return self._decide(rows, 0)

    def text_of(self, slot_order: np.ndarray, last_order: int) -> tuple[int, ...]:
        """The reasoning that a row of that order sees, read from the slots in logical order."""
        first = LAYOUT.tail_order + len(TAIL)
        visible = np.flatnonzero((slot_order >= first) & (slot_order <= last_order))
        return tuple(self.slots[int(slot)] for slot in visible[np.argsort(slot_order[visible])])

    def _decide(self, rows, anchor: int) -> Decision:
        for row, token in enumerate(rows.token_ids):
            self.slots[int(rows.write_slot[0]) + row] = int(token)
        chosen = [self.answer(self.text_of(rows.slot_order, int(order))) for order in rows.row_order[anchor:]]
        accepted = 0
        for proposal, choice in zip(rows.token_ids[anchor + 1 :], chosen, strict=False):
            if proposal != choice:
                break
            accepted += 1
        return Decision(accepted, chosen[accepted])


def reason(answer, propose, draft: list[int] | None = None) -> tuple[Reasoned, ToyEngines, KvRing]:
    draft = draft or []
    engines = ToyEngines(answer)
    ring = KvRing(LAYOUT, TOKENS.trajectory_first)
    ring.static_rows()
    for _ in range(3):
        ring.push(TAIL, np.empty(0, np.int64))
    decision = engines.prefill(ring.push(TAIL, np.array(draft, np.int64)), NO_NOISE[: DRAFT_ROWS + 1])
    reasoned = finish_reasoning(engines, ring, draft, decision, NO_NOISE, Sampling(), propose)
    return reasoned, engines, ring


def sequential(answer) -> tuple[list[int], bool]:
    """Token by token, without a ring; True when the budget ended it."""
    text: list[int] = []
    while len(text) < BUDGET + 1:
        token = answer(tuple(text))
        if token == END:
            return [*text, END, START], False
        text.append(token)
    return [*text[:BUDGET], END, START], True


def assert_ring_holds(reasoned: Reasoned, engines: ToyEngines, ring: KvRing) -> None:
    """Every known token was last written as what it really is, and the action stage sees those and no other."""
    order, position = ring.action_rows(len(reasoned.token_ids), 3)
    assert engines.text_of(ring.slot_order, int(order[0])) == reasoned.token_ids
    assert engines.text_of(ring.slot_order, 2**29) == reasoned.token_ids
    assert list(position[0]) == [LAYOUT.tail_position + len(TAIL) + len(reasoned.token_ids) + step for step in range(3)]


def right(answer):
    """Proposes what the model will say."""

    def propose(known: list[int]) -> list[int]:
        text = list(known)
        while len(text) < len(known) + BLOCK - 1:
            text.append(answer(tuple(text)))
        return text[len(known) :]

    return propose


def wrong(answer):
    """Never proposes what the model will say."""
    return lambda known: [(answer(tuple(known)) + 1) % WORDS] * (BLOCK - 1)


FINISH = propose_finish(END, START)
PROPOSERS = {
    "nothing": lambda answer: lambda known: [],
    "the end": lambda answer: FINISH,
    "the right words": right,
    "wrong words": wrong,
    "far too much": lambda answer: lambda known: right(answer)(known) * 5,
}


@pytest.mark.parametrize("name", PROPOSERS)
@pytest.mark.parametrize("end_after", range(1, BUDGET + 4))
def test_no_proposal_changes_the_text(name: str, end_after: int):
    answer = toy_model(end_after)
    reasoned, engines, ring = reason(answer, PROPOSERS[name](answer))
    assert (list(reasoned.token_ids), reasoned.truncated) == sequential(answer)
    assert reasoned.verify_passes == len(engines.verified)
    assert_ring_holds(reasoned, engines, ring)


@given(
    st.integers(1, BUDGET + 4),
    st.integers(0, 9),
    st.lists(st.sampled_from([*range(WORDS), END, START]), max_size=DRAFT_ROWS),
    st.integers(0, DRAFT_ROWS),
    st.randoms(use_true_random=False),
)
def test_random_drafts_and_proposals_change_nothing(end_after, seed, draft, right_start, random):
    answer = toy_model(end_after, seed)
    true_text, truncated = sequential(answer)
    draft = [*true_text[:right_start], *draft][:DRAFT_ROWS]
    alphabet = [*range(WORDS), END, START]

    def propose(known: list[int]) -> list[int]:
        true_next = right(answer)(known)
        return [random.choice([token, random.choice(alphabet)]) for token in true_next]

    reasoned, engines, ring = reason(answer, propose, draft)
    assert (list(reasoned.token_ids), reasoned.truncated) == (true_text, truncated)
    assert_ring_holds(reasoned, engines, ring)
    assert 0 <= reasoned.proposals_accepted <= len(true_text)


def test_a_draft_beyond_the_budget_is_cut():
    config = replace(CONFIG, prompt=replace(CONFIG.prompt, reasoning_capacity=3))
    answer = toy_model(20)
    engines = ToyEngines(answer)
    engines.config = config
    ring = KvRing(LAYOUT, TOKENS.trajectory_first)
    ring.static_rows()
    draft = right(answer)([])[:3]
    draft = [*draft, *right(answer)(draft)][:5]
    decision = engines.prefill(ring.push(TAIL, np.array(draft, np.int64)), NO_NOISE[: DRAFT_ROWS + 1])
    assert decision.accepted == 5
    reasoned = finish_reasoning(engines, ring, draft, decision, NO_NOISE, Sampling(), FINISH)
    assert reasoned.token_ids == (*draft[:3], END, START)
    assert reasoned.truncated
    assert reasoned.proposals_accepted == 3
    assert_ring_holds(reasoned, engines, ring)


# passes, worked by hand for blocks of 4


def test_passes_of_sequential_decoding():
    # 4 words; the prefill gives the first. Passes write word 1, 2, 3, 4, cot_end, future_start.
    reasoned, _, _ = reason(toy_model(4), lambda known: [])
    assert (reasoned.verify_passes, reasoned.proposals_accepted) == (6, 0)


def test_proposing_the_end_saves_its_passes():
    # Passes write word 1, 2, 3 and then word 4 with the accepted cot_end and future_start.
    reasoned, engines, _ = reason(toy_model(4), FINISH)
    assert (reasoned.verify_passes, reasoned.proposals_accepted) == (4, 2)
    assert engines.verified[-1] == (reasoned.token_ids[3], END, START)


def test_right_proposals_need_one_pass_for_each_block():
    # Prefill gives word 1; pass 1 writes words 1 to 4 and gives word 5; pass 2 writes word 5, 6, cot_end, future_start.
    answer = toy_model(6)
    reasoned, engines, _ = reason(answer, right(answer))
    assert (reasoned.verify_passes, reasoned.proposals_accepted) == (2, 6)
    assert [len(tokens) for tokens in engines.verified] == [4, 4]


def test_wrong_proposals_cost_as_many_passes_as_none():
    answer = toy_model(4)
    reasoned, _, _ = reason(answer, wrong(answer))
    assert (reasoned.verify_passes, reasoned.proposals_accepted) == (6, 0)


def test_a_draft_that_holds_the_end_needs_no_pass():
    answer = toy_model(4)
    text, _ = sequential(answer)
    reasoned, engines, ring = reason(answer, FINISH, [*text, 3])
    assert list(reasoned.token_ids) == text
    assert (reasoned.verify_passes, reasoned.proposals_accepted, engines.verified) == (0, 6, [])
    assert_ring_holds(reasoned, engines, ring)


def test_a_draft_without_future_start_needs_one_pass_to_write_it():
    answer = toy_model(4)
    text, _ = sequential(answer)
    reasoned, engines, ring = reason(answer, FINISH, text[:5])
    assert list(reasoned.token_ids) == text
    assert engines.verified[0][0] == START
    assert reasoned.verify_passes == 1
    assert_ring_holds(reasoned, engines, ring)


def test_the_budget_writes_the_end_in_one_pass():
    # The prefill gives word 1, nine passes give words 2 to 10; the tenth writes word 10 with the end.
    reasoned, engines, _ = reason(toy_model(99), FINISH)
    assert reasoned.truncated
    assert len(reasoned.token_ids) == BUDGET + 2
    assert reasoned.verify_passes == 10
    assert engines.verified[-1] == (reasoned.token_ids[BUDGET - 1], END, START)


def test_an_end_right_behind_the_last_word_of_the_budget_is_no_truncation():
    for name, propose in PROPOSERS.items():
        answer = toy_model(BUDGET)
        reasoned, _, _ = reason(answer, propose(answer))
        assert not reasoned.truncated, name


def test_each_position_is_sampled_with_its_own_noise():
    noise = np.arange(len(NO_NOISE), dtype=np.float32)
    answer = toy_model(6)
    engines, ring = ToyEngines(answer), KvRing(LAYOUT, TOKENS.trajectory_first)
    ring.static_rows()
    decision = engines.prefill(ring.push(TAIL, np.empty(0, np.int64)), noise[: DRAFT_ROWS + 1])
    finish_reasoning(engines, ring, [], decision, noise, Sampling(), right(answer))
    # A row of the i-th token chooses token i + 1: pass 1 starts with token 0, pass 2 with token 4.
    assert [list(values) for values in engines.noise[1:]] == [[1, 2, 3, 4], [5, 6, 7, 8]]
