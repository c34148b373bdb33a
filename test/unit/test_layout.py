"""Slots, logical orders and M-RoPE positions of every token: a wrong one silently feeds the model another picture.

The expected numbers of the Alpamayo family are those published for its stock prompt (spec A.6.1, A.6.2), those of nano
are worked out by hand from its prompt text, its tokenizer and its image size.
"""

from __future__ import annotations

import numpy as np
import pytest

from flashdrive_ros.errors import ModelFileError
from flashdrive_ros.evaluation.model_source import model_source
from flashdrive_ros.model.config import with_cameras
from flashdrive_ros.model.prompt import Prompt, build_prompt
from flashdrive_ros.streaming.layout import Layout, build_layout


def prompt_and_layout(model: str) -> tuple[Prompt, Layout]:
    source = model_source(model)
    prompt = build_prompt(source.config, source.encode)
    return prompt, build_layout(source.config, prompt)


# Slot of vision_start by view (cameras 0, 1, 2, 6) and frame.
ALPAMAYO_1_5_SLOTS = [
    [28, 214, 400, 586],
    [775, 961, 1147, 1333],
    [1523, 1709, 1895, 2081],
    [2272, 2458, 2644, 2830],
]
ALPAMAYO_1_5_POSITIONS = [[28, 52, 76, 100], [127, 151, 175, 199], [227, 251, 275, 299], [328, 352, 376, 400]]
# No labels: the k-th of the 16 frames begins at slot 20 + 182 k and at position 20 + 20 k.
ALPAMAYO_1_SLOTS = [
    [20, 202, 384, 566],
    [748, 930, 1112, 1294],
    [1476, 1658, 1840, 2022],
    [2204, 2386, 2568, 2750],
]
ALPAMAYO_1_POSITIONS = [[20, 40, 60, 80], [100, 120, 140, 160], [180, 200, 220, 240], [260, 280, 300, 320]]
# nano: 11 tokens of system text and user header (im_start, "system\n" 2, "You drive." 3, im_end, "\n", im_start,
# "user\n" 2), then per frame its label (2 tokens; 6/5/6/8 with the camera name before the first of a view) and
# 17 tokens (3 x 5 image tokens between two delimiters); a frame costs 1 + 5 + 1 = 7 positions.
NANO_SLOTS = [[17, 36, 55, 74], [96, 115, 134, 153], [176, 195, 214, 233], [258, 277, 296, 315]]
NANO_POSITIONS = [[17, 26, 35, 44], [56, 65, 74, 83], [96, 105, 114, 123], [138, 147, 156, 165]]


@pytest.mark.parametrize(
    ("model", "slots", "positions"),
    [
        ("alpamayo-1.5", ALPAMAYO_1_5_SLOTS, ALPAMAYO_1_5_POSITIONS),
        ("alpamayo-1", ALPAMAYO_1_SLOTS, ALPAMAYO_1_POSITIONS),
        ("nano", NANO_SLOTS, NANO_POSITIONS),
    ],
)
def test_every_frame_begins_where_the_stock_prompt_has_it(
    model: str, slots: list[list[int]], positions: list[list[int]]
) -> None:
    _, layout = prompt_and_layout(model)
    assert layout.frame_order[:, :, 0].tolist() == slots
    for axis in range(3):
        assert layout.frame_position[:, :, axis, 0].tolist() == positions


@pytest.mark.parametrize(
    ("model", "static", "tail_order", "tail_position", "tail_tokens"),
    [("alpamayo-1.5", 100, 3012, 420, 74), ("alpamayo-1", 20, 2932, 340, 74), ("nano", 60, 332, 172, 61)],
)
def test_tail_follows_the_last_frame(
    model: str, static: int, tail_order: int, tail_position: int, tail_tokens: int
) -> None:
    prompt, layout = prompt_and_layout(model)
    assert len(layout.static_ids) == static
    assert (layout.tail_order, layout.tail_position, prompt.tail_tokens) == (tail_order, tail_position, tail_tokens)


@pytest.mark.parametrize("model", ["alpamayo-1.5", "alpamayo-1", "nano"])
def test_every_logical_place_before_the_tail_is_taken_exactly_once(model: str) -> None:
    _, layout = prompt_and_layout(model)
    taken = np.concatenate([layout.static_order, layout.frame_order.ravel()])
    assert sorted(taken.tolist()) == list(range(layout.tail_order))


