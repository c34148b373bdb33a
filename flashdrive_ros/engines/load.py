"""Which backend serves a model folder, decided by what lies in it. Backends are imported only when they are chosen."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from flashdrive_ros.engines.base import StageEngines
from flashdrive_ros.engines.manifest import MANIFEST, read_manifest
from flashdrive_ros.errors import ParameterError
from flashdrive_ros.model.checkpoint_folder import checked_checkpoint, is_checkpoint
from flashdrive_ros.model.config import ModelConfig
from flashdrive_ros.model.tokens import Decode, Encode, load_tokenizer
from flashdrive_ros.resources import resource_path

SHIPPED = {"nano": "resource/models/nano"}
"""Models that come with the package."""
BFLOAT16_BYTES = 2


@dataclass(frozen=True)
class LoadedModel:
    """Engines and text coder of one model."""

    engines: StageEngines
    encode: Encode
    decode: Decode
    weights_origin: str
    """Where the weights come from, for people."""


@dataclass(frozen=True)
class ModelDescription:
    """What is known of a model before it is loaded."""

    config: ModelConfig
    weights_origin: str
    backend: str
    """onnxruntime or torch"""
    tokenizer: Path
    bytes_per_cached_number: int
    """On a GPU where the backend is torch."""


def model_folder(model_path: str | Path) -> Path:
    """Folder of a model given by the name of a shipped one or by its path."""
    shipped = SHIPPED.get(str(model_path))
    return resource_path(shipped) if shipped else Path(model_path)


def describe_model(model_path: str | Path) -> ModelDescription:
    """Configuration and origin of a model without loading it.

    Raises ModelFileError for a missing or damaged file.
    """
    folder = model_folder(model_path)
    if _is_only_checkpoint(folder):
        checkpoint, config = checked_checkpoint(folder)
        return ModelDescription(config, checkpoint.origin, "torch", checkpoint.tokenizer, BFLOAT16_BYTES)
    manifest = read_manifest(folder)
    cache = next(tensor for tensor in manifest.stages["verify"].inputs if "_cache_" in tensor.name)
    bytes_per_number = np.dtype(cache.dtype).itemsize
    tokenizer = folder / manifest.tokenizer.file
    return ModelDescription(manifest.config, manifest.weights_origin, "onnxruntime", tokenizer, bytes_per_number)


def load_model(
    model_path: str | Path, threads: int, samples: int, cameras: tuple[int, ...] | None = None
) -> LoadedModel:
    """Load an exported folder (one with a manifest) into the embedded backend, a checkpoint folder into torch.

    `cameras`: the rig to plan for, None for the model's own; an exported model has a fixed number of them.
    Raises ModelFileError for a missing or damaged file, ParameterError for a thread count the process cannot change to
    or a checkpoint where torch is not installed.
    """
    folder = model_folder(model_path)
    if _is_only_checkpoint(folder):
        return _load_checkpoint(folder, threads, cameras)
    return _load_exported(folder, threads, samples)


def _is_only_checkpoint(folder: Path) -> bool:
    return is_checkpoint(folder) and not (folder / MANIFEST).exists()


def _load_checkpoint(folder: Path, threads: int, cameras: tuple[int, ...] | None) -> LoadedModel:
    if find_spec("torch") is None:
        raise ParameterError(
            f"model_path {folder}: a checkpoint runs on torch, which is not installed; "
            "`pip install 'flashdrive_ros[torch]'`, or give the folder of an exported model"
        )
    from flashdrive_ros.engines.checkpoint_engines import load_checkpoint_model

    return load_checkpoint_model(folder, threads, cameras)


def _load_exported(folder: Path, threads: int, samples: int) -> LoadedModel:
    from flashdrive_ros.engines.onnx_engines import OnnxEngines

    engines = OnnxEngines(folder, threads, samples)
    encode, decode = load_tokenizer(folder / engines.manifest.tokenizer.file)
    return LoadedModel(engines, encode, decode, engines.manifest.weights_origin)
