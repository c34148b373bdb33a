"""Safetensors headers: every damaged file is named, none is read past its end."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashdrive_ros.model.checkpoint_files import read_header, read_weights

HEADER = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
}


def write(path: Path, header: object, data: bytes = bytes(16)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_offsets_are_those_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", HEADER)
    tensors, faults = read_header(path)
    start = 8 + len(json.dumps(HEADER))
    assert faults == []
    assert (tensors["a"].shape, tensors["a"].begin, tensors["a"].end) == ((2, 3), start, start + 12)
    assert (tensors["b"].shape, tensors["b"].begin, tensors["b"].end) == ((), start + 12, start + 16)


def entry(**change: object) -> dict[str, object]:
    return HEADER | {"b": HEADER["b"] | change}


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (entry(data_offsets=[12, 20]), "8 bytes of b"),
        (entry(data_offsets=[8, 12]), "b at byte"),
        (entry(data_offsets=[16, 20]), "b at byte"),
        (entry(data_offsets=[-4, 0]), "bytes of b"),
        (entry(data_offsets="122"), "header entry of b"),
        (entry(dtype="Q4"), "dtype Q4 of b"),
        (entry(shape=[-1, -1]), "4 bytes of b"),
        (entry(shape=None), "header entry of b"),
        (HEADER | {"b": 3}, "header entry of b"),
        ([1, 2], "not a JSON object"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"b": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}', "header entry of b"),
    ],
)
def test_damaged_header_is_named(header: object, found: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", header)
    tensors, faults = read_header(path)
    assert tensors == {}
    assert faults[0].file == path
    assert found in faults[0].found


@pytest.mark.parametrize("content", [b"", b"1234567", struct.pack("<Q", 10**18) + b"{}", struct.pack("<Q", 3) + b"{}"])
def test_file_shorter_than_its_header_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert "do not start with a header" in read_weights(tmp_path).faults[0].found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=80), length=st.integers(0, 80))
def test_random_bytes_are_refused(content: bytes, length: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", length) + content)
    tensors, faults = read_header(path)
    assert tensors == {}
    assert faults or length <= len(content)


def test_index_may_not_point_out_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write(tmp_path / "secret.safetensors", HEADER)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
    weights = read_weights(folder)
    assert weights.tensors == {}
    assert "'../secret.safetensors'" in weights.faults[0].found


@pytest.mark.parametrize("weight_map", [None, {}, [], 3])
def test_index_without_a_map_is_named(weight_map: object, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert "weight_map" in read_weights(tmp_path).faults[0].found


def test_several_files_without_an_index_are_not_guessed_at(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / f"{name}.safetensors", HEADER)
    assert "2 *.safetensors files without an index" in read_weights(tmp_path).faults[0].found


def test_tensor_that_the_index_does_not_name_is_listed(tmp_path: Path) -> None:
    write(tmp_path / "x.safetensors", HEADER)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "x.safetensors"}}))
    weights = read_weights(tmp_path)
    assert list(weights.tensors) == ["a"]
    assert "b not named by" in weights.notes[0]
