"""The shipped graphs of nano in onnxruntime against the torch stages with the same weights, and what is in them.

Both run a stream of their own over the same windows, so that a stage's inputs are what a real stream gives it: tables
from the ring, caches with rubbish in unused slots, output buffers that still hold something else.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from flashdrive_ros.engines.base import FlowInputs, Sampling
from flashdrive_ros.engines.export import (
    load_weights,
    stage_exports,
    stage_graph,
)
from flashdrive_ros.engines.manifest import STAGES, read_manifest
from flashdrive_ros.engines.onnx_engines import OnnxEngines
from flashdrive_ros.engines.torch_engines import TorchEngines
from flashdrive_ros.model.network import Network
from flashdrive_ros.model.prompt import build_prompt, route_ids, tail_ids
from flashdrive_ros.model.tokens import load_tokenizer
from flashdrive_ros.planner import PlannerSettings
from flashdrive_ros.resources import resource_path
from flashdrive_ros.streaming.kv_ring import KvRing
from flashdrive_ros.streaming.layout import EMPTY, build_layout

TOLERANCE = 1e-4
WINDOWS = 6
ROUTES = ("", "turn left", "", "turn right in 40m")
SAMPLING = (Sampling(), Sampling(0.7, 0.9), Sampling(1.0, 1.0))


def assert_close(found, expected) -> None:
    """Relative to the root mean square of what is expected, entry by entry."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= TOLERANCE * np.sqrt(np.mean(expected**2))


@pytest.fixture(scope="module")
def folder() -> Path:
    return resource_path("resource/models/nano")


@pytest.fixture(scope="module")
def network(folder: Path) -> Network:
    network = Network(read_manifest(folder).config).eval().requires_grad_(False)
    load_weights(network, folder / "weights.safetensors")
    return network


def poison(engines: OnnxEngines, stage: str) -> None:
    """Fill the output buffers of `stage`, so that whatever it does not write is seen."""
    engines._context = engines._context.copy()  # may be one of them
    for name, buffer in engines._stages[stage].outputs.items():
        if "_cache_" not in name:
            buffer.fill(np.nan if buffer.dtype.kind == "f" else -1)


