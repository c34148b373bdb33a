"""What is known of a model without loading it: configuration, tokens of its prompt, where its weights come from."""

from __future__ import annotations

from dataclasses import dataclass

from flashdrive_ros.engines.load import describe_model
from flashdrive_ros.model.config import ALPAMAYO_1, ALPAMAYO_1_5, ModelConfig
from flashdrive_ros.model.tokens import Encode, load_tokenizer, table_encoder
from flashdrive_ros.resources import resource_path

UNEXPORTED = {config.name: config for config in (ALPAMAYO_1_5, ALPAMAYO_1)}
"""Models that are known by their configuration; their weights are not part of the package."""
BFLOAT16_BYTES = 2


@dataclass(frozen=True)
class ModelSource:
    """A model as its folder, or this package for a named one, describes it."""

    config: ModelConfig
    encode: Encode
    weights_origin: str
    bytes_per_cached_number: int


def model_source(model: str) -> ModelSource:
    """Describe "nano", "alpamayo-1.5", "alpamayo-1", an exported model folder or a checkpoint folder.

    Raises ModelFileError for a missing or damaged file.
    """
    if model in UNEXPORTED:
        encode = table_encoder(resource_path("resource/models/alpamayo/prompt_token_ids.json"))
        return ModelSource(UNEXPORTED[model], encode, "none here: sizes follow from the configuration", BFLOAT16_BYTES)
    described = describe_model(model)
    encode, _ = load_tokenizer(described.tokenizer)
    return ModelSource(described.config, encode, described.weights_origin, described.bytes_per_cached_number)
