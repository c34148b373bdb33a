"""Random weights straight into safetensors shards: one block of rows in memory at a time, whatever the model's size."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.model.checkpoint_files import INDEX
from flashdrive_ros.model.checkpoint_names import EMBEDDING, Shape, Shapes

BLOCK_VALUES = 1 << 22
BFLOAT16_BYTES = 2
SMALL_OUTPUTS = {"action_out_proj.weight": 0.1}
"""Scale of matrices whose outputs have to start small, so that untrained plans can be driven."""


def write_shards(folder: Path, shapes: Shapes, seed: int, most_bytes: int) -> list[Path]:
    """Write bfloat16 tensors of `shapes` into shards of at most about `most_bytes`, and their index."""
    shards = _divide(shapes, most_bytes)
    paths = [folder / f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    for path, shard in zip(paths, shards, strict=True):
        write_file(path, shard, seed)
    weight_map = {name: path.name for path, shard in zip(paths, shards, strict=True) for name in shard}
    index = {"metadata": {"total_size": sum(map(stored_bytes, shapes.values()))}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return paths


def write_file(path: Path, shapes: Shapes, seed: int) -> None:
    """Write one safetensors file of seeded bfloat16 tensors."""
    with path.open("wb") as stream:
        stream.write(_header(shapes))
        for name, shape in shapes.items():
            for block in seeded_values(name, shape, seed):
                stream.write(to_bfloat16(block).tobytes())


def write_mask_row(path: Path, hidden: int, vocabulary: int, seed: int) -> None:
    """Write the drafter's mask row: the mean of the embedding table, as published."""
    total = np.zeros(hidden)
    for block in seeded_values(EMBEDDING, (vocabulary, hidden), seed):
        total += block.reshape(-1, hidden).sum(0, dtype=np.float64)
    row = to_bfloat16((total / vocabulary).astype(np.float32))
    path.write_bytes(_header({"mask_embedding": (hidden,)}) + row.tobytes())


def seeded_values(name: str, shape: Shape, seed: int) -> Iterator[NDArray[np.float32]]:
    """Values of one tensor in blocks of whole rows: matrices normal with deviation 1 / sqrt(inputs), norms 1, biases 0.

    They depend on seed, name and shape only.
    """
    if len(shape) == 1:
        yield np.full(shape, 0.0 if name.endswith("bias") else 1.0, np.float32)
        return
    inputs = math.prod(shape[1:])
    scale = np.float32(SMALL_OUTPUTS.get(name, 1.0) / math.sqrt(inputs))
    generator = np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode())]))
    rows = max(BLOCK_VALUES // inputs, 1)
    for first in range(0, shape[0], rows):
        count = min(rows, shape[0] - first)
        yield generator.standard_normal(count * inputs, np.float32) * scale


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves of finite float32 numbers, rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def stored_bytes(shape: Shape) -> int:
    """Bytes of one tensor in a file."""
    return BFLOAT16_BYTES * math.prod(shape)


def _divide(shapes: Shapes, most_bytes: int) -> list[Shapes]:
    shards: list[Shapes] = [{}]
    room = most_bytes
    for name, shape in shapes.items():
        size = stored_bytes(shape)
        if size > room and shards[-1]:
            shards.append({})
            room = most_bytes
        shards[-1][name] = shape
        room -= size
    return shards


def _header(shapes: Shapes) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, shape in shapes.items():
        end = position + stored_bytes(shape)
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