class Both:
    """The two backends, called with the same arguments; every result is compared."""

    def __init__(self, folder: Path, network: Network, samples: int) -> None:
        self.onnx = OnnxEngines(folder, PlannerSettings().threads, samples)
        self.config = network.config
        self.encode, _ = load_tokenizer(folder / "tokenizer.json")
        self.prompt = build_prompt(self.config, self.encode)
        self.layout = build_layout(self.config, self.prompt)
        self.torch = TorchEngines(network, self.layout.slots)
        self.random = np.random.default_rng(samples)
        for cache in self.caches():
            # nobody may see what a slot held before it was written
            cache[:] = self.random.normal(0, 30, cache.shape)

    def caches(self) -> list[np.ndarray]:
        inputs = self.onnx._stages["verify"].inputs
        return [buffer for name, buffer in inputs.items() if "_cache_" in name]

    def tail(self, window: int) -> np.ndarray:
        prompt = self.config.prompt
        bins = self.random.integers(0, prompt.history_bins, prompt.history_tokens) + self.config.tokens.history_first
        route = route_ids(ROUTES[window % len(ROUTES)], self.config, self.encode)
        return tail_ids(self.prompt, bins, route)

    def text(self, count: int) -> np.ndarray:
        return self.random.integers(0, 1024, count)

    def vision(self):
        shape = (self.layout.views * self.config.vision.patches, self.config.vision.patch_values)
        patches = self.random.uniform(-1, 1, shape).astype(np.float32)
        poison(self.onnx, "vision")
        found, expected = self.onnx.vision(patches), self.torch.vision(patches)
        assert_close(found.image_embeds, expected.image_embeds)
        assert_close(found.deepstack, expected.deepstack)
        return found, expected

    def run_static(self) -> None:
        self.ring = KvRing(self.layout, self.config.tokens.trajectory_first)
        blank = self.onnx.no_image(), self.torch.no_image()
        self.decide("prefill", self.ring.static_rows(), self.layout.draft_rows + 1, SAMPLING[0], blank)

    def push(self, window: int, sampling: Sampling) -> None:
        features = self.vision()
        rows = self.ring.push(self.tail(window), self.text(3 * window % (self.layout.draft_rows + 1)))
        self.decide("prefill", rows, self.layout.draft_rows + 1, sampling, features)

    def verify(self, first: int, count: int, sampling: Sampling) -> None:
        block = self.config.drafter.block
        self.decide("verify", self.ring.reasoning_rows(first, self.text(count), block), block, sampling)

    def decide(self, stage: str, rows, count: int, sampling: Sampling, features=None) -> None:
        noise = self.random.uniform(0, 1, count).astype(np.float32)
        poison(self.onnx, stage)
        ours, theirs = ((feature,) for feature in features) if features else ((), ())
        found = getattr(self.onnx, stage)(rows, *ours, noise, sampling)
        expected = getattr(self.torch, stage)(rows, *theirs, noise, sampling)
        assert found == expected
        assert_close(self.onnx._context, self.torch.context)
        used = rows.slot_order != EMPTY
        written = [*self.torch.caches.keys, *self.torch.caches.values]
        for cache, reference in zip(self.caches(), written, strict=True):
            assert_close(cache[:, :, used], reference[:, :, torch.from_numpy(used)])

    def draft(self, anchor: int) -> None:
        poison(self.onnx, "draft")
        np.testing.assert_array_equal(self.onnx.draft(anchor), self.torch.draft(anchor))

    def act(self, known: int, samples: int, weights: np.ndarray) -> None:
        """The flow with `weights` [8, 8]; the whole change of the state is compared, not entry by entry.

        The waypoint encoder turns a change d of an action into up to 628 d radians, so that single entries of one
        velocity differ by 1e-4 between any two float32 implementations, and a whole flow of random weights by 10 %, of
        torch in float32 and in float64 as well. Hence one evaluation at a time, and a flow of short steps.
        """
        waypoints = self.config.action.waypoints
        times = np.arange(8, dtype=np.float32) / 8
        order, position = self.ring.action_rows(known, waypoints)
        noise = self.random.standard_normal((samples, waypoints, 2)).astype(np.float32)
        tables = (order, position, self.ring.slot_order, self.ring.slot_position)
        inputs = FlowInputs(noise, times, weights.astype(np.float32), *tables)
        poison(self.onnx, "action")
        found, expected = self.onnx.action(inputs) - noise, self.torch.action(inputs) - noise
        assert found.shape == expected.shape
        assert np.linalg.norm(found - expected) <= TOLERANCE * np.linalg.norm(expected)


def only_evaluation(step: int) -> np.ndarray:
    """Flow weights that move the noise by the velocity of one step alone."""
    weights = np.zeros((8, 8))
    weights[7, step] = 1
    return weights


@pytest.mark.parametrize("samples", [1, 3])
def test_every_stage_equals_torch_in_a_stream(folder: Path, network: Network, samples: int):
    both = Both(folder, network, samples)
    both.run_static()
    for window in range(WINDOWS):
        sampling = SAMPLING[window % len(SAMPLING)]
        both.push(window, sampling)
        both.draft(both.config.tokens.cot_start)
        drafted = 3 * window % (both.layout.draft_rows + 1)
        both.ring.keep_reasoning(min(drafted, 2))
        first = min(drafted, 2)
        both.verify(first, 8 - window, sampling)
        both.draft(int(both.random.integers(0, 1024)))
        both.ring.keep_reasoning(first + 1)
        both.verify(first + 1, 2, sampling)
        both.act(first + 3, samples, only_evaluation(window))
        both.act(first + 3, samples, np.tril(both.random.uniform(0.5, 1, (8, 8))) * 0.1 / 8)


