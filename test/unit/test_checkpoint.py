"""Loading a checkpoint: the very numbers that were written, in any published layout, without much host memory."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")

from flashdrive_ros.engines import load  # noqa: E402
from flashdrive_ros.engines.base import GREEDY  # noqa: E402
from flashdrive_ros.engines.torch_engines import TorchEngines  # noqa: E402
from flashdrive_ros.errors import ModelFileError, ParameterError  # noqa: E402
from flashdrive_ros.model.checkpoint import load_network  # noqa: E402
from flashdrive_ros.model.checkpoint_folder import read_checkpoint  # noqa: E402
from flashdrive_ros.model.config import ALPAMAYO_1_5  # noqa: E402
from flashdrive_ros.model.network import Network, seeded_network  # noqa: E402
from flashdrive_ros.model.prompt import build_prompt  # noqa: E402
from flashdrive_ros.model.tokens import load_tokenizer  # noqa: E402
from flashdrive_ros.plan import Plan  # noqa: E402
from flashdrive_ros.planner import PlannerSettings, load_planner  # noqa: E402
from flashdrive_ros.streaming.kv_ring import KvRing  # noqa: E402
from flashdrive_ros.streaming.layout import build_layout  # noqa: E402
from flashdrive_ros.training import synthetic_weights  # noqa: E402
from flashdrive_ros.training.make_checkpoint import add_arguments, run, write_checkpoint  # noqa: E402
from flashdrive_ros.training.synthetic_config import scaled  # noqa: E402
from flashdrive_ros.window import CameraFrame, EgoHistory, EgoPose, PlanningWindow  # noqa: E402

CPU = torch.device("cpu")
BF16 = torch.bfloat16
EditJson = Callable[[Path, Callable[[dict[str, Any]], object]], None]
Weights = dict[str, Any]


@pytest.fixture(scope="module")
def network() -> Network:
    return seeded_network(scaled(ALPAMAYO_1_5, 2, small=True), 7, BF16)


def parts(network: Network) -> tuple[Weights, Weights]:
    """Weights of the base folder and of the drafter folder under their published names."""
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    drafter = {name.removeprefix("drafter."): weights.pop(name) for name in list(weights) if name.startswith("drafter")}
    return weights, drafter


def replace_weights(checkpoint: Path, weights: Weights) -> None:
    """Put `weights` into one file, as the safetensors library writes it, in the place of the shards."""
    for file in checkpoint.glob("model*.safetensors*"):
        file.unlink()
    safetensors_torch.save_file(weights, str(checkpoint / "model.safetensors"))


def replace_drafter(checkpoint: Path, drafter: Weights) -> None:
    folder = checkpoint.with_name("Alpamayo-DFlash")
    for file in folder.glob("*.safetensors"):
        file.unlink()
    mask = drafter.pop("mask_embedding")
    torch.save(mask, folder / "mask_embedding.pt")
    safetensors_torch.save_file(drafter, str(folder / "model.safetensors"))


def same(left: Network, right: Network) -> bool:
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_network_comes_back_bit_for_bit(checkpoint: Path, network: Network) -> None:
    weights, drafter = parts(network)
    replace_weights(checkpoint, weights)
    replace_drafter(checkpoint, drafter)
    assert same(load_network(checkpoint, CPU, BF16), network)


def test_stages_compute_the_same_from_a_loaded_network(checkpoint: Path) -> None:
    network = seeded_network(scaled(ALPAMAYO_1_5, 2, small=True), 8, torch.float32)
    weights, drafter = parts(network)
    replace_weights(checkpoint, weights)
    replace_drafter(checkpoint, drafter)
    loaded = load_network(checkpoint, CPU, torch.float32)
    encode, _ = load_tokenizer(checkpoint / "tokenizer.json")
    layout = build_layout(loaded.config, build_prompt(loaded.config, encode))
    patches = np.random.default_rng(0).standard_normal((720, 1536), np.float32)
    noise = np.full(layout.draft_rows + 1, 0.5, np.float32)
    outcomes = []
    for one in (network, loaded):
        engines = TorchEngines(one, layout.slots)
        features = engines.vision(patches)
        ring = KvRing(layout, pad_id=loaded.config.tokens.trajectory_first)
        decision = engines.prefill(ring.static_rows(), engines.no_image(), noise, GREEDY)
        outcomes.append((features, decision, engines.caches, engines.context, engines.draft(13)))
    (features, decision, caches, context, draft), (features_2, decision_2, caches_2, context_2, draft_2) = outcomes
    assert torch.equal(features.image_embeds, features_2.image_embeds)
    assert torch.equal(features.deepstack, features_2.deepstack)
    assert decision == decision_2
    assert all(torch.equal(*pair) for pair in zip(caches.keys, caches_2.keys, strict=True))
    assert all(torch.equal(*pair) for pair in zip(caches.values, caches_2.values, strict=True))
    assert torch.equal(context, context_2)
    assert draft.tolist() == draft_2.tolist()


def test_shards_hold_what_an_independent_reader_finds(synthetic_checkpoint: Path) -> None:
    loaded = load_network(synthetic_checkpoint, CPU, BF16).state_dict()
    count = 0
    for folder, prefix in ((synthetic_checkpoint, ""), (synthetic_checkpoint.with_name("Alpamayo-DFlash"), "drafter.")):
        for file in folder.glob("*.safetensors"):
            for name, value in safetensors_torch.load_file(str(file)).items():
                assert torch.equal(loaded[prefix + name], value), name
                count += 1
    assert count == len(loaded)


def test_float32_is_exactly_the_stored_bfloat16(synthetic_checkpoint: Path) -> None:
    half = load_network(synthetic_checkpoint, CPU, BF16).state_dict()
    for name, value in load_network(synthetic_checkpoint, CPU, torch.float32).state_dict().items():
        assert torch.equal(value, half[name].float()), name


def test_flattened_patch_embedding_is_the_same_convolution(checkpoint: Path, network: Network) -> None:
    weights, drafter = parts(network)
    name = "vlm.model.visual.patch_embed.proj.weight"
    weights[name] = weights[name].flatten(1)
    replace_weights(checkpoint, weights)
    replace_drafter(checkpoint, drafter)
    assert same(load_network(checkpoint, CPU, BF16), network)


def test_constants_in_the_file_are_listed_and_left_out(checkpoint: Path, network: Network) -> None:
    weights, drafter = parts(network)
    weights |= {"action_space.accel_mean": torch.tensor(0.03), "action_in_proj.sinus.0.freqs": torch.ones(1, 10)}
    replace_weights(checkpoint, weights)
    replace_drafter(checkpoint, drafter)
    notes = " ".join(read_checkpoint(checkpoint).notes)
    assert "action_space.accel_mean: constant" in notes
    assert "action_in_proj.sinus.0.freqs: constant" in notes
    assert same(load_network(checkpoint, CPU, BF16), network)


def test_layer_that_the_configuration_does_not_have_is_refused(checkpoint: Path, network: Network) -> None:
    weights, _ = parts(network)
    weights["vlm.model.language_model.layers.2.mlp.up_proj.weight"] = torch.zeros(192, 64)
    replace_weights(checkpoint, weights)
    with pytest.raises(ModelFileError, match=r"layers\.2\.mlp\.up_proj"):
        load_network(checkpoint, CPU, BF16)


@pytest.mark.parametrize("tied", [True, False])
def test_missing_head_is_the_embedding_only_where_the_file_says_tied(
    tied: bool, checkpoint: Path, network: Network, edit_json: EditJson
) -> None:
    weights, _ = parts(network)
    del weights["vlm.lm_head.weight"]
    replace_weights(checkpoint, weights)
    edit_json(checkpoint / "config.json", lambda values: values["vlm_config"].update(tie_word_embeddings=tied))
    if not tied:
        with pytest.raises(ModelFileError, match=r"vlm\.lm_head\.weight"):
            load_network(checkpoint, CPU, BF16)
        return
    loaded = load_network(checkpoint, CPU, BF16)
    assert loaded.vlm.lm_head.weight is loaded.vlm.model.language_model.embed_tokens.weight
    assert torch.equal(loaded.vlm.lm_head.weight, weights["vlm.model.language_model.embed_tokens.weight"])


def test_tuned_expert_of_the_companion_replaces_the_base(checkpoint: Path, network: Network) -> None:
    weights, drafter = parts(network)
    replace_weights(checkpoint, weights)
    replace_drafter(checkpoint, drafter)
    tuned = {name: value + 1 for name, value in weights.items() if not name.startswith("vlm.")}
    quantised = "vlm.model.language_model.layers.0.mlp.up_proj.rotate_linear.qlinear.qweight"
    companion = checkpoint.with_name("Alpamayo-PARO")
    companion.mkdir()
    dump = {**tuned, quantised: torch.zeros(8, 192, dtype=torch.int32), "vlm.lm_head.weight": torch.zeros(2, 64)}
    safetensors_torch.save_file(dump, str(companion / "model.safetensors"))
    loaded = load_network(checkpoint, CPU, BF16).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in tuned.items())
    assert torch.equal(loaded["vlm.lm_head.weight"], weights["vlm.lm_head.weight"])
    assert any("1 tensors of quantised" in note for note in read_checkpoint(checkpoint).notes)


def test_quantised_layers_in_the_base_are_refused(checkpoint: Path, network: Network) -> None:
    weights, _ = parts(network)
    name = "vlm.model.language_model.layers.0.mlp.up_proj"
    del weights[f"{name}.weight"]
    weights[f"{name}.rotate_linear.qlinear.qweight"] = torch.zeros(8, 192, dtype=torch.int32)
    replace_weights(checkpoint, weights)
    faults = " ".join(str(fault) for fault in read_checkpoint(checkpoint).faults)
    assert "quantised layers are not supported yet" in faults


def test_companion_given_as_the_model_is_refused(checkpoint: Path) -> None:
    with pytest.raises(ModelFileError, match="a companion folder, the drafter, found, the base checkpoint"):
        load_network(checkpoint.with_name("Alpamayo-DFlash"), CPU, BF16)


def test_base_that_names_no_companions_loads_without(checkpoint: Path, edit_json: EditJson) -> None:
    edit_json(checkpoint / "config.json", lambda values: values.pop("flashdrive"))
    checkpoint.with_name("Alpamayo-DFlash").rename(checkpoint.with_name("elsewhere"))
    assert any("runs without the drafter" in note for note in read_checkpoint(checkpoint).notes)
    loaded = load_network(checkpoint, CPU, BF16)
    assert torch.isfinite(torch.cat([value.flatten() for value in loaded.drafter.state_dict().values()])).all()
    assert TorchEngines(loaded, 64).draft(13).shape == (7,)


def test_optimised_base_without_its_companions_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "z-lab").mkdir()
    base = checkpoint.rename(tmp_path / "z-lab" / "Alpamayo")
    faults = {fault.file.name: str(fault) for fault in read_checkpoint(base).faults}
    assert set(faults) == {"Alpamayo-DFlash", "Alpamayo-PARO"}
    assert "streaming-tuned expert" in faults["Alpamayo-PARO"]


MEMORY_PROGRAM = """
import pathlib, sys, torch
from flashdrive_ros.model import checkpoint
def kilobytes(field):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])
torch.zeros(4) @ torch.zeros(4)
before = kilobytes("VmRSS")
network = checkpoint.load_network(pathlib.Path(sys.argv[1]), torch.device("cpu"), torch.bfloat16)
weights = sum(value.numel() * value.element_size() for value in network.parameters())
print(weights, (kilobytes("VmHWM") - before) * 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_loading_takes_little_host_memory_beside_the_weights(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic_weights, "seeded_values", zeros)  # hundreds of megabytes in no time
    config = scaled(ALPAMAYO_1_5, 2, small=True)
    wide = replace(config, text=replace(config.text, hidden=512))
    write_checkpoint(wide, tmp_path / "wide", seed=0)
    finished = subprocess.run(
        [sys.executable, "-c", MEMORY_PROGRAM, str(tmp_path / "wide")],
        cwd=repository, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    weights, grown = map(int, finished.stdout.split())
    assert weights > 300e6
    assert grown < weights + 130e6  # one piece of 64 MiB of the file at a time, and what torch itself takes


def zeros(name: str, shape: tuple[int, ...], seed: int) -> Iterator[Any]:
    for _ in range(shape[0]):
        yield np.zeros(shape[1:], np.float32)


def test_small_checkpoint_plans_with_one_camera(checkpoint: Path, edit_json: EditJson) -> None:
    def shrink(values: dict[str, Any]) -> None:
        values.update(min_pixels=4096, max_pixels=8192, tokens_per_future_traj=2)

    edit_json(checkpoint / "config.json", shrink)
    planner = load_planner(checkpoint, settings=PlannerSettings(cameras=(1,), threads=1))
    assert planner.config.prompt.cameras == (1,)
    assert planner.engines.config.prompt.cameras == (1,)
    assert "not trained" in planner.weights_origin
    planner.warm_up()
    outcomes = [planner.plan(window) for window in still_windows(4)]
    assert isinstance(outcomes[-1], Plan)
    assert np.isfinite(outcomes[-1].trajectories[0].positions_m).all()


def still_windows(count: int) -> Iterator[Any]:
    history = EgoHistory(np.zeros((16, 3)), np.tile(np.eye(3), (16, 1, 1)))
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    for index in range(count):
        t0_ns = index * 100_000_000
        ego = EgoPose(frame_id="odom", position_m=np.zeros(3), quaternion_xyzw=np.array([0.0, 0, 0, 1]), speed_mps=0.0)
        yield PlanningWindow(index, t0_ns, (CameraFrame(1, t0_ns, pixels),), ego, history, "", 0)


def test_checkpoint_without_torch_says_what_to_install(
    synthetic_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "find_spec", lambda name: None)
    with pytest.raises(ParameterError, match=r"flashdrive_ros\[torch\]"):
        load.load_model(synthetic_checkpoint, threads=1, samples=1)


def make(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(words))


def test_made_checkpoint_is_small_and_says_that_it_is_synthetic(tmp_path: Path) -> None:
    result = make("alpamayo-1", str(tmp_path / "made"), "--seed", "3")
    assert result["bytes"] < 100e6
    assert "synthetic" in (tmp_path / "made" / "README.md").read_text()
    assert "not trained" in json.loads((tmp_path / "made" / "config.json").read_text())["flashdrive"]["origin"]
    read = read_checkpoint(tmp_path / "made")
    assert read.faults == ()
    assert read.config is not None
    assert read.config.name == "alpamayo-1"


def test_made_tokenizer_gives_the_published_prompt(synthetic_checkpoint: Path) -> None:
    config = read_checkpoint(synthetic_checkpoint).config
    assert config is not None
    encode, decode = load_tokenizer(synthetic_checkpoint / "tokenizer.json")
    prompt = build_prompt(config, encode)
    layout = build_layout(config, prompt)
    assert layout.tail_order + prompt.tail_tokens == 3086  # spec A.6.1
    assert layout.frame_order[:, 0, 0].tolist() == [28, 775, 1523, 2272]
    assert layout.frame_position[:, 0, 0, 0].tolist() == [28, 127, 227, 328]  # spec A.6.2
    assert prompt.tail_after_route[-1] == 155677
    any_text = "Turn left, ünïté 40m\n日本"
    assert decode(encode(any_text)) == any_text


def test_same_seed_makes_the_same_weights(tmp_path: Path) -> None:
    for name, seed in (("one", "5"), ("two", "5"), ("other", "6")):
        make("alpamayo-1.5", str(tmp_path / name), "--layers", "1", "--seed", seed)
    shard = "model-00005-of-00005.safetensors"
    one, two, other = ((tmp_path / name / shard).read_bytes() for name in ("one", "two", "other"))
    assert one == two
    assert one != other


@pytest.mark.parametrize(("words", "names"), [(("--layers", "0"), "--layers"), (("--seed", "-1"), "--seed")])
def test_numbers_out_of_range_are_refused(words: tuple[str, str], names: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=names):
        make("alpamayo-1.5", str(tmp_path / "made"), *words)


def test_used_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("mine")
    with pytest.raises(ParameterError, match="holds files already"):
        make("alpamayo-1.5", str(tmp_path))
    assert (tmp_path / "model.safetensors").read_text() == "mine"


def test_bfloat16_rounds_to_nearest_even() -> None:
    # bfloat16 keeps 7 fraction bits: 1 + 1/256 and 1 + 3/256 lie half way between neighbours
    values = np.array([1.0, 1 + 1 / 256, 1 + 3 / 256, -1 - 1 / 256 - 1 / 4096, 0.0], np.float32)
    restored = torch.from_numpy(synthetic_weights.to_bfloat16(values).view(np.int16)).view(BF16).float().tolist()
    assert restored == [1.0, 1.0, 1 + 2 / 128, -1 - 1 / 128, 0.0]
