"""A checkpoint's config.json to a ModelConfig (spec A.12, D). No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashdrive_ros.model.checkpoint_families import FAMILIES, FIXED, KNOWN_VLMS, NOT_NEEDED, Family
from flashdrive_ros.model.checkpoint_fields import REQUIRED, Fields
from flashdrive_ros.model.checkpoint_files import Fault
from flashdrive_ros.model.checkpoint_tokens import token_ids
from flashdrive_ros.model.config import (
    ActionConfig,
    DrafterConfig,
    ExpertConfig,
    ModelConfig,
    PromptConfig,
    TextConfig,
    VisionConfig,
)

CONFIG = "config.json"
SOURCE_HEIGHT, SOURCE_WIDTH = 1080, 1920
"""Camera frames of the published recordings (spec A.4)."""
MOST_LAYERS, MOST_HEADS, MOST_TOKENS, MOST_PIXELS = 1000, 1000, 4096, 10_000_000


@dataclass(frozen=True)
class CheckpointConfig:
    """A configuration and how it was understood."""

    model: ModelConfig | None
    """None when there are faults."""
    family: Family
    tied_head: bool
    companions: tuple[str, ...]
    """Endings of the companion folders that config.json names."""
    origin: str
    """Where the weights come from as config.json says, empty when it says nothing."""
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]


def no_drafter(text_layers: int) -> DrafterConfig:
    """The least that the stages need where there is no drafter: one tap and no layers; it is never asked."""
    return DrafterConfig(layers=0, query_heads=1, kv_heads=1, head_dim=2, mlp=1, tapped_layers=(text_layers - 1,))


def read_config(file: Path, values: dict[str, Any], vocabulary: dict[str, int] | None) -> CheckpointConfig:
    """Understand `values`, the content of `file`; `vocabulary` is that of the tokenizer on disk, where there is one."""
    family = FAMILIES.get(str(values.get("model_type")))
    if family is None:
        fault = Fault(file, f"model_type {values.get('model_type')!r}", " or ".join(FAMILIES))
        return CheckpointConfig(None, FAMILIES["alpamayo1_5"], False, (), "", (fault,), ())
    fields, notes = _with_geometry(file, values)
    for name, allowed in FIXED.items():
        section, _, rest = name.partition(".")
        start = family.sections.get(section, (section,))
        fields.require((*start, *rest.split(".")) if rest else start, allowed)
    text = _text(fields, family)
    vision = _vision(fields, family, text)
    expert = _expert(fields, family, text)
    prompt = _prompt(fields, family)
    action = _action(fields, family)
    tokens = token_ids(fields, family, vocabulary, text.vocabulary, prompt.history_bins)
    unknown = fields.unknown(NOT_NEEDED)
    notes += [f"{file}: unknown field {name} ignored" for name in unknown]
    model = None
    if tokens is not None and not fields.faults:
        model = ModelConfig(
            name=family.name,
            vision=vision,
            text=text,
            expert=expert,
            drafter=no_drafter(text.layers),
            tokens=tokens,
            prompt=prompt,
            action=action,
        )
    return CheckpointConfig(
        model,
        family,
        fields.flag(*family.sections["vlm"], "tie_word_embeddings", default=False),
        _companions(fields),
        str(fields.get("flashdrive", "origin") or ""),
        tuple(fields.faults),
        tuple(notes),
    )


def _companions(fields: Fields) -> tuple[str, ...]:
    endings = fields.get("flashdrive", "companions")
    return tuple(str(ending) for ending in endings) if isinstance(endings, list) else ()


def image_size(min_pixels: int, max_pixels: int, factor: int) -> tuple[int, int]:
    """Height and width of a camera frame in the model: multiples of `factor`, area within the limits (spec A.4)."""
    area = SOURCE_HEIGHT * SOURCE_WIDTH
    sides = (SOURCE_HEIGHT, SOURCE_WIDTH)
    height, width = (max(factor, round(side / factor) * factor) for side in sides)
    if height * width > max_pixels:
        shrink = math.sqrt(area / max_pixels)
        height, width = (max(factor, math.floor(side / shrink / factor) * factor) for side in sides)
    elif height * width < min_pixels:
        grow = math.sqrt(min_pixels / area)
        height, width = (math.ceil(side * grow / factor) * factor for side in sides)
    return height, width


def _with_geometry(file: Path, values: dict[str, Any]) -> tuple[Fields, list[str]]:
    """Fields in which the geometry of a vision-language model that is only named stands as if it were inline."""
    name = str(values.get("vlm_name_or_path"))
    fields = Fields(file, {"vlm_config": KNOWN_VLMS.get(name, {})} | values)
    fields.get("vlm_name_or_path")
    if "vlm_config" in values:
        return fields, []
    if name not in KNOWN_VLMS:
        fields.fault(("vlm_name_or_path",), repr(name), f"{' or '.join(KNOWN_VLMS)}, or an inline vlm_config")
        return fields, []
    return fields, [f"{file}: geometry of {name} taken from this package, the file does not hold it"]


def _text(fields: Fields, family: Family) -> TextConfig:
    section = family.sections["text"]
    hidden = fields.count(*section, "hidden_size")
    heads = fields.count(*section, "num_attention_heads", most=MOST_HEADS)
    head_dim = fields.count(*section, "head_dim", default=max(hidden // heads, 1))
    # newer files keep both in rope_parameters
    new, old = (*section, "rope_parameters"), (*section, "rope_scaling")
    rope = new if fields.get(*new) else old
    fields.require((*new, "rope_type"), ("default",))
    fields.require((*new, "mrope_interleaved"), (True,))
    sections = fields.three_numbers(*rope, "mrope_section")
    if 2 * sum(sections) != head_dim or not all(part >= 0 and part.is_integer() for part in sections):
        fields.fault((*rope, "mrope_section"), str(list(sections)), f"whole numbers of sum {head_dim / 2:g}")
    kv_heads = fields.count(*section, "num_key_value_heads", most=MOST_HEADS)
    if heads % kv_heads:
        fields.fault((*section, "num_attention_heads"), str(heads), f"a multiple of num_key_value_heads {kv_heads}")
    theta = fields.number(*new, "rope_theta", default=0.0)
    inline_vocabulary = fields.count(*section, "vocab_size", default=0)
    return TextConfig(
        layers=fields.count(*section, "num_hidden_layers", most=MOST_LAYERS),
        hidden=hidden,
        query_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp=fields.count(*section, "intermediate_size"),
        vocabulary=fields.count("vocab_size", default=inline_vocabulary or REQUIRED),
        mrope_section=(int(sections[0]), int(sections[1]), int(sections[2])),
        rope_theta=float(fields.number(*section, "rope_theta", default=theta or REQUIRED)),
        norm_eps=fields.number(*section, "rms_norm_eps", default=1e-6),
    )


def _vision(fields: Fields, family: Family, text: TextConfig) -> VisionConfig:
    section = family.sections["vision"]
    patch, merge = fields.count(*section, "patch_size", most=64), fields.count(*section, "spatial_merge_size", most=8)
    depth = fields.count(*section, "depth", most=MOST_LAYERS)
    positions = fields.count(*section, "num_position_embeddings")
    hidden = fields.count(*section, "hidden_size")
    heads = fields.count(*section, "num_heads", most=MOST_HEADS)
    if hidden % (4 * heads):
        fields.fault((*section, "hidden_size"), str(hidden), f"a multiple of 4 for each of {heads} heads")
    if math.isqrt(positions) ** 2 != positions:
        fields.fault((*section, "num_position_embeddings"), str(positions), "a square number")
    fields.require((*section, "out_hidden_size"), (text.hidden,))
    pixels = fields.count("min_pixels", most=MOST_PIXELS), fields.count("max_pixels", most=MOST_PIXELS)
    height, width = image_size(*pixels, patch * merge)
    return VisionConfig(
        depth=depth,
        hidden=hidden,
        heads=heads,
        mlp=fields.count(*section, "intermediate_size"),
        deepstack_blocks=fields.indices(*section, "deepstack_visual_indexes", below=depth),
        image_height=height,
        image_width=width,
        patch=patch,
        temporal_patch=fields.count(*section, "temporal_patch_size", most=8),
        merge=merge,
        position_grid=math.isqrt(positions),
    )


def _expert(fields: Fields, family: Family, text: TextConfig) -> ExpertConfig:
    """The expert is the text decoder with other widths; what it does not say is the text decoder's."""
    section, projection = family.sections["expert"], family.sections["action_in_proj"]
    fields.require((*section, "head_dim"), (text.head_dim,))
    fields.require((*section, "num_key_value_heads"), (text.kv_heads,))
    fields.require((*section, "rms_norm_eps"), (text.norm_eps,))
    fields.require((*section, "rope_theta"), (text.rope_theta,))
    fields.require((*section, "rope_scaling", "mrope_section"), (list(text.mrope_section),))
    fields.require((*section, "rope_scaling", "mrope_interleaved"), (True,))
    fields.require((*section, "rope_scaling", "rope_type"), ("default",))
    layers = fields.count(*section, "num_hidden_layers", most=text.layers, default=text.layers)
    heads = fields.count(*section, "num_attention_heads", most=MOST_HEADS)
    if heads % text.kv_heads:
        fields.fault((*section, "num_attention_heads"), str(heads), f"a multiple of the {text.kv_heads} kv heads")
    features = fields.count(*projection, "num_fourier_feats")
    if features % 2:
        fields.fault((*projection, "num_fourier_feats"), str(features), "an even number")
    return ExpertConfig(
        hidden=fields.count(*section, "hidden_size"),
        query_heads=heads,
        mlp=fields.count(*section, "intermediate_size"),
        text_layer=tuple(range(layers)),
        projection_hidden=fields.count(*projection, "hidden_size"),
        fourier_features=features,
        max_frequency=fields.number(*projection, "max_freq"),
    )


