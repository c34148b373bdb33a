"""Captions: what they say, how long they are, that they hold still."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tokenizers import Tokenizer  # noqa: E402

from flashdrive_ros.world import causes  # noqa: E402
from flashdrive_ros.world.captions import (  # noqa: E402
    Situation,
    all_sentences,
    captions,
    route_text,
    routes,
    sentence,
)
from flashdrive_ros.world.scene import make_scenes  # noqa: E402
from flashdrive_ros.world.simulation import simulate  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small arrays on a busy machine: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer(repository: Path) -> Tokenizer:
    return Tokenizer.from_file(str(repository / "resource" / "models" / "nano" / "tokenizer.json"))


def test_every_caption_has_8_to_24_tokens_of_nano(tokenizer: Tokenizer) -> None:
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(all_sentences())]
    assert min(lengths) >= 8
    assert max(lengths) <= 24


def test_there_are_a_few_thousand_captions() -> None:
    assert len(all_sentences()) > 2000


def test_caption_names_cause_and_manoeuvre() -> None:
    situation = Situation(causes.LEAD, causes.BRAKING, "red car", causes.NUDGE, "white van", 1)
    expected = "slow down for the braking red car in our lane and steer around the parked white van."
    assert sentence(situation) == expected


def test_route_texts_fit_the_prompt_of_nano(tokenizer: Tokenizer) -> None:
    texts = [route_text(code) for code in range(14)]
    assert texts[0] == ""
    assert "turn left in 40m" in texts
    assert "turn right in 100m" in texts
    assert max(len(encoding.ids) for encoding in tokenizer.encode_batch(texts)) <= 14


def test_captions_of_drives_hold_still_and_are_among_those_listed() -> None:
    rollout = simulate(make_scenes(range(700, 716)), 120)
    step = torch.arange(120)
    known = set(all_sentences())
    changes = 0
    for scene in range(16):
        texts = captions(rollout, step, torch.full((120,), scene))
        assert set(texts) <= known
        changes += sum(before != after for before, after in pairwise(texts))
    # 16 scenes of 12 s: fewer than one change every two seconds
    assert changes < 96


def test_route_is_announced_before_the_turn_and_not_after_it() -> None:
    scenes = make_scenes(range(60))
    rollout = simulate(scenes, 200)
    begin, end = scenes.turn_stations.unbind(-1)
    turned = (rollout.ego_station[-1] > end + 5).nonzero()[:, 0]
    assert len(turned) > 3
    for scene in turned.tolist():
        texts = routes(rollout, torch.arange(200), torch.full((200,), scene))
        side = "left" if scenes.turn[scene] > 0 else "right"
        at_turn = int((rollout.ego_station[:, scene] > begin[scene]).nonzero()[0])
        assert texts[at_turn].startswith(f"turn {side}")
        assert texts[-1] == ""
