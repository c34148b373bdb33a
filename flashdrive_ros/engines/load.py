"""Which backend serves a model folder, decided by what lies in it. Backends are imported only when they are chosen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flashdrive_ros.engines.base import StageEngines
from flashdrive_ros.model.tokens import Decode, Encode, load_tokenizer
from flashdrive_ros.resources import resource_path

SHIPPED = {"nano": "resource/models/nano"}
"""Models that come with the package."""


@dataclass(frozen=True)
class LoadedModel:
    """Engines and text coder of one model."""

    engines: StageEngines
    encode: Encode
    decode: Decode
    weights_origin: str
    """Where the weights come from, for people."""


def model_folder(model_path: str | Path) -> Path:
    """Folder of a model given by the name of a shipped one or by its path."""
    shipped = SHIPPED.get(str(model_path))
    return resource_path(shipped) if shipped else Path(model_path)


def load_model(model_path: str | Path, threads: int, samples: int) -> LoadedModel:
    """Load an exported folder (one with a manifest) into the embedded backend.

    Raises ModelFileError for a missing or damaged file, ParameterError for a thread count the process cannot change to.
    """
    from flashdrive_ros.engines.onnx_engines import OnnxEngines

    folder = model_folder(model_path)
    engines = OnnxEngines(folder, threads, samples)
    encode, decode = load_tokenizer(folder / engines.manifest.tokenizer.file)
    return LoadedModel(engines, encode, decode, engines.manifest.weights_origin)
