"""What is known about the published checkpoints beside their own config.json (spec A.1 to A.5, A.12, A.13, D): data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flashdrive_ros.model.checkpoint_names import Prefixes

Path = tuple[str, ...]
"""Keys that lead to a section of config.json."""

QWEN3_VL_8B: dict[str, Any] = {
    "tie_word_embeddings": False,
    "text_config": {
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 12288,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5e6,
        "rope_scaling": {"mrope_section": [24, 20, 20], "mrope_interleaved": True, "rope_type": "default"},
    },
    "vision_config": {
        "depth": 27,
        "hidden_size": 1152,
        "num_heads": 16,
        "intermediate_size": 4304,
        "deepstack_visual_indexes": [8, 16, 24],
        "patch_size": 16,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "num_position_embeddings": 2304,
        "out_hidden_size": 4096,
    },
}
"""Under the names that an inline `vlm_config` uses, so that both are read by the same code."""
KNOWN_VLMS = {"nvidia/Cosmos-Reason2-8B": QWEN3_VL_8B, "Qwen/Qwen3-VL-8B-Instruct": QWEN3_VL_8B}
"""Geometry of the models that `vlm_name_or_path` may name."""

BASE_IDS = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|vision_start|>": 151652,
    "<|vision_end|>": 151653,
    "<|image_pad|>": 151655,
    "<|video_pad|>": 151656,
    ".": 13,
    "Ċ": 198,  # a newline, as byte-level BPE writes it
}
"""Tokens that every tokenizer of this vocabulary has."""

_SPECIAL_NAMES = (
    "prompt_start", "prompt_end", "image_start", "_padding_0", "image_end", "traj_history_start", "_padding_1",
    "traj_history_end", "cot_start", "cot_end", "_padding_2", "_padding_3", "traj_future_start", "_padding_4",
    "traj_future_end", "traj_history", "traj_future", "_padding_5", "_padding_6", "_padding_7", "_padding_8",
    "route_start", "route_pad", "route_end", "question_start", "question_end", "answer_start", "answer_end",
)  # fmt: skip
SPECIALS = tuple(f"<|{name}|>" for name in _SPECIAL_NAMES)
"""Special tokens behind the trajectory bins, in the order of their ids."""

TOKEN_NAMES = {
    "pad": "<|endoftext|>",
    "im_start": "<|im_start|>",
    "im_end": "<|im_end|>",
    "vision_start": "<|vision_start|>",
    "vision_end": "<|vision_end|>",
    "image_pad": "<|image_pad|>",
    "history_start": "<|traj_history_start|>",
    "history_end": "<|traj_history_end|>",
    "cot_start": "<|cot_start|>",
    "cot_end": "<|cot_end|>",
    "future_start": "<|traj_future_start|>",
    "route_start": "<|route_start|>",
    "route_end": "<|route_end|>",
}
"""TokenIds field to token."""


@dataclass(frozen=True)
class Family:
    """One `model_type`: where its config.json says what, and what it does not say."""

    name: str
    sections: dict[str, Path]
    """Part to section: text, vision, expert, action_in_proj, action_space, diffusion, flow."""
    cameras: tuple[int, ...]
    prefixes: Prefixes = ()
    specials: tuple[str, ...] = SPECIALS
    """Specials of known order; without them the ids come from the tokenizer."""
    ids_field: str = "traj_token_ids"
    ids: dict[str, str] = field(default_factory=dict)
    """Entries of that field to tokens; `+` in front of a number of bins counts from the first bin."""
    history_bins_behind: int = 3000
    """Bins in front of the ego history's."""
    bins_start: Path = ("traj_token_start_idx",)
    labels: bool = False
    """Camera and frame labels where config.json does not say."""
    route_capacity: int = 16
    least_reasoning: int = 1
    """Tokens of reasoning that are allowed even where tokens_per_future_traj says fewer."""
    never_generated: tuple[str, ...] = ()


_FLAT_SECTIONS: dict[str, Path] = {
    "vlm": ("vlm_config",),
    "text": ("vlm_config", "text_config"),
    "vision": ("vlm_config", "vision_config"),
    "expert": ("expert_cfg",),
    "action_in_proj": ("action_in_proj_cfg",),
    "action_space": ("action_space_cfg",),
    "diffusion": ("diffusion_cfg",),
    "flow": (),
}
_TRAJECTORY_IDS = {
    "history": "<|traj_history|>",
    "future": "<|traj_future|>",
    "history_start": "<|traj_history_start|>",
    "history_end": "<|traj_history_end|>",
    "future_start": "<|traj_future_start|>",
    "future_end": "<|traj_future_end|>",
}