def test_image_axes_count_rows_and_columns_from_the_token_after_vision_start() -> None:
    _, layout = prompt_and_layout("alpamayo-1.5")
    time, row, column = layout.frame_position[1, 2]  # vision_start at 175, 10 x 18 image tokens, vision_end
    assert (time[0], row[0], column[0]) == (175, 175, 175)
    assert set(time[1:-1]) == {176}
    assert row[1:-1].reshape(10, 18)[:, 0].tolist() == [176, 177, 178, 179, 180, 181, 182, 183, 184, 185]
    assert column[1:-1].reshape(10, 18)[3].tolist() == list(range(176, 194))
    assert (time[-1], row[-1], column[-1]) == (194, 194, 194)


@pytest.mark.parametrize(
    ("model", "lengths"),
    [
        # 20 tokens of system text and user header stand before the first label.
        ("alpamayo-1.5", [20 + 8, 4, 4, 4, 7, 4, 4, 4, 8, 4, 4, 4, 9, 4, 4, 4]),
        ("alpamayo-1", [20] + [0] * 15),
        ("nano", [11 + 6, 2, 2, 2, 5, 2, 2, 2, 6, 2, 2, 2, 8, 2, 2, 2]),
    ],
)
def test_labels_have_the_known_lengths(model: str, lengths: list[int]) -> None:
    prompt, _ = prompt_and_layout(model)
    assert [len(label) for label in prompt.labels] == lengths


def test_alpamayo_prompt_begins_and_ends_with_the_chat_template() -> None:
    prompt, _ = prompt_and_layout("alpamayo-1.5")
    im_start, im_end, newline, cot_start = 151644, 151645, 198, 155677
    first = prompt.labels[0].tolist()
    assert first[:3] == [im_start, 8948, newline]  # "system\n"
    assert first[15:20] == [im_end, newline, im_start, 872, newline]  # then "user\n"
    assert prompt.tail_before_route[[0, -1]].tolist() == [155674, 155676]
    assert prompt.tail_after_route[-6:].tolist() == [im_end, newline, im_start, 77091, newline, cot_start]


@pytest.mark.parametrize(
    ("model", "static_stride", "chunk_stride", "slots", "prefill_rows"),
    [
        # 728 frame rows + 16 route + 74 tail + 138 reasoning (128 + 2 + a block of 8) = 956, rounded up to 64s;
        # 32 draft rows behind the 818 of the prompt.
        ("alpamayo-1.5", 128, 960, 128 + 4 * 960, 850),
        # no route: 940 and 802 + 32
        ("alpamayo-1", 64, 960, 64 + 4 * 960, 834),
        # 68 + 16 + 61 + 34 (24 + 2 + 8) = 179; 145 + 24
        ("nano", 64, 192, 64 + 4 * 192, 169),
    ],
)
def test_chunks_hold_a_whole_window_and_begin_at_whole_blocks(
    model: str, static_stride: int, chunk_stride: int, slots: int, prefill_rows: int
) -> None:
    _, layout = prompt_and_layout(model)
    assert (layout.static_stride, layout.chunk_stride) == (static_stride, chunk_stride)
    assert (layout.slots, layout.prefill_rows) == (slots, prefill_rows)
    assert [layout.chunk_slot(chunk) for chunk in range(4)] == [static_stride + n * chunk_stride for n in range(4)]


def test_another_rig_takes_its_own_names_from_the_table() -> None:
    source = model_source("alpamayo-1.5")
    config = with_cameras(source.config, (1, 3, 4, 5))
    prompt = build_prompt(config, source.encode)
    # "Front", "Rear left", "Rear", "Rear right": 7, 9, 8, 9 tokens in the Qwen table
    assert [len(label) for label in prompt.labels[::4]] == [20 + 7, 9, 8, 9]


def test_a_prompt_text_without_known_ids_is_refused_by_name() -> None:
    with pytest.raises(ModelFileError, match=r"prompt_token_ids\.json: no token ids for 'Drive\.'"):
        model_source("alpamayo-1.5").encode("Drive.")
