"""Token ids of a checkpoint: from the tokenizer on disk, checked against the published table (spec A.5). No torch."""

from __future__ import annotations

from pathlib import Path

from flashdrive_ros.model.checkpoint_families import BASE_IDS, TOKEN_NAMES, Family
from flashdrive_ros.model.checkpoint_fields import REQUIRED, Fields
from flashdrive_ros.model.checkpoint_files import Fault, is_lfs_pointer, read_json
from flashdrive_ros.model.config import TokenIds

TOKENIZER_PLACES = ("tokenizer.json", "tokenizer/tokenizer.json")


def find_tokenizer(folder: Path) -> tuple[Path, list[Fault]]:
    """The tokenizer file of a checkpoint folder, or where it should be and what to copy there."""
    for place in TOKENIZER_PLACES:
        if (folder / place).is_file():
            return folder / place, []
    expected = (
        "a tokenizer here or in tokenizer/ (the 1.x checkpoints do not hold it: copy tokenizer.json of the model that "
        "vlm_name_or_path in config.json names, or of Qwen/Qwen3-VL-8B-Instruct, which has the same)"
    )
    return folder / TOKENIZER_PLACES[0], [Fault(folder / TOKENIZER_PLACES[0], "no file", expected)]


def read_vocabulary(path: Path) -> tuple[dict[str, int], list[Fault]]:
    """Token to id of a `tokenizer.json`, added tokens included."""
    if is_lfs_pointer(path):
        return {}, read_json(path)[1]
    content, faults = read_json(path)
    try:
        vocabulary = {str(token): int(number) for token, number in content["model"]["vocab"].items()}
        vocabulary |= {str(token["content"]): int(token["id"]) for token in content.get("added_tokens", ())}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}, faults or [Fault(path, "no vocabulary", "a byte-level BPE tokenizer")]
    return vocabulary, faults


def vocabulary_faults(path: Path, vocabulary: dict[str, int], expected: dict[str, int], size: int) -> list[Fault]:
    """Why this is a tokenizer of another vocabulary than `expected` with `size` ids, if it is."""
    missing = [name for name in BASE_IDS if name not in vocabulary]
    if missing:
        return [Fault(path, f"no token {missing[0]!r}: a tokenizer of another vocabulary", "the model's tokenizer")]
    wrong = [name for name, number in expected.items() if vocabulary.get(name, number) != number]
    faults = [Fault(path, f"id {vocabulary[name]} of {name!r}", f"id {expected[name]}") for name in wrong[:3]]
    names = {number: name for name, number in expected.items()}
    for name, number in vocabulary.items():
        if number >= size:
            faults.append(Fault(path, f"id {number} of {name!r}", f"ids below vocab_size {size}"))
            break
        if names.get(number, name) != name:
            faults.append(Fault(path, f"{name!r} with id {number}", f"{names[number]!r} with that id"))
            break
    return faults


def expected_ids(family: Family, first_bin: int, bins: int) -> dict[str, int]:
    """Ids that are known without a tokenizer: the base's, the bins', and the specials' where their order is known."""
    behind = first_bin + bins
    return (
        BASE_IDS
        | {f"<i{index}>": first_bin + index for index in range(bins)}
        | {name: behind + index for index, name in enumerate(family.specials)}
    )


def token_ids(
    fields: Fields, family: Family, vocabulary: dict[str, int] | None, size: int, history_bins: int
) -> TokenIds | None:
    """Ids of everything the prompt needs, None after noting in `fields` what is missing or contradicts."""
    first = fields.count(*family.bins_start)
    together = sum(fields.count(part, default=0) for part in ("history_vocab_size", "future_vocab_size"))
    bins = fields.count("traj_vocab_size", default=together or REQUIRED)
    known = expected_ids(family, first, bins)
    if first + bins + len(family.specials) > size:
        fields.fault(("vocab_size",), str(size), f"at least {first + bins + len(family.specials)}")
    named = (vocabulary or {}) | known  # a tokenizer that contradicts is refused as a whole
    for entry, token in family.ids.items():
        number = fields.get(family.ids_field, entry)
        if number is not None and named.get(token, number) != number:
            fields.fault((family.ids_field, entry), str(number), f"{named[token]}, the id of {token}")
    fields.require((family.ids_field, "future_id0"), (first + history_bins,))
    absent = [token for token in TOKEN_NAMES.values() if token not in named]
    if absent:
        fields.fault(("tokenizer.json",), f"without {', '.join(absent)}", "the tokenizer shipped with the checkpoint")
        return None
    return TokenIds(
        **{entry: named[token] for entry, token in TOKEN_NAMES.items()},
        trajectory_first=first,
        trajectory_count=bins,
        history_first=first + family.history_bins_behind,
        never_generated=tuple(named[token] for token in family.never_generated),
    )
