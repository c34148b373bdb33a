"""Export: the five stage modules to ONNX opset 24, their weights once in one safetensors file (DESIGN 3, 7).

The graphs hold no weights. Each initialiser is external data that points at a tensor's byte range inside the
safetensors file, stored in half precision, followed by a Cast that runtimes fold when they load.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxscript
import onnxscript.optimizer
import torch
from onnx import TensorProto
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from flashdrive_ros.engines.manifest import (
    FORMAT,
    FileSpec,
    Manifest,
    StageSpec,
    TensorSpec,
    sha256_of,
    write_manifest,
)
from flashdrive_ros.model.language import Caches, RingTables
from flashdrive_ros.model.network import Network
from flashdrive_ros.model.prompt import build_prompt
from flashdrive_ros.model.stages import ActionStage, Choice, DraftStage, PrefillStage, VerifyStage, VisionStage
from flashdrive_ros.model.tokens import load_tokenizer
from flashdrive_ros.streaming.layout import EMPTY, Layout, build_layout

OPSET = 24
WEIGHTS = "weights.safetensors"
TOKENIZER = "tokenizer.json"
TABLES = ("write_slot", "row_order", "row_position", "slot_order", "slot_position")
_opset = onnxscript.values.Opset("", OPSET)


def _onnx_cache_write(cache, update, write_slot):  # type: ignore[no-untyped-def]  # traced by onnxscript
    return _opset.TensorScatter(cache, update, write_slot)


class FlatStage(nn.Module):
    """A stage with tensors only in its signature, in the order of the manifest."""

    def __init__(self, stage: nn.Module, call: Callable[[nn.Module, Sequence[Tensor]], tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.stage = stage
        self.call = call

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.call(self.stage, inputs)


@dataclass(frozen=True)
class StageExport:
    """What the exporter needs to know about one stage."""

    module: FlatStage
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    free: dict[str, dict[int, str]]
    """Free dimensions: input name to axis to dimension name."""


def _caches(flat: Sequence[Tensor]) -> Caches:
    half = len(flat) // 2
    return Caches(list(flat[:half]), list(flat[half:]))


def _text_outputs(result: tuple[Choice, Tensor, Caches]) -> tuple[Tensor, ...]:
    choice, context, caches = result
    return (choice.accepted, choice.next_id, context, *caches.keys, *caches.values)


def stage_exports(network: Network, layout: Layout) -> dict[str, StageExport]:
    """Example inputs and names of each stage, in the order of DESIGN 3."""
    config = network.config
    text, drafter, action = config.text, config.drafter, config.action
    views, tokens = layout.views, layout.views * config.vision.image_tokens
    taps = len(drafter.tapped_layers) * text.hidden
    layers = range(text.layers)
    cache_names = [f"key_cache_{layer}" for layer in layers] + [f"value_cache_{layer}" for layer in layers]
    shape = (1, text.kv_heads, layout.slots, text.head_dim)
    caches = {name: torch.zeros(shape) for name in cache_names}
    written = tuple(f"{name}_out" for name in cache_names)
    context = torch.zeros(drafter.context_rows, taps)
    sampling = torch.tensor([0.0, 1.0])

    def tables(rows: int) -> dict[str, Tensor]:
        slots = layout.slots
        return {
            "write_slot": torch.zeros(1, dtype=torch.int64),
            "row_order": torch.zeros(rows, dtype=torch.int64),
            "row_position": torch.zeros(3, rows, dtype=torch.int64),
            "slot_order": torch.full((slots,), int(EMPTY), dtype=torch.int64),
            "slot_position": torch.zeros(3, slots, dtype=torch.int64),
        }

    def prefill(stage: nn.Module, flat: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return _text_outputs(stage(*flat[:6], RingTables(*flat[6:11]), _caches(flat[11:])))

    def verify(stage: nn.Module, flat: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return _text_outputs(stage(*flat[:4], RingTables(*flat[4:9]), _caches(flat[9:])))

    block = drafter.block
    action_tables = tables(1)
    del action_tables["write_slot"]
    action_tables["row_position"] = torch.zeros(3, action.waypoints, dtype=torch.int64)
    return {
        "vision": StageExport(
            FlatStage(VisionStage(network), lambda stage, flat: stage(*flat)),
            {"patches": torch.zeros(views * config.vision.patches, config.vision.patch_values)},
            ("image_embeds", "deepstack"),
            {},
        ),
        "prefill": StageExport(
            FlatStage(PrefillStage(network), prefill),
            {
                "token_ids": torch.zeros(layout.prefill_rows, dtype=torch.int64),
                "image_embeds": torch.zeros(tokens, text.hidden),
                "deepstack": torch.zeros(len(config.vision.deepstack_blocks), tokens, text.hidden),
                "image_rows": torch.full((layout.prefill_rows,), -1, dtype=torch.int64),
                "sampling_noise": torch.zeros(layout.draft_rows + 1),
                "sampling": sampling,
                **tables(layout.prefill_rows),
                **caches,
            },
            ("accepted", "next_id", "context_out", *written),
            {},
        ),
        "draft": StageExport(
            FlatStage(DraftStage(network), lambda stage, flat: (stage(*flat),)),
            {"anchor_id": torch.zeros(1, dtype=torch.int64), "context": context},
            ("draft_ids",),
            {},
        ),
        "verify": StageExport(
            FlatStage(VerifyStage(network), verify),
            {
                "token_ids": torch.zeros(block, dtype=torch.int64),
                "context": context,
                "sampling_noise": torch.zeros(block),
                "sampling": sampling,
                **tables(block),
                **caches,
            },
            ("accepted", "next_id", "context_out", *written),
            {},
        ),
        "action": StageExport(
            FlatStage(ActionStage(network), lambda stage, flat: (stage(*flat[:7], _caches(flat[7:])),)),
            {
                "noise": torch.zeros(2, action.waypoints, 2),
                "flow_times": torch.zeros(action.flow_steps),
                "flow_weights": torch.zeros(action.flow_steps, action.flow_steps),
                **action_tables,
                **caches,
            },
            ("actions",),
            {"noise": {0: "samples"}},
        ),
    }


def store_weights(network: Network, path: Path) -> None:
    """Write every parameter once, in half precision, and round the network's own to the same values."""
    with torch.no_grad():
        half = {name: parameter.to(torch.float16).contiguous() for name, parameter in network.named_parameters()}
        save_file(half, str(path))
        path.chmod(0o644)
    load_weights(network, path)


