"""The ring's tables under any sequence of calls: nothing stale, empty or from the future is ever visible.

A model of the caches tags every physical slot with what was last written there. What each row may see is worked out
from the prompt alone, without the layout's orders.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashdrive_ros.errors import ParameterError
from flashdrive_ros.model.config import NANO
from flashdrive_ros.model.prompt import build_prompt
from flashdrive_ros.streaming.kv_ring import KvRing, Rows
from flashdrive_ros.streaming.layout import EMPTY, build_layout

BLOCK = 3
CONFIG = replace(
    NANO,
    vision=replace(NANO.vision, image_height=32, image_width=64),
    drafter=replace(NANO.drafter, block=BLOCK),
    prompt=replace(
        NANO.prompt,
        cameras=(0, 6),
        frames=3,
        system_text="a",
        request_text="b",
        camera_label="c",
        frame_label="d",
        history_steps=1,
        route_capacity=4,
        reasoning_capacity=6,
        draft_capacity=4,
    ),
)
PROMPT = build_prompt(CONFIG, lambda text: [sum(text.encode()) % 50])
LAYOUT = build_layout(CONFIG, PROMPT)
VIEWS, FRAMES, FRAME = 2, 3, len(PROMPT.frame)
PAD = CONFIG.tokens.trajectory_first
TAIL_ROOM = PROMPT.tail_tokens + CONFIG.prompt.route_capacity

Tag = tuple
"""("label", n, token), ("frame", window, view, token), ("tail", window, token), ("reasoning", window, token, id)"""


class SlotModel:
    """What the caches hold and what may be seen, as plain Python."""

    def __init__(self) -> None:
        self.held: dict[int, Tag] = {}
        """Slot to what was last written there; padding writes None."""
        self.windows: list[int] = []
        self.window = 0
        self.tail = 0
        self.reasoning: list[int] = []
        self.fill = 0
        """Number of the pass that wrote the labels."""
        self.ready = False
        self.labels_saw_frames = False

    def forget(self) -> None:
        """A reset; labels that have seen images of the old stream have to be run again."""
        self.windows, self.reasoning = [], []
        self.ready = self.ready and not self.labels_saw_frames

    def labels(self) -> list[Tag]:
        return [("label", self.fill, n, token) for n, label in enumerate(PROMPT.labels) for token in range(len(label))]

    def logical(self) -> list[Tag]:
        """Everything that may be seen, in logical order: view-major prompt, tail, reasoning."""
        sequence = []
        for n, label in enumerate(PROMPT.labels):
            view, index = divmod(n, FRAMES)
            sequence += [("label", self.fill, n, token) for token in range(len(label))]
            age = FRAMES - 1 - index
            if age < len(self.windows):
                sequence += [("frame", self.windows[-1 - age], view, token) for token in range(FRAME)]
        if self.windows:
            sequence += [("tail", self.window, token) for token in range(self.tail)]
            sequence += [("reasoning", self.window, n, token) for n, token in enumerate(self.reasoning)]
        return sequence

    def write(self, rows: Rows, meaning: dict[int, Tag]) -> None:
        """A pass: row i writes its slot before any row looks."""
        start, count = int(rows.write_slot[0]), len(rows.token_ids)
        assert start >= 0
        assert start + count <= LAYOUT.slots
        for row in range(count):
            self.held[start + row] = meaning.get(row)

    def check(self, rows: Rows, meaning: dict[int, Tag]) -> None:
        """Each row of the pass sees what stands before it in the logical sequence and itself, and nothing else."""
        logical = self.logical()
        place = {tag: index for index, tag in enumerate(logical)}
        assert set(meaning.values()) <= set(place)
        for row in range(len(rows.token_ids)):
            seen = [self.held.get(int(slot)) for slot in np.flatnonzero(rows.slot_order <= rows.row_order[row])]
            assert None not in seen, "an empty or padded slot is visible"
            assert len(seen) == len(set(seen)) > 0
            if row in meaning:
                assert set(seen) == set(logical[: place[meaning[row]] + 1])
            else:
                assert seen == logical[:1], "padding sees the first token alone"
        self.check_tables(rows)

    def check_tables(self, rows: Rows) -> None:
        """Slots of the tables hold exactly the logical sequence, with the positions a whole prompt would have."""
        used = np.flatnonzero(rows.slot_order != EMPTY)
        used = used[np.argsort(rows.slot_order[used])]
        assert [self.held[int(slot)] for slot in used] == self.logical()
        expected = positions()
        for slot in used:
            tag = self.held[int(slot)]
            if tag[0] == "label":
                key = ("label", tag[2], tag[3])
            elif tag[0] == "frame":
                age = self.windows[::-1].index(tag[1])
                key = ("frame", tag[2] * FRAMES + FRAMES - 1 - age, tag[3])
            else:
                key = ("text", tag[2] + (self.tail if tag[0] == "reasoning" else 0))
            np.testing.assert_array_equal(rows.slot_position[:, slot], expected(key))


def positions():
    """M-RoPE position of each token of a whole prompt, by the rule of the published model."""
    rows, columns = CONFIG.vision.image_height // 32, CONFIG.vision.image_width // 32
    table, position = {}, 0
    for n, label in enumerate(PROMPT.labels):
        for token in range(len(label)):
            table["label", n, token] = (position + token,) * 3
        position += len(label)
        table["frame", n, 0] = (position,) * 3
        for token in range(rows * columns):
            y, x = divmod(token, columns)
            table["frame", n, 1 + token] = (position + 1, position + 1 + y, position + 1 + x)
        position += 1 + max(rows, columns)
        table["frame", n, 1 + rows * columns] = (position,) * 3
        position += 1
    tail = position
    return lambda key: (tail + key[1],) * 3 if key[0] == "text" else table[key]


def frame_tags(window: int, first_row: int) -> dict[int, Tag]:
    return {
        first_row + view * FRAME + token: ("frame", window, view, token)
        for view in range(VIEWS)
        for token in range(FRAME)
    }


def tail_tags(model: SlotModel, first_row: int) -> dict[int, Tag]:
    start = first_row + LAYOUT.prompt_rows - model.tail
    return {start + token: ("tail", model.window, token) for token in range(model.tail)}


def expected_ids(rows: Rows, meaning: dict[int, Tag], model: SlotModel) -> None:
    """Token ids, and image rows numbered through time steps and views."""
    images = []
    for row, token_id in enumerate(rows.token_ids):
        tag = meaning.get(row)
        is_image = tag is not None and tag[0] == "frame" and 0 < tag[3] < FRAME - 1
        assert (rows.image_rows[row] >= 0) == is_image
        if is_image:
            images.append((model.windows.index(tag[1]) if rows.write_slot[0] == 0 else 0, tag[2], tag[3], row))
        expected = {
            "label": lambda tag: PROMPT.labels[tag[2]][tag[3]],
            "frame": lambda tag: PROMPT.frame[tag[3]],
            "tail": lambda tag: tag[2] % 7,
            "reasoning": lambda tag: tag[3],
        }
        assert token_id == (PAD if tag is None else expected[tag[0]](tag))
    assert [rows.image_rows[row] for *_, row in sorted(images)] == list(range(len(images)))


def tail_of(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int64) % 7


def run(ring: KvRing, model: SlotModel, operation: tuple) -> None:
    """One call on ring and model, and every check that goes with it."""
    name, *arguments = operation
    if name == "static":
        rows = ring.static_rows()
        model.windows, model.reasoning = [], []
        model.ready, model.labels_saw_frames = True, False
        model.fill += 1
        meaning = dict(enumerate(model.labels()))
    elif name == "first fill":
        (tail,) = arguments
        rows = ring.first_fill(tail_of(tail))
        model.fill += 1
        model.windows = [model.window + step + 1 for step in range(FRAMES)]
        model.window, model.tail, model.reasoning = model.windows[-1], tail, []
        model.ready, model.labels_saw_frames = True, True
        meaning = dict(enumerate(model.labels()))
        for chunk, window in enumerate(model.windows):
            meaning |= frame_tags(window, LAYOUT.chunk_slot(chunk))
        meaning |= tail_tags(model, LAYOUT.chunk_slot(FRAMES - 1))
    elif name == "push":
        tail, draft = arguments
        rows = ring.push(tail_of(tail), np.array(draft, np.int64))
        model.window += 1
        model.windows = [*model.windows, model.window][-FRAMES:]
        model.tail, model.reasoning = tail, list(draft)
        meaning = frame_tags(model.window, 0) | tail_tags(model, 0)
        for n, token in enumerate(draft):
            meaning[LAYOUT.prompt_rows + n] = ("reasoning", model.window, n, token)
        start = int(rows.write_slot[0]) - LAYOUT.static_stride
        assert start >= 0
        assert start % LAYOUT.chunk_stride == 0
        assert len(rows.token_ids) <= LAYOUT.chunk_stride
    else:
        first, ids = arguments
        rows = ring.reasoning_rows(first, np.array(ids, np.int64), BLOCK)
        model.reasoning = [*model.reasoning[:first], *ids]
        meaning = {n: ("reasoning", model.window, first + n, token) for n, token in enumerate(ids)}
        chunk, inside = divmod(int(rows.write_slot[0]) - LAYOUT.static_stride, LAYOUT.chunk_stride)
        assert 0 <= chunk < FRAMES
        assert LAYOUT.prompt_rows <= inside
        assert inside + BLOCK <= LAYOUT.chunk_stride, "a pass writes into the next chunk"
    model.write(rows, meaning)
    model.check(rows, meaning)
    expected_ids(rows, meaning, model)


def check_ring(ring: KvRing, model: SlotModel) -> None:
    """The tables between passes, and what the action stage would see."""
    assert ring.filled_frames == len(model.windows)
    assert ring.is_full == (len(model.windows) == FRAMES)
    used = np.flatnonzero(ring.slot_order != EMPTY)
    if model.ready:
        assert [model.held[int(slot)] for slot in used[np.argsort(ring.slot_order[used])]] == model.logical()
    if not model.windows:
        return
    for count in range(1, len(model.reasoning) + 1):
        order, position = ring.action_rows(count, 2)
        seen = {model.held[int(slot)] for slot in np.flatnonzero(ring.slot_order <= order[0])}
        after = len(model.reasoning) - count
        assert seen == set(model.logical()[: len(model.logical()) - after])
        start = positions()(("text", model.tail + count))[0]
        np.testing.assert_array_equal(position, [[start, start + 1]] * 3)


TAILS = st.integers(1, TAIL_ROOM)
TOKENS = st.integers(0, 9)


@settings(max_examples=40)
@given(st.data())
def test_no_row_ever_sees_a_stale_an_empty_or_a_future_slot(data):
    ring, model = KvRing(LAYOUT, PAD), SlotModel()
    names = st.sampled_from(["static", "first fill", "reset", *["push"] * 6, *["reason"] * 4, *["keep"] * 2])
    for _ in range(data.draw(st.integers(1, 14), "calls")):
        name = data.draw(names)
        held = len(model.reasoning)
        if name == "keep" and model.windows:
            kept = data.draw(st.integers(0, held), "kept")
            ring.keep_reasoning(kept)
            model.reasoning = model.reasoning[:kept]
        elif name == "reset":
            ring.reset()
            model.forget()
        elif name == "static":
            run(ring, model, ("static",))
        elif name == "first fill":
            run(ring, model, ("first fill", data.draw(TAILS, "tail")))
        elif name == "push" and model.ready:
            draft = data.draw(st.lists(TOKENS, max_size=LAYOUT.draft_rows), "draft")
            run(ring, model, ("push", data.draw(TAILS, "tail"), draft))
        elif name == "reason" and model.windows:
            first = data.draw(st.integers(0, min(held, LAYOUT.reasoning_room - BLOCK)), "first")
            run(ring, model, ("reason", first, data.draw(st.lists(TOKENS, min_size=1, max_size=BLOCK), "ids")))
        check_ring(ring, model)


# illegal calls


def ring_in(state: str) -> KvRing:
    ring = KvRing(LAYOUT, PAD)
    if state == "new":
        return ring
    ring.static_rows()
    if state == "static":
        return ring
    if state == "first filled and reset":
        ring.first_fill(tail_of(3))
        ring.reset()
        return ring
    for _ in range(FRAMES + 1):
        ring.push(tail_of(3), np.array([1, 2]))
    if state == "reset":
        ring.reset()
    return ring


IDS = np.arange
TOO_LATE = LAYOUT.reasoning_room - BLOCK + 1
ILLEGAL = {
    "push before the static rows": ("new", lambda ring: ring.push(tail_of(3), IDS(0)), RuntimeError),
    "push over labels that saw other images": (
        "first filled and reset",
        lambda ring: ring.push(tail_of(3), IDS(0)),
        RuntimeError,
    ),
    "empty tail": ("running", lambda ring: ring.push(IDS(0), IDS(0)), ValueError),
    "tail too long": ("running", lambda ring: ring.push(tail_of(TAIL_ROOM + 1), IDS(0)), ValueError),
    "draft too long": ("running", lambda ring: ring.push(tail_of(3), IDS(LAYOUT.draft_rows + 1)), ValueError),
    "first fill with a tail too long": ("running", lambda ring: ring.first_fill(tail_of(TAIL_ROOM + 1)), ValueError),
    "reasoning in a new ring": ("new", lambda ring: ring.reasoning_rows(0, IDS(1), BLOCK), RuntimeError),
    "reasoning before a window": ("static", lambda ring: ring.reasoning_rows(0, IDS(1), BLOCK), RuntimeError),
    "reasoning after a reset": ("reset", lambda ring: ring.reasoning_rows(0, IDS(1), BLOCK), RuntimeError),
    "reasoning before its start": ("running", lambda ring: ring.reasoning_rows(-1, IDS(1), BLOCK), ValueError),
    "reasoning behind a gap": ("running", lambda ring: ring.reasoning_rows(3, IDS(1), BLOCK), ValueError),
    "no reasoning": ("running", lambda ring: ring.reasoning_rows(0, IDS(0), BLOCK), ValueError),
    "more than a block": ("running", lambda ring: ring.reasoning_rows(0, IDS(BLOCK + 1), BLOCK), ValueError),
    "a block too large": ("running", lambda ring: ring.reasoning_rows(0, IDS(1), 1000), ValueError),
    "keep in a new ring": ("new", lambda ring: ring.keep_reasoning(0), RuntimeError),
    "keep after a reset": ("reset", lambda ring: ring.keep_reasoning(0), RuntimeError),
    "keep fewer than none": ("running", lambda ring: ring.keep_reasoning(-1), ValueError),
    "keep more than held": ("running", lambda ring: ring.keep_reasoning(3), ValueError),
    "act on more than held": ("running", lambda ring: ring.action_rows(3, 2), ValueError),
    "act before a window": ("static", lambda ring: ring.action_rows(0, 2), RuntimeError),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_call_raises_and_changes_nothing(name: str):
    state, call, error = ILLEGAL[name]
    ring, untouched = ring_in(state), ring_in(state)
    with pytest.raises(error, match=r"\w+ \w+"):
        call(ring)
    assert vars(ring) | {"slot_order": 0, "slot_position": 0} == vars(untouched) | {"slot_order": 0, "slot_position": 0}
    np.testing.assert_array_equal(ring.slot_order, untouched.slot_order)
    np.testing.assert_array_equal(ring.slot_position, untouched.slot_position)


def test_reasoning_cannot_run_out_of_its_room():
    ring = ring_in("running")
    for first in range(TOO_LATE):
        ring.reasoning_rows(first, IDS(1), BLOCK)
    before = ring.slot_order.copy()
    with pytest.raises(ValueError, match="do not fit"):
        ring.reasoning_rows(TOO_LATE, IDS(1), BLOCK)
    np.testing.assert_array_equal(ring.slot_order, before)


def test_rows_of_a_call_do_not_change_when_the_ring_goes_on():
    ring = ring_in("running")
    rows = ring.push(tail_of(3), IDS(2))
    order, position = rows.slot_order.copy(), rows.slot_position.copy()
    ring.push(tail_of(4), IDS(0))
    np.testing.assert_array_equal(rows.slot_order, order)
    np.testing.assert_array_equal(rows.slot_position, position)


def test_labels_that_do_not_fit_into_one_prefill_are_refused():
    prompt = build_prompt(CONFIG, lambda text: [1] * 50)
    with pytest.raises(ParameterError, match=r"labels of \d+ tokens"):
        build_layout(CONFIG, prompt)
