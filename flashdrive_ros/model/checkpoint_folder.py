"""A checkpoint folder with its companions, understood and checked without loading it. No torch.

The loader and `flashdrive doctor` both start here: what the doctor finds is what the loader refuses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from flashdrive_ros.errors import ModelFileError
from flashdrive_ros.model.checkpoint_config import CONFIG, CheckpointConfig, read_config
from flashdrive_ros.model.checkpoint_drafter import DrafterFiles, read_drafter
from flashdrive_ros.model.checkpoint_files import Fault, StoredTensor, WeightFiles, read_json, read_weights
from flashdrive_ros.model.checkpoint_names import QUANTISED, match_tensors, network_tensors
from flashdrive_ros.model.checkpoint_tokens import expected_ids, find_tokenizer, read_vocabulary, vocabulary_faults
from flashdrive_ros.model.config import ModelConfig

DRAFTER, TUNED = "-DFlash", "-PARO"
"""Endings of the companion folders beside the base: the drafter; the dump with the streaming-tuned expert."""
COMPANIONS = {DRAFTER: "the drafter", TUNED: "the streaming-tuned expert"}
OPTIMISED_OWNER = "z-lab"
"""Base checkpoints of this owner are published to be used with both companions."""
TUNED_PARTS = ("expert.", "action_in_proj.", "action_out_proj.")


@dataclass(frozen=True)
class Checkpoint:
    """Everything that loading needs, and everything that is wrong."""

    folder: Path
    config: ModelConfig | None
    """None when faults of the configuration leave it open."""
    sources: dict[str, StoredTensor]
    """By name in the network, the drafter's under `drafter.`"""
    drafter: DrafterFiles | None
    tokenizer: Path
    companions: tuple[Path, ...]
    """Companion folders that are there."""
    origin: str
    """Where the weights come from, for people."""
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]
    files: tuple[Path, ...]


def is_checkpoint(folder: Path) -> bool:
    """True for a folder with a config.json (an exported model has a manifest instead)."""
    return (folder / CONFIG).exists()


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read configuration, headers and tokenizer of `folder` and its companions; collects all faults."""
    folder = folder.absolute()
    tokenizer, vocabulary, token_faults = _tokenizer(folder)
    values, faults = read_json(folder / CONFIG)
    faults += _companion_itself(folder)
    if faults:
        return Checkpoint(folder, None, {}, None, tokenizer, (), "", tuple(faults), (), ())
    parsed = read_config(folder / CONFIG, values, vocabulary)
    faults += [*parsed.faults, *token_faults]
    if parsed.model is not None and vocabulary is not None:
        tokens = parsed.model.tokens
        known = expected_ids(parsed.family, tokens.trajectory_first, tokens.trajectory_count)
        faults += vocabulary_faults(tokenizer, vocabulary, known, parsed.model.text.vocabulary)
    weights = read_weights(folder)
    faults += weights.faults
    notes = [*parsed.notes, *weights.notes]
    present = {ending: _beside(folder, ending) for ending in COMPANIONS if _beside(folder, ending).is_dir()}
    companion_faults, companion_notes = _absent_companions(folder, parsed, tuple(present))
    faults += companion_faults
    notes += companion_notes
    sources: dict[str, StoredTensor] = {}
    drafter, model, files = None, parsed.model, weights.files
    if model is not None:
        if not weights.faults:
            needed = network_tensors(model)
            match = match_tensors(needed, weights.tensors, parsed.family.prefixes, parsed.tied_head, folder)
            sources = match.sources
            faults += match.faults
            notes += match.notes
        if TUNED in present:
            tuned = _tuned_expert(present[TUNED], model, parsed)
            sources |= tuned.tensors
            faults += tuned.faults
            notes += tuned.notes
            files += tuned.files
        if DRAFTER in present:
            drafter = read_drafter(present[DRAFTER], model)
            sources |= {f"drafter.{name}": tensor for name, tensor in drafter.sources.items()}
            faults += drafter.faults
            notes += drafter.notes
            model = replace(model, drafter=drafter.config)
    origin = parsed.origin or f"checkpoint {folder.name}"
    companions = tuple(present.values())
    return Checkpoint(
        folder, model, sources, drafter, tokenizer, companions, origin, tuple(faults), tuple(notes), files
    )


def checked_checkpoint(folder: Path) -> tuple[Checkpoint, ModelConfig]:
    """The checkpoint in `folder` and its configuration.

    Raises ModelFileError naming its first fault and how many there are.
    """
    checkpoint = read_checkpoint(folder)
    if checkpoint.config is None or checkpoint.faults:
        others = len(checkpoint.faults) - 1
        more = f" (and {others} more)" if others else ""
        raise ModelFileError(f"{checkpoint.faults[0]}{more}; `flashdrive doctor {folder}` lists everything")
    return checkpoint, checkpoint.config


def _tokenizer(folder: Path) -> tuple[Path, dict[str, int] | None, list[Fault]]:
    tokenizer, faults = find_tokenizer(folder)
    if faults:
        return tokenizer, None, faults
    vocabulary, faults = read_vocabulary(tokenizer)
    return tokenizer, None if faults else vocabulary, faults


def _beside(folder: Path, ending: str) -> Path:
    return folder.with_name(folder.name + ending)


def _companion_itself(folder: Path) -> list[Fault]:
    for ending, role in COMPANIONS.items():
        if folder.name.endswith(ending):
            base = folder.with_name(folder.name.removesuffix(ending))
            return [Fault(folder, f"a companion folder, {role},", f"the base checkpoint {base}")]
    return []


def _absent_companions(
    folder: Path, parsed: CheckpointConfig, present: tuple[str, ...]
) -> tuple[list[Fault], list[str]]:
    """A companion is a must where the base is published, or says in its config.json, to be used with it."""
    optimised = OPTIMISED_OWNER in (folder.parent.name, *folder.name.split("--"))
    wanted = set(COMPANIONS if optimised else ()) | set(parsed.companions)
    faults, notes = [], []
    for ending in sorted({*wanted, *COMPANIONS} - set(present)):
        path, role = _beside(folder, ending), COMPANIONS.get(ending, "a companion")
        if ending in wanted:
            faults.append(Fault(path, "no folder", f"{role}, which this base checkpoint is to be used with"))
        else:
            notes.append(f"{path}: no such folder: the model runs without {role}")
    return faults, notes


def _tuned_expert(folder: Path, model: ModelConfig, parsed: CheckpointConfig) -> WeightFiles:
    """The expert's tensors in a `-PARO` dump; its quantised language layers are not used."""
    weights = read_weights(folder)
    if weights.faults:
        return replace(weights, tensors={})
    needed = {name: shape for name, shape in network_tensors(model).items() if name.startswith(TUNED_PARTS)}
    rest = [name for name in network_tensors(model) if name not in needed]
    quantised = [name for name in weights.tensors if fnmatchcase(name, QUANTISED)]
    others = {*rest, *quantised, *(name for name in weights.tensors if name.startswith("vlm."))}
    stored = {name: tensor for name, tensor in weights.tensors.items() if name not in others}
    match = match_tensors(needed, stored, parsed.family.prefixes, False, folder)
    notes = [*weights.notes, *match.notes, f"{folder}: expert and action projections taken from here"]
    if quantised:
        notes.append(
            f"{folder}: {len(quantised)} tensors of quantised language layers not used: quantised layers are not "
            "supported yet, the base checkpoint's are taken"
        )
    return WeightFiles(match.sources, weights.files, match.faults, tuple(notes))
