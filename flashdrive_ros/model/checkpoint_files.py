"""Safetensors files of a checkpoint folder: which tensors lie where. Headers only; no torch, no tensor is read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
LFS_MAGIC = b"version https://git-lfs"
HEADER_LIMIT = 100_000_000
"""Most bytes of a safetensors header, as its format says."""
DTYPE_BYTES = {
    "BF16": 2, "F16": 2, "F32": 4, "F64": 8, "BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4,
    "U64": 8, "I64": 8, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One reason why a checkpoint cannot be used."""

    file: Path
    """Which file or folder to look at."""
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.file}: {self.found} found, {self.expected} expected"


@dataclass(frozen=True)
class StoredTensor:
    """Where the bytes of one tensor are."""

    file: Path
    dtype: str
    """Name in the safetensors format, for example BF16."""
    shape: tuple[int, ...]
    begin: int
    """Offset of the first byte in the file."""
    end: int


@dataclass(frozen=True)
class WeightFiles:
    """The weights of one folder as their headers and index describe them."""

    tensors: dict[str, StoredTensor]
    files: tuple[Path, ...]
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]


class _Damaged(Exception):
    """Carries the fault of a file that cannot be used."""

    def __init__(self, file: Path, found: str, expected: str) -> None:
        self.fault = Fault(file, found, expected)
        super().__init__(str(self.fault))


def is_lfs_pointer(path: Path) -> bool:
    """True for the small text file that Git leaves in place of a large one that was not downloaded."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(LFS_MAGIC)) == LFS_MAGIC
    except OSError:
        return False


def read_json(path: Path) -> tuple[dict[str, Any], list[Fault]]:
    """The object in a JSON file, or an empty one and what is wrong."""
    if not path.is_file():
        return {}, [Fault(path, "no file", "a JSON file")]
    if is_lfs_pointer(path):
        return {}, [_pointer_fault(path)]
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return {}, [Fault(path, f"unreadable JSON ({error})", "a JSON object")]
    if not isinstance(value, dict):
        return {}, [Fault(path, f"JSON {type(value).__name__}", "a JSON object")]
    return value, []


def read_weights(folder: Path) -> WeightFiles:
    """Headers of all weight files that the index of `folder` names, or of its single file."""
    index = folder / INDEX
    if index.exists():
        return _read_sharded(index)
    single = folder / SINGLE
    if single.is_file():
        return _read_single(single)
    files = sorted(folder.glob("*.safetensors"))
    if len(files) == 1:
        return _read_single(files[0])
    found = f"{len(files)} *.safetensors files without an index" if files else "no *.safetensors file"
    return WeightFiles({}, (), (Fault(index, found, f"{INDEX} or one {SINGLE}"),), ())


def read_header(path: Path) -> tuple[dict[str, StoredTensor], list[Fault]]:
    """Tensors of one safetensors file, or none and the fault of the file."""
    try:
        return _parse_header(path), []
    except _Damaged as damaged:
        return {}, [damaged.fault]


def _read_single(path: Path) -> WeightFiles:
    tensors, faults = read_header(path)
    return WeightFiles(tensors, (path,), tuple(faults), ())


def _read_sharded(index: Path) -> WeightFiles:
    content, faults = read_json(index)
    weight_map = content.get("weight_map")
    if not faults and (not isinstance(weight_map, dict) or not weight_map):
        faults.append(Fault(index, f"weight_map {str(weight_map)[:40]}", "tensor names and their files"))
    if faults or not isinstance(weight_map, dict):
        return WeightFiles({}, (), tuple(faults), ())
    tensors: dict[str, StoredTensor] = {}
    notes: list[str] = []
    files: list[Path] = []
    for shard in sorted({str(name) for name in weight_map.values()}):
        named = {tensor for tensor, file in weight_map.items() if file == shard}
        if Path(shard).name != shard:
            faults.append(Fault(index, f"file name {shard!r}", "a file in the same folder"))
            continue
        path = index.parent / shard
        if not path.exists():
            faults.append(Fault(path, f"no file, but {INDEX} puts {len(named)} tensors into it", "the shard"))
            continue
        files.append(path)
        stored, damage = read_header(path)
        faults += damage
        if damage:
            continue
        absent = sorted(named - stored.keys())
        if absent:
            faults.append(Fault(path, f"no tensor {_some(absent)}", f"the tensors that {INDEX} names"))
        strays = sorted(stored.keys() - named)
        if strays:
            notes.append(f"{path}: {_some(strays)} not named by {INDEX}: not used")
        tensors |= {name: stored[name] for name in named & stored.keys()}
    return WeightFiles(tensors, tuple(files), tuple(faults), tuple(notes))


def _parse_header(path: Path) -> dict[str, StoredTensor]:
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            start = stream.read(8)
            length = int.from_bytes(start, "little")
            if start == LFS_MAGIC[:8]:
                raise _Damaged(*_pointer_parts(path))
            if len(start) < 8 or length > min(size - 8, HEADER_LIMIT):
                raise _Damaged(path, f"{size} bytes that do not start with a header", "a safetensors file")
            header = json.loads(stream.read(length))
    except OSError as error:
        raise _Damaged(path, f"unreadable file ({error.strerror})", "a safetensors file") from error
    except (ValueError, RecursionError) as error:
        raise _Damaged(path, f"a header that is not JSON ({error})", "a safetensors file") from error
    if not isinstance(header, dict):
        raise _Damaged(path, "a header that is not a JSON object", "a safetensors file")
    data_start = 8 + length
    tensors = {name: _entry(path, name, entry, data_start) for name, entry in header.items() if name != "__metadata__"}
    _check_extent(path, tensors, data_start, size)
    return tensors


def _entry(path: Path, name: str, entry: Any, data_start: int) -> StoredTensor:
    try:
        dtype, shape = str(entry["dtype"]), tuple(int(axis) for axis in entry["shape"])
        begin, end = (int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _Damaged(path, f"header entry of {name} {str(entry)[:60]}", "dtype, shape and data_offsets") from error
    if dtype not in DTYPE_BYTES:
        raise _Damaged(path, f"dtype {dtype} of {name}", f"one of {', '.join(DTYPE_BYTES)}")
    bytes_expected = math.prod(shape) * DTYPE_BYTES[dtype]
    if min((*shape, begin), default=0) < 0 or end - begin != bytes_expected:
        raise _Damaged(path, f"{end - begin} bytes of {name}", f"{bytes_expected} for {dtype} {list(shape)}")
    return StoredTensor(path, dtype, shape, data_start + begin, data_start + end)


def _check_extent(path: Path, tensors: dict[str, StoredTensor], data_start: int, size: int) -> None:
    """Tensors lie one behind the other and fill the file to its last byte."""
    position = data_start
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].begin):
        if tensor.begin != position:
            raise _Damaged(path, f"{name} at byte {tensor.begin}", f"byte {position}, behind the tensor before it")
        position = tensor.end
    if size < position:
        raise _Damaged(path, f"{size} bytes, {position - size} too few", f"{position} bytes as its header says")
    if size > position:
        raise _Damaged(path, f"{size} bytes, {size - position} behind the last tensor", f"{position} bytes")


def _pointer_parts(path: Path) -> tuple[Path, str, str]:
    return path, "a Git LFS pointer", "the file itself (run `git lfs pull` in that folder)"


def _pointer_fault(path: Path) -> Fault:
    return Fault(*_pointer_parts(path))


def _some(names: list[str]) -> str:
    """The first few of many names."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
