"""How many parameters a configuration has, in closed form: no torch, no checkpoint, no memory."""

from __future__ import annotations

from flashdrive_ros.model.config import DrafterConfig, ExpertConfig, ModelConfig, TextConfig, VisionConfig


def parameter_counts(config: ModelConfig) -> dict[str, int]:
    """Parameters of each part; the parts share none, so their sum is the model's."""
    head = config.text.hidden * config.text.vocabulary
    return {
        "vision": _vision(config.vision, config.text.hidden),
        "language": _language(config.text),
        "language_head": head,
        "expert": _expert(config.expert, config.text),
        "drafter": _drafter(config.drafter, config.text),
    }


def cache_bytes_per_slot(config: ModelConfig, bytes_per_number: int) -> int:
    """Keys and values of one slot in every text layer."""
    return 2 * config.text.layers * config.text.kv_heads * config.text.head_dim * bytes_per_number


def _vision(vision: VisionConfig, text_hidden: int) -> int:
    hidden = vision.hidden
    joined = hidden * vision.merge**2
    embedding = _linear(vision.patch_values, hidden) + vision.position_grid**2 * hidden
    layer_norm = 2 * hidden
    attention = _linear(hidden, 3 * hidden) + _linear(hidden, hidden)
    block = 2 * layer_norm + attention + _linear(hidden, vision.mlp) + _linear(vision.mlp, hidden)
    projection = _linear(joined, joined) + _linear(joined, text_hidden)
    deepstack_merger = 2 * joined + projection  # its LayerNorm sits behind the joining
    merger = layer_norm + projection
    return embedding + vision.depth * block + merger + len(vision.deepstack_blocks) * deepstack_merger


def _language(text: TextConfig) -> int:
    layer = _decoder_layer(text.hidden, text.query_heads, text.kv_heads, text.head_dim, text.mlp)
    return text.vocabulary * text.hidden + text.layers * layer + text.hidden


def _expert(expert: ExpertConfig, text: TextConfig) -> int:
    hidden, width = expert.hidden, expert.projection_hidden
    layer = _decoder_layer(hidden, expert.query_heads, text.kv_heads, text.head_dim, expert.mlp)
    trunk = _linear(3 * expert.fourier_features, width) + width + _linear(width, width) + width + _linear(width, hidden)
    projections = trunk + 2 * hidden + _linear(hidden, 2)
    return len(expert.text_layer) * layer + hidden + projections


def _drafter(drafter: DrafterConfig, text: TextConfig) -> int:
    layer = _decoder_layer(text.hidden, drafter.query_heads, drafter.kv_heads, drafter.head_dim, drafter.mlp)
    feature_projection = len(drafter.tapped_layers) * text.hidden**2
    two_norms_and_mask_row = 3 * text.hidden
    return feature_projection + drafter.layers * layer + two_norms_and_mask_row


def _decoder_layer(hidden: int, query_heads: int, kv_heads: int, head_dim: int, mlp: int) -> int:
    """Attention with query and key norms, SwiGLU, two norms; no biases."""
    query_and_output = 2 * hidden * query_heads * head_dim
    key_and_value = 2 * hidden * kv_heads * head_dim
    norms = 2 * head_dim + 2 * hidden
    return query_and_output + key_and_value + 3 * hidden * mlp + norms


def _linear(inputs: int, outputs: int) -> int:
    """A matrix with bias."""
    return inputs * outputs + outputs
