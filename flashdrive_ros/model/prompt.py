"""The prompt as token ids in logical order: static text, frame places, tail (spec A.6). numpy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.cameras import CAMERAS
from flashdrive_ros.model.config import ModelConfig
from flashdrive_ros.model.tokens import Encode

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Prompt:
    """Everything of a prompt that does not change from window to window.

    The logical sequence is labels[0], frame of view 0 at time 0, labels[1], frame of view 0 at time 1, ..., tail:
    view-major, oldest frame first.
    """

    labels: tuple[Ids, ...]
    """views * frames pieces: the text before each frame; the first starts with the system prompt."""
    frame: Ids
    """[image_tokens + 2] one frame: vision_start, image tokens, vision_end."""
    tail_before_route: Ids
    """The history block with `pad` where the bins go."""
    tail_after_route: Ids
    """Request text, end of turn, assistant header, cot_start."""

    @property
    def tail_tokens(self) -> int:
        """Length of a tail without route."""
        return len(self.tail_before_route) + len(self.tail_after_route)


def build_prompt(config: ModelConfig, encode: Encode) -> Prompt:
    """Tokenise the fixed parts of `config`'s prompt.

    Raises ModelFileError (from `encode`) for a text whose ids are not known.
    """
    tokens, prompt = config.tokens, config.prompt
    newline = encode("\n")
    system = [tokens.im_start, *encode("system\n"), *encode(prompt.system_text), tokens.im_end, *newline]
    user = [tokens.im_start, *encode("user\n")]
    labels: list[Ids] = []
    for camera in prompt.cameras:
        for index in range(prompt.frames):
            text = prompt.frame_label.format(index=index)
            if index == 0:
                text = prompt.camera_label.format(name=CAMERAS[camera].prompt_name) + text
            start = [*system, *user] if not labels else []
            labels.append(np.array([*start, *(encode(text) if text else [])], np.int64))
    images = [tokens.image_pad] * config.vision.image_tokens
    history = [tokens.history_start, *[tokens.pad] * prompt.history_tokens, tokens.history_end]
    request = [
        *encode(prompt.request_text),
        tokens.im_end,
        *newline,
        tokens.im_start,
        *encode("assistant\n"),
        tokens.cot_start,
    ]
    return Prompt(
        labels=tuple(labels),
        frame=np.array([tokens.vision_start, *images, tokens.vision_end], np.int64),
        tail_before_route=np.array(history, np.int64),
        tail_after_route=np.array(request, np.int64),
    )


def tail_ids(prompt: Prompt, history_ids: Ids, route_ids: Ids) -> Ids:
    """The tail of one window: history bins filled in, route (with its delimiters, or empty) in its place."""
    before = prompt.tail_before_route.copy()
    before[1:-1] = history_ids
    return np.concatenate([before, route_ids, prompt.tail_after_route])


def route_ids(text: str, config: ModelConfig, encode: Encode) -> Ids:
    """Ids of the route part with its delimiters, empty for an empty text.

    The caller checks its length against `config.prompt.route_capacity`.
    """
    if not text:
        return np.empty(0, np.int64)
    return np.array([config.tokens.route_start, *encode(text), config.tokens.route_end], np.int64)
