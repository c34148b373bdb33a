"""`flashdrive inspect`: sizes that are right without torch, weights or memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flashdrive_ros.cli import main
from flashdrive_ros.engines.load import model_folder
from flashdrive_ros.engines.manifest import read_manifest
from flashdrive_ros.evaluation.model_sizes import parameter_counts
from flashdrive_ros.model.config import CONFIGS


def inspected(model: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["inspect", model, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("alpamayo-1.5", {"prompt_tokens": 3086, "static_slots": 100, "first_generated_position": 494}),
        ("alpamayo-1", {"prompt_tokens": 3006, "static_slots": 20, "first_generated_position": 414}),
    ],
)
def test_alpamayo_numbers_are_the_published_ones(
    model: str, expected: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    result = inspected(model, capsys)
    expected = {**expected, "query_tokens": 802, "rope_delta": -2592}
    assert {name: result[name] for name in expected} == expected
    # 36 layers x 8 heads x 128 numbers, keys and values, 2 bytes each
    assert result["cache_bytes_per_slot"] == 147_456
    assert result["cache_bytes"] == 147_456 * result["slots"]
    assert result["cameras"] == ["cross_left", "front_wide", "cross_right", "front_tele"]


def test_nano_numbers_are_those_of_its_prompt_and_image_size(capsys: pytest.CaptureFixture[str]) -> None:
    result = inspected("nano", capsys)
    # 60 static + 16 frames x 17 + 61 tail; 4 x 17 + 61 new a window; an image costs 5 positions, not 15
    assert (result["prompt_tokens"], result["query_tokens"], result["rope_delta"]) == (393, 129, -160)
    assert (result["static_slots"], result["chunk_stride"], result["slots"]) == (60, 192, 832)
    assert result["first_generated_position"] == 393 - 160


def test_nano_cache_is_the_one_that_its_engines_allocate(capsys: pytest.CaptureFixture[str]) -> None:
    result = inspected("nano", capsys)
    numbers = 0
    for tensor in read_manifest(model_folder("nano")).stages["verify"].inputs:
        if "_cache_" in tensor.name:
            batch, heads, slots, width = (int(axis) for axis in tensor.shape)
            assert slots == result["slots"]
            numbers += batch * heads * slots * width
    assert result["cache_bytes"] == 4 * numbers


# alpamayo-1 differs in its prompt only, and ten billion parameters take seconds even to count.
@pytest.mark.parametrize("name", ["alpamayo-1.5", "nano"])
def test_closed_formula_equals_the_networks_own_parameters(name: str) -> None:
    from flashdrive_ros.model.network import count_parameters

    assert sum(parameter_counts(CONFIGS[name]).values()) == count_parameters(CONFIGS[name])


def test_language_part_of_alpamayo_is_qwen3_vl_8b_with_its_vocabulary() -> None:
    # One layer: q and o 4096 x 4096, k and v 4096 x 1024, three MLP matrices 4096 x 12288, norms 2 x 4096 + 2 x 128.
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 12288 + 2 * 4096 + 2 * 128
    assert parameter_counts(CONFIGS["alpamayo-1.5"])["language"] == 36 * layer + 4096 + 155697 * 4096


def test_an_exported_folder_is_inspected_like_a_named_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = shutil.copytree(model_folder("nano"), tmp_path / "mine")
    assert inspected(str(copy), capsys) == inspected("nano", capsys)


def test_inspect_imports_no_torch() -> None:
    program = (
        "import sys; from flashdrive_ros.cli import main\n"
        "assert main(['inspect', 'alpamayo-1.5']) == 0 and main(['inspect', 'nano']) == 0\n"
        "assert not {'torch', 'onnxruntime'} & set(sys.modules)"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 0, finished.stderr


def one_line_of(model: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["inspect", model, "--json", "-"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_wrong_model_path_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(tmp_path / "absent") in one_line_of(str(tmp_path / "absent"), capsys)
    assert str(tmp_path / "manifest.json") in one_line_of(str(tmp_path), capsys)


def test_wrong_hash_names_the_file_and_both_hashes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = Path(shutil.copytree(model_folder("nano"), tmp_path / "mine"))
    manifest = json.loads((copy / "manifest.json").read_text())
    found = manifest["stages"]["verify"]["graph"]["sha256"]
    manifest["stages"]["verify"]["graph"]["sha256"] = "0" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest))
    line = one_line_of(str(copy), capsys)
    assert str(copy / "verify.onnx") in line
    assert f"{found[:12]}... found" in line
    assert "000000000000... expected" in line