def _prompt(fields: Fields, family: Family) -> PromptConfig:
    tokens = fields.count("tokens_per_history_traj", most=MOST_TOKENS)
    origin = fields.flag("hist_traj_tokenizer_cfg", "pad_origin_at_beginning", default=True)
    steps = tokens // 3 + (0 if origin else 1)
    if tokens % 3:
        fields.fault(("tokens_per_history_traj",), str(tokens), "a multiple of 3: x, y, z of every step")
    defaults = PromptConfig(cameras=family.cameras)
    low = fields.three_numbers("hist_traj_tokenizer_cfg", "ego_xyz_min", default=defaults.history_min_m)
    high = fields.three_numbers("hist_traj_tokenizer_cfg", "ego_xyz_max", default=defaults.history_max_m)
    if not all(one < other for one, other in zip(low, high, strict=True)):
        fields.fault(("hist_traj_tokenizer_cfg", "ego_xyz_max"), str(list(high)), f"above {list(low)}")
    bins = fields.count("history_vocab_size", default=defaults.history_bins)
    cameras = fields.flag("include_camera_ids", default=family.labels)
    frames = fields.flag("include_frame_nums", default=family.labels)
    return PromptConfig(
        cameras=family.cameras,
        camera_label=defaults.camera_label if cameras else "",
        frame_label=defaults.frame_label if frames else "",
        history_steps=steps,
        history_origin=origin,
        history_min_m=low,
        history_max_m=high,
        history_bins=fields.count("hist_traj_tokenizer_cfg", "num_bins", default=bins),
        route_capacity=family.route_capacity,
        # the published sampler's budget, which is named after the discrete trajectory that it once was for (A.11)
        reasoning_capacity=max(fields.count("tokens_per_future_traj", most=MOST_TOKENS), family.least_reasoning),
    )


def _action(fields: Fields, family: Family) -> ActionConfig:
    section = family.sections["action_space"]
    return ActionConfig(
        waypoints=fields.count(*section, "n_waypoints", most=MOST_TOKENS),
        dt_s=fields.number(*section, "dt"),
        acceleration_mean=fields.real(*section, "accel_mean"),
        acceleration_std=fields.number(*section, "accel_std"),
        curvature_mean=fields.real(*section, "curvature_mean"),
        curvature_std=fields.number(*section, "curvature_std"),
    )
