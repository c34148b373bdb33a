"""A stand-in for the Qwen tokenizer: one token per byte, and the special tokens of Alpamayo with their true ids."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from flashdrive_ros.model.checkpoint_families import BASE_IDS, Family
from flashdrive_ros.model.checkpoint_tokens import expected_ids
from flashdrive_ros.model.config import TokenIds


def save_synthetic_tokenizer(path: Path, family: Family, tokens: TokenIds) -> None:
    """Write `tokenizer.json`. Ids of the Qwen vocabulary that it does not have stay unused."""
    special = expected_ids(family, tokens.trajectory_first, tokens.trajectory_count)
    vocabulary = byte_ids() | special
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
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