# the graphs


EXPECTED_OPERATORS = {
    "vision": {"RotaryEmbedding", "Attention", "LayerNormalization"},
    "prefill": {"RMSNormalization", "RotaryEmbedding", "TensorScatter", "Attention"},
    "draft": {"RMSNormalization", "RotaryEmbedding", "Attention"},
    "verify": {"RMSNormalization", "RotaryEmbedding", "TensorScatter", "Attention"},
    "action": {"RMSNormalization", "RotaryEmbedding", "Attention"},
}


def graph_of(folder: Path, stage: str) -> onnx.ModelProto:
    return onnx.load(str(folder / f"{stage}.onnx"), load_external_data=False)


@pytest.mark.parametrize("stage", STAGES)
def test_graphs_use_the_operators_that_vehicles_have_kernels_for(folder: Path, stage: str):
    model = graph_of(folder, stage)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 24)]
    assert not model.functions
    assert EXPECTED_OPERATORS[stage] <= {node.op_type for node in model.graph.node}
    assert {node.domain for node in model.graph.node} == {""}


def test_text_stages_scatter_keys_and_values_of_every_layer(folder: Path):
    layers = read_manifest(folder).config.text.layers
    for stage in ("prefill", "verify"):
        operators = [node.op_type for node in graph_of(folder, stage).graph.node]
        assert operators.count("TensorScatter") == 2 * layers
        assert operators.count("Attention") == layers


def stored_tensors(folder: Path) -> dict[str, tuple[int, int]]:
    """Offset and length of each weight, from the safetensors header itself."""
    data = (folder / "weights.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    offsets = {name: entry["data_offsets"] for name, entry in header.items()}
    return {name: (8 + size + begin, end - begin) for name, (begin, end) in offsets.items()}


def test_weights_exist_once_outside_the_graphs(folder: Path, network: Network):
    stored = stored_tensors(folder)
    assert set(stored) == set(network.state_dict())
    used = set()
    for stage in STAGES:
        for tensor in graph_of(folder, stage).graph.initializer:
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                continue
            reference = {entry.key: entry.value for entry in tensor.external_data}
            assert reference["location"] == "weights.safetensors"
            place = int(reference["offset"]), int(reference["length"])
            name = tensor.name.removesuffix(".half").split("network.", 1)[-1]
            assert place == stored[name]
            assert tensor.data_type == onnx.TensorProto.FLOAT16
            used.add(name)
    assert used == set(stored)


@pytest.mark.parametrize("stage", STAGES)
def test_no_large_tensor_hides_in_a_graph(folder: Path, stage: str):
    model = graph_of(folder, stage)
    inside = [tensor for tensor in model.graph.initializer if tensor.data_location != onnx.TensorProto.EXTERNAL]
    constants = [attribute.t for node in model.graph.node for attribute in node.attribute if attribute.HasField("t")]
    assert max((tensor.ByteSize() for tensor in [*inside, *constants]), default=0) <= 64_000


@pytest.mark.parametrize("stage", STAGES)
def test_graphs_name_no_source_file_of_the_machine_that_made_them(folder: Path, stage: str, repository: Path):
    data = (folder / f"{stage}.onnx").read_bytes()
    assert b".py" not in data
    assert b"site-packages" not in data
    assert str(repository).encode() not in data


def test_exporting_again_gives_the_shipped_bytes(folder: Path, network: Network):
    config = network.config
    encode, _ = load_tokenizer(folder / "tokenizer.json")
    layout = build_layout(config, build_prompt(config, encode))
    for _ in range(2):
        model = stage_graph(stage_exports(network, layout)["draft"], folder / "weights.safetensors")
        assert model.SerializeToString(deterministic=True) == (folder / "draft.onnx").read_bytes()
