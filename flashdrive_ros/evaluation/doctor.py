"""`flashdrive doctor`: check a model folder without loading it, and say which file to look at."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from flashdrive_ros.engines.load import model_folder
from flashdrive_ros.engines.manifest import MANIFEST, read_manifest
from flashdrive_ros.errors import ModelFileError, PartialResult
from flashdrive_ros.model.checkpoint_config import CONFIG
from flashdrive_ros.model.checkpoint_files import Fault
from flashdrive_ros.model.checkpoint_folder import read_checkpoint
from flashdrive_ros.model.tokens import load_tokenizer

EXAMPLE = "flashdrive doctor models/Alpamayo-1.5-10B"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("path", help="checkpoint folder, folder of an exported model, or nano")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything found about the folder. Raises PartialResult with the same when the model cannot be used."""
    folder = model_folder(arguments.path)
    result = examine(folder)
    faults = result["faults"]
    if faults:
        raise PartialResult(f"{folder}: {len(faults)} {'fault' if len(faults) == 1 else 'faults'}", result)
    return result


def summary(result: dict[str, Any]) -> str:
    """One line a fault and a note, then the verdict."""
    lines = [f"note: {note}" for note in result["notes"]]
    lines += [
        f"fault: {fault['file']}: {fault['found']} found, {fault['expected']} expected" for fault in result["faults"]
    ]
    if result["model"] is not None:
        lines.append(
            f"{result['path']}: {result['kind']} of {result['model']}, {result['tensors']} tensors, "
            f"{result['parameters']:,} parameters; weights: {result['weights_origin']}"
        )
    lines.append("not usable" if result["faults"] else "usable")
    return "\n".join(lines)


def examine(folder: Path) -> dict[str, Any]:
    """Describe a folder of either kind; a folder of neither is a fault."""
    if (folder / MANIFEST).exists():
        return _exported(folder)
    if (folder / CONFIG).exists():
        return _checkpoint(folder)
    found = "no folder" if not folder.is_dir() else f"neither {MANIFEST} nor {CONFIG}"
    expected = f"a checkpoint folder with {CONFIG} or an exported model's with {MANIFEST}"
    return _result(folder, "unknown", [Fault(folder, found, expected)])


def _checkpoint(folder: Path) -> dict[str, Any]:
    checkpoint = read_checkpoint(folder)
    faults = list(checkpoint.faults)
    if not faults:
        faults += _tokenizer_faults(checkpoint.tokenizer)
    result = _result(folder, "checkpoint", faults)
    result["notes"] = list(checkpoint.notes)
    if checkpoint.config is not None:
        result["model"] = checkpoint.config.name
        result["weights_origin"] = checkpoint.origin
    result["tensors"] = len(checkpoint.sources)
    result["parameters"] = sum(math.prod(source.shape) for source in checkpoint.sources.values())
    result["files"] = [str(file) for file in (*checkpoint.files, checkpoint.tokenizer)]
    result["companions"] = [str(companion) for companion in checkpoint.companions]
    return result


def _exported(folder: Path) -> dict[str, Any]:
    """An exported folder says itself what it consists of, with hashes."""
    try:
        manifest = read_manifest(folder)
        load_tokenizer(folder / manifest.tokenizer.file)
    except ModelFileError as error:
        return _result(folder, "exported model", [Fault(folder / MANIFEST, str(error), "a whole exported model")])
    result = _result(folder, "exported model", [])
    specs = [manifest.weights, manifest.tokenizer, *(stage.graph for stage in manifest.stages.values())]
    result |= {
        "model": manifest.config.name,
        "weights_origin": manifest.weights_origin,
        "files": [str(folder / spec.file) for spec in specs],
    }
    return result


def _tokenizer_faults(path: Path) -> list[Fault]:
    try:
        load_tokenizer(path)
    except ModelFileError as error:
        return [Fault(path, str(error), "a tokenizer that can be loaded")]
    return []


def _result(folder: Path, kind: str, faults: list[Fault]) -> dict[str, Any]:
    return {
        "path": str(folder),
        "kind": kind,
        "usable": not faults,
        "model": None,
        "weights_origin": None,
        "tensors": 0,
        "parameters": 0,
        "files": [],
        "companions": [],
        "faults": [{"file": str(fault.file), "found": fault.found, "expected": fault.expected} for fault in faults],
        "notes": [],
    }
