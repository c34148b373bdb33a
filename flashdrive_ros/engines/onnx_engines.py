"""The embedded backend: the exported stages in onnxruntime on the CPU. No torch, no GPU, no ROS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from flashdrive_ros.engines.base import Decision, Floats, FlowInputs, ImageFeatures, Sampling
from flashdrive_ros.engines.manifest import STAGES, StageSpec, TensorSpec, read_manifest
from flashdrive_ros.errors import EngineError, ModelFileError, ParameterError
from flashdrive_ros.streaming.kv_ring import Rows
from flashdrive_ros.streaming.layout import Table

Buffer = NDArray[Any]


class _Stage:
    """One session with every tensor bound to memory that lives as long as the engines."""

    def __init__(self, name: str, path: Path, spec: StageSpec, samples: int, caches: dict[str, Buffer]) -> None:
        options = onnxruntime.SessionOptions()
        options.use_per_session_threads = False  # five pools would spin against each other
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's exceptions have no common base
            raise ModelFileError(f"{path}: onnxruntime cannot load it ({error}); export the model again") from error
        self._name = name
        self._binding = self._session.io_binding()
        self.inputs = {tensor.name: _buffer(tensor, samples, caches) for tensor in spec.inputs}
        # a cache is written where it is read: onnxruntime then updates it in place
        self.outputs = {tensor.name: _buffer(tensor, samples, caches) for tensor in spec.outputs}
        for tensor, buffer in self.inputs.items():
            self._binding.bind_input(tensor, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
        for tensor, buffer in self.outputs.items():
            self._binding.bind_output(tensor, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)

    def run(self, values: dict[str, Buffer]) -> dict[str, Buffer]:
        """Copy `values` in, run, and return the output buffers, which the next run overwrites."""
        for name, value in values.items():
            buffer = self.inputs[name]
            if value.shape != buffer.shape or value.dtype != buffer.dtype:
                raise EngineError(
                    f"{self._name}.{name}: {value.dtype} {value.shape} found, {buffer.dtype} {buffer.shape} expected"
                )
            np.copyto(buffer, value)
        self._session.run_with_iobinding(self._binding)
        return self.outputs


class OnnxEngines:
    """Five stages over one set of caches, which every stage updates in place."""

    backend = "onnxruntime"

    def __init__(self, folder: Path, threads: int, samples: int) -> None:
        """Load the model folder `folder` on `threads` CPU threads for plans of `samples` trajectories.

        Raises ModelFileError for a missing or damaged file, ParameterError when the process already computes on another
        number of threads.
        """
        self.manifest = read_manifest(folder)
        self.config = self.manifest.config
        _use_threads(threads)
        caches: dict[str, Buffer] = {
            tensor.name: np.zeros([int(axis) for axis in tensor.shape], tensor.dtype)
            for tensor in self.manifest.stages["verify"].inputs
            if "_cache_" in tensor.name
        }
        self._stages = {}
        for name in STAGES:
            spec = self.manifest.stages[name]
            self._stages[name] = _Stage(name, folder / spec.graph.file, spec, samples, caches)
        self._context = self._stages["verify"].outputs["context_out"].copy()

    def vision(self, patches: Floats) -> ImageFeatures:
        outputs = self._stages["vision"].run({"patches": patches})
        return ImageFeatures(outputs["image_embeds"], outputs["deepstack"])

    def no_image(self) -> ImageFeatures:
        outputs = self._stages["vision"].outputs
        return ImageFeatures(np.zeros_like(outputs["image_embeds"]), np.zeros_like(outputs["deepstack"]))

    def prefill(self, rows: Rows, features: ImageFeatures, noise: Floats, sampling: Sampling) -> Decision:
        images: dict[str, Buffer] = {
            "image_embeds": features.image_embeds,
            "deepstack": features.deepstack,
            "image_rows": rows.image_rows,
        }
        return self._decide("prefill", images | _text_inputs(rows, noise, sampling))

    def draft(self, anchor_id: int) -> Table:
        inputs: dict[str, Buffer] = {"anchor_id": np.array([anchor_id], np.int64), "context": self._context}
        return self._stages["draft"].run(inputs)["draft_ids"].copy()

    def verify(self, rows: Rows, noise: Floats, sampling: Sampling) -> Decision:
        context: dict[str, Buffer] = {"context": self._context}
        return self._decide("verify", context | _text_inputs(rows, noise, sampling))

    def action(self, inputs: FlowInputs) -> Floats:
        values: dict[str, Buffer] = {
            "noise": inputs.noise,
            "flow_times": inputs.times,
            "flow_weights": inputs.weights,
            "row_order": inputs.row_order,
            "row_position": inputs.row_position,
            "slot_order": inputs.slot_order,
            "slot_position": inputs.slot_position,
        }
        return self._stages["action"].run(values)["actions"].copy()

    def _decide(self, stage: str, inputs: dict[str, Buffer]) -> Decision:
        outputs = self._stages[stage].run(inputs)
        self._context = outputs["context_out"]
        return Decision(int(outputs["accepted"][0]), int(outputs["next_id"][0]))


_threads_in_use: int | None = None


def _use_threads(threads: int) -> None:
    """Set the process-wide pool of onnxruntime, which cannot be changed once a session exists."""
    global _threads_in_use
    if _threads_in_use == threads:
        return
    if _threads_in_use is not None:
        raise ParameterError(f"threads: {threads} found, but this process computes on {_threads_in_use}; restart it")
    onnxruntime.set_global_thread_pool_sizes(threads, 1)
    _threads_in_use = threads


def _buffer(tensor: TensorSpec, samples: int, caches: dict[str, Buffer]) -> Buffer:
    """The cache of that name, or new memory; the only free dimension of a stage is the number of samples."""
    cache = caches.get(tensor.name.removesuffix("_out"))
    if cache is not None:
        return cache
    return np.zeros([samples if isinstance(axis, str) else axis for axis in tensor.shape], tensor.dtype)


def _text_inputs(rows: Rows, noise: Floats, sampling: Sampling) -> dict[str, Buffer]:
    return {
        "token_ids": rows.token_ids,
        "sampling_noise": noise,
        "sampling": sampling.as_array(),
        "write_slot": rows.write_slot,
        "row_order": rows.row_order,
        "row_position": rows.row_position,
        "slot_order": rows.slot_order,
        "slot_position": rows.slot_position,
    }
