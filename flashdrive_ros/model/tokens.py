"""Token ids: text through the tokenizer file, ego history through bins (spec A.5, A.7). numpy only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.errors import ModelFileError
from flashdrive_ros.model.config import ModelConfig
from flashdrive_ros.window import EgoHistory

Encode = Callable[[str], list[int]]
"""Text to ids, without special tokens."""
Decode = Callable[[list[int]], str]


def load_tokenizer(path: Path) -> tuple[Encode, Decode]:
    """Encode and decode of a `tokenizer.json`.

    Raises ModelFileError when the file is missing or is not a tokenizer.
    """
    # not needed by tools that only inspect a configuration
    from tokenizers import Tokenizer

    if not path.is_file():
        raise ModelFileError(f"{path}: tokenizer file not found; expected tokenizer.json in the model folder")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelFileError(f"{path}: not a tokenizer file ({error}); export or copy it again") from error
    # the name of a special token in a route text is text: it must not end the route or the turn
    tokenizer.encode_special_tokens = True
    return (
        lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
        lambda ids: tokenizer.decode(ids, skip_special_tokens=True),
    )


def table_encoder(path: Path) -> Encode:
    """Encode by a table of known texts (JSON object of text to ids), for a model whose tokenizer is not on disk.

    Raises ModelFileError for a missing table, and on use for a text that is not in it.
    """
    if not path.is_file():
        raise ModelFileError(f"{path}: table of prompt token ids not found")
    table: dict[str, list[int]] = json.loads(path.read_text())

    def encode(text: str) -> list[int]:
        if text not in table:
            raise ModelFileError(f"{path}: no token ids for {text!r}; a tokenizer.json is needed for other prompts")
        return table[text]

    return encode


def history_token_ids(history: EgoHistory, config: ModelConfig) -> NDArray[np.int64]:
    """[history_tokens] ids of the ego history.

    Differences of the positions with the origin put in front (so that the first is the absolute oldest position, left
    out without `history_origin`), each axis in `history_bins` bins between its limits, rounded half to even (spec A.7).
    """
    prompt = config.prompt
    steps = np.diff(np.asarray(history.positions_m, np.float64), axis=0, prepend=np.zeros((1, 3)))
    steps = steps[-prompt.history_tokens // 3 :]
    low, high = np.asarray(prompt.history_min_m), np.asarray(prompt.history_max_m)
    bins = np.rint((steps - low) / (high - low) * (prompt.history_bins - 1))
    clipped = np.clip(bins, 0, prompt.history_bins - 1).astype(np.int64)
    return clipped.reshape(-1) + config.tokens.history_first
