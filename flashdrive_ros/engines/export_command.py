"""`flashdrive export`: write a model folder (five ONNX stages, weights, tokenizer, manifest)."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

EXAMPLE = "flashdrive export nano out/nano --seed 0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("model", choices=["nano"], help="configuration to export")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random weights (default 0)")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Export with seeded random weights."""
    from flashdrive_ros.engines.export import export_folder
    from flashdrive_ros.model.config import CONFIGS
    from flashdrive_ros.model.network import seeded_network
    from flashdrive_ros.training.nano_tokenizer import save_tokenizer

    started = time.monotonic()
    arguments.out.mkdir(parents=True, exist_ok=True)
    save_tokenizer(arguments.out / "tokenizer.json")
    network = seeded_network(CONFIGS[arguments.model], arguments.seed)
    origin = f"random, seed {arguments.seed}: not trained, plans are meaningless"
    manifest = export_folder(network, arguments.out, origin)
    return {
        "model": arguments.model,
        "folder": str(arguments.out),
        "weights_origin": origin,
        "stages": {name: spec.graph.file for name, spec in manifest.stages.items()},
        "bytes": sum(path.stat().st_size for path in arguments.out.iterdir()),
        "seconds": round(time.monotonic() - started, 1),
    }


def summary(result: dict[str, Any]) -> str:
    """One line."""
    return f"{result['model']}: {len(result['stages'])} stages, {result['bytes'] / 1e6:.1f} MB in {result['folder']}"