def load_weights(network: Network, path: Path) -> None:
    """Read the parameters that `store_weights` wrote, in the network's own dtype."""
    dtype = network.vlm.lm_head.weight.dtype
    network.load_state_dict({name: values.to(dtype) for name, values in load_file(str(path)).items()})


def _byte_ranges(path: Path) -> dict[str, tuple[int, int]]:
    """Offset in the file and length of every tensor of a safetensors file."""
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size))
    ranges = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: (8 + size + begin, end - begin) for name, (begin, end) in ranges.items()}


def _refer_to_weights(model: onnx.ModelProto, weights: Path) -> None:
    """Replace every initialiser that is a network parameter by a reference into `weights` and a Cast."""
    ranges = _byte_ranges(weights)
    casts, kept = [], []
    for tensor in model.graph.initializer:
        name = tensor.name.split("network.", 1)[-1]
        if name not in ranges:
            kept.append(tensor)
            continue
        offset, length = ranges[name]
        if length != 2 * int(np.prod(tensor.dims)):
            raise ValueError(f"{tensor.name}: {length} bytes stored for shape {tuple(tensor.dims)}")
        half = TensorProto(
            name=f"{tensor.name}.half",
            data_type=TensorProto.FLOAT16,
            dims=tensor.dims,
            data_location=TensorProto.EXTERNAL,
        )
        for key, value in (("location", weights.name), ("offset", str(offset)), ("length", str(length))):
            half.external_data.add(key=key, value=value)
        kept.append(half)
        casts.append(onnx.helper.make_node("Cast", [half.name], [tensor.name], to=TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(kept)
    model.graph.node.extend(nodes)


def export_stage(export: StageExport) -> onnx.ModelProto:
    """Trace one stage into an ONNX model of opset 24 with its weights still inside."""
    dynamic = tuple(export.free.get(name, {}) for name in export.inputs)
    named = tuple({axis: torch.export.Dim(label, min=1) for axis, label in axes.items()} or None for axes in dynamic)
    with torch.inference_mode():
        program = torch.onnx.export(
            export.module.eval(),
            tuple(export.inputs.values()),
            dynamo=True,
            opset_version=OPSET,
            optimize=False,
            verbose=False,
            input_names=list(export.inputs),
            output_names=list(export.outputs),
            dynamic_shapes=(named,),
            custom_translation_table={torch.ops.flashdrive.cache_write.default: _onnx_cache_write},
        )
    assert program is not None
    # weights stay outside the graph and may change: no pass may fold them, or merge two that happen to be equal
    initializers = program.model.graph.initializers
    values = {name: initializer.const_value for name, initializer in initializers.items()}
    for initializer in initializers.values():
        initializer.const_value = None
    # it warns of every initializer without a value
    logging.getLogger("onnx_ir.passes.common.initializer_deduplication").disabled = True
    onnxscript.optimizer.optimize_ir(program.model)
    for name in values.keys() & initializers.keys():
        initializers[name].const_value = values[name]
    return program.model_proto


def _strip(model: onnx.ModelProto) -> None:
    """Drop what the exporter leaves behind: stack traces, source paths, inferred shapes of inner values."""
    model.producer_name, model.producer_version, model.doc_string = "flashdrive_ros", "", ""
    graph = model.graph
    del model.metadata_props[:], graph.metadata_props[:], graph.value_info[:]
    for item in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        item.doc_string = ""
        del item.metadata_props[:]


def stage_graph(export: StageExport, weights: Path) -> onnx.ModelProto:
    """The graph of one stage as it is shipped: it refers to the file `weights` and does not say where it was made."""
    model = export_stage(export)
    _refer_to_weights(model, weights)
    _strip(model)
    return model


def _tensor_specs(values: Sequence[onnx.ValueInfoProto]) -> tuple[TensorSpec, ...]:
    specs = []
    for value in values:
        tensor = value.type.tensor_type
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
        shape = tuple(axis.dim_param or axis.dim_value for axis in tensor.shape.dim)
        specs.append(TensorSpec(value.name, dtype, shape))
    return tuple(specs)


def export_folder(network: Network, folder: Path, weights_origin: str) -> Manifest:
    """Write weights, stages and manifest of `network` (float32) into `folder`, which already holds the tokenizer."""
    weights = folder / WEIGHTS
    store_weights(network, weights)
    encode, _ = load_tokenizer(folder / TOKENIZER)
    layout = build_layout(network.config, build_prompt(network.config, encode))
    stages = {}
    for name, stage in stage_exports(network, layout).items():
        model = stage_graph(stage, weights)
        path = folder / f"{name}.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        onnx.checker.check_model(str(path), full_check=True)
        stages[name] = StageSpec(
            FileSpec(path.name, sha256_of(path)),
            _tensor_specs(model.graph.input),
            _tensor_specs(model.graph.output),
        )
    manifest = Manifest(
        format=FORMAT,
        opset=OPSET,
        weights_origin=weights_origin,
        config=network.config,
        weights=FileSpec(WEIGHTS, sha256_of(weights)),
        tokenizer=FileSpec(TOKENIZER, sha256_of(folder / TOKENIZER)),
        stages=stages,
    )
    write_manifest(folder, manifest)
    return manifest
