"""The embedded backend: the exported stages in onnxruntime on the CPU. No torch, no GPU, no ROS."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from flashdrive_ros.engines.base import Decision, Floats, FlowInputs, ImageFeatures, Sampling
from flashdrive_ros.engines.manifest import STAGES, Manifest, StageSpec, read_manifest
from flashdrive_ros.errors import EngineError, ModelFileError
from flashdrive_ros.streaming.kv_ring import Rows
from flashdrive_ros.streaming.layout import Table

_DTYPES = {"float32": np.float32, "int64": np.int64}


class OnnxEngines:
    """Five sessions over one set of caches, which every stage updates in place."""

    def __init__(self, folder: Path, threads: int) -> None:
        """Load the model folder `folder` on `threads` CPU threads.

        Raises ModelFileError for a missing or damaged file.
        """
        self.manifest: Manifest = read_manifest(folder)
        self.config = self.manifest.config
        self._sessions = {stage: self._session(folder, stage, threads) for stage in STAGES}
        verify = self.manifest.stages["verify"]
        self._caches = {
            spec.name: onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(spec.shape, np.float32))
            for spec in verify.inputs
            if "_cache_" in spec.name
        }
        self._context = np.zeros(_spec(verify, "context").shape, np.float32)

    def vision(self, patches: Floats) -> ImageFeatures:
        embeds, deepstack = self._run("vision", {"patches": patches})
        return ImageFeatures(embeds, deepstack)

    def no_image(self) -> ImageFeatures:
        outputs = self.manifest.stages["vision"].outputs
        return ImageFeatures(*(np.zeros(spec.shape, np.float32) for spec in outputs))

    def prefill(self, rows: Rows, features: ImageFeatures, noise: Floats, sampling: Sampling) -> Decision:
        inputs = {
            "token_ids": rows.token_ids,
            "image_embeds": features.image_embeds,
            "deepstack": features.deepstack,
            "image_rows": rows.image_rows,
            "sampling_noise": noise,
            "sampling": sampling.as_array(),
        }
        return self._decide("prefill", inputs | _tables(rows))

    def draft(self, anchor_id: int) -> Table:
        (ids,) = self._run("draft", {"anchor_id": np.array([anchor_id], np.int64), "context": self._context})
        return ids

    def verify(self, rows: Rows, noise: Floats, sampling: Sampling) -> Decision:
        inputs = {
            "token_ids": rows.token_ids,
            "context": self._context,
            "sampling_noise": noise,
            "sampling": sampling.as_array(),
        }
        return self._decide("verify", inputs | _tables(rows))

    def action(self, inputs: FlowInputs) -> Floats:
        (actions,) = self._run(
            "action",
            {
                "noise": inputs.noise,
                "flow_times": inputs.times,
                "flow_weights": inputs.weights,
                "row_order": inputs.row_order,
                "row_position": inputs.row_position,
                "slot_order": inputs.slot_order,
                "slot_position": inputs.slot_position,
            },
        )
        return actions

    def _session(self, folder: Path, stage: str, threads: int) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # idle threads sleep: the cores belong to the whole node, not to one stage
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        path = folder / self.manifest.stages[stage].graph.file
        try:
            return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's exceptions have no common base
            raise ModelFileError(f"{path}: onnxruntime cannot load it ({error}); export the model again") from error

    def _decide(self, stage: str, inputs: dict[str, np.ndarray]) -> Decision:
        accepted, next_id, self._context = self._run(stage, inputs)
        return Decision(int(accepted[0]), int(next_id[0]))

    def _run(self, stage: str, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Run a stage; caches are bound input and output to the same memory, the other outputs are returned in order."""
        spec = self.manifest.stages[stage]
        binding = self._sessions[stage].io_binding()
        for tensor in spec.inputs:
            if tensor.name in self._caches:
                binding.bind_ortvalue_input(tensor.name, self._caches[tensor.name])
                continue
            value = np.ascontiguousarray(inputs[tensor.name])
            if value.dtype != _DTYPES[tensor.dtype] or not _fits(value.shape, tensor.shape):
                raise EngineError(
                    f"{stage}.{tensor.name}: {value.dtype} {value.shape} found, {tensor.dtype} {tensor.shape} expected"
                )
            binding.bind_cpu_input(tensor.name, value)
        plain = []
        for index, tensor in enumerate(spec.outputs):
            cache = self._caches.get(tensor.name.removesuffix("_out"))
            if cache is None:
                plain.append(index)
                binding.bind_output(tensor.name)
            else:
                binding.bind_ortvalue_output(tensor.name, cache)
        self._sessions[stage].run_with_iobinding(binding)
        outputs = binding.get_outputs()
        return [outputs[index].numpy() for index in plain]


def _spec(stage: StageSpec, name: str):
    return next(spec for spec in stage.inputs if spec.name == name)


def _fits(found: tuple[int, ...], expected: tuple[int | str, ...]) -> bool:
    return len(found) == len(expected) and all(
        isinstance(want, str) or want == have for have, want in zip(found, expected, strict=True)
    )


def _tables(rows: Rows) -> dict[str, np.ndarray]:
    return {
        "write_slot": rows.write_slot,
        "row_order": rows.row_order,
        "row_position": rows.row_position,
        "slot_order": rows.slot_order,
        "slot_position": rows.slot_position,
    }
