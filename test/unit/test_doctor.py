"""`flashdrive doctor` names the fault of every broken folder, and the loader refuses exactly those."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashdrive_ros import cli
from flashdrive_ros.engines.load import load_model
from flashdrive_ros.errors import ModelFileError
from flashdrive_ros.model.checkpoint_folder import checked_checkpoint

INDEX = "model.safetensors.index.json"
HEAD_SHARD = "model-00004-of-00005.safetensors"
EditJson = Callable[[Path, Callable[[dict[str, Any]], object]], None]
Break = Callable[[Path, EditJson], None]


def replace_bytes(path: Path, change: Callable[[bytes], bytes]) -> None:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(change(content))


def edit_header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of a safetensors file and leave its data."""

    def edited(content: bytes) -> bytes:
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + content[8 + length :]

    replace_bytes(path, edited)


def shard_absent(folder: Path, _: EditJson) -> None:
    (folder / HEAD_SHARD).unlink()


def shard_cut(folder: Path, _: EditJson) -> None:
    replace_bytes(folder / HEAD_SHARD, lambda content: content[:-1000])


def shard_with_trailing_bytes(folder: Path, _: EditJson) -> None:
    replace_bytes(folder / HEAD_SHARD, lambda content: content + b"\0" * 17)


def index_names_absent_tensor(folder: Path, edit_json: EditJson) -> None:
    edit_json(folder / INDEX, lambda index: index["weight_map"].update({"vlm.made_up.weight": HEAD_SHARD}))


def shard_is_lfs_pointer(folder: Path, _: EditJson) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4999802720\n"
    replace_bytes(folder / HEAD_SHARD, lambda _: pointer)


def config_is_lfs_pointer(folder: Path, _: EditJson) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 2617\n"
    replace_bytes(folder / "config.json", lambda _: pointer)


def head_of_integers(folder: Path, _: EditJson) -> None:
    edit_header(folder / HEAD_SHARD, lambda header: header["vlm.lm_head.weight"].update(dtype="I16"))


def head_transposed(folder: Path, _: EditJson) -> None:
    edit_header(folder / HEAD_SHARD, lambda header: header["vlm.lm_head.weight"].update(shape=[64, 155697]))


def tensor_of_a_layer_missing(folder: Path, edit_json: EditJson) -> None:
    name = "vlm.model.language_model.layers.1.mlp.up_proj.weight"
    edit_json(folder / INDEX, lambda index: index["weight_map"].pop(name))


def config_without_expert_width(folder: Path, edit_json: EditJson) -> None:
    edit_json(folder / "config.json", lambda values: values["expert_cfg"].pop("hidden_size"))


def config_of_another_model(folder: Path, edit_json: EditJson) -> None:
    edit_json(folder / "config.json", lambda values: values.update(model_type="llama"))


def causal_expert(folder: Path, edit_json: EditJson) -> None:
    edit_json(folder / "config.json", lambda values: values.update(expert_non_causal_attention=False))


def tokenizer_absent(folder: Path, _: EditJson) -> None:
    (folder / "tokenizer.json").unlink()


