"""A stand-in for the Qwen tokenizer: the pieces of the fixed prompt and the special tokens with their true ids.

Everything else is one token per byte, so that any text is possible.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from flashdrive_ros.model.checkpoint_families import BASE_IDS, Family
from flashdrive_ros.model.checkpoint_tokens import expected_ids
from flashdrive_ros.model.config import TokenIds
from flashdrive_ros.resources import resource_path

PROMPT_IDS = "resource/models/alpamayo/prompt_token_ids.json"
HALVES = (("R", "ear"), ("-th", "ought"), (" tele", "photo"))
"""Words of the prompt that are two tokens."""
WORD, DIGIT, OTHER = "[^\\r\\nA-Za-z0-9]?[A-Za-z]+", "[0-9]", "[^A-Za-z0-9]"
PIECES = "|".join([*(f"{first}(?={second})" for first, second in HALVES), WORD, DIGIT, OTHER])
"""A word with the character before it, a digit, or any other character."""


def save_synthetic_tokenizer(path: Path, family: Family, tokens: TokenIds) -> None:
    """Write `tokenizer.json`. Ids of the Qwen vocabulary that it does not have stay unused."""
    special = expected_ids(family, tokens.trajectory_first, tokens.trajectory_count)
    vocabulary = byte_ids() | prompt_ids() | special
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    names = sorted((name for name in special if len(name) > 1), key=special.__getitem__)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    path.write_text(tokenizer.to_str(pretty=False), encoding="utf-8")


def byte_ids() -> dict[str, int]:
    """Ids 0 to 255 in the order of byte-level BPE: printable characters first, then the others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [256 + index for index in range(256 - len(printable))]
    ids = {chr(code): number for number, code in enumerate([*printable, *others])}
    assert all(ids[name] == number for name, number in BASE_IDS.items() if len(name) == 1)
    return ids


def prompt_ids() -> dict[str, int]:
    """Pieces of the fixed prompt texts, as byte-level BPE writes them, with the ids that this package has of them."""
    table: dict[str, list[int]] = json.loads(resource_path(PROMPT_IDS).read_text(encoding="utf-8"))
    ids: dict[str, int] = {}
    for text, numbers in table.items():
        pieces = [piece.replace(" ", "Ġ").replace("\n", "Ċ") for piece in re.findall(PIECES, text)]
        assert len(pieces) == len(numbers), text
        ids |= dict(zip(pieces, numbers, strict=True))
    return ids
