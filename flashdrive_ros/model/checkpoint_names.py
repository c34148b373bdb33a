"""Which tensors a configuration needs (spec A.13) and how they are found in a checkpoint. Rules are data; no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from flashdrive_ros.model.checkpoint_files import Fault, StoredTensor
from flashdrive_ros.model.config import DrafterConfig, ModelConfig, TextConfig, VisionConfig

Shape = tuple[int, ...]
Shapes = dict[str, Shape]
Prefixes = tuple[tuple[str, str], ...]
"""(prefix in the network, prefix in the checkpoint); the first that fits counts."""

FLOAT_DTYPES = ("BF16", "F16", "F32")
HEAD = "vlm.lm_head.weight"
EMBEDDING = "vlm.model.language_model.embed_tokens.weight"
FLATTENED = ("vlm.model.visual.patch_embed.proj.weight",)
"""Convolutions that some files store as the matrix they are, [out, everything else]."""
CONSTANTS = (
    "*action_space.*",
    "*action_in_proj.sinus.*",
    "*action_in_proj.*fourier*",
    "*.inv_freq",
    "*.freqs",
    "*traj_tokenizer*",
    "*diffusion.*",
)
"""Buffers that follow from the configuration; some files hold them, nothing reads them."""
SMALL = 64
"""An extra tensor of at most so many numbers cannot be a layer: it is listed and left out."""
QUANTISED = "*.rotate_linear.*"
MOST_LISTED = 8


@dataclass(frozen=True)
class Match:
    """Source of every tensor of the network, and what did not fit."""

    sources: dict[str, StoredTensor]
    """By name in the network."""
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]


def network_tensors(config: ModelConfig) -> Shapes:
    """Name and shape of every parameter of the network without its drafter."""
    text, expert = config.text, config.expert
    shapes = {f"vlm.model.visual.{name}": shape for name, shape in _vision(config.vision, text.hidden)}
    shapes[EMBEDDING] = (text.vocabulary, text.hidden)
    for index in range(text.layers):
        layer = _layer(text.hidden, text.query_heads, text.kv_heads, text.head_dim, text.mlp)
        shapes |= {f"vlm.model.language_model.layers.{index}.{name}": shape for name, shape in layer}
    shapes["vlm.model.language_model.norm.weight"] = (text.hidden,)
    shapes[HEAD] = (text.vocabulary, text.hidden)
    for index in range(len(expert.text_layer)):
        layer = _layer(expert.hidden, expert.query_heads, text.kv_heads, text.head_dim, expert.mlp)
        shapes |= {f"expert.layers.{index}.{name}": shape for name, shape in layer}
    shapes["expert.norm.weight"] = (expert.hidden,)
    width, trunk = expert.projection_hidden, "action_in_proj.encoder.trunk"
    for position, (inputs, outputs) in {
        0: (3 * expert.fourier_features, width),
        3: (width, width),
        6: (width, expert.hidden),
    }.items():
        shapes |= dict(_linear(f"{trunk}.{position}", inputs, outputs))
    shapes |= {f"{trunk}.{position}.weight": (width,) for position in (2, 5)}
    shapes |= dict(_norm("action_in_proj.norm", expert.hidden))
    shapes |= dict(_linear("action_out_proj", expert.hidden, 2))
    return shapes


def drafter_tensors(drafter: DrafterConfig, text: TextConfig) -> Shapes:
    """Name and shape of every tensor of a drafter's own file (spec techniques 1.2); its mask row has its own."""
    shapes: Shapes = {"fc.weight": (text.hidden, len(drafter.tapped_layers) * text.hidden)}
    shapes |= {f"{name}.weight": (text.hidden,) for name in ("hidden_norm", "norm")}
    for index in range(drafter.layers):
        layer = _layer(text.hidden, drafter.query_heads, drafter.kv_heads, drafter.head_dim, drafter.mlp)
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer}
    return shapes


def stored_name(name: str, prefixes: Prefixes) -> str:
    """Name in the checkpoint of the tensor `name` of the network."""
    for own, stored in prefixes:
        if name.startswith(own):
            return stored + name.removeprefix(own)
    return name


def match_tensors(
    needed: Shapes, stored: Mapping[str, StoredTensor], prefixes: Prefixes, tied: bool, folder: Path
) -> Match:
    """Find `needed` among `stored`. `tied`: a head that is not stored is the embedding."""
    sources: dict[str, StoredTensor] = {}
    faults: list[Fault] = []
    missing: list[str] = []
    notes: list[str] = []
    for name, shape in needed.items():
        key = stored_name(name, prefixes)
        if key not in stored and name == HEAD and tied:
            key = stored_name(EMBEDDING, prefixes)
            notes.append(f"{HEAD} is not stored: the embedding is the head")
        if key not in stored:
            missing.append(key)
            continue
        tensor = stored[key]
        faults += _tensor_faults(key, tensor, shape, name in FLATTENED)
        sources[name] = tensor
    if missing:
        shown = ", ".join(missing[:MOST_LISTED]) + (", ..." if len(missing) > MOST_LISTED else "")
        faults.append(Fault(folder, f"{len(missing)} tensors fewer than needed", f"also {shown}"))
    wanted = {stored_name(name, prefixes) for name in needed}
    extra_faults, extra_notes = _extras({name: stored[name] for name in stored if name not in wanted}, folder)
    return Match(sources, (*faults, *extra_faults), (*notes, *extra_notes))


