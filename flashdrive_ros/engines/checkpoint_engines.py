"""A checkpoint folder on the torch backend: device and dtype by what the machine has."""

from __future__ import annotations

from pathlib import Path

import torch

from flashdrive_ros.engines.load import LoadedModel
from flashdrive_ros.engines.torch_engines import TorchEngines
from flashdrive_ros.model.checkpoint import network_of
from flashdrive_ros.model.checkpoint_folder import checked_checkpoint
from flashdrive_ros.model.config import ModelConfig, with_cameras
from flashdrive_ros.model.network import count_parameters
from flashdrive_ros.model.prompt import build_prompt
from flashdrive_ros.model.tokens import load_tokenizer
from flashdrive_ros.streaming.layout import build_layout

HOST_SHARE = 0.7
"""Share of the free host memory that weights may take before they are kept in half precision."""


def load_checkpoint_model(folder: Path, threads: int, cameras: tuple[int, ...] | None) -> LoadedModel:
    """Load a checkpoint folder onto the GPU, or onto `threads` CPU threads where there is none.

    Raises ModelFileError for a missing, damaged or unfitting file, or too little memory.
    """
    checkpoint, own_config = checked_checkpoint(folder)
    encode, decode = load_tokenizer(checkpoint.tokenizer)
    config = with_cameras(own_config, cameras or own_config.prompt.cameras)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(threads)
    network = network_of(checkpoint, config, device, chosen_dtype(config, device))
    slots = build_layout(config, build_prompt(config, encode)).slots
    return LoadedModel(TorchEngines(network, slots), encode, decode, checkpoint.origin)


def chosen_dtype(config: ModelConfig, device: torch.device) -> torch.dtype:
    """bfloat16 on a GPU; on the CPU float32, which is faster there, unless the host has too little memory for it."""
    float32_bytes = 4 * count_parameters(config)
    if device.type != "cpu" or float32_bytes > HOST_SHARE * free_host_bytes():
        return torch.bfloat16
    return torch.float32


def free_host_bytes() -> float:
    """Memory that can be taken without swapping; without limit where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return float("inf")
    return 1024.0 * int(kilobytes)
