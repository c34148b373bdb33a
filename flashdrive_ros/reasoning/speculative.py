"""Lossless reasoning: propose, verify in one pass, keep what the model itself would have chosen (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flashdrive_ros.engines.base import Decision, Floats, Sampling, StageEngines
from flashdrive_ros.model.config import TokenIds
from flashdrive_ros.streaming.kv_ring import KvRing

Propose = Callable[[list[int]], list[int]]
"""Known reasoning tokens to proposals for the next ones; any proposal is allowed, none changes the text."""


@dataclass(frozen=True)
class Reasoned:
    """The finished reasoning of one window; keys and values of every token are in the ring."""

    token_ids: tuple[int, ...]
    """All tokens, cot_end and future_start included."""
    truncated: bool
    """The budget ended it."""
    verify_passes: int
    proposals_accepted: int


def propose_finish(cot_end: int, future_start: int) -> Propose:
    """Proposes only the end: it costs nothing in rows that would be padding, and saves the pass that writes the end."""

    def propose(known: list[int]) -> list[int]:
        return [future_start] if known[-1] == cot_end else [cot_end, future_start]

    return propose


def finish_reasoning(
    engines: StageEngines,
    ring: KvRing,
    draft_ids: list[int],
    decision: Decision,
    noise: Floats,
    sampling: Sampling,
    propose: Propose,
) -> Reasoned:
    """Decode from what the prefill decided on `draft_ids` until future_start is in the ring.

    `noise` [reasoning_room + 1]: the uniform of each reasoning position. Tokens that the ring holds are a prefix of the
    known ones; at most one known token, the anchor of the next pass, is not in the ring yet.
    """
    config = engines.config
    tokens, block, budget = config.tokens, config.drafter.block, config.prompt.reasoning_capacity
    known = [*draft_ids[: decision.accepted], decision.next_id]
    written, passes, accepted = decision.accepted, 0, decision.accepted
    ring.keep_reasoning(written)
    while tokens.future_start not in known[:written]:
        if _exhausted(known, budget, tokens):
            # accepted proposals may have gone beyond the budget, by which sequential decoding would have ended
            accepted -= max(written - budget, 0)
            written = min(written, budget)
            ending = [*known[written:budget], tokens.cot_end, tokens.future_start]
            rows = ring.reasoning_rows(written, np.array(ending, np.int64), block)
            decision = engines.verify(rows, noise[written + 1 : written + 1 + block], sampling)
            # with the last token as its anchor, this pass may find that the model ends here by itself
            truncated = written == budget or decision.accepted == 0
            return Reasoned((*known[:written], *ending), truncated, passes + 1, accepted)
        proposals = propose(known)[: block - 1]
        rows = ring.reasoning_rows(written, np.array([known[-1], *proposals], np.int64), block)
        decision = engines.verify(rows, noise[written + 1 : written + 1 + block], sampling)
        passes += 1
        hits = min(decision.accepted, len(proposals))
        known += [*proposals[:hits], decision.next_id]
        written, accepted = written + 1 + hits, accepted + hits
        ring.keep_reasoning(written)
    end = known.index(tokens.future_start) + 1
    ring.keep_reasoning(end)
    return Reasoned(tuple(known[:end]), False, passes, accepted - (written - end))


def _exhausted(known: list[int], budget: int, tokens: TokenIds) -> bool:
    """`budget` tokens without an end; a cot_end right behind them is the model's own and in time."""
    ended = tokens.cot_end in known[: budget + 1] or tokens.future_start in known[:budget]
    return len(known) >= budget and not ended