def tokenizer_of_another_vocabulary(folder: Path, edit_json: EditJson) -> None:
    (folder / "tokenizer.json").unlink()
    llama = {"model": {"type": "BPE", "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3}}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(llama))


def tokenizer_with_shifted_specials(folder: Path, edit_json: EditJson) -> None:
    def shift(values: dict[str, Any]) -> None:
        for token in values["added_tokens"]:
            token["id"] += token["id"] > 155000

    edit_json(folder / "tokenizer.json", shift)


def drafter(folder: Path) -> Path:
    return folder.with_name(folder.name + "-DFlash")


def drafter_of_another_width(folder: Path, edit_json: EditJson) -> None:
    edit_json(drafter(folder) / "config.json", lambda values: values.update(hidden_size=4096))


def drafter_taps_out_of_range(folder: Path, edit_json: EditJson) -> None:
    edit_json(drafter(folder) / "config.json", lambda values: values.update(target_layer_ids=[2]))


def drafter_mask_outside_vocabulary(folder: Path, edit_json: EditJson) -> None:
    edit_json(drafter(folder) / "config.json", lambda values: values.update(mask_token_id=155698))


def drafter_without_mask_row(folder: Path, _: EditJson) -> None:
    (drafter(folder) / "mask_embedding.safetensors").unlink()


def drafter_absent(folder: Path, _: EditJson) -> None:
    shutil.rmtree(drafter(folder))


BROKEN: dict[str, tuple[Break, str, str, str]] = {
    # fault: (how to break, file to look at, part of what is found, part of what is expected)
    "shard absent": (shard_absent, HEAD_SHARD, "no file", "the shard"),
    "shard cut": (shard_cut, HEAD_SHARD, "1000 too few", "bytes as its header says"),
    "trailing bytes": (shard_with_trailing_bytes, HEAD_SHARD, "17 behind the last tensor", "bytes"),
    "index names absent tensor": (index_names_absent_tensor, HEAD_SHARD, "no tensor vlm.made_up.weight", INDEX),
    "LFS pointer": (shard_is_lfs_pointer, HEAD_SHARD, "a Git LFS pointer", "git lfs pull"),
    "LFS pointer of the configuration": (config_is_lfs_pointer, "config.json", "a Git LFS pointer", "git lfs pull"),
    "dtype": (head_of_integers, HEAD_SHARD, "dtype I16 of vlm.lm_head.weight", "BF16"),
    "shape": (head_transposed, HEAD_SHARD, "shape [64, 155697] of vlm.lm_head.weight", "[155697, 64]"),
    "tensor missing": (tensor_of_a_layer_missing, "Alpamayo", "1 tensors fewer", "layers.1.mlp.up_proj.weight"),
    "field missing": (config_without_expert_width, "config.json", "no field expert_cfg.hidden_size", "number"),
    "model type": (config_of_another_model, "config.json", "model_type 'llama'", "alpamayo1_5"),
    "network form": (causal_expert, "config.json", "expert_non_causal_attention False", "True"),
    "tokenizer absent": (tokenizer_absent, "tokenizer.json", "no file", "Qwen/Qwen3-VL-8B-Instruct"),
    "tokenizer": (tokenizer_of_another_vocabulary, "tokenizer.json", "another vocabulary", "the model's tokenizer"),
    "token ids": (tokenizer_with_shifted_specials, "tokenizer.json", "id 155", "id 155"),
    "drafter width": (drafter_of_another_width, "Alpamayo-DFlash/config.json", "hidden_size 4096", "64"),
    "drafter taps": (drafter_taps_out_of_range, "Alpamayo-DFlash/config.json", "target_layer_ids [2]", "from 0 to 1"),
    "drafter mask id": (drafter_mask_outside_vocabulary, "Alpamayo-DFlash/config.json", "155698", "155697"),
    "drafter mask row": (drafter_without_mask_row, "Alpamayo-DFlash", "no mask embedding", "mask_embedding.pt"),
    "companion absent": (drafter_absent, "Alpamayo-DFlash", "no folder", "the drafter"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_doctor_names_the_fault(
    name: str, checkpoint: Path, edit_json: EditJson, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, file, found, expected = BROKEN[name]
    damage(checkpoint, edit_json)
    assert cli.main(["doctor", str(checkpoint), "--json", "-"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert not result["usable"]
    first = result["faults"][0]
    assert first["file"].endswith(file)
    assert found in first["found"]
    assert expected in first["expected"]


@pytest.mark.parametrize("name", BROKEN)
def test_loader_refuses_in_one_line_what_the_doctor_finds(name: str, checkpoint: Path, edit_json: EditJson) -> None:
    damage, file, found, _ = BROKEN[name]
    damage(checkpoint, edit_json)
    with pytest.raises(ModelFileError) as refused:
        checked_checkpoint(checkpoint)
    line = str(refused.value)
    assert file in line
    assert found in line
    assert "\n" not in line


def test_loading_a_broken_folder_costs_no_memory_for_weights(checkpoint: Path, edit_json: EditJson) -> None:
    shard_cut(checkpoint, edit_json)
    with pytest.raises(ModelFileError, match="1000 too few"):
        load_model(checkpoint, threads=1, samples=1)


def test_whole_folder_is_usable(synthetic_checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", str(synthetic_checkpoint)]) == 0
    printed = capsys.readouterr().out
    assert printed.rstrip().endswith("usable")
    assert "not trained" in printed
    assert "unknown field" not in printed


def test_doctor_reads_a_checkpoint_without_torch(synthetic_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert cli.main(["doctor", str(synthetic_checkpoint)]) == 0


def test_exported_model_is_usable(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "nano"]) == 0
    assert "exported model of nano" in capsys.readouterr().out


def test_damaged_exported_model_is_named(tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "nano"
    shutil.copytree(repository / "resource/models/nano", folder)
    (folder / "tokenizer.json").write_text("{}")
    assert cli.main(["doctor", str(folder)]) == 1
    assert "tokenizer.json" in capsys.readouterr().out


@pytest.mark.parametrize("path", ["absent", "."])
def test_folder_of_no_model_is_named(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", str(tmp_path / path)]) == 1
    printed = capsys.readouterr()
    assert "config.json" in printed.out
    assert len(printed.err.splitlines()) == 1


def test_unknown_field_and_constant_are_listed(
    checkpoint: Path, edit_json: EditJson, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_json(checkpoint / "config.json", lambda values: values.update(surprise={"depth": 3}))
    assert cli.main(["doctor", str(checkpoint)]) == 0
    assert "unknown field surprise.depth ignored" in capsys.readouterr().out


def test_every_fault_is_listed_at_once(
    checkpoint: Path, edit_json: EditJson, capsys: pytest.CaptureFixture[str]
) -> None:
    config_without_expert_width(checkpoint, edit_json)
    shard_cut(checkpoint, edit_json)
    tokenizer_absent(checkpoint, edit_json)
    assert cli.main(["doctor", str(checkpoint), "--json", "-"]) == 1
    files = [Path(fault["file"]).name for fault in json.loads(capsys.readouterr().out)["faults"]]
    assert sorted(files) == ["config.json", HEAD_SHARD, "tokenizer.json"]
