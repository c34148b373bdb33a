"""The `-DFlash` companion folder: configuration, tensors and mask row of the drafter (flashdrive B.5). No torch."""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from pathlib import Path

from flashdrive_ros.model.checkpoint_fields import Fields
from flashdrive_ros.model.checkpoint_files import Fault, StoredTensor, read_header, read_json, read_weights
from flashdrive_ros.model.checkpoint_names import drafter_tensors, match_tensors
from flashdrive_ros.model.config import DrafterConfig, ModelConfig

MASK_FILES = ("mask_embedding.safetensors", "mask_embedding.pt")
PICKLE_NUMBER_BYTES = (2, 4)
"""Bytes of a number in mask_embedding.pt: half precision or float32."""
MOST_LAYERS, MOST_ROWS = 100, 256
NOT_NEEDED = (
    "architectures", "auto_map", "model_type", "transformers_version", "*dtype", "*token_id", "vocab_size",
    "attention_dropout", "initializer_range", "use_cache", "max_position_embeddings", "resolution_scale",
    "sliding_window", "use_sliding_window", "max_window_layers", "tie_word_embeddings", "layer_types*", "rope_scaling",
    "flashdrive.*",
)  # fmt: skip


@dataclass(frozen=True)
class DrafterFiles:
    """A drafter as its folder describes it."""

    config: DrafterConfig
    sources: dict[str, StoredTensor]
    """By name in the drafter; its mask row only if a safetensors file holds it."""
    mask_pickle: Path | None
    """The `.pt` file of the mask row, where no safetensors file holds it."""
    mask_row: int | None
    """Row of the embedding table that is the mask row, where no file holds it."""
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]


def read_drafter(folder: Path, model: ModelConfig) -> DrafterFiles:
    """Check the companion `folder` against the model that it drafts for."""
    file = folder / "config.json"
    values, faults = read_json(file)
    fields = Fields(file, values)
    config, mask_id = _config(fields, model)
    if faults:
        return DrafterFiles(config, {}, None, None, tuple(faults), ())
    notes = [f"{file}: unknown field {name} ignored" for name in fields.unknown(NOT_NEEDED)]
    weights = read_weights(folder)
    faults = [*fields.faults, *weights.faults]
    sources: dict[str, StoredTensor] = {}
    if not faults:
        stored = {name: tensor for name, tensor in weights.tensors.items() if name != "mask_embedding"}
        match = match_tensors(drafter_tensors(config, model.text), stored, (), False, folder)
        faults += match.faults
        notes += match.notes
        sources = match.sources
    mask, pickle, mask_faults = _mask_row(folder, model.text.hidden)
    row = mask_id if mask is None and pickle is None and mask_id < model.text.vocabulary else None
    if row is not None:
        notes.append(f"{folder}: no mask embedding file: row {row} of the embedding table is the mask")
        mask_faults = []
    if mask is not None:
        sources["mask_embedding"] = mask
    return DrafterFiles(config, sources, pickle, row, (*faults, *mask_faults), (*weights.notes, *notes))


def _config(fields: Fields, model: ModelConfig) -> tuple[DrafterConfig, int]:
    text = model.text
    fields.require(("hidden_size",), (text.hidden,))
    fields.require(("num_target_layers",), (text.layers,))
    fields.require(("attention_bias",), (False,))
    fields.require(("hidden_act",), ("silu",))
    layer_types = fields.get("layer_types") or ()
    if not isinstance(layer_types, list | tuple) or set(layer_types) - {"full_attention"}:
        fields.fault(("layer_types",), str(layer_types)[:60], "full_attention only")
    # the mask row may be one behind the vocabulary
    mask_id = fields.count(*_place(fields, "mask_token_id"), most=text.vocabulary)
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads")
    if heads % kv_heads:
        fields.fault(("num_attention_heads",), str(heads), f"a multiple of num_key_value_heads {kv_heads}")
    theta = fields.number("rope_parameters", "rope_theta", default=DrafterConfig.rope_theta)
    config = DrafterConfig(
        layers=fields.count("num_hidden_layers", most=MOST_LAYERS),
        query_heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.count("head_dim", default=max(hidden // heads, 1)),
        mlp=fields.count("intermediate_size"),
        tapped_layers=fields.indices(*_place(fields, "target_layer_ids"), below=text.layers),
        block=fields.count(*_place(fields, "block_size"), most=MOST_ROWS, default=DrafterConfig.block),
        context_rows=fields.count(*_place(fields, "context_len"), most=MOST_ROWS, default=DrafterConfig.context_rows),
        rope_theta=float(fields.number("rope_theta", default=theta)),
        norm_eps=fields.number("rms_norm_eps", default=1e-6),
    )
    return config, mask_id


def _place(fields: Fields, name: str) -> tuple[str, ...]:
    """A field stands on its own or in dflash_config (spec techniques 1.7)."""
    nested = ("dflash_config", name)
    return nested if fields.get(*nested) is not None else (name,)


def _mask_row(folder: Path, hidden: int) -> tuple[StoredTensor | None, Path | None, list[Fault]]:
    """Where the mask row lies: tensor of a safetensors file, or a `.pt` file, checked by size."""
    safetensors, pickle = (folder / name for name in MASK_FILES)
    if safetensors.exists():
        tensors, faults = read_header(safetensors)
        if not faults and [math.prod(tensor.shape) for tensor in tensors.values()] != [hidden]:
            shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
            faults.append(Fault(safetensors, str(shapes)[:60], f"one tensor of {hidden} numbers"))
        return next(iter(tensors.values()), None), None, faults
    if pickle.exists():
        return None, pickle, _pickle_faults(pickle, hidden)
    return None, None, [Fault(folder, "no mask embedding", " or ".join(MASK_FILES))]


def _pickle_faults(path: Path, hidden: int) -> list[Fault]:
    """torch.save writes a zip archive with the raw numbers of each tensor in a file of its own."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = [entry.file_size for entry in archive.infolist() if "/data/" in entry.filename]
    except (OSError, zipfile.BadZipFile) as error:
        return [Fault(path, f"an unreadable file ({error})", "a tensor written by torch.save")]
    if len(sizes) != 1 or sizes[0] not in {hidden * width for width in PICKLE_NUMBER_BYTES}:
        return [Fault(path, f"tensors of {sizes} bytes", f"one of {hidden} numbers")]
    return []
