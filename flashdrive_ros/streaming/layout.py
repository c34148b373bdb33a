"""Layout: which slot, logical order and M-RoPE position every token of a stream has (DESIGN 2, spec A.6). numpy only.

Physical order is by time: [static][chunk 0]...[chunk frames-1], each chunk [frames of all views][route room][tail]
[reasoning room]. Logical order is the prompt's: view-major, then tail, then reasoning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.errors import ParameterError
from flashdrive_ros.model.config import ModelConfig
from flashdrive_ros.model.prompt import Prompt

Table = NDArray[np.int64]

EMPTY = np.int64(2**30)
"""Order of a slot that holds nothing or something stale; above every order a row can have."""
ALIGNMENT = 64
"""Static part and chunks start at multiples of this, so that whole blocks of slots can be skipped."""


@dataclass(frozen=True)
class Layout:
    """Constant tables of one model and rig."""

    static_ids: Table
    """[n] system prompt, user header and every camera and frame label, in logical order."""
    static_order: Table
    """[n]"""
    static_position: Table
    """[3, n]"""
    frame_ids: Table
    """[T] tokens of one frame."""
    frame_order: Table
    """[views, frames, T] by view and age index (frames - 1 is the newest)."""
    frame_position: Table
    """[views, frames, 3, T]"""
    tail_order: int
    """Order of the first tail token."""
    tail_position: int
    """Position of the first tail token, the same on all axes."""
    static_stride: int
    """Slots before chunk 0."""
    chunk_stride: int
    prompt_rows: int
    """Rows of a window's prompt: frames, route room and tail."""
    draft_rows: int
    reasoning_room: int
    """Slots after the prompt rows that reasoning may use, padding of the last verify block included."""

    @property
    def views(self) -> int:
        return self.frame_order.shape[0]

    @property
    def frames(self) -> int:
        return self.frame_order.shape[1]

    @property
    def image_tokens(self) -> int:
        """Image tokens of one frame."""
        return len(self.frame_ids) - 2

    @property
    def slots(self) -> int:
        """All slots of the ring."""
        return self.static_stride + self.frames * self.chunk_stride

    @property
    def prefill_rows(self) -> int:
        """Rows of the prefill stage."""
        return self.prompt_rows + self.draft_rows

    @property
    def visual_rows(self) -> int:
        """Rows of the newest frames of all views."""
        return self.views * len(self.frame_ids)

    def chunk_slot(self, chunk: int) -> int:
        """First slot of a chunk."""
        return self.static_stride + chunk * self.chunk_stride


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def frame_positions(base: int, config: ModelConfig) -> tuple[Table, int]:
    """[3, T] M-RoPE positions of one frame whose vision_start is at `base`, and the position after it (spec A.6.2)."""
    rows, columns = (side // config.vision.merge for side in config.vision.grid)
    inner = base + 1
    row, column = np.divmod(np.arange(rows * columns, dtype=np.int64), columns)
    image = np.stack([np.full_like(row, inner), inner + row, inner + column])
    after = inner + max(rows, columns)
    edges = np.full((3, 1), base, np.int64), np.full((3, 1), after, np.int64)
    return np.concatenate([edges[0], image, edges[1]], axis=1), after + 1


def build_layout(config: ModelConfig, prompt: Prompt) -> Layout:
    """Walk the logical sequence once and give every token its order and position.

    Raises ParameterError when the static part does not fit into the rows of one prefill, by which it is run.
    """
    frames, views = config.prompt.frames, len(config.prompt.cameras)
    order = position = 0
    static_order, static_position, frame_order, frame_position = [], [], [], []
    for label in prompt.labels:
        count = len(label)
        static_order.append(np.arange(order, order + count, dtype=np.int64))
        static_position.append(np.arange(position, position + count, dtype=np.int64))
        order, position = order + count, position + count
        frame_order.append(np.arange(order, order + len(prompt.frame), dtype=np.int64))
        positions, position = frame_positions(position, config)
        frame_position.append(positions)
        order += len(prompt.frame)
    tokens = len(prompt.frame)
    prompt_rows = views * tokens + config.prompt.route_capacity + prompt.tail_tokens
    # cot_end, future_start and the padding of the last verify block follow the longest reasoning
    room = max(config.prompt.reasoning_capacity + 2 + config.drafter.block, config.prompt.draft_capacity)
    static_ids = np.concatenate(prompt.labels)
    prefill_rows = prompt_rows + config.prompt.draft_capacity
    if len(static_ids) > prefill_rows:
        raise ParameterError(
            f"prompt: system text and labels of {len(static_ids)} tokens found, one prefill takes {prefill_rows}"
        )
    return Layout(
        static_ids=static_ids,
        static_order=np.concatenate(static_order),
        static_position=np.tile(np.concatenate(static_position), (3, 1)),
        frame_ids=prompt.frame,
        frame_order=np.stack(frame_order).reshape(views, frames, tokens),
        frame_position=np.stack(frame_position).reshape(views, frames, 3, tokens),
        tail_order=order,
        tail_position=position,
        static_stride=_round_up(len(static_ids), ALIGNMENT),
        chunk_stride=_round_up(prompt_rows + room, ALIGNMENT),
        prompt_rows=prompt_rows,
        draft_rows=config.prompt.draft_capacity,
        reasoning_room=room,
    )