def _tensor_faults(key: str, tensor: StoredTensor, shape: Shape, may_be_flat: bool) -> Iterator[Fault]:
    if tensor.dtype not in FLOAT_DTYPES:
        yield Fault(tensor.file, f"dtype {tensor.dtype} of {key}", " or ".join(FLOAT_DTYPES))
    flat = (shape[0], math.prod(shape[1:]))
    if tensor.shape != shape and not (may_be_flat and tensor.shape == flat):
        yield Fault(tensor.file, f"shape {list(tensor.shape)} of {key}", f"{list(shape)} by the configuration")


def _extras(extra: Mapping[str, StoredTensor], folder: Path) -> tuple[list[Fault], list[str]]:
    """Extra tensors are never silent: constants are listed, quantised and unknown ones refused."""
    faults, notes = [], []
    constants = [name for name in extra if any(fnmatchcase(name, pattern) for pattern in CONSTANTS)]
    rest = [name for name in extra if name not in constants]
    quantised = [name for name in rest if fnmatchcase(name, QUANTISED)]
    small = [name for name in rest if math.prod(extra[name].shape) <= SMALL and name not in quantised]
    unknown = [name for name in rest if name not in quantised and name not in small]
    if quantised:
        found = f"{len(quantised)} tensors of quantised layers, {quantised[0]} first,"
        faults.append(Fault(folder, found, "the unquantised base checkpoint: quantised layers are not supported yet"))
    for name in unknown[:MOST_LISTED]:
        found = f"tensor {name} {list(extra[name].shape)}, which no part of the configured network has,"
        faults.append(Fault(extra[name].file, found, "the tensors of the configured network only"))
    if len(unknown) > MOST_LISTED:
        faults.append(Fault(folder, f"{len(unknown) - MOST_LISTED} more such tensors", "none"))
    notes += [f"{name}: constant, computed from the configuration instead" for name in constants]
    notes += [f"{name} {list(extra[name].shape)}: unknown and small, left out" for name in small]
    return faults, notes


def _linear(name: str, inputs: int, outputs: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, width: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _layer(hidden: int, query_heads: int, kv_heads: int, head_dim: int, mlp: int) -> Iterator[tuple[str, Shape]]:
    """One decoder layer: no biases."""
    queries, keys = query_heads * head_dim, kv_heads * head_dim
    yield "input_layernorm.weight", (hidden,)
    yield "self_attn.q_proj.weight", (queries, hidden)
    yield "self_attn.k_proj.weight", (keys, hidden)
    yield "self_attn.v_proj.weight", (keys, hidden)
    yield "self_attn.o_proj.weight", (hidden, queries)
    yield "self_attn.q_norm.weight", (head_dim,)
    yield "self_attn.k_norm.weight", (head_dim,)
    yield "post_attention_layernorm.weight", (hidden,)
    yield "mlp.gate_proj.weight", (mlp, hidden)
    yield "mlp.up_proj.weight", (mlp, hidden)
    yield "mlp.down_proj.weight", (hidden, mlp)


def _vision(vision: VisionConfig, text_hidden: int) -> Iterator[tuple[str, Shape]]:
    hidden, joined = vision.hidden, vision.hidden * vision.merge**2
    yield "patch_embed.proj.weight", (hidden, 3, vision.temporal_patch, vision.patch, vision.patch)
    yield "patch_embed.proj.bias", (hidden,)
    yield "pos_embed.weight", (vision.position_grid**2, hidden)
    for index in range(vision.depth):
        block = f"blocks.{index}"
        yield from _norm(f"{block}.norm1", hidden)
        yield from _norm(f"{block}.norm2", hidden)
        yield from _linear(f"{block}.attn.qkv", hidden, 3 * hidden)
        yield from _linear(f"{block}.attn.proj", hidden, hidden)
        yield from _linear(f"{block}.mlp.linear_fc1", hidden, vision.mlp)
        yield from _linear(f"{block}.mlp.linear_fc2", vision.mlp, hidden)
    mergers = {"merger": hidden} | {
        f"deepstack_merger_list.{index}": joined for index in range(len(vision.deepstack_blocks))
    }
    for merger, norm_width in mergers.items():
        yield from _norm(f"{merger}.norm", norm_width)
        yield from _linear(f"{merger}.linear_fc1", joined, joined)
        yield from _linear(f"{merger}.linear_fc2", joined, text_hidden)
