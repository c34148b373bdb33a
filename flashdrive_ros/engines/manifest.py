"""The manifest of an exported model folder: configuration, files, hashes, tensor names and shapes. No torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from flashdrive_ros.errors import ModelFileError
from flashdrive_ros.model.config import ModelConfig

MANIFEST = "manifest.json"
FORMAT = 1
STAGES = ("vision", "prefill", "draft", "verify", "action")


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a stage."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    """A text stands for a free dimension."""


@dataclass(frozen=True)
class FileSpec:
    """A file of the folder and the hash it must have."""

    file: str
    sha256: str


@dataclass(frozen=True)
class StageSpec:
    """One stage's graph."""

    graph: FileSpec
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class Manifest:
    """Everything an engine needs to know about a model folder."""

    format: int
    opset: int
    weights_origin: str
    """Where the weights come from, for people: shown in inspect, demo picture and benchmarks."""
    config: ModelConfig
    weights: FileSpec
    tokenizer: FileSpec
    stages: dict[str, StageSpec]


def from_plain(kind: Any, value: Any) -> Any:
    """Build a (nested) frozen dataclass from what `json.loads` gives; lists become tuples where a tuple is meant.

    A missing field has its default, so that a folder exported before the field existed still loads.
    Raises KeyError for a missing field without default and TypeError for an unknown one.
    """
    if is_dataclass(kind) and isinstance(kind, type):
        unknown = set(value) - {field.name for field in fields(kind)}
        if unknown:
            raise TypeError(f"unknown field {sorted(unknown)[0]!r} of {kind.__name__}")
        hints = get_type_hints(kind)
        given = [field.name for field in fields(kind) if field.name in value or not _has_default(field)]
        return kind(**{name: from_plain(hints[name], value[name]) for name in given})
    arguments: tuple[Any, ...] = get_args(kind)
    if isinstance(value, list):
        return tuple(from_plain(arguments[0], item) for item in value)
    if isinstance(value, dict):
        return {key: from_plain(arguments[1], item) for key, item in value.items()}
    return value


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(stream)


def _digest(stream: Any) -> str:
    digest = hashlib.sha256()  # Python 3.10 has no file_digest
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest.json` of a model folder."""
    (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Read and check a model folder: every file there, every hash right.

    Raises ModelFileError naming the file, what was found and what was expected.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise ModelFileError(f"{folder}: model folder not found; expected a folder with {MANIFEST}")
    if not path.is_file():
        raise ModelFileError(f"{path}: not found; expected the manifest of an exported model (flashdrive export)")
    try:
        manifest: Manifest = from_plain(Manifest, json.loads(path.read_text()))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ModelFileError(f"{path}: not a manifest of format {FORMAT} ({error}); export the model again") from error
    if manifest.format != FORMAT:
        raise ModelFileError(f"{path}: format {manifest.format} found, {FORMAT} expected; export the model again")
    for stage in STAGES:
        if stage not in manifest.stages:
            raise ModelFileError(f"{path}: stage {stage!r} is missing; expected {', '.join(STAGES)}")
    graphs = [manifest.stages[stage].graph for stage in STAGES]
    for spec in (*graphs, manifest.weights, manifest.tokenizer):
        _check_file(folder / spec.file, spec.sha256)
    return manifest


def _check_file(path: Path, expected: str) -> None:
    if not path.is_file():
        raise ModelFileError(f"{path}: not found, but the manifest names it; copy or export the model again")
    found = sha256_of(path)
    if found != expected:
        raise ModelFileError(
            f"{path}: SHA-256 {found[:12]}... found, {expected[:12]}... expected by {MANIFEST}; "
            "the file is damaged or of another export"
        )
