"""config.json to ModelConfig: the published numbers, the next model by configuration alone, and named mistakes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashdrive_ros.model.checkpoint_config import CheckpointConfig, image_size, read_config
from flashdrive_ros.model.checkpoint_fields import leaves
from flashdrive_ros.model.checkpoint_names import drafter_tensors, network_tensors, stored_name
from flashdrive_ros.model.checkpoint_tokens import expected_ids, vocabulary_faults
from flashdrive_ros.model.config import ALPAMAYO_1, ALPAMAYO_1_5, ModelConfig
from flashdrive_ros.model.tokens import history_token_ids
from flashdrive_ros.window import EgoHistory

# The published 1.5 file (spec A.12), and what the Alpamayo 2 Super file says instead (spec D).
ACTION_SPACE = {
    "_target_": "alpamayo1_5.action_space.UnicycleAccelCurvatureActionSpace",
    "accel_bounds": [-9.8, 9.8],
    "accel_mean": 0.02902694707164455,
    "accel_std": 0.6810426736454882,
    "curvature_bounds": [-0.33, 0.33],
    "curvature_mean": 0.0002692167976330542,
    "curvature_std": 0.026148280660833106,
    "dt": 0.1,
    "n_waypoints": 64,
    "v_lambda": 1e-6,
    "v_ridge": 1e-4,
}
ACTION_IN = {"_target_": "a.b", "hidden_size": 512, "max_freq": 100.0, "num_enc_layers": 2, "num_fourier_feats": 20}
PUBLISHED: dict[str, Any] = {
    "architectures": ["Alpamayo1_5"],
    "model_type": "alpamayo1_5",
    "action_in_proj_cfg": ACTION_IN,
    "action_out_proj_cfg": {"_target_": "torch.nn.Linear"},
    "action_space_cfg": ACTION_SPACE,
    "add_special_tokens": True,
    "attn_implementation": "flash_attention_2",
    "diffusion_cfg": {"_target_": "a.FlowMatching", "int_method": "euler"},
    "dtype": "bfloat16",
    "expert_cfg": {
        "dtype": "bfloat16",
        "head_dim": 128,
        "hidden_size": 2048,
        "intermediate_size": 8256,
        "num_attention_heads": 16,
    },
    "expert_non_causal_attention": True,
    "hist_traj_tokenizer_cfg": {"_target_": "a.DeltaTrajectoryTokenizer", "num_bins": 1000},
    "include_camera_ids": True,
    "include_frame_nums": True,
    "keep_same_dtype": True,
    "max_pixels": 196608,
    "min_pixels": 163840,
    "tokens_per_future_traj": 128,
    "tokens_per_history_traj": 48,
    "traj_token_ids": {
        "future": 155685,
        "future_end": 155683,
        "future_start": 155681,
        "history": 155684,
        "history_end": 155676,
        "history_start": 155674,
    },
    "traj_token_start_idx": 151669,
    "traj_tokenizer_cfg": {"_target_": "a.Discrete", "num_bins": 3000},
    "traj_vocab_size": 4000,
    "vlm_backend": "qwenvl3",
    "vlm_name_or_path": "nvidia/Cosmos-Reason2-8B",
    "vocab_size": 155697,
}
ROPE = {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"}
TEXT_2 = {
    "model_type": "qwen3_vl_text",
    "attention_bias": False,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "max_position_embeddings": 262144,
    "num_attention_heads": 64,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "rope_scaling": ROPE,
    "rope_theta": 5000000,
    "vocab_size": 155776,
}
PUBLISHED_2: dict[str, Any] = {
    "architectures": ["Alpamayo2Super"],
    "model_type": "alpamayo2_super",
    "expert_config": {
        "action_in_proj_cfg": ACTION_IN,
        "action_space_cfg": ACTION_SPACE,
        "diffusion_cfg": {"int_method": "euler", "num_inference_steps": 10},
        "expert_non_causal_attention": True,
        "llm_config": TEXT_2 | {"hidden_size": 1536, "intermediate_size": 6144, "num_attention_heads": 16},
    },
    "future_vocab_size": 3000,
    "hist_traj_tokenizer_cfg": {"_target_": "a.Delta", "pad_origin_at_beginning": False, "predict_yaw": False},
    "history_vocab_size": 1000,
    "include_camera_ids": True,
    "max_pixels": 196608,
    "min_pixels": 163840,
    "tokens_per_future_traj": 128,
    "tokens_per_history_traj": 45,
    "traj_ids": {
        "future_end": 155683,
        "future_id0": 152669,
        "future_pad": 155685,
        "future_start": 155681,
        "history_end": 155676,
        "history_id0": 151669,
        "history_pad": 155684,
        "history_start": 155674,
    },
    "vlm_config": {
        "model_type": "qwen3_vl",
        "image_token_id": 151655,
        "text_config": TEXT_2,
        "vision_config": {
            "deepstack_visual_indexes": [8, 16, 24],
            "depth": 27,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": 1152,
            "in_channels": 3,
            "intermediate_size": 4304,
            "num_heads": 16,
            "num_position_embeddings": 2304,
            "out_hidden_size": 5120,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
    },
}
# the ids of Alpamayo 2's shipped tokenizer that its config.json does not hold
TOKENIZER_2 = {
    "<|traj_history_start|>": 155674,
    "<|traj_history_end|>": 155676,
    "<|cot_start|>": 155677,
    "<|cot_end|>": 155678,
    "<|traj_future_start|>": 155681,
    "<|route_start|>": 155690,
    "<|route_end|>": 155692,
    "<|meta_action_start|>": 155700,
}


def read(values: dict[str, Any], vocabulary: dict[str, int] | None = None) -> CheckpointConfig:
    return read_config(Path("config.json"), values, vocabulary)


def changed(change: Callable[[dict[str, Any]], object]) -> CheckpointConfig:
    values = copy.deepcopy(PUBLISHED)
    change(values)
    return read(values)


def model(parsed: CheckpointConfig) -> ModelConfig:
    assert not parsed.faults
    assert parsed.model is not None
    return parsed.model


def test_published_1_5_file_gives_the_known_model() -> None:
    parsed = read(PUBLISHED)
    assert replace(model(parsed), drafter=ALPAMAYO_1_5.drafter) == ALPAMAYO_1_5
    assert not [note for note in parsed.notes if "unknown" in note]


def test_alpamayo_1_has_no_labels_and_no_route() -> None:
    values = {name: value for name, value in PUBLISHED.items() if not name.startswith("include_")}
    parsed = read(values | {"model_type": "alpamayo_r1"})
    assert replace(model(parsed), drafter=ALPAMAYO_1.drafter) == ALPAMAYO_1


def test_source_frames_become_320_by_576() -> None:
    assert image_size(163840, 196608, 32) == (320, 576)


def test_alpamayo_2_is_configuration_only() -> None:
    parsed = read(PUBLISHED_2, TOKENIZER_2)
    config = model(parsed)
    assert not [note for note in parsed.notes if "unknown" in note]
    assert (config.text.layers, config.text.hidden, config.text.vocabulary) == (64, 5120, 155776)
    assert (config.expert.hidden, config.expert.query_heads * config.text.head_dim) == (1536, 2048)
    assert config.expert.text_layer == tuple(range(64))
    assert config.prompt.cameras == (0, 1, 2, 3, 5, 6)
    assert (config.prompt.history_steps, config.prompt.history_tokens) == (16, 45)
    assert config.prompt.reasoning_capacity == 256
    assert (config.tokens.trajectory_first, config.tokens.trajectory_count) == (151669, 4000)
    assert config.tokens.history_first == 151669
    assert config.tokens.never_generated == (151645,)
    assert config.tokens.cot_end == 155678
    assert config.action == ALPAMAYO_1_5.action
    names = [stored_name(name, parsed.family.prefixes) for name in network_tensors(config)]
    assert "expert.expert.layers.63.self_attn.q_proj.weight" in names
    assert "expert.action_in_proj.encoder.trunk.0.weight" in names
    assert "expert.action_out_proj.bias" in names
    assert "vlm.model.language_model.layers.63.mlp.down_proj.weight" in names
    assert network_tensors(config)["expert.layers.0.self_attn.o_proj.weight"] == (1536, 2048)


def test_alpamayo_2_counts_the_steps_between_positions_only() -> None:
    config = model(read(PUBLISHED_2, TOKENIZER_2))
    positions = np.zeros((16, 3))
    positions[:, 0] = np.arange(-15, 1) * 0.8  # 8 m/s, the oldest position 12 m behind
    ids = history_token_ids(EgoHistory(positions, np.tile(np.eye(3), (16, 1, 1))), config)
    # (0.8 + 4) / 8 * 999 = 599.4; half of the range is 499.5, rounded to the even 500
    assert ids.reshape(15, 3).tolist() == [[151669 + 599, 151669 + 500, 151669 + 500]] * 15


def test_alpamayo_2_without_its_tokenizer_is_refused() -> None:
    parsed = read(PUBLISHED_2)
    assert parsed.model is None
    assert any("cot_start" in fault.found for fault in parsed.faults)


def test_needed_tensors_are_those_of_the_published_table() -> None:
    tensors = network_tensors(ALPAMAYO_1_5)
    assert tensors["vlm.model.visual.patch_embed.proj.weight"] == (1152, 3, 2, 16, 16)
    assert tensors["vlm.model.visual.merger.linear_fc2.weight"] == (4096, 4608)
    assert tensors["vlm.model.visual.deepstack_merger_list.2.norm.weight"] == (4608,)
    assert tensors["vlm.lm_head.weight"] == (155697, 4096)
    assert tensors["expert.layers.35.self_attn.k_proj.weight"] == (1024, 2048)
    assert tensors["action_in_proj.encoder.trunk.0.weight"] == (512, 60)
    assert sum(name.startswith(("expert.", "action_")) for name in tensors) == 409
    drafter = drafter_tensors(ALPAMAYO_1_5.drafter, ALPAMAYO_1_5.text)
    assert len(drafter) == 25
    assert drafter["fc.weight"] == (4096, 20480)


def test_needed_tensors_are_the_networks_parameters() -> None:
    torch = pytest.importorskip("torch")
    from flashdrive_ros.model.network import Network

    for config in (ALPAMAYO_1_5, model(read(PUBLISHED_2, TOKENIZER_2))):
        with torch.device("meta"):
            parameters = {name: tuple(value.shape) for name, value in Network(config).named_parameters()}
        drafter = {f"drafter.{name}": shape for name, shape in drafter_tensors(config.drafter, config.text).items()}
        mask = {"drafter.mask_embedding": (config.text.hidden,)}
        assert network_tensors(config) | drafter | mask == parameters


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda values: values.pop("vocab_size"), "no field vocab_size"),
        (lambda values: values["action_space_cfg"].pop("accel_std"), "no field action_space_cfg.accel_std"),
        (lambda values: values["action_space_cfg"].update(accel_std=0.0), "action_space_cfg.accel_std 0.0"),
        (lambda values: values["action_space_cfg"].update(dt=float("nan")), "action_space_cfg.dt nan"),
        (lambda values: values.update(action_space_cfg=None), "no field action_space_cfg.dt"),
        (lambda values: values.update(action_space_cfg=[1]), "no field action_space_cfg.dt"),
        (lambda values: values["expert_cfg"].update(hidden_size="2048"), "expert_cfg.hidden_size '2048'"),
        (lambda values: values["expert_cfg"].update(head_dim=64), "expert_cfg.head_dim 64"),
        (lambda values: values.update(vlm_name_or_path="Qwen/Qwen3-VL-2B"), "vlm_name_or_path 'Qwen/Qwen3-VL-2B'"),
        (lambda values: values.update(vlm_backend="qwen25"), "vlm_backend 'qwen25'"),
        (lambda values: values["action_in_proj_cfg"].update(num_enc_layers=4), "num_enc_layers 4"),
        (lambda values: values["traj_token_ids"].update(future_start=155682), "traj_token_ids.future_start 155682"),
        (lambda values: values.update(vocab_size=155696), "vocab_size 155696"),
        (lambda values: values.update(tokens_per_history_traj=47), "tokens_per_history_traj 47"),
    ],
)
def test_wrong_or_missing_field_is_named(change: Callable[[dict[str, Any]], object], names: str) -> None:
    parsed = changed(change)
    assert parsed.model is None
    assert any(names in fault.found for fault in parsed.faults), [str(fault) for fault in parsed.faults]


def test_unknown_fields_are_listed_and_harmless() -> None:
    parsed = changed(lambda values: values["expert_cfg"].update(sliding_window=4096))
    assert "unknown field expert_cfg.sliding_window ignored" in parsed.notes[-1]
    assert parsed.model is not None


def qwen_vocabulary() -> dict[str, int]:
    """As far as it matters: the tokenizer that the 1.x checkpoints are extended from, without the added tokens."""
    ids = expected_ids(read(PUBLISHED).family, 151669, 4000)
    return {name: number for name, number in ids.items() if number < 151669}


@pytest.mark.parametrize("extended", [False, True])
def test_base_and_extended_tokenizer_both_fit(extended: bool) -> None:
    known = expected_ids(read(PUBLISHED).family, 151669, 4000)
    assert known["<i3999>"] == 155668
    assert known["<|traj_future_start|>"] == 155681
    assert known["<|answer_end|>"] == 155696
    vocabulary = known if extended else qwen_vocabulary()
    assert vocabulary_faults(Path("t"), vocabulary, known, 155697) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"<|cot_start|>": 155678}, "id 155678 of '<|cot_start|>'"),
        ({"<|im_end|>": 151646}, "id 151646 of '<|im_end|>'"),
        ({"<extra>": 151669}, "'<extra>' with id 151669"),
        ({"<extra>": 155697}, "id 155697 of '<extra>'"),
        ({".": 14}, "id 14 of '.'"),
    ],
)
def test_tokenizer_of_another_vocabulary_is_refused(change: dict[str, int], found: str) -> None:
    known = expected_ids(read(PUBLISHED).family, 151669, 4000)
    faults = vocabulary_faults(Path("t"), qwen_vocabulary() | change, known, 155697)
    assert any(found in fault.found for fault in faults)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("published", [PUBLISHED, PUBLISHED_2], ids=["1.5", "2"])
@given(data=st.data())
def test_no_value_of_any_field_crashes_or_hangs(published: dict[str, Any], data: st.DataObject) -> None:
    values = copy.deepcopy(published)
    names = sorted({".".join(name.split(".")[:depth]) for name in leaves(values) for depth in (1, 2, 3, 4)})
    *path, last = data.draw(st.sampled_from(names)).split(".")
    section = values
    for key in path:
        section = section[key]
    section[last] = data.draw(JUNK)
    parsed = read(values, TOKENIZER_2)
    assert (parsed.model is None) == bool(parsed.faults)
    if parsed.model is not None:
        assert network_tensors(parsed.model)
