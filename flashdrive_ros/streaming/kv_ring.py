"""KvRing: which slot of the caches means what, in two small tables (DESIGN 2). numpy only.

The caches never move. A window overwrites the oldest chunk with one contiguous write; sliding is rewriting the tables.
A query row sees a slot iff slot_order <= row_order, and nothing else decides what is visible.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flashdrive_ros.streaming.layout import EMPTY, Layout, Table


@dataclass(frozen=True)
class Rows:
    """The rows of one stage call and the tables as they are for that call."""

    token_ids: Table
    """[R]"""
    image_rows: Table
    """[R] image token that a row carries, -1 on text and padding."""
    write_slot: Table
    """[1]"""
    row_order: Table
    """[R]"""
    row_position: Table
    """[3, R]"""
    slot_order: Table
    """[S]"""
    slot_position: Table
    """[3, S]"""


@dataclass(frozen=True)
class _RowBuffers:
    """Arrays of a call's rows while they are being filled."""

    ids: Table
    image_rows: Table
    order: Table
    position: Table


class KvRing:
    """Tables and bookkeeping of one stream; the caches themselves belong to the engines."""

    def __init__(self, layout: Layout, pad_id: int) -> None:
        self.layout = layout
        self.pad_id = pad_id
        self.slot_order = np.full(layout.slots, EMPTY, np.int64)
        self.slot_position = np.zeros((3, layout.slots), np.int64)
        self._chunks: list[int] = []  # oldest first; the last is the newest
        self._next_order = 0
        self._next_position = 0
        self._reasoning_slot = 0
        self._reasoning_tokens = 0
        self._static_filled = False
        self._static_saw_frames = False

    @property
    def filled_frames(self) -> int:
        """Time steps that the ring holds, at most `layout.frames`."""
        return len(self._chunks)

    @property
    def is_full(self) -> bool:
        """True when a plan can be made: every frame of the window is there."""
        return len(self._chunks) == self.layout.frames

    def reset(self) -> None:
        """Forget every time step. Only tables change; the static part stays when no frame went into it.

        After a first fill it has to be run again: its labels have seen the images of the stream that ends.
        """
        self.slot_order[self.layout.static_stride :] = EMPTY
        self._chunks.clear()
        self._reasoning_tokens = 0
        if self._static_saw_frames:
            self._static_filled = False

    def static_rows(self) -> Rows:
        """Rows of the static part, padded to a prefill's length, to be run once before the first window.

        The padding spills into chunk 0, so any time step is forgotten.
        """
        layout = self.layout
        self.reset()
        count = len(layout.static_ids)
        self.slot_order[:count] = layout.static_order
        self.slot_position[:, :count] = layout.static_position
        self._static_filled, self._static_saw_frames = True, False
        rows = self._padding(layout.prefill_rows)
        rows.ids[:count] = layout.static_ids
        rows.order[:count] = layout.static_order
        rows.position[:, :count] = layout.static_position
        return self._freeze(rows, 0)

    def push(self, tail: Table, draft_ids: Table) -> Rows:
        """Make room for the next time step and return the rows of its prefill: newest frames, padding, `tail`, draft.

        The oldest chunk is overwritten when all are in use; the frames of the others become one step older; the tail
        and the reasoning of the window before are forgotten. `draft_ids` (at most draft_rows) are proposals for the
        reasoning. Raises RuntimeError before the static rows, ValueError for a tail or draft that does not fit.
        """
        layout = self.layout
        if not self._static_filled:
            raise RuntimeError("the static rows must be run before the first window")
        self._check_tail(tail)
        if len(draft_ids) > layout.draft_rows:
            raise ValueError(f"a draft of {len(draft_ids)} tokens does not fit into {layout.draft_rows} rows")
        chunk = self._chunks.pop(0) if self.is_full else len(self._chunks)
        self._chunks.append(chunk)
        first = layout.chunk_slot(chunk)
        self._place(first, tail)
        self._open(0, len(draft_ids))
        rows = self._slots(first, layout.prefill_rows)
        self._fill_ids(rows, 0, tail)
        rows.ids[layout.prompt_rows : layout.prompt_rows + len(draft_ids)] = draft_ids
        rows.image_rows[self._visual_rows(0)] = np.arange(layout.views * layout.image_tokens)
        return self._freeze(rows, first)

    def first_fill(self, tail: Table) -> Rows:
        """Rows of one exact causal pass over every slot up to the tail: the stock prefill of a whole prompt.

        Images are numbered by time, then view. It exists for parity; a running stream starts cold instead.
        """
        layout = self.layout
        self._check_tail(tail)
        self.static_rows()
        self._static_saw_frames = True
        self._chunks = list(range(layout.frames))
        first = layout.chunk_slot(layout.frames - 1)
        self._place(first, tail)
        rows = self._slots(0, first + layout.prefill_rows)
        rows.ids[: len(layout.static_ids)] = layout.static_ids
        self._fill_ids(rows, first, tail)
        images = layout.views * layout.image_tokens
        for chunk in self._chunks:
            start = layout.chunk_slot(chunk)
            rows.ids[start : start + layout.visual_rows] = np.tile(layout.frame_ids, layout.views)
            rows.image_rows[self._visual_rows(start)] = chunk * images + np.arange(images)
        return self._freeze(rows, 0)

    def reasoning_rows(self, first: int, token_ids: Table, block: int) -> Rows:
        """Rows of a verify pass: `token_ids` are reasoning tokens first, first + 1, ...; padded to `block` rows.

        Everything that stood behind them is forgotten. Raises RuntimeError before the first window, ValueError for rows
        that do not fit or do not follow what the ring holds.
        """
        count = len(token_ids)
        self._check_reasoning(first)
        if not 0 < count <= block or first + block > self.layout.reasoning_room:
            raise ValueError(
                f"reasoning rows {first} to {first + block} do not fit into {self.layout.reasoning_room} slots"
            )
        self._open(first, count)
        start = self._reasoning_slot + first
        rows = self._slots(start, block)
        rows.ids[:count] = token_ids
        return self._freeze(rows, start)

    def keep_reasoning(self, count: int) -> None:
        """Forget every reasoning slot from the `count`-th token on (rejected proposals)."""
        self._check_reasoning(count)
        self._reasoning_tokens = count
        start = self._reasoning_slot
        self.slot_order[start + count : start + self.layout.reasoning_room] = EMPTY

    def action_rows(self, reasoning_tokens: int, waypoints: int) -> tuple[Table, Table]:
        """row_order [1] and row_position [3, waypoints] of the expert.

        `reasoning_tokens` counts the reasoning with its last token, future_start.
        """
        self._check_reasoning(reasoning_tokens)
        order = np.array([self._next_order + reasoning_tokens - 1], np.int64)
        position = self._next_position + reasoning_tokens + np.arange(waypoints, dtype=np.int64)
        return order, np.tile(position, (3, 1))

    def _open(self, first: int, count: int) -> None:
        """Give `count` reasoning slots from the `first` on their meaning, and those behind them none."""
        start = self._reasoning_slot + first
        self.slot_order[start : start + count] = self._next_order + first + np.arange(count)
        self.slot_position[:, start : start + count] = self._next_position + first + np.arange(count)
        self._reasoning_tokens = first + count
        self.keep_reasoning(first + count)

    def _check_tail(self, tail: Table) -> None:
        room = self.layout.prompt_rows - self.layout.visual_rows
        if not 0 < len(tail) <= room:
            raise ValueError(f"a tail of {len(tail)} tokens does not fit into {room} rows")

    def _check_reasoning(self, count: int) -> None:
        """Reasoning has no gaps: only what the ring holds can be kept, continued or acted on."""
        if not self._chunks:
            raise RuntimeError("reasoning needs a window in the ring")
        if not 0 <= count <= self._reasoning_tokens:
            raise ValueError(f"{count} reasoning tokens named, {self._reasoning_tokens} held")

    def _place(self, first: int, tail: Table) -> None:
        """Rewrite the tables for the held chunks, with `tail` in the chunk that starts at slot `first`."""
        layout = self.layout
        self._reasoning_tokens = 0
        self.slot_order[layout.static_stride :] = EMPTY
        for age, held in enumerate(reversed(self._chunks)):
            start = layout.chunk_slot(held)
            stop = start + layout.visual_rows
            index = layout.frames - 1 - age
            self.slot_order[start:stop] = layout.frame_order[:, index].reshape(-1)
            self.slot_position[:, start:stop] = layout.frame_position[:, index].transpose(1, 0, 2).reshape(3, -1)
        self._reasoning_slot = first + layout.prompt_rows
        tail_slot = self._reasoning_slot - len(tail)
        steps = np.arange(len(tail))
        self.slot_order[tail_slot : self._reasoning_slot] = layout.tail_order + steps
        self.slot_position[:, tail_slot : self._reasoning_slot] = layout.tail_position + steps
        self._next_order = layout.tail_order + len(tail)
        self._next_position = layout.tail_position + len(tail)

    def _padding(self, count: int) -> _RowBuffers:
        """Unused rows: they see slot 0 alone, since a row that sees nothing has no softmax, and nobody sees them."""
        return _RowBuffers(
            ids=np.full(count, self.pad_id, np.int64),
            image_rows=np.full(count, -1, np.int64),
            order=np.zeros(count, np.int64),
            position=np.zeros((3, count), np.int64),
        )

    def _slots(self, first: int, count: int) -> _RowBuffers:
        """Rows for `count` slots from `first` on as the tables describe them; ids still to be filled."""
        rows = self._padding(count)
        order = self.slot_order[first : first + count]
        used = order != EMPTY
        rows.order[used] = order[used]
        rows.position[:, used] = self.slot_position[:, first : first + count][:, used]
        return rows

    def _fill_ids(self, rows: _RowBuffers, chunk_row: int, tail: Table) -> None:
        """Ids of the newest frames and the tail of the chunk that starts at row `chunk_row`."""
        layout = self.layout
        rows.ids[chunk_row : chunk_row + layout.visual_rows] = np.tile(layout.frame_ids, layout.views)
        stop = chunk_row + layout.prompt_rows
        rows.ids[stop - len(tail) : stop] = tail

    def _visual_rows(self, first: int) -> Table:
        """Rows of the image tokens of a chunk whose row 0 is `first`, view by view."""
        rows = np.arange(self.layout.visual_rows).reshape(self.layout.views, -1)
        return first + rows[:, 1:-1].reshape(-1)

    def _freeze(self, rows: _RowBuffers, write_slot: int) -> Rows:
        return Rows(
            token_ids=rows.ids,
            image_rows=rows.image_rows,
            write_slot=np.array([write_slot], np.int64),
            row_order=rows.order,
            row_position=rows.position,
            slot_order=self.slot_order.copy(),
            slot_position=self.slot_position.copy(),
        )
