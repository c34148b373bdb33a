"""config.json files of synthetic checkpoints: the published fields around the numbers of a ModelConfig."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flashdrive_ros.model.checkpoint_families import QWEN3_VL_8B
from flashdrive_ros.model.config import DrafterConfig, ExpertConfig, ModelConfig, TextConfig, VisionConfig

MODEL_TYPES = {"alpamayo-1.5": "alpamayo1_5", "alpamayo-1": "alpamayo_r1"}
CLASSES = {"alpamayo-1.5": "Alpamayo1_5", "alpamayo-1": "AlpamayoR1"}
DRAFTER_ENDING = "-DFlash"


def scaled(config: ModelConfig, layers: int, small: bool) -> ModelConfig:
    """`config` with `layers` decoder layers.

    `small` divides its widths and its budget of reasoning (which random weights never end), and leaves images, tokens
    and prompt alone.
    """
    drafter = replace(config.drafter, tapped_layers=_taps(config.drafter.tapped_layers, config.text.layers, layers))
    text = replace(config.text, layers=layers)
    expert = replace(config.expert, text_layer=tuple(range(layers)))
    if not small:
        return replace(config, text=text, expert=expert, drafter=drafter)
    return replace(
        config,
        text=TextConfig(
            layers=layers, hidden=64, query_heads=4, kv_heads=1, head_dim=16, mlp=192,
            vocabulary=text.vocabulary, mrope_section=(4, 2, 2), rope_theta=text.rope_theta,
        ),
        vision=VisionConfig(
            depth=4, hidden=64, heads=4, mlp=240, deepstack_blocks=(1, 2, 3),
            image_height=config.vision.image_height, image_width=config.vision.image_width,
        ),
        expert=ExpertConfig(hidden=32, query_heads=2, mlp=128, text_layer=expert.text_layer, projection_hidden=32),
        drafter=replace(drafter, query_heads=4, kv_heads=1, head_dim=16, mlp=192),
        prompt=replace(config.prompt, reasoning_capacity=16),
    )  # fmt: skip


def checkpoint_json(config: ModelConfig, origin: str) -> dict[str, Any]:
    """Content of the base folder's config.json. A geometry that is not the published one stands in it."""
    tokens, action, expert, prompt = config.tokens, config.action, config.expert, config.prompt
    behind = tokens.trajectory_first + tokens.trajectory_count
    labels = {"include_camera_ids": bool(prompt.camera_label), "include_frame_nums": bool(prompt.frame_label)}
    values: dict[str, Any] = {
        "architectures": [CLASSES[config.name]],
        "model_type": MODEL_TYPES[config.name],
        "action_in_proj_cfg": {
            "hidden_size": expert.projection_hidden,
            "max_freq": expert.max_frequency,
            "num_enc_layers": 2,
            "num_fourier_feats": expert.fourier_features,
        },
        "action_out_proj_cfg": {"_target_": "torch.nn.Linear"},
        "action_space_cfg": {
            "accel_bounds": [-9.8, 9.8],
            "accel_mean": action.acceleration_mean,
            "accel_std": action.acceleration_std,
            "curvature_bounds": [-0.33, 0.33],
            "curvature_mean": action.curvature_mean,
            "curvature_std": action.curvature_std,
            "dt": action.dt_s,
            "n_waypoints": action.waypoints,
        },
        "add_special_tokens": True,
        "attn_implementation": "flash_attention_2",
        "diffusion_cfg": {"int_method": "euler", "num_inference_steps": 10},
        "expert_cfg": {
            "dtype": "bfloat16",
            "head_dim": config.text.head_dim,
            "hidden_size": expert.hidden,
            "intermediate_size": expert.mlp,
            "num_attention_heads": expert.query_heads,
        },
        "expert_non_causal_attention": True,
        "hist_traj_tokenizer_cfg": {"num_bins": prompt.history_bins},
        "keep_same_dtype": True,
        "max_pixels": 196608,
        "min_pixels": 163840,
        "tokens_per_future_traj": prompt.reasoning_capacity,
        "tokens_per_history_traj": prompt.history_tokens,
        "traj_token_ids": {
            "future": behind + 16,
            "future_end": behind + 14,
            "future_start": tokens.future_start,
            "history": behind + 15,
            "history_end": tokens.history_end,
            "history_start": tokens.history_start,
        },
        "traj_token_start_idx": tokens.trajectory_first,
        "traj_tokenizer_cfg": {"num_bins": tokens.trajectory_count - prompt.history_bins},
        "traj_vocab_size": tokens.trajectory_count,
        "vlm_backend": "qwenvl3",
        "vlm_name_or_path": "nvidia/Cosmos-Reason2-8B",
        "vocab_size": config.text.vocabulary,
        "flashdrive": {"origin": origin, "companions": [DRAFTER_ENDING]},
    }
    if any(labels.values()):
        values |= labels
    geometry = _geometry(config)
    return values if geometry == QWEN3_VL_8B else values | {"vlm_config": geometry}


def drafter_json(drafter: DrafterConfig, text: TextConfig, origin: str) -> dict[str, Any]:
    """Content of the drafter folder's config.json."""
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": text.hidden,
        "num_hidden_layers": drafter.layers,
        "num_attention_heads": drafter.query_heads,
        "num_key_value_heads": drafter.kv_heads,
        "head_dim": drafter.head_dim,
        "intermediate_size": drafter.mlp,
        "rms_norm_eps": drafter.norm_eps,
        "rope_theta": drafter.rope_theta,
        "attention_bias": False,
        "hidden_act": "silu",
        "layer_types": ["full_attention"] * drafter.layers,
        "target_layer_ids": list(drafter.tapped_layers),
        "num_target_layers": text.layers,
        "mask_token_id": text.vocabulary,
        "block_size": drafter.block,
        "context_len": drafter.context_rows,
        "flashdrive": {"origin": origin},
    }


def _geometry(config: ModelConfig) -> dict[str, Any]:
    text, vision = config.text, config.vision
    return {
        "tie_word_embeddings": False,
        "text_config": {
            "hidden_size": text.hidden,
            "num_hidden_layers": text.layers,
            "num_attention_heads": text.query_heads,
            "num_key_value_heads": text.kv_heads,
            "head_dim": text.head_dim,
            "intermediate_size": text.mlp,
            "rms_norm_eps": text.norm_eps,
            "rope_theta": text.rope_theta,
            "rope_scaling": {
                "mrope_section": list(text.mrope_section),
                "mrope_interleaved": True,
                "rope_type": "default",
            },
        },
        "vision_config": {
            "depth": vision.depth,
            "hidden_size": vision.hidden,
            "num_heads": vision.heads,
            "intermediate_size": vision.mlp,
            "deepstack_visual_indexes": list(vision.deepstack_blocks),
            "patch_size": vision.patch,
            "temporal_patch_size": vision.temporal_patch,
            "spatial_merge_size": vision.merge,
            "num_position_embeddings": vision.position_grid**2,
            "out_hidden_size": text.hidden,
        },
    }


def _taps(taps: tuple[int, ...], layers: int, scaled_layers: int) -> tuple[int, ...]:
    """The same places in a decoder of another depth; those that fall together are one."""
    return tuple(sorted({round(tap * (scaled_layers - 1) / (layers - 1)) for tap in taps}))