ALPAMAYO_1_5 = Family(
    name="alpamayo-1.5", sections=_FLAT_SECTIONS, cameras=(0, 1, 2, 6), ids=_TRAJECTORY_IDS, labels=True
)
ALPAMAYO_1 = Family(
    name="alpamayo-1", sections=_FLAT_SECTIONS, cameras=(0, 1, 2, 6), ids=_TRAJECTORY_IDS, route_capacity=0
)
ALPAMAYO_2 = Family(
    name="alpamayo-2",
    sections=_FLAT_SECTIONS
    | {
        "expert": ("expert_config", "llm_config"),
        "action_in_proj": ("expert_config", "action_in_proj_cfg"),
        "action_space": ("expert_config", "action_space_cfg"),
        "diffusion": ("expert_config", "diffusion_cfg"),
        "flow": ("expert_config",),
    },
    cameras=(0, 1, 2, 3, 5, 6),
    prefixes=(
        ("expert.", "expert.expert."),
        ("action_in_proj.", "expert.action_in_proj."),
        ("action_out_proj.", "expert.action_out_proj."),
    ),
    specials=(),
    ids_field="traj_ids",
    ids={name: token for name, token in _TRAJECTORY_IDS.items() if "_" in name}
    | {"history_pad": "<|traj_history|>", "future_pad": "<|traj_future|>"},
    history_bins_behind=0,
    bins_start=("traj_ids", "history_id0"),
    labels=True,
    least_reasoning=256,
    never_generated=("<|im_end|>",),
)
FAMILIES = {"alpamayo1_5": ALPAMAYO_1_5, "alpamayo_r1": ALPAMAYO_1, "alpamayo2_super": ALPAMAYO_2}
"""By `model_type`."""

FIXED: dict[str, tuple[Any, ...]] = {
    "vlm_backend": ("qwenvl3",),
    "flow.expert_non_causal_attention": (True,),
    "diffusion.int_method": ("euler", "euler_with_cache"),
    "action_in_proj.num_enc_layers": (2,),
    "text.attention_bias": (False,),
    "text.hidden_act": ("silu",),
    "text.rope_scaling.mrope_interleaved": (True,),
    "text.rope_scaling.rope_type": ("default",),
    "expert.attention_bias": (False,),
    "expert.hidden_act": ("silu",),
    "vision.hidden_act": ("gelu_pytorch_tanh",),
    "vision.in_channels": (3,),
    "hist_traj_tokenizer_cfg.predict_yaw": (False,),
}
"""Fields that choose between forms of the network of which only these are implemented; absent means the first."""

NOT_NEEDED = (
    # what the publisher's own loader, trainer or generator needs
    "*_target_", "architectures", "auto_map", "transformers_version", "*dtype", "attn_implementation", "*model_type",
    "add_special_tokens", "keep_same_dtype", "padding_side", "loss_weights*", "token_layout", "frame_label",
    "cotrain_*", "*.initializer_range", "*.attention_dropout", "*.use_cache", "*.max_position_embeddings",
    "*token_id", "*.vocab_size", "*.tie_word_embeddings", "traj_vocab_size",
    # the discrete future tokens are never generated, and bounds are never applied when decoding (A.7, A.10)
    "traj_tokenizer_cfg*", "future_traj_tokenizer_cfg*", "*.accel_bounds", "*.curvature_bounds",
    "hist_traj_tokenizer_cfg.ego_yaw_*", "hist_traj_tokenizer_cfg.load_weights",
    # constants of the training direction (A.10)
    "*_lambda", "*_ridge",
    # a plan's own settings
    "*.num_inference_steps", "*.inference_step", "*.cache_steps", "*.inference_guidance_weight",
    "*.use_classifier_free_guidance", "*.x_dims", "action_out_proj_cfg*", "expert_config.action_out_proj_cfg*",
    "enable_expert",
    # written by `flashdrive make-checkpoint`
    "flashdrive.*",
)  # fmt: skip
"""Patterns of fields that change nothing here."""
