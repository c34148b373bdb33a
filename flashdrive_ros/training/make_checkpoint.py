"""`flashdrive make-checkpoint`: a checkpoint folder with the published names and random weights."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

from flashdrive_ros.errors import ParameterError
from flashdrive_ros.model.checkpoint_families import FAMILIES
from flashdrive_ros.model.checkpoint_names import drafter_tensors, network_tensors, stored_name
from flashdrive_ros.model.config import CONFIGS, ModelConfig
from flashdrive_ros.training.synthetic_config import (
    DRAFTER_ENDING,
    MODEL_TYPES,
    checkpoint_json,
    drafter_json,
    scaled,
)
from flashdrive_ros.training.synthetic_tokenizer import save_synthetic_tokenizer
from flashdrive_ros.training.synthetic_weights import stored_bytes, write_file, write_mask_row, write_shards

EXAMPLE = "flashdrive make-checkpoint alpamayo-1.5 out/Alpamayo-1.5-synthetic --layers 2 --seed 0"
SMALL_LAYERS = 2
SHARDS = 5
"""As published."""
README = """# Synthetic checkpoint

{origin}.

Names, files and fields are those of the published checkpoint ({model}); the numbers are random. It was written by
`flashdrive make-checkpoint` for tests, and for trying the commands while waiting for access to the real weights. Its
tokenizer knows single bytes and the special tokens only.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("model", choices=sorted(MODEL_TYPES), help="whose names and fields to write")
    parser.add_argument("out", type=Path, help=f"folder to write; the drafter goes into OUT{DRAFTER_ENDING} beside it")
    parser.add_argument("--layers", type=int, help=f"decoder layers (default {SMALL_LAYERS}; with --scale full, all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random weights (default 0)")
    parser.add_argument(
        "--scale", choices=("small", "full"), default="small", help="small widths (default, 45 MB) or the true ones"
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write both folders. Raises ParameterError for a used folder, too little room, or numbers out of range."""
    started_s = time.monotonic()
    published = CONFIGS[arguments.model]
    small = arguments.scale == "small"
    layers = arguments.layers if arguments.layers is not None else SMALL_LAYERS if small else published.text.layers
    if not 1 <= layers <= published.text.layers:
        raise ParameterError(f"--layers: {layers} found, 1 to {published.text.layers} expected")
    if arguments.seed < 0:
        raise ParameterError(f"--seed: {arguments.seed} found, at least 0 expected")
    config = scaled(published, layers, small)
    folders = write_checkpoint(config, arguments.out, arguments.seed)
    return {
        "model": config.name,
        "weights_origin": origin_of(arguments.seed),
        "layers": layers,
        "scale": arguments.scale,
        "folders": [str(folder) for folder in folders],
        "bytes": sum(path.stat().st_size for folder in folders for path in folder.iterdir()),
        "seconds": round(time.monotonic() - started_s, 1),
    }


def summary(result: dict[str, Any]) -> str:
    """Two lines."""
    return (
        f"{result['model']}, {result['layers']} layers, {result['scale']} widths: {result['bytes'] / 1e6:.1f} MB in "
        f"{' and '.join(result['folders'])}\n{result['weights_origin']}"
    )


def origin_of(seed: int) -> str:
    """The weights' origin as written into the folder."""
    return f"synthetic, random weights of seed {seed}: not trained, plans are meaningless"


def write_checkpoint(config: ModelConfig, out: Path, seed: int) -> tuple[Path, Path]:
    """Write the base folder `out` and its drafter folder; returns both.

    Raises ParameterError when one of them holds something already, or the disk has not the room.
    """
    family = FAMILIES[MODEL_TYPES[config.name]]
    shapes = {stored_name(name, family.prefixes): shape for name, shape in network_tensors(config).items()}
    drafter_shapes = drafter_tensors(config.drafter, config.text)
    total = sum(map(stored_bytes, shapes.values()))
    drafter = out.with_name(out.name + DRAFTER_ENDING)
    for folder in (out, drafter):
        _new_folder(folder)
    _check_room(out, total + sum(map(stored_bytes, drafter_shapes.values())))
    origin = origin_of(seed)
    _write_json(out / "config.json", checkpoint_json(config, origin))
    save_synthetic_tokenizer(out / "tokenizer.json", family, config.tokens)
    write_shards(out, shapes, seed, total // SHARDS + 1)
    _write_json(drafter / "config.json", drafter_json(config.drafter, config.text, origin))
    write_file(drafter / "model.safetensors", drafter_shapes, seed)
    write_mask_row(drafter / "mask_embedding.safetensors", config.text.hidden, config.text.vocabulary, seed)
    for folder in (out, drafter):
        (folder / "README.md").write_text(README.format(origin=origin, model=config.name), encoding="utf-8")
    return out, drafter


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _new_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        used = any(folder.iterdir())
    except OSError as error:
        raise ParameterError(f"{folder}: cannot be written ({error.strerror})") from error
    if used:
        raise ParameterError(f"{folder}: holds files already, an empty or new folder expected")


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ParameterError(f"{folder}: {free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB needed")
